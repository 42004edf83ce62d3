//! HTTP/2 (RFC 9113) of a server that answers DNS queries: octets in, octets out. Sockets and the clock are the caller's.
//!
//! The answer to a query is known as soon as the query is whole. So no request needs a task, a queue, or a lock: [`Http2::receive`]
//! reads the frames of its input one by one, and writes each response where its request ends. Only these requests take memory:
//!
//! ```text
//!   HEADERS ──► whole? ── yes ──► answer ──► do the client's windows have room? ── yes ──► done
//!                 │ no              ▲                       │ no
//!                 ▼                 │ END_STREAM            ▼
//!               open (its query so far)            blocked (its response, until WINDOW_UPDATE)
//! ```
//!
//! - Open requests hold at most 128 KiB together. Beyond that, a request is refused (REFUSED_STREAM), so that the client can repeat it
//!   (§8.7), and the connection continues.
//! - While blocked responses hold as much as the server makes before it writes, further requests are refused in the same way. The
//!   server keeps reading, because a WINDOW_UPDATE can follow.
//!
//! Frames without a request cost the server about as much as the client. Their number is bounded, except that of WINDOW_UPDATE, which
//! clients send for each response. Priorities have no effect.

mod exchanges;
mod flow;
pub(super) mod frame;
mod head;
mod hpack;
mod huffman;
mod response;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use self::exchanges::{BlockedResponse, OpenRequest, Section};
use self::flow::Windows;
use self::frame::{
    ACK, CONTINUATION, Code, DATA, Frame, GOAWAY, HEADER_OCTETS, HEADERS, PING, PRIORITY, PUSH_PROMISE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
use self::head::Head;
use self::hpack::Decoder;
use self::response::Encoder;
use super::super::requests::{CANCELLED_MAX, REQUESTS_MAX};
use super::super::worker::MESSAGE_OCTETS_MAX;
use super::{HEAD_OCTETS_MAX, Site};

/// The first octets of each client (§3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The window of each request: one octet more than a query has at most, so that a larger one is noticed.
const STREAM_OCTETS: u32 = 1 + MESSAGE_OCTETS_MAX as u32;

/// The largest identifier of a stream. A GOAWAY with it announces the end (§6.8).
const STREAM_MAX: u32 = (1 << 31) - 1;

/// The maximum size of a buffer that is kept between reads.
const KEPT_OCTETS_MAX: usize = 1_024;

/// The source of the answers.
pub trait QueryHandler {
    /// Answers a DNS message; `None` if it must not be answered.
    fn answer(&mut self, query: &[u8]) -> Option<&[u8]>;
}

/// The surroundings of the requests that one read contained.
pub struct Batch<'b> {
    /// The buffer for all frames to the client.
    pub output: &'b mut Vec<u8>,
    /// The source of the answers.
    pub handler: &'b mut dyn QueryHandler,
    /// The time of the read.
    pub moment: Instant,
    /// The same time in seconds since the epoch.
    pub second: u64,
}

/// The progress of processing the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All whole frames are processed.
    All,
    /// The output is full.
    Some,
    /// An error has ended the connection.
    Malformed,
    /// The client sent too many frames without a request, or too large a head.
    Excessive,
}

/// The state of one connection.
pub struct Http2 {
    site: Arc<Site>,
    unsent_octets_max: usize,
    stage: Stage,
    decoder: Decoder,
    encoder: Encoder,
    /// The beginning of a field section, which only CONTINUATION may follow.
    section: Option<Section>,
    head: Head,
    /// The query of the current head.
    query: Vec<u8>,
    /// Requests that are not whole, and responses that are blocked; the oldest first.
    requests: Vec<OpenRequest>,
    responses: Vec<BlockedResponse>,
    /// The streams that the server has reset last: as many as a client has open at most.
    reset_streams: VecDeque<u32>,
    last_stream: u32,
    windows: Windows,
    answered: u64,
    /// The number of frames without a request.
    useless: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the client's first octets.
    Preface,
    /// Before the client's first SETTINGS.
    Settings,
    Open,
    /// After the last GOAWAY.
    Over,
}

