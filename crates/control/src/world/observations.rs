//! The findings of the process's parts that query and measure, for the statuses of Routes and Routers.
//!
//! The parts and their findings:
//!
//! - The scheduler: why a Route has no Router.
//! - [`verify`](crate::observe::verify): the names that are answered.
//! - [`ownership`](crate::observe::ownership): the verification of hosts.
//! - [`hosts`](crate::observe::hosts): the targets of hosts.
//! - [`programmed`](crate::observe::programmed): whether instances serve a Route.
//! - [`certificates`](crate::observe::certificates): whether instances have a certificate for a Route.
//! - [`certificates`](crate::certificates): the certificate of a Router's zone, and the ACME account.
//! - [`resolved_refs`](crate::observe::resolved_refs): whether the Services of a Route have endpoints.
//! - [`health`](crate::observe::health): the addresses that answer probes.
//! - [`instances`](crate::observe::instances): the instances that serve.
//! - [`services`](crate::observe::services): the addresses of Services.
//!
//! None of them writes a status: each stores its finding here, and the reconciler merges them into one write.
//!
//! A later finding of a part replaces its earlier one. A finding about a Route is removed when the status contains it; a finding
//! about a Router stays, and is compared with its status whenever that changes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroI64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::condition::ConditionUpdate;
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use signpost_dns::zone::Serial;
use signpost_types::v1alpha1::route::{Challenge, NameKind};
use signpost_types::v1alpha1::router::{AddressHealth, Instance, RouterStatus};

/// The number of waiting findings from which bulk producers must wait.
const WAITING_MAX: usize = 1024;

/// The part of the process that provides a finding: the main condition that it decides. A part can decide several conditions.
pub type Part = &'static str;

/// The findings about an object: at most one of each part.
#[derive(Debug, Clone, PartialEq)]
pub struct FindingMap<F>(Vec<(Part, F)>);

impl<F> Default for FindingMap<F> {
    fn default() -> Self {
        FindingMap(Vec::new())
    }
}

impl<F> FindingMap<F> {
    pub fn get(&self, part: Part) -> Option<&F> {
        self.0.iter().find(|(of, _)| *of == part).map(|(_, finding)| finding)
    }

    /// Replaces the finding of a part; `None`: there is none.
    pub fn set(&mut self, part: Part, finding: Option<F>) {
        self.0.retain(|(of, _)| *of != part);
        self.0.extend(finding.map(|finding| (part, finding)));
    }

    pub fn iter(&self) -> impl Iterator<Item = (Part, &F)> {
        self.0.iter().map(|(part, finding)| (*part, finding))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The finding of one part of the process about a Route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteFinding {
    /// The Route's uid: another Route of the same name does not match.
    pub uid: Uid,
    /// The subject; an outdated finding is dropped.
    pub about: About,
    pub statements: Vec<ConditionUpdate>,
    /// The challenge for the status.
    pub challenge: Option<Challenge>,
}

impl RouteFinding {
    /// Returns a finding without a challenge.
    pub fn new(uid: &Uid, about: About, statements: Vec<ConditionUpdate>) -> Self {
        RouteFinding { uid: uid.clone(), about, statements, challenge: None }
    }
}

/// The subject of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A Route of this generation, without a Router.
    Unbound(Option<NonZeroI64>),
    /// A Route with a Router.
    Bound,
    /// A Route with this Router.
    BoundTo(Arc<str>),
    /// A Route of this generation, with this Router.
    Generation(Option<NonZeroI64>, Arc<str>),
    /// A Route with this name, without a trailing dot.
    Name(NameKind, String),
    /// A Route with this custom host.
    Host(String),
    /// A host for which the status has no challenge yet.
    Unchallenged(String),
}

pub type RouteFindings = FindingMap<Arc<RouteFinding>>;

/// The finding of one part of the process about a Router.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterFinding {
    pub statement: ConditionUpdate,
    /// The serial of its zone, if the part knows it.
    pub serial: Option<Serial>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouterFindings {
    pub conditions: FindingMap<RouterFinding>,
    /// The health of its addresses, if that must be written.
    pub health: Option<HealthFindings>,
    /// The Router's instances, if all Leases are known.
    pub instances: Option<InstanceFindings>,
    /// The Services that it selects, if these are known.
    pub services: Option<ServiceFindings>,
    /// The reason why an instance that the platform runs does not start.
    pub runtime_error: Option<String>,
    /// The thumbprint of the platform's ACME account, if it has one.
    pub acme: Option<String>,
}

/// The Services that a Router selects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceFindings {
    /// `None`: not known.
    pub addresses: Option<Vec<IpAddr>>,
    /// Whether these are only a part: a host name is not resolved yet, so that the Router also keeps the addresses that it has.
    pub is_partial: bool,
    /// The fault of the host name of a load balancer, in a statement.
    pub fault: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceFindings {
    /// The instances with a Lease, by name.
    pub instances: Vec<Instance>,
    /// The percentage of instances that must serve for the dead ones to be omitted from answers.
    pub panic_percent: u32,
}

/// The health of a Router's addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HealthFindings {
    /// The addresses with a verdict, or without one after the wait limit.
    pub addresses: Vec<AddressHealth>,
    /// The panic threshold in percent; `None` for a Router without a check.
    pub threshold: Option<u32>,
}

