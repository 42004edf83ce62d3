//! Counters of one worker, written by it alone and read by whoever sums them.
//!
//! A count is a load and a store without ordering: an ordinary addition that another thread may watch. Only one thread at
//! a time may count on a [`Stats`], or counts are lost; nothing worse can happen.

use std::net::IpAddr;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cookie::Standing;
use super::{Peer, Transport};
use crate::wire::RecordType;
use crate::wire::header::Rcode;

/// Counters of one worker. Aligned so that two workers' never share a cache line, or the neighbour that is fetched with it.
#[repr(align(128))]
#[derive(Default)]
pub struct Stats {
    queries: [[AtomicU64; FAMILIES.len()]; TRANSPORTS.len()],
    qtypes: [AtomicU64; QTYPES.len()],
    rcodes: [AtomicU64; RCODES.len()],
    drops: [AtomicU64; DROPS.len()],
    kinds: [AtomicU64; KINDS.len()],
    cookies: [AtomicU64; COOKIES.len()],
    limited: [AtomicU64; LIMITED.len()],
    truncated: AtomicU64,
    query_octets: AtomicU64,
    response_octets: AtomicU64,
}

/// The sum of counters at one moment. Each list is in the order of the constant of labels that its field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Queries by [`TRANSPORTS`] and [`FAMILIES`], dropped ones too.
    pub queries: [[u64; FAMILIES.len()]; TRANSPORTS.len()],
    /// Questions by [`QTYPES`].
    pub qtypes: [u64; QTYPES.len()],
    /// Responses by [`RCODES`].
    pub rcodes: [u64; RCODES.len()],
    /// Queries that got no response, by [`DROPS`].
    pub drops: [u64; DROPS.len()],
    /// Answers from a zone by [`KINDS`].
    pub kinds: [u64; KINDS.len()],
    /// Queries with a cookie by [`COOKIES`].
    pub cookies: [u64; COOKIES.len()],
    /// Responses over the rate limit by [`LIMITED`].
    pub limited: [u64; LIMITED.len()],
    /// Responses with TC set.
    pub truncated: u64,
    /// Octets of all queries.
    pub query_octets: u64,
    /// Octets of all responses.
    pub response_octets: u64,
}

/// Labels of transports.
pub const TRANSPORTS: [&str; 5] = ["udp", "tcp", "tls", "https", "quic"];
/// Labels of address families.
pub const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];
/// Labels of question types; all that are not listed are `other`, for a client could ask for 65,536.
pub const QTYPES: [&str; 17] = [
    "A", "AAAA", "HTTPS", "NS", "SOA", "CNAME", "TXT", "MX", "PTR", "SRV", "SVCB", "DS", "DNSKEY", "CAA", "ANY", "XFR",
    "other",
];
/// Labels of response codes.
pub const RCODES: [&str; 10] =
    ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "BADVERS", "BADCOOKIE", "other"];
/// Labels of reasons to send nothing.
pub const DROPS: [&str; 5] = ["short", "response", "source", "room", "rate_limit"];
/// Labels of answers: `data` has an answer section or would have, `nodata` and `nxdomain` tell of none.
pub const KINDS: [&str; 4] = ["data", "nodata", "nxdomain", "referral"];
/// Labels of cookies: `client` came without a server cookie, `bad` with one that was not ours or too old.
pub const COOKIES: [&str; 3] = ["client", "good", "bad"];
/// Labels of what became of responses over the rate limit: see [`Limited`].
pub const LIMITED: [&str; 5] = ["dropped", "truncated", "error", "exempt", "watched"];

/// Why a query gets no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// It is shorter than a header.
    Short,
    /// It is a response itself: answering could make a loop.
    Response,
    /// Its source address or port cannot be a client's: an answer would hit somebody else.
    Source,
    /// The buffer of the response has no room for so much as the question.
    Room,
    /// Its network has had enough answers of the kind.
    RateLimit,
}

/// What became of a response over the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// It was not sent.
    Dropped,
    /// A truncated one without records was sent in its place.
    Truncated,
    /// It was an error, and sent as it was: no larger than a truncated one.
    Error,
    /// It was sent, for the client has no limit.
    Exempt,
    /// It was sent, for the limit is only watched.
    Watched,
}

/// What a zone's answer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records, or an alias.
    Data,
    /// The name exists without the type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// The name is delegated.
    Referral,
}

