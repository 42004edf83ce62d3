//! Requests and their responses: HEADERS, CONTINUATION, DATA, and RST_STREAM (RFC 9113 §6.1, §6.2, §6.4, §6.10, §8.1).

use std::time::Instant;

use hyper::Method;

use super::super::super::requests::REQUESTS_MAX;
use super::super::super::worker::MESSAGE_OCTETS_MAX;
use super::super::HEAD_OCTETS_MAX;
use super::super::request::{self, Refusal, Source};
use super::frame::{self, Code, END_HEADERS, END_STREAM, Frame, WITH_PRIORITY};
use super::{Batch, Fault, Http2};

/// The maximum total size of the queries of a connection that are not whole: two of the largest ones. With less, a client could not send
/// a large query and others at the same time.
const QUERY_OCTETS_MAX: usize = 128 * 1024;

/// The maximum size of a compressed head: twice that of the head, so that somewhat too large ones still get a status. A larger one ends
/// the connection, because the state of the compression is lost with it.
const SECTION_OCTETS_MAX: usize = 2 * HEAD_OCTETS_MAX as usize;

/// The beginning of a field section.
pub(super) struct Section {
    pub(super) stream: u32,
    ends_stream: bool,
    octets: Vec<u8>,
}

/// A request that is not whole.
pub(super) struct OpenRequest {
    pub(super) stream: u32,
    pub(super) since: Instant,
    pub(super) window: i64,
    is_head: bool,
    /// Whether the query is the body; otherwise it is here already, and the body is ignored.
    takes_body: bool,
    pub(super) query: Vec<u8>,
    received: usize,
    content_length: Option<u64>,
}

/// A response that the client's windows block.
pub(super) struct BlockedResponse {
    pub(super) stream: u32,
    pub(super) since: Instant,
    pub(super) window: i64,
    pub(super) octets: Vec<u8>,
    pub(super) sent: usize,
}

impl Http2 {
    pub(super) fn headers(&mut self, frame: &Frame<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let priority_octets = if frame.has(WITH_PRIORITY) { 5 } else { 0 };
        let section = frame.content()?.get(priority_octets..).ok_or(Code::FrameSizeError)?;
        let (stream, ends_stream) = (frame.stream, frame.has(END_STREAM));
        if frame.has(END_HEADERS) {
            return self.section(stream, ends_stream, section, batch);
        }
        self.section = Some(Section { stream, ends_stream, octets: section.to_vec() });
        Ok(())
    }

    pub(super) fn continuation(&mut self, frame: &Frame<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let mut section = self.section.take().ok_or(Code::ProtocolError)?;
        if section.octets.len() + frame.payload.len() > SECTION_OCTETS_MAX {
            return Err(Code::EnhanceYourCalm.into());
        }
        section.octets.extend_from_slice(frame.payload);
        if frame.has(END_HEADERS) {
            return self.section(section.stream, section.ends_stream, &section.octets, batch);
        }
        self.section = Some(section);
        if frame.payload.is_empty() { Ok(self.count_useless()?) } else { Ok(()) }
    }

    /// Processes a whole field section: the head of a request, or its trailers.
    fn section(&mut self, stream: u32, ends_stream: bool, section: &[u8], batch: &mut Batch<'_>) -> Result<(), Fault> {
        let Http2 { decoder, head, .. } = self;
        head.clear();
        // Each section changes the state of the compression, also one that is ignored (§4.3).
        decoder.decode(section, |name, value| head.add(name, value)).ok_or(Code::CompressionError)?;
        if let Some(at) = self.find(stream) {
            // §8.1: trailers end a request.
            let is_trailer = ends_stream && self.head.is_trailer();
            return if is_trailer { self.complete(at, &[], batch) } else { Err(Fault::Stream(Code::ProtocolError)) };
        }
        if self.responses.iter().any(|response| response.stream == stream) {
            return Err(Fault::Stream(Code::StreamClosed));
        }
        // §5.1.1: a client's new stream has an odd identifier, which is larger than all before it.
        if stream.is_multiple_of(2) || stream <= self.last_stream {
            // §5.1: it can have been on its way when its stream was reset.
            let was_reset = self.reset_streams.contains(&stream);
            // The last one was used; a smaller one may have been skipped.
            let code = if stream == self.last_stream { Code::StreamClosed } else { Code::ProtocolError };
            return if was_reset { Ok(self.count_useless()?) } else { Err(code.into()) };
        }
        self.last_stream = stream;
        if self.requests.len() + self.responses.len() >= REQUESTS_MAX as usize {
            return Err(Fault::Stream(Code::RefusedStream));
        }
        self.request(stream, ends_stream, batch)
    }

    /// Processes the head of a request.
    fn request(&mut self, stream: u32, ends_stream: bool, batch: &mut Batch<'_>) -> Result<(), Fault> {
        if self.head.is_too_large() {
            self.refuse(stream, ends_stream, Refusal::HeadTooLarge, batch);
            return Ok(());
        }
        let head = self.head.request().ok_or(Fault::Stream(Code::ProtocolError))?;
        let (is_head, content_length) = (*head.method == Method::HEAD, head.content_length);
        if ends_stream && content_length.is_some_and(|octets| octets > 0) {
            return Err(Fault::Stream(Code::ProtocolError));
        }
        let takes_body = match request::read(&self.site.path, &head, &mut self.query) {
            Ok(source) => source == Source::Body,
            Err(refusal) => {
                self.refuse(stream, ends_stream, refusal, batch);
                return Ok(());
            }
        };
        let window = self.windows.initial;
        if ends_stream {
            let query = std::mem::take(&mut self.query);
            let answered = self.answer((stream, window, is_head), &query, batch);
            self.query = query;
            return answered;
        }
        if self.held_octets().0 + self.query.len() > QUERY_OCTETS_MAX {
            return Err(Fault::Stream(Code::RefusedStream));
        }
        let (since, query) = (batch.moment, self.query.clone());
        let request = OpenRequest { stream, since, window, is_head, takes_body, query, received: 0, content_length };
        self.requests.push(request);
        Ok(())
    }

