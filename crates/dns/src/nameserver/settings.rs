//! The operator's settings for answers. A reload creates a new value; workers use it from their next batch on.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::cookie::Cookies;
use super::rrl::RateLimit;
use crate::tsig::Keys;
use crate::wire::Name;

/// Settings of the query engine, the same for every worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The largest response over UDP in octets, regardless of the client's limit; at least 512. The default of 1232 never
    /// fragments (the value of the DNS flag day 2020, 1280 octets of IPv6 less headers); a larger value invites amplification.
    pub udp_payload_max: u16,
    /// Answer to an NSID request (RFC 5001); `None`: no answer. At most [`NSID_OCTETS_MAX`] octets are sent.
    pub nsid: Option<Box<[u8]>>,
    /// Text of `version.bind. CH TXT` and `version.server. CH TXT` (RFC 4892); `None`: REFUSED.
    pub version: Option<Box<str>>,
    /// Text of `id.server. CH TXT` and `hostname.bind. CH TXT` (RFC 4892); `None`: REFUSED.
    pub server_id: Option<Box<str>>,
    /// The settings of cookies; `None`: cookies are ignored.
    pub cookies: Option<Cookies>,
    /// The limit of answers to a client network over UDP; `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// The keys of signed messages (RFC 8945); `None`: no key is known.
    pub keys: Option<Arc<Keys>>,
    /// The name of the catalog zone (RFC 9432), whose SOA record is for its secondary servers only; `None`: there is no catalog.
    pub catalog: Option<Name>,
    /// Whether UPDATE (RFC 2136) is implemented: a handler takes over such requests, and a malformed one is FORMERR.
    pub updates: bool,
    /// Whether the zones that follow another server had no contact with it for a long time: their answers are marked as possibly
    /// stale (RFC 8914 §4.4).
    pub stale: bool,
    /// The sampling rate of the query log: one request in this many, if the worker has a log; `None`: none.
    pub query_log: Option<NonZeroU32>,
    /// Whether records of the query log have the octets of both messages.
    pub query_log_messages: bool,
    /// Whether workers sample the names that shards' wildcards answer.
    pub wildcard_hits: bool,
}

/// The maximum number of octets of a sent NSID; a longer one would displace answers in 512 octets.
pub const NSID_OCTETS_MAX: usize = 128;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            udp_payload_max: 1232,
            nsid: None,
            version: None,
            server_id: None,
            cookies: None,
            rate_limit: None,
            keys: None,
            catalog: None,
            updates: false,
            stale: false,
            query_log: None,
            query_log_messages: false,
            wildcard_hits: false,
        }
    }
}

impl Settings {
    /// Returns whether a name, in lower case in wire form, is that of the catalog.
    #[inline]
    pub(super) fn is_catalog(&self, name: &[u8]) -> bool {
        self.catalog.as_ref().is_some_and(|catalog| catalog.as_wire().eq_ignore_ascii_case(name))
    }
}
