//! The addresses that owners of hosts may let this process query.
//!
//! A host's owner chooses the addresses of its name servers. Without a restriction, this process would probe networks that the
//! owner cannot reach: private ones, and the services of this machine. So only public addresses of other machines are queried,
//! unless the operator allows others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Returns whether this is a public unicast address, and not one of this machine.
pub(super) fn is_allowed(address: IpAddr) -> bool {
    is_public(address) && !is_of_this_machine(address)
}

/// Returns whether an address is public, according to IANA's special-purpose registries (RFC 6890). The documentation ranges
/// count as public: no network uses them, but tests do.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_special = match (first, second, third) {
        // "This network", and 127.0.0.0/8.
        (0 | 127, ..) => true,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => true,
        // Shared by carriers (RFC 6598), and used inside clouds.
        (100, 64..=127, _) => true,
        // Link-local, where clouds have their metadata.
        (169, 254, _) => true,
        // Protocol assignments (RFC 6890 §2.1), and benchmarks (RFC 2544).
        (192, 0, 0) | (198, 18 | 19, _) => true,
        // Multicast, reserved, and broadcast.
        (224.., ..) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match segments {
        // Addresses that embed an IPv4 address: NAT64 (RFC 6052) and 6to4 (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, ORCHID, benchmarks and other protocol assignments (RFC 2928).
        [0x2001, 0..=0x1ff, ..] => false,
        // Global unicast, the only block that is assigned to networks (RFC 4291 §2.4). Outside are loopback, link-local, unique
        // local and multicast addresses.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Returns whether this machine has the address. The kernel selects the source for a destination without sending anything; for an
/// address of its own, that is the address itself. Binding is not sufficient: some systems allow any address.
fn is_of_this_machine(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 53))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses() {
        for (address, expected) in [
            ("8.8.8.8", true),
            ("198.51.100.53", true),
            ("172.15.255.255", true),
            ("172.32.0.1", true),
            ("100.63.255.255", true),
            ("100.128.0.1", true),
            ("2606:4700:4700::1111", true),
            ("2001:db8::53", true),
            ("2001:4860:4860::8888", true),
            ("64:ff9b::8.8.8.8", true),
            ("2002:808:808::1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.168.1.1", false),
            ("100.64.0.1", false),
            ("169.254.169.254", false),
            ("192.0.0.8", false),
            ("198.19.0.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::10.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b:1::1", false),
            ("2002:7f00:1::1", false),
            ("2001::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            let parsed: IpAddr = address.parse().expect("an address");
            assert_eq!(is_public(parsed), expected, "{address}");
        }
    }

    #[test]
    fn addresses_of_this_machine() {
        assert!(is_of_this_machine(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_of_this_machine(Ipv4Addr::new(198, 51, 100, 53).into()));
    }
}
