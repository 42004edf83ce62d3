//! What the API has committed and what name servers have published, and what must hold of both after every step.
//!
//! A step that breaks an invariant ends the process with the history that led there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use signpost_api::kinds::{name_claim, route, route_binding, router, zone};
use signpost_api::names::covers;
use signpost_api::v1alpha1::route_binding::FENCING_ANNOTATION;
use signpost_apiserver::store::{KeyValue, Write};
use signpost_dns::wire::Name;
use signpost_dns::zone::db::Snapshot;
use signpost_dns::zone::{Serial, Zone, ZoneDb};

use super::name_server::{Rcode, ask};
use super::system::elapsed;

/// How many of the last events a failure shows.
const SHOWN: usize = 300;

/// The schedulers' Lease.
pub const LEASE: &str = "/coordination.k8s.io/leases/kube-system/signpost-scheduler";
/// How long the former name of a moved Route is to be answered at the least: less than [`super::FORMER_NAME`], since clocks are off.
const FORMER: Duration = Duration::from_secs(600);

/// How long processes may take to list again after the store went back: who has not done so goes by what it knew.
pub const SETTLING: Duration = Duration::from_secs(20);

pub struct Truth {
    seed: u64,
    /// The objects, by their keys in the store, without field sets.
    objects: BTreeMap<String, Value>,
    history: VecDeque<String>,
    /// The sum of all of it.
    sum: DefaultHasher,
    /// When an object was written last, Leases apart.
    pub last_write: (Duration, String),
    /// Uids of the Routes that were bound, and what it is bound by.
    bound: BTreeSet<String>,
    /// The digest under each serial that the ledger names.
    ledger: BTreeMap<(String, u32), String>,
    /// All serials that it has ever named.
    named: BTreeSet<(Name, u32)>,
    /// Names that are not to be compiled away: they were said to be live.
    live: BTreeMap<Name, Live>,
    fenced: bool,
    /// Whether the store went back under revisions that it had before: who did not see that may stay as it was.
    reused_revisions: bool,
    /// See [`SETTLING`].
    unsettled: Duration,
    /// The key in the store that the administrator writes at the moment.
    pub admin_writes: Option<String>,
    published: Published,
}

/// A name that is live.
#[derive(Clone)]
struct Live {
    /// The uid of its Route.
    uid: String,
    /// Until when, if the Route has another name by now.
    until: Option<Duration>,
}

/// What name servers have published.
#[derive(Default)]
struct Published {
    servers: BTreeMap<String, Server>,
    /// A sum of the contents under each serial.
    contents: BTreeMap<(Name, u32), (u64, String)>,
}

#[derive(Default)]
struct Server {
    /// Where it publishes, while it runs.
    db: Option<Arc<ZoneDb>>,
    serials: BTreeMap<Name, Serial>,
    snapshot: Option<Arc<Snapshot>>,
    zones: Vec<Arc<Zone>>,
}

