//! Server information in class CH (RFC 4892): none, unless the operator sets it.

use super::settings::Settings;
use crate::wire::build::{Full, Writer};
use crate::wire::message::Query;
use crate::wire::{Class, RecordType};
use crate::zone::node::QUESTION_POINTER;

/// Returns the text that answers a question of class CH, or `None` to refuse the query.
pub(super) fn text<'s>(query: &Query, message: &[u8], settings: &'s Settings) -> Option<&'s str> {
    let question = query.question?;
    if !matches!(question.qtype, RecordType::TXT | RecordType::ANY) {
        return None;
    }
    let name = question.name(message);
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    if is(b"\x07version\x04bind\0") || is(b"\x07version\x06server\0") {
        settings.version.as_deref()
    } else if is(b"\x02id\x06server\0") || is(b"\x08hostname\x04bind\0") {
        settings.server_id.as_deref()
    } else {
        None
    }
}

/// Writes a TXT record of class CH with TTL 0 and one character-string of at most 255 octets of `text`.
pub(super) fn put(writer: &mut Writer<'_>, text: &str) -> Result<(), Full> {
    let text = &text.as_bytes()[..text.len().min(255)];
    writer.put_u16(QUESTION_POINTER)?;
    writer.put_u16(RecordType::TXT.0)?;
    writer.put_u16(Class::CH.0)?;
    writer.put(&[0; 4])?;
    writer.put_u16(text.len() as u16 + 1)?;
    writer.put(&[text.len() as u8])?;
    writer.put(text)
}
