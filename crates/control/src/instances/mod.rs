//! The RouterController: keeps the instances of managed Routers running.
//!
//! ```text
//!  Routers ──► desired instances of each ──► Runtime: starts, stops, replaces ──► agents with their proxies ──► Leases
//!  (spec.type, instances, ports, addresses)                                                                       │
//!      ▲ status.instances: the serving ones ◄─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The instances of a Router whose loss is held ([`Owners`]) continue to run.
//!
//! A [`Runtime`] decides how instances run: [`process`] as child processes of this one, [`kubernetes`] as pods of a cluster.

pub mod plan;
pub mod process;

pub mod objects;

pub mod kubernetes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::client::reflector::{Change, ObjectKey, Store};
use crate::world::owners::Owners;
use crate::world::{RouterInfo, World};
use signpost_types::v1alpha1::router::{InstanceState, Ports, Router, RouterKind};

/// The longest time between two checks of the running instances.
const INTERVAL: Duration = Duration::from_secs(1);

/// The desired instances of a Router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The proxy.
    pub kind: RouterKind,
    pub count: usize,
    /// The ports on which they accept requests.
    pub ports: Ports,
    /// The instances' addresses, as many as the Router names.
    pub addresses: Vec<IpAddr>,
    /// The TTL of their addresses in DNS, in seconds.
    pub ttl: u32,
    /// The names of the Leases of the serving instances.
    pub serving: BTreeSet<String>,
}

impl Wanted {
    /// Returns the desired instances of a Router; `None`: the platform does not run them.
    pub fn of(router: &Router) -> Option<Wanted> {
        let kind = router.spec.instances.kind;
        if !kind.is_managed() || router.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let count = router.instances_wanted().unwrap_or(1) as usize;
        let named = router.spec.addresses.iter().filter_map(|address| address.ip.parse().ok());
        let instances = router.status.iter().flat_map(|status| &status.instances);
        let serving = instances.filter(|instance| instance.state == InstanceState::Serving);
        Some(Wanted {
            kind,
            count,
            ports: router.ports(),
            ttl: router.spec.ttl,
            addresses: named.take(count).collect(),
            serving: serving.map(|instance| instance.name.clone()).collect(),
        })
    }
}

/// Returns the Routers whose instances must not be stopped, of those that have instances and should not.
pub type KeepFilter<'a> = dyn Fn(BTreeSet<&str>) -> BTreeSet<String> + Sync + 'a;

/// Runs instances.
pub trait Runtime: Send {
    /// Takes a step from the running instances to the desired ones of each Router; instances of others are stopped, except those
    /// that `kept` returns. Returns the reasons why instances of a Router do not run.
    fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, Wanted>,
        kept: &KeepFilter<'_>,
    ) -> impl Future<Output = BTreeMap<String, String>> + Send;

    /// Stops all instances, without waiting for DNS.
    fn shut_down(&mut self) -> impl Future<Output = ()> + Send;
}

/// Keeps instances running until `stop`. They continue to run then, unless `shut_down` has fired.
pub async fn run(world: World, mut runtime: impl Runtime, stop: CancellationToken, shut_down: CancellationToken) {
    let (routers, mut changes) = world.routers.read();
    let (observations, owners) = (world.observations, world.owners);
    let kept = |running: BTreeSet<&str>| kept(running, &routers, &owners);
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    let mut reported: BTreeMap<String, String> = BTreeMap::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => {
                let mut is_other = take(change, &mut wanted);
                while let Some(change) = changes.next().now_or_never() {
                    is_other |= take(change, &mut wanted);
                }
                if !is_other {
                    continue;
                }
            }
            () = sleep_until(next) => {}
        }
        // A Router that is not known yet may have running instances.
        if !routers.is_synced() {
            next = Instant::now() + INTERVAL;
            continue;
        }
        let errors = runtime.reconcile(&wanted, &kept).await;
        next = Instant::now() + INTERVAL;
        for router in wanted.keys().filter(|router| errors.get(*router) != reported.get(*router)) {
            let error = errors.get(router).cloned();
            observations.set_router(router, |findings| findings.runtime_error = error);
        }
        reported = errors;
    }
    if shut_down.is_cancelled() {
        runtime.shut_down().await;
    }
}

/// Returns the Routers among `running` whose loss is held, and those that have returned since the desired instances were computed.
fn kept(running: BTreeSet<&str>, routers: &Store<RouterInfo>, owners: &Owners) -> BTreeSet<String> {
    let find = |router: &str| routers.get(&ObjectKey::cluster(router));
    owners.miss_routers(running.iter().copied().filter(|router| find(router).is_none()));
    let is_kept = |router: &str| match find(router) {
        Some(router) => Wanted::of(&router.object).is_some(),
        None => owners.keeps_router(router),
    };
    running.into_iter().filter(|router| is_kept(router)).map(str::to_owned).collect()
}

/// Records the desired instances; returns whether they changed.
fn take(change: Change<RouterInfo>, wanted: &mut BTreeMap<String, Wanted>) -> bool {
    let (applied, gone) = change.into_parts();
    let mut is_other = false;
    for (key, _) in gone {
        is_other |= wanted.remove(&key.name).is_some();
    }
    for applied in applied {
        let name = applied.key.name;
        is_other |= match Wanted::of(&applied.now.object) {
            Some(now) if wanted.get(&name) == Some(&now) => false,
            Some(now) => wanted.insert(name, now).is_none_or(|_| true),
            None => wanted.remove(&name).is_some(),
        };
    }
    is_other
}
