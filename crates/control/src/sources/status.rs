//! The entries of Signpost in `status.parents[]` of the Routes of Gateway API: pure.
//!
//! An entry is one of a parent and of the controller [`CONTROLLER`]. It has the conditions [`PUBLISHED`] and [`RESOLVABLE`], and never
//! `Accepted`, which belongs to the implementation of the Gateway. All writers share the list, so each keeps the entries of others.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::inventory::ParentRef;
use crate::world::condition::Status;
use signpost_types::text::{MESSAGE_OCTETS_MAX, cut};
use signpost_types::v1alpha1::route::{self, Phase, Route};

/// The name under which Signpost writes into the status of other APIs.
pub const CONTROLLER: &str = "signpost.dev/dns";
/// Whether the zones of the platform have the hosts.
pub const PUBLISHED: &str = "signpost.dev/Published";
/// Whether every name server answers correctly for them.
pub const RESOLVABLE: &str = "signpost.dev/Resolvable";
/// The most entries of the list, by the schema of Gateway API.
const ENTRIES_MAX: usize = 32;
/// The most hosts in a message.
const HOSTS_SHOWN_MAX: usize = 4;
/// The reason of a condition that is not known yet.
pub const PENDING: &str = "Pending";

/// The state of one condition of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    pub reason: String,
    pub message: String,
}

/// A host of a source, and what the platform has achieved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostState {
    pub host: String,
    /// The stable name of the Route.
    pub alias: Option<String>,
    pub published: Outcome,
    pub resolvable: Outcome,
}

impl HostState {
    /// Returns the state of a host by the Route that was derived for it.
    pub fn of(host: &str, route: Option<&Route>) -> HostState {
        let status = route.and_then(|route| route.status.clone()).unwrap_or_default();
        let outcome = |kind: &str| {
            let find = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
            let refused = [route::ADMITTED, route::SCHEDULED]
                .into_iter()
                .find_map(|kind| find(kind).filter(|condition| condition.status == "False"));
            let said = if status.phase == Phase::Scheduled { find(kind) } else { refused };
            match said {
                Some(condition) => Outcome {
                    status: match &*condition.status {
                        "True" => Status::True,
                        "False" => Status::False,
                        _ => Status::Unknown,
                    },
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                },
                None => Outcome {
                    status: Status::Unknown,
                    reason: PENDING.to_owned(),
                    message: "the platform has not processed it yet".to_owned(),
                },
            }
        };
        HostState {
            host: host.to_owned(),
            alias: status.canonical_name.clone(),
            published: outcome(route::PUBLISHED),
            resolvable: outcome(route::RESOLVABLE),
        }
    }

    /// Returns the state of a host that is not published for a reason.
    pub fn refused(host: &str, reason: &str, message: &str) -> HostState {
        let no = Outcome { status: Status::False, reason: reason.to_owned(), message: message.to_owned() };
        HostState { host: host.to_owned(), alias: None, published: no.clone(), resolvable: no }
    }
}

/// Returns the outcome on several hosts: the worst one, and the messages, the worst first.
pub fn overall(hosts: &[&HostState], part: impl Fn(&HostState) -> &Outcome) -> Outcome {
    let rank = |state: &&HostState| match part(state).status {
        Status::False => 0,
        Status::Unknown => 1,
        Status::True => 2,
    };
    let mut sorted: Vec<&HostState> = hosts.to_vec();
    sorted.sort_by_key(rank);
    let Some(worst) = sorted.first() else {
        let message = "it has no host on this parent".to_owned();
        return Outcome { status: Status::False, reason: "NoHost".to_owned(), message };
    };
    let line = |state: &&HostState| {
        let alias = state.alias.as_ref().map(|alias| format!(" (alias {alias})"));
        format!("{}{}: {}", state.host, alias.unwrap_or_default(), part(state).message)
    };
    let mut message = sorted.iter().take(HOSTS_SHOWN_MAX).map(line).collect::<Vec<_>>().join("; ");
    if sorted.len() > HOSTS_SHOWN_MAX {
        message += &format!("; and {} more hosts", sorted.len() - HOSTS_SHOWN_MAX);
    }
    let Outcome { status, reason, .. } = part(worst).clone();
    Outcome { status, reason, message: cut(&message, MESSAGE_OCTETS_MAX).to_owned() }
}

/// An entry to write: the parent as the Route names it, and the outcomes on its hosts there.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub parent: Value,
    pub published: Outcome,
    pub resolvable: Outcome,
}

