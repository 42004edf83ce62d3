//! Frames: reading and writing them, and their numbers (RFC 9113 §4, §6, §7).

/// The length of a frame's header.
pub(super) const HEADER_OCTETS: usize = 9;

/// The maximum length of a frame's payload in both directions: the default of SETTINGS_MAX_FRAME_SIZE, which is also its least value.
pub(super) const PAYLOAD_OCTETS_MAX: usize = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// The flag of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// The flag of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// The flag of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;
/// The flag of DATA and HEADERS.
pub(super) const PADDED: u8 = 0x8;
/// The flag of HEADERS: five octets of priority are in front of the field section.
pub(super) const WITH_PRIORITY: u8 = 0x20;

/// The codes of errors that a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    NoError = 0,
    ProtocolError = 1,
    FlowControlError = 3,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    CompressionError = 9,
    EnhanceYourCalm = 11,
}

/// A received frame.
pub(super) struct Frame<'i> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'i [u8],
}

impl<'i> Frame<'i> {
    /// Returns the first frame of `input`; `None` if it is incomplete.
    pub(super) fn read(input: &'i [u8]) -> Result<Option<Self>, Code> {
        let Some((&[a, b, c, kind, flags, d, e, f, g], rest)) = input.split_first_chunk::<HEADER_OCTETS>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > PAYLOAD_OCTETS_MAX {
            return Err(Code::FrameSizeError);
        }
        // §4.1: the first bit is reserved.
        let stream = u32::from_be_bytes([d, e, f, g]) & !(1 << 31);
        Ok(rest.get(..length).map(|payload| Frame { kind, flags, stream, payload }))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload without padding.
    pub(super) fn content(&self) -> Result<&'i [u8], Code> {
        if !self.has(PADDED) {
            return Ok(self.payload);
        }
        let (padding, rest) = self.payload.split_first().ok_or(Code::FrameSizeError)?;
        let octets = rest.len().checked_sub(usize::from(*padding)).ok_or(Code::ProtocolError)?;
        Ok(&rest[..octets])
    }
}

/// Returns how many octets the first frame of `input` misses, if that is known.
pub(super) fn missing(input: &[u8]) -> usize {
    let Some(&[a, b, c]) = input.first_chunk::<3>() else { return 0 };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    (HEADER_OCTETS + length.min(PAYLOAD_OCTETS_MAX)).saturating_sub(input.len())
}

/// Returns the length of the frames at the beginning of `output` that end with the first whole response.
pub(in super::super) fn response_octets(output: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&[a, b, c, kind, flags, ..]) = output.get(at..).and_then(|rest| rest.first_chunk::<HEADER_OCTETS>())
    {
        at += HEADER_OCTETS + u32::from_be_bytes([0, a, b, c]) as usize;
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return at;
        }
    }
    output.len()
}

/// Writes a frame.
pub(super) fn put(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let at = begin(output, kind, flags, stream);
    output.extend_from_slice(payload);
    end(output, at);
}

/// Begins a frame, whose payload follows; [`end`] needs the returned position.
pub(super) fn begin(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32) -> usize {
    let at = output.len();
    let [a, b, c, d] = stream.to_be_bytes();
    output.extend_from_slice(&[0, 0, 0, kind, flags, a, b, c, d]);
    at
}

/// Sets the length of the frame that [`begin`] began.
pub(super) fn end(output: &mut [u8], at: usize) {
    let [_, length @ ..] = ((output.len() - at - HEADER_OCTETS) as u32).to_be_bytes();
    output[at..at + 3].copy_from_slice(&length);
}

pub(super) fn put_rst_stream(output: &mut Vec<u8>, stream: u32, code: Code) {
    put(output, RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

pub(super) fn put_goaway(output: &mut Vec<u8>, last_stream: u32, code: Code) {
    put(output, GOAWAY, 0, 0, &[last_stream.to_be_bytes(), (code as u32).to_be_bytes()].concat());
}

pub(super) fn put_window_update(output: &mut Vec<u8>, stream: u32, octets: u32) {
    put(output, WINDOW_UPDATE, 0, stream, &octets.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_with_a_whole_response() {
        let mut output = Vec::new();
        put(&mut output, SETTINGS, ACK, 0, &[]);
        put(&mut output, HEADERS, END_HEADERS, 1, &[0x88]);
        put(&mut output, DATA, 0, 1, b"a");
        put(&mut output, DATA, END_STREAM, 1, b"b");
        let first = output.len();
        put(&mut output, HEADERS, END_HEADERS | END_STREAM, 3, &[0x88]);
        let second = output.len();
        put_rst_stream(&mut output, 3, Code::NoError);
        assert_eq!(response_octets(&output), first);
        assert_eq!(response_octets(&output[first..]), second - first);
        assert_eq!(response_octets(&output[second..]), output.len() - second);
        assert_eq!(response_octets(&[]), 0);
    }

    #[test]
    fn missing_octets_are_bounded() {
        for (input, expected) in
            [(&[][..], 0), (&[0, 0], 0), (&[0, 0, 4], 10), (&[0, 0, 1, 6, 0, 0, 0, 0, 0, 1], 0), (&[0xff; 3], 16_390)]
        {
            assert_eq!(missing(input), expected, "{input:?}");
        }
    }
}
