//! Counters of one worker, which is their only writer; any thread can read and sum them.
//!
//! A count is a load and a store without ordering: an ordinary addition that another thread may watch. Only one thread at
//! a time may count on a [`Stats`], or counts are lost; nothing worse can happen.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Peer;
use super::cookie::CookieStatus;
use super::sizes::{self, BUCKETS};
use crate::wire::RecordType;
use crate::wire::header::{Opcode, Rcode};

/// Counters of one worker. Aligned so that two workers never share a cache line, or the adjacent line that is fetched with it.
#[repr(align(128))]
pub struct Stats {
    traffic: [Traffic<AtomicU64>; TRANSPORTS.len()],
    drops: [AtomicU64; DROPS.len()],
    cookies: [AtomicU64; COOKIES.len()],
    opcodes: [AtomicU64; OPCODES.len()],
    limited: [AtomicU64; LIMITED.len()],
    /// The answers of each zone with its own row; the last row is for all other zones.
    zones: Box<[ZoneRow]>,
}

/// The answers of one zone by [`KINDS`]. Each has its own cache line, so that rows of zones that are queried at the same time do
/// not share one.
#[repr(align(64))]
#[derive(Default)]
struct ZoneRow([AtomicU64; KINDS.len()]);

/// The traffic of one transport. Each list is in the order of the constant of labels that its field refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic<T> {
    /// Requests by [`FAMILIES`] and [`QTYPES`], including requests without a response.
    pub requests: [[T; QTYPES.len()]; FAMILIES.len()],
    /// Responses by [`RCODES`].
    pub responses: [T; RCODES.len()],
    /// Responses with TC set.
    pub truncated: T,
    /// The sizes of requests.
    pub request_sizes: Sizes<T>,
    /// The sizes of responses.
    pub response_sizes: Sizes<T>,
}

/// The sizes of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes<T> {
    /// Messages by size, see [`sizes::BOUNDS`].
    pub messages: [T; BUCKETS],
    /// The sum of their sizes in octets.
    pub octets: T,
}

/// The sum of counters at one moment. Each list is in the order of the constant of labels that its field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The traffic by [`TRANSPORTS`].
    pub traffic: [Traffic<u64>; TRANSPORTS.len()],
    /// Queries that got no response, by [`DROPS`].
    pub drops: [u64; DROPS.len()],
    /// Answers from zones by [`KINDS`].
    pub kinds: [u64; KINDS.len()],
    /// Queries with a cookie by [`COOKIES`].
    pub cookies: [u64; COOKIES.len()],
    /// Requests that are not queries, by [`OPCODES`].
    pub opcodes: [u64; OPCODES.len()],
    /// Responses over the rate limit by [`LIMITED`].
    pub limited: [u64; LIMITED.len()],
}

/// Answers of one zone by [`KINDS`].
pub type ZoneCounts = [u64; KINDS.len()];

/// Labels of transports, in the order of [`super::Transport`].
pub const TRANSPORTS: [&str; 5] = ["udp", "tcp", "tls", "https", "quic"];
/// Labels of address families.
pub const FAMILIES: [&str; 2] = ["ipv4", "ipv6"];
/// The labels of question types. All others are `other`, because a client could send 65,536; `none` is a request without a
/// readable question.
pub const QTYPES: [&str; 18] = [
    "A", "AAAA", "HTTPS", "NS", "SOA", "CNAME", "TXT", "MX", "PTR", "SRV", "SVCB", "DS", "DNSKEY", "CAA", "ANY", "XFR",
    "other", "none",
];
/// The places in [`QTYPES`] of types that are not listed, and of none.
const OTHER_QTYPE: u8 = QTYPES.len() as u8 - 2;
const NO_QTYPE: u8 = QTYPES.len() as u8 - 1;
/// Places in [`QTYPES`] by the number of the type.
const QTYPE_PLACES: [u8; 258] = qtype_places();

const fn qtype_places() -> [u8; 258] {
    let listed = [
        RecordType::A,
        RecordType::AAAA,
        RecordType::HTTPS,
        RecordType::NS,
        RecordType::SOA,
        RecordType::CNAME,
        RecordType::TXT,
        RecordType::MX,
        RecordType::PTR,
        RecordType::SRV,
        RecordType::SVCB,
        RecordType::DS,
        RecordType::DNSKEY,
        RecordType::CAA,
        RecordType::ANY,
        RecordType::AXFR,
    ];
    let mut places = [OTHER_QTYPE; 258];
    let mut place = 0;
    while place < listed.len() {
        places[listed[place].0 as usize] = place as u8;
        place += 1;
    }
    places[RecordType::IXFR.0 as usize] = places[RecordType::AXFR.0 as usize];
    places
}

