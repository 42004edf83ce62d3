//! The commits of the API and the publications of name servers, and the invariants of both after every step.
//!
//! A step that breaks an invariant ends the process with the history up to it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_api::kinds::{endpoint_slice, name_claim, route, route_binding, router, service, zone};
use signpost_apiserver::store::{KeyValue, Write};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_types::names::covers;
use signpost_types::paths::prefix;
use signpost_types::probe::route_id;
use signpost_types::v1alpha1::SOURCE_LABEL;
use signpost_types::v1alpha1::route_binding::FENCING_ANNOTATION;

use super::agent;
use super::name_server::{Rcode, ask};
use super::outside::{Outside, Served};
use super::system::elapsed;

mod published;
mod rest;

use published::Published;

/// The number of recent events that a failure shows.
const SHOWN: usize = 300;

pub const LEASE: &str = "/coordination.k8s.io/leases/signpost-system/signpost-scheduler";
/// The minimum time for which the former name of a moved Route must be answered: less than [`super::FORMER_NAME`], because clocks
/// have errors.
const FORMER: Duration = Duration::from_secs(600);

/// The time that processes may take to list again after the store was restored: until then, they use their earlier state.
pub const SETTLING: Duration = Duration::from_secs(20);

/// The longest time that an awaited write can be in flight: with the delays of the network, tried a few times.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// The time after the Lease has a new holder in which the former one may write: a term, and the writes in flight.
const DEPOSED: Duration = Duration::from_secs(60);
/// The longest time that a finding can wait for its write: for the API, or for a silent watch.
const WAITING: Duration = Duration::from_secs(180);
/// The longest time for which a Route can be reported as ready without an endpoint: for a silent watch, and for the write.
const WITHOUT_ENDPOINTS: Duration = Duration::from_secs(240);

pub struct Truth {
    /// `None`: it is a scenario.
    seed: Option<u64>,
    /// Whether an invariant was broken.
    broken: Cell<bool>,
    /// Keys of objects that a test has stored directly: the server completes them with its next write.
    put: BTreeSet<String>,
    /// The objects, by their keys in the store, without field sets.
    objects: BTreeMap<String, Value>,
    history: VecDeque<String>,
    sum: DefaultHasher,
    /// The last write of an object, except for Leases.
    pub last_write: (Duration, String),
    /// The deletion times of Routes, by uid.
    gone: BTreeMap<String, Duration>,
    /// Uids of the Routes that were bound, and the bindings.
    bound: BTreeSet<String>,
    /// The digest under each serial that the ledger names.
    ledger: BTreeMap<(String, u32), String>,
    /// All serials that it has ever named.
    named: BTreeSet<(Name, u32)>,
    /// Names that must be answered, because they were reported as resolvable.
    live: BTreeMap<Name, LiveName>,
    /// Whether only the Lease's holder can bind.
    pub is_fenced: bool,
    /// Whether hosts must be verified.
    pub verify_hosts: bool,
    /// The uids of Routes whose hosts were verified.
    verified: BTreeSet<String>,
    outside: Arc<Mutex<Outside>>,
    /// Whether the store was restored to revisions that it had before: a process that did not notice may keep its state.
    reused_revisions: bool,
    /// See [`SETTLING`].
    unsettled: Duration,
    /// The holder of the schedulers' Lease, and the time since which it holds it.
    leads: (Option<String>, Duration),
    /// The Services without a ready endpoint, by the key of their Routes, with the time since when.
    unbacked: BTreeMap<String, Duration>,
    /// The key in the store that the administrator writes at the moment.
    pub admin_writes: Option<String>,
    /// The zones and hosts that the routers of a source have served since calm ended: none is withdrawn, unless it is known.
    pub kept: BTreeSet<String>,
    /// The zones and hosts that the platform must have from sources, in calm.
    pub admitted: Option<BTreeSet<String>>,
    published: Published,
}

/// A key in the store, with the old and the new value.
type ObjectChange = (String, Option<Value>, Option<Value>);

#[derive(Clone)]
struct LiveName {
    /// The uid of its Route.
    uid: String,
    /// The end, if the Route has another name now.
    until: Option<Duration>,
}

