//! The effects of moves: changed names, affected users, remaining capacity, and the time that caches hold addresses.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::cli::style::{Painter, Style};
use crate::cli::table::{Cell, Table};
use crate::config::rule::duration_text;
use signpost_control::client::reflector::ObjectKey;
use signpost_control::scheduler::rebind::held_by_caches;
use signpost_control::scheduler::simulation::{Simulation, Step};
use signpost_control::world::BindingInfo;
use signpost_types::names;
use signpost_types::v1alpha1::router::RouterState;

/// The prediction. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MovePlan {
    /// The requested action: `move`, `drain`, `cordon`, `uncordon` or `simulate`.
    pub(crate) action: &'static str,
    /// Whether nothing is written.
    pub(crate) dry_run: bool,
    /// The routes that get another Router, and so another name, and the routes that get their first Router.
    pub(crate) moves: Vec<Move>,
    /// The routes that must leave their Router, although no other Router can take them.
    pub(crate) stays: Vec<Stay>,
    pub(crate) users: Vec<Users>,
    pub(crate) hosts: Vec<Host>,
    /// The Routers, before and after.
    pub(crate) capacity: Vec<Capacity>,
    /// The maximum time that caches hold an address of a Router that a Route has left, in seconds.
    pub(crate) caches_seconds: u64,
    /// The time that former names lead to the new ones, in seconds; `None`: not known.
    pub(crate) former_name_seconds: Option<u64>,
    /// Routers that Routes leave and that were deleted or have another zone: no former name stays there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// A route that gets another Router, or its first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Move {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// `None`: it has none yet.
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    /// The system name before and after the move; for a Route without a Router, the requested name.
    pub(crate) name_now: Option<String>,
    pub(crate) name_then: Option<String>,
    pub(crate) alias: Option<String>,
}

/// A route that must leave its Router, although no other Router can take it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stay {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) router: Option<String>,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The users of one namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Users {
    pub(crate) namespace: String,
    /// The number of its Routes that get another name.
    pub(crate) routes: u32,
}

/// A custom host of a route that moves.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Host {
    pub(crate) host: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The record that needs no change, now or ever.
    pub(crate) record: String,
}

/// A Router's load before and after.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Capacity {
    pub(crate) router: String,
    /// `active`, `cordoned` or `draining`, after the change; `None`: the Router is deleted.
    pub(crate) state: Option<RouterState>,
    pub(crate) routes_before: u32,
    pub(crate) routes_after: u32,
    pub(crate) soft: Option<u32>,
    pub(crate) hard: Option<u32>,
    /// The remaining capacity after the change; `None`: unlimited.
    pub(crate) left: Option<u32>,
}

/// The inputs of a prediction, without the simulation.
pub(crate) struct Context {
    pub(crate) domain: String,
    /// `None`: not known.
    pub(crate) former_name_retention: Option<Duration>,
    /// The record that each custom host needs, from the status of its Route.
    pub(crate) records: BTreeMap<ObjectKey, String>,
    /// The bindings before the change.
    pub(crate) bound: BTreeMap<ObjectKey, BindingInfo>,
    pub(crate) now: Timestamp,
}

impl Capacity {
    /// Returns the current Routers.
    pub(crate) fn of(simulation: &Simulation) -> Vec<Capacity> {
        let all = simulation.routers().map(|(router, shard)| Capacity {
            router: router.name.clone(),
            state: Some(router.state),
            routes_before: shard.routes,
            routes_after: shard.routes,
            soft: router.capacity.soft,
            hard: router.capacity.hard,
            left: match router.state {
                RouterState::Active => router.capacity.hard.map(|hard| hard.saturating_sub(shard.routes)),
                RouterState::Cordoned | RouterState::Draining => Some(0),
            },
        });
        all.collect()
    }

