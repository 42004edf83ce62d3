//! `signpost zone export`: the zones as ordinary master files, which BIND, Knot and NSD load.
//!
//! The generated zones are made from the API's objects the way a name server makes them, under the serials that the Zone
//! objects record; zone files given by `--zones` are read and written again in the same form.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command, ValueHint};

use super::folder::StaticZones;
use super::{Exit, complain, print, serve};
use crate::client;
use crate::config;
use crate::controller::export;
use crate::daemon::platform;

use crate::zone::Contents;
use crate::zonefile;

pub(super) fn command() -> Command {
    let out = Arg::new("out")
        .long("out")
        .value_name("DIR")
        .help("Folder to write <apex>.zone files into, made if it is not there; without it all go to standard output")
        .value_parser(ValueParser::path_buf())
        .value_hint(ValueHint::DirPath);
    let export = Command::new("export")
        .about("Writes zones as master files: those made from the API's objects, and those of --zones")
        .after_help(
            "The API is the one of --kubeconfig, else of <data-dir>/kubeconfig; with --zones and no --kubeconfig none is \
             asked. Give the same --domain and --nameserver as the name servers have.",
        )
        .arg(out)
        .args(serve::arguments());
    Command::new("zone")
        .about("Looks at zones")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(export)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let Some(("export", matches)) = matches.subcommand() else { return Exit::Usage };
    let settings = match config::read(&serve::places(matches)) {
        Ok(settings) => settings,
        Err(errors) => {
            for error in &errors.0 {
                complain(error);
            }
            return Exit::Usage;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let exported = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(zones(&settings)));
    let out = matches.get_one::<PathBuf>("out");
    match exported.and_then(|zones| write(&zones, out.map(PathBuf::as_path))) {
        Ok(()) => Exit::Success,
        Err(error) => {
            complain(error);
            Exit::Failure
        }
    }
}

/// All zones, in the order in which they are written.
async fn zones(settings: &config::Settings) -> Result<Vec<Contents>, String> {
    let mut files = match &settings.zones {
        None => StaticZones::default(),
        Some(folder) => StaticZones::read(folder).map_err(|error| error.to_string())?,
    };
    for finding in files.errors() {
        complain(finding);
    }
    if files.errors().next().is_some() {
        return Err("there are errors in zone files; nothing was written".to_owned());
    }
    let kubeconfig = match (&settings.kubeconfig, &settings.zones) {
        (Some(path), _) => path.clone(),
        (None, Some(_)) => return Ok(files.into_zones()),
        (None, None) => settings.data_dir.join("kubeconfig"),
    };
    let client = client::from_kubeconfig(&kubeconfig).await.map_err(|error| error.to_string())?;
    let listened: Vec<_> = settings.dns_listen.iter().map(|address| address.ip()).collect();
    let base = files.take(&settings.domain);
    let platform = platform::settings(settings, &listened, base).map_err(|error| error.to_string())?;
    let exported = export::export(client, &platform)
        .await
        .map_err(|error| format!("the API of {} does not answer as needed: {error}", kubeconfig.display()))?;
    for verdict in &exported.verdicts {
        complain(format_args!("left out: {verdict}"));
    }
    let mut zones: Vec<Contents> = exported.zones.into_iter().map(|zone| zone.contents).collect();
    let statics = files.into_zones();
    if let Some(clash) = statics.iter().find(|file| zones.iter().any(|zone| zone.apex() == file.apex())) {
        return Err(format!("the zone {} is both in a file and made from the API's objects", clash.apex()));
    }
    zones.extend(statics);
    Ok(zones)
}

fn write(zones: &[Contents], out: Option<&Path>) -> Result<(), String> {
    let Some(folder) = out else {
        for zone in zones {
            print(&String::from_utf8_lossy(&zonefile::write::to_text(zone)));
            print("\n");
        }
        return Ok(());
    };
    let fault = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(|error| fault(folder, error))?;
    for zone in zones {
        let apex = zone.apex().to_string();
        let stem = match apex.trim_end_matches('.') {
            "" => "root",
            name => name,
        };
        let path = folder.join(format!("{}.zone", stem.replace('/', "\\047")));
        let beside = path.with_extension("zone.new");
        // Whoever loads the folder meanwhile sees whole files alone.
        std::fs::write(&beside, zonefile::write::to_text(zone))
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| fault(&path, error))?;
        print(&format!("{}\n", path.display()));
    }
    Ok(())
}
