//! A range of addresses that share their first bits, as operators write it: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// The error for a text that is not a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The text is not an address, or its length is invalid for the family.
    #[error("must be an address or a prefix, such as 192.0.2.0/24 or 2001:db8::/32")]
    Syntax,
    /// The text is one address of the range, which may be a mistake in either number.
    #[error("has bits after the prefix; the range begins at {0}")]
    Bits(IpAddr),
}

impl Prefix {
    /// Returns the first address of the range.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that the addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns whether `address` is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && first_bits(address, self.length) == first_bits(self.address, 128)
    }
}

/// Returns the first `length` bits of an address as the upper bits of a word, the others 0: for IPv4 at most the upper 32. Does
/// not distinguish the families.
#[inline]
pub(super) fn first_bits(address: IpAddr, length: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    bits & !u128::MAX.checked_shr(u32::from(length)).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Syntax)?;
        let length_max = if address.is_ipv4() { 32 } else { 128 };
        let length = match length.map(str::parse) {
            None => length_max,
            Some(Ok(length)) if length <= length_max => length,
            Some(_) => return Err(PrefixError::Syntax),
        };
        let first = first_bits(address, length);
        if first != first_bits(address, 128) {
            return Err(PrefixError::Bits(match address {
                IpAddr::V4(_) => IpAddr::V4(((first >> 96) as u32).into()),
                IpAddr::V6(_) => IpAddr::V6(first.into()),
            }));
        }
        Ok(Prefix { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (prefix, inside, outside) in [
            ("192.0.2.0/24", &["192.0.2.0", "192.0.2.255"][..], &["192.0.3.0", "192.0.1.255", "2001:db8::1"][..]),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "::ffff:192.0.2.7"]),
            ("0.0.0.0/0", &["203.0.113.1"], &["::", "2001:db8::1"]),
            ("2001:db8::/33", &["2001:db8:7fff::1"], &["2001:db8:8000::", "32.1.13.184"]),
            ("::/0", &["::1", "2001:db8::"], &["0.0.0.0"]),
            ("2001:db8::1", &["2001:db8::1"], &["2001:db8::2"]),
        ] {
            let parsed: Prefix = prefix.parse().expect(prefix);
            let holds = |text: &&str| parsed.contains(text.parse().expect("an address of a test"));
            assert!(inside.iter().all(holds), "{prefix}");
            assert!(!outside.iter().any(holds), "{prefix}");
        }
    }

    #[test]
    fn faults() {
        for text in ["", "/", "192.0.2.0/33", "192.0.2.0/", "2001:db8::/129", "192.0.2", "192.0.2.0/-1", "example./8"] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Syntax), "{text}");
        }
        let bits = "192.0.2.1/24".parse::<Prefix>().expect_err("has more bits");
        assert_eq!(bits.to_string(), "has bits after the prefix; the range begins at 192.0.2.0");
        let bits = "2001:db8::1/64".parse::<Prefix>().expect_err("has more bits");
        assert_eq!(bits.to_string(), "has bits after the prefix; the range begins at 2001:db8::");
    }
}
