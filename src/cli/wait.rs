//! `signpost wait`: until a route or a Router is as wished, for scripts.

use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{self, Access, Place};
use super::output::{self, Format};
use super::style::{Painter, Style};
use super::table::{Cell, Facts};
use super::{Exit, complain, progress};
use signpost_api::v1alpha1::route::{
    ADMITTED, HOST_POINTS_HERE, HOST_PROVEN, MOVE_PENDING, PUBLISHED, Phase, RESOLVABLE, Route, SCHEDULED,
};
use signpost_api::v1alpha1::router::{ACCEPTED, ADDRESSES_HEALTHY, DRAINED, READY, Router, ZONE_PUBLISHED};

/// What a route can be waited for to be.
const OF_ROUTES: &[&str] = &[SCHEDULED, ADMITTED, HOST_PROVEN, PUBLISHED, RESOLVABLE, HOST_POINTS_HERE, MOVE_PENDING];
/// What a Router can be waited for to be.
const OF_ROUTERS: &[&str] = &[READY, ACCEPTED, ADDRESSES_HEALTHY, ZONE_PUBLISHED, DRAINED];
/// What a condition can be.
const STATUSES: &[&str] = &["True", "False", "Unknown"];
/// Longest wait.
const TIMEOUT_MAX: u64 = 86_400;

pub(super) fn command() -> Command {
    let kind = Arg::new("kind")
        .value_name("KIND")
        .required(true)
        .value_parser(["route", "router"])
        .help("What to wait for: a route or a Router");
    let name = Arg::new("name")
        .value_name("[NAMESPACE/]NAME")
        .required(true)
        .value_parser(access::object_name)
        .help("Its name; a route's with its namespace, unless it is the one of the context or of --namespace");
    let condition = Arg::new("for").long("for").value_name("CONDITION").value_parser(Wish::parse).help(
        "scheduled, published, resolvable, or another condition such as Ready or Admitted=False [default: scheduled for a \
             route, ready for a Router]",
    );
    let timeout = Arg::new("timeout")
        .long("timeout")
        .value_name("DURATION")
        .default_value("60s")
        .value_parser(duration)
        .help("How long to wait, such as 30s or 5m, at most 24h");
    Command::new("wait")
        .about("Waits until a route or a Router is as wished")
        .after_help(
            "An object that is not there yet is waited for, too. Exit codes: 0 it is as wished, 1 it is not in time \
             or the API does not answer, 2 called wrongly.",
        )
        .args([kind, name, condition, timeout])
        .arg(access::namespace_argument())
        .arg(output::argument())
        .args(access::arguments())
}

/// A whole number of seconds, minutes or hours.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "must be a whole number and s, m or h, such as 30s, at least 1s and at most 24h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(expected)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(expected()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=TIMEOUT_MAX).contains(seconds)).map(Duration::from_secs).ok_or_else(expected)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let place = match Place::of(matches) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let is_route = matches.get_one::<String>("kind").is_some_and(|kind| kind == "route");
    let (namespace, name) = matches.get_one::<(Option<String>, String)>("name").expect("clap demands it");
    if !is_route && namespace.is_some() {
        complain("a Router is in no namespace: give its name alone");
        return Exit::Usage;
    }
    if let Err(exit) = access::agrees(matches, namespace.as_deref()) {
        return exit;
    }
    let (fallback, known) = if is_route { (SCHEDULED, OF_ROUTES) } else { (READY, OF_ROUTERS) };
    let wish = matches.get_one::<Wish>("for").cloned();
    let wish = wish.unwrap_or(Wish { condition: fallback.to_owned(), status: "True".to_owned() });
    if !known.iter().any(|known| known.eq_ignore_ascii_case(&wish.condition)) {
        let kind = if is_route { "route" } else { "Router" };
        complain(format_args!("a {kind} is never {}: --for takes {}", wish.condition, known.join(", ")));
        return Exit::Usage;
    }
    let timeout = *matches.get_one::<Duration>("timeout").expect("it has a default");
    // The wait ends by itself; connecting is given its own time.
    let outcome = access::run(timeout + access::API_TIMEOUT, async {
        let access = place.connect().await?;
        let namespace = namespace.clone().unwrap_or_else(|| access.namespace.clone());
        let (shown, waiting) = if is_route {
            (format!("route {namespace}/{name}"), format!("waiting for {}", wish.condition))
        } else {
            (format!("Router {name}"), format!("waiting for {}", wish.condition))
        };
        let work = async {
            if is_route {
                let api: Api<Route> = Api::namespaced(access.client.clone(), &namespace);
                wish.wait(&access, api, name, timeout).await
            } else {
                let api: Api<Router> = Api::all(access.client.clone());
                wish.wait(&access, api, name, timeout).await
            }
        };
        let found = progress::during(&waiting, work).await?;
        Ok(Report { object: shown, condition: wish.condition.clone(), wanted: wish.status.clone(), found })
    });
    let format = Format::of(matches);
    let printed =
        outcome.and_then(|report| format.show(&report, |painter| report.text(painter)).map(|()| report.found.met));
    match printed {
        Ok(true) => Exit::Success,
        Ok(false) => Exit::Failure,
        Err(error) => super::exit_of(Err(error)),
    }
}

