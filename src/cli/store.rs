//! `signpost store`: moves the objects from a file to etcd, or back, and replaces the key that encrypts Secrets.

mod rekey;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;
#[cfg(feature = "etcd")]
use tokio::runtime::Handle;

use super::backup::{self, STORE_KEYS};
use super::output::{self, Format};
use super::table::Properties;
use super::{Exit, Outcome, option, serve};
use crate::config::{self, Engine, Settings};
use signpost_apiserver::store;

/// The backup that passes from one store to the other, in the data directory.
const FILE: &str = "migrate.backup";

pub(super) fn command() -> Command {
    let engine = |name: &'static str, help: &'static str| -> Arg {
        option(name, "ENGINE").help(help).required(true).value_parser(["file", "etcd"])
    };
    let migrate = Command::new("migrate")
        .about("Move all objects from a file to etcd, or back")
        .after_help(
            "Stop the API servers first. The target must be empty. The source does not change. Names, claims, \
             quarantines, and the order of revisions stay the same. Revisions are new, so that clients list again, and \
             the serials of zones continue after the earlier ones. Afterwards, set \"store\" in the configuration, and \
             start the API servers. The CA, tokens, and users in <data-dir>/pki stay; the first API server with the \
             store etcd shares its own. Exit codes: 0 moved, 1 not moved, 2 invalid usage.",
        )
        .arg(engine("from", "The source store"))
        .arg(engine("to", "The target store, which must be empty"))
        .arg(output::argument())
        .args(serve::arguments_of(STORE_KEYS));
    Command::new("store")
        .about("Manage the store of the API")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(migrate)
        .subcommand(rekey::command())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    match matches.subcommand() {
        Some(("migrate", matches)) => migrate(matches),
        Some(("rekey", matches)) => rekey::run(matches),
        _ => Ok(Exit::Usage),
    }
}

/// The moved objects. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    objects: u64,
    first_revision: u64,
}

fn migrate(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let given = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let (from, to) = match (given("from"), given("to")) {
        ("file", "etcd") => (Engine::File, Engine::Etcd),
        ("etcd", "file") => (Engine::Etcd, Engine::File),
        (one, _) => {
            return Err(super::Error::Usage(format!("--from and --to are both {one}; choose different stores")));
        }
    };
    if settings.etcd.endpoints.is_empty() {
        return Err(super::Error::Usage("etcd.endpoints is not set; list the members of the cluster".to_owned()));
    }
    let path = settings.data_dir.join(FILE);
    let moved = write(&settings, from, &path).and_then(|()| {
        let summary = backup::check(&path)?;
        let first_revision = backup::restore(&settings, to, &path, &summary)?;
        Ok(Report { objects: summary.values, first_revision })
    });
    let _ = std::fs::remove_file(&path);
    let report = moved?;
    Format::of(matches).show(&report, |painter| {
        let mut facts = Properties::default();
        facts.add("objects", report.objects.to_string());
        facts.add("moved", format!("to {}; first revision {}", given("to"), report.first_revision));
        facts.text(painter)
    })
}

/// Writes all objects of the source to `path`.
fn write(settings: &Settings, from: Engine, path: &Path) -> Result<(), String> {
    let fault = |error: std::io::Error| format!("{}: {error}", path.display());
    if from == Engine::Etcd {
        std::fs::create_dir_all(&settings.data_dir).map_err(fault)?;
    }
    let mut to: BufWriter<File> = BufWriter::new(backup::create(path)?);
    match from {
        Engine::File => {
            let store = backup::stopped_store(&settings.data_dir)?;
            store::backup::backup(&store, &mut to).map_err(|error| error.to_string())?;
        }
        #[cfg(feature = "etcd")]
        Engine::Etcd => {
            to = backup::with_etcd(settings, "reading etcd", async move |etcd| {
                let runtime = Handle::current();
                let write = move || etcd.backup(&runtime, &mut to).map(|_| to);
                let written = tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?;
                written.map_err(|error| error.to_string())
            })?;
        }
        #[cfg(not(feature = "etcd"))]
        Engine::Etcd => backup::with_etcd(settings, "", async |_| Ok(()))?,
    }
    to.into_inner().map_err(|error| fault(error.into_error()))?.sync_all().map_err(fault)
}
