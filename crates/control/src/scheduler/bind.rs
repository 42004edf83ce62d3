//! Execution of a decision: claim the names, and create the RouteBinding.
//!
//! Each step is safe to repeat, even after a crash at any point: an existing claim of this Route is a success, and so is a
//! binding of this Route (by uid) by any writer. The binding has the Route's name, so its creation is the lock: one of two
//! schedulers gets AlreadyExists. It carries the resourceVersion of the scheduled Route; Signpost's own server rejects it if the
//! Route has changed since, and the Route is read again.
//!
//! Normally, a route needs two writes: one claim and one binding. Signpost's own server creates the claim in the transaction that
//! creates the binding, if the label was never claimed: then one write suffices. The scheduler tries this only with Signpost's
//! own server; another one would create the binding without a claim on the label. After any rejection of that write, except for a
//! fencing number, the scheduler uses two writes, which show the reason.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::ObjectMeta;

use super::claim::{Claimed, claim, has_a_claim};
use super::decision::Placement;
use super::hosts::{self, HostConflict, Refusal};
use super::requests::MoveReason;
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::client::server::ServerKind;
use crate::client::write;
use crate::world::RouteInfo;
use crate::world::route::HOST_TAKEN;
use signpost_types::assignment::host_name;
use signpost_types::names::{self, host_claim_name, label_claim_name};
use signpost_types::v1alpha1::name_claim::{ClaimKind, Holder, NameClaim};
use signpost_types::v1alpha1::route::{AssignedName, NameKind, Route};
use signpost_types::v1alpha1::route_binding::{FENCING_ANNOTATION, FENCING_FIELD, RouteBinding, RouteBindingSpec};

/// The time limit for one attempt.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// The most changes of the Route during one attempt that do not affect the decision.
pub(super) const CHANGES_MAX: u32 = 4;

/// The resources for binding any route.
#[derive(Clone)]
pub struct Binder {
    /// Speaks as the scheduler.
    pub client: kube::Client,
    /// Whether the client is connected to Signpost's own server.
    pub server: Arc<ServerKind>,
    /// The platform's domain.
    pub domain: Arc<str>,
}

/// A route with the Router chosen for it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The Route's key.
    pub key: ObjectKey,
    /// The Route as scheduled.
    pub route: Arc<RouteInfo>,
    /// The resourceVersion of the Route as scheduled.
    pub version: Box<str>,
    /// Whether its host is the platform's own name for it.
    pub host_is_own: bool,
    /// The Router that it is moved away from, if it has one.
    pub leaving: Option<MoveSource>,
    /// The Router.
    pub placement: Placement,
    /// The number of labels in quarantine for its namespace, if that is the maximum: then it gets no new label.
    pub labels_kept: Option<u32>,
    /// The number of hosts reserved for its namespace, if that is the maximum: then it gets no new host.
    pub hosts_kept: Option<u32>,
    /// Whether the Route may not have its preferred label, even if that is free.
    pub is_label_refused: bool,
}

/// The Router that a route must leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveSource {
    pub router: String,
    /// Why.
    pub reason: MoveReason,
    /// The duration for which the route's former name there resolves to its new one; `None` if the Router, and its zone, were
    /// deleted.
    pub former_name: Option<Duration>,
    /// Whether the instances of the target Router report when they serve the Route: only then its other names resolve to that
    /// Router.
    pub to_instances: bool,
}

/// The outcome of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// The route is bound, by this attempt.
    Bound {
        /// The route's label.
        label: String,
    },
    /// The route was bound to another Router, and this attempt moved it to this one.
    Moved,
    /// The route was bound already.
    AlreadyBound,
    /// The host is not admitted.
    NotAdmitted(Refusal),
    /// Another Route holds its host.
    HostHeld(HostConflict),
    /// The host overlaps one of another namespace, according to the API.
    Overlaps,
    /// The route needs a new label or host, but its namespace has reached the maximum of names in quarantine, or reserved.
    NamesKept {
        /// The kind: a label or a host.
        kind: ClaimKind,
        /// The maximum.
        most: u32,
    },
    /// The Route has changed since it was scheduled.
    Changed,
    /// This process no longer leads; nothing was written since.
    Deposed,
    /// The API reports that this process no longer leads, which the process has not noticed yet; or the API finds no Lease that
    /// names the leader.
    Fenced {
        /// The error of the API.
        error: String,
    },
    /// The API does not answer, or refuses.
    Failed {
        /// Whether the API responded.
        answered: bool,
        /// The error, for the log.
        error: String,
        /// The error, for the Route's owner. The messages of an API, or of its webhooks, can name objects of other users.
        owner_message: String,
    },
}

