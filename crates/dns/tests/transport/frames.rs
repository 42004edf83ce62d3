//! Frames of an HTTP/2 client (RFC 9113 §6), for clients that no library can be made to be.

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The first octets of a client, with its settings.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head with this method and target, of fewer than 127 octets, as literals (RFC 7541 §6.2.2).
pub fn head(stream: u32, flags: u8, method: &str, target: &str) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "ns1.example"),
        (":path", target),
        ("content-type", "application/dns-message"),
    ];
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(0);
        for text in [name, value] {
            section.push(text.len() as u8);
            section.extend_from_slice(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS | flags, stream, &section)
}
