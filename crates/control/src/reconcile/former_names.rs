//! Former names of bound Routes: their begin and end; and their aliases, after a change of the platform's domain.
//!
//! A former name whose time is over ends when it had no queries for the idle timeout, or the maximum time is over.
//!
//! ```text
//!  the route leaves         retention, caches      query  query
//!  ├────────────────────────────┤────────────────────┤──────┤┄┄┄┄┄┄ idle-timeout ┄┄┄┄┄┄┤ the former name ends
//!                               until: the first check          until: the next check
//! ```
//!
//! The binding's status contains the time of each name's last query, as reported by name servers; without an entry, there was
//! none. A former name that stays gets a later end, so that `until` is always the earliest possible end. Name servers report a
//! name at most a quarter of the idle timeout after their last report, so all queries while a former name waits for its end are
//! known at that time.
//!
//! [`reconcile`] decides, and is pure; [`BindingInfo::former_name_turn`] returns the time of the next check. [`NameWriter`]
//! writes the decisions. `scheduler::rebind` defines former names, and explains why one can begin later.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::client::server::ServerKind;
use crate::scheduler::bind::fence;
use crate::world::binding::alias_to_change;
use crate::world::{BindingInfo, later};
use signpost_types::v1alpha1::route::{FormerName, NameKind, Route};
use signpost_types::v1alpha1::route_binding::{RouteBinding, RouteBindingSpec};

/// The time between two bindings whose names are already due when they are first seen: 500 per second. There can be very many
/// after a long time without a leader or a change of the domain, and they must not delay other work.
const OVERDUE_EVERY: Duration = Duration::from_millis(2);
/// The delay of a check after the time of a name, so that the time is over.
const AFTERWARDS: Duration = Duration::from_millis(10);
/// The longest wait for a date: timers do not advance while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);

/// The reasons for keeping former names beyond their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerNameRetention {
    /// The idle timeout: the time without queries; `None`: queries make no difference.
    pub time: Option<Duration>,
    /// The time after its begin at which a former name ends in any case.
    pub maximum: Duration,
}

