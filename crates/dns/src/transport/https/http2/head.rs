//! The head of a request, field by field, and what makes it malformed (RFC 9113 §8.2, §8.3).

use hyper::Method;

use super::super::HEAD_OCTETS_MAX;
use super::super::request::{self, is_media_type};

/// The share of each field in the size of a head, in addition to its octets (§6.5.2).
const FIELD_OCTETS: usize = 32;

/// The size from which a head ends the connection. Two octets can repeat a field of 4,000, so the size of the compressed head is not
/// a limit of the server's work.
const DECODED_OCTETS_MAX: usize = 4 * HEAD_OCTETS_MAX as usize;

/// Pseudo-header fields.
const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const PATH: u8 = 4;
const AUTHORITY: u8 = 8;

/// The fields of a request that matter, and those that have come.
#[derive(Default)]
pub(super) struct Head {
    method: Option<Method>,
    target: Vec<u8>,
    is_message: Option<bool>,
    content_length: Option<u64>,
    /// The pseudo-header fields that have come.
    pseudo: u8,
    /// Whether another field has come.
    is_past_pseudo: bool,
    is_malformed: bool,
    octets: usize,
}

impl Head {
    /// Begins another head.
    pub(super) fn clear(&mut self) {
        let mut target = std::mem::take(&mut self.target);
        target.clear();
        *self = Head { target, ..Head::default() };
    }

    /// Releases a buffer that is larger than this.
    pub(super) fn shrink(&mut self, octets_max: usize) {
        self.target.clear();
        self.target.shrink_to(octets_max);
    }

    /// Adds a field; `None` if the head is too large even for a response.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        self.octets = self.octets.saturating_add(name.len() + value.len() + FIELD_OCTETS);
        if self.is_too_large() {
            return (self.octets <= DECODED_OCTETS_MAX).then_some(());
        }
        let is_valid = if name.first() == Some(&b':') {
            !self.is_past_pseudo && self.add_pseudo(name, value)
        } else {
            self.is_past_pseudo = true;
            self.add_regular(name, value)
        };
        self.is_malformed |= !is_valid || !is_value(value);
        Some(())
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        let field = match name {
            b":method" => {
                self.method = Method::from_bytes(value).ok();
                METHOD
            }
            b":scheme" => SCHEME,
            b":path" => {
                self.target.clear();
                self.target.extend_from_slice(value);
                PATH
            }
            b":authority" => AUTHORITY,
            _ => return false,
        };
        let is_first = self.pseudo & field == 0;
        self.pseudo |= field;
        is_first
    }

    fn add_regular(&mut self, name: &[u8], value: &[u8]) -> bool {
        match name {
            b"content-type" => {
                self.is_message.get_or_insert_with(|| is_media_type(value));
                true
            }
            b"content-length" => {
                let is_number = value.iter().all(u8::is_ascii_digit);
                let length = str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| text.parse::<u64>().ok());
                length.is_some_and(|length| *self.content_length.get_or_insert(length) == length)
            }
            // §8.2.2: fields of a connection.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => false,
            b"te" => value.eq_ignore_ascii_case(b"trailers"),
            // §8.2.1: what a name must not contain.
            _ => !name.is_empty() && name.iter().all(|octet| matches!(octet, 0x21..=0x39 | 0x3b..=0x40 | 0x5b..=0x7e)),
        }
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.octets > HEAD_OCTETS_MAX as usize
    }

    /// Whether the fields are those of a trailer section.
    pub(super) fn is_trailer(&self) -> bool {
        self.pseudo == 0 && !self.is_malformed && !self.is_too_large()
    }

    /// Returns the request; `None` if it is malformed.
    pub(super) fn request(&self) -> Option<request::Head<'_>> {
        let method = self.method.as_ref().filter(|_| !self.is_malformed)?;
        // §8.5: a CONNECT request has only an authority.
        let is_whole = match *method {
            Method::CONNECT => self.pseudo == METHOD | AUTHORITY,
            Method::OPTIONS if self.target == b"*" => self.pseudo & SCHEME != 0,
            _ => self.pseudo & SCHEME != 0 && self.target.first() == Some(&b'/'),
        };
        let mut parts = self.target.splitn(2, |octet| *octet == b'?');
        let (path, query) = (parts.next().unwrap_or_default(), parts.next());
        let is_message = self.is_message == Some(true);
        is_whole.then_some(request::Head { method, path, query, is_message, content_length: self.content_length })
    }
}

/// Whether a field may have this value (§8.2.1).
fn is_value(value: &[u8]) -> bool {
    let is_space = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    !is_space(value.first()) && !is_space(value.last()) && !value.iter().any(|octet| matches!(octet, 0 | b'\n' | b'\r'))
}
