//! EDNS (RFC 6891): the requests in the OPT record of a query, and the codes in the OPT record of a response.

use super::header::Rcode;

/// The length in octets of an OPT record without options.
pub const OPT_OCTETS: usize = 11;

/// Codes of options (IANA registry "DNS EDNS0 Option Codes").
pub mod option {
    /// Name server identifier (RFC 5001).
    pub const NSID: u16 = 3;
    /// DNS cookie (RFC 7873).
    pub const COOKIE: u16 = 10;
    /// Idle timeout of a stream (RFC 7828).
    pub const KEEPALIVE: u16 = 11;
    /// Padding (RFC 7830).
    pub const PADDING: u16 = 12;
    /// Extended error (RFC 8914).
    pub const EXTENDED_ERROR: u16 = 15;
    /// Version of the zone (RFC 9660).
    pub const ZONEVERSION: u16 = 19;
}

/// An extended error (RFC 8914 §4), by its INFO-CODE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedError(pub u16);

impl ExtendedError {
    /// The answer is older than it should be.
    pub const STALE_ANSWER: ExtendedError = ExtendedError(3);
    /// The server is not ready yet.
    pub const NOT_READY: ExtendedError = ExtendedError(14);
    /// The client is not permitted to send this query.
    pub const PROHIBITED: ExtendedError = ExtendedError(18);
    /// The server is not authoritative for the name.
    pub const NOT_AUTHORITATIVE: ExtendedError = ExtendedError(20);
    /// The operation or type is not supported.
    pub const NOT_SUPPORTED: ExtendedError = ExtendedError(21);
    /// The zone's data is not valid, or has expired.
    pub const INVALID_DATA: ExtendedError = ExtendedError(24);
    /// The type cannot be queried.
    pub const INVALID_QUERY_TYPE: ExtendedError = ExtendedError(30);
}

/// The contents of a query's OPT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edns {
    /// The largest UDP payload that the client accepts, as sent: it may be under 512.
    pub payload_octets_max: u16,
    /// EDNS version; only 0 is known.
    pub version: u8,
    /// DO: the client requests DNSSEC records (RFC 3225).
    pub dnssec_ok: bool,
    /// Whether the client requests the server's identifier.
    pub nsid: bool,
    /// Whether the client requests the stream's idle timeout.
    pub keepalive: bool,
    /// Whether the keepalive option contains a timeout, which is malformed, but only where the option has a meaning (RFC 7828
    /// §3.3.1).
    pub malformed_keepalive: bool,
    /// Whether the client padded its query.
    pub padding: bool,
    /// Whether the client requests the version of the zone.
    pub zone_version: bool,
    /// The position of the cookie in the query, and its length: 8 or 16 to 40.
    pub cookie: Option<(u16, u8)>,
    /// Whether the cookie has another length, which is malformed for a server that supports cookies (RFC 7873 §5.2.2).
    pub malformed_cookie: bool,
}

impl Edns {
    /// Reads an OPT record's CLASS, TTL and RDATA, the latter as the part of `message` from `start` to `end`. The options of an
    /// unknown version are ignored. `None` if an option extends past the end of the record; lengths that an RFC forbids are in
    /// the result, because whether they are a fault depends on the transport and the settings.
    #[inline]
    pub fn read(class: u16, ttl: u32, message: &[u8], start: usize, end: usize) -> Option<Edns> {
        let mut edns = Edns {
            payload_octets_max: class,
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & 0x8000 != 0,
            ..Edns::default()
        };
        if edns.version != 0 {
            return Some(edns);
        }
        let mut at = start;
        while at < end {
            let &[code_high, code_low, high, low] = message[at..end].first_chunk()?;
            let length = usize::from(u16::from_be_bytes([high, low]));
            at += 4;
            if length > end - at {
                return None;
            }
            match u16::from_be_bytes([code_high, code_low]) {
                option::NSID => edns.nsid = true,
                // RFC 7828 §3.2.1: "clients MUST specify an OPTION-LENGTH of zero".
                option::KEEPALIVE if length == 0 => edns.keepalive = true,
                option::KEEPALIVE => edns.malformed_keepalive = true,
                option::PADDING => edns.padding = true,
                // RFC 9660 §3.1: an empty option requests it. Another one is ignored.
                option::ZONEVERSION if length == 0 => edns.zone_version = true,
                // Only the first of several is read (RFC 7873 §5.2).
                option::COOKIE if edns.cookie.is_some() || edns.malformed_cookie => {}
                // §5.2.2: a length other than 8 or 16 to 40 is FORMERR.
                option::COOKIE if length == 8 || (16..=40).contains(&length) => {
                    edns.cookie = Some((at as u16, length as u8));
                }
                option::COOKIE => edns.malformed_cookie = true,
                _ => {}
            }
            at += length;
        }
        Some(edns)
    }
}

/// Returns the fixed part of a response's OPT record: root owner, type, our payload size, the upper bits of `rcode`, version 0
/// and the DO bit, with `options_octets` of options to follow.
#[inline]
pub fn opt_head(payload_octets_max: u16, rcode: Rcode, dnssec_ok: bool, options_octets: u16) -> [u8; OPT_OCTETS] {
    let [size_high, size_low] = payload_octets_max.to_be_bytes();
    let [length_high, length_low] = options_octets.to_be_bytes();
    let flags = if dnssec_ok { 0x80 } else { 0 };
    [0, 0, 41, size_high, size_low, (rcode.0 >> 4) as u8, 0, flags, 0, length_high, length_low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[u8]) -> Option<Edns> {
        Edns::read(1232, 0x8000, options, 0, options.len())
    }

    /// Options after one of a forbidden length can still be read.
    #[test]
    fn forbidden_lengths() {
        for (options, cookie, keepalive) in [
            (&b"\0\x0a\0\x071234567\0\x03\0\0"[..], (None, true), (false, false)),
            (b"\0\x0a\0\x0a1234567890\0\x03\0\0", (None, true), (false, false)),
            (b"\0\x0a\0\0\0\x0a\0\x0812345678\0\x03\0\0", (None, true), (false, false)),
            (b"\0\x0a\0\x0812345678\0\x0a\0\0\0\x03\0\0", (Some((4, 8)), false), (false, false)),
            (b"\0\x0b\0\x02\0\x01\0\x03\0\0", (None, false), (false, true)),
        ] {
            let edns = read(options).expect("can be read");
            assert!(edns.nsid, "{options:?}");
            assert_eq!((edns.cookie, edns.malformed_cookie), cookie, "{options:?}");
            assert_eq!((edns.keepalive, edns.malformed_keepalive), keepalive, "{options:?}");
        }
    }
}
