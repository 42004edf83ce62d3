//! Messages with their length in front: two octets (RFC 1035 §4.2.2, RFC 7766 §8).

use std::time::Instant;

use super::stream::{Answerer, CloseReason, Framing, WriteProgress};

/// A header (RFC 1035 §4.1.1): a shorter message cannot even be refused.
const HEADER_OCTETS: usize = 12;

/// The messages of DNS over TCP and over TLS.
#[derive(Default)]
pub(super) struct Prefixed {
    /// The arrival of the first octet of the current message.
    partial_since: Option<Instant>,
}

impl Framing for Prefixed {
    fn missing(&self, input: &[u8]) -> usize {
        let Some(length) = input.first_chunk::<2>() else { return 0 };
        (2 + usize::from(u16::from_be_bytes(*length))).saturating_sub(input.len())
    }

    fn answer(&mut self, input: &[u8], output: &mut Vec<u8>, answerer: &mut Answerer<'_>) -> (usize, WriteProgress) {
        let mut rest = input;
        let answered = loop {
            if output.len() >= answerer.unsent_octets_max {
                break WriteProgress::Some;
            }
            let Some((length, after)) = rest.split_first_chunk::<2>() else { break WriteProgress::All };
            let length = usize::from(u16::from_be_bytes(*length));
            if length < HEADER_OCTETS {
                break WriteProgress::UpToFault(CloseReason::Malformed);
            }
            let Some((query, after)) = after.split_at_checked(length) else { break WriteProgress::All };
            // A message that must not be answered, such as a response, does not come from a real client.
            let Some(answer) = answerer.answer(query) else {
                break WriteProgress::UpToFault(CloseReason::Malformed);
            };
            output.extend_from_slice(&(answer.len() as u16).to_be_bytes());
            output.extend_from_slice(answer);
            rest = after;
        };
        let octets = input.len() - rest.len();
        if rest.is_empty() {
            self.partial_since = None;
        } else if octets > 0 || self.partial_since.is_none() {
            self.partial_since = Some(answerer.moment);
        }
        (octets, answered)
    }

    fn waits(&self) -> (Option<Instant>, Option<Instant>) {
        (self.partial_since, None)
    }
}