impl HealthFindings {
    pub fn of_status(status: Option<&RouterStatus>) -> Self {
        let of_status = |status: &RouterStatus| HealthFindings {
            addresses: status.addresses.clone(),
            threshold: status.panic_threshold,
        };
        status.map(of_status).unwrap_or_default()
    }
}

/// A Route or a Router with findings.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    Route(ObjectKey),
    Router(String),
}

/// The findings; their producers and the reconciler share them.
#[derive(Debug, Default)]
pub struct Observations {
    known: Mutex<KnownFindings>,
    news: Notify,
    /// Whether Services cannot be listed.
    are_services_unknown: AtomicBool,
}

#[derive(Debug, Default)]
struct KnownFindings {
    routes: HashMap<ObjectKey, RouteFindings>,
    routers: HashMap<String, RouterFindings>,
    changed: HashSet<Observed>,
}

impl Observations {
    /// Stores the finding of a part about a Route; `None`: the status is complete.
    pub fn set_route(&self, key: &ObjectKey, part: Part, finding: Option<RouteFinding>) {
        let mut known = self.known.lock();
        let Some(finding) = finding else {
            if let Some(findings) = known.routes.get_mut(key) {
                findings.set(part, None);
                if findings.is_empty() {
                    known.routes.remove(key);
                }
            }
            return;
        };
        known.routes.entry(key.clone()).or_default().set(part, Some(Arc::new(finding)));
        known.changed.insert(Observed::Route(key.clone()));
        drop(known);
        self.news.notify_one();
    }

    /// Removes the finding of a part about a Route, unless `keep` returns true.
    pub fn retain_route(&self, key: &ObjectKey, part: Part, keep: impl FnOnce(&RouteFinding) -> bool) {
        let finding = self.known.lock().routes.get(key).and_then(|findings| findings.get(part).cloned());
        if finding.is_some_and(|finding| !keep(&finding)) {
            self.set_route(key, part, None);
        }
    }

    /// Requests that the status of a Route is checked.
    pub fn check_route(&self, key: &ObjectKey) {
        self.known.lock().changed.insert(Observed::Route(key.clone()));
        self.news.notify_one();
    }

    /// Returns whether Services cannot be listed, so that nothing is known about the Services of Routes.
    pub fn are_services_unknown(&self) -> bool {
        self.are_services_unknown.load(Ordering::Relaxed)
    }

    /// Sets whether Services cannot be listed. The caller checks the Routes concerned.
    pub fn set_services_unknown(&self, are_unknown: bool) {
        self.are_services_unknown.store(are_unknown, Ordering::Relaxed);
    }

    /// Changes the findings about a Router.
    pub fn set_router(&self, name: &str, change: impl FnOnce(&mut RouterFindings)) {
        let mut known = self.known.lock();
        change(known.routers.entry(name.to_owned()).or_default());
        known.changed.insert(Observed::Router(name.to_owned()));
        drop(known);
        self.news.notify_one();
    }

    /// Returns whether a part has this finding about a Route, and it is not written yet.
    pub fn has_route(&self, key: &ObjectKey, part: Part, finding: &RouteFinding) -> bool {
        let known = self.known.lock();
        known.routes.get(key).and_then(|findings| findings.get(part)).is_some_and(|known| **known == *finding)
    }

    /// Returns whether the number of waiting findings is below the limit.
    pub fn has_room(&self) -> bool {
        self.known.lock().routes.len() < WAITING_MAX
    }

    /// Returns the findings about a Route.
    pub fn route(&self, key: &ObjectKey) -> RouteFindings {
        self.known.lock().routes.get(key).cloned().unwrap_or_default()
    }

    /// Returns the findings about a Router.
    pub fn router(&self, name: &str) -> RouterFindings {
        self.known.lock().routers.get(name).cloned().unwrap_or_default()
    }

    /// Removes findings that were written, or whose Route no longer exists, but not newer ones.
    pub fn settle_route(&self, key: &ObjectKey, written: &RouteFindings) {
        let mut known = self.known.lock();
        let Some(findings) = known.routes.get_mut(key) else { return };
        findings.0.retain(|(part, finding)| !written.get(part).is_some_and(|written| Arc::ptr_eq(finding, written)));
        if findings.is_empty() {
            known.routes.remove(key);
        }
        if known.routes.is_empty() {
            // After a burst of findings, the memory is freed.
            known.routes = HashMap::new();
        }
    }

    /// Removes a deleted Router.
    pub fn forget_router(&self, name: &str) {
        self.known.lock().routers.remove(name);
    }

    /// Removes a part's findings: it starts again, or another process leads.
    pub fn forget(&self, part: Part) {
        let mut known = self.known.lock();
        known.routes.retain(|_, findings| {
            findings.set(part, None);
            !findings.is_empty()
        });
        known.routers.values_mut().for_each(|findings| findings.conditions.set(part, None));
    }

    /// Changes the findings about all Routers.
    pub fn for_routers(&self, change: impl FnMut(&mut RouterFindings)) {
        self.known.lock().routers.values_mut().for_each(change);
    }

    /// Waits for findings.
    pub async fn wait(&self) {
        self.news.notified().await;
    }

    /// Takes the subjects of the changes.
    pub fn take_changed(&self) -> HashSet<Observed> {
        std::mem::take(&mut self.known.lock().changed)
    }
}