    /// Returns the Routers before and after the change, by name. A deleted one has no Routes and no capacity.
    pub(crate) fn compare(before: &[Capacity], after: &Simulation) -> Vec<Capacity> {
        let mut all: BTreeMap<String, Capacity> = BTreeMap::new();
        for gone in before {
            let gone = Capacity { state: None, routes_after: 0, soft: None, hard: None, left: Some(0), ..gone.clone() };
            all.insert(gone.router.clone(), gone);
        }
        for now in Capacity::of(after) {
            let routes_before = all.get(&now.router).map_or(0, |before| before.routes_before);
            all.insert(now.router.clone(), Capacity { routes_before, ..now });
        }
        all.into_values().collect()
    }
}

impl MovePlan {
    pub(crate) fn new(action: &'static str, dry_run: bool) -> MovePlan {
        MovePlan { action, dry_run, former_name_seconds: Some(0), ..MovePlan::default() }
    }

    /// Adds the predicted steps of Routes.
    pub(crate) fn add_steps(&mut self, steps: Vec<Step>, simulation: &Simulation, context: &Context) {
        let mut users: BTreeMap<String, u32> = BTreeMap::new();
        let mut caches = Duration::ZERO;
        for Step { key, from, outcome } in steps {
            let (namespace, name) = (key.namespace.clone().unwrap_or_default(), key.name.clone());
            let placement = match outcome {
                Ok(placement) => placement,
                Err(rejection) => {
                    let (reason, message) = (rejection.reason.to_owned(), rejection.message);
                    self.stays.push(Stay { namespace, name, router: from, reason, message });
                    continue;
                }
            };
            let was = context.bound.get(&key);
            let bound = was.or_else(|| simulation.bound(&key));
            let system = |dns: &str| bound.and_then(|bound| names::system_name(&bound.label, dns));
            let (name_now, name_then) = (was.and_then(|was| system(&was.dns)), system(&placement.dns));
            let alias = bound.map(|bound| names::alias_name(&bound.label, &context.domain));
            // One that goes from a Router that is gone to one with the same zone keeps its name.
            if let Some(from) = from.as_ref().filter(|_| name_now != name_then) {
                *users.entry(namespace.clone()).or_default() += 1;
                let router = simulation.router(from).map(|(router, _)| router);
                caches = caches.max(router.map(|router| held_by_caches(router, context.now)).unwrap_or_default());
                let has_zone = router.is_some_and(|router| was.is_some_and(|was| *was.dns == *router.dns));
                if !has_zone && !self.gone.contains(from) {
                    self.gone.push(from.clone());
                }
                let host = simulation.route(&key).and_then(|route| route.host.as_deref());
                if let (Some(alias), Some(host)) = (&alias, host) {
                    let computed = || names::record_for_host(host, alias);
                    let record = context.records.get(&key).cloned().unwrap_or_else(computed);
                    let (host, namespace, name) = (host.to_owned(), namespace.clone(), name.clone());
                    self.hosts.push(Host { host, namespace, name, record });
                }
            }
            self.moves.push(Move { namespace, name, from, to: placement.router, name_now, name_then, alias });
        }
        self.users.extend(users.into_iter().map(|(namespace, routes)| Users { namespace, routes }));
        self.caches_seconds = self.caches_seconds.max(caches.as_secs());
        if !self.users.is_empty() {
            self.former_name_seconds = context.former_name_retention.map(|retention| retention.max(caches).as_secs());
        }
    }

    /// Returns the advice for the Routes that cannot leave the Router `name`; `None`: all can.
    pub(crate) fn about_stays(&self, name: &str) -> Option<String> {
        let (its, them) = match self.stays.len() {
            0 => return None,
            1 => ("1 of its Routes".to_owned(), "it"),
            count => (format!("{count} of its Routes"), "them"),
        };
        Some(format!(
            "no other Router can take {its}, so {name} does not become empty; the table lists the reasons; change \
             another Router (state, selectors, capacity, records) so that {them} can move immediately, or delete \
             {them}"
        ))
    }

