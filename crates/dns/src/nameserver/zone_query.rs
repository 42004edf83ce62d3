//! The question to a zone, and the name that is being looked up for it.

use std::sync::Arc;

use crate::wire::RecordType;
use crate::zone::Zone;
use crate::zone::last_queried::LastQueried;
use crate::zone::qname::{NameHash, Qname};

/// Most aliases followed for one question: long enough for every sane chain, short enough that none costs much. A resolver
/// goes on from the last target by itself.
pub(super) const CNAME_CHAIN_MAX: usize = 8;

/// What is asked of a zone.
pub(super) struct ZoneQuery<'a> {
    pub(super) zone: &'a Zone,
    pub(super) qtype: RecordType,
    /// The client wants DNSSEC records.
    pub(super) dnssec: bool,
    /// Decides which address comes first.
    pub(super) random: u32,
    /// Where it is marked when aliases in shards' zones were asked last, if anybody wants to know.
    pub(super) asked: &'a Option<Arc<LastQueried>>,
    /// Seconds since 1970.
    pub(super) now: u64,
}

impl ZoneQuery<'_> {
    /// An alias with this owner was asked.
    pub(super) fn mark(&self, alias: NameHash) {
        if let Some(asked) = self.asked
            && self.zone.is_shard()
        {
            asked.mark(alias, self.now);
        }
    }
}

/// A name that is being looked up, and where it stands in the message.
#[derive(Clone, Copy)]
pub(super) struct Current<'a> {
    pub(super) qname: &'a Qname,
    pub(super) at: usize,
    /// How many aliases led here.
    pub(super) aliases: usize,
}
