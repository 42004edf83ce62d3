//! The heads of responses. They are literals and entries of the static table (RFC 7541 §6): a dynamic table would spare some 50 octets
//! of each response, and keep a state for each connection.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use super::super::request::{MEDIA_TYPE, METHODS, Refusal};
use super::super::response::{Common, freshness};
use super::frame::{self, END_HEADERS, END_STREAM, HEADERS};

/// Names of fields, by their indices in the static table.
const STATUS: u8 = 8;
const ALLOW: u8 = 22;
const CACHE_CONTROL: u8 = 24;
const CONTENT_LENGTH: u8 = 28;
const CONTENT_TYPE: u8 = 31;
const DATE: u8 = 33;

/// The encoder of one connection.
#[derive(Default)]
pub(super) struct Encoder {
    is_used: bool,
    /// The value of Date, for a second since the epoch.
    date: String,
    second: u64,
}

impl Encoder {
    /// Writes the head of the response with this DNS message; nothing follows it if it is the end.
    pub(super) fn answer(
        &mut self,
        output: &mut Vec<u8>,
        (stream, is_end): (u32, bool),
        message: &[u8],
        (common, second): (&Common, u64),
    ) {
        let at = self.begin(output, stream, is_end, 200);
        put(output, CONTENT_TYPE, MEDIA_TYPE.as_bytes());
        put_number(output, CONTENT_LENGTH, "", message.len());
        match freshness(message) {
            Some(seconds) => put_number(output, CACHE_CONTROL, "max-age=", seconds as usize),
            None => put(output, CACHE_CONTROL, b"no-store"),
        }
        self.end(output, at, common, second);
    }

    /// Writes the whole response to a request that cannot be answered.
    pub(super) fn refusal(
        &mut self,
        output: &mut Vec<u8>,
        stream: u32,
        refusal: Refusal,
        (common, second): (&Common, u64),
    ) {
        let at = self.begin(output, stream, true, refusal.status().as_u16());
        put_number(output, CONTENT_LENGTH, "", 0);
        if refusal == Refusal::MethodNotAllowed {
            put(output, ALLOW, METHODS.as_bytes());
        }
        self.end(output, at, common, second);
    }

    fn begin(&mut self, output: &mut Vec<u8>, stream: u32, is_end: bool, status: u16) -> usize {
        let flags = if is_end { END_HEADERS | END_STREAM } else { END_HEADERS };
        let at = frame::begin(output, HEADERS, flags, stream);
        if !self.is_used {
            // The dynamic table has no entries: each size that the client allows is large enough (§6.3).
            output.push(0x20);
            self.is_used = true;
        }
        match status {
            200 => output.push(0x80 | STATUS),
            status => put_number(output, STATUS, "", status.into()),
        }
        at
    }

    /// RFC 9110 §6.6.1: a server that has a clock sends Date.
    fn end(&mut self, output: &mut Vec<u8>, at: usize, common: &Common, second: u64) {
        if self.second != second || self.date.is_empty() {
            self.date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            self.second = second;
        }
        put(output, DATE, self.date.as_bytes());
        if let Some(alt_svc) = &common.alt_svc {
            output.extend_from_slice(b"\0\x07alt-svc");
            put_value(output, |output| output.extend_from_slice(alt_svc.as_bytes()));
        }
        frame::end(output, at);
    }
}

/// Writes a field whose name has an index, as a literal that becomes no entry of a table.
fn put(output: &mut Vec<u8>, name: u8, value: &[u8]) {
    put_name(output, name);
    put_value(output, |output| output.extend_from_slice(value));
}

fn put_number(output: &mut Vec<u8>, name: u8, prefix: &str, number: usize) {
    put_name(output, name);
    put_value(output, |output| write!(output, "{prefix}{number}").expect("memory takes each write"));
}

fn put_name(output: &mut Vec<u8>, name: u8) {
    match name {
        ..=14 => output.push(name),
        _ => output.extend_from_slice(&[15, name - 15]),
    }
}

fn put_value(output: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    output.push(0);
    let at = output.len();
    value(output);
    debug_assert!(output.len() - at < 127, "its length is one octet");
    output[at - 1] = (output.len() - at) as u8;
}
