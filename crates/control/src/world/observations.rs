//! What the parts of this process that ask and measure have found out, for the statuses of Routes and Routers.
//!
//! The scheduler knows why a Route has no Router, [`verify`](crate::observe::verify) which names are answered,
//! [`ownership`](crate::observe::ownership) whose a host is, [`hosts`](crate::observe::hosts) where it points,
//! [`programmed`](crate::observe::programmed) whether instances serve it, [`health`](crate::observe::health) which addresses answer probes, [`instances`](crate::observe::instances) which instances serve,
//! [`services`](crate::observe::services) which addresses Services have. None of them writes a status: each puts its finding here,
//! and the reconciler merges them into one write.
//!
//! A later finding of a part replaces its earlier one. What was found of a Route leaves when its status says so; of a Router it
//! stays, to be compared with its status whenever that changes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::condition::ConditionUpdate;
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use signpost_api::v1alpha1::route::{Challenge, NameKind};
use signpost_api::v1alpha1::router::{AddressHealth, Instance, RouterStatus};
use signpost_dns::zone::Serial;

/// Findings that wait to be written, from which on those who make thousands at a time wait.
const WAITING_MAX: usize = 1024;

/// Which part of the process has found something out of a Route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The scheduler: why the Route has no Router, or not the one that it asks for.
    Scheduling,
    /// Whether its names are published and answered.
    Names,
    /// Whether its host is its owner's.
    Ownership,
    /// Whether its host leads to the platform.
    Pointing,
    /// Whether the instances of its Router serve it.
    Programmed,
}

/// What one part of the process has found out of a Route.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The Route's uid: another Route of the name is not meant.
    pub uid: Uid,
    /// What it is about; what comes too late is not said.
    pub about: About,
    /// What the conditions should say.
    pub statements: Vec<ConditionUpdate>,
    /// The challenge to tell.
    pub challenge: Option<Challenge>,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A Route without a Router.
    Unbound,
    /// A Route with a Router.
    Bound,
    /// A Route with this Router.
    BoundTo(Arc<str>),
    /// A Route that has this name, without a dot at the end.
    Name(NameKind, String),
    /// A Route with this host of its own.
    Host(String),
    /// The same, of whose host no challenge is told yet.
    Unchallenged(String),
}

/// What each [`Part`] has found out of a Route.
pub type RouteFindings = [Option<Arc<Finding>>; 5];

/// What was found out of a Router.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouterFindings {
    /// What its condition `ZonePublished` should say, and the serial of its zone if that is known.
    pub zone: Option<(ConditionUpdate, Option<Serial>)>,
    /// The health of its addresses, if that is to be written.
    pub health: Option<HealthFindings>,
    /// Its instances, if all Leases are known.
    pub instances: Option<InstanceFindings>,
    /// The addresses of the Services that it selects, if these are known.
    pub services: Option<Vec<IpAddr>>,
    /// Why an instance that the platform runs does not.
    pub runtime_error: Option<String>,
}

/// The instances of a Router.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceFindings {
    /// Those with a Lease, by name.
    pub instances: Vec<Instance>,
    /// How many of a hundred must serve for the dead ones not to be answered.
    pub panic_percent: u32,
}

/// The health of a Router's addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HealthFindings {
    /// Those that have a verdict, or were given up waiting for.
    pub addresses: Vec<AddressHealth>,
    /// The panic threshold in percent; `None` for a Router without a check.
    pub threshold: Option<u32>,
}

impl HealthFindings {
    /// Those that a status tells.
    pub fn of_status(status: Option<&RouterStatus>) -> Self {
        let of_status = |status: &RouterStatus| HealthFindings {
            addresses: status.addresses.clone(),
            threshold: status.panic_threshold,
        };
        status.map(of_status).unwrap_or_default()
    }
}

/// A Route or a Router of which something was found out.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// A Route.
    Route(ObjectKey),
    /// The Router of this name.
    Router(String),
}

/// Findings; those who make them and the reconciler share it.
#[derive(Debug, Default)]
pub struct Observations {
    known: Mutex<KnownFindings>,
    news: Notify,
}

