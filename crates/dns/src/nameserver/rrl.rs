//! Response rate limiting: limits the traffic that an attacker can direct from this server to a victim with forged queries.
//!
//! Each client network has a bucket for each kind of answer: it starts with one token per answer, gains `per_second` tokens each
//! second, and holds at most `window` seconds' worth. An answer that finds the bucket empty is not sent; instead, each `slip`-th
//! time, the server sends a small one: truncated, without records, so that a real client retries over TCP, whose handshake proves
//! the address. Each `slip`-th error is sent, too: errors have no records to omit, and a TC bit would hide them. The small
//! response has the question and, if the query has an OPT record, an empty one with the answer to a client's cookie, which ends
//! its limit. So it is no larger than the query, or by at most the 16 octets of a server cookie.
//!
//! An attacker must not be able to multiply the kinds of answers. Answers are therefore distinguished by the owner that provided
//! them: all names below a wildcard are one kind; so are all names of a zone that do not exist or do not have the type; all below
//! one delegation; and all errors. The queried type makes no difference.
//!
//! Buckets are in a table of fixed size, four to a cache line, found by a keyed hash, so that an attacker cannot target another
//! client's bucket. A full bucket is equivalent to none. If none of the four is full, the fullest is replaced: its network had
//! the least reason to be limited. Each worker has its own table, without locks.

use std::cell::Cell;
use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use super::prefix::Prefix;
use super::stats::Kind;
use crate::zone::qname::NameHash;

/// The settings of the rate limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers of one kind that a network of clients gets in a second, from each worker; 0: no limit; the engine then has no
    /// `Settings::rate_limit`.
    pub per_second: u32,
    /// The burst, in seconds' worth; at least 1. Resolvers send bursts when an entry of their cache expires.
    pub window: u16,
    /// Every `slip`-th answer over the limit is replaced by a small one, and the others are dropped; 0: all are dropped.
    pub slip: u16,
    /// The number of bits of an IPv4 address that distinguish networks, at most 32.
    pub ipv4_prefix: u8,
    /// The number of bits of an IPv6 address that distinguish networks, at most 128.
    pub ipv6_prefix: u8,
    /// Only responses of more than this many times their query's octets are limited; 0: all.
    pub free_multiple: u8,
    /// Clients without limit.
    pub exempt: Box<[Prefix]>,
    /// Whether answers over the limit are withheld; otherwise, they are only counted.
    pub enforced: bool,
}

impl RateLimit {
    /// Returns the limit that no client of a real resolver meets: for amplified answers to strangers. Forged queries gain nothing from an
    /// answer of at most three times their size, which QUIC sends to unproven addresses, too (RFC 9000 §8.1). Larger ones
    /// are mostly signed, and a resolver requests each once in its time to live. `docs/dns.md` has the figures. Packets
    /// to private addresses do not leave the operator's network.
    pub fn of_amplified() -> Self {
        let exempt = NOT_STRANGERS.map(|prefix| prefix.parse().expect("it is a prefix"));
        RateLimit { per_second: 1_000, free_multiple: 3, exempt: exempt.into(), ..RateLimit::default() }
    }

    /// Returns whether a response is too small to be limited.
    pub(super) fn is_free(&self, query_octets: usize, response_octets: usize) -> bool {
        response_octets <= query_octets * usize::from(self.free_multiple)
    }

    /// Returns whether `client` has no limit. Called only for answers over the limit, so that a list costs nothing until then.
    pub(super) fn exempts(&self, client: IpAddr) -> bool {
        self.exempt.iter().any(|prefix| prefix.contains(client))
    }
}

/// Addresses that are not routed on the Internet: loopback, link-local (RFC 3927, RFC 4291), private (RFC 1918, RFC 4193), and those of
/// carriers' translators (RFC 6598).
const NOT_STRANGERS: [&str; 9] = [
    "127.0.0.0/8",
    "169.254.0.0/16",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "::1",
    "fe80::/10",
    "fc00::/7",
];

impl Default for RateLimit {
    /// Returns no limit. With a limit, a /24 and a
    /// /56 are the networks of one site, and more than a forger needs to distinguish. Every answer over the limit is a small one:
    /// a victim then receives hardly more than its attacker sent, and no client of a real resolver has to wait for a timeout,
    /// during which a forged answer could arrive first.
    fn default() -> Self {
        RateLimit {
            per_second: 0,
            window: 5,
            slip: 1,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            free_multiple: 0,
            exempt: Box::default(),
            enforced: true,
        }
    }
}

/// The key with which an answer is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    /// The kind of the result; `None` for an error.
    pub(super) kind: Option<Kind>,
    /// The name that provided the answer, as the module documentation describes.
    pub(super) owner: NameHash,
}

