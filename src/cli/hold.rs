//! `signpost hold`: what name servers and schedulers hold back, and what is decided of it.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::output::{self, ListOptions, Listing};
use super::style::Style;
use super::table::{Cell, Table};
use super::{Error, Exit, Outcome, age, confirm, note, switch};
use signpost_types::v1alpha1::deletion_hold::{
    Decision, DeletionHold, DeletionHoldCause, DeletionHoldHolder, DeletionHoldKind, HEARD_EVERY, SILENCE_MAX,
};

/// The silence after which a holder no longer counts: two heartbeats are missing.
const SILENT: SignedDuration = HEARD_EVERY.saturating_add(HEARD_EVERY).saturating_add(SignedDuration::from_secs(30));
/// The maximum number of names of a hold in a row of the table.
const NAMES_SHOWN: usize = 3;
/// The columns of the table. The last one is for wide output.
const COLUMNS: [&str; 9] = ["id", "missing", "cause", "age", "decision", "holders", "keeps", "names", "decided"];
/// The text for a DeletionHold without holders.
const NOBODY: &str = "none";
/// The hint that is added to an error of the API.
const WITHOUT_API: &str = "to list the holds of a name server, see its log and its metric \
                           signpost_deletion_hold_objects";

pub(super) fn command() -> Command {
    let id = || Arg::new("id").value_name("ID").required(true).help("The ID of the hold, as in \"signpost hold list\"");
    let list = Command::new("list")
        .about("List holds: objects that are missing from the API, and the parts of them that are kept")
        .args(output::list_arguments(COLUMNS))
        .args(access::arguments());
    let approve = Command::new("approve")
        .about("Approve a hold: stop serving the missing objects, and delete what depends on them")
        .after_help(
            "The approval applies only to the name servers and schedulers that hold at this moment, and only to these \
             objects. The command fails while more objects go missing, because the output of \"signpost hold list\" is \
             then out of date.",
        )
        .arg(id())
        .arg(switch("dry-run").help("Print what the approval would release, without deciding"))
        .arg(confirm::argument())
        .args(access::arguments());
    let reject = Command::new("reject")
        .about("Reject a hold: keep everything, without an alert until other objects go missing")
        .after_help("Restore the objects in the API. The hold ends when they exist again.")
        .arg(id())
        .args(access::arguments());
    Command::new("hold")
        .about("List, approve, or reject deletion holds")
        .after_help(
            "While the API is unreachable, see the log and /metrics of each name server for its holds. Exit codes: 0 \
             done, 1 no hold has that ID, or the API is unreachable, 2 invalid usage.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, approve, reject])
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let Some((command, matches)) = matches.subcommand() else { return Ok(Exit::Usage) };
    let place = ApiLocation::of(matches)?;
    if command == "list" {
        return ListOptions::of(matches).show(|| list(&place), |rows| listing(rows, Timestamp::now()));
    }
    let decision = if command == "approve" { Decision::Approve } else { Decision::Reject };
    let is_approved = decision == Decision::Approve;
    let dry_run = is_approved && matches.get_flag("dry-run");
    let (asks, more) = match is_approved {
        true => (confirm::asks(matches), confirm::time(matches)),
        false => (false, Duration::ZERO),
    };
    let id = matches.get_one::<String>("id").expect("clap demands it");
    let deciding = async { decide(&place.connect().await?, id, decision, dry_run, asks).await };
    note(access::run(API_TIMEOUT + more, deciding)?);
    Ok(Exit::Success)
}

fn list(place: &ApiLocation) -> Result<Vec<Row>, Error> {
    let holds = access::run(API_TIMEOUT, async { place.connect().await?.all::<DeletionHold>().await });
    let holds = holds.map_err(|error| format!("{error}; {WITHOUT_API}"))?;
    Ok(holds.into_iter().map(Row::new).collect())
}

/// Returns one line about held objects, for commands that show zones built from the API's objects; `None` without holds.
pub(super) fn line(holds: &[DeletionHold]) -> Option<String> {
    let held = holds.iter().filter(|hold| hold.is_held_in_dns()).map(|hold| {
        let decided = hold.spec.decision.filter(|_| !hold.is_undecided()).map_or("undecided", Decision::word);
        format!("{} of {} {}s ({decided})", hold.objects(), hold.known(), hold.spec.kind.word())
    });
    let held: Vec<String> = held.collect();
    (!held.is_empty()).then(|| {
        format!(
            "deletion hold: {}; name servers still serve these objects, under earlier serials; see \"signpost hold \
             list\"",
            held.join(", ")
        )
    })
}

/// A hold in the output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    #[serde(rename = "type")]
    kind: DeletionHoldKind,
    objects: u32,
    known: u32,
    cause: DeletionHoldCause,
    /// The kinds of objects that are kept, and `DNS` for names.
    keeps: Vec<String>,
    /// The first of the missing objects.
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<Time>,
    holders: Vec<HolderRow>,
}

