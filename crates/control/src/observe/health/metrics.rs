//! What the prober shows on `/metrics`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Most addresses that have a series of their own; those of further Routers are not shown.
const ADDRESSES_MAX: usize = 2000;

/// The numbers; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    probes: Family<[(&'static str, &'static str); 1], Counter>,
    up: Family<[(&'static str, String); 2], Gauge>,
    panic: Family<[(&'static str, String); 1], Gauge>,
    shown: Arc<Mutex<HashMap<String, HashSet<IpAddr>>>>,
}

impl Metrics {
    /// Adds them to `registry`, under its own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("health_probes", "Probes of addresses, by outcome", self.probes.clone());
        registry.register("address_up", "Whether probes find an address healthy (1) or not (0)", self.up.clone());
        let help = "Whether too few addresses of a Router are healthy, so that answers contain all of them (1)";
        registry.register("panic", help, self.panic.clone());
    }

    /// A probe has ended.
    pub(super) fn count_probe(&self, good: bool) {
        self.probes.get_or_create(&[("outcome", if good { "good" } else { "bad" })]).inc();
    }

    /// A verdict.
    pub(super) fn set_up(&self, router: &str, ip: IpAddr, up: bool) {
        let mut shown = self.shown.lock();
        let count: usize = shown.values().map(HashSet::len).sum();
        let of_router = shown.entry(router.to_owned()).or_default();
        if of_router.contains(&ip) || count < ADDRESSES_MAX {
            of_router.insert(ip);
            self.up.get_or_create(&labels(router, ip)).set(i64::from(up));
        }
    }

    /// Whether a Router's addresses are all answered since too few are healthy.
    pub(super) fn set_panic(&self, router: &str, panic: bool) {
        // A Router whose addresses are not shown is not either.
        if self.shown.lock().contains_key(router) {
            self.panic.get_or_create(&[("router", router.to_owned())]).set(i64::from(panic));
        }
    }

    /// A Router has these addresses and no others.
    pub(super) fn retain(&self, router: &str, addresses: &[IpAddr]) {
        let mut shown = self.shown.lock();
        let Some(of_router) = shown.get_mut(router) else { return };
        for ip in of_router.extract_if(|ip| !addresses.contains(ip)) {
            self.up.remove(&labels(router, ip));
        }
    }

    /// A Router is not probed any more.
    pub(super) fn forget(&self, router: &str) {
        self.retain(router, &[]);
        self.shown.lock().remove(router);
        self.panic.remove(&[("router", router.to_owned())]);
    }

    /// Nothing is probed any more: another process leads.
    pub(super) fn forget_all(&self) {
        self.shown.lock().clear();
        self.up.clear();
        self.panic.clear();
    }
}

fn labels(router: &str, ip: IpAddr) -> [(&'static str, String); 2] {
    [("router", router.to_owned()), ("address", ip.to_string())]
}
