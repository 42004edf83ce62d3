//! `signpost brake`: what the name servers hold back, and what is decided of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use super::{Exit, complain, note, print, serve};
use crate::api::v1alpha1::brake::{Brake, BrakeCause, BrakeHolder, BrakeKind, Decision};
use crate::client;
use crate::config;

/// The keys of the configuration that say where the API is.
const KEYS: &[&str] = &["kubeconfig", "data-dir"];
/// How long the API may take, all in all.
const API_TIMEOUT: Duration = Duration::from_secs(20);
/// Most names of a hold in a row of the table.
const NAMES_SHOWN: usize = 3;

pub(super) fn command() -> Command {
    let output = Arg::new("output")
        .long("output")
        .short('o')
        .value_name("FORMAT")
        .value_parser(["table", "json", "yaml"])
        .default_value("table")
        .help("How to print it");
    let id =
        || Arg::new("id").value_name("ID").required(true).help("The hold's ID, as \"signpost brake list\" shows it");
    let list = Command::new("list")
        .about("Shows what is held: objects that are missing in the API, and still served")
        .arg(output)
        .args(serve::arguments_of(KEYS));
    let approve = Command::new("approve")
        .about("Says that a loss is meant: the objects are no longer served")
        .after_help("It counts for the name servers that hold at this moment, and for these objects alone.")
        .arg(id())
        .args(serve::arguments_of(KEYS));
    let reject = Command::new("reject")
        .about("Says that a loss is an accident: the objects stay served, and no alarm is rung until others are missing, too")
        .after_help("Restore the objects in the API; the hold ends by itself when they are there again.")
        .arg(id())
        .args(serve::arguments_of(KEYS));
    Command::new("brake")
        .about("Shows and decides what name servers hold back when many objects are missing at once")
        .after_help(
            "The API is the one of --kubeconfig, else of <data-dir>/kubeconfig. While it is away, the log and /metrics of each \
             name server say what it holds. Exit codes: 0 done, 1 nothing is held under that ID or the API does not answer, 2 \
             called wrongly.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, approve, reject])
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let Some((command, matches)) = matches.subcommand() else { return Exit::Usage };
    let settings = match config::read(&serve::places(matches)) {
        Ok(settings) => settings,
        Err(errors) => {
            errors.0.iter().for_each(complain);
            return Exit::Usage;
        }
    };
    let kubeconfig = settings.kubeconfig.clone().unwrap_or_else(|| settings.data_dir.join("kubeconfig"));
    let text = |name: &str| matches.get_one::<String>(name).expect("clap knows it").as_str();
    let work = async {
        match command {
            "list" => list(&kubeconfig, text("output")).await.map(|text| print(&text)),
            "approve" => decide(&kubeconfig, text("id"), Decision::Approve).await.map(note),
            _ => decide(&kubeconfig, text("id"), Decision::Reject).await.map(note),
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    super::exit_of(runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let done = runtime.block_on(async { tokio::time::timeout(API_TIMEOUT, work).await });
        done.unwrap_or_else(|_| Err(unanswered(&kubeconfig, "it takes too long")))
    }))
}

/// A hold as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    #[serde(rename = "type")]
    kind: BrakeKind,
    objects: u32,
    known: u32,
    cause: BrakeCause,
    /// The first of the missing objects.
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<Time>,
    holders: Vec<HolderRow>,
}

/// One name server that holds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HolderRow {
    server: String,
    since: Time,
    /// Whether the decision counts for it: it held when that was said.
    decided: bool,
}

impl Row {
    fn new(brake: Brake) -> Row {
        let spec = brake.spec;
        let decides = |holder: &BrakeHolder| {
            spec.decision.is_some() && brake.metadata.generation.is_some_and(|now| now > holder.generation)
        };
        let holder =
            |holder: BrakeHolder| HolderRow { decided: decides(&holder), server: holder.server, since: holder.since };
        Row {
            id: brake.metadata.name.unwrap_or_default(),
            kind: spec.kind,
            objects: spec.objects,
            known: spec.known,
            cause: spec.cause,
            names: spec.names,
            decision: spec.decision,
            decided_at: spec.decided_at,
            holders: brake.status.unwrap_or_default().holders.into_iter().map(holder).collect(),
        }
    }

    fn cells(&self) -> [String; 6] {
        let cause = match self.cause {
            BrakeCause::List => "missing from a list",
            BrakeCause::Burst => "burst of deletions",
        };
        let decided = self.holders.iter().filter(|holder| holder.decided).count();
        let decision = match self.decision {
            None => "-".to_owned(),
            Some(decision) if decided == self.holders.len() => decision.word().to_owned(),
            Some(decision) => format!("{} (for {decided} of {})", decision.word(), self.holders.len()),
        };
        let mut names = self.names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(" ");
        if self.objects as usize > NAMES_SHOWN {
            names.push_str(" …");
        }
        let missing = format!("{} of {} {}s", self.objects, self.known, self.kind.word());
        [self.id.clone(), missing, cause.to_owned(), decision, self.holders.len().to_string(), names]
    }
}