    pub(super) fn data(&mut self, frame: &Frame<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let (stream, ends_stream) = (frame.stream, frame.has(END_STREAM));
        // §6.9.1: padding counts, and so do frames of closed streams.
        self.windows.receive(frame.payload.len(), batch.output);
        let octets = frame.content()?;
        let Some(at) = self.find(stream) else {
            return if self.is_idle(stream) {
                Err(Code::ProtocolError.into())
            } else if self.reset_streams.contains(&stream) {
                Ok(self.count_useless()?)
            } else {
                Err(Fault::Stream(Code::StreamClosed))
            };
        };
        let held_octets = self.held_octets().0;
        let request = &mut self.requests[at];
        request.received += octets.len();
        // Also a body that is ignored.
        if request.received > MESSAGE_OCTETS_MAX {
            self.requests.remove(at);
            self.refuse(stream, ends_stream, Refusal::ContentTooLarge, batch);
            return Ok(());
        }
        if request.takes_body {
            if ends_stream && request.query.is_empty() {
                return self.complete(at, octets, batch);
            }
            if held_octets + octets.len() > QUERY_OCTETS_MAX {
                return Err(Fault::Stream(Code::RefusedStream));
            }
            request.query.extend_from_slice(octets);
        }
        if ends_stream {
            return self.complete(at, &[], batch);
        }
        // The padding is returned to the stream's window, of which the body needs everything.
        let padding = frame.payload.len() - octets.len();
        if padding > 0 {
            frame::put_window_update(batch.output, stream, padding as u32);
        }
        if octets.is_empty() { Ok(self.count_useless()?) } else { Ok(()) }
    }

    pub(super) fn rst_stream(&mut self, frame: &Frame<'_>) -> Result<(), Code> {
        if self.is_idle(frame.stream) {
            return Err(Code::ProtocolError);
        }
        self.remove(frame.stream);
        Ok(())
    }

    /// Answers a request that is whole now. Its query is in `last` if no part of it had come before.
    fn complete(&mut self, at: usize, last: &[u8], batch: &mut Batch<'_>) -> Result<(), Fault> {
        let request = self.requests.remove(at);
        // §8.1.1: another length than the announced one.
        if request.content_length.is_some_and(|octets| octets != request.received as u64) {
            return Err(Fault::Stream(Code::ProtocolError));
        }
        let query = if request.query.is_empty() { last } else { &request.query[..] };
        self.answer((request.stream, request.window, request.is_head), query, batch)
    }

    /// Answers a whole request. The answer to HEAD is there for its head alone.
    fn answer(
        &mut self,
        (stream, mut window, is_head): (u32, i64, bool),
        query: &[u8],
        batch: &mut Batch<'_>,
    ) -> Result<(), Fault> {
        if !self.responses.is_empty() && self.held_octets().1 >= self.unsent_octets_max {
            return Err(Fault::Stream(Code::RefusedStream));
        }
        let Some(message) = batch.handler.answer(query) else {
            // The error affects only this request.
            self.refuse(stream, true, Refusal::BadRequest, batch);
            return Ok(());
        };
        self.answered += 1;
        let body = if is_head { &message[..0] } else { message };
        self.encoder.answer(batch.output, (stream, body.is_empty()), message, (&self.site.common, batch.second));
        let sent = self.windows.send(stream, &mut window, body, batch.output);
        if sent < body.len() {
            let (since, octets) = (batch.moment, body[sent..].to_vec());
            self.responses.push(BlockedResponse { stream, since, window, octets, sent: 0 });
        }
        Ok(())
    }

    /// Responds to a request that cannot be answered. The client need not send the rest of it (§8.1).
    fn refuse(&mut self, stream: u32, ends_stream: bool, refusal: Refusal, batch: &mut Batch<'_>) {
        self.answered += 1;
        self.encoder.refusal(batch.output, stream, refusal, (&self.site.common, batch.second));
        if !ends_stream {
            self.reset(stream, Code::NoError, batch.output);
        }
    }

    /// Ends a stream. Its frames can be on their way, so its identifier is kept.
    pub(super) fn reset(&mut self, stream: u32, code: Code, output: &mut Vec<u8>) {
        frame::put_rst_stream(output, stream, code);
        self.remove(stream);
        if self.reset_streams.len() == REQUESTS_MAX as usize {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(stream);
    }

    fn remove(&mut self, stream: u32) {
        self.requests.retain(|request| request.stream != stream);
        self.responses.retain(|response| response.stream != stream);
    }

    /// Returns the position of an open request, which is often the last one.
    fn find(&self, stream: u32) -> Option<usize> {
        self.requests.iter().rposition(|request| request.stream == stream)
    }
}