/// A list of entries with those of Signpost.
#[derive(Debug, PartialEq)]
pub struct Merged {
    pub parents: Vec<Value>,
    pub is_changed: bool,
    /// The wanted entries that the list has no room for.
    pub left_out: usize,
}

/// Puts the wanted entries of Signpost into the list of an object in this namespace, and removes its other ones.
pub fn merged(list: &[Value], wanted: &[Wanted], namespace: &str, generation: Option<i64>, now: Timestamp) -> Merged {
    let is_of = |entry: &Value, parent: &Value| reference(&entry["parentRef"]).is_same(&reference(parent), namespace);
    let mut parents: Vec<Value> = Vec::new();
    let mut placed = BTreeSet::new();
    for entry in list {
        if !is_own(entry) {
            parents.push(entry.clone());
            continue;
        }
        let found = wanted.iter().position(|one| is_of(entry, &one.parent));
        if let Some(index) = found.filter(|index| placed.insert(*index)) {
            parents.push(wanted[index].entry(Some(entry), generation, now));
        }
    }
    let missing: Vec<&Wanted> =
        wanted.iter().enumerate().filter(|(index, _)| !placed.contains(index)).map(|(_, one)| one).collect();
    let room = ENTRIES_MAX.saturating_sub(parents.len());
    parents.extend(missing.iter().take(room).map(|one| one.entry(None, generation, now)));
    Merged { is_changed: parents != list, parents, left_out: missing.len().saturating_sub(room) }
}

/// Returns whether Signpost wrote an entry.
pub fn is_own(entry: &Value) -> bool {
    entry["controllerName"] == CONTROLLER
}