/// Returns the reason and the message for a route that currently gets no label, or not its host.
pub fn names_kept(kind: ClaimKind, most: u32) -> (&'static str, String) {
    let message = match kind {
        ClaimKind::Label => format!(
            "{most} labels of former Routes of the namespace are in quarantine, the maximum (name.quarantine-max): the \
             Route gets a label when one of them is released; a Route with the name of one of the former Routes gets \
             its label back immediately"
        ),
        ClaimKind::Host => format!(
            "{most} hosts of deleted Routes of the namespace are reserved, the maximum (name.quarantine-max): the \
             Route gets its host when one of them is released; a Route with the name and the host of one of the \
             deleted Routes gets the host back immediately"
        ),
    };
    ("NamesInQuarantine", message)
}

impl Outcome {
    /// Returns the outcome as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Outcome::Bound { .. } => "bound",
            Outcome::Moved => "moved",
            Outcome::AlreadyBound => "already_bound",
            Outcome::NotAdmitted(_) | Outcome::HostHeld(_) | Outcome::Overlaps => "not_admitted",
            Outcome::NamesKept { .. } => "unschedulable",
            Outcome::Changed => "changed",
            Outcome::Deposed => "deposed",
            Outcome::Fenced { .. } => "fenced",
            Outcome::Failed { .. } => "failed",
        }
    }

    /// Returns a failure whose error the Route's owner may read.
    pub(super) fn failed(error: String) -> Self {
        Outcome::Failed { answered: true, owner_message: error.clone(), error }
    }
}

/// The message for an API that does not respond.
const NO_ANSWER: &str = "the API did not answer in time";

/// Returns whether the API rejects a write because of its fencing number.
pub(super) fn is_fenced(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 && causes.into_iter().any(|cause| cause.field == FENCING_FIELD)
}

/// Marks a binding as written in this term: the API rejects it from a process that no longer leads.
pub fn fence(binding: &mut RouteBinding, term: &Term) {
    let annotations = binding.metadata.annotations.get_or_insert_default();
    annotations.insert(FENCING_ANNOTATION.to_owned(), term.fencing().to_string());
}

impl Binder {
    /// Returns the outcome of an attempt that ended with an error.
    pub(super) fn failure(&self, error: &kube::Error) -> Outcome {
        match error {
            kube::Error::Api(status) if is_fenced(status) => Outcome::Fenced { error: status.message.clone() },
            kube::Error::Api(status) => {
                let error = format!("{} ({})", status.message, status.code);
                let owner_message = format!(
                    "the API rejected the scheduler's write for the Route ({} {}); the scheduler's log has the API's \
                     response",
                    status.code, status.reason
                );
                Outcome::Failed { answered: true, error, owner_message }
            }
            error => {
                self.server.failed(error);
                Outcome::Failed { answered: false, error: error.to_string(), owner_message: NO_ANSWER.to_owned() }
            }
        }
    }

    /// Binds a route as planned, while `term` lasts.
    pub async fn bind(&self, plan: &Plan, term: &Term) -> kube::Result<Outcome> {
        if let Some(leaving) = &plan.leaving {
            return self.move_route(plan, leaving, term).await;
        }
        let holder = Holder {
            namespace: plan.key.namespace.clone().unwrap_or_default(),
            name: plan.key.name.clone(),
            uid: plan.route.uid.to_string(),
            path: None,
        };
        if !term.is_current() {
            return Ok(Outcome::Deposed);
        }
        if plan.is_label_refused && plan.host_is_own {
            return Ok(host_of_another());
        }
        if let Some(most) = plan.labels_kept {
            let tried = if plan.host_is_own { 1 } else { usize::MAX };
            let names = labels_of(plan, &holder).take(tried).map(|label| label_claim_name(&label));
            if !has_a_claim(&self.client, names, &holder, Timestamp::now()).await? {
                return Ok(Outcome::NamesKept { kind: ClaimKind::Label, most });
            }
        }
        let host = plan.route.host.as_deref().filter(|_| !plan.host_is_own);
        let of_host = Holder { path: Some(plan.route.path().to_owned()), ..holder.clone() };
        if let (Some(most), Some(host)) = (plan.hosts_kept, host)
            && !has_a_claim(&self.client, [host_claim_name(host)].into_iter(), &of_host, Timestamp::now()).await?
        {
            return Ok(Outcome::NamesKept { kind: ClaimKind::Host, most });
        }
        if let Some(host) = host.filter(|_| plan.route.adopted.is_some())
            && self.is_system_name_of_another(host, &plan.placement.dns, &holder).await?
        {
            let message = format!("{host} is the name of another Route on Router {}", plan.placement.router);
            return Ok(Outcome::NotAdmitted((HOST_TAKEN, message)));
        }
        if let Some(host) = host
            && let Some(refusal) = self.claim_host(host, &of_host).await?
        {
            return Ok(refusal);
        }
        if !term.is_current() {
            return Ok(Outcome::Deposed);
        }
        if self.server.is_our_own(&self.client).await
            && let Some(outcome) = self.claim_and_bind(plan, &holder, term).await?
        {
            return Ok(outcome);
        }
        if !term.is_current() {
            return Ok(Outcome::Deposed);
        }
        let label = match self.claim_label(plan, &holder).await? {
            Ok(label) => label,
            Err(refusal) => return Ok(refusal),
        };
        let Some(binding) = self.binding(plan, &label, term) else {
            let error = format!("{label}.{} would be longer than 253 octets", plan.placement.dns);
            return Ok(Outcome::failed(error));
        };
        self.create(plan, binding, term).await
    }

