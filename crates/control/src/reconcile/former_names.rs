//! Former names of bound Routes: their begin and end; and their aliases, after a change of the platform's domain.
//!
//! A move sets the end of the former name, `until`, and the name ends at that time. Until then its status shows it.
//!
//! [`reconcile`] decides, and is pure; [`BindingInfo::former_name_turn`] returns the time of the next change. [`NameWriter`]
//! writes the decisions. `scheduler::rebind` defines former names, and explains why one can begin later.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::client::server::ServerKind;
use crate::scheduler::bind::fence;
use crate::world::BindingInfo;
use crate::world::binding::alias_to_change;
use signpost_types::names::record_for_host;
use signpost_types::v1alpha1::route::{NameKind, Route};
use signpost_types::v1alpha1::route_binding::{RouteBinding, RouteBindingSpec};

/// The time between two bindings whose names are already due when they are first seen: 500 per second. There can be very many
/// after a long time without a leader or a change of the domain, and they must not delay other work.
const OVERDUE_EVERY: Duration = Duration::from_millis(2);
/// The delay of a check after the time of a name, so that the time is over.
const AFTERWARDS: Duration = Duration::from_millis(10);
/// The longest wait for a date: timers do not advance while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);

/// The changes of a binding's names.
#[derive(Debug, PartialEq)]
pub struct Changed {
    pub spec: RouteBindingSpec,
    /// Whether its alias is another one then.
    pub alias: bool,
}

/// Returns the due changes of a binding's names at `now`, on the platform of this domain. Former names whose time is over end, and
/// due former names begin. An alias of another domain, and the record of the host, are replaced by those of this domain.
pub fn reconcile(binding: &RouteBinding, domain: &str, now: Timestamp) -> Option<Changed> {
    let alias = alias_to_change(binding, domain);
    let mut spec = binding.spec.clone();
    spec.former_names.retain_mut(|former_name| {
        former_name.from = former_name.from.take().filter(|from| from.0 > now);
        former_name.until.0 > now
    });
    if let Some(alias) = &alias {
        for name in &mut spec.names {
            match name.kind {
                NameKind::Alias => name.name.clone_from(alias),
                NameKind::Custom => name.record = Some(record_for_host(&name.name, alias)),
                NameKind::System | NameKind::Adopted => {}
            }
        }
    }
    let differs = alias.is_some() || spec.former_names != binding.spec.former_names;
    differs.then_some(Changed { spec, alias: alias.is_some() })
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
        let changed = reconcile(&binding, &self.domain, Timestamp::now());
        let Some(Changed { spec, alias }) = changed.filter(|_| term.is_current()) else { return Ok(None) };
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;
    use signpost_types::v1alpha1::route::AssignedName;

    const DOMAIN: &str = "v3.example";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// Returns a binding whose former name began at 1000 and ends at 2000, and whose other one ends at 3000.
    fn binding() -> RouteBinding {
        let former = |shard: &str, until| json!({"name": format!("ns-app.{shard}.v3.example"), "router": shard, "since": at(1_000), "until": at(until)});
        serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"namespace": "ns", "name": "app"},
            "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s3", "dns": "s3.v3.example",
                "label": "ns-app", "strategy": "move", "names": [],
                "formerNames": [former("s1", 2_000), former("s2", 3_000)]},
        }))
        .expect("a RouteBinding")
    }

    #[test]
    fn a_former_name_ends_at_its_time() {
        let binding = binding();
        for (now, left) in [(1_999, None), (2_000, Some(vec!["s2"])), (2_999, Some(vec!["s2"])), (3_000, Some(vec![]))]
        {
            let changed = reconcile(&binding, DOMAIN, at(now));
            let found = changed.as_ref().map(|changed| {
                let left = changed.spec.former_names.iter();
                left.map(|former_name| former_name.router.as_str()).collect::<Vec<_>>()
            });
            assert_eq!(found, left, "{now}");
            let mut expected = binding.spec.clone();
            expected.former_names.retain(|former_name| former_name.until.0 > at(now));
            assert!(changed.is_none_or(|changed| changed == Changed { spec: expected, alias: false }), "{now}");
        }
    }

    #[test]
    fn a_name_begins_and_an_alias_is_of_the_domain() {
        let mut binding = binding();
        assert_eq!(reconcile(&binding, DOMAIN, at(1_500)), None);
        binding.spec.former_names[0].from = Some(Time(at(1_600)));
        assert_eq!(reconcile(&binding, DOMAIN, at(1_599)), None);
        let begun = reconcile(&binding, DOMAIN, at(1_600)).expect("it begins");
        assert_eq!((&begun.spec.former_names[0].from, begun.alias), (&None, false));
        let alias = |domain: &str| format!("ns-app.routes.{domain}");
        binding.spec.names.push(AssignedName { name: alias("v2.example"), kind: NameKind::Alias, record: None });
        let renamed = reconcile(&binding, DOMAIN, at(1_500)).expect("its alias is another one");
        assert_eq!((renamed.spec.names[0].name.as_str(), renamed.alias), (&*alias(DOMAIN), true));
        // The record of the host follows, also if only the alias has changed before.
        let record = |domain: &str| Some(format!("shop.test. IN CNAME {}.", alias(domain)));
        let custom =
            AssignedName { name: "shop.test".to_owned(), kind: NameKind::Custom, record: record("v2.example") };
        binding.spec.names = vec![AssignedName { name: alias(DOMAIN), ..binding.spec.names[0].clone() }, custom];
        let renamed = reconcile(&binding, DOMAIN, at(1_500)).expect("its record is another one");
        assert_eq!(renamed.spec.names[1].record, record(DOMAIN));
        let again = RouteBinding { spec: renamed.spec.clone(), ..binding.clone() };
        assert_eq!(reconcile(&again, DOMAIN, at(1_500)), None);
        assert_eq!(renamed.spec.former_names, binding.spec.former_names);
    }
}
