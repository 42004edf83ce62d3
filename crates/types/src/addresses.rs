//! Addresses that no application can have.

use std::net::IpAddr;

use crate::names::{check_host, is_at_or_below};

/// Returns the reason why no application is reachable at this address.
pub fn unusable(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("must not be the unspecified address"),
        _ if ip.is_multicast() => Some("must not be a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("must not be the broadcast address"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped address; write the IPv4 address itself, such as 192.0.2.1")
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Some("must not be a link-local address, because it is valid on one link only")
        }
        _ => None,
    }
}

/// Returns the reason why clients on other machines cannot reach this address.
pub fn unusable_outside(ip: IpAddr) -> Option<&'static str> {
    let is_link_local = matches!(ip, IpAddr::V4(v4) if v4.is_link_local());
    match ip.is_loopback() || is_link_local {
        true => Some("it is valid on one machine or link only"),
        false => unusable(ip),
    }
}

/// The domain that resolves in its cluster only.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Returns the reason why clients on other machines cannot use this host name, in lower case.
pub fn unusable_name(name: &str) -> Option<&'static str> {
    let is_below = |domain: &str| is_at_or_below(name, domain);
    match name {
        _ if is_below(CLUSTER_DOMAIN) || is_below("svc") => Some("it is a name of the cluster"),
        _ if is_below("localhost") => Some("it is a name of one machine"),
        _ if name.starts_with("*.") || check_host(name).is_err() => Some("it is neither an address nor a host name"),
        _ => None,
    }
}