impl Truth {
    /// Nothing is there yet. `fenced`: whether only who holds the Lease can bind.
    pub fn new(seed: u64, fenced: bool) -> Truth {
        Truth {
            fenced,
            reused_revisions: false,
            unsettled: Duration::ZERO,
            seed,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            sum: DefaultHasher::new(),
            last_write: Default::default(),
            bound: BTreeSet::new(),
            ledger: BTreeMap::new(),
            named: BTreeSet::new(),
            live: BTreeMap::new(),
            admin_writes: None,
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

    /// The sum of the history.
    pub fn sum(&self) -> u64 {
        self.sum.finish()
    }

    /// Ends the process: `what` must not be.
    pub fn fail(&self, what: &str) -> ! {
        let mut out = std::io::stderr().lock();
        let _ = self.history.iter().try_for_each(|event| writeln!(out, "{event}"));
        let _ = writeln!(
            out,
            "after {:.3} simulated seconds: {what}\nto see it again: SIMULATION_SEED={} cargo test -p signpost-control --test simulation one_seed",
            elapsed().as_secs_f64(),
            self.seed,
        );
        drop(out);
        std::process::exit(1);
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(&what());
        }
    }

    /// The objects of a kind.
    pub fn all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let of = self.objects.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix));
        of.map(move |(key, object)| (&key[prefix.len()..], object))
    }

    pub fn get(&self, prefix: &str, key: &str) -> Option<&Value> {
        self.objects.get(&format!("{prefix}{key}"))
    }

    /// The store goes back in time, and these are all objects. What was live may be so no more.
    pub fn went_back(&mut self, all: Vec<KeyValue>, restored: bool) {
        self.reused_revisions |= !restored;
        self.note("the store goes back in time");
        self.live.clear();
        if !restored {
            // A restore moves all serials on: what had one before keeps it.
            (self.ledger, self.published.contents) = Default::default();
        }
        self.unsettled = elapsed() + SETTLING;
        self.objects = all.into_iter().map(|item| (item.key.0.to_string(), parse(&item.value))).collect();
        self.bound = self.all(route_binding::ROUTE_BINDING.key_prefix).map(|(_, binding)| bound_uid(binding)).collect();
    }

    /// A commit of the store.
    pub fn committed(&mut self, revision: u64, writes: &[Write]) {
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
            if now != before && !is_lease {
                self.last_write = (elapsed(), key.clone());
            }
            changed.push((key, before, now));
        }
        let names: Vec<String> = changed.iter().map(|(key, _, now)| told(key, now.as_ref())).collect();
        self.note(format!("{revision}: {}", names.join(", ")));
        for (key, before, now) in &changed {
            self.check_write(key, before.as_ref(), now.as_ref());
        }
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
            let is_admins = self.admin_writes.as_deref() == Some(key);
            let kept = |object: &Value| (object["spec"].clone(), object["metadata"]["labels"].clone());
            let lost = |(before, now): (&Value, &Value)| {
                before["metadata"]["uid"] == now["metadata"]["uid"] && kept(before) != kept(now)
            };
            self.check(is_admins || !before.zip(now).is_some_and(lost), || {
                format!("an acknowledged write of {key} is lost")
            });
            if of(route::ROUTE.key_prefix).is_some() {
                self.route_changed(before, now);
            }
        }
    }

    fn check_binding(&mut self, key: &str, before: Option<&Value>, now: &Value) {
        let (uid, label) = (bound_uid(now), label(now));
        if before.is_none_or(|before| bound_uid(before) != uid) {
            // Without our hooks, a binding that was under way when its Route went can still come, and goes again.
            self.check(!self.bound.contains(&uid) || !self.is_there(&uid), || format!("{key} is bound twice"));
            self.bound.insert(uid.clone());
        }
        let number = text(&now["metadata"]["annotations"][FENCING_ANNOTATION]);
        let leads = self.objects.get(LEASE).and_then(|lease| lease["spec"]["leaseTransitions"].as_u64());
        let is_new = before.is_none_or(|before| before["spec"]["router"] != now["spec"]["router"]);
        self.check(!self.fenced || !is_new || leads.is_some_and(|leads| number == leads.to_string()), || {
            format!("{key} is bound by leader number {number}, while {leads:?} leads")
        });
        let prefix = route_binding::ROUTE_BINDING.key_prefix;
        let names = |binding: &Value| -> BTreeSet<String> {
            let names = binding["spec"]["names"].as_array().into_iter().flatten();
            names.map(|name| text(&name["name"]).to_ascii_lowercase()).collect()
        };
        let own = names(now);
        // The host of a Route that is gone may be another's before its binding is gone, too.
        let is_twin = |other: &Value| {
            self::label(other) == label || self.is_there(&bound_uid(other)) && !names(other).is_disjoint(&own)
        };
        let twin = self.all(prefix).find(|(other, binding)| !key.ends_with(other) && is_twin(binding));
        self.check(twin.is_none(), || format!("{key} and {} have the same name", twin.expect("found").0));
        let route = self.get(route::ROUTE.key_prefix, key.strip_prefix(prefix).unwrap_or_default());
        self.check(!route.is_some_and(is_taken_by_none), || format!("{key} is bound, whose Route no Router selects"));
        let holder = self.holder(&label);
        self.check(holder.as_deref() == Some(&uid) || !self.is_there(&uid), || {
            format!("{key} uses the label {label}, which {holder:?} holds and not its Route {uid}")
        });
    }

    fn check_claim(&mut self, key: &str, before: Option<&Value>, now: Option<&Value>) {
        if let Some(now) = now.filter(|now| now["spec"]["type"] == "host" && holder(now).is_some()) {
            let claim = |claim: &Value| (claim["spec"]["value"].clone(), claim["spec"]["holder"]["namespace"].clone());
            let (host, namespace) = claim(now);
            let mut others = self.all(name_claim::NAME_CLAIM.key_prefix).filter(|(_, other)| holder(other).is_some());
            let overlapping = others.find(|(_, other)| {
                let (theirs, of) = claim(other);
                let covers = covers(text(&theirs), text(&host)) || covers(text(&host), text(&theirs));
                other["spec"]["type"] == "host" && of != namespace && covers
            });
            self.check(overlapping.is_none(), || {
                format!("{key} and {} overlap, of two namespaces", overlapping.expect("found").0)
            });
        }
        let Some(before) = before else { return };
        let (held, holds) = (holder(before), now.and_then(holder));
        let Some(held) = held.filter(|held| holds.as_ref() != Some(held)) else { return };
        if elapsed() < self.unsettled {
            return;
        }
        // What a Route uses is not taken from it.
        let user = self.all(route_binding::ROUTE_BINDING.key_prefix).find(|(key, binding)| {
            let route = self.get(route::ROUTE.key_prefix, key);
            let host = route.and_then(|route| route["spec"]["host"].as_str());
            let value = before["spec"]["value"].as_str().unwrap_or_default();
            bound_uid(binding) == held
                && self.is_there(&held)
                && (label(binding) == value.to_ascii_lowercase() || host.is_some_and(|host| host == value))
        });
        self.check(user.is_none(), || format!("{key} is taken from its holder {held}, which uses it"));
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

    /// Notes which names are live, and which no more.
    fn route_changed(&mut self, before: Option<&Value>, now: Option<&Value>) {
        let uid_of = |route: &Value| route["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(before) = before {
            let (uid, is_gone) = (uid_of(before), now.is_none_or(|now| uid_of(now) != uid_of(before)));
            self.live.retain(|_, live| !(is_gone && live.uid == uid));
            let names_now = now.map(names).unwrap_or_default();
            for (_, live) in self.live.iter_mut().filter(|(name, live)| live.uid == uid && !names_now.contains(name)) {
                live.until.get_or_insert(elapsed() + FORMER);
            }
        }
        let Some(now) = now.filter(|now| is_true(now, "Resolvable")) else { return };
        if before.is_some_and(|before| is_true(before, "Resolvable")) || elapsed() < self.unsettled {
            return;
        }
        self.is_live(now);
        for server in self.published.servers.keys() {
            self.check_live(server, Some(&uid_of(now)));
        }
    }

    fn is_live(&mut self, route: &Value) {
        let uid = text(&route["metadata"]["uid"]).to_owned();
        self.live.extend(names(route).into_iter().map(|name| (name, Live { uid: uid.clone(), until: None })));
    }

    /// That `server` denies no name of those that were told to be live.
    fn check_live(&self, server: &str, of: Option<&str>) {
        let Some(db) = self.published.servers.get(server).and_then(|server| server.db.as_ref()) else { return };
        let lives = |live: &Live| live.until.is_none_or(|until| until > elapsed());
        for (name, _) in self.live.iter().filter(|(_, live)| lives(live) && of.is_none_or(|of| of == live.uid)) {
            self.check(ask(db, name) != Rcode::NXDOMAIN, || {
                format!("{server} denies {name}, which was said to be live")
            });
        }
    }

    /// From now on it publishes there; `None`: it is down.
    pub fn serves(&mut self, server: &str, db: Option<Arc<ZoneDb>>) {
        let server = self.published.servers.entry(server.to_owned()).or_default();
        (server.db, server.snapshot, server.zones) = (db, None, Vec::new());
    }

    /// Its disk is lost, and with it what it knew of serials.
    pub fn forgets(&mut self, server: &str) {
        self.note(format!("{server} loses its disk"));
        self.published.servers.entry(server.to_owned()).or_default().serials.clear();
    }

    /// A name server may have published.
    pub fn look_at(&mut self, name: &str) {
        let Some(server) = self.published.servers.get_mut(name) else { return };
        let Some(db) = server.db.clone() else { return };
        let snapshot = db.snapshot();
        if server.snapshot.as_ref().is_some_and(|before| Arc::ptr_eq(before, &snapshot)) {
            return;
        }
        server.snapshot = Some(snapshot);
        let zones: Vec<_> = db.zones().into_iter().filter(|zone| zone.why_unavailable().is_none()).collect();
        let is_same = |zone: &&Arc<Zone>| server.zones.iter().any(|before| Arc::ptr_eq(before, zone));
        let new: Vec<_> = zones.iter().filter(|zone| !is_same(zone)).cloned().collect();
        // A zone that comes back begins anew.
        server.serials.retain(|apex, _| zones.iter().any(|zone| zone.apex() == apex));
        server.zones = zones;
        for zone in new {
            let Some(serial) = zone.serial() else { continue };
            let apex = zone.apex().clone();
            self.note(format!("{name} publishes {apex} {}", serial.0));
            let server = self.published.servers.get_mut(name).expect("it publishes");
            let before = server.serials.insert(apex.clone(), serial);
            self.check(!before.is_some_and(|before| is_older(serial, before)), || {
                format!("{name} goes from serial {} of {apex} back to {}", before.expect("is older").0, serial.0)
            });
            let (sum, by) = (sum_of(&zone), name.to_owned());
            let known = self.published.contents.entry((apex.clone(), serial.0)).or_insert((sum, by)).clone();
            // A serial of its own, that the ledger does not name, is worth nothing to others.
            self.check(known.0 == sum || !self.named.contains(&(apex.clone(), serial.0)), || {
                format!("{name} has other contents of {apex} under serial {} than {}", serial.0, known.1)
            });
        }
        if db.is_ready() {
            self.check_live(name, None);
        }
    }

    /// What is not as it must be when nothing has gone wrong for long.
    pub fn unrest(&self) -> Vec<String> {
        let mut unrest = Vec::new();
        let routers: Vec<_> = self.all(router::ROUTER.key_prefix).collect();
        let takes = |router: &Value| router["spec"]["state"].as_str().is_none_or(|state| state == "active");
        for (key, route) in self.all(route::ROUTE.key_prefix) {
            let uid = route["metadata"]["uid"].as_str().unwrap_or_default();
            let Some(binding) = self.get(route_binding::ROUTE_BINDING.key_prefix, key) else {
                let host = route["spec"]["host"].as_str();
                let held = host.is_some_and(|host| self.is_in_the_way(key, host)) || is_taken_by_none(route);
                // One that asks for a Router waits for that one.
                let asked = route["metadata"]["annotations"]["signpost.dev/move-to"].as_str();
                let is_meant = |router: &Value| asked.is_none_or(|asked| router["metadata"]["name"] == asked);
                if !held && routers.iter().any(|(_, router)| is_meant(router) && takes(router)) {
                    unrest.push(format!("{key} has no binding: {}", conditions(route)));
                }
                continue;
            };
            if bound_uid(binding) != uid {
                unrest.push(format!("the binding of {key} is another Route's"));
            } else if route["status"]["phase"] != "scheduled" || route["status"]["router"] != binding["spec"]["router"]
            {
                unrest.push(format!("{key} does not say where it is: {}", conditions(route)));
            } else if self.get(router::ROUTER.key_prefix, text(&binding["spec"]["router"])).is_some() {
                if !is_true(route, "Resolvable") {
                    unrest.push(format!("{key} is not resolvable: {}", conditions(route)));
                }
                for (server, db) in
                    self.published.servers.iter().filter_map(|(name, server)| Some((name, server.db.as_ref()?)))
                {
                    let wrong = names(route).into_iter().filter(|name| ask(db, name) != Rcode::NOERROR);
                    unrest
                        .extend(wrong.map(|name| format!("{server} does not answer for {name}: {:?}", ask(db, &name))));
                }
            }
        }
        for (key, binding) in self.all(route_binding::ROUTE_BINDING.key_prefix) {
            if !self.is_there(&bound_uid(binding)) {
                unrest.push(format!("the binding {key} has no Route"));
            }
        }
        for (key, claim) in self.all(name_claim::NAME_CLAIM.key_prefix) {
            if holder(claim).is_some_and(|uid| !self.is_there(&uid)) {
                unrest.push(format!("the claim {key} is held by a Route that is gone"));
            }
        }
        let running = self.published.servers.values().filter(|server| server.db.is_some());
        let named: BTreeMap<Name, Serial> = self
            .all(zone::ZONE.key_prefix)
            .filter_map(|(key, zone)| Some((key.parse().ok()?, newest_version(zone)?)))
            .collect();
        // Who had to count on alone, and came back to contents that the ledger names, stays ahead of it until the next change.
        let as_named = |apex: &Name, serial: Serial| named.get(apex).copied().filter(|named| is_older(*named, serial));
        let serials_of = |server: &Server| -> BTreeMap<Name, Option<u32>> {
            let serial = |zone: &Zone| zone.serial().map(|serial| as_named(zone.apex(), serial).unwrap_or(serial).0);
            server.zones.iter().map(|zone| (zone.apex().clone(), serial(zone))).collect()
        };
        let serials: BTreeSet<_> = running.map(|server| format!("{:?}", serials_of(server))).collect();
        if serials.len() > 1 && !self.reused_revisions {
            unrest.push(format!("name servers do not agree: {serials:?}"));
        }
        unrest
    }

    /// All that is resolvable now must stay so.
    pub fn all_is_live(&mut self) {
        let all: Vec<_> = self.all(route::ROUTE.key_prefix).map(|(_, route)| route.clone()).collect();
        all.iter().filter(|route| is_true(route, "Resolvable")).for_each(|route| self.is_live(route));
    }

    /// Whether another Route holds `host`, or one that overlaps it in another namespace.
    fn is_in_the_way(&self, key: &str, host: &str) -> bool {
        let namespace = |key: &str| key.split('/').next().unwrap_or_default().to_owned();
        self.all(name_claim::NAME_CLAIM.key_prefix).any(|(_, claim)| {
            let (value, by) = (text(&claim["spec"]["value"]), &claim["spec"]["holder"]);
            let is_other = format!("{}/{}", text(&by["namespace"]), text(&by["name"])) != key;
            let overlaps = by["namespace"] != namespace(key).as_str() && (covers(value, host) || covers(host, value));
            claim["spec"]["type"] == "host" && holder(claim).is_some() && is_other && (value == host || overlaps)
        })
    }

    fn is_there(&self, uid: &str) -> bool {
        self.all(route::ROUTE.key_prefix).any(|(_, route)| route["metadata"]["uid"] == uid)
    }

    /// The uid of the Route that holds a label.
    fn holder(&self, label: &str) -> Option<String> {
        let claims = self.all(name_claim::NAME_CLAIM.key_prefix).map(|(_, claim)| claim);
        let mut of = claims.filter(|claim| {
            claim["spec"]["type"] == "label" && text(&claim["spec"]["value"]).eq_ignore_ascii_case(label)
        });
        of.find_map(holder)
    }
}

