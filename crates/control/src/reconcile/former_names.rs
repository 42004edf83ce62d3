//! Former names of bound Routes: when they begin and end; and their aliases, when the platform has another domain than before.
//!
//! A former name whose time is over ends when it was not asked for in the quiet time, or the longest time is over.
//!
//! ```text
//!  the route leaves         retention, caches      asked  asked
//!  ├────────────────────────────┤────────────────────┤──────┤┄┄┄┄┄┄ idle-timeout ┄┄┄┄┄┄┤ the former name ends
//!                               until: then it is looked at     until: then it is looked at
//! ```
//!
//! When a name was asked last stands in the binding's status, where name servers tell it; nothing there means that nobody
//! asked. A former name that stays gets a later end, so that everyone who reads `until` reads the earliest moment at which it can
//! end by what is known now. Name servers tell of a name a quarter of the quiet time after they last did, at the latest, so
//! whoever asks while a former name waits for its end is known by then.
//!
//! [`reconcile`] decides, and is pure; the next look is due when [`BindingInfo::former_name_turn`] says. [`NameWriter`] writes what
//! was decided. `scheduler::rebind` says what a former name is, and why one may begin later.

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
use signpost_api::v1alpha1::route::{FormerName, NameKind, Route};
use signpost_api::v1alpha1::route_binding::{RouteBinding, RouteBindingSpec};

/// Between two bindings whose names are due already when they are first seen: five hundred a second. There may be very many, when
/// nobody led for long or the domain is another one, and they shall not keep everything else waiting.
const OVERDUE_EVERY: Duration = Duration::from_millis(2);
/// How long after its time a name is looked at, so that the time is over by then.
const AFTERWARDS: Duration = Duration::from_millis(10);
/// Longest wait for a date: timers do not count while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);

/// What keeps former names beyond their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerNameRetention {
    /// How long a name must not have been asked for; `None`: that makes no difference.
    pub time: Option<Duration>,
    /// How long after its begin a former name ends, asked for or not.
    pub maximum: Duration,
}

impl Default for FormerNameRetention {
    fn default() -> Self {
        FormerNameRetention { time: Some(Duration::from_secs(24 * 3600)), maximum: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// A binding whose names are to be changed.
#[derive(Debug, PartialEq)]
pub struct Changed {
    /// What it is to say.
    pub spec: RouteBindingSpec,
    /// Whether its alias is another one then.
    pub alias: bool,
    /// The former names that end though they were asked for lately.
    pub ended: Vec<String>,
}

/// What is to become of a binding's names by `now`, on the platform of this domain: former names whose time is over end if their names
/// are quiet, and else get a later end; those begin whose time has come; and an alias of another domain becomes one of this.
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
    /// Speaks as the scheduler: none but that may change bindings.
    pub client: kube::Client,
    /// Whether that is to our own server.
    pub server: Arc<ServerKind>,
    /// The platform's domain.
    pub domain: Arc<str>,
    /// What keeps former names beyond their time.
    pub quiet: FormerNameRetention,
    /// When the next binding is looked at that is overdue.
    pub next_overdue: Instant,
}

impl NameWriter {
    /// When the names of a binding that has changed are to be looked at.
    pub fn time_of(&mut self, binding: &BindingInfo) -> Option<Instant> {
        let (turn, now) = (binding.former_name_turn()?, Instant::now());
        let wait = Duration::try_from(turn.duration_since(Timestamp::now())).unwrap_or_default();
        if wait.is_zero() {
            self.next_overdue = self.next_overdue.max(now) + OVERDUE_EVERY;
            return Some(self.next_overdue);
        }
        Some(now + (wait + AFTERWARDS).min(DATE_LONGEST))
    }

    /// Changes the names of the binding at `key` as they are due by what the API says now, while `term` lasts. The answer names
    /// what was done.
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
            // It is bound anew, as the Route is at the moment.
            let routes: Api<Route> = Api::namespaced(self.client.clone(), namespace);
            let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
            binding.spec.route_resource_version = route.metadata.resource_version;
        }
        fence(&mut binding, term);
        match bindings.replace(&key.name, &PostParams::default(), &binding).await {
            Ok(_) => {}
            // It is looked at again.
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
    use signpost_api::v1alpha1::route::AssignedName;

    const DOMAIN: &str = "v3.example";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// A binding whose former name began at 1000 and ends at `until`, asked last at `asked`.
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
            // Told before the former name began, or by a clock that is ahead.
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
        /// Whatever is asked when: a former name that is looked at whenever its time is over ends neither before its first end, nor
        /// within the quiet time after a question, nor after the longest time; and it does end.
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
            let end = end.expect("it was looked at");
            let longest = first.max(1_000 + maximum as i64);
            prop_assert!(end >= first && end <= longest);
            let last = asked.iter().copied().rfind(|second| *second <= end);
            prop_assert!(end == longest || last.is_none_or(|last| end - last >= time as i64), "{end} {last:?}");
        }
    }
}
