//! Flow control (RFC 9113 §5.2, §6.9).

use super::frame::{self, Code, DATA, END_STREAM, Frame, PAYLOAD_OCTETS_MAX};
use super::{BlockedResponse, Fault, Http2, STREAM_MAX};

/// The initial value of all windows (§6.9.2).
const WINDOW_OCTETS: u32 = 65_535;

/// The largest window (§6.9.1).
const WINDOW_OCTETS_MAX: i64 = (1 << 31) - 1;

/// The windows of a connection.
pub(super) struct Windows {
    /// The number of octets that the client may still send, over all streams: always enough for a frame.
    credit: u32,
    /// The number of octets that the client still accepts, over all streams and on a new one.
    connection: i64,
    pub(super) initial: i64,
}

impl Windows {
    pub(super) fn new() -> Self {
        Windows { credit: WINDOW_OCTETS, connection: WINDOW_OCTETS.into(), initial: WINDOW_OCTETS.into() }
    }

    /// Counts the octets of a frame, and returns them to the client before its next frame could exceed the window. What open requests
    /// hold has a limit of its own.
    pub(super) fn receive(&mut self, octets: usize, output: &mut Vec<u8>) {
        self.credit -= octets as u32;
        if self.credit < WINDOW_OCTETS / 2 {
            frame::put_window_update(output, 0, WINDOW_OCTETS - self.credit);
            self.credit = WINDOW_OCTETS;
        }
    }

    /// Sends as much of the rest of a response as the windows have room for; returns how much that was.
    pub(super) fn send(&mut self, stream: u32, window: &mut i64, octets: &[u8], output: &mut Vec<u8>) -> usize {
        let mut rest = octets;
        while !rest.is_empty() {
            let room = self.connection.min(*window).clamp(0, PAYLOAD_OCTETS_MAX as i64) as usize;
            if room == 0 {
                break;
            }
            let (part, after) = rest.split_at(room.min(rest.len()));
            frame::put(output, DATA, if after.is_empty() { END_STREAM } else { 0 }, stream, part);
            self.connection -= part.len() as i64;
            *window -= part.len() as i64;
            rest = after;
        }
        octets.len() - rest.len()
    }
}

/// Returns the window with these octets more.
fn grown(window: i64, octets: i64) -> Result<i64, Code> {
    match window + octets {
        _ if octets == 0 => Err(Code::ProtocolError),
        grown if grown > WINDOW_OCTETS_MAX => Err(Code::FlowControlError),
        grown => Ok(grown),
    }
}

impl Http2 {
    /// WINDOW_UPDATE.
    pub(super) fn window_update(&mut self, frame: &Frame<'_>, output: &mut Vec<u8>) -> Result<(), Fault> {
        let octets = frame.payload.first_chunk().ok_or(Code::FrameSizeError)?;
        // The first bit is reserved.
        let octets = i64::from(u32::from_be_bytes(*octets) & STREAM_MAX);
        if frame.stream == 0 {
            self.windows.connection = grown(self.windows.connection, octets)?;
        } else if self.is_idle(frame.stream) {
            return Err(Code::ProtocolError.into());
        } else if let Some((_, window)) = self.stream_windows().find(|(stream, _)| *stream == frame.stream) {
            // Otherwise, it crossed the end of the response (§5.1).
            *window = grown(*window, octets).map_err(Fault::Stream)?;
        }
        self.send_blocked(output);
        Ok(())
    }

    /// Changes the windows of new streams, and of the current ones by the same difference (§6.9.2).
    pub(super) fn set_initial_window(&mut self, octets: i64) -> Result<(), Code> {
        let difference = octets - self.windows.initial;
        self.windows.initial = octets;
        let mut is_valid = octets <= WINDOW_OCTETS_MAX;
        for (_, window) in self.stream_windows() {
            *window += difference;
            is_valid &= *window <= WINDOW_OCTETS_MAX;
        }
        if is_valid { Ok(()) } else { Err(Code::FlowControlError) }
    }

    /// Sends as much of the blocked responses as the client's windows have room for.
    pub(super) fn send_blocked(&mut self, output: &mut Vec<u8>) {
        let Http2 { windows, responses, .. } = self;
        responses.retain_mut(|BlockedResponse { stream, window, octets, sent, .. }| {
            *sent += windows.send(*stream, window, &octets[*sent..], output);
            *sent < octets.len()
        });
    }

    fn stream_windows(&mut self) -> impl Iterator<Item = (u32, &mut i64)> {
        let requests = self.requests.iter_mut().map(|request| (request.stream, &mut request.window));
        requests.chain(self.responses.iter_mut().map(|response| (response.stream, &mut response.window)))
    }
}