impl Truth {
    /// Returns an empty history.
    pub fn new(seed: Option<u64>, outside: Arc<Mutex<Outside>>) -> Truth {
        Truth {
            gone: BTreeMap::new(),
            is_fenced: false,
            verify_hosts: false,
            verified: BTreeSet::new(),
            outside,
            reused_revisions: false,
            unsettled: Duration::ZERO,
            seed,
            broken: Cell::new(false),
            put: BTreeSet::new(),
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            sum: DefaultHasher::new(),
            last_write: Default::default(),
            bound: BTreeSet::new(),
            ledger: BTreeMap::new(),
            named: BTreeSet::new(),
            live: BTreeMap::new(),
            leads: Default::default(),
            unbacked: BTreeMap::new(),
            admin_writes: None,
            kept: BTreeSet::new(),
            admitted: None,
            published: Published::default(),
        }
    }

    /// Adds to the history.
    pub fn note(&mut self, event: impl Into<String>) {
        let event = event.into();
        event.hash(&mut self.sum);
        elapsed().hash(&mut self.sum);
        if std::env::var_os("SIMULATION_TRACE").is_some() {
            drop(writeln!(std::io::stderr(), "{:12.3} {event}", elapsed().as_secs_f64()));
        }
        if self.history.len() == SHOWN {
            self.history.pop_front();
        }
        self.history.push_back(format!("{:12.3} {event}", elapsed().as_secs_f64()));
    }

    /// Returns the checksum of the history.
    pub fn sum(&self) -> u64 {
        self.sum.finish()
    }

    /// Ends the process: `what` must not be.
    pub fn fail(&self, what: &str) -> ! {
        self.broken.set(true);
        let mut out = std::io::stderr().lock();
        let _ = self.history.iter().try_for_each(|event| writeln!(out, "{event}"));
        let _ = writeln!(out, "after {:.3} simulated seconds: {what}", elapsed().as_secs_f64());
        let Some(seed) = self.seed else { panic!("{what}") };
        let command = "cargo test --test simulation one_seed";
        let _ = writeln!(out, "to see it again: SIMULATION_SEED={seed} {command}");
        drop(out);
        std::process::exit(1);
    }