    pub(crate) fn table(&self, painter: Painter) -> String {
        let route = |namespace: &str, name: &str| Cell::from(format!("{namespace}/{name}"));
        let or_dash = |text: &Option<String>| Cell::or_dash(text.clone());
        let number = |number: Option<u32>| Cell::or_dash(number.map(|number| number.to_string()));
        let mut moves = Table::bounded(["ROUTE", "FROM", "TO", "CURRENT NAME", "NEW NAME"]);
        for Move { namespace, name, from, to, name_now, name_then, .. } in &self.moves {
            let names = [or_dash(name_now), or_dash(name_then)];
            moves.row([route(namespace, name), or_dash(from), to.as_str().into()].into_iter().chain(names));
        }
        let mut stays = Table::bounded(["STAYS", "ON", "REASON", "WHY"]);
        for Stay { namespace, name, router, reason, message } in &self.stays {
            let reason = Cell::styled(Style::Warning, reason.as_str());
            stays.row([route(namespace, name), or_dash(router), reason, message.as_str().into()]);
        }
        let mut users = Table::bounded(["NAMESPACE", "ROUTES WITH A NEW NAME"]);
        for Users { namespace, routes } in &self.users {
            users.row([namespace.as_str().into(), routes.to_string().into()]);
        }
        let mut hosts = Table::bounded(["CUSTOM HOST", "CORRECT RECORD"]);
        for Host { host, record, .. } in &self.hosts {
            hosts.row([host.as_str().into(), record.as_str().into()]);
        }
        let mut capacity =
            Table::bounded(["ROUTER", "STATE", "ROUTES BEFORE", "ROUTES AFTER", "SOFT", "HARD", "ROOM LEFT"]);
        for one in &self.capacity {
            capacity.row([
                one.router.as_str().into(),
                one.state.map_or("gone", RouterState::word).into(),
                one.routes_before.to_string().into(),
                one.routes_after.to_string().into(),
                number(one.soft),
                number(one.hard),
                one.left.map_or_else(|| "any".to_owned(), |left| left.to_string()).into(),
            ]);
        }
        let tables = [moves, stays, users, hosts, capacity].into_iter().filter(|table| !table.is_empty());
        let mut text: String = tables.map(|table| table.text(painter) + "\n").collect();
        let notes = self.consequences().into_iter().chain(self.notes.iter().cloned());
        let dry = self.dry_run.then(|| "dry run: nothing was changed".to_owned());
        notes.chain(dry).for_each(|note| text.extend([note.as_str(), "\n"]));
        text
    }

