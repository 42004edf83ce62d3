//! Carrying out a decision: claim the names, and create the RouteBinding.
//!
//! Each step is safe to repeat, and to repeat after a crash at any point: a claim that is ours already is a success, and so
//! is a binding of this very Route (by uid), whoever made it. The binding has the Route's name, so creating it is the lock:
//! of two schedulers one gets AlreadyExists. It carries the resourceVersion of the Route that was looked at; our own server
//! refuses it if the Route has changed since, and the Route is read again.
//!
//! On the ordinary way that is two writes a route: one claim and one binding. Our own server makes the claim in the
//! transaction that makes the binding, if nobody ever had the label: then it is one write. That is tried with our own server
//! alone; another one would take the binding and leave the label to anybody. Whatever that write is refused for but a fencing
//! number, the way by two writes comes next, and finds out.

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
use signpost_api::names::{self, host_claim_name, label_claim_name};
use signpost_api::v1alpha1::name_claim::{ClaimKind, Holder};
use signpost_api::v1alpha1::route::{AssignedName, NameKind, Route};
use signpost_api::v1alpha1::route_binding::{FENCING_ANNOTATION, FENCING_FIELD, RouteBinding, RouteBindingSpec};

/// How long one attempt may take.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// How often the Route may change under one attempt, in ways that leave the decision as it is.
pub(super) const CHANGES_MAX: u32 = 4;

/// What is needed to bind any route.
#[derive(Clone)]
pub struct Binder {
    /// Speaks as the scheduler.
    pub client: kube::Client,
    /// Whether that is to our own server.
    pub server: Arc<ServerKind>,
    /// The platform's domain.
    pub domain: Arc<str>,
}

/// A route with the Router chosen for it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the Route is.
    pub key: ObjectKey,
    /// The Route as it was looked at.
    pub route: Arc<RouteInfo>,
    /// Its resourceVersion then.
    pub version: Box<str>,
    /// Whether its host is the platform's own name for it.
    pub host_is_own: bool,
    /// The Router that it is moved away from, if it has one.
    pub leaving: Option<MoveSource>,
    /// The Router.
    pub placement: Placement,
    /// How many labels are in quarantine for its namespace, if that is as many as may be: then it gets none that is new.
    pub labels_kept: Option<u32>,
    /// How many hosts are reserved for its namespace, if that is as many as may be: then it gets none that is new.
    pub hosts_kept: Option<u32>,
    /// Whether the Route may not have the label that it wants, even if that is free.
    pub is_label_refused: bool,
    /// When it was chosen.
    pub decided: std::time::Instant,
}

/// A Router that a route is to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveSource {
    /// The Router.
    pub router: String,
    /// Why.
    pub reason: MoveReason,
    /// How long the route's name there leads to its new one; `None` if the Router, and its zone, are gone.
    pub former_name: Option<Duration>,
    /// Whether the instances of the Router that it moves to say when they serve it: then its other names lead there from then on.
    pub to_instances: bool,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Outcome {
    /// The route is bound, by this attempt.
    Bound {
        /// Its label.
        label: String,
    },
    /// It was bound to another Router, and is to this one now, by this attempt.
    Moved,
    /// It was bound already.
    AlreadyBound,
    /// It must not have its host.
    NotAdmitted(Refusal),
    /// Another Route holds its host.
    HostHeld(HostConflict),
    /// Its host overlaps one that another namespace holds, as only the API knew.
    Overlaps,
    /// It needs a new label or host, and its namespace may have none: so many are in quarantine, or reserved, for it.
    NamesKept {
        /// Which of the two.
        kind: ClaimKind,
        /// As many as may be.
        most: u32,
    },
    /// The Route is not what was looked at any more.
    Changed,
    /// This process leads no more; nothing was written since.
    Deposed,
    /// The API says that this process leads no more, which it does not know yet; or it finds no Lease that says who does.
    Fenced {
        /// What it said.
        error: String,
    },
    /// The API does not answer, or refuses.
    Failed {
        /// Whether it was the API's answer, rather than none.
        answered: bool,
        /// What it said, for the log.
        error: String,
        /// The same for the Route's owner. The words of an API, or of a webhook of its own, can name objects of others.
        owner_message: String,
    },
}

/// Why a route gets no label, or not its host, for now: in a word, and in a sentence.
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
    /// As a metric's label.
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

    /// A failure that the Route's owner may read as it is.
    pub(super) fn failed(error: String) -> Self {
        Outcome::Failed { answered: true, owner_message: error.clone(), error }
    }
}

/// What is said of an API that does not answer.
const NO_ANSWER: &str = "the API did not answer in time";

/// Whether the API refuses a write for its fencing number.
pub(super) fn is_fenced(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 && causes.into_iter().any(|cause| cause.field == FENCING_FIELD)
}

