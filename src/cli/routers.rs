//! `signpost routers`: shards with their load, addresses and zones, and what is not as it should be.

use std::collections::HashMap;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;

use super::access::{self, API_TIMEOUT, Place};
use super::output::{self, Format};
use super::style::{Painter, Style};
use super::table::{Cell, Table};
use super::{Exit, progress};
use signpost_api::v1alpha1::router::{ADDRESSES_HEALTHY, AddressHealthState, AddressState, READY, Router, RouterState};
use signpost_api::v1alpha1::zone::Zone;

pub(super) fn command() -> Command {
    let names = Arg::new("names").value_name("NAME").num_args(0..).help("Only these Routers");
    Command::new("routers")
        .about(
            "Lists Routers: whether they are ready, their load, their addresses, the serial of their zone, and why not",
        )
        .after_help(
            "LOAD is routes against capacity: hard where there is one, else soft. Exit codes: 0 listed (there may be \
             none), 1 a Router that is named is not there, or the API does not answer, 2 called wrongly.",
        )
        .arg(names)
        .arg(output::argument())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let place = match Place::of(matches) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let names: Vec<&String> = matches.get_many("names").unwrap_or_default().collect();
    let listed = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        let listing = async { tokio::try_join!(access.all::<Router>(), access.all_permitted::<Zone>()) };
        let (mut routers, zones) = progress::during("listing Routers", listing).await?;
        let is_there = |name: &str| routers.iter().any(|router| router.metadata.name.as_deref() == Some(name));
        let all_there = super::all_there("Router", &names, is_there);
        routers
            .retain(|router| names.is_empty() || names.iter().any(|name| router.metadata.name.as_ref() == Some(*name)));
        // Tenants see Routers, and no serials.
        Ok((rows(&routers, &zones.unwrap_or_default()), all_there))
    });
    super::exit_of(listed.and_then(|(rows, all_there)| {
        Format::of(matches).show(&rows, |painter| table(&rows, painter))?;
        all_there
    }))
}

/// A Router. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: RouterState,
    /// What its condition `Ready` says; absent until something has looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready: Option<bool>,
    pub(super) routes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_capacity: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_capacity: Option<u32>,
    /// Addresses that are answered with.
    active_addresses: usize,
    addresses: usize,
    /// Whether all active ones are healthy, where they are probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
    /// Those that probes found unhealthy.
    unhealthy_addresses: usize,
    /// The zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// The newest serial that was given out for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<u32>,
    /// What is not as it should be, and what the state means.
    pub(super) why: Vec<String>,
}

