//! DNS cookies (RFC 7873) in the interoperable format of RFC 9018.
//!
//! A server cookie binds a client's address and its own cookie to a time, under a secret of the servers. The server keeps no
//! state per client: a client that returns a valid cookie has received an earlier response, so its address is not forged, and
//! responses to it cannot hit another host. Servers behind one address verify each other's cookies if they share the same secrets.
//!
//! ```text
//!  0        8         9          12          16       24
//!  | client | version | reserved | timestamp | hash   |     hash = SipHash-2-4(the first 16 octets, client's address)
//! ```
//!
//! Decisions where the standards leave a choice: a valid cookie under any of the secrets is returned unchanged until it is half
//! an hour old (RFC 9018 §4.3). An invalid cookie is treated as absent, and the response has a new one (RFC 7873 §5.2.4).
//! BADCOOKIE is sent only if the operator requires cookies, or if the query contains only a cookie (§5.4). A stream already
//! proves the source address, so cookies are never required there.

use std::fmt;
use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::wire::message::Query;

/// The length of the option with a client cookie (8 octets) and a server cookie (16 octets).
pub(super) const FULL_OCTETS: usize = 24;
const CLIENT_OCTETS: usize = 8;
/// The only defined version (RFC 9018 §4.1).
const VERSION: u8 = 1;

/// The maximum age of a cookie, in seconds (RFC 9018 §4.3).
const AGE_MAX: i32 = 3600;
/// The age from which the server sends a new cookie instead.
const RENEWAL_AGE: i32 = 1800;
/// The maximum time that a cookie can be in the future, from another server whose clock is ahead.
const AHEAD_MAX: i32 = 300;

/// The secret of the cookies: 128 random bits, known only to the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u64; 2]);

impl Secret {
    /// Returns the secret with these octets.
    pub const fn new(octets: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = octets;
        Secret([u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])])
    }
}

impl fmt::Debug for Secret {
    /// Omits the value, because settings are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The error for a text that is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 32 hexadecimal digits (128 bits), such as the output of `openssl rand -hex 16`")]
pub struct SecretError;

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let octets = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| SecretError)?;
        octets.try_into().map(Secret::new).map_err(|_| SecretError)
    }
}

/// The settings of DNS cookies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookies {
    /// The secret that creates and verifies cookies.
    pub first: Secret,
    /// Secrets that only verify cookies: the former and the next one, during a rotation.
    pub others: Box<[Secret]>,
    /// Whether a datagram with a client cookie must have a valid server cookie; otherwise, it gets BADCOOKIE and a new one.
    pub required: bool,
}

/// The result of the check of a query's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CookieStatus {
    /// The query has no cookie, or cookies are off.
    None,
    /// Only a client cookie.
    ClientOnly,
    /// A valid, current server cookie: the client's address is not forged.
    Valid,
    /// An invalid or outdated server cookie.
    Invalid,
}

/// A query's cookie and the cookie of the response: none if the query had none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceivedCookie {
    pub(super) status: CookieStatus,
    octets: [u8; FULL_OCTETS],
}

impl ReceivedCookie {
    pub(super) const NONE: ReceivedCookie = ReceivedCookie { status: CookieStatus::None, octets: [0; FULL_OCTETS] };

    /// Returns the option of the response.
    #[inline]
    pub(super) fn answer(&self) -> Option<&[u8; FULL_OCTETS]> {
        (self.status != CookieStatus::None).then_some(&self.octets)
    }
}

/// Checks the cookie of `query`, which was read from `message`.
#[inline]
pub(super) fn verify(
    cookies: Option<&Cookies>,
    query: &Query,
    message: &[u8],
    peer: SocketAddr,
    now: u64,
) -> ReceivedCookie {
    let Some(cookies) = cookies else { return ReceivedCookie::NONE };
    let Some((start, length)) = query.edns.and_then(|edns| edns.cookie) else { return ReceivedCookie::NONE };
    let (start, length) = (usize::from(start), usize::from(length));
    cookies.verify(&message[start..start + length], peer.ip(), now as u32)
}