/// Marks a binding as written in this term: the API refuses it of who does not lead any more.
pub fn fence(binding: &mut RouteBinding, term: &Term) {
    let annotations = binding.metadata.annotations.get_or_insert_default();
    annotations.insert(FENCING_ANNOTATION.to_owned(), term.fencing().to_string());
}

impl Binder {
    /// What an attempt comes to that ended with an error.
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
        if let (Some(most), Some(host)) = (plan.hosts_kept, host)
            && !has_a_claim(&self.client, [host_claim_name(host)].into_iter(), &holder, Timestamp::now()).await?
        {
            return Ok(Outcome::NamesKept { kind: ClaimKind::Host, most });
        }
        if let Some(host) = host
            && let Some(refusal) = self.claim_host(host, &holder).await?
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

    async fn claim_host(&self, host: &str, holder: &Holder) -> kube::Result<Option<Outcome>> {
        Ok(match self.claim(ClaimKind::Host, host, holder).await? {
            Claimed::Ours => None,
            Claimed::Gone => Some(Outcome::Changed),
            Claimed::Taken { by, until } => {
                let by = ObjectKey::namespaced(&by.namespace, &by.name);
                Some(Outcome::HostHeld(hosts::held(host, &holder.namespace, &by, until)))
            }
            Claimed::Overlaps => Some(Outcome::Overlaps),
        })
    }

    /// Creates the binding with the label that the route would have before any other, which our own server claims for it;
    /// `None` if that is refused.
    async fn claim_and_bind(&self, plan: &Plan, holder: &Holder, term: &Term) -> kube::Result<Option<Outcome>> {
        let Some(label) = labels_of(plan, holder).next() else { return Ok(None) };
        let Some(binding) = self.binding(plan, &label, term) else { return Ok(None) };
        match write::create(&self.client, plan.key.namespace.as_deref(), &binding).await {
            Ok(()) => Ok(Some(Outcome::Bound { label })),
            Err(kube::Error::Api(status)) if !is_fenced(&status) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The label that the route has from now on.
    async fn claim_label(&self, plan: &Plan, holder: &Holder) -> kube::Result<Result<String, Outcome>> {
        for label in labels_of(plan, holder) {
            match self.claim(ClaimKind::Label, &label, holder).await? {
                Claimed::Ours => return Ok(Ok(label)),
                Claimed::Gone => return Ok(Err(Outcome::Changed)),
                Claimed::Taken { .. } if plan.host_is_own => return Ok(Err(host_of_another())),
                Claimed::Taken { .. } | Claimed::Overlaps => {}
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
            let record = Some(names::record_for_host(host, &alias));
            assigned.push(AssignedName { name: host.to_owned(), kind: NameKind::Custom, record });
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
                        Some(existing) if plan.route.uid == *existing.spec.route_uid => Outcome::AlreadyBound,
                        Some(existing) if existing.metadata.deletion_timestamp.is_some() => {
                            let finalizers = existing.metadata.finalizers.unwrap_or_default().join(", ");
                            let error = format!(
                                "the RouteBinding of a former Route of this name is being deleted and waits for its \
                                 finalizers: {finalizers}"
                            );
                            Outcome::failed(error)
                        }
                        // An earlier Route's, which is about to be cleared away.
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
    /// Returns the Route and its version as they are now; `None`: it is gone.
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

/// Whether a route may not have the label that it wants, since that is reserved, by namespace and name as well (`mta` and `sts`),
/// or begins with the name of another namespace. The API refuses such a `subdomain`, too; but that namespace may have been
/// created since, and another API does not know this rule.
pub(super) fn is_label_refused(
    rules: &names::LabelRules,
    key: &ObjectKey,
    subdomain: Option<&str>,
    exists: impl Fn(&str) -> bool,
) -> bool {
    let namespace = key.namespace();
    rules.is_reserved(&names::wanted_label(namespace, &key.name, subdomain))
        || subdomain.is_some_and(|subdomain| names::is_of_another_namespace(subdomain, namespace, exists))
}

/// The labels that a route may have, of which it gets the first that is free.
pub(super) fn labels(namespace: &str, name: &str, subdomain: Option<&str>, is_refused: bool) -> Vec<String> {
    let wanted = names::wanted_label(namespace, name, subdomain);
    let shortened = names::shortened_label(namespace, name, &wanted);
    // Somebody may have asked for just the shortened label as a subdomain: cut and hashed once more it is a third try,
    // as stable as the second.
    let other = names::shortened_label(namespace, name, &format!("x-{shortened}"));
    let labels = [wanted, shortened, other].into_iter().skip(usize::from(is_refused));
    labels.filter(|label| names::is_label_to_have(label)).collect()
}
