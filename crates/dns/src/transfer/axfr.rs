//! AXFR (RFC 5936): all records of a zone, between two copies of its SOA record.

use std::sync::Arc;

use super::message::{Head, Message};
use crate::nameserver::hand_off::{Cursor, Progress};
use crate::wire::build::Full;
use crate::zone::Zone;
use crate::zone::denial::HashedKey;
use crate::zone::image::NodePosition;

/// The position in the transfer of one version of a zone.
pub(super) struct Axfr {
    zone: Arc<Zone>,
    head: Head,
    at: At,
    /// The number of the next record of the current node.
    next: usize,
}

#[derive(Clone)]
enum At {
    Start,
    Nodes(NodePosition),
    /// NSEC3 owners, after this one.
    Hashed(Option<HashedKey>),
    End,
}

impl Axfr {
    pub(super) fn new(zone: Arc<Zone>, head: Head) -> Axfr {
        Axfr { zone, head, at: At::Start, next: 0 }
    }
}

impl Cursor for Axfr {
    fn fill(&mut self, buffer: &mut [u8]) -> Progress {
        let Axfr { zone, head, at, next } = self;
        let is_first = matches!(at, At::Start);
        let Ok(mut message) = Message::new(buffer, head, zone, is_first) else { return Progress::Last(0) };
        match put(zone, at, next, &mut message) {
            Ok(()) => Progress::Last(message.finish()),
            // A record that fits in no message: the transfer fails, instead of an endless repetition.
            Err(Full) if message.is_empty() => Progress::Last(0),
            Err(Full) => Progress::More(message.finish()),
        }
    }
}

/// Writes records from `at` on, until the message is full.
fn put<'z>(zone: &'z Zone, at: &mut At, next: &mut usize, message: &mut Message<'_, 'z>) -> Result<(), Full> {
    if let At::Start = at {
        message.put_soa(zone)?;
        *at = At::Nodes(NodePosition::default());
    }
    if let At::Nodes(from) = *at {
        for (position, node) in zone.nodes_from(from) {
            *at = At::Nodes(position);
            message.put_node(node, next)?;
            *next = 0;
        }
        *at = At::Hashed(None);
    }
    if let At::Hashed(after) = at.clone() {
        for (key, node) in zone.denial().into_iter().flat_map(|denial| denial.hashed_nodes_after(after.as_ref())) {
            message.put_node(node, next)?;
            *at = At::Hashed(Some(key));
            *next = 0;
        }
        *at = At::End;
    }
    message.put_soa(zone)
}
