//! `signpost routes`: routes with their names, where they are, and why those that wait are nowhere.

use clap::{Arg, ArgMatches, Command};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use super::access::{self, API_TIMEOUT, Access, Place};
use super::output::{self, Format};
use super::style::{Painter, Style};
use super::table::{Cell, Table};
use super::{Exit, age, progress};
use signpost_api::standing::Standing;
use signpost_api::v1alpha1::route::{
    ADMITTED, HOST_POINTS_HERE, MOVE_PENDING, NameKind, PUBLISHED, Phase, RESOLVABLE, Route, SCHEDULED,
};
use signpost_apiserver::selector::label_fault;

pub(super) fn command() -> Command {
    let names = Arg::new("names").value_name("NAME").num_args(0..).help("Only routes of these names");
    let selector =
        Arg::new("selector").long("selector").short('l').value_name("LABELS").help("Only routes with these labels");
    let selector = selector.value_parser(|text: &str| match label_fault(text) {
        Some(fault) => Err(fault),
        None => Ok(text.to_owned()),
    });
    let router = Arg::new("router").long("router").value_name("NAME").help("Only routes on this Router");
    let state = Arg::new("state")
        .long("state")
        .value_name("STATE")
        .value_parser(["waiting", "scheduled", "published", "answered", "resolvable", "refused", "down"])
        .help("Only routes in this state");
    Command::new("routes")
        .about("Lists routes: their names, their Routers, and why those without one wait")
        .after_help("Exit codes: 0 listed (there may be none), 1 a route that is named is not there, or the API does not answer, 2 called \
             wrongly.")
        .arg(names)
        .args([selector, router, state])
        .args(access::namespace_arguments())
        .arg(output::argument())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let place = match Place::of(matches) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let listed = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        progress::during("listing routes", list(&access, matches)).await
    });
    super::exit_of(listed.and_then(|(rows, all_there)| {
        Format::of(matches).show(&rows, |painter| table(&rows, painter))?;
        all_there
    }))
}

/// The routes that are asked for, and whether all that are named are there.
async fn list(access: &Access, matches: &ArgMatches) -> Result<(Vec<Row>, Result<(), String>), String> {
    let mut parameters = ListParams::default();
    if let Some(selector) = matches.get_one::<String>("selector") {
        parameters = parameters.labels(selector);
    }
    let api: Api<Route> = access.scoped();
    let routes = access.list(&api, parameters).await?;
    let names: Vec<&String> = matches.get_many("names").unwrap_or_default().collect();
    let router = matches.get_one::<String>("router");
    let state = matches.get_one::<String>("state");
    let now = Timestamp::now();
    let wanted = |row: &Row| {
        (names.is_empty() || names.iter().any(|name| **name == row.name))
            && router.is_none_or(|router| row.router.as_ref() == Some(router))
            && state.is_none_or(|state| row.state.word() == state)
    };
    let mut rows: Vec<Row> = routes.iter().map(|route| Row::of(route, now)).filter(wanted).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let all_there = super::all_there("Route", &names, |name| {
        routes.iter().any(|route| route.metadata.name.as_deref() == Some(name))
    });
    Ok((rows, all_there))
}

/// How far a route has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Its host may not be used by it.
    Refused,
    /// It has no Router.
    Waiting,
    /// It has a Router, and its name leads nowhere: an outage.
    Down,
    /// It has a Router.
    Scheduled,
    /// Its names are in a published zone.
    Published,
    /// Every name server was asked for the platform's names and answered right; that its own host points here is not known.
    Answered,
    /// Every name server was asked and answered right, and its own host, if it has one, points here.
    Resolvable,
}

impl State {
    fn of(route: &Route) -> State {
        let status = route.status.as_ref();
        let conditions = status.map(|status| &*status.conditions).unwrap_or_default();
        let says = |kind: &str, word: &str| {
            conditions.iter().any(|condition| condition.type_ == kind && condition.status == word)
        };
        match status.map(|status| status.phase).unwrap_or_default() {
            _ if says(ADMITTED, "False") => State::Refused,
            Phase::New => State::Waiting,
            Phase::Scheduled if status.is_some_and(|status| Standing::of(status).0 == Standing::Down) => State::Down,
            Phase::Scheduled if status.is_some_and(|status| Standing::of(status).0 == Standing::Answered) => {
                State::Answered
            }
            Phase::Scheduled if says(RESOLVABLE, "True") => State::Resolvable,
            Phase::Scheduled if says(PUBLISHED, "True") => State::Published,
            Phase::Scheduled => State::Scheduled,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            State::Refused => "refused",
            State::Waiting => "waiting",
            State::Down => "down",
            State::Scheduled => "scheduled",
            State::Published => "published",
            State::Answered => "answered",
            State::Resolvable => "resolvable",
        }
    }

    fn style(self) -> Style {
        match self {
            State::Refused | State::Down => Style::Bad,
            State::Waiting | State::Answered => Style::Warning,
            State::Scheduled | State::Published | State::Resolvable => Style::Good,
        }
    }
}

/// A route. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) state: State,
    /// The name by which it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) router: Option<String>,
    /// Its stable name.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias: Option<String>,
    /// For a custom host: the record to make in its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    /// What is not as it should be: reason and message of the first condition that is not true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
}