/// One process that holds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HolderRow {
    server: String,
    /// The host of that process, for display.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    since: Time,
    /// The time of its last heartbeat.
    heard: Time,
    /// Whether the decision applies to it: it held at that time.
    decided: bool,
}

impl Row {
    fn new(hold: DeletionHold) -> Row {
        let holder = |holder: &DeletionHoldHolder| HolderRow {
            decided: hold.is_decided_for(holder),
            server: holder.server.clone(),
            host: holder.host.clone(),
            since: holder.since.clone(),
            heard: Time(holder.last_contact()),
        };
        let holders = hold.status.iter().flat_map(|status| &status.holders).map(holder).collect();
        let (objects, known, names) = (hold.objects(), hold.known(), hold.names().to_vec());
        let keeps = hold.keeps().into_iter().map(str::to_owned).collect();
        let spec = hold.spec;
        Row {
            id: hold.metadata.name.unwrap_or_default(),
            kind: spec.kind,
            objects,
            known,
            cause: spec.cause,
            keeps,
            names,
            decision: spec.decision,
            decided_at: spec.decided_at,
            holders,
        }
    }

    /// Returns the holders without a recent heartbeat, each with the time since the last one.
    fn silent(&self, now: Timestamp) -> Vec<String> {
        let is_silent = |holder: &&HolderRow| now.duration_since(holder.heard.0) >= SILENT;
        self.holders.iter().filter(is_silent).map(|holder| holder.describe(now)).collect()
    }

    /// Returns the kept parts.
    fn kept(&self) -> String {
        if self.keeps.is_empty() { "-".to_owned() } else { self.keeps.join(", ") }
    }

    fn cells(&self, now: Timestamp) -> [Cell; COLUMNS.len()] {
        let cause = match self.cause {
            DeletionHoldCause::List => "missing from a list",
            DeletionHoldCause::Burst => "burst of deletions",
        };
        let decided = self.holders.iter().filter(|holder| holder.decided).count();
        let decision = match self.decision {
            _ if self.holders.is_empty() => Cell::from("-"),
            None => Cell::styled(Style::Bad, "none"),
            Some(decision) if decided == self.holders.len() => Cell::from(decision.word()),
            Some(decision) => Cell::from(format!("{} (for {decided} of {})", decision.word(), self.holders.len())),
        };
        let mut names = self.names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(" ");
        if self.objects as usize > NAMES_SHOWN {
            names.push_str(" …");
        }
        let missing = Cell::from(format!("{} of {} {}s", self.objects, self.known, self.kind.word()));
        let hosts = self.holders.iter().map(|holder| holder.describe(now));
        let mut holders = hosts.take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
        if self.holders.is_empty() {
            holders = NOBODY.to_owned();
        } else if self.holders.len() > NAMES_SHOWN {
            holders.push_str(&format!(" and {} more", self.holders.len() - NAMES_SHOWN));
        }
        let began = self.holders.iter().map(|holder| holder.since.0).min();
        let age = match began {
            Some(began) => Cell::from(age::since(began, now)).ranked(-began.as_second()),
            None => "-".into(),
        };
        let (id, missing) = (self.id.as_str().into(), missing.ranked(self.objects));
        let decided_at = Cell::or_dash(self.decided_at.as_ref().map(|time| time.0.to_string()));
        [id, missing, cause.into(), age, decision, holders.into(), self.kept().into(), names.into(), decided_at]
    }
}