/// The rows of Routers, by name.
pub(super) fn rows(routers: &[Router], zones: &[Zone]) -> Vec<Row> {
    let of_router: HashMap<&str, &Zone> =
        zones.iter().filter_map(|zone| Some((zone.spec.router.as_deref()?, zone))).collect();
    let mut rows: Vec<Row> = routers
        .iter()
        .map(|router| {
            let name = router.metadata.name.clone().unwrap_or_default();
            let zone = of_router.get(name.as_str());
            let conditions = router.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
            let says = |kind: &str| {
                conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status == "True")
            };
            // A Router that is cordoned is ready, with a reason that is worth a word.
            let why = conditions
                .iter()
                .filter(|condition| {
                    condition.status == "False" || condition.type_ == READY && condition.reason != READY
                })
                .map(|condition| format!("{}: {}", condition.reason, condition.message));
            let capacity = router.spec.capacity.clone().unwrap_or_default();
            Row {
                state: router.spec.state,
                ready: says(READY),
                routes: router.status.as_ref().and_then(|status| status.routes).unwrap_or(0),
                soft_capacity: capacity.soft,
                hard_capacity: capacity.hard,
                active_addresses: router.spec.addresses.iter().filter(|a| a.state == AddressState::Active).count(),
                addresses: router.spec.addresses.len(),
                healthy: says(ADDRESSES_HEALTHY),
                unhealthy_addresses: unhealthy(router).count(),
                zone: zone.and_then(|zone| zone.metadata.name.clone()).or_else(|| router.spec.dns.clone()),
                serial: zone.and_then(|zone| zone.spec.versions.first()).map(|version| version.serial),
                why: why.collect(),
                name,
            }
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

/// The addresses of a Router that probes found unhealthy.
pub(super) fn unhealthy(router: &Router) -> impl Iterator<Item = &str> {
    let verdicts = router.status.as_ref().map(|status| &*status.addresses).unwrap_or_default();
    let bad = verdicts.iter().filter(|verdict| verdict.health == AddressHealthState::Unhealthy);
    bad.map(|verdict| verdict.ip.as_str())
}

fn word(state: RouterState) -> &'static str {
    match state {
        RouterState::Active => "active",
        RouterState::Cordoned => "cordoned",
        RouterState::Draining => "draining",
    }
}

fn table(rows: &[Row], painter: Painter) -> String {
    if rows.is_empty() {
        return "no Routers\n".to_owned();
    }
    let mut table =
        Table::new(["NAME", "STATE", "READY", "ROUTES", "CAPACITY", "LOAD", "ADDRESSES", "ZONE", "SERIAL", "WHY"]);
    for row in rows {
        let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        let capacity = match (row.soft_capacity, row.hard_capacity) {
            (None, None) => None,
            (soft, hard) => Some(format!("{}/{}", number(soft), number(hard))),
        };
        let ready = match row.ready {
            Some(true) => Cell::styled(Style::Good, "yes"),
            Some(false) => Cell::styled(Style::Bad, "no"),
            None => Cell::or_dash(None::<String>),
        };
        let addresses = format!("{}/{}", row.active_addresses, row.addresses);
        let addresses = match (row.active_addresses, row.unhealthy_addresses) {
            (0, _) => Cell::styled(Style::Bad, addresses),
            (_, 1..) => Cell::styled(Style::Bad, format!("{addresses}, {} unhealthy", row.unhealthy_addresses)),
            (active, 0) if active < row.addresses => Cell::styled(Style::Warning, addresses),
            _ => Cell::from(addresses),
        };
        table.row([
            Cell::from(row.name.as_str()),
            match row.state {
                RouterState::Active => Cell::from(word(row.state)),
                RouterState::Cordoned | RouterState::Draining => Cell::styled(Style::Warning, word(row.state)),
            },
            ready,
            Cell::from(row.routes.to_string()),
            Cell::or_dash(capacity),
            load(row),
            addresses,
            Cell::or_dash(row.zone.as_deref()),
            Cell::or_dash(row.serial.map(|serial| serial.to_string())),
            Cell::from(row.why.join("; ")),
        ]);
    }
    table.text(painter)
}

/// Routes against capacity.
fn load(row: &Row) -> Cell {
    let Some(capacity) = row.hard_capacity.or(row.soft_capacity) else { return Cell::or_dash(None::<String>) };
    if capacity == 0 {
        return Cell::styled(Style::Bad, "full");
    }
    let percent = u64::from(row.routes) * 100 / u64::from(capacity);
    let text = format!("{percent}%");
    let above_soft = row.soft_capacity.is_some_and(|soft| row.routes >= soft);
    match percent {
        100.. => Cell::styled(Style::Bad, text),
        _ if above_soft => Cell::styled(Style::Warning, text),
        _ => Cell::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn router(name: &str, spec: Value, status: Value) -> Router {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
            "spec": spec, "status": status});
        serde_json::from_value(object).expect("a Router")
    }

    fn ready(status: &str, reason: &str, routes: u32) -> Value {
        let health = |ip: &str, health: &str| json!({"ip": ip, "health": health, "since": "2025-01-01T00:00:00Z"});
        let addresses = json!([health("192.0.2.1", "healthy"), health("192.0.2.7", "unhealthy")]);
        let addresses = if reason == "Probed" { addresses } else { json!([]) };
        json!({"routes": routes, "addresses": addresses, "conditions": [{"type": "Ready", "status": status, "reason": reason,
            "message": "as it says", "lastTransitionTime": "2025-01-01T00:00:00Z"}]})
    }

    #[test]
    fn a_line_a_router() {
        let addresses = json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.2", "state": "drained"}]);
        let routers = [
            router(
                "shard2",
                json!({"state": "cordoned", "capacity": {"soft": 2, "hard": 10}}),
                ready("True", "Cordoned", 3),
            ),
            router("shard1", json!({"addresses": addresses, "capacity": {"soft": 50}}), ready("True", "Ready", 12)),
            router("shard3", json!({"capacity": {"hard": 0}}), ready("False", "NoActiveAddress", 0)),
            router("shard4", json!({}), Value::Null),
            router(
                "shard5",
                json!({"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.7"}]}),
                ready("True", "Probed", 1),
            ),
        ];
        let zone = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Zone", "metadata": {"name": "shard1.v3.example"},
            "spec": {"type": "shard", "router": "shard1", "versions": [
                {"serial": 9, "digest": "aa", "at": "2025-01-01T00:00:00Z"}, {"serial": 8, "digest": "bb", "at": "2025-01-01T00:00:00Z"}]}});
        let zones = [serde_json::from_value(zone).expect("a Zone")];
        let rows = rows(&routers, &zones);
        let expected = "\
NAME     STATE      READY   ROUTES   CAPACITY   LOAD   ADDRESSES          ZONE                SERIAL   WHY
shard1   active     yes     12       50/-       24%    1/2                shard1.v3.example   9
shard2   cordoned   yes     3        2/10       30%    0/0                -                   -        Cordoned: as it says
shard3   active     no      0        -/0        full   0/0                -                   -        NoActiveAddress: as it says
shard4   active     -       0        -          -      0/0                -                   -
shard5   active     yes     1        -          -      2/2, 1 unhealthy   -                   -        Probed: as it says
";
        assert_eq!(table(&rows, Painter::PLAIN), expected);
        assert!(table(&rows, Painter::COLOURED).contains("\x1b[33m30%\x1b[0m"));
        let row = serde_json::to_value(&rows[0]).expect("plain data");
        assert_eq!((&row["serial"], &row["softCapacity"], &row["activeAddresses"]), (&json!(9), &json!(50), &json!(1)));
    }
}