impl Source {
    /// The source of all responses that are not answers from a zone.
    pub(super) const ERROR: Source = Source { kind: None, owner: 0 };
}

/// The action for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RrlAction {
    /// The answer is within the limit.
    Send,
    /// The answer is over the limit, and is the one in `slip` that is sent small.
    Slip,
    /// The answer is over the limit.
    Drop,
}

/// The buckets of one worker. It belongs to one thread at a time.
pub struct Limiter {
    key: [u64; 2],
    sets: Box<[Set]>,
}

/// A cache line of buckets.
#[repr(align(64))]
#[derive(Default)]
struct Set([Bucket; 4]);

/// One network's tokens for one kind of answer. Sixteen octets.
#[derive(Default)]
struct Bucket {
    /// The hash of the owner of the bucket; 0 if it is free.
    key: Cell<u64>,
    tokens: Cell<u32>,
    /// The time of the last refill, in seconds modulo 2¹⁶: a bucket that was unused for 18 hours may appear to be recent, which
    /// costs its owner a second.
    second: Cell<u16>,
    /// The number of answers over the limit since the last answer within it.
    excess: Cell<u16>,
}

/// Sets of a worker's table: 1 MiB of 65,536 buckets. An attack on few victims needs few of them. An attack with random sources
/// replaces buckets constantly, but then no victim gets much traffic.
const SETS: usize = 1 << 14;

impl Limiter {
    /// Returns an empty table of 1 MiB; the secret `key` selects the buckets.
    pub fn new(key: [u64; 2]) -> Self {
        Self::with_sets(key, SETS)
    }

    fn with_sets(key: [u64; 2], sets: usize) -> Self {
        Limiter { key, sets: (0..sets.next_power_of_two()).map(|_| Set::default()).collect() }
    }

    /// Takes a token from the bucket of `client` and `source` at `now`, in seconds.
    #[inline]
    pub(super) fn take(&self, limit: &RateLimit, client: IpAddr, source: Source, now: u64) -> RrlAction {
        let second = now as u16;
        let capacity = limit.per_second.saturating_mul(u32::from(limit.window.max(1)));
        let bucket = self.bucket(self.key(limit, client, source), second, limit.per_second, capacity);
        bucket.second.set(second);
        if let Some(left) = bucket.tokens.get().checked_sub(1) {
            bucket.tokens.set(left);
            bucket.excess.set(0);
            return RrlAction::Send;
        }
        let excess = bucket.excess.get().wrapping_add(1);
        bucket.excess.set(excess);
        if limit.slip > 0 && excess.is_multiple_of(limit.slip) { RrlAction::Slip } else { RrlAction::Drop }
    }

    /// Returns the bucket of `key`, with the tokens that it gained since its last use.
    #[inline]
    fn bucket(&self, key: u64, second: u16, per_second: u32, capacity: u32) -> &Bucket {
        let Set(buckets) = &self.sets[key as usize & (self.sets.len() - 1)];
        let filled = |bucket: &Bucket| {
            // A clock that is set back makes the difference large and the bucket full.
            let elapsed = u32::from(second.wrapping_sub(bucket.second.get()));
            bucket.tokens.get().saturating_add(elapsed.saturating_mul(per_second)).min(capacity)
        };
        if let Some(bucket) = buckets.iter().find(|bucket| bucket.key.get() == key) {
            bucket.tokens.set(filled(bucket));
            return bucket;
        }
        let room = |bucket: &&Bucket| if bucket.key.get() == 0 { u32::MAX } else { filled(bucket) };
        let bucket = buckets.iter().max_by_key(room).unwrap_or(&buckets[0]);
        bucket.key.set(key);
        bucket.tokens.set(capacity);
        bucket.excess.set(0);
        bucket
    }