async fn list(kubeconfig: &PathBuf, format: &str) -> Result<String, String> {
    let brakes = brakes(kubeconfig).await?.list(&ListParams::default()).await;
    let rows: Vec<Row> = brakes.map_err(|error| told(kubeconfig, error))?.items.into_iter().map(Row::new).collect();
    render(&rows, format)
}

fn render(rows: &[Row], format: &str) -> Result<String, String> {
    match format {
        "json" => serde_json::to_string_pretty(rows).map(|text| text + "\n").map_err(|error| error.to_string()),
        "yaml" => {
            // By way of JSON, so that both say the same.
            let value = serde_json::to_value(rows).map_err(|error| error.to_string())?;
            let text = serde_saphyr::to_string(&value).map_err(|error| error.to_string())?;
            Ok(if text.ends_with('\n') { text } else { text + "\n" })
        }
        _ if rows.is_empty() => Ok("nothing is held\n".to_owned()),
        _ => {
            let head = ["ID", "MISSING", "HOW", "DECISION", "NAME SERVERS", "NAMES"].map(str::to_owned);
            let table: Vec<[String; 6]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
            let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let widths: [usize; 6] = std::array::from_fn(width);
            let line = |row: &[String; 6]| {
                let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
                cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
            };
            Ok(table.iter().map(line).collect())
        }
    }
}

async fn decide(kubeconfig: &PathBuf, id: &str, decision: Decision) -> Result<String, String> {
    let api = brakes(kubeconfig).await?;
    let brake = api.get_opt(id).await.map_err(|error| told(kubeconfig, error))?;
    let brake = brake.ok_or_else(|| format!("nothing is held under {id:?}; \"signpost brake list\" shows what is"))?;
    // The set that was shown, or none: were the object made anew since, its uid would be another one.
    let patch = json!({
        "metadata": {"uid": brake.metadata.uid},
        "spec": {"decision": decision, "decidedAt": Time(Timestamp::now())},
    });
    let patched = api.patch(id, &PatchParams::default(), &Patch::Merge(patch)).await;
    let row = Row::new(patched.map_err(|error| told(kubeconfig, error))?);
    let (objects, kind, servers) = (row.objects, row.kind.word(), row.holders.len());
    Ok(match decision {
        Decision::Approve => format!(
            "approved: {objects} {kind}s are no longer served by the {servers} name server(s) that hold {id}; \"signpost brake \
             list\" shows who still does"
        ),
        Decision::Reject => format!(
            "rejected: {objects} {kind}s stay served by the {servers} name server(s) that hold {id}, without alarm, until others \
             are missing, too; restore them in the API"
        ),
    })
}

async fn brakes(kubeconfig: &PathBuf) -> Result<Api<Brake>, String> {
    let client: Client = client::from_kubeconfig(kubeconfig).await.map_err(|error| error.to_string())?;
    Ok(Api::all(client))
}

fn told(kubeconfig: &PathBuf, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => unanswered(kubeconfig, &status.message),
        error => unanswered(kubeconfig, &error.to_string()),
    }
}

fn unanswered(kubeconfig: &PathBuf, why: &str) -> String {
    format!(
        "the API of {} does not answer as needed: {why}; the log and signpost_brake_held_objects of each name server say what \
         it holds",
        kubeconfig.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(decision: serde_json::Value, generations: &[i64]) -> Row {
        let holders: Vec<_> = generations
            .iter()
            .enumerate()
            .map(|(at, generation)| {
                json!({"server": format!("ns{at}"), "since": "2026-01-01T00:00:00Z", "generation": generation})
            })
            .collect();
        let brake = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Brake",
            "metadata": {"name": "routers-0123456789abcdef", "generation": 2},
            "spec": {"type": "Router", "objects": 4, "known": 5, "cause": "list", "names": ["a", "b", "c", "d"],
                     "decision": decision},
            "status": {"holders": holders},
        });
        Row::new(serde_json::from_value(brake).expect("a Brake"))
    }

    #[test]
    fn a_table_and_its_json() {
        let rows = [row(json!(null), &[1, 1]), row(json!("reject"), &[1, 2]), row(json!("approve"), &[1])];
        let lines = [
            "ID                        MISSING         HOW                  DECISION             NAME SERVERS  NAMES",
            "routers-0123456789abcdef  4 of 5 Routers  missing from a list  -                    2             a b c …",
            "routers-0123456789abcdef  4 of 5 Routers  missing from a list  reject (for 1 of 2)  2             a b c …",
            "routers-0123456789abcdef  4 of 5 Routers  missing from a list  approve              1             a b c …",
        ];
        let table = render(&rows, "table").expect("it renders");
        assert_eq!(table.lines().collect::<Vec<_>>(), lines);
        assert_eq!(render(&[], "table").as_deref(), Ok("nothing is held\n"));
        let json: serde_json::Value = serde_json::from_str(&render(&rows, "json").expect("it renders")).expect("JSON");
        assert_eq!(json[1]["holders"][1], json!({"server": "ns1", "since": "2026-01-01T00:00:00Z", "decided": false}));
        assert_eq!((&json[0]["type"], &json[0]["decision"]), (&json!("Router"), &json!(null)));
        assert_eq!(render(&[], "json").as_deref(), Ok("[]\n"));
        assert!(render(&rows, "yaml").expect("it renders").contains("cause: list"));
    }
}