impl HolderRow {
    /// Returns the holder, and the time since its last heartbeat.
    fn describe(&self, now: Timestamp) -> String {
        let host = self.host.as_ref().unwrap_or(&self.server);
        format!("{host} (heartbeat {} ago)", age::since(self.heard.0, now))
    }
}

fn listing(rows: &[Row], now: Timestamp) -> Listing {
    let mut table = Table::new(COLUMNS).hiding_last();
    rows.iter().for_each(|row| table.row(row.cells(now)));
    Listing { tables: vec![table], note: rows.is_empty().then(|| "no holds".to_owned()) }
}

/// The maximum number of objects that a question names.
const NAMES_TOLD: usize = 10;

async fn decide(access: &Access, id: &str, decision: Decision, dry_run: bool, asks: bool) -> Result<String, String> {
    let failure = |error: kube::Error| format!("{}; {WITHOUT_API}", access.unanswered(error));
    let api: Api<DeletionHold> = Api::all(access.client.clone());
    let hold = api.get_opt(id).await.map_err(failure)?;
    let hold =
        hold.ok_or_else(|| format!("NotFound: no hold has the ID {id:?}; run \"signpost hold list\" to list holds"))?;
    if !hold.is_held() {
        return Err(format!(
            "hold {id}: no process holds these objects; the hold ended or is just starting; run \"signpost hold \
             list\""
        ));
    }
    let what = || {
        let row = Row::new(hold.clone());
        let named = hold.spec.names.iter().take(NAMES_TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if hold.spec.names.len() > NAMES_TOLD { ", …" } else { "" };
        let kept = if hold.is_held_in_dns() { "served" } else { "kept" };
        let (objects, kind) = (row.objects, row.kind.word());
        format!("{objects} {kind}s would no longer be {kept}: {named}{more}; released with them: {}", row.kept())
    };
    if dry_run {
        return Ok(format!("dry run: nothing was decided; after an approval, {}", what()));
    }
    if asks {
        confirm::confirm(&format!("{}. Approve?", what()))?;
    }
    // Only the displayed set: a re-created object would have another uid.
    let patch = json!({
        "metadata": {"uid": hold.metadata.uid},
        "spec": {"decision": decision, "decidedAt": Time(Timestamp::now())},
    });
    let patched = api.patch(id, &PatchParams::default(), &Patch::Merge(patch)).await;
    Ok(decided(&Row::new(patched.map_err(failure)?), decision, Timestamp::now()))
}

/// Describes the effect of a decision: holders apply it later, and those that are down do not.
fn decided(row: &Row, decision: Decision, now: Timestamp) -> String {
    let Row { id, objects, kind, holders, .. } = row;
    let (kind, silent, kept) = (kind.word(), row.silent(now), row.kept());
    let heard = holders.len() - silent.len();
    let mut text = match decision {
        Decision::Approve => format!(
            "approved: the {heard} process(es) that hold {id} will release {objects} {kind}s, and none that go missing \
             later; run \"signpost hold list\" to see which still hold them"
        ),
        Decision::Reject => format!(
            "rejected: the {heard} process(es) that hold {id} still keep {objects} {kind}s ({kept}), without an alert \
             until other objects go missing; restore the objects in the API"
        ),
    };
    if !silent.is_empty() {
        let longest = SILENCE_MAX.as_mins();
        text += &format!(
            ". Not counted, because silent: {}; the other holders remove one after {longest} minutes of \
             silence",
            silent.join("; ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style::Painter;

    fn row(decision: serde_json::Value, generations: &[i64]) -> Row {
        let holders: Vec<_> = generations
            .iter()
            .enumerate()
            .map(|(at, generation)| {
                let heard = ["2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z"][at];
                let keeps = [["DNS"], ["Zone"]][at];
                json!({"server": format!("ns{at}"), "since": "2026-01-01T00:00:00Z", "generation": generation, "lastHeartbeatTime": heard,
                    "keeps": keeps})
            })
            .collect();
        let hold = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold",
            "metadata": {"name": "routers-0123456789abcdef", "generation": 2},
            "spec": {"type": "Router", "objects": 4, "known": 5, "cause": "list", "names": ["a", "b", "c", "d"],
                     "decision": decision},
            "status": {"holders": holders},
        });
        Row::new(serde_json::from_value(hold).expect("a DeletionHold"))
    }

    #[test]
    fn a_table_and_its_json() {
        let rows = [
            row(json!(null), &[1, 1]),
            row(json!("reject"), &[1, 2]),
            row(json!("approve"), &[1]),
            row(json!(null), &[]),
        ];
        let line = |cells: &str, kept: &str| {
            format!("routers-0123456789abcdef 4 of 5 Routers missing from a list {cells} {kept} a b c …")
        };
        let lines = [
            "ID MISSING CAUSE AGE DECISION HOLDERS KEEPS NAMES".to_owned(),
            line("60m none ns0 (heartbeat 60m ago), ns1 (heartbeat 30m ago)", "DNS, Zone"),
            line("60m reject (for 1 of 2) ns0 (heartbeat 60m ago), ns1 (heartbeat 30m ago)", "DNS, Zone"),
            line("60m approve ns0 (heartbeat 60m ago)", "DNS"),
            line("- - none", "-"),
        ];
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let text = |rows: &[Row]| ListOptions::default().text(listing(rows, now), Painter::PLAIN);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text(&rows).lines().map(words).collect::<Vec<_>>(), lines);
        assert_eq!(text(&[]), "no holds\n");
        // The text claims no completed action, and does not count name servers that are down.
        for (decision, minute, expected) in [
            (Decision::Approve, "00:31", "the 1 process(es) that hold routers-0123456789abcdef will release"),
            (
                Decision::Approve,
                "00:31",
                "Not counted, because silent: ns0 (heartbeat 31m ago); the other holders remove one after 10 minutes",
            ),
            (Decision::Approve, "01:00", "the 0 process(es)"),
            (Decision::Reject, "00:00", "the 2 process(es)"),
        ] {
            let now = format!("2026-01-01T{minute}:00Z").parse().expect("a time");
            let text = decided(&rows[0], decision, now);
            assert!(text.contains(expected), "{text}");
            assert_eq!(text.contains("silent"), minute != "00:00", "{text}");
        }
    }

    #[test]
    fn a_hold_that_has_grown_is_shown_with_its_objects() {
        let hold = |changed: &str| -> DeletionHold {
            let holder =
                json!({"server": "ns", "since": "2026-01-01T00:00:00Z", "generation": 1, "changedAt": changed});
            serde_json::from_value(json!({
                "apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold", "metadata": {"name": "routers-1", "generation": 1},
                "spec": {"type": "Router", "objects": 1, "known": 9, "cause": "burst", "names": ["a"]},
                "status": {"holders": [holder], "objects": 649, "known": 655, "names": ["a", "b"]},
            }))
            .expect("a DeletionHold")
        };
        let row = Row::new(hold("2026-01-01T00:01:00Z"));
        assert_eq!((row.objects, row.known, row.names.len()), (649, 655, 2));
        let line = line(&[hold("2026-01-01T00:01:00Z")]).expect("it is held");
        assert!(line.contains("649 of 655 Routers (undecided)"), "{line}");
        let left = DeletionHold { status: None, ..hold("2026-01-01T00:01:00Z") };
        assert_eq!(super::line(&[left]), None, "no name server holds it");
    }
}