    fn consequences(&self) -> Vec<String> {
        if self.users.is_empty() {
            return Vec::new();
        }
        let mut names = "Aliases point to the new names immediately.".to_owned();
        let leaves_former_name = |one: &Move| {
            one.name_now != one.name_then && one.from.as_ref().is_some_and(|from| !self.gone.contains(from))
        };
        let stay = self.moves.iter().any(leaves_former_name);
        if stay {
            let how_long = match self.former_name_seconds {
                Some(seconds) => format!("for {}", duration_text(seconds)),
                None => "for the platform's former-name.retention, which is unknown".to_owned(),
            };
            names += &format!(
                " The former names stay, as CNAMEs of the new ones, {how_long}. Caches can hold the old addresses for \
                 {}.",
                duration_text(self.caches_seconds)
            );
        }
        let gone = self.gone.iter().map(|gone| {
            format!(
                "{gone} was deleted with its zone: former names there do not resolve, and only aliases lead to the new \
                 names."
            )
        });
        let hosts = (!self.hosts.is_empty()).then(|| {
            let text = match stay {
                true => {
                    "A custom host that is a CNAME of a former name works while that name stays: point it to the \
                     alias. A custom host with the addresses of the old Router must be changed."
                }
                false => "A custom host that is not a CNAME of its alias must be changed.",
            };
            text.to_owned()
        });
        std::iter::once(names).chain(gone).chain(hosts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cli::objects::object;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    /// The prediction for one Route that moves to s2 from a deleted Router whose zone was `zone`.
    fn left_behind(zone: &str) -> MovePlan {
        let mut simulation = Simulation::new("v3.example", Instant::now());
        for name in ["s2", "s3"] {
            let spec = json!({"dns": format!("{name}.v3.example"), "addresses": [{"ip": "192.0.2.1"}]});
            simulation.set_router(object("Router", json!({"name": name}), spec, Value::Null));
        }
        let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
        simulation.set_route(object("Route", metadata.clone(), json!({"host": "www.shop.example"}), Value::Null));
        let spec = json!({"routeNamespace": "shop", "routeName": "web", "routeUID": "u", "router": "s1", "dns": zone,
            "label": "shop-web", "strategy": "weighted", "names": []});
        simulation.set_binding(object("RouteBinding", metadata, spec, Value::Null));
        let key = ObjectKey::namespaced("shop", "web");
        let bound = BTreeMap::from([(key.clone(), simulation.bound(&key).expect("it is bound").clone())]);
        let steps = simulation.move_route(&key, "s2").expect("it is there");
        let context = Context {
            domain: "v3.example".to_owned(),
            former_name_retention: Some(Duration::from_secs(3600)),
            records: BTreeMap::new(),
            bound,
            now: Timestamp::UNIX_EPOCH,
        };
        let mut plan = MovePlan::new("move", true);
        plan.add_steps(steps, &simulation, &context);
        plan
    }

    #[test]
    fn names_of_a_router_that_is_gone() {
        for zone in ["s1.v3.example", "s3.v3.example"] {
            let plan = left_behind(zone);
            assert_eq!((plan.gone.as_slice(), plan.users.len(), plan.hosts.len()), (&["s1".to_owned()][..], 1, 1));
            assert_eq!(plan.consequences().len(), 3, "names, the Router that is gone, hosts");
        }
        // The same zone: the name stays the same, and no user is affected.
        let plan = left_behind("s2.v3.example");
        assert_eq!(plan.moves[0].name_now, plan.moves[0].name_then);
        assert_eq!((plan.consequences().len(), plan.users.len(), plan.hosts.len()), (0, 0, 0));
    }

    #[test]
    fn spans_and_tables() {
        for (seconds, text) in [(0, "0s"), (90, "90s"), (120, "2m"), (604_800, "7d"), (7_200, "2h")] {
            assert_eq!(duration_text(seconds), text);
        }
        let mut plan = MovePlan::new("drain", true);
        assert_eq!(plan.table(Painter::PLAIN), "dry run: nothing was changed\n");
        for number in 0..52 {
            let (namespace, name) = ("shop".to_owned(), format!("r{number}"));
            let (reason, message) = ("Unschedulable".to_owned(), "none can take it".to_owned());
            plan.stays.push(Stay { namespace, name, router: Some("shard1".to_owned()), reason, message });
        }
        let about = plan.about_stays("shard1").expect("there are some");
        assert!(
            about.starts_with("no other Router can take 52 of its Routes, so shard1 does not become empty"),
            "{about}"
        );
        let text = plan.table(Painter::PLAIN);
        let begin = "STAYS      ON       REASON          WHY\nshop/r0    shard1   Unschedulable   none can take it\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.ends_with("and 2 more; use --output json to list all\n\ndry run: nothing was changed\n"),
            "{text}"
        );
        plan.stays.truncate(1);
        let about = plan.about_stays("shard1").expect("there is one");
        assert!(
            about.starts_with("no other Router can take 1 of its Routes") && about.ends_with("or delete it"),
            "{about}"
        );
        plan.stays.clear();
        assert_eq!(plan.about_stays("shard1"), None);
    }
}