/// An error of the connection or of one stream (§5.4).
enum Fault {
    Connection(Code),
    Stream(Code),
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Fault::Connection(code)
    }
}

impl Http2 {
    /// Creates the state of a new connection, which makes no further responses while `unsent_octets_max` octets wait.
    pub fn new(site: Arc<Site>, unsent_octets_max: usize) -> Self {
        Http2 {
            site,
            unsent_octets_max,
            stage: Stage::Preface,
            decoder: Decoder::new(),
            encoder: Encoder::default(),
            section: None,
            head: Head::default(),
            query: Vec::new(),
            requests: Vec::new(),
            responses: Vec::new(),
            reset_streams: VecDeque::new(),
            last_stream: 0,
            windows: Windows::new(),
            answered: 0,
            useless: 0,
        }
    }

    /// Returns how many octets the first frame of `input` misses, if that is known.
    pub fn missing(&self, input: &[u8]) -> usize {
        if self.stage == Stage::Preface { 0 } else { frame::missing(input) }
    }

    /// Returns the times since which the oldest open request and the oldest blocked response wait.
    pub fn waits(&self) -> (Option<Instant>, Option<Instant>) {
        (self.requests.first().map(|request| request.since), self.responses.first().map(|response| response.since))
    }

    /// Returns the octets of open requests and of blocked responses.
    pub fn held_octets(&self) -> (usize, usize) {
        let queries = self.requests.iter().map(|request| request.query.len()).sum();
        (queries, self.responses.iter().map(|response| response.octets.len()).sum())
    }

    /// Processes the whole frames of `input`; returns how many octets they have, and the progress.
    pub fn receive(&mut self, input: &[u8], mut batch: Batch<'_>) -> (usize, Progress) {
        let mut rest = input;
        let progress = loop {
            if batch.output.len() >= self.unsent_octets_max {
                break Progress::Some;
            }
            match self.step(rest, &mut batch) {
                Ok(0) => break Progress::All,
                Ok(octets) => rest = &rest[octets..],
                Err(code) => break self.fail(code, batch.output),
            }
        };
        self.decoder.shrink(KEPT_OCTETS_MAX);
        self.head.shrink(KEPT_OCTETS_MAX);
        self.query.clear();
        self.query.shrink_to(KEPT_OCTETS_MAX);
        (input.len() - rest.len(), progress)
    }

    /// Announces the end of the connection, and returns whether it is open. Requests that are on their way are still answered.
    pub fn announce_end(&self, output: &mut Vec<u8>) -> bool {
        let is_open = matches!(self.stage, Stage::Settings | Stage::Open);
        if is_open {
            frame::put_goaway(output, STREAM_MAX, Code::NoError);
        }
        is_open
    }

    /// Ends the connection, if no error has ended it.
    pub fn end(&mut self, output: &mut Vec<u8>) {
        if matches!(self.stage, Stage::Settings | Stage::Open) {
            frame::put_goaway(output, self.last_stream, Code::NoError);
            self.stage = Stage::Over;
        }
    }

    fn fail(&mut self, code: Code, output: &mut Vec<u8>) -> Progress {
        // §3.4: GOAWAY can be omitted for a client that does not use HTTP/2.
        if self.stage != Stage::Preface {
            frame::put_goaway(output, self.last_stream, code);
        }
        self.stage = Stage::Over;
        if code == Code::EnhanceYourCalm { Progress::Excessive } else { Progress::Malformed }
    }

    /// Processes the preface or one frame; returns its length, 0 if it is incomplete.
    fn step(&mut self, input: &[u8], batch: &mut Batch<'_>) -> Result<usize, Code> {
        if self.stage == Stage::Preface {
            let length = input.len().min(PREFACE.len());
            if input[..length] != PREFACE[..length] {
                return Err(Code::ProtocolError);
            }
            if length < PREFACE.len() {
                return Ok(0);
            }
            self.stage = Stage::Settings;
            put_settings(batch.output);
            return Ok(length);
        }
        let Some(frame) = Frame::read(input)? else { return Ok(0) };
        match self.frame(&frame, batch) {
            Ok(()) => {}
            Err(Fault::Connection(code)) => return Err(code),
            Err(Fault::Stream(code)) => {
                self.reset(frame.stream, code, batch.output);
                self.count_useless()?;
            }
        }
        Ok(HEADER_OCTETS + frame.payload.len())
    }

