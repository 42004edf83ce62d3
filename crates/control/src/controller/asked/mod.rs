//! Reporting of queries for former names of moved routes: this name server's part in the decision when former names end.
//!
//! ```text
//!  RouteBindings ─► Register: all former names ─► zone::last_queried ◄─ records ─ query threads
//!  (spec.formerNames)        │ periodically: queried names
//!                       └─► status.formerNames[].lastQueriedTime of the RouteBinding ─► the scheduler, which ends former names
//! ```
//!
//! A query for a former name costs a table lookup and one store per second. The rest happens here, at its own rate. A name server
//! reports the first query for a former name immediately. It reports later queries when a quarter of the idle timeout has passed
//! since the last report by any name server. So a former name that is queried all day is written four times per idle timeout, for
//! any number of clients. The last query of a name is reported too, and a name without queries is never written.
//!
//! A name server that is killed loses its unreported queries, which cover at most a quarter of the idle timeout; clients query
//! names in use again. A name server that cannot reach the API reports nothing. It does not receive the end of a former name
//! either, and so continues to serve it.

pub mod register;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

use self::register::{Register, UsageReport};
use crate::client::backoff::Backoff;
use crate::client::write::update_status;
use signpost_types::v1alpha1::route_binding::{FormerNameUse, RouteBinding};

/// The fraction of the idle timeout between two reports of a former name.
pub const PARTS: u32 = 4;
/// The number of checks for queried names between two reports, within these bounds.
const LOOKS: u32 = 4;
const LOOK_BOUNDS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The highest rate of writes to bindings. With an idle timeout of a day, it suffices for 400,000 former names that are all
/// queried.
const WRITES_A_SECOND: f64 = 20.0;
/// Writes at a time.
const WRITES_AT_A_TIME: usize = 4;
/// The time limit for one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// Waits after failures, the first and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Reports queries until `stop`, on a platform that ends former names without queries for `quiet`.
pub async fn run(client: kube::Client, register: Arc<Register>, quiet: Duration, stop: CancellationToken) {
    let pause = quiet / PARTS;
    let look = (pause / LOOKS).clamp(LOOK_BOUNDS.0, LOOK_BOUNDS.1);
    let writes_max = ((look.as_secs_f64() * WRITES_A_SECOND) as usize).max(1);
    let mut ticks = tokio::time::interval(look);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::new(RETRY[0], RETRY[1]);
    let mut not_before = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if Instant::now() < not_before {
            continue;
        }
        let now = Timestamp::now();
        let due = register.due(now, pause, writes_max);
        let reported =
            futures::stream::iter(due).map(|due| report(&client, due, now, pause)).buffer_unordered(WRITES_AT_A_TIME);
        let reported: Vec<_> = tokio::select! {
            () = stop.cancelled() => return,
            reported = reported.collect() => reported,
        };
        let mut failure = None;
        for reported in reported {
            match reported {
                Ok(due) => register.reported(&due),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            None => backoff.reset(),
            Some(error) => {
                tracing::warn!(%error, "failed to report the use of former names to the API; retrying");
                not_before = Instant::now() + backoff.next_wait();
            }
        }
    }
}

/// Reports the due names of one binding. Returns the binding if it was reported, or needs no report.
async fn report(
    client: &kube::Client,
    due: UsageReport,
    now: Timestamp,
    pause: Duration,
) -> Result<UsageReport, String> {
    let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), due.key.namespace());
    let change = |binding: &RouteBinding| change(binding, &due.queried, now, pause);
    match timeout(WRITE_TIMEOUT, update_status(&bindings, &due.key.name, change)).await {
        Ok(Ok(_)) => Ok(due),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API did not answer in time".to_owned()),
    }
}

/// Returns the new status of a binding whose names were queried at these times, in seconds since 1970; `None` if the status is
/// recent enough, because another name server has just reported them.
fn change(binding: &RouteBinding, queried: &HashMap<Box<str>, u64>, now: Timestamp, pause: Duration) -> Option<Value> {
    let reported = binding.status.as_ref().map_or(&[][..], |status| &status.former_names);
    let mut is_news = false;
    let mut uses = Vec::new();
    for former in &binding.spec.former_names {
        let before =
            reported.iter().find(|reported| reported.name == former.name).map(|reported| reported.last_queried_time.0);
        let seen = queried.get(former.name.as_str()).and_then(|second| {
            let seen = Timestamp::from_second(i64::try_from(*second).ok()?).ok()?;
            // The query may be old, from an earlier former name with this label.
            (seen >= former.since.0).then_some(seen)
        });
        let is_newer = |seen: Timestamp, before: Timestamp| {
            seen > before && Duration::try_from(now.duration_since(before)).is_ok_and(|passed| passed >= pause)
        };
        let last = match (before, seen) {
            (Some(before), Some(seen)) if !is_newer(seen, before) => before,
            (_, Some(seen)) => {
                is_news = true;
                seen
            }
            (Some(before), None) => before,
            (None, None) => continue,
        };
        uses.push(FormerNameUse { name: former.name.clone(), last_queried_time: Time(last) });
    }
    is_news.then(|| json!({"formerNames": uses}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn only_news_is_reported() {
        let binding = |reported: Value| -> RouteBinding {
            serde_json::from_value(json!({
                "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"namespace": "ns", "name": "app"},
                "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s3", "dns": "s3.v3.example",
                    "label": "ns-app", "strategy": "move", "names": [], "formerNames": [
                        {"name": "ns-app.s1.v3.example", "router": "s1", "since": at(1_000), "until": at(9_000)},
                        {"name": "ns-app.s2.v3.example", "router": "s2", "since": at(2_000), "until": at(9_000)}]},
                "status": {"formerNames": reported},
            }))
            .expect("a RouteBinding")
        };
        let reported =
            |name: &str, second| json!({"name": format!("ns-app.{name}.v3.example"), "lastQueriedTime": at(second)});
        let queried = |names: &[(&str, u64)]| -> HashMap<Box<str>, u64> {
            names.iter().map(|(name, second)| (format!("ns-app.{name}.v3.example").into(), *second)).collect()
        };
        for (before, seen, expected) in [
            (vec![], vec![], None),
            (vec![], vec![("s1", 3_000)], Some(vec![("s1", 3_000)])),
            // Before the former name began, and for a label without a former name.
            (vec![], vec![("s1", 999), ("s9", 3_000)], None),
            (vec![("s1", 3_101)], vec![("s1", 3_150)], None),
            (vec![("s1", 3_100)], vec![("s1", 3_150)], Some(vec![("s1", 3_150)])),
            (vec![("s1", 3_000)], vec![("s1", 3_001)], Some(vec![("s1", 3_001)])),
            (vec![("s1", 3_000)], vec![("s1", 2_000)], None),
            // Reports of other former names are kept, and entries without a former name are removed.
            (
                vec![("s1", 3_150), ("s0", 5)],
                vec![("s2", 3_001), ("s1", 3_190)],
                Some(vec![("s1", 3_150), ("s2", 3_001)]),
            ),
        ] {
            let before: Vec<Value> = before.into_iter().map(|(name, second)| reported(name, second)).collect();
            let expected = expected
                .map(|uses| uses.into_iter().map(|(name, second)| reported(name, second)).collect::<Vec<Value>>())
                .map(|uses| json!({"formerNames": uses}));
            let found =
                change(&binding(Value::from(before.clone())), &queried(&seen), at(3_200), Duration::from_secs(100));
            assert_eq!(found, expected, "{before:?} {seen:?}");
        }
    }
}
