//! Response rate limiting: whoever sends queries in the name of a victim must not get much out of this server.
//!
//! Each network of clients has a bucket for each kind of answer: a token for each answer of now, `per_second` more each
//! second, no more than `window` seconds' worth. An answer that finds the bucket empty is not sent; instead, each `slip`-th
//! time, a small one goes out: truncated, without records, so that a client that is real asks again over TCP, whose handshake
//! proves the address. Of errors, too, each `slip`-th goes out: they have no records to be left out, and a TC bit would
//! hide them. What goes out has the question, if the query has an OPT record an empty one, and in that the answer to a
//! client's cookie, which ends its limit. So it is no larger than the query, or by the 16 octets of a server cookie at most.
//!
//! What counts as one kind must not be for the attacker to multiply. So answers are told apart by the owner that gave them:
//! all names below a wildcard are one; so are all names of a zone that do not exist, or have no such type; all below one
//! delegation; and all errors. The type that was asked for makes no difference.
//!
//! Buckets are in a table of fixed size, four to a cache line, found by a keyed hash, so that nobody can aim at somebody
//! else's bucket. A bucket that is full is as good as none. Where none of four is, the fullest gives way: what is forgotten
//! is whom there was least reason to limit. Each worker has a table of its own, and no lock.

use std::cell::Cell;
use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use super::prefix::{Prefix, first_bits};
use super::stats::Kind;
use crate::zone::qname::NameHash;

/// What is let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers of one kind that a network of clients gets in a second, from each worker; 0 where there is no limit, which
    /// the engine then is not given (`Settings::rate_limit`).
    pub per_second: u32,
    /// How many seconds' worth may come at once; at least 1. Resolvers ask in bursts when something in their cache has ended.
    pub window: u16,
    /// Every how many-th answer over the limit a small one goes out: 1 for each, 0 for none.
    pub slip: u16,
    /// Bits of an IPv4 address that tell networks apart, at most 32.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that tell networks apart, at most 128.
    pub ipv6_prefix: u8,
    /// Clients without limit.
    pub exempt: Box<[Prefix]>,
    /// Whether answers over the limit are really held back; else they are only counted.
    pub enforced: bool,
}

impl RateLimit {
    /// Whether `client` has no limit. Asked only about answers over the limit, so that a list costs nothing until then.
    pub(super) fn exempts(&self, client: IpAddr) -> bool {
        self.exempt.iter().any(|prefix| prefix.contains(client))
    }
}

impl Default for RateLimit {
    /// What a configuration that says nothing means: no limit, for what is right depends on who asks (`docs/dns.md`). Under
    /// one, a /24 and a /56 are what one site has, and more than a forger needs to be told apart by. Every answer
    /// over the limit is a small one: what goes to a victim is then hardly more than came from its attacker, and no client
    /// of a real resolver has to wait for a time-out, in which a forged answer might come first.
    fn default() -> Self {
        RateLimit {
            per_second: 0,
            window: 5,
            slip: 1,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            exempt: Box::default(),
            enforced: true,
        }
    }
}

/// What an answer is counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    /// What was found; `None` for an error.
    pub(super) kind: Option<Kind>,
    /// The name that it came from: see the head of this file.
    pub(super) owner: NameHash,
}

impl Source {
    /// Of all that is no answer from a zone.
    pub(super) const ERROR: Source = Source { kind: None, owner: 0 };
}

/// What is to be done with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is within the limit.
    Send,
    /// It is over the limit, and the one in `slip` that is sent small.
    SendSmall,
    /// It is over the limit.
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
    /// Whose it is; 0 if it is nobody's.
    key: Cell<u64>,
    tokens: Cell<u32>,
    /// When it was last filled up, in seconds modulo 2¹⁶: a bucket that was left alone for 18 hours may look like one of a
    /// moment ago, which costs its owner a second.
    second: Cell<u16>,
    /// Answers over the limit since the last within it.
    excess: Cell<u16>,
}

/// Sets of a worker's table: 1 MiB of 65,536 buckets. An attack on few victims needs few of them; one in the name of the
/// whole world makes buckets give way to each other, but then no victim gets much.
const SETS: usize = 1 << 14;

impl Limiter {
    /// An empty table of 1 MiB, whose places are chosen by a secret `key`.
    pub fn new(key: [u64; 2]) -> Self {
        Self::with_sets(key, SETS)
    }

    fn with_sets(key: [u64; 2], sets: usize) -> Self {
        Limiter { key, sets: (0..sets.next_power_of_two()).map(|_| Set::default()).collect() }
    }

    /// Takes a token from the bucket of `client` and `source` at `now`, in seconds.
    #[inline]
    pub(super) fn take(&self, limit: &RateLimit, client: IpAddr, source: Source, now: u64) -> Verdict {
        let second = now as u16;
        let capacity = limit.per_second.saturating_mul(u32::from(limit.window.max(1)));
        let bucket = self.bucket(self.key(limit, client, source), second, limit.per_second, capacity);
        bucket.second.set(second);
        if let Some(left) = bucket.tokens.get().checked_sub(1) {
            bucket.tokens.set(left);
            bucket.excess.set(0);
            return Verdict::Send;
        }
        let excess = bucket.excess.get().wrapping_add(1);
        bucket.excess.set(excess);
        if limit.slip > 0 && excess.is_multiple_of(limit.slip) { Verdict::SendSmall } else { Verdict::Drop }
    }

    /// The bucket of `key`, filled up.
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

    /// Whose bucket it is: a hash that is never 0. That two share one is as likely as guessing it: 2⁻⁶⁴.
    #[inline]
    fn key(&self, limit: &RateLimit, client: IpAddr, source: Source) -> u64 {
        let kind = source.kind.map_or(u8::MAX, |kind| kind as u8);
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(source.owner);
        // Of two lengths, so that no network of one family is one of the other.
        match client {
            IpAddr::V4(address) => {
                let beyond = u32::MAX.checked_shr(limit.ipv4_prefix.into()).unwrap_or(0);
                hasher.write_u32(u32::from(address) & !beyond);
            }
            IpAddr::V6(_) => {
                let network = first_bits(client, limit.ipv6_prefix);
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

    /// How many of `tries` are sent whole, and how many small.
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
        (count(Verdict::Send), count(Verdict::SendSmall))
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
            assert_eq!(verdict == Verdict::Send, fresh, "{client} {source:?}");
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