    /// Returns whether the host is the name of another Route in the zone `dns`: that Route holds the host's first label, and is there.
    async fn is_system_name_of_another(&self, host: &str, dns: &str, holder: &Holder) -> kube::Result<bool> {
        let label = host.split_once('.').filter(|(label, zone)| *label != "*" && zone.eq_ignore_ascii_case(dns));
        let Some((label, _)) = label else { return Ok(false) };
        let claims: Api<NameClaim> = Api::all(self.client.clone());
        let claim = claims.get_opt(&label_claim_name(&label.to_ascii_lowercase())).await?.map(|claim| claim.spec);
        let Some(claim) = claim.filter(|claim| claim.released_at.is_none() && claim.holder.uid != holder.uid) else {
            return Ok(false);
        };
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), &claim.holder.namespace);
        let binding = bindings.get_opt(&claim.holder.name).await?;
        Ok(binding.is_some_and(|binding| binding.spec.dns.eq_ignore_ascii_case(dns)))
    }

    async fn claim_host(&self, host: &str, holder: &Holder) -> kube::Result<Option<Outcome>> {
        Ok(match self.claim(ClaimKind::Host, host, holder).await? {
            Claimed::Ours => None,
            Claimed::Gone => Some(Outcome::Changed),
            Claimed::Taken { by, until } => {
                let by = ObjectKey::namespaced(&by.namespace, &by.name);
                Some(Outcome::HostHeld(hosts::held(host, holder.path(), &holder.namespace, &by, until)))
            }
            Claimed::Full => Some(Outcome::HostHeld(hosts::full(host, holder.path()))),
            Claimed::Overlaps => Some(Outcome::Overlaps),
        })
    }

    /// Creates the binding with the route's preferred label, which Signpost's own server claims for it; `None` if that is
    /// rejected.
    async fn claim_and_bind(&self, plan: &Plan, holder: &Holder, term: &Term) -> kube::Result<Option<Outcome>> {
        let Some(label) = labels_of(plan, holder).next() else { return Ok(None) };
        let Some(binding) = self.binding(plan, &label, term) else { return Ok(None) };
        match write::create(&self.client, plan.key.namespace.as_deref(), &binding).await {
            Ok(()) => Ok(Some(Outcome::Bound { label })),
            Err(kube::Error::Api(status)) if !is_fenced(&status) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the new label of the route.
    async fn claim_label(&self, plan: &Plan, holder: &Holder) -> kube::Result<Result<String, Outcome>> {
        for label in labels_of(plan, holder) {
            match self.claim(ClaimKind::Label, &label, holder).await? {
                Claimed::Ours => return Ok(Ok(label)),
                Claimed::Gone => return Ok(Err(Outcome::Changed)),
                Claimed::Taken { .. } if plan.host_is_own => return Ok(Err(host_of_another())),
                Claimed::Taken { .. } | Claimed::Full | Claimed::Overlaps => {}
            }
        }
        Ok(Err(Outcome::failed("every candidate label for the Route belongs to another Route".to_owned())))
    }

    async fn claim(&self, kind: ClaimKind, value: &str, holder: &Holder) -> kube::Result<Claimed> {
        claim(&self.client, kind, value, holder, Timestamp::now()).await
    }

    fn binding(&self, plan: &Plan, label: &str, term: &Term) -> Option<RouteBinding> {
        let Placement { router, dns, strategy, explanation } = &plan.placement;
        let namespace = plan.key.namespace.clone().unwrap_or_default();
        let system = names::system_name(label, dns)?;
        let alias = names::alias_name(label, &self.domain);
        let mut assigned = vec![
            AssignedName { name: system, kind: NameKind::System, record: None },
            AssignedName { name: alias.clone(), kind: NameKind::Alias, record: None },
        ];
        if let Some(host) = plan.route.host.as_deref().filter(|_| !plan.host_is_own) {
            assigned.push(host_name(host, plan.route.adopted.is_some(), dns, &alias));
        }
        let spec = RouteBindingSpec {
            route_namespace: namespace.clone(),
            route_name: plan.key.name.clone(),
            route_uid: plan.route.uid.to_string(),
            route_resource_version: Some(plan.version.to_string()).filter(|version| !version.is_empty()),
            router: router.clone(),
            dns: dns.clone(),
            label: label.to_owned(),
            names: assigned,
            former_names: Vec::new(),
            strategy: (*strategy).to_owned(),
            explanation: Some(explanation.clone()),
        };
        let mut binding = RouteBinding::new(&plan.key.name, spec);
        binding.metadata =
            ObjectMeta { name: Some(plan.key.name.clone()), namespace: Some(namespace), ..ObjectMeta::default() };
        fence(&mut binding, term);
        Some(binding)
    }

    async fn create(&self, plan: &Plan, mut binding: RouteBinding, term: &Term) -> kube::Result<Outcome> {
        let namespace = plan.key.namespace();
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), namespace);
        let mut changes = 0;
        loop {
            if !term.is_current() {
                return Ok(Outcome::Deposed);
            }
            let status = match write::create(&self.client, Some(namespace), &binding).await {
                Ok(()) => return Ok(Outcome::Bound { label: binding.spec.label }),
                Err(kube::Error::Api(status)) => status,
                Err(error) => return Err(error),
            };
            match status.code {
                409 if status.is_already_exists() => {
                    return Ok(match bindings.get_opt(&plan.key.name).await? {
                        Some(existing) if *plan.route.uid == *existing.spec.route_uid => Outcome::AlreadyBound,
                        Some(existing) if existing.metadata.deletion_timestamp.is_some() => {
                            let finalizers = existing.metadata.finalizers.unwrap_or_default().join(", ");
                            let error = format!(
                                "the RouteBinding of a former Route of this name is being deleted and waits for its \
                                 finalizers: {finalizers}"
                            );
                            Outcome::failed(error)
                        }
                        // The binding is an earlier Route's, and is about to be deleted.
                        _ => Outcome::Changed,
                    });
                }
                404 => return Ok(Outcome::Changed),
                409 if changes < CHANGES_MAX && !is_fenced(&status) => {
                    changes += 1;
                    let Some((route, version)) = self.current_route(plan).await? else { return Ok(Outcome::Changed) };
                    if route.bound || !route.decides_as(&plan.route) {
                        return Ok(if route.bound { Outcome::AlreadyBound } else { Outcome::Changed });
                    }
                    binding.spec.route_resource_version = version;
                }
                _ => return Err(kube::Error::Api(status)),
            }
        }
    }
}