/// Labels of response codes.
pub const RCODES: [&str; 11] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "BADVERS",
    "BADCOOKIE",
    "NOTAUTH",
    "other",
];
/// The labels of requests that are not queries.
pub const OPCODES: [&str; 5] = ["STATUS", "NOTIFY", "UPDATE", "DSO", "other"];
/// Labels of reasons to send nothing.
pub const DROPS: [&str; 5] = ["short", "response", "source", "room", "rate_limit"];
/// The labels of cookies, in the order of `CookieStatus` without `None`: `client` has no server cookie, `bad` an invalid or
/// outdated one.
pub const COOKIES: [&str; 3] = ["client", "good", "bad"];
/// The labels of responses over the rate limit: see [`Limited`].
pub const LIMITED: [&str; 5] = ["dropped", "truncated", "error", "exempt", "watched"];
/// The labels of answers: `data` has an answer section or would have, `nodata` and `nxdomain` report that there is none, `failed`
/// is for a zone that is not loaded and for a name too long for the client's limit.
pub const KINDS: [&str; 5] = ["data", "nodata", "nxdomain", "referral", "failed"];

/// The reason why a query gets no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The message is shorter than a header.
    Short,
    /// The message is a response: a reply could cause a loop.
    Response,
    /// The source address or port cannot be a client's: a response would hit another host.
    Source,
    /// The buffer of the response does not even have room for the question.
    Room,
    /// The network exceeded its limit for answers of the kind.
    RateLimit,
}

/// The outcome for a response over the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// The response was not sent.
    Dropped,
    /// A truncated response without records was sent instead.
    Truncated,
    /// The response was an error, sent without extended error and NSID: as small as a truncated one.
    Error,
    /// The response was sent, because the client has no limit.
    Exempt,
    /// The response was sent, because the limit is only observed.
    Watched,
}

/// The kind of a zone's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records, or a CNAME.
    Data,
    /// The name exists without the type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// The name is delegated.
    Referral,
    /// The zone is not loaded or has expired.
    Failed,
}

impl Stats {
    /// Returns counters of zero, without rows for zones.
    pub fn new() -> Self {
        Self::with_zones(0)
    }

    /// Returns counters of zero, with a row for each of the first `zones` zones that [`crate::zone::ZoneDb`] numbers.
    pub fn with_zones(zones: usize) -> Self {
        let zones = (0..=zones).map(|_| ZoneRow::default()).collect();
        Stats {
            traffic: Default::default(),
            drops: Default::default(),
            cookies: Default::default(),
            opcodes: Default::default(),
            limited: Default::default(),
            zones,
        }
    }

    /// Returns the current counts.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.add_to(&mut counts);
        counts
    }

    /// Adds the current counts to `sums`.
    pub fn add_to(&self, sums: &mut Counts) {
        sums.traffic.iter_mut().zip(&self.traffic).for_each(|(sum, traffic)| sum.add(traffic));
        self.zones.iter().for_each(|row| add_each(&mut sums.kinds, &row.0));
        add_each(&mut sums.drops, &self.drops);
        add_each(&mut sums.cookies, &self.cookies);
        add_each(&mut sums.opcodes, &self.opcodes);
        add_each(&mut sums.limited, &self.limited);
    }

    /// Adds the counts of each zone to `sums`, by the zones' numbers; the last entry is for all zones without a number.
    pub fn add_zones(&self, sums: &mut Vec<ZoneCounts>) {
        sums.resize(self.zones.len().max(sums.len()), ZoneCounts::default());
        for (sum, row) in sums.iter_mut().zip(&self.zones) {
            add_each(sum, &row.0);
        }
    }

    #[inline]
    pub(super) fn count_request(&self, peer: &Peer, qtype: Option<RecordType>, octets: usize) {
        let family = match peer.address.ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(_) => 1,
        };
        let qtype = match qtype {
            Some(qtype) => QTYPE_PLACES.get(usize::from(qtype.0)).copied().unwrap_or(OTHER_QTYPE),
            None => NO_QTYPE,
        };
        let qtype = usize::from(qtype);
        let traffic = &self.traffic[peer.transport as usize];
        add(&traffic.requests[family][qtype], 1);
        traffic.request_sizes.count(octets);
    }

    #[inline]
    pub(super) fn count_response(&self, peer: &Peer, rcode: Rcode, truncated: bool, octets: usize) {
        let rcode = match rcode.0 {
            0..=6 => usize::from(rcode.0),
            16 => 7,
            23 => 8,
            9 => 9,
            _ => 10,
        };
        let traffic = &self.traffic[peer.transport as usize];
        add(&traffic.responses[rcode], 1);
        traffic.response_sizes.count(octets);
        if truncated {
            add(&traffic.truncated, 1);
        }
    }

    /// Counts an answer of the zone with this number; all numbers without a row share the last one.
    #[inline]
    pub(super) fn count_answer(&self, zone: usize, kind: Kind) {
        let last = self.zones.len() - 1;
        add(&self.zones[zone.min(last)].0[kind as usize], 1);
    }

    #[inline]
    pub(super) fn count_cookie(&self, status: CookieStatus) {
        if status != CookieStatus::None {
            add(&self.cookies[status as usize - 1], 1);
        }
    }

    /// Counts a request that is not a query.
    #[cold]
    pub(super) fn count_opcode(&self, opcode: Opcode) {
        let index = match opcode.0 {
            2 => 0,
            4 => 1,
            5 => 2,
            6 => 3,
            _ => 4,
        };
        add(&self.opcodes[index], 1);
    }

    pub(super) fn count_limited(&self, what: Limited) {
        add(&self.limited[what as usize], 1);
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        add(&self.drops[reason as usize], 1);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

fn add_each(sums: &mut [u64], counters: &[AtomicU64]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.load(Ordering::Relaxed);
    }
}

