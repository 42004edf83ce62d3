//! The host names that loops need resolved, such as those of load balancers without an address, and their addresses.
//!
//! The leader [resolves](crate::observe::resolve) them. A loop states all names that it needs, and gets a signal when a result changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// The known addresses of a host name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The addresses by the last answers; a failure keeps them. `None`: there were none yet.
    pub addresses: Option<BTreeSet<IpAddr>>,
    /// The reason why the latest resolution failed, wholly or in part.
    pub fault: Option<String>,
}

/// The names and their resolutions. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct HostNames(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    requests: Notify,
    /// The number of changed results.
    results: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The names that each loop needs.
    wanted: BTreeMap<&'static str, BTreeSet<String>>,
    found: HashMap<String, Resolution>,
}

impl HostNames {
    /// Replaces the names that a loop needs; each is in lower case, without a trailing dot.
    pub fn want(&self, by: &'static str, names: BTreeSet<String>) {
        let mut known = self.0.state.lock();
        if known.wanted.get(by).is_none_or(|before| *before != names) {
            known.wanted.insert(by, names);
            drop(known);
            self.0.requests.notify_one();
        }
    }

    /// Returns the resolution of a name.
    pub fn get(&self, name: &str) -> Resolution {
        self.0.state.lock().found.get(name).cloned().unwrap_or_default()
    }

    /// Returns the channel that changes with every result.
    pub fn results(&self) -> watch::Receiver<u64> {
        self.0.results.subscribe()
    }

    /// Waits until a loop needs other names.
    pub fn requested(&self) -> BoxFuture<'_, ()> {
        self.0.requests.notified().boxed()
    }

    /// Returns the names that any loop needs, and removes the results of others.
    pub fn wanted(&self) -> BTreeSet<String> {
        let mut known = self.0.state.lock();
        let wanted: BTreeSet<String> = known.wanted.values().flatten().cloned().collect();
        known.found.retain(|name, _| wanted.contains(name));
        wanted
    }

    pub fn set(&self, name: &str, resolution: Resolution) {
        let mut known = self.0.state.lock();
        if known.found.get(name) == Some(&resolution) {
            return;
        }
        known.found.insert(name.to_owned(), resolution);
        drop(known);
        self.0.results.send_modify(|count| *count = count.wrapping_add(1));
    }
}
