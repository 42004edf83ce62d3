//! The endpoints that get no requests, although a Service has them.
//!
//! Who can write an EndpointSlice can write any address into it. The router reaches more than a tenant does: itself, its own machine, the
//! metadata service of its cloud. Kubernetes refuses loopback and link-local addresses in EndpointSlices, but not all of these, and
//! other APIs can have other rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

/// The networks that are refused by default. Loopback addresses are not among them, because they have a setting of their own.
pub const NETWORKS: &[&str] = &[
    // This host, link-local, IETF protocol assignments, multicast, reserved and broadcast (RFC 6890).
    "0.0.0.0/8",
    "169.254.0.0/16",
    "192.0.0.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    // Metadata services outside the link-local range: Alibaba Cloud, Azure, AWS, Google Cloud, Scaleway.
    "100.100.100.200/32",
    "168.63.129.16/32",
    "fd00:ec2::/112",
    "fd20:ce::254/128",
    "fd00:42::42/128",
    // IPv4 addresses in IPv6: compatible and mapped (RFC 4291 §2.5.5), translated (RFC 6052, RFC 8215), Teredo, 6to4. They lead past the
    // rules for IPv4.
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2001::/32",
    "2002::/16",
    // Discard-only, link-local, site-local, multicast.
    "100::/64",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// The rules for endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Whether endpoints on loopback addresses get requests. On a machine that runs more than the applications of one tenant, they are a
    /// way around its firewall.
    pub loopback: bool,
    /// The networks whose endpoints get no requests. Loopback addresses in them get requests if `loopback` is set.
    pub networks: Vec<IpNet>,
    /// The addresses and ports of the platform's own listeners. An unspecified address means each loopback address.
    pub listeners: BTreeSet<(IpAddr, u16)>,
}

impl Default for Refused {
    fn default() -> Refused {
        Refused { loopback: false, networks: networks(), listeners: BTreeSet::new() }
    }
}

/// Returns [`NETWORKS`].
pub fn networks() -> Vec<IpNet> {
    NETWORKS.iter().map(|network| network.parse().expect("it is a network")).collect()
}

impl Refused {
    /// Returns the reason why an endpoint gets no requests.
    pub(super) fn reason(&self, address: IpAddr, port: u16) -> Option<String> {
        let canonical = address.to_canonical();
        let is_listener = |ip: IpAddr| self.listeners.contains(&(ip, port));
        let unspecified = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
        if is_listener(canonical) || (canonical.is_loopback() && unspecified.into_iter().any(is_listener)) {
            return Some("is a listener of the platform".to_owned());
        }
        if canonical.is_loopback() && !self.loopback {
            return Some("is a loopback address".to_owned());
        }
        if address.is_loopback() {
            return None;
        }
        let contains = |network: &&IpNet| network.contains(&address) || network.contains(&canonical);
        self.networks.iter().find(contains).map(|network| format!("is in the refused network {network}"))
    }
}
