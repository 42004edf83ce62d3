//! A query to a zone, and the name that is looked up for it.

use crate::wire::RecordType;
use crate::zone::Zone;
use crate::zone::qname::Qname;

/// The maximum number of CNAMEs that are followed for one query: long enough for every reasonable chain, and short enough to
/// bound the cost. A resolver continues from the last target.
pub(super) const CNAME_CHAIN_MAX: usize = 8;

/// The data that is queried from a zone.
pub(super) struct ZoneQuery<'a> {
    pub(super) zone: &'a Zone,
    pub(super) qtype: RecordType,
    /// Whether the client requests DNSSEC records.
    pub(super) dnssec: bool,
    /// The random number that selects the first address.
    pub(super) random: u32,
    /// Seconds since the epoch.
    pub(super) now: u64,
}

/// A name that is being looked up, and its position in the message.
#[derive(Clone, Copy)]
pub(super) struct Current<'a> {
    pub(super) qname: &'a Qname,
    pub(super) at: usize,
    /// The number of CNAMEs that were followed.
    pub(super) aliases: usize,
}