/// What is waited for: a condition with a status.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    condition: String,
    status: String,
}

impl Wish {
    fn parse(text: &str) -> Result<Wish, &'static str> {
        let (condition, status) = text.split_once('=').unwrap_or((text, "True"));
        if condition.is_empty() || !STATUSES.iter().any(|known| known.eq_ignore_ascii_case(status)) {
            return Err("must be a condition, alone or with True, False or Unknown: resolvable, Ready=False");
        }
        Ok(Wish { condition: condition.to_owned(), status: status.to_owned() })
    }

    /// Watches the object until it is as wished or the time is over; what was seen last.
    async fn wait<K>(&self, access: &Access, api: Api<K>, name: &str, limit: Duration) -> Result<Found, String>
    where
        K: Waited + Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let started = Instant::now();
        let mut found = Found { message: "the API has not answered yet".to_owned(), ..Found::default() };
        let watching = async {
            // A wrong credential is told at once, not tried until the time is over.
            let one = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
            let listed = api.list(&one).await.map_err(|error| access.unanswered(error))?;
            found = listed.items.first().map_or_else(Found::nothing, |object| self.judge(object));
            if found.met {
                return Ok(());
            }
            let mut states = std::pin::pin!(watcher::watch_object(api, name).default_backoff());
            while let Some(state) = states.next().await {
                // A watch that breaks off connects again by itself.
                let Ok(state) = state else { continue };
                found = match state {
                    Some(object) => self.judge(&object),
                    None => Found::nothing(),
                };
                if found.met {
                    break;
                }
            }
            Ok::<(), String>(())
        };
        // When the time is over, what was seen last is the answer.
        if let Ok(ended) = tokio::time::timeout(limit, watching).await {
            ended?;
        }
        found.elapsed_seconds = started.elapsed().as_secs_f64();
        Ok(found)
    }

    fn judge(&self, object: &impl Waited) -> Found {
        let condition = object.conditions().iter().find(|found| found.type_.eq_ignore_ascii_case(&self.condition));
        if let Some(condition) = condition {
            // What is said of an earlier version of the object is not said of this one.
            let is_current = match (condition.observed_generation, object.generation()) {
                (Some(observed), Some(generation)) => observed >= generation,
                _ => true,
            };
            return Found {
                met: is_current && condition.status.eq_ignore_ascii_case(&self.status),
                status: Some(condition.status.clone()),
                reason: Some(condition.reason.clone()),
                message: match is_current {
                    true => condition.message.clone(),
                    false => format!("{} (of an earlier version of the object)", condition.message),
                },
                dns: object.dns(),
                elapsed_seconds: 0.0,
            };
        }
        let met = object.is_scheduled() && self.condition.eq_ignore_ascii_case(SCHEDULED) && self.status == "True";
        let message = if met { String::new() } else { format!("it has no condition {} yet", self.condition) };
        Found { met, message, dns: object.dns(), ..Found::default() }
    }
}

/// An object that can be waited for.
trait Waited {
    fn conditions(&self) -> &[Condition];
    fn generation(&self) -> Option<i64>;
    fn is_scheduled(&self) -> bool;
    fn dns(&self) -> Option<String>;
}