/// Reads a reference to a parent.
pub fn reference(value: &Value) -> ParentRef {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

impl Wanted {
    /// Returns the entry; a condition keeps the time of its last transition from the entry before.
    fn entry(&self, before: Option<&Value>, generation: Option<i64>, now: Timestamp) -> Value {
        let condition = |kind: &str, outcome: &Outcome| {
            let conditions = before.and_then(|entry| entry["conditions"].as_array()).into_iter().flatten();
            let mut before = conditions.filter(|condition| condition["type"] == kind);
            let same = before.rfind(|condition| condition["status"] == outcome.status.text());
            let since = same.and_then(|condition| condition["lastTransitionTime"].as_str()?.parse().ok());
            Condition {
                type_: kind.to_owned(),
                status: outcome.status.text().to_owned(),
                reason: outcome.reason.clone(),
                message: outcome.message.clone(),
                observed_generation: generation,
                last_transition_time: Time(since.unwrap_or(now)),
            }
        };
        let conditions = [condition(PUBLISHED, &self.published), condition(RESOLVABLE, &self.resolvable)];
        // The reference is not changed, because the API may have filled in its defaults.
        let parent = before.map_or(&self.parent, |entry| &entry["parentRef"]);
        json!({"parentRef": parent, "controllerName": CONTROLLER, "conditions": conditions})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Status, reason: &str) -> Outcome {
        Outcome { status, reason: reason.to_owned(), message: format!("because {reason}") }
    }

    fn host(name: &str, status: Status, reason: &str) -> HostState {
        let alias = (status == Status::True).then(|| format!("{name}.alias"));
        HostState {
            host: name.to_owned(),
            alias,
            published: outcome(status, reason),
            resolvable: outcome(Status::Unknown, PENDING),
        }
    }

    #[test]
    fn the_worst_host_decides() {
        let (good, bad) = (host("a", Status::True, "Published"), host("b", Status::False, "NotPublished"));
        let (new, second) = (host("c", Status::Unknown, PENDING), host("d", Status::True, "Published"));
        for (hosts, status, reason, message) in [
            (vec![], Status::False, "NoHost", "it has no host on this parent"),
            (vec![&good], Status::True, "Published", "a (alias a.alias): because Published"),
            (vec![&good, &new], Status::Unknown, PENDING, "c: because Pending; a (alias a.alias): because Published"),
            (
                vec![&good, &new, &bad],
                Status::False,
                "NotPublished",
                "b: because NotPublished; c: because Pending; a (alias a.alias): because Published",
            ),
            (
                vec![&good, &second, &good, &second, &good],
                Status::True,
                "Published",
                "a (alias a.alias): because Published; d (alias d.alias): because Published; a (alias a.alias): because \
                 Published; d (alias d.alias): because Published; and 1 more hosts",
            ),
        ] {
            let found = overall(&hosts, |state| &state.published);
            assert_eq!(found, Outcome { status, reason: reason.to_owned(), message: message.to_owned() });
        }
    }

    #[test]
    fn entries_of_others_stay_and_stale_own_ones_go() {
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let wanted = |parent: Value, status: Status| Wanted {
            parent,
            published: outcome(status, "R"),
            resolvable: outcome(Status::Unknown, PENDING),
        };
        let foreign = |name: &str| json!({"parentRef": {"name": name}, "controllerName": "example.com/envoy", "conditions": [], "extra": 1});
        let eu = || wanted(json!({"name": "eu"}), Status::False);
        let first = merged(&[foreign("eu")], &[eu()], "shop", Some(3), at(10));
        assert_eq!((first.parents.len(), first.is_changed, first.left_out), (2, true, 0));
        assert_eq!(first.parents[0], foreign("eu"));
        let own = &first.parents[1];
        assert_eq!(own["controllerName"], CONTROLLER);
        let kinds: Vec<&Value> = own["conditions"].as_array().expect("a list").iter().map(|one| &one["type"]).collect();
        assert_eq!(kinds, [PUBLISHED, RESOLVABLE]);
        assert!(own["conditions"].as_array().expect("a list").iter().all(|one| one["observedGeneration"] == 3));
        // The same again changes nothing, also after the API has filled in defaults.
        let mut stored = first.parents.clone();
        stored[1]["parentRef"] = json!({
            "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eu", "namespace": "shop",
        });
        assert_eq!(
            merged(&stored, &[eu()], "shop", Some(3), at(20)),
            Merged { parents: stored.clone(), is_changed: false, left_out: 0 }
        );
        // A transition has its time, and nothing else does.
        let later = merged(&stored, &[wanted(json!({"name": "eu"}), Status::True)], "shop", Some(4), at(30));
        let times = |entry: &Value| {
            let conditions = entry["conditions"].as_array().expect("a list");
            conditions
                .iter()
                .map(|one| one["lastTransitionTime"].as_str().expect("a time").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(times(&later.parents[1]), ["1970-01-01T00:00:30Z", "1970-01-01T00:00:10Z"]);
        // Another section of the same parent is another entry; the stale one goes.
        let https = json!({"name": "eu", "sectionName": "https"});
        let moved = merged(&stored, &[wanted(https.clone(), Status::True)], "shop", Some(4), at(40));
        assert_eq!((&moved.parents[0], &moved.parents[1]["parentRef"]), (&foreign("eu"), &https));
        assert_eq!(moved.parents.len(), 2);
        assert_eq!(merged(&stored, &[], "shop", Some(4), at(40)).parents, [foreign("eu")]);
        // A list that is full of others' entries.
        let full: Vec<Value> = (0..31).map(|number| foreign(&number.to_string())).collect();
        let both = [eu(), wanted(https, Status::True)];
        let found = merged(&full, &both, "shop", None, at(50));
        assert_eq!((found.parents.len(), found.left_out), (32, 1));
    }

    #[test]
    fn the_state_of_a_host_is_that_of_its_route() {
        let route = |status: Value| -> Route {
            serde_json::from_value(json!({
                "apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "r", "namespace": "shop"},
                "spec": {}, "status": status,
            }))
            .expect("a Route")
        };
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": "m",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        for (status, published, resolvable) in [
            (json!({}), (Status::Unknown, PENDING), (Status::Unknown, PENDING)),
            (
                json!({"phase": "new", "conditions": [condition("Admitted", "False", "HostAlreadyClaimed")]}),
                (Status::False, "HostAlreadyClaimed"),
                (Status::False, "HostAlreadyClaimed"),
            ),
            (
                json!({"phase": "scheduled", "conditions": [condition("Published", "True", "Published")]}),
                (Status::True, "Published"),
                (Status::Unknown, PENDING),
            ),
            (
                json!({"phase": "scheduled", "conditions": [
                    condition("Published", "True", "Published"), condition("Resolvable", "False", "NotAnswering"),
                ]}),
                (Status::True, "Published"),
                (Status::False, "NotAnswering"),
            ),
        ] {
            let found = HostState::of("h", Some(&route(status)));
            assert_eq!((found.published.status, &*found.published.reason), published);
            assert_eq!((found.resolvable.status, &*found.resolvable.reason), resolvable);
        }
        assert_eq!(HostState::of("h", None).published.reason, PENDING);
    }
}
