//! The workers' side of the query log: the rings that pass on the records of logged requests. While the log is off, a request
//! has no extra cost.

use super::ring::RingReceiver;
use crate::nameserver::query_log::Record;

/// The maximum number of waiting records in each ring: some 2 MiB, which a log that is off does not touch, and with one read every 50 ms, some 20,000 records per
/// second.
pub const RING_RECORDS: usize = 1024;

/// The reader's end of a worker's ring.
pub type QueryLogReceiver = RingReceiver<Record>;
