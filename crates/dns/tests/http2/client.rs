//! A client of HTTP/2 in frames: it builds those of a client, and shows those of the server as text.

use std::sync::Arc;
use std::time::Instant;

use data_encoding::BASE64URL_NOPAD;
use signpost_dns::transport::https::Site;
use signpost_dns::transport::https::http2::{Batch, Http2, PREFACE, Progress, QueryHandler};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags.
pub const END: u8 = 1;
pub const ACK: u8 = 1;
pub const WHOLE: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 0x20;

/// Responses that wait, from which further requests are refused.
pub const UNSENT_OCTETS_MAX: usize = 65_536;

/// Responds to a query of two octets with as many octets as the number in it, and to nothing else.
#[derive(Default)]
pub struct Handler(Vec<u8>);

impl QueryHandler for Handler {
    fn answer(&mut self, query: &[u8]) -> Option<&[u8]> {
        let length = usize::from(u16::from_be_bytes(query.try_into().ok()?));
        self.0.resize(length, b'x');
        Some(&self.0[..length]).filter(|answer| !answer.is_empty())
    }
}

/// The server's end of a connection.
pub struct Server {
    pub http: Http2,
    handler: Handler,
    input: Vec<u8>,
    pub moment: Instant,
}

impl Server {
    /// Before the preface.
    pub fn new() -> Server {
        let http = Http2::new(Arc::new(Site::default()), UNSENT_OCTETS_MAX);
        Server { http, handler: Handler::default(), input: Vec::new(), moment: Instant::now() }
    }

    /// After the preface and the settings.
    pub fn open() -> Server {
        let mut server = Server::new();
        let start = [PREFACE, &settings(&[])].concat();
        assert_eq!(server.receive(&start), ["SETTINGS", "SETTINGS ACK"]);
        server
    }

    /// Returns the output, and whether the connection continues.
    pub fn receive_octets(&mut self, octets: &[u8]) -> (Vec<u8>, bool) {
        self.input.extend_from_slice(octets);
        let mut all = Vec::new();
        loop {
            let mut output = Vec::new();
            let batch = Batch { output: &mut output, handler: &mut self.handler, moment: self.moment, second: 0 };
            let (done, progress) = self.http.receive(&self.input, batch);
            self.input.drain(..done);
            all.extend(output);
            match progress {
                Progress::Some => {}
                Progress::All => return (all, true),
                Progress::Malformed | Progress::Excessive => return (all, false),
            }
        }
    }

    /// Returns the frames of the output as text.
    pub fn receive(&mut self, octets: &[u8]) -> Vec<String> {
        let (output, continues) = self.receive_octets(octets);
        let frames = texts(&output);
        let is_over = frames.last().is_some_and(|frame| frame.starts_with("GOAWAY"));
        assert_eq!(continues, !is_over, "{frames:?}");
        frames
    }
}

/// The output for these frames after the preface.
#[track_caller]
pub fn check(what: &str, frames: &[Vec<u8>], expected: &[&str]) {
    assert_eq!(Server::open().receive(&frames.concat()), expected, "{what}");
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn settings(list: &[(u16, u32)]) -> Vec<u8> {
    let setting = |(number, value): &(u16, u32)| [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &list.iter().flat_map(setting).collect::<Vec<_>>())
}

pub fn window_update(stream: u32, octets: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &octets.to_be_bytes())
}

/// Fields as literals (RFC 7541 §6.2.2).
pub fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                section.push(length as u8);
            } else {
                section.push(127);
                length -= 127;
                while length >= 128 {
                    section.push((length % 128 + 128) as u8);
                    length /= 128;
                }
                section.push(length as u8);
            }
            section.extend_from_slice(text.as_bytes());
        }
    }
    section
}

/// A target whose answer has this length.
pub fn target(octets: u16) -> String {
    format!("/dns-query?dns={}", BASE64URL_NOPAD.encode(&octets.to_be_bytes()))
}

pub fn get_section(octets: u16) -> Vec<u8> {
    section(&[(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", &target(octets))])
}

/// A whole request.
pub fn get(stream: u32, octets: u16) -> Vec<u8> {
    frame(HEADERS, END | WHOLE, stream, &get_section(octets))
}

/// The head of a request that has a body.
pub fn post(stream: u32) -> Vec<u8> {
    post_with(stream, &[])
}

pub fn post_with(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", "POST"), (":scheme", "https"), (":path", "/dns-query")];
    let fields = [&fields[..], &[("content-type", "application/dns-message")], more].concat();
    frame(HEADERS, WHOLE, stream, &section(&fields))
}

/// Frames as text: the type, the stream, and what matters of the rest.
pub fn texts(mut output: &[u8]) -> Vec<String> {
    let codes = [
        (0_u32, "NO_ERROR"),
        (1, "PROTOCOL_ERROR"),
        (3, "FLOW_CONTROL_ERROR"),
        (5, "STREAM_CLOSED"),
        (6, "FRAME_SIZE_ERROR"),
        (7, "REFUSED_STREAM"),
        (9, "COMPRESSION_ERROR"),
        (11, "ENHANCE_YOUR_CALM"),
    ];
    let code = |number: u32| codes.iter().find(|(of, _)| *of == number).expect("a code of a server").1;
    let number = |octets: &[u8]| u32::from_be_bytes(octets.try_into().expect("four octets"));
    let mut texts = Vec::new();
    while let Some((header, rest)) = output.split_first_chunk::<9>() {
        let length = number(&[0, header[0], header[1], header[2]]) as usize;
        let (payload, after) = rest.split_at(length);
        output = after;
        let (kind, flags, stream) = (header[3], header[4], number(&header[5..]));
        let end = if flags & END != 0 { " END" } else { "" };
        texts.push(match kind {
            DATA => format!("DATA {stream} {length}{end}"),
            HEADERS => {
                assert_eq!(flags & !END, WHOLE);
                format!("HEADERS {stream} {}{end}", status(payload))
            }
            RST_STREAM => format!("RST_STREAM {stream} {}", code(number(payload))),
            SETTINGS if flags == 0 => "SETTINGS".to_owned(),
            SETTINGS => "SETTINGS ACK".to_owned(),
            PING => format!("PING ACK {}", String::from_utf8_lossy(payload)),
            GOAWAY => format!("GOAWAY {} {}", number(&payload[..4]), code(number(&payload[4..]))),
            WINDOW_UPDATE => format!("WINDOW_UPDATE {stream} {}", number(payload)),
            other => panic!("a frame of type {other}"),
        });
    }
    assert!(output.is_empty(), "a frame is cut off: {output:?}");
    texts
}

/// The status of a response, which may follow a size of the dynamic table.
pub fn status(section: &[u8]) -> String {
    match section.strip_prefix(&[0x20]).unwrap_or(section) {
        [0x88, ..] => "200".to_owned(),
        [0x08, 3, a, b, c, ..] => [*a, *b, *c].map(char::from).iter().collect(),
        other => panic!("no status in {other:x?}"),
    }
}