    /// Returns whether an invariant was broken.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(&what());
        }
    }

    /// Returns the objects of a kind.
    pub fn all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let of = self.objects.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix));
        of.map(move |(key, object)| (&key[prefix.len()..], object))
    }

    pub fn get(&self, prefix: &str, key: &str) -> Option<&Value> {
        self.objects.get(&format!("{prefix}{key}"))
    }

    /// Handles a restored store with all its objects. Resolvable names may no longer be so.
    pub fn went_back(&mut self, all: Vec<KeyValue>, restored: bool) {
        self.reused_revisions |= !restored;
        self.note("the store goes back in time");
        self.live.clear();
        if !restored {
            // A restore advances all serials: earlier publications keep theirs.
            (self.ledger, self.published.contents) = Default::default();
        }
        self.unsettled = elapsed() + SETTLING;
        let before: Vec<String> = self.all(service::SERVICE.key_prefix).map(|(key, _)| key.to_owned()).collect();
        self.objects = all.into_iter().map(|item| (item.key.0.to_string(), parse(&item.value))).collect();
        let holder = self.objects.get(LEASE).and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        self.leads = (holder.map(str::to_owned), elapsed());
        let services: Vec<String> = self.all(service::SERVICE.key_prefix).map(|(key, _)| key.to_owned()).collect();
        before.iter().chain(&services).for_each(|key| self.note_endpoints(key));
        self.gone.retain(|uid, _| !self.objects.values().any(|object| object["metadata"]["uid"] == uid.as_str()));
        self.bound = self.all(route_binding::ROUTE_BINDING.key_prefix).map(|(_, binding)| bound_uid(binding)).collect();
    }

    /// Returns the control plane that leads, by the Lease.
    pub fn leader(&self) -> Option<String> {
        self.leads.0.clone()
    }

    /// Handles a commit of the store.
    pub fn committed(&mut self, revision: u64, writes: &[Write]) {
        for (key, before, now) in &self.noted(revision, writes) {
            self.check_write(key, before.as_ref(), now.as_ref());
        }
    }

    /// Handles a commit of the test itself, which is not checked.
    pub fn put(&mut self, revision: u64, writes: &[Write]) {
        self.put.extend(writes.iter().map(|write| write.key().0.to_string()));
        for (_, _, now) in self.noted(revision, writes) {
            self.verified.extend(
                now.filter(|now| is_true(now, "HostVerified")).map(|now| text(&now["metadata"]["uid"]).to_owned()),
            );
        }
    }

    fn noted(&mut self, revision: u64, writes: &[Write]) -> Vec<ObjectChange> {
        let mut changed = Vec::new();
        for write in writes {
            let key = write.key().0.to_string();
            let now = match write {
                Write::Put { value, .. } => Some(parse(value)),
                Write::Delete { .. } => None,
            };
            let before = match &now {
                Some(now) => self.objects.insert(key.clone(), now.clone()),
                None => self.objects.remove(&key),
            };
            let is_lease = key.contains("/leases/");
            if key == LEASE {
                let holder = now.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str()).map(str::to_owned);
                if holder != self.leads.0 {
                    self.leads = (holder, elapsed());
                }
            }
            if now != before && !is_lease {
                self.last_write = (elapsed(), key.clone());
            }
            let slice =
                key.strip_prefix(endpoint_slice::ENDPOINT_SLICE.key_prefix).and_then(|key| key.strip_suffix("-1"));
            if let Some(service) = key.strip_prefix(service::SERVICE.key_prefix).or(slice) {
                self.note_endpoints(service);
            }
            changed.push((key, before, now));
        }
        let names: Vec<String> = changed.iter().map(|(key, _, now)| history_line(key, now.as_ref())).collect();
        self.note(format!("{revision}: {}", names.join(", ")));
        changed
    }

    /// Records whether the Service of a Route has a ready endpoint.
    fn note_endpoints(&mut self, key: &str) {
        match self.is_backed(key) {
            true => _ = self.unbacked.remove(key),
            false => _ = self.unbacked.entry(key.to_owned()).or_insert_with(elapsed),
        }
    }

    /// Returns whether the Service of a Route has a ready endpoint.
    fn is_backed(&self, key: &str) -> bool {
        let slice = self.get(endpoint_slice::ENDPOINT_SLICE.key_prefix, &format!("{key}-1"));
        let is_ready = slice.is_some_and(|slice| slice["endpoints"][0]["conditions"]["ready"] == true);
        is_ready && self.get(service::SERVICE.key_prefix, key).is_some()
    }

    /// Checks the writer of a status: those of Routes and Routers are the leader's, and a deposed one must have noticed.
    pub fn wrote_status(&self, by: &str) {
        let (holder, since) = &self.leads;
        let is_leaders = !by.starts_with("plane") || holder.as_deref() == Some(by) || elapsed() < *since + DEPOSED;
        self.check(is_leaders, || {
            format!("{by} writes a status, and {holder:?} leads since {:.3}", since.as_secs_f64())
        });
    }

    fn check_write(&mut self, key: &str, before: Option<&Value>, now: Option<&Value>) {
        let of = |prefix: &'static str| key.strip_prefix(prefix);
        if of(route_binding::ROUTE_BINDING.key_prefix).is_some() {
            if let Some(now) = now {
                self.check_binding(key, before, now);
            }
        } else if of(name_claim::NAME_CLAIM.key_prefix).is_some() {
            self.check_claim(key, before, now);
        } else if of(zone::ZONE.key_prefix).is_some() {
            now.into_iter().for_each(|now| self.check_ledger(before, now));
        } else if of(route::ROUTE.key_prefix).is_some() || of(router::ROUTER.key_prefix).is_some() {
            let is_admins = self.admin_writes.as_deref() == Some(key) || self.put.remove(key);
            let is_derived = now.is_some_and(|now| now["metadata"]["labels"][SOURCE_LABEL].is_string());
            let kept = |object: &Value| {
                let (mut spec, mut labels) = (object["spec"].clone(), object["metadata"]["labels"].clone());
                if is_derived {
                    // A source decides these.
                    let fields = ["dns", "addresses", "routeSelector", "namespaceSelector", "ttl", "host", "adopted"];
                    let is_of_apex = |record: &Value| {
                        record
                            .as_str()
                            .is_some_and(|record| record.starts_with("@ A ") || record.starts_with("@ AAAA "))
                    };
                    if let Some(spec) = spec.as_object_mut() {
                        spec.retain(|field, _| !fields.contains(&&**field));
                        let records = spec.get_mut("records").and_then(Value::as_array_mut);
                        records.into_iter().for_each(|records| records.retain(|record| !is_of_apex(record)));
                        spec.retain(|_, value| *value != json!([]));
                    }
                    labels.as_object_mut().into_iter().for_each(|labels| drop(labels.remove(SOURCE_LABEL)));
                }
                (spec, labels)
            };
            let lost = |(before, now): (&Value, &Value)| {
                before["metadata"]["uid"] == now["metadata"]["uid"] && kept(before) != kept(now)
            };
            self.check(is_admins || !before.zip(now).is_some_and(lost), || {
                format!("an acknowledged write of {key} is lost")
            });
            let is_kept = |object: &Value| self.kept.contains(derived_name(object).unwrap_or_default());
            self.check(now.is_some() || !before.is_some_and(is_kept), || {
                format!("{key} is deleted, which the router of its source still serves")
            });
            if of(route::ROUTE.key_prefix).is_some() {
                self.route_changed(before, now);
            }
        }
    }

    fn check_binding(&mut self, key: &str, before: Option<&Value>, now: &Value) {
        let (uid, label) = (bound_uid(now), label(now));
        if before.is_none_or(|before| bound_uid(before) != uid) {
            // Without Signpost's hooks, a binding in flight can still arrive after its Route's deletion, and is deleted again.
            self.check(!self.bound.contains(&uid) || !self.is_there(&uid), || format!("{key} is bound twice"));
            self.bound.insert(uid.clone());
        }
        let number = text(&now["metadata"]["annotations"][FENCING_ANNOTATION]);
        let leads = self.objects.get(LEASE).and_then(|lease| lease["spec"]["leaseTransitions"].as_u64());
        let is_new = before.is_none_or(|before| before["spec"]["router"] != now["spec"]["router"]);
        self.check(!self.is_fenced || !is_new || leads.is_some_and(|leads| number == leads.to_string()), || {
            format!("{key} is bound by leader number {number}, while {leads:?} leads")
        });
        let prefix = route_binding::ROUTE_BINDING.key_prefix;
        // The claim decides about a host that must be verified, while both Routes stay on their Routers; and about the paths of a host,
        // which Routes of one namespace share.
        let shared = |one: &Value, other: &Value, with_hosts: bool| {
            let counts = |is_custom: bool| with_hosts && !self.verify_hosts || !is_custom;
            let names = |of| names_of(of).filter(move |(_, is_custom)| counts(*is_custom));
            names(one).any(|(one, _)| names(other).any(|(other, _)| one.eq_ignore_ascii_case(other)))
        };
        // The host of a deleted Route can be another's before its binding is deleted.
        let is_twin = |other: &Value| {
            let is_of_another = other["metadata"]["namespace"] != now["metadata"]["namespace"];
            self::label(other) == label || shared(other, now, is_of_another) && self.is_there(&bound_uid(other))
        };
        let twin = self.all(prefix).find(|(other, binding)| !key.ends_with(other) && is_twin(binding));
        self.check(twin.is_none(), || format!("{key} and {} have the same name", twin.expect("found").0));
        let route = self.get(route::ROUTE.key_prefix, key.strip_prefix(prefix).unwrap_or_default());
        self.check(!route.is_some_and(is_taken_by_none), || format!("{key} is bound, whose Route no Router selects"));
        let holders = self.holders_of_label(&label);
        self.check(holders.contains(&uid) || !self.is_there(&uid), || {
            format!("{key} uses the label {label}, which {holders:?} hold and not its Route {uid}")
        });
    }

    fn check_claim(&mut self, key: &str, before: Option<&Value>, now: Option<&Value>) {
        if let Some(now) = now.filter(|now| now["spec"]["type"] == "host" && !holders(now).is_empty()) {
            let paths: BTreeSet<String> = paths_of(now).map(|(_, path)| path).collect();
            self.check(paths.len() == holders(now).len(), || format!("{key} has two Routes with one path: {now}"));

            let claim = |claim: &Value| (claim["spec"]["value"].clone(), claim["spec"]["holder"]["namespace"].clone());
            let (host, namespace) = claim(now);
            // The router of an adopted host accepts overlapping hosts of others.
            let is_adopted = |claim: &Value| {
                let holder = &claim["spec"]["holder"];
                let key = format!("{}/{}", text(&holder["namespace"]), text(&holder["name"]));
                let route = self.get(route::ROUTE.key_prefix, &key);
                route.is_some_and(|route| !route["spec"]["adopted"].is_null())
            };
            let may_overlap = is_adopted(now);
            let mut others = self
                .all(name_claim::NAME_CLAIM.key_prefix)
                .filter(|(_, other)| !may_overlap && !holders(other).is_empty() && !is_adopted(other));
            let overlapping = others.find(|(_, other)| {
                let (theirs, of) = claim(other);
                let covers = covers(text(&theirs), text(&host)) || covers(text(&host), text(&theirs));
                other["spec"]["type"] == "host" && of != namespace && covers
            });
            self.check(overlapping.is_none(), || {
                format!("{key} and {} overlap, of two namespaces", overlapping.expect("found").0)
            });
        }
        let (held, holds) = (before.map(holders).unwrap_or_default(), now.map(holders).unwrap_or_default());
        let is_host = before.or(now).is_some_and(|claim| claim["spec"]["type"] == "host");
        for new in holds.difference(&held) {
            if let Some(at) = self.gone.get(new).filter(|_| elapsed() > self.unsettled) {
                // A claim can be in flight when its Route is deleted. Only a takeover of a claim must read the Route; for a new
                // claim, only a watch shows the deletion.
                let longest = if before.is_some() { UNDER_WAY } else { WAITING };
                self.check(elapsed() < *at + longest, || {
                    format!("{key} goes to a Route that went at {:.3}", at.as_secs_f64())
                });
            }
            let is_adopted = || {
                let routes = self.all(route::ROUTE.key_prefix).map(|(_, route)| route);
                let mut its = routes.filter(|route| route["metadata"]["uid"] == new.as_str());
                its.any(|route| !route["spec"]["adopted"].is_null())
            };
            let is_proven = !is_host || !self.verify_hosts || self.verified.contains(new) || is_adopted();
            self.check(is_proven || !self.is_there(new), || {
                format!("{key} goes to {new}, whose host was never verified")
            });
        }
        let Some(before) = before.filter(|_| !(is_host && self.verify_hosts)) else { return };
        if elapsed() < self.unsettled {
            return;
        }
        for lost in held.difference(&holds) {
            // A name in use is not taken from its Route, except by an older Route that has changed its path to the same.
            let user = self.all(route_binding::ROUTE_BINDING.key_prefix).find(|(key, binding)| {
                let route = self.get(route::ROUTE.key_prefix, key);
                let host = route.and_then(|route| route["spec"]["host"].as_str());
                let value = before["spec"]["value"].as_str().unwrap_or_default();
                let path = route.map(|route| prefix(route["spec"]["path"].as_str()));
                let is_taken_by_path = now.is_some_and(|now| paths_of(now).any(|(_, its)| Some(&*its) == path));
                bound_uid(binding) == *lost
                    && self.is_there(lost)
                    && (label(binding) == value.to_ascii_lowercase()
                        || host.is_some_and(|host| host == value) && !is_taken_by_path)
            });
            self.check(user.is_none(), || format!("{key} is taken from its holder {lost}, which uses it"));
        }
    }

    fn check_ledger(&mut self, before: Option<&Value>, now: &Value) {
        let apex = now["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let (Some(before), Some(now)) = (before.and_then(newest_version), newest_version(now)) {
            self.check(!is_older(now, before), || {
                format!("the ledger of {apex} goes from {} back to {}", before.0, now.0)
            });
        }
        for version in now["spec"]["versions"].as_array().into_iter().flatten() {
            let serial = version["serial"].as_u64().unwrap_or_default() as u32;
            let digest = version["digest"].as_str().unwrap_or_default();
            self.named.extend(apex.parse().ok().map(|apex| (apex, serial)));
            let known = self.ledger.entry((apex.clone(), serial)).or_insert_with(|| digest.to_owned()).clone();
            self.check(known == digest, || format!("the ledger has two contents under serial {serial} of {apex}"));
        }
    }

    /// Records the names that are now resolvable, and those that no longer are.
    fn route_changed(&mut self, before: Option<&Value>, now: Option<&Value>) {
        let uid_of = |route: &Value| route["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(before) = before {
            let (uid, is_gone) = (uid_of(before), now.is_none_or(|now| uid_of(now) != uid_of(before)));
            if is_gone {
                self.gone.insert(uid.clone(), elapsed());
            }
            self.live.retain(|_, live| !(is_gone && live.uid == uid));
            let names_now = now.map(names).unwrap_or_default();
            for (_, live) in self.live.iter_mut().filter(|(name, live)| live.uid == uid && !names_now.contains(name)) {
                live.until.get_or_insert(elapsed() + FORMER);
            }
        }
        let Some(now) = now else { return };
        self.check_verified(before, now);
        self.check_ready(before, now);
        self.check_programmed(before, now);
        if !is_true(now, "Resolvable")
            || before.is_some_and(|before| is_true(before, "Resolvable"))
            || elapsed() < self.unsettled
        {
            return;
        }
        self.is_live(now);
        for server in self.published.servers.keys() {
            self.check_live(server, Some(&uid_of(now)));
        }
    }

    /// Checks that the host of a Route is not reported as verified without its record.
    fn check_verified(&mut self, before: Option<&Value>, now: &Value) {
        let is_verified = |route: &Value| reason(route, "HostVerified") == "Verified";
        if !is_verified(now) || before.is_some_and(is_verified) {
            return;
        }
        let (challenge, uid) = (&now["status"]["challenge"], text(&now["metadata"]["uid"]).to_owned());
        let (name, value) = (text(&challenge["name"]), text(&challenge["value"]));
        // The finding may have waited for the API.
        let is_seen = self.outside.lock().has_text(name, value, WAITING);
        self.check(is_seen, || format!("{uid} is reported as verified without {}", challenge["record"]));
        self.verified.insert(uid);
    }

    /// Checks that a Route that becomes `Ready` is resolvable, served by every live instance of its Router to an endpoint, and has a
    /// certificate there if it ends TLS at the router.
    fn check_ready(&self, before: Option<&Value>, now: &Value) {
        if !is_true(now, "Ready") || before.is_some_and(|before| is_true(before, "Ready")) {
            return;
        }
        let uid = text(&now["metadata"]["uid"]);
        self.check(is_true(now, "Resolvable"), || format!("{uid} is Ready and not Resolvable"));
        let needs_certificate = is_true(now, "Programmed") && !now["spec"]["tls"].is_null();
        // Of a generation that is not verified yet, nothing is known.
        let is_present = observed(now, "Ready") == now["metadata"]["generation"].as_i64();
        self.check(!needs_certificate || !is_present || is_true(now, "CertificateReady"), || {
            format!("{uid} is Ready, and has no certificate")
        });
        self.check_served(now, 0, "Ready");
        self.check_backed(now);
    }

    /// Checks that a Route that becomes `Programmed` at a generation is served by every live instance at this or a later one.
    fn check_programmed(&self, before: Option<&Value>, now: &Value) {
        let programmed = |route: &Value| is_true(route, "Programmed").then(|| observed(route, "Programmed")).flatten();
        if let Some(generation) = programmed(now).filter(|now| before.and_then(programmed) != Some(*now)) {
            self.check_served(now, generation, "Programmed");
        }
    }

    /// Whether a Route is bound to the Router whose instances report, and all had the time to see that.
    fn is_settled_on_instances(&self, route: &Value) -> bool {
        let (uid, router) = (text(&route["metadata"]["uid"]), text(&route["status"]["router"]));
        let binding = self.get(route_binding::ROUTE_BINDING.key_prefix, &key_of(route));
        let is_bound = binding.is_some_and(|binding| binding["spec"]["router"] == router && bound_uid(binding) == uid);
        router == super::WITH_INSTANCES && is_bound && elapsed() >= self.unsettled
    }

    /// Checks that the Service of a Route has an endpoint, or lacks one only for a short time.
    fn check_backed(&self, now: &Value) {
        let key = key_of(now);
        // A new leader reports an outage like any other.
        let is_old = |since: &Duration| elapsed() > self.leads.1.max(*since) + WITHOUT_ENDPOINTS;
        let is_unbacked = !self.is_backed(&key) && self.unbacked.get(&key).is_none_or(is_old);
        self.check(!is_unbacked || !self.is_settled_on_instances(now), || {
            format!("{key} is Ready, and its Service has no endpoint")
        });
    }

    /// Checks that every live instance serves a Route at least at this generation.
    fn check_served(&self, now: &Value, generation: i64, kind: &str) {
        if !self.is_settled_on_instances(now) {
            return;
        }
        let (key, uid) = (key_of(now), text(&now["metadata"]["uid"]));
        let name = text(&now["status"]["names"][0]["name"]);
        let outside = self.outside.lock();
        let mut live = outside.instances.iter().filter(|(_, instance)| {
            // A new or just deleted one is not known everywhere, and one that has not read since the restore is late.
            let has_read = instance.renewed + SETTLING > self.unsettled;
            has_read
                && !instance.had_expired
                && elapsed() > instance.since + WAITING
                && elapsed() < instance.renewed + agent::LEASE / 2
        });
        let serves = |served: &Served| served.route == route_id(uid) && served.generation >= generation;
        let other = live.find(|(_, instance)| !instance.serves.get(name).is_some_and(serves));
        self.check(other.is_none(), || {
            format!("{key} is {kind} at {generation}, and {} does not serve that", other.expect("found").0)
        });
    }

    fn is_live(&mut self, route: &Value) {
        let uid = text(&route["metadata"]["uid"]).to_owned();
        self.live.extend(names(route).into_iter().map(|name| (name, LiveName { uid: uid.clone(), until: None })));
    }

    /// Checks that `server` answers all names that were reported as resolvable.
    fn check_live(&self, server: &str, of: Option<&str>) {
        let Some(db) = self.published.servers.get(server).and_then(|server| server.db.as_ref()) else { return };
        let lives = |live: &LiveName| live.until.is_none_or(|until| until > elapsed());
        for (name, _) in self.live.iter().filter(|(_, live)| lives(live) && of.is_none_or(|of| of == live.uid)) {
            self.check(ask(db, name) != Rcode::NXDOMAIN, || {
                format!("{server} denies {name}, which was reported as live")
            });
        }
    }

    fn is_there(&self, uid: &str) -> bool {
        self.all(route::ROUTE.key_prefix).any(|(_, route)| route["metadata"]["uid"] == uid)
    }

    /// Returns the uid of the Route that holds a label.
    fn holders_of_label(&self, label: &str) -> BTreeSet<String> {
        let claims = self.all(name_claim::NAME_CLAIM.key_prefix).map(|(_, claim)| claim);
        let of = claims.filter(|claim| {
            claim["spec"]["type"] == "label" && text(&claim["spec"]["value"]).eq_ignore_ascii_case(label)
        });
        of.flat_map(holders).collect()
    }
}

