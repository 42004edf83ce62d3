//! A range of addresses that share their first bits, as operators write it: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A range of addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix(pub IpNet);

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
    /// Returns whether `address` is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        // Not by `IpNet`, which reads numbers with leading zeros.
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Syntax)?;
        let Some(length) = length else { return Ok(Prefix(address.into())) };
        let network = length.parse().ok().and_then(|length| IpNet::new(address, length).ok());
        let network = network.ok_or(PrefixError::Syntax)?;
        match network.network() {
            first if first == address => Ok(Prefix(network)),
            first => Err(PrefixError::Bits(first)),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
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