impl Row {
    pub(super) fn of(route: &Route, now: Timestamp) -> Row {
        let status = route.status.clone().unwrap_or_default();
        let wrong = first_wrong(&status.conditions);
        let created = route.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Row {
            namespace: route.metadata.namespace.clone().unwrap_or_default(),
            name: route.metadata.name.clone().unwrap_or_default(),
            state: State::of(route),
            record: status.names.iter().find(|name| name.kind == NameKind::Custom).and_then(|name| name.record.clone()),
            host: status.dns.or_else(|| route.spec.host.clone()),
            router: status.router,
            alias: status.canonical_name,
            reason: wrong.map(|condition| condition.reason.clone()),
            message: wrong.map(|condition| condition.message.clone()),
            age_seconds: created.map(|then| u64::try_from(now.as_second() - then.as_second()).unwrap_or(0)),
        }
    }

    /// How its state is written: one with a fault, such as a name server that answers wrong, is not good.
    fn style(&self) -> Style {
        match self.state.style() {
            Style::Good if self.reason.is_some() => Style::Warning,
            style => style,
        }
    }
}

/// The condition that says what is wrong, in the order in which a route gets further; last that it is to move, and cannot.
fn first_wrong(conditions: &[Condition]) -> Option<&Condition> {
    let rank = |condition: &Condition| {
        let order = [ADMITTED, SCHEDULED, PUBLISHED, RESOLVABLE, HOST_POINTS_HERE, MOVE_PENDING];
        order.iter().position(|kind| *kind == condition.type_)
    };
    let wrong = |condition: &&Condition| match condition.type_.as_str() {
        MOVE_PENDING => condition.status == "True",
        HOST_POINTS_HERE => condition.status != "True",
        _ => condition.status == "False" && rank(condition).is_some(),
    };
    conditions.iter().filter(wrong).min_by_key(|condition| rank(condition))
}

fn table(rows: &[Row], painter: Painter) -> String {
    if rows.is_empty() {
        return "no routes\n".to_owned();
    }
    let mut table = Table::new(["NAMESPACE", "NAME", "STATE", "ROUTER", "HOST", "AGE", "WHY"]);
    for row in rows {
        let why = match (&row.reason, &row.message) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            _ => String::new(),
        };
        table.row([
            Cell::from(row.namespace.as_str()),
            Cell::from(row.name.as_str()),
            Cell::styled(row.style(), row.state.word()),
            Cell::or_dash(row.router.as_deref()),
            Cell::or_dash(row.host.as_deref()),
            Cell::or_dash(row.age_seconds.map(age::of_seconds)),
            Cell::from(why),
        ]);
    }
    table.text(painter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn route(name: &str, spec: Value, status: Value) -> Row {
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "spec": spec, "status": status,
            "metadata": {"namespace": "shop", "name": name, "creationTimestamp": "2025-01-01T00:00:00Z"},
        });
        let route = serde_json::from_value(object).expect("a Route");
        Row::of(&route, "2025-01-01T00:05:30Z".parse().expect("a time"))
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("about {reason}"),
            "lastTransitionTime": "2025-01-01T00:00:00Z"})
    }

    #[test]
    fn a_line_a_route() {
        let placed = |conditions: Value| json!({"phase": "scheduled", "router": "shard1", "dns": "shop-front.shard1.v3.example", "conditions": conditions});
        let rows = [
            route("a", json!({}), placed(json!([condition("Scheduled", "True", "Bound")]))),
            route(
                "b",
                json!({}),
                placed(json!([condition("Published", "True", "X"), condition("Resolvable", "False", "Differs")])),
            ),
            route(
                "c",
                json!({}),
                placed(json!([condition("Published", "True", "X"), condition("Resolvable", "True", "Y")])),
            ),
            route("d", json!({}), json!({"conditions": [condition("Scheduled", "False", "NoRouter")]})),
            route(
                "e",
                json!({"host": "www.example.com"}),
                json!({"conditions": [condition("Scheduled", "False", "NotAdmitted"), condition("Admitted", "False", "HostTaken")]}),
            ),
            route("f", json!({}), Value::Null),
            route(
                "g",
                json!({}),
                placed(json!([condition("Resolvable", "True", "Y"), condition("MovePending", "True", "Cordoned")])),
            ),
            route(
                "i",
                json!({"host": "www.example.com"}),
                json!({"phase": "scheduled", "dns": "www.example.com", "names": [{"name": "www.example.com", "type": "custom"}],
                    "conditions": [condition("Resolvable", "True", "Y"), condition("HostPointsHere", "Unknown", "NotChecked")]}),
            ),
            route("h", json!({}), placed(json!([condition("Published", "False", "NoActiveAddress")]))),
        ];
        let expected = "\
NAMESPACE   NAME   STATE        ROUTER   HOST                           AGE     WHY
shop        a      scheduled    shard1   shop-front.shard1.v3.example   5m30s
shop        b      published    shard1   shop-front.shard1.v3.example   5m30s   Differs: about Differs
shop        c      resolvable   shard1   shop-front.shard1.v3.example   5m30s
shop        d      waiting      -        -                              5m30s   NoRouter: about NoRouter
shop        e      refused      -        www.example.com                5m30s   HostTaken: about HostTaken
shop        f      waiting      -        -                              5m30s
shop        g      resolvable   shard1   shop-front.shard1.v3.example   5m30s   Cordoned: about Cordoned
shop        i      answered     -        www.example.com                5m30s   NotChecked: about NotChecked
shop        h      down         shard1   shop-front.shard1.v3.example   5m30s   NoActiveAddress: about NoActiveAddress
";
        assert_eq!(table(&rows, Painter::PLAIN), expected);
        assert_eq!(table(&[], Painter::PLAIN), "no routes\n");
        let row = serde_json::to_value(&rows[1]).expect("plain data");
        assert_eq!((&row["state"], &row["ageSeconds"]), (&json!("published"), &json!(330)));
    }
}
