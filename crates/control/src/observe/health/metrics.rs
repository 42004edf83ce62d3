//! The prober's metrics on `/metrics`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The maximum number of addresses with a series; those of further Routers are not shown.
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

    /// Counts a completed probe.
    pub(super) fn count_probe(&self, good: bool) {
        self.probes.get_or_create(&[("outcome", if good { "good" } else { "bad" })]).inc();
    }

    /// Sets an address's verdict.
    pub(super) fn set_up(&self, router: &str, ip: IpAddr, up: bool) {
        let mut shown = self.shown.lock();
        let count: usize = shown.values().map(HashSet::len).sum();
        let of_router = shown.entry(router.to_owned()).or_default();
        if of_router.contains(&ip) || count < ADDRESSES_MAX {
            of_router.insert(ip);
            self.up.get_or_create(&labels(router, ip)).set(i64::from(up));
        }
    }

    /// Sets whether all of a Router's addresses are in answers because too few are healthy.
    pub(super) fn set_panic(&self, router: &str, panic: bool) {
        // A Router is shown only if its addresses are.
        if self.shown.lock().contains_key(router) {
            self.panic.get_or_create(&[("router", router.to_owned())]).set(i64::from(panic));
        }
    }

    /// Removes the metrics of a Router's other addresses.
    pub(super) fn retain(&self, router: &str, addresses: &[IpAddr]) {
        let mut shown = self.shown.lock();
        let Some(of_router) = shown.get_mut(router) else { return };
        for ip in of_router.extract_if(|ip| !addresses.contains(ip)) {
            self.up.remove(&labels(router, ip));
        }
    }

    /// Removes a Router that is no longer probed.
    pub(super) fn forget(&self, router: &str) {
        self.retain(router, &[]);
        self.shown.lock().remove(router);
        self.panic.remove(&[("router", router.to_owned())]);
    }

    /// Removes all metrics: another process leads.
    pub(super) fn forget_all(&self) {
        self.shown.lock().clear();
        self.up.clear();
        self.panic.clear();
    }
}

fn labels(router: &str, ip: IpAddr) -> [(&'static str, String); 2] {
    [("router", router.to_owned()), ("address", ip.to_string())]
}
