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

/// The fields of the head of a request that matter.
#[derive(Debug, Clone, Copy)]
pub struct Head<'h> {
    /// The method.
    pub method: &'h Method,
    /// The path.
    pub path: &'h [u8],
    /// The query behind the path.
    pub query: Option<&'h [u8]>,
    /// Whether the body is a DNS message, by its media type.
    pub is_message: bool,
    /// The length of the body.
    pub content_length: Option<u64>,
}

impl<'h> Head<'h> {
    /// Returns the fields of a parsed head.
    pub fn new(method: &'h Method, uri: &'h Uri, headers: &HeaderMap) -> Self {
        let value = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Head {
            method,
            path: uri.path().as_bytes(),
            query: uri.query().map(str::as_bytes),
            is_message: value(CONTENT_TYPE).is_some_and(|value| is_media_type(value.as_bytes())),
            content_length: value(CONTENT_LENGTH).and_then(|value| value.parse().ok()),
        }
    }
}

/// Whether a media type is that of DNS messages. Parameters have no meaning (RFC 8484 §6).
pub(super) fn is_media_type(value: &[u8]) -> bool {
    let media_type = value.split(|octet| *octet == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
}

/// The location of the query in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In its head.
    Head,
    /// In its body.
    Body,
}

/// The reason why a request is not answered with a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No `dns` parameter, two of them, or one that is not base64url without padding; or no query in the octets.
    BadRequest,
    /// A path other than that of the template.
    NotFound,
    /// An unsupported method.
    MethodNotAllowed,
    /// A body larger than a DNS message.
    ContentTooLarge,
    /// A head that is too large.
    HeadTooLarge,
    /// A path and query that are too long.
    UriTooLong,
    /// A body of another media type, or of none.
    UnsupportedMediaType,
}

impl Refusal {
    /// Returns the HTTP status (RFC 9110 §15.5).
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::BadRequest => StatusCode::BAD_REQUEST,
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::ContentTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::UriTooLong => StatusCode::URI_TOO_LONG,
            Refusal::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

/// Finds the query of a request; `into` contains it if it is in the head. `Accept` is ignored: there is one media type, and RFC 9110
/// §12.5.1 allows a server to send it regardless.
///
/// # Errors
///
/// See [`Refusal`].
pub fn read(template: &TemplatePath, head: &Head<'_>, into: &mut Vec<u8>) -> Result<Source, Refusal> {
    into.clear();
    if head.path.len() + head.query.map_or(0, |query| 1 + query.len()) > TARGET_OCTETS_MAX {
        return Err(Refusal::UriTooLong);
    }
    if head.path != template.0.as_bytes() {
        return Err(Refusal::NotFound);
    }
    match *head.method {
        Method::GET | Method::HEAD => read_parameter(head.query.unwrap_or_default(), into).map(|()| Source::Head),
        Method::POST if !head.is_message => Err(Refusal::UnsupportedMediaType),
        Method::POST if head.content_length.is_some_and(|octets| octets > MESSAGE_OCTETS_MAX as u64) => {
            Err(Refusal::ContentTooLarge)
        }
        Method::POST => Ok(Source::Body),
        _ => Err(Refusal::MethodNotAllowed),
    }
}

/// Decodes the value of the one `dns` parameter; others are ignored.
fn read_parameter(query: &[u8], into: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut values = query.split(|octet| *octet == b'&').filter_map(|parameter| parameter.strip_prefix(b"dns="));
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::BadRequest) };
    // RFC 8484 §6: "Padding characters for base64url MUST NOT be included."
    into.resize(BASE64URL_NOPAD.decode_len(value.len()).map_err(|_| Refusal::BadRequest)?, 0);
    BASE64URL_NOPAD.decode_mut(value, into).map_err(|_| Refusal::BadRequest)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the query of the head, or `None` if it is in the body.
    fn read_one(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Option<Vec<u8>>, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let (method, uri) = (method.parse().expect("a method"), uri.parse().expect("a URI"));
        let mut query = b"of another request".to_vec();
        let source = read(&TemplatePath::default(), &Head::new(&method, &uri, &map), &mut query)?;
        assert!(source == Source::Head || query.is_empty());
        Ok((source == Source::Head).then_some(query))
    }

    #[test]
    fn requests_of_each_kind() {
        let long = format!("/dns-query?dns={}", "A".repeat(TARGET_OCTETS_MAX));
        let ours = [("content-type", MEDIA_TYPE)];
        let head = |octets: &[u8]| Ok(Some(octets.to_vec()));
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
            ("GET", "/dns-query", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?name=example.org&type=A", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?dns=AAAB&dns=AAAB", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?dns=AAA=", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?dns=AA+/", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?dns=A", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query?DNS=AAAB", &[], Err(Refusal::BadRequest)),
            ("GET", "/dns-query/?dns=AAAB", &[], Err(Refusal::NotFound)),
            ("GET", "/?dns=AAAB", &[], Err(Refusal::NotFound)),
            ("PUT", "/other", &[], Err(Refusal::NotFound)),
            ("GET", &long, &[], Err(Refusal::UriTooLong)),
            ("PUT", "/dns-query", &ours, Err(Refusal::MethodNotAllowed)),
            ("OPTIONS", "/dns-query", &[], Err(Refusal::MethodNotAllowed)),
            ("POST", "/dns-query", &ours, Ok(None)),
            ("POST", "/dns-query?dns=AAAB", &ours, Ok(None)),
            ("POST", "/dns-query", &[("content-type", "Application/DNS-Message; a=b")], Ok(None)),
            ("POST", "/dns-query", &[("content-type", MEDIA_TYPE), ("content-length", "65535")], Ok(None)),
            (
                "POST",
                "/dns-query",
                &[("content-type", MEDIA_TYPE), ("content-length", "65536")],
                Err(Refusal::ContentTooLarge),
            ),
            ("POST", "/dns-query", &[], Err(Refusal::UnsupportedMediaType)),
            ("POST", "/dns-query", &[("content-type", "application/dns-json")], Err(Refusal::UnsupportedMediaType)),
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
