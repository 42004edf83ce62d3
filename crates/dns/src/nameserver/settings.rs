//! What an operator may set about answering. A reload makes a new value; workers pick it up with their next batch.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::cookie::Cookies;
use super::rrl::RateLimit;
use crate::zone::last_queried::LastQueried;

/// Settings of the query engine, the same for every worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Largest response over UDP in octets, whatever the client allows; at least 512. The default of 1232 never
    /// fragments (the value of the DNS flag day 2020, 1280 octets of IPv6 less headers); more invites amplification.
    pub udp_payload_max: u16,
    /// Answer to an NSID request (RFC 5001); `None`: no answer. At most [`NSID_OCTETS_MAX`] octets are sent.
    pub nsid: Option<Box<[u8]>>,
    /// Text of `version.bind. CH TXT` and `version.server. CH TXT` (RFC 4892); `None`: REFUSED.
    pub version: Option<Box<str>>,
    /// Text of `id.server. CH TXT` and `hostname.bind. CH TXT` (RFC 4892); `None`: REFUSED.
    pub server_id: Option<Box<str>>,
    /// How cookies are made and checked; `None`: they are not answered.
    pub cookies: Option<Cookies>,
    /// How many answers a network of clients gets over UDP; `None`: all.
    pub rate_limit: Option<RateLimit>,
    /// Whether the zones that follow another server have not heard of it for long: their answers say that they may be stale
    /// (RFC 8914 §4.4).
    pub stale: bool,
    /// One request in so many goes to the query log, if its worker has one; `None`: none does.
    pub query_log: Option<NonZeroU32>,
    /// Whether workers sample the names that shards' wildcards answer.
    pub wildcard_hits: bool,
    /// Where it is marked when aliases in shards' zones were asked last; `None`: there are none, or nobody wants to know.
    pub asked: Option<Arc<LastQueried>>,
}

/// Most octets of an NSID that are sent; a longer one would crowd out answers in 512 octets.
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
            stale: false,
            query_log: None,
            wildcard_hits: false,
            asked: None,
        }
    }
}
