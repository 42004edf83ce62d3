//! The listeners of the platform: those of this instance, and of the instances of all Routers. A Route whose endpoint is one of them would
//! send requests in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use signpost_types::v1alpha1::router::{Ports, Router};

use crate::resolve::Key;

/// The addresses of the machine, in two files of the kernel.
const LOCAL_V4: &str = "/proc/net/fib_trie";
const LOCAL_V6: &str = "/proc/net/if_inet6";

#[derive(Debug)]
pub(crate) struct Listeners {
    own: Vec<SocketAddr>,
    /// The addresses of this machine, if an own listener has an unspecified address.
    local: BTreeSet<IpAddr>,
    routers: BTreeMap<Key, BTreeSet<(IpAddr, u16)>>,
}

impl Listeners {
    pub(crate) fn new(own: Vec<SocketAddr>) -> Listeners {
        Listeners { own, local: BTreeSet::new(), routers: BTreeMap::new() }
    }

    /// Records a Router, or that it is gone.
    pub(crate) fn put(&mut self, key: Key, router: Option<Arc<Router>>) {
        match router {
            Some(router) => _ = self.routers.insert(key, of_router(&router)),
            None => _ = self.routers.remove(&key),
        }
    }

    /// Reads the addresses of this machine, if they matter. Returns whether they have changed.
    pub(crate) fn read_local(&mut self) -> bool {
        if !self.own.iter().any(|own| own.ip().is_unspecified()) {
            return false;
        }
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let local = local_v4(&read(LOCAL_V4)).chain(local_v6(&read(LOCAL_V6))).collect();
        std::mem::replace(&mut self.local, local) != self.local
    }

    pub(crate) fn all(&self) -> BTreeSet<(IpAddr, u16)> {
        let mut all: BTreeSet<_> = self.routers.values().flatten().copied().collect();
        for own in &self.own {
            all.insert((own.ip().to_canonical(), own.port()));
            if own.ip().is_unspecified() {
                all.extend(self.local.iter().map(|local| (*local, own.port())));
            }
        }
        all
    }
}

/// Returns the addresses and ports at which clients reach these Routers.
pub fn of_routers<'a>(routers: impl IntoIterator<Item = &'a Router>) -> BTreeSet<(IpAddr, u16)> {
    routers.into_iter().flat_map(of_router).collect()
}

/// Returns the addresses and ports at which clients reach a Router.
fn of_router(router: &Router) -> BTreeSet<(IpAddr, u16)> {
    let address = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let (mut listeners, mut of_instances) = (BTreeSet::new(), BTreeSet::new());
    // A load balancer in front of the instances has their ports, or mostly the default ones.
    let (configured, default) = (router.spec.instances.ports.unwrap_or_default(), Ports::default());
    let mut ports = BTreeSet::from([configured.http, configured.https, default.http, default.https]);
    for instance in router.status.iter().flat_map(|status| &status.instances) {
        ports.extend([instance.http_port, instance.https_port]);
        if let Some(address) = address(&instance.ip) {
            of_instances.insert(address);
            listeners.extend([(address, instance.http_port), (address, instance.https_port)]);
        }
    }
    let current = router.status.iter().flat_map(|status| &status.current_addresses);
    let addresses = router.spec.addresses.iter().chain(current).filter_map(|one| address(&one.ip));
    // Other ports of an instance's machine can be those of applications.
    for address in addresses.filter(|address| !of_instances.contains(address)) {
        listeners.extend(ports.iter().map(|port| (address, *port)));
    }
    listeners
}

/// Returns the addresses in `/proc/net/fib_trie`: those in a line before `/32 host LOCAL`.
fn local_v4(text: &str) -> impl Iterator<Item = IpAddr> {
    let pairs = text.lines().zip(text.lines().skip(1)).filter(|(_, line)| line.trim() == "/32 host LOCAL");
    pairs.filter_map(|(line, _)| line.trim().strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok().map(IpAddr::from))
}

/// Returns the addresses in `/proc/net/if_inet6`: 32 hexadecimal digits at the start of each line.
fn local_v6(text: &str) -> impl Iterator<Item = IpAddr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    text.lines().filter_map(address).map(|bits| IpAddr::from(Ipv6Addr::from(bits)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_the_machine() {
        let v4 = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\nLocal:\n     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n";
        let v6 = "20010db8000000000000000000000007 02 40 00 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n";
        let found: Vec<String> = local_v4(v4).chain(local_v6(v6)).map(|address| address.to_string()).collect();
        assert_eq!(found, ["192.0.2.7", "2001:db8::7", "::1"]);
        let mut listeners = Listeners::new(vec!["0.0.0.0:80".parse().expect("an address")]);
        listeners.read_local();
        assert!(listeners.all().contains(&(IpAddr::from([127, 0, 0, 1]), 80)), "{listeners:?}");
    }

    #[test]
    fn routers() {
        let router = |spec, status| -> Arc<Router> {
            let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "a"}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value(router).expect("a Router"))
        };
        let instance = json!({"name": "x", "ip": "192.0.2.1", "httpPort": 8080, "httpsPort": 8443, "state": "serving",
            "proxy": "haproxy", "version": "0", "faults": 0, "renewTime": "2026-01-01T00:00:00Z"});
        let router = router(
            json!({"addresses": [{"ip": "192.0.2.9"}]}),
            json!({"instances": [instance], "currentAddresses": []}),
        );
        let mut listeners = Listeners::new(vec!["192.0.2.2:80".parse().expect("an address")]);
        let key = (String::new(), "a".to_owned());
        listeners.put(key.clone(), Some(router));
        let found: Vec<String> = listeners.all().into_iter().map(|(ip, port)| format!("{ip}:{port}")).collect();
        let expected = ["192.0.2.1:8080", "192.0.2.1:8443", "192.0.2.2:80", "192.0.2.9:80", "192.0.2.9:443"];
        assert_eq!(found, [&expected[..], &["192.0.2.9:8080", "192.0.2.9:8443"]].concat());
        listeners.put(key, None);
        assert_eq!(listeners.all().len(), 1);
    }
}