impl Stats {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counts of now.
    pub fn counts(&self) -> Counts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            queries: self.queries.each_ref().map(|families| families.each_ref().map(value)),
            qtypes: self.qtypes.each_ref().map(value),
            rcodes: self.rcodes.each_ref().map(value),
            drops: self.drops.each_ref().map(value),
            kinds: self.kinds.each_ref().map(value),
            cookies: self.cookies.each_ref().map(value),
            limited: self.limited.each_ref().map(value),
            truncated: value(&self.truncated),
            query_octets: value(&self.query_octets),
            response_octets: value(&self.response_octets),
        }
    }

    #[inline]
    pub(super) fn count_query(&self, peer: &Peer, octets: usize) {
        let transport = match peer.transport {
            Transport::Udp => 0,
            Transport::Tcp => 1,
            Transport::Tls => 2,
            Transport::Https => 3,
            Transport::Quic => 4,
        };
        let family = match peer.address.ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => 1,
        };
        add(&self.queries[transport][family], 1);
        add(&self.query_octets, octets as u64);
    }

    #[inline]
    pub(super) fn count_qtype(&self, qtype: RecordType) {
        let index = match qtype {
            RecordType::A => 0,
            RecordType::AAAA => 1,
            RecordType::HTTPS => 2,
            RecordType::NS => 3,
            RecordType::SOA => 4,
            RecordType::CNAME => 5,
            RecordType::TXT => 6,
            RecordType::MX => 7,
            RecordType::PTR => 8,
            RecordType::SRV => 9,
            RecordType::SVCB => 10,
            RecordType::DS => 11,
            RecordType::DNSKEY => 12,
            RecordType::CAA => 13,
            RecordType::ANY => 14,
            RecordType::AXFR | RecordType::IXFR => 15,
            _ => 16,
        };
        add(&self.qtypes[index], 1);
    }

    #[inline]
    pub(super) fn count_response(&self, rcode: Rcode, truncated: bool, octets: usize) {
        let index = match rcode.0 {
            0..=6 => usize::from(rcode.0),
            16 => 7,
            23 => 8,
            _ => 9,
        };
        add(&self.rcodes[index], 1);
        add(&self.response_octets, octets as u64);
        if truncated {
            add(&self.truncated, 1);
        }
    }

    #[inline]
    pub(super) fn count_kind(&self, kind: Kind) {
        add(&self.kinds[kind as usize], 1);
    }

    #[inline]
    pub(super) fn count_cookie(&self, standing: Standing) {
        let index = match standing {
            Standing::None => return,
            Standing::ClientOnly => 0,
            Standing::Good => 1,
            Standing::Bad => 2,
        };
        add(&self.cookies[index], 1);
    }

    pub(super) fn count_limited(&self, what: Limited) {
        add(&self.limited[what as usize], 1);
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        add(&self.drops[reason as usize], 1);
    }
}

#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let add_each = |mine: &mut [u64], theirs: &[u64]| {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        };
        add_each(self.queries.as_flattened_mut(), other.queries.as_flattened());
        add_each(&mut self.qtypes, &other.qtypes);
        add_each(&mut self.rcodes, &other.rcodes);
        add_each(&mut self.drops, &other.drops);
        add_each(&mut self.kinds, &other.kinds);
        add_each(&mut self.cookies, &other.cookies);
        add_each(&mut self.limited, &other.limited);
        self.truncated += other.truncated;
        self.query_octets += other.query_octets;
        self.response_octets += other.response_octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed() {
        let (a, b) = (Stats::new(), Stats::new());
        let peer = Peer {
            address: "[2001:db8::1]:4000".parse().expect("an address"),
            transport: Transport::Tcp,
            now: 0,
            random: 0,
        };
        a.count_query(&peer, 40);
        b.count_query(&peer, 2);
        b.count_qtype(RecordType(65400));
        b.count_response(Rcode::BADVERS, true, 23);
        a.count_drop(DropReason::Room);
        a.count_kind(Kind::Referral);
        let mut total = a.counts();
        total += b.counts();
        assert_eq!((total.queries[1], total.query_octets), ([0, 2], 42));
        assert_eq!((total.qtypes[16], total.rcodes[7], total.drops[3], total.kinds[3]), (1, 1, 1, 1));
        assert_eq!((total.truncated, total.response_octets), (1, 23));
    }
}