impl Traffic<u64> {
    /// Returns the number of requests of all families and types.
    pub fn request_count(&self) -> u64 {
        self.requests.as_flattened().iter().sum()
    }

    fn add(&mut self, other: &Traffic<AtomicU64>) {
        add_each(self.requests.as_flattened_mut(), other.requests.as_flattened());
        add_each(&mut self.responses, &other.responses);
        self.truncated += other.truncated.load(Ordering::Relaxed);
        self.request_sizes.add(&other.request_sizes);
        self.response_sizes.add(&other.response_sizes);
    }
}

impl Sizes<AtomicU64> {
    #[inline]
    fn count(&self, octets: usize) {
        add(&self.messages[sizes::bucket(octets)], 1);
        add(&self.octets, octets as u64);
    }
}

impl Sizes<u64> {
    fn add(&mut self, other: &Sizes<AtomicU64>) {
        add_each(&mut self.messages, &other.messages);
        self.octets += other.octets.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nameserver::Transport;

    fn peer(transport: Transport) -> Peer {
        Peer {
            address: "[2001:db8::1]:4000".parse().expect("an address"),
            transport,
            now: 0,
            random: 0,
            keepalive: None,
        }
    }

    #[test]
    fn workers_are_summed() {
        let (a, b) = (Stats::with_zones(2), Stats::with_zones(2));
        let peer = peer(Transport::Tcp);
        a.count_request(&peer, Some(RecordType(65400)), 40);
        b.count_request(&peer, None, 2);
        b.count_response(&peer, Rcode::BADVERS, true, 23);
        a.count_drop(DropReason::Room);
        a.count_answer(0, Kind::Referral);
        b.count_answer(0, Kind::Data);
        b.count_answer(1, Kind::Data);
        b.count_answer(usize::from(u16::MAX), Kind::Failed);
        let mut total = a.counts();
        b.add_to(&mut total);
        let tcp = &total.traffic[1];
        assert_eq!((tcp.requests[1][16], tcp.requests[1][17], tcp.request_count()), (1, 1, 2));
        assert_eq!((tcp.request_sizes.octets, &tcp.request_sizes.messages[..3]), (42, &[1, 1, 0][..]));
        assert_eq!((tcp.responses[7], tcp.truncated), (1, 1));
        assert_eq!((tcp.response_sizes.octets, tcp.response_sizes.messages[0]), (23, 1));
        assert_eq!((total.drops[3], total.kinds), (1, [2, 0, 0, 1, 1]));
        let mut zones = Vec::new();
        a.add_zones(&mut zones);
        b.add_zones(&mut zones);
        assert_eq!(zones, [[1, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]);
    }

    #[test]
    fn transports_have_their_own_labels() {
        let of = |transport: Transport| TRANSPORTS[transport as usize];
        use Transport::{Https, Quic, Tcp, Tls, Udp};
        assert_eq!([Udp, Tcp, Tls, Https, Quic].map(of), TRANSPORTS);
    }
}