impl Cookies {
    /// Checks the option `cookie`, of 8 or 16 to 40 octets, at `now`, seconds since the epoch modulo 2³².
    fn verify(&self, cookie: &[u8], client: IpAddr, now: u32) -> ReceivedCookie {
        let status = if cookie.len() == CLIENT_OCTETS { CookieStatus::ClientOnly } else { CookieStatus::Invalid };
        if let Ok(full) = <[u8; FULL_OCTETS]>::try_from(cookie)
            && let Some(age) = self.age(&full, client, now)
        {
            if age <= RENEWAL_AGE {
                return ReceivedCookie { status: CookieStatus::Valid, octets: full };
            }
            return ReceivedCookie { status: CookieStatus::Valid, octets: self.make(cookie, client, now) };
        }
        ReceivedCookie { status, octets: self.make(cookie, client, now) }
    }

    /// Returns the age in seconds of a valid cookie; negative if the clock of the server that created it is ahead.
    fn age(&self, full: &[u8; FULL_OCTETS], client: IpAddr, now: u32) -> Option<i32> {
        let (head, hash) = full.split_first_chunk::<16>()?;
        let timestamp = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        // Serial number arithmetic (RFC 1982), so that the years 2038 and 2106 are like any other.
        let age = now.wrapping_sub(timestamp).cast_signed();
        if head[8] != VERSION || !(-AHEAD_MAX..=AGE_MAX).contains(&age) {
            return None;
        }
        // One comparison of words, so that its duration does not reveal the position of a difference.
        let hash = u64::from_le_bytes(hash.try_into().expect("eight octets are left of 24"));
        // The reserved octets are hashed as received (RFC 9018 §4.2).
        let is_made_with = |secret: &Secret| hash_of(secret, head, client) == hash;
        (is_made_with(&self.first) || self.others.iter().any(is_made_with)).then_some(age)
    }

    /// Returns a current cookie for the client cookie at the start of `cookie`.
    fn make(&self, cookie: &[u8], client: IpAddr, now: u32) -> [u8; FULL_OCTETS] {
        let mut full = [0; FULL_OCTETS];
        let mut head = [0; 16];
        head[..CLIENT_OCTETS].copy_from_slice(&cookie[..CLIENT_OCTETS]);
        head[8] = VERSION;
        head[12..].copy_from_slice(&now.to_be_bytes());
        full[..16].copy_from_slice(&head);
        full[16..].copy_from_slice(&hash_of(&self.first, &head, client).to_le_bytes());
        full
    }
}

