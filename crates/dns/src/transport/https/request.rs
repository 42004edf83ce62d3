//! Reading the head of an HTTP request for DNS (RFC 8484 §4.1), without any input or output: the same for each version of
//! HTTP.

use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use hyper::{HeaderMap, Method, StatusCode, Uri};

use super::super::worker::MESSAGE_OCTETS_MAX;

/// The one media type of requests and responses (RFC 8484 §6).
pub const MEDIA_TYPE: &str = "application/dns-message";

/// Methods that are answered, as `Allow` lists them.
pub const METHODS: &str = "GET, HEAD, POST";

/// The maximum number of octets of a path with its query: 6,000 octets of a message, some ten times the size of a query with
/// padding. RFC 9110 §4.1 recommends at least 8,000. Larger queries must use POST.
pub const TARGET_OCTETS_MAX: usize = 8_192;

/// The path of the URI template (RFC 8484 §3), to which clients add `?dns=` or post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplatePath(Box<str>);

/// The error for a path that cannot be in a URI template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a path that begins with / and contains only letters, digits, and - . _ ~ /, such as /dns-query")]
pub struct InvalidPath;

impl FromStr for TemplatePath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let is_allowed = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~/".contains(&octet);
        let is_path = text.starts_with('/') && text.len() <= 255 && text.bytes().all(is_allowed);
        if is_path { Ok(TemplatePath(text.into())) } else { Err(InvalidPath) }
    }
}

impl Default for TemplatePath {
    /// Returns the usual path.
    fn default() -> Self {
        TemplatePath("/dns-query".into())
    }
}

impl AsRef<str> for TemplatePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The location of the query in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In its head: these octets.
    Head(Vec<u8>),
    /// In its body.
    Body,
}

/// Finds the query of a request. `Accept` is ignored: there is one media type, and RFC 9110 §12.5.1 allows a server to send it
/// regardless.
///
/// # Errors
///
/// The status of the response (RFC 9110 §15.5). 400: no `dns` parameter, two of them, or one that is not base64url without padding.
/// 404: a path other than that of the template. 405: an unsupported method. 413: a body larger than a DNS message. 414: a path and
/// query that are too long. 415: a body of another media type, or of none.
pub fn read(template: &TemplatePath, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Source, StatusCode> {
    if uri.path_and_query().is_some_and(|target| target.as_str().len() > TARGET_OCTETS_MAX) {
        return Err(StatusCode::URI_TOO_LONG);
    }
    if uri.path() != template.as_ref() {
        return Err(StatusCode::NOT_FOUND);
    }
    match *method {
        Method::GET | Method::HEAD => read_parameter(uri.query().unwrap_or_default()).map(Source::Head),
        Method::POST => check_body(headers).map(|()| Source::Body),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Decodes the value of the one `dns` parameter; others are ignored.
fn read_parameter(query: &str) -> Result<Vec<u8>, StatusCode> {
    let mut values = query.split('&').filter_map(|parameter| parameter.strip_prefix("dns="));
    let (Some(value), None) = (values.next(), values.next()) else { return Err(StatusCode::BAD_REQUEST) };
    // RFC 8484 §6: "Padding characters for base64url MUST NOT be included."
    BASE64URL_NOPAD.decode(value.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)
}

/// Checks the media type and the announced length of a body.
fn check_body(headers: &HeaderMap) -> Result<(), StatusCode> {
    let value = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Parameters have no meaning (RFC 8484 §6).
    let media_type = value(CONTENT_TYPE).and_then(|value| value.split(';').next()).unwrap_or_default();
    if !media_type.trim().eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    match value(CONTENT_LENGTH).and_then(|value| value.parse::<u64>().ok()) {
        Some(octets) if octets > MESSAGE_OCTETS_MAX as u64 => Err(StatusCode::PAYLOAD_TOO_LARGE),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Source, StatusCode> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        read(&TemplatePath::default(), &method, &uri.parse().expect("a URI"), &map)
    }

    #[test]
    fn requests_of_each_kind() {
        let long = format!("/dns-query?dns={}", "A".repeat(TARGET_OCTETS_MAX));
        let ours = [("content-type", MEDIA_TYPE)];
        let head = |octets: &[u8]| Ok(Source::Head(octets.to_vec()));
        for (method, uri, headers, expected) in [
            // RFC 8484 §4.1.1 with its example, as far as this test needs it.
            ("GET", "/dns-query?dns=AAABAAAB", &[][..], head(&[0, 0, 1, 0, 0, 1])),
            (
                "GET",
                "https://dns.example/dns-query?dns=AAABAAAB",
                &[("accept", "text/html")],
                head(&[0, 0, 1, 0, 0, 1]),
            ),
            ("HEAD", "/dns-query?a=b&dns=-_8&c", &[], head(&[0xfb, 0xff])),
            ("GET", "/dns-query?dns=", &[], head(&[])),
            ("GET", "/dns-query", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?name=example.org&type=A", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=AAAB&dns=AAAB", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=AAA=", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=AA+/", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?dns=A", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query?DNS=AAAB", &[], Err(StatusCode::BAD_REQUEST)),
            ("GET", "/dns-query/?dns=AAAB", &[], Err(StatusCode::NOT_FOUND)),
            ("GET", "/?dns=AAAB", &[], Err(StatusCode::NOT_FOUND)),
            ("PUT", "/other", &[], Err(StatusCode::NOT_FOUND)),
            ("GET", &long, &[], Err(StatusCode::URI_TOO_LONG)),
            ("PUT", "/dns-query", &ours, Err(StatusCode::METHOD_NOT_ALLOWED)),
            ("OPTIONS", "/dns-query", &[], Err(StatusCode::METHOD_NOT_ALLOWED)),
            ("POST", "/dns-query", &ours, Ok(Source::Body)),
            ("POST", "/dns-query?dns=AAAB", &ours, Ok(Source::Body)),
            ("POST", "/dns-query", &[("content-type", "Application/DNS-Message; a=b")], Ok(Source::Body)),
            ("POST", "/dns-query", &[("content-type", MEDIA_TYPE), ("content-length", "65535")], Ok(Source::Body)),
            (
                "POST",
                "/dns-query",
                &[("content-type", MEDIA_TYPE), ("content-length", "65536")],
                Err(StatusCode::PAYLOAD_TOO_LARGE),
            ),
            ("POST", "/dns-query", &[], Err(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
            (
                "POST",
                "/dns-query",
                &[("content-type", "application/dns-json")],
                Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ),
        ] {
            assert_eq!(read_one(method, uri, headers), expected, "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn paths_of_templates() {
        for (text, is_path) in [("/", true), ("/dns-query", true), ("/a/b.c", true), ("", false), ("dns", false)] {
            assert_eq!(text.parse::<TemplatePath>().is_ok(), is_path, "{text}");
        }
        for text in ["/dns-query{?dns}", "/a?b", "/a#b", "/ä", "/a b", "/%61"] {
            assert_eq!(text.parse::<TemplatePath>(), Err(InvalidPath), "{text}");
        }
    }
}