fn parse(value: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(value).unwrap_or(Value::Null);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // The time advances with every check of the record.
    if let Some(challenge) = object.pointer_mut("/status/challenge").and_then(Value::as_object_mut) {
        challenge.remove("verifiedUntil");
    }
    object
}

/// Returns the host of a Route, or the zone of a Router, that a source wrote.
fn derived_name(object: &Value) -> Option<&str> {
    let is_derived = object["metadata"]["labels"][SOURCE_LABEL].is_string();
    object["spec"]["host"].as_str().or(object["spec"]["dns"].as_str()).filter(|_| is_derived)
}

/// The key of an object below the prefix of its kind.
fn key_of(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns whether no Router selects this Route ([`super::NOWHERE`]).
fn is_taken_by_none(route: &Value) -> bool {
    route["metadata"]["labels"]["pool"] == super::NOWHERE
}

fn bound_uid(binding: &Value) -> String {
    text(&binding["spec"]["routeUID"]).to_owned()
}

fn label(binding: &Value) -> String {
    text(&binding["spec"]["label"]).to_ascii_lowercase()
}

/// Returns the names of a binding, each with whether it is a custom host.
fn names_of(binding: &Value) -> impl Iterator<Item = (&str, bool)> {
    let names = binding["spec"]["names"].as_array().into_iter().flatten();
    names.map(|name| (text(&name["name"]), name["type"] == "custom"))
}

/// Returns the Routes that have a claim, or had it last, the first one first.
fn all_holders(claim: &Value) -> impl Iterator<Item = &Value> {
    let spec = &claim["spec"];
    std::iter::once(&spec["holder"]).chain(spec["sharers"].as_array().into_iter().flatten())
}

/// Returns the uids of the Routes that have a claim; none: it was released.
fn holders(claim: &Value) -> BTreeSet<String> {
    let held = Some(claim).filter(|claim| claim["spec"]["releasedAt"].is_null());
    held.into_iter().flat_map(all_holders).map(|holder| text(&holder["uid"]).to_owned()).collect()
}

/// Returns the names and paths of the Routes that have a claim.
fn paths_of(claim: &Value) -> impl Iterator<Item = (&str, String)> {
    let held = Some(claim).filter(|claim| claim["spec"]["releasedAt"].is_null());
    let holders = held.into_iter().flat_map(all_holders);
    holders.map(|holder| (text(&holder["name"]), prefix(holder["path"].as_str()).to_owned()))
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Returns the generation that an object's condition is about.
fn observed(object: &Value, kind: &str) -> Option<i64> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind)?["observedGeneration"].as_i64()
}

