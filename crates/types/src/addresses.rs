//! Addresses that no application can have.

use std::net::IpAddr;

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
