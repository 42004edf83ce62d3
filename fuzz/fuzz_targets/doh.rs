//! Any octets as the lines of an HTTP request (method, target, media type, length), and as the DNS message of a response. The
//! properties: no panic; a query is found only where RFC 8484 §4.1 has one, and octet by octet; and no answer is kept for longer
//! than a record that hickory-proto reads in it.

#![no_main]

use data_encoding::BASE64URL_NOPAD;
use hickory_proto::op::Message;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Uri};
use libfuzzer_sys::fuzz_target;
use signpost_dns::transport::https::request::{MEDIA_TYPE, Source, TARGET_OCTETS_MAX, TemplatePath, read};
use signpost_dns::transport::https::response::freshness;

fuzz_target!(|octets: &[u8]| {
    request(octets);
    response(octets);
});

fn request(octets: &[u8]) {
    let mut lines = octets.splitn(4, |octet| *octet == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (Ok(method), Ok(uri)) = (Method::from_bytes(line()), Uri::try_from(line())) else { return };
    let mut headers = HeaderMap::new();
    for name in [CONTENT_TYPE, CONTENT_LENGTH] {
        if let Ok(value) = line().try_into() {
            headers.insert(name, value);
        }
    }
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    match read(&TemplatePath::default(), &method, &uri, &headers) {
        Ok(source) => {
            assert_eq!(uri.path(), "/dns-query");
            assert!(target <= TARGET_OCTETS_MAX);
            match source {
                Source::Head(query) => {
                    assert!(method == Method::GET || method == Method::HEAD);
                    let parameter = format!("dns={}", BASE64URL_NOPAD.encode(&query));
                    let mut parameters =
                        uri.query().expect("a query").split('&').filter(|part| part.starts_with("dns="));
                    assert_eq!((parameters.next(), parameters.next()), (Some(&parameter[..]), None));
                }
                Source::Body => {
                    assert_eq!(method, Method::POST);
                    let media_type = headers[CONTENT_TYPE].to_str().expect("text").to_ascii_lowercase();
                    assert!(media_type.trim().starts_with(MEDIA_TYPE));
                    let length =
                        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
                    assert!(length.is_none_or(|length| length <= 65_535));
                }
            }
        }
        Err(status) => assert!(status.is_client_error()),
    }
}

fn response(octets: &[u8]) {
    let Some(seconds) = freshness(octets) else { return };
    assert_eq!(octets[2] & 0xfa, 0x80, "a whole response to a query");
    let Ok(message) = Message::from_vec(octets) else { return };
    for record in &message.answers {
        assert!(seconds <= record.ttl || record.ttl >> 31 != 0, "{seconds} s of a record with {}", record.ttl);
    }
}