/// Returns the status that kstatus computes for an object of a kind that it does not know, by the rules that it publishes
/// (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>). Flux, Helm, and Argo CD wait for `Current`.
pub fn kstatus(object: &Value) -> &'static str {
    let is = |kind: &str, status: &str| {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == status)
    };
    let observed = &object["status"]["observedGeneration"];
    match () {
        () if !object["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        () if !observed.is_null() && *observed != object["metadata"]["generation"] => "InProgress",
        () if is("Stalled", "True") => "Failed",
        () if is("Reconciling", "True") || is("Ready", "False") || is("Ready", "Unknown") => "InProgress",
        () => "Current",
    }
}

/// Returns the conditions of an object, and the status itself, that are about another generation.
pub fn outdated(object: &Value) -> Vec<String> {
    let generation = &object["metadata"]["generation"];
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let others = conditions.filter(|condition| condition["observedGeneration"] != *generation);
    let of_status = (object["status"]["observedGeneration"] != *generation).then(|| "status".to_owned());
    others.map(|condition| text(&condition["type"]).to_owned()).chain(of_status).collect()
}

/// Returns the reason of an object's condition.
fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).map_or("", |condition| text(&condition["reason"]))
}

/// Returns the names of a Route in zones of the platform.
fn names(route: &Value) -> Vec<Name> {
    let names = route["status"]["names"].as_array().into_iter().flatten();
    let own = names.filter(|name| name["type"] != "custom");
    own.filter_map(|name| text(&name["name"]).parse().ok()).collect()
}