impl Default for FormerNameRetention {
    fn default() -> Self {
        FormerNameRetention { time: Some(Duration::from_secs(24 * 3600)), maximum: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// The changes of a binding's names.
#[derive(Debug, PartialEq)]
pub struct Changed {
    /// The new spec.
    pub spec: RouteBindingSpec,
    /// Whether its alias is another one then.
    pub alias: bool,
    /// The former names that end despite recent queries.
    pub ended: Vec<String>,
}

/// Returns the due changes of a binding's names at `now`, on the platform of this domain. Former names whose time is over end if
/// they are idle, and otherwise get a later end. Due former names begin. An alias of another domain is replaced by one of this
/// domain.
pub fn reconcile(binding: &RouteBinding, quiet: FormerNameRetention, domain: &str, now: Timestamp) -> Option<Changed> {
    let alias = alias_to_change(binding, domain);
    let uses = binding.status.as_ref().map_or(&[][..], |status| &status.former_names);
    let asked = |former_name: &FormerName| {
        uses.iter().find(|one| one.name == former_name.name).map(|one| one.last_queried_time.0.min(now))
    };
    let (mut spec, mut ended) = (binding.spec.clone(), Vec::new());
    spec.former_names.retain_mut(|former_name| {
        former_name.from = former_name.from.take().filter(|from| from.0 > now);
        if former_name.until.0 > now {
            return true;
        }
        let asked = asked(former_name).filter(|asked| *asked >= former_name.since.0);
        let (Some(time), Some(asked)) = (quiet.time, asked) else { return false };
        let wanted = later(asked, time);
        let until = wanted.min(later(former_name.since.0, quiet.maximum));
        if until > now {
            former_name.until = Time(until);
        } else if wanted > now {
            ended.push(former_name.name.clone());
        }
        until > now
    });
    if let Some(alias) = &alias {
        let aliases = spec.names.iter_mut().filter(|name| name.kind == NameKind::Alias);
        aliases.for_each(|name| name.name.clone_from(alias));
    }
    let differs = alias.is_some() || spec.former_names != binding.spec.former_names;
    differs.then_some(Changed { spec, alias: alias.is_some(), ended })
}

/// Writes changed names.
#[derive(Clone)]
pub struct NameWriter {
    /// The scheduler's client: only the scheduler may change bindings.
    pub client: kube::Client,
    /// Whether the client is connected to Signpost's own server.
    pub server: Arc<ServerKind>,
    /// The platform's domain.
    pub domain: Arc<str>,
    /// The reasons for keeping former names beyond their time.
    pub quiet: FormerNameRetention,
    /// The time at which the next overdue binding is checked.
    pub next_overdue: Instant,
}

impl NameWriter {
    /// Returns the time at which the names of a changed binding must be checked.
    pub fn time_of(&mut self, binding: &BindingInfo) -> Option<Instant> {
        let (turn, now) = (binding.former_name_turn()?, Instant::now());
        let wait = Duration::try_from(turn.duration_since(Timestamp::now())).unwrap_or_default();
        if wait.is_zero() {
            self.next_overdue = self.next_overdue.max(now) + OVERDUE_EVERY;
            return Some(self.next_overdue);
        }
        Some(now + (wait + AFTERWARDS).min(DATE_LONGEST))
    }

    /// Applies the due changes of names to the binding at `key`, by the current state in the API, while `term` lasts. Returns the
    /// name of the action.
    pub async fn settle(&self, key: &ObjectKey, term: &Term) -> kube::Result<Option<&'static str>> {
        let namespace = key.namespace();
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), namespace);
        let Some(mut binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
        let changed = reconcile(&binding, self.quiet, &self.domain, Timestamp::now());
        let Some(Changed { spec, alias, ended }) = changed.filter(|_| term.is_current()) else { return Ok(None) };
        for name in ended {
            tracing::warn!(route = %key, %name, "removed a former name that is still queried, because it reached \
                                                 former-name.retention-max");
        }
        binding.spec = spec;
        if alias {
            // The Route is bound again at the moment.
            let routes: Api<Route> = Api::namespaced(self.client.clone(), namespace);
            let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
            binding.spec.route_resource_version = route.metadata.resource_version;
        }
        fence(&mut binding, term);
        match bindings.replace(&key.name, &PostParams::default(), &binding).await {
            Ok(_) => {}
            // The key is checked again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(None),
            Err(error) => {
                self.server.failed(&error);
                return Err(error);
            }
        }
        Ok(Some("names_changed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use signpost_types::v1alpha1::route::AssignedName;

    const DOMAIN: &str = "v3.example";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// Returns a binding whose former name began at 1000 and ends at `until`, with a last query at that time.
    fn binding(until: i64, asked: Option<i64>) -> RouteBinding {
        let name = "ns-app.s1.v3.example";
        let uses: Vec<Value> = asked.iter().map(|asked| json!({"name": name, "lastQueriedTime": at(*asked)})).collect();
        serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"namespace": "ns", "name": "app"},
            "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s2", "dns": "s2.v3.example",
                "label": "ns-app", "strategy": "move", "names": [],
                "formerNames": [{"name": name, "router": "s1", "since": at(1_000), "until": at(until)}]},
            "status": {"formerNames": uses},
        }))
        .expect("a RouteBinding")
    }

    #[test]
    fn a_former_name_ends_when_its_name_is_quiet() {
        let quiet = FormerNameRetention { time: Some(Duration::from_secs(100)), maximum: Duration::from_secs(5_000) };
        let off = FormerNameRetention { time: None, ..quiet };
        for (rule, until, asked, now, expected, is_ended) in [
            (quiet, 2_000, Some(1_990), 1_999, Some(2_000), false),
            (quiet, 2_000, None, 2_000, None, false),
            (quiet, 2_000, Some(1_900), 2_000, None, false),
            (quiet, 2_000, Some(1_901), 2_000, Some(2_001), false),
            (quiet, 2_000, Some(1_990), 2_050, Some(2_090), false),
            (off, 2_000, Some(1_990), 2_000, None, false),
            // Reported before the former name began, or by a clock that is ahead.
            (quiet, 1_050, Some(999), 1_050, None, false),
            (quiet, 2_000, Some(9_999), 2_000, Some(2_100), false),
            // The longest time is near, and over.
            (quiet, 5_990, Some(5_980), 5_990, Some(6_000), false),
            (quiet, 6_000, Some(5_999), 6_000, None, true),
            (quiet, 7_000, Some(6_999), 7_000, None, true),
        ] {
            let binding = binding(until, asked);
            let changed = reconcile(&binding, rule, DOMAIN, at(now));
            let (spec, ended) = changed.map_or((binding.spec, Vec::new()), |changed| (changed.spec, changed.ended));
            let found = spec.former_names.first().map(|former_name| former_name.until.0);
            assert_eq!((found, !ended.is_empty()), (expected.map(at), is_ended), "{until} {asked:?} {now}");
        }
    }

    #[test]
    fn a_name_begins_and_an_alias_is_of_the_domain() {
        let mut binding = binding(2_000, None);
        assert_eq!(reconcile(&binding, FormerNameRetention::default(), DOMAIN, at(1_500)), None);
        binding.spec.former_names[0].from = Some(Time(at(1_600)));
        assert_eq!(reconcile(&binding, FormerNameRetention::default(), DOMAIN, at(1_599)), None);
        let begun = reconcile(&binding, FormerNameRetention::default(), DOMAIN, at(1_600)).expect("it begins");
        assert_eq!((&begun.spec.former_names[0].from, begun.alias), (&None, false));
        let alias = |domain: &str| format!("ns-app.routes.{domain}");
        binding.spec.names.push(AssignedName { name: alias("v2.example"), kind: NameKind::Alias, record: None });
        let renamed =
            reconcile(&binding, FormerNameRetention::default(), DOMAIN, at(1_500)).expect("its alias is another one");
        assert_eq!((renamed.spec.names[0].name.as_str(), renamed.alias), (&*alias(DOMAIN), true));
        assert_eq!(renamed.spec.former_names, binding.spec.former_names);
    }

    proptest! {
        /// Any sequence of queries: a former name that is checked whenever its time is over ends neither before its first
        /// end, nor within the idle timeout after a query, nor after the maximum time; and it does end.
        #[test]
        fn it_ends_in_time(
            first in 0_i64..3_000,
            time in 1_u64..500,
            maximum in 0_u64..4_000,
            mut asked in proptest::collection::vec(1_000_i64..9_000, 0..60),
        ) {
            asked.sort_unstable();
            let rule = FormerNameRetention { time: Some(Duration::from_secs(time)), maximum: Duration::from_secs(maximum) };
            let first = 1_000 + first;
            let mut binding = binding(first, None);
            let mut end = None;
            for _ in 0..1_000 {
                let Some(now) = binding.spec.former_names.first().map(|former_name| former_name.until.0) else { break };
                let last = asked.iter().copied().rfind(|second| at(*second) <= now);
                binding.status = self::binding(0, last).status;
                binding.spec = reconcile(&binding, rule, DOMAIN, now).expect("its time is over").spec;
                end = Some(now.as_second());
            }
            prop_assert!(binding.spec.former_names.is_empty());
            let end = end.expect("it was processed");
            let longest = first.max(1_000 + maximum as i64);
            prop_assert!(end >= first && end <= longest);
            let last = asked.iter().copied().rfind(|second| *second <= end);
            prop_assert!(end == longest || last.is_none_or(|last| end - last >= time as i64), "{end} {last:?}");
        }
    }
}