impl Waited for Route {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| &*status.conditions).unwrap_or_default()
    }

    fn generation(&self) -> Option<i64> {
        self.metadata.generation
    }

    fn is_scheduled(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.phase == Phase::Scheduled)
    }

    fn dns(&self) -> Option<String> {
        self.status.as_ref()?.dns.clone()
    }
}

impl Waited for Router {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| &*status.conditions).unwrap_or_default()
    }

    fn generation(&self) -> Option<i64> {
        self.metadata.generation
    }

    fn is_scheduled(&self) -> bool {
        false
    }

    fn dns(&self) -> Option<String> {
        self.spec.dns.clone()
    }
}

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    /// Whether it is as wished.
    met: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    message: String,
    /// The name by which it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<String>,
    elapsed_seconds: f64,
}

impl Found {
    fn nothing() -> Found {
        Found { message: "it is not there".to_owned(), ..Found::default() }
    }
}

/// What is told. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    object: String,
    condition: String,
    wanted: String,
    #[serde(flatten)]
    found: Found,
}

impl Report {
    fn text(&self, painter: Painter) -> String {
        let Report { object, condition, wanted, found } = self;
        let mut facts = Facts::default();
        let verdict = match found.met {
            true => Cell::styled(Style::Good, format!("{condition}={wanted} after {:.1} s", found.elapsed_seconds)),
            false => Cell::styled(Style::Bad, format!("not {condition}={wanted} after {:.1} s", found.elapsed_seconds)),
        };
        facts.add(object, verdict);
        if let Some(dns) = &found.dns {
            facts.add("name", dns.as_str());
        }
        match (&found.status, &found.reason) {
            (Some(status), Some(reason)) => facts.add("says", format!("{status}, {reason}: {}", found.message)),
            _ if !found.message.is_empty() => facts.add("says", found.message.as_str()),
            _ => {}
        }
        facts.text(painter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn route(status: Value) -> Route {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "spec": {}, "status": status,
            "metadata": {"namespace": "shop", "name": "front", "generation": 3}});
        serde_json::from_value(object).expect("a Route")
    }

    fn condition(kind: &str, status: &str, generation: i64) -> Value {
        json!({"type": kind, "status": status, "reason": "Why", "message": "so", "observedGeneration": generation,
            "lastTransitionTime": "2025-01-01T00:00:00Z"})
    }

    #[test]
    fn what_is_waited_for() {
        let placed = json!({"phase": "scheduled", "dns": "a.example"});
        let said = |status: &str, generation| json!({"conditions": [condition("Resolvable", status, generation)]});
        for (wish, status, met) in [
            ("scheduled", placed.clone(), true),
            ("Scheduled", json!({}), false),
            ("scheduled=False", placed.clone(), false),
            ("scheduled=False", json!({"conditions": [condition("Scheduled", "False", 3)]}), true),
            ("resolvable", placed, false),
            ("resolvable", said("True", 3), true),
            ("resolvable", said("True", 2), false),
            ("Resolvable=false", said("False", 3), true),
            ("resolvable", said("Unknown", 3), false),
        ] {
            let found = Wish::parse(wish).expect("a wish").judge(&route(status.clone()));
            assert_eq!(found.met, met, "{wish} {status}");
        }
        for bad in ["=True", "Ready=", "Admitted=Maybe"] {
            assert!(Wish::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_told() {
        let wish = Wish::parse("resolvable").expect("a wish");
        let found =
            wish.judge(&route(json!({"dns": "a.example", "conditions": [condition("Resolvable", "False", 3)]})));
        let report = Report {
            object: "route shop/front".to_owned(),
            condition: wish.condition,
            wanted: wish.status,
            found: Found { elapsed_seconds: 2.04, ..found },
        };
        let expected = "\
route shop/front   not resolvable=True after 2.0 s
name               a.example
says               False, Why: so
";
        assert_eq!(report.text(Painter::PLAIN), expected);
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(
            (&json["met"], &json["reason"], &json["object"]),
            (&json!(false), &json!("Why"), &json!("route shop/front"))
        );
    }

    #[test]
    fn durations() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "s", "5", "0s", "25h", "1d", "-1s", "1.5m", "99999999999999999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