    /// Returns the key of the bucket: a hash that is never 0. A collision is as likely as a guess: 2⁻⁶⁴.
    #[inline]
    fn key(&self, limit: &RateLimit, client: IpAddr, source: Source) -> u64 {
        let kind = source.kind.map_or(u8::MAX, |kind| kind as u8);
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(source.owner);
        // IPv4 and IPv6 have different lengths here, so that their networks never collide.
        match client {
            IpAddr::V4(address) => {
                let beyond = u32::MAX.checked_shr(limit.ipv4_prefix.into()).unwrap_or(0);
                hasher.write_u32(u32::from(address) & !beyond);
            }
            IpAddr::V6(address) => {
                let beyond = u128::MAX.checked_shr(limit.ipv6_prefix.into()).unwrap_or(0);
                let network = u128::from(address) & !beyond;
                hasher.write_u64(network as u64);
                hasher.write_u64((network >> 64) as u64);
            }
        }
        hasher.write_u8(kind);
        hasher.finish().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Source = Source { kind: Some(Kind::Data), owner: 7 };
    const NOW: u64 = 1_800_000_000;

    fn limit(per_second: u32, window: u16, slip: u16) -> RateLimit {
        RateLimit { per_second, window, slip, ..RateLimit::default() }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address of a test")
    }

    /// Returns the numbers of answers out of `tries` that are sent whole and small.
    fn sent(
        limiter: &Limiter,
        limit: &RateLimit,
        client: &str,
        source: Source,
        now: u64,
        tries: usize,
    ) -> (usize, usize) {
        let verdicts: Vec<_> = (0..tries).map(|_| limiter.take(limit, address(client), source, now)).collect();
        let count = |what| verdicts.iter().filter(|verdict| **verdict == what).count();
        (count(RrlAction::Send), count(RrlAction::Slip))
    }

    #[test]
    fn a_bucket_holds_a_window_and_fills_each_second() {
        let limiter = Limiter::new([1, 2]);
        let limit = limit(10, 3, 2);
        // Seconds after the start, queries, sent whole, sent small: the second of each two over the limit.
        for (after, tries, whole, small) in
            [(0, 40, 30, 5), (0, 4, 0, 2), (1, 20, 10, 5), (3, 40, 20, 10), (60, 100, 30, 35), (59, 5, 5, 0)]
        {
            assert_eq!(
                sent(&limiter, &limit, "192.0.2.1", DATA, NOW + after, tries),
                (whole, small),
                "after {after} s"
            );
        }
    }

    #[test]
    fn slips() {
        for (slip, small) in [(0, 0), (1, 12), (2, 6), (5, 2), (13, 0)] {
            let limiter = Limiter::new([1, 2]);
            assert_eq!(sent(&limiter, &limit(1, 1, slip), "192.0.2.1", DATA, NOW, 13), (1, small), "slip {slip}");
        }
    }

    #[test]
    fn networks_and_kinds_have_their_own_buckets() {
        let limiter = Limiter::new([1, 2]);
        let limit = limit(1, 1, 0);
        let source = |kind, owner| Source { kind, owner };
        for (client, source, fresh) in [
            ("192.0.2.1", DATA, true),
            ("192.0.2.255", DATA, false),
            ("192.0.3.1", DATA, true),
            ("2001:db8::1", DATA, true),
            ("2001:db8:0:ff::1", DATA, false),
            ("2001:db8:0:100::1", DATA, true),
            // The same bits as 192.0.2.0.
            ("c000:200::1", DATA, true),
            ("192.0.2.1", source(Some(Kind::Data), 8), true),
            ("192.0.2.1", source(Some(Kind::NoData), 7), true),
            ("192.0.2.1", source(Some(Kind::NxDomain), 7), true),
            ("192.0.2.1", source(Some(Kind::Referral), 7), true),
            ("192.0.2.1", Source::ERROR, true),
            ("192.0.2.2", Source::ERROR, false),
        ] {
            let verdict = limiter.take(&limit, address(client), source, NOW);
            assert_eq!(verdict == RrlAction::Send, fresh, "{client} {source:?}");
        }
    }

    #[test]
    fn the_emptiest_stay_when_room_is_short() {
        // One set: four buckets for all.
        let limiter = Limiter::with_sets([1, 2], 1);
        let limit = limit(2, 1, 0);
        assert_eq!(sent(&limiter, &limit, "192.0.2.1", DATA, NOW, 10), (2, 0));
        // A hundred others come by once each, and all are served.
        for other in 0..100 {
            assert_eq!(sent(&limiter, &limit, &format!("198.51.{other}.1"), DATA, NOW, 1), (1, 0));
        }
        assert_eq!(sent(&limiter, &limit, "192.0.2.1", DATA, NOW, 10), (0, 0), "its limit was not forgotten");
        assert_eq!(sent(&limiter, &limit, "192.0.2.1", DATA, NOW + 1, 10), (2, 0));
    }

    #[test]
    fn the_table_is_as_large_as_it_says() {
        assert_eq!((size_of::<Bucket>(), size_of::<Set>()), (16, 64));
        assert_eq!(SETS * size_of::<Set>(), 1 << 20);
    }

    #[test]
    fn large_limits_do_not_overflow() {
        let limiter = Limiter::new([1, 2]);
        let limit = limit(u32::MAX, u16::MAX, 1);
        assert_eq!(sent(&limiter, &limit, "192.0.2.1", DATA, NOW, 5), (5, 0));
        assert_eq!(sent(&limiter, &limit, "192.0.2.1", DATA, NOW - 7, 5), (5, 0));
    }
}