    fn frame(&mut self, frame: &Frame<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        // §3.4, §6.10: the frames that may follow.
        let is_expected = match (&self.section, self.stage) {
            (Some(section), _) => frame.kind == CONTINUATION && frame.stream == section.stream,
            (None, Stage::Settings) => frame.kind == SETTINGS && !frame.has(ACK),
            (None, _) => !matches!(frame.kind, CONTINUATION | PUSH_PROMISE),
        };
        // Frames of the connection, and frames of streams.
        let is_on_stream = match frame.kind {
            SETTINGS | PING | GOAWAY => frame.stream == 0,
            DATA | HEADERS | PRIORITY | RST_STREAM => frame.stream != 0,
            _ => true,
        };
        let is_sized = match frame.kind {
            SETTINGS if frame.has(ACK) => frame.payload.is_empty(),
            SETTINGS => frame.payload.len().is_multiple_of(6),
            PING => frame.payload.len() == 8,
            GOAWAY => frame.payload.len() >= 8,
            PRIORITY => frame.payload.len() == 5,
            RST_STREAM | WINDOW_UPDATE => frame.payload.len() == 4,
            _ => true,
        };
        if !is_expected || !is_on_stream {
            return Err(Code::ProtocolError.into());
        }
        if !is_sized {
            return Err(Code::FrameSizeError.into());
        }
        match frame.kind {
            DATA => return self.data(frame, batch),
            HEADERS => return self.headers(frame, batch),
            CONTINUATION => return self.continuation(frame, batch),
            WINDOW_UPDATE => return self.window_update(frame, batch.output),
            RST_STREAM => self.rst_stream(frame)?,
            SETTINGS if !frame.has(ACK) => self.settings(frame, batch.output)?,
            PING if !frame.has(ACK) => frame::put(batch.output, PING, ACK, 0, frame.payload),
            // §5.5: unknown ones are ignored.
            _ => {}
        }
        Ok(self.count_useless()?)
    }

    fn settings(&mut self, frame: &Frame<'_>, output: &mut Vec<u8>) -> Result<(), Code> {
        for &[high, low, a, b, c, d] in frame.payload.as_chunks::<6>().0 {
            match (u16::from_be_bytes([high, low]), u32::from_be_bytes([a, b, c, d])) {
                // SETTINGS_ENABLE_PUSH, which has no effect.
                (2, 2..) => return Err(Code::ProtocolError),
                // SETTINGS_INITIAL_WINDOW_SIZE.
                (4, octets) => self.set_initial_window(octets.into())?,
                // SETTINGS_MAX_FRAME_SIZE: the server's frames have the least size.
                (5, ..=0x3fff | 0x100_0000..) => return Err(Code::ProtocolError),
                _ => {}
            }
        }
        self.stage = Stage::Open;
        frame::put(output, SETTINGS, ACK, 0, &[]);
        self.send_blocked(output);
        Ok(())
    }

    /// Whether the client has not used this stream or a later one, or cannot use it (§5.1.1).
    fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.last_stream
    }

    /// Counts a frame without a request (§10.5).
    fn count_useless(&mut self) -> Result<(), Code> {
        self.useless += 1;
        if self.useless < self.answered + CANCELLED_MAX { Ok(()) } else { Err(Code::EnhanceYourCalm) }
    }
}

/// Writes the server's settings.
fn put_settings(output: &mut Vec<u8>) {
    let at = frame::begin(output, SETTINGS, 0, 0);
    // SETTINGS_MAX_CONCURRENT_STREAMS, SETTINGS_INITIAL_WINDOW_SIZE, SETTINGS_MAX_HEADER_LIST_SIZE.
    for (setting, value) in [(3_u16, REQUESTS_MAX), (4, STREAM_OCTETS), (6, HEAD_OCTETS_MAX)] {
        output.extend_from_slice(&setting.to_be_bytes());
        output.extend_from_slice(&value.to_be_bytes());
    }
    frame::end(output, at);
}