/// Returns the hash (RFC 9018 §4.4) of the sixteen octets in front of it.
#[inline]
fn hash_of(secret: &Secret, head: &[u8; 16], client: IpAddr) -> u64 {
    // Word by word; the octets are hashed in the order in which they are in memory.
    let mut hasher = SipHasher24::new_with_keys(secret.0[0], secret.0[1]);
    let words = |octets: &[u8; 16]| {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *octets;
        (u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes(rest))
    };
    let (first, second) = words(head);
    hasher.write_u64(first);
    hasher.write_u64(second);
    match client {
        IpAddr::V4(address) => hasher.write_u32(u32::from_ne_bytes(address.octets())),
        IpAddr::V6(address) => {
            let (first, second) = words(&address.octets());
            hasher.write_u64(first);
            hasher.write_u64(second);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "2464c4abcf10c957";

    fn hex(text: &str) -> Vec<u8> {
        data_encoding::HEXLOWER.decode(text.as_bytes()).expect("hex of a test")
    }

    fn cookies(first: &str, others: &[&str]) -> Cookies {
        let secret = |text: &str| text.parse().expect("a secret of a test");
        Cookies { first: secret(first), others: others.iter().map(|text| secret(text)).collect(), required: false }
    }

    fn client(text: &str) -> IpAddr {
        text.parse().expect("an address of a test")
    }

    /// RFC 9018, appendix A.
    #[test]
    fn test_vectors() {
        let (old, new) = ("dd3bdf9344b678b185a6f5cb60fca715", "445536bcd2513298075a5d379663c962");
        let one = "e5e973e5a6b2a43f48e7dc849e37bfcf";
        let (first, second) = ("198.51.100.100", "203.0.113.203");
        let third = "2001:db8:220:1:59de:d0f4:8769:82b8";
        for (section, cookies, client, now, query, status, answer) in [
            (
                "A.1",
                cookies(one, &[]),
                first,
                1_559_731_985,
                CLIENT,
                CookieStatus::ClientOnly,
                "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
            ),
            (
                "A.2",
                cookies(one, &[]),
                first,
                1_559_734_385,
                "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
                CookieStatus::Valid,
                "2464c4abcf10c957010000005cf7a871d4a564a1442aca77",
            ),
            // The example's cookie is older than the hour of §4.3 when it arrives, so that it is invalid here and replaced.
            (
                "A.3",
                cookies(one, &[]),
                second,
                1_559_734_700,
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
                CookieStatus::Invalid,
                "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e",
            ),
            (
                "A.3, within the hour: reserved octets are hashed as they came",
                cookies(one, &[]),
                second,
                1_559_727_985 + 60,
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
                CookieStatus::Valid,
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
            ),
            (
                "A.4",
                cookies(new, &[old]),
                third,
                1_559_741_961,
                "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
                CookieStatus::Valid,
                "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
            ),
            (
                "A.4, as one whose cookie is not known",
                cookies(new, &[]),
                third,
                1_559_741_961,
                "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
                CookieStatus::Invalid,
                "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
            ),
        ] {
            let received = cookies.verify(&hex(query), super::tests::client(client), now);
            let found = received.answer().map(|octets| data_encoding::HEXLOWER.encode(octets));
            assert_eq!((received.status, found.as_deref()), (status, Some(answer)), "{section}");
        }
    }

    #[test]
    fn what_is_not_ours_is_bad() {
        let cookies = cookies("000102030405060708090a0b0c0d0e0f", &[]);
        let (client, now) = (client("192.0.2.1"), 1_800_000_000);
        let good = *cookies.verify(&hex(CLIENT), client, now).answer().expect("a full cookie");
        assert_eq!(cookies.verify(&good, client, now).status, CookieStatus::Valid);
        for at in 0..FULL_OCTETS {
            let mut other = good;
            other[at] ^= 1;
            let received = cookies.verify(&other, client, now);
            assert_eq!((received.status, &received.octets[..8]), (CookieStatus::Invalid, &other[..8]), "octet {at}");
        }
        assert_eq!(cookies.verify(&good, super::tests::client("192.0.2.2"), now).status, CookieStatus::Invalid);
        for length in [16, 23, 25, 40] {
            let received = cookies.verify(&vec![7; length], client, now);
            assert_eq!(
                (received.status, &received.octets[..8]),
                (CookieStatus::Invalid, &[7; 8][..]),
                "{length} octets"
            );
        }
    }

    #[test]
    fn secrets_are_read_and_not_shown() {
        let secret: Secret = "E5e973e5a6b2a43f48e7dc849e37bfcf".parse().expect("a secret");
        assert_eq!(secret.0[0].to_le_bytes()[..2], [0xe5, 0xe9]);
        assert_eq!(format!("{secret:?}"), "Secret");
        for text in ["", "e5e973e5a6b2a43f48e7dc849e37bf", "e5e973e5a6b2a43f48e7dc849e37bfcfcf", "g"] {
            assert_eq!(text.parse::<Secret>(), Err(SecretError), "{text}");
        }
    }
}
