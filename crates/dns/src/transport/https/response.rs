//! The head of an HTTP response to a DNS query (RFC 8484 §4.2, §5.1), without any input or output.

use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::request::{MEDIA_TYPE, METHODS};
use crate::wire::RecordType;
use crate::wire::header::{FLAG_TC, HEADER_OCTETS, Header, Opcode, Rcode};
use crate::wire::message::{skip_name, skip_questions};

/// Returns the head of the response with this DNS message.
pub fn answer<T>(message: &[u8], body: T) -> Response<T> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(message.len()));
    headers.insert(CACHE_CONTROL, cache_control(message));
    response
}

/// Returns the response to a request that cannot be answered. It has no body.
pub fn refusal<T>(status: StatusCode, empty: T) -> Response<T> {
    let mut response = Response::new(empty);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    }
    response
}

fn cache_control(message: &[u8]) -> HeaderValue {
    match freshness(message) {
        None => HeaderValue::from_static("no-store"),
        Some(seconds) => format!("max-age={seconds}").try_into().unwrap_or(HeaderValue::from_static("no-store")),
    }
}

/// Returns the number of seconds for which a response may be cached: the smallest TTL of its answers; for a negative answer, the
/// time from the SOA record (RFC 8484 §5.1, RFC 2308 §5); for a referral, the smallest TTL of its records. `None` if it must not
/// be cached, such as SERVFAIL.
pub fn freshness(message: &[u8]) -> Option<u32> {
    let header = Header::read(message)?;
    let is_lasting = matches!(header.rcode(), Rcode::NOERROR | Rcode::NXDOMAIN) && header.flags & FLAG_TC == 0;
    if !is_lasting || header.opcode() != Opcode::QUERY || !header.is_response() {
        return None;
    }
    let mut at = skip_questions(message, header.questions)?;
    let (mut least, mut of_authority) = (None, None);
    let lower = |least: &mut Option<u32>, ttl: u32| *least = Some(least.map_or(ttl, |least: u32| least.min(ttl)));
    for number in 0..u32::from(header.answers) + u32::from(header.authorities) {
        at = skip_name(message, at)?;
        let &[type_high, type_low, _, _, a, b, c, d, high, low] = message.get(at..)?.first_chunk()?;
        let end = at + 10 + usize::from(u16::from_be_bytes([high, low]));
        let data = message.get(at + 10..end)?;
        at = end;
        // RFC 2181 §8: a TTL with the highest bit set is 0.
        let ttl = Some(u32::from_be_bytes([a, b, c, d])).filter(|ttl| ttl >> 31 == 0).unwrap_or(0);
        if number < u32::from(header.answers) {
            lower(&mut least, ttl);
        } else if RecordType(u16::from_be_bytes([type_high, type_low])) == RecordType::SOA {
            lower(&mut least, ttl.min(u32::from_be_bytes(*data.last_chunk()?)));
        } else {
            lower(&mut of_authority, ttl);
        }
    }
    debug_assert!(at >= HEADER_OCTETS);
    least.or(of_authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response with these flags and records: section, type, TTL, data.
    fn response(flags: u16, records: &[(u8, RecordType, u32, &[u8])]) -> Vec<u8> {
        let count = |section| records.iter().filter(|record| record.0 == section).count() as u16;
        let (answers, authorities) = (count(1), count(2));
        let header = Header { id: 0, flags: 0x8000 | flags, questions: 1, answers, authorities, additionals: 0 };
        let mut message = [&header.to_octets()[..], b"\x01a\0\0\x01\0\x01"].concat();
        for (_, rtype, ttl, data) in records {
            message.extend_from_slice(&[0xc0, 12]);
            message.extend_from_slice(&rtype.0.to_be_bytes());
            message.extend_from_slice(&[0, 1]);
            message.extend_from_slice(&ttl.to_be_bytes());
            message.extend_from_slice(&(data.len() as u16).to_be_bytes());
            message.extend_from_slice(data);
        }
        message
    }

    #[test]
    fn freshness_of_each_kind_of_answer() {
        let (a, ns, soa) = (RecordType::A, RecordType::NS, RecordType::SOA);
        let minimum = |seconds: u32| [&[0; 18][..], &seconds.to_be_bytes()].concat();
        let (sixty, thousand) = (minimum(60), minimum(1_000));
        for (flags, records, expected) in [
            (0, &[(1, a, 300, &[0; 4][..]), (1, a, 30, &[0; 4]), (2, ns, 5, &[0])][..], Some(30)),
            (0, &[(1, a, 0, &[0; 4])], Some(0)),
            (0, &[(1, a, 0x8000_0001, &[0; 4])], Some(0)),
            // No such record, no such name: the SOA's TTL or its MINIMUM, whichever is less.
            (0, &[(2, soa, 300, &sixty)], Some(60)),
            (3, &[(2, soa, 300, &thousand)], Some(300)),
            // An alias whose target does not exist.
            (3, &[(1, RecordType::CNAME, 100, &[0]), (2, soa, 300, &sixty)], Some(60)),
            // A referral.
            (0, &[(2, ns, 3_600, &[0]), (2, ns, 600, &[0])], Some(600)),
            (0, &[], None),
            (2, &[(2, soa, 300, &sixty)], None),
            (5, &[], None),
            (0x0200, &[(1, a, 300, &[0; 4])], None),
            (0x2000, &[(1, a, 300, &[0; 4])], None),
            (0, &[(2, soa, 300, &[0; 3])], None),
        ] {
            let message = response(flags, records);
            assert_eq!(freshness(&message), expected, "{flags:x} {records:?}");
            if expected.is_some() {
                for end in 0..message.len() {
                    assert_eq!(freshness(&message[..end]), None, "{end} of {flags:x} {records:?}");
                }
            }
        }
    }
}