/// Returns the last serial of the ledger for a zone.
fn newest_version(zone: &Value) -> Option<Serial> {
    zone["spec"]["versions"][0]["serial"].as_u64().map(|serial| Serial(serial as u32))
}

/// Compares serials by RFC 1982.
fn is_older(serial: Serial, than: Serial) -> bool {
    serial.0.wrapping_sub(than.0) > 1 << 31
}

/// Returns an object's conditions in short form.
fn conditions(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let said = |one: &Value| format!("{}={}/{}", text(&one["type"]), text(&one["status"]), text(&one["reason"]));
    conditions.map(said).collect::<Vec<_>>().join(" ")
}

/// Returns a write in the form of the history.
fn history_line(key: &str, now: Option<&Value>) -> String {
    let Some(now) = now else { return format!("{key} is gone") };
    let spec = &now["spec"];
    let some = ["host", "path", "router", "label", "holder", "sharers", "releasedAt", "decision", "holderIdentity"];
    let some = some.map(|field| &spec[field]).into_iter().filter(|value| !value.is_null()).map(Value::to_string);
    let serial = spec["versions"][0]["serial"].as_u64().map(|serial| serial.to_string());
    let status =
        [text(&now["status"]["router"]).to_owned(), conditions(now)].into_iter().filter(|text| !text.is_empty());
    let words: Vec<String> = [key.to_owned()].into_iter().chain(serial).chain(some).chain(status).collect();
    words.join(" ")
}