fn parse(value: &[u8]) -> Value {
    let mut object: Value = serde_json::from_slice(value).unwrap_or(Value::Null);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether no Router selects this Route ([`super::NOWHERE`]).
fn is_taken_by_none(route: &Value) -> bool {
    route["metadata"]["labels"]["pool"] == super::NOWHERE
}

fn bound_uid(binding: &Value) -> String {
    text(&binding["spec"]["routeUID"]).to_owned()
}

fn label(binding: &Value) -> String {
    text(&binding["spec"]["label"]).to_ascii_lowercase()
}

/// The uid of the Route that has a claim; `None`: it was released.
fn holder(claim: &Value) -> Option<String> {
    claim["spec"]["releasedAt"].is_null().then(|| text(&claim["spec"]["holder"]["uid"]).to_owned())
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// The names of a Route in zones of the platform.
fn names(route: &Value) -> Vec<Name> {
    let names = route["status"]["names"].as_array().into_iter().flatten();
    let own = names.filter(|name| name["type"] == "system" || name["type"] == "alias");
    own.filter_map(|name| text(&name["name"]).parse().ok()).collect()
}

/// The serial that the ledger named last for a zone.
fn newest_version(zone: &Value) -> Option<Serial> {
    zone["spec"]["versions"][0]["serial"].as_u64().map(|serial| Serial(serial as u32))
}

/// RFC 1982.
fn is_older(serial: Serial, than: Serial) -> bool {
    serial.0.wrapping_sub(than.0) > 1 << 31
}

fn sum_of(zone: &Zone) -> u64 {
    let mut sum = DefaultHasher::new();
    for (owner, rrsets) in zone.contents().owners() {
        format!("{owner} {rrsets:?}").hash(&mut sum);
    }
    sum.finish()
}

/// What an object says, in short.
fn conditions(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let said = |one: &Value| format!("{}={}/{}", text(&one["type"]), text(&one["status"]), text(&one["reason"]));
    conditions.map(said).collect::<Vec<_>>().join(" ")
}

/// A write, for the history.
fn told(key: &str, now: Option<&Value>) -> String {
    let Some(now) = now else { return format!("{key} is gone") };
    let spec = &now["spec"];
    let some = ["host", "router", "label", "holder", "releasedAt", "decision", "holderIdentity"];
    let some = some.map(|field| &spec[field]).into_iter().filter(|value| !value.is_null()).map(Value::to_string);
    let serial = spec["versions"][0]["serial"].as_u64().map(|serial| serial.to_string());
    let status =
        [text(&now["status"]["router"]).to_owned(), conditions(now)].into_iter().filter(|text| !text.is_empty());
    let words: Vec<String> = [key.to_owned()].into_iter().chain(serial).chain(some).chain(status).collect();
    words.join(" ")
}