impl Binder {
    /// Returns the current Route and its version; `None`: it was deleted.
    pub(super) async fn current_route(&self, plan: &Plan) -> kube::Result<Option<(RouteInfo, Option<String>)>> {
        let routes: Api<Route> = Api::namespaced(self.client.clone(), plan.key.namespace());
        let route = routes.get_opt(&plan.key.name).await?;
        let current = route.map(|route| (RouteInfo::new(&route), route.metadata.resource_version));
        Ok(current.filter(|(route, _)| route.uid == plan.route.uid))
    }
}

fn host_of_another() -> Outcome {
    let message = "the host is a name of the platform that belongs to another Route".to_owned();
    Outcome::NotAdmitted(("HostInPlatformDomain", message))
}

fn labels_of(plan: &Plan, holder: &Holder) -> impl Iterator<Item = String> + use<> {
    let labels = labels(&holder.namespace, &holder.name, plan.route.subdomain.as_deref(), plan.is_label_refused);
    labels.into_iter()
}

/// Returns whether a route may not have its preferred label, because that is reserved, or begins with the name of another namespace.
/// Both can also be the result of namespace and name: `mta` and `sts`, or `shop` and `eu-web` while there is a namespace `shop-eu`. The API
/// rejects such a `subdomain`, too; but that namespace may have been created since, and another API does not have this rule.
pub(super) fn is_label_refused(
    rules: &names::LabelRules,
    key: &ObjectKey,
    subdomain: Option<&str>,
    exists: impl Fn(&str) -> bool,
) -> bool {
    let namespace = key.namespace();
    let wanted = names::wanted_label(namespace, &key.name, subdomain);
    rules.is_reserved(&wanted) || names::is_of_another_namespace(&wanted, namespace, exists)
}

/// Returns the labels that a route may have; it gets the first free one.
pub(super) fn labels(namespace: &str, name: &str, subdomain: Option<&str>, is_refused: bool) -> Vec<String> {
    let wanted = names::wanted_label(namespace, name, subdomain);
    let shortened = names::shortened_label(namespace, name, &wanted);
    // The shortened label may be requested as a subdomain: a second shortening gives a third candidate, as stable as the second.
    let other = names::shortened_label(namespace, name, &format!("x-{shortened}"));
    let labels = [wanted, shortened, other].into_iter().skip(usize::from(is_refused));
    labels.filter(|label| names::is_label_to_have(label)).collect()
}