#[derive(Debug, Default)]
struct KnownFindings {
    routes: HashMap<ObjectKey, RouteFindings>,
    routers: HashMap<String, RouterFindings>,
    changed: HashSet<Observed>,
}

impl Observations {
    /// A part has found this out of a Route; `None`: nothing that its status does not say.
    pub fn set_route(&self, key: &ObjectKey, part: Part, finding: Option<Finding>) {
        let mut known = self.known.lock();
        let Some(finding) = finding else {
            if let Some(findings) = known.routes.get_mut(key) {
                findings[part as usize] = None;
                if findings.iter().all(Option::is_none) {
                    known.routes.remove(key);
                }
            }
            return;
        };
        known.routes.entry(key.clone()).or_default()[part as usize] = Some(Arc::new(finding));
        known.changed.insert(Observed::Route(key.clone()));
        drop(known);
        self.news.notify_one();
    }

    /// What a part has found out of a Route leaves, unless it is to be kept.
    pub fn retain_route(&self, key: &ObjectKey, part: Part, keep: impl FnOnce(&Finding) -> bool) {
        let finding = self.known.lock().routes.get(key).and_then(|findings| findings[part as usize].clone());
        if finding.is_some_and(|finding| !keep(&finding)) {
            self.set_route(key, part, None);
        }
    }

    /// Something was found out of a Router.
    pub fn set_router(&self, name: &str, change: impl FnOnce(&mut RouterFindings)) {
        let mut known = self.known.lock();
        change(known.routers.entry(name.to_owned()).or_default());
        known.changed.insert(Observed::Router(name.to_owned()));
        drop(known);
        self.news.notify_one();
    }

    /// Whether a part has found this out of a Route, and it is not written yet.
    pub fn has_route(&self, key: &ObjectKey, part: Part, finding: &Finding) -> bool {
        let known = self.known.lock();
        known.routes.get(key).and_then(|findings| findings[part as usize].as_deref()) == Some(finding)
    }

    /// Whether no more findings wait than can be written soon.
    pub fn has_room(&self) -> bool {
        self.known.lock().routes.len() < WAITING_MAX
    }

    /// What was found out of a Route.
    pub fn route(&self, key: &ObjectKey) -> RouteFindings {
        self.known.lock().routes.get(key).cloned().unwrap_or_default()
    }

    /// What was found out of a Router.
    pub fn router(&self, name: &str) -> RouterFindings {
        self.known.lock().routers.get(name).cloned().unwrap_or_default()
    }

    /// These were written, or speak of a Route that is not there any more: they leave, but for what was found out since.
    pub fn settle_route(&self, key: &ObjectKey, written: &RouteFindings) {
        let mut known = self.known.lock();
        let Some(findings) = known.routes.get_mut(key) else { return };
        for (finding, written) in findings.iter_mut().zip(written) {
            let is_written = |(one, other): (&Arc<Finding>, &Arc<Finding>)| Arc::ptr_eq(one, other);
            if finding.as_ref().zip(written.as_ref()).is_some_and(is_written) {
                *finding = None;
            }
        }
        if findings.iter().all(Option::is_none) {
            known.routes.remove(key);
        }
        if known.routes.is_empty() {
            // After a storm of them the room is given back.
            known.routes = HashMap::new();
        }
    }

    /// The Router is gone.
    pub fn forget_router(&self, name: &str) {
        self.known.lock().routers.remove(name);
    }

    /// What a part has found out of Routes counts no more: it begins anew, or another process leads.
    pub fn forget(&self, part: Part) {
        self.known.lock().routes.retain(|_, findings| {
            findings[part as usize] = None;
            findings.iter().any(Option::is_some)
        });
    }

    /// Changes what was found out of all Routers.
    pub fn for_routers(&self, change: impl FnMut(&mut RouterFindings)) {
        self.known.lock().routers.values_mut().for_each(change);
    }

    /// Waits for findings.
    pub async fn wait(&self) {
        self.news.notified().await;
    }

    /// Takes what they are about.
    pub fn take_changed(&self) -> HashSet<Observed> {
        std::mem::take(&mut self.known.lock().changed)
    }
}
