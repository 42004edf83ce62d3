//! The contents of a DNS over QUIC stream, without any input or output: two octets of length and one query (RFC 9250 §4.2).

use crate::wire::header::HEADER_OCTETS;
use crate::wire::message::Query;

/// The size of the length field in front of a message.
pub const LENGTH_OCTETS: usize = 2;

/// The octets of a stream are not one query. RFC 9250 §4.3.3: that is a fatal error of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Returns the length of the message whose stream begins with `octets`; `None` while that is unknown.
///
/// # Errors
///
/// There is already more than that: "more than one query" on a stream, or other octets after it.
pub fn expected_octets(octets: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = octets.first_chunk::<LENGTH_OCTETS>() else { return Ok(None) };
    let end = LENGTH_OCTETS + usize::from(u16::from_be_bytes(*length));
    if octets.len() > end { Err(Malformed) } else { Ok(Some(end)) }
}

/// Returns the query of a complete stream with these octets.
///
/// # Errors
///
/// RFC 9250 §4.3.3: "the STREAM FIN is indicated before all the bytes for the response indicated in the length field"; octets after
/// the message. The message is shorter than a header. §4.2.1: "the DNS Message ID MUST be set to 0". §5.5.2: "an edns-tcp-keepalive
/// EDNS(0) option" MUST NOT be sent.
pub fn query(octets: &[u8]) -> Result<&[u8], Malformed> {
    if expected_octets(octets)? != Some(octets.len()) {
        return Err(Malformed);
    }
    let message = &octets[LENGTH_OCTETS..];
    if message.len() < HEADER_OCTETS || message[..2] != [0, 0] {
        return Err(Malformed);
    }
    // Only a message with additional records can have options.
    let has_additional = message[10..HEADER_OCTETS] != [0, 0];
    let edns = if has_additional { Query::read(message).and_then(|query| query.edns) } else { None };
    match edns {
        Some(edns) if edns.keepalive || edns.malformed_keepalive => Err(Malformed),
        _ => Ok(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u16).to_be_bytes(), message].concat()
    }

    #[test]
    fn one_query_is_one_stream() {
        let message = b"\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01".to_vec();
        let with_option = |option: &[u8]| {
            let mut message = message.clone();
            message[11] = 1;
            let length = [0, option.len() as u8];
            [&message, &b"\0\0\x29\x04\xd0\0\0\0\0"[..], &length, option].concat()
        };
        let id = [&[0, 1], &message[2..]].concat();
        for (octets, expected) in [
            (framed(&message), Ok(&message[..])),
            (framed(&with_option(b"\0\x03\0\0")), Ok(&with_option(b"\0\x03\0\0")[..])),
            (framed(&with_option(b"\0\x0b\0\0")), Err(Malformed)),
            (framed(&with_option(b"\0\x0b\0\x02\0\x05")), Err(Malformed)),
            (framed(&id), Err(Malformed)),
            (framed(&message[..11]), Err(Malformed)),
            (framed(&[]), Err(Malformed)),
            (vec![], Err(Malformed)),
            (vec![0], Err(Malformed)),
            (framed(&message)[..18].to_vec(), Err(Malformed)),
            ([framed(&message), vec![0]].concat(), Err(Malformed)),
            (framed(&message).repeat(2), Err(Malformed)),
        ] {
            assert_eq!(query(&octets), expected, "{octets:?}");
        }
    }
}
