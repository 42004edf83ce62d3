//! `signpost zone export`: the zones as ordinary master files, which BIND, Knot and NSD load.
//!
//! The generated zones are made from the API's objects the way a name server makes them, under the serials that the
//! Zone objects record; zone files given by `--zones` are read and written again in the same form.

use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};

use crate::cli::zones::Zones;
use crate::cli::{Exit, Outcome, directory, option, print};
use signpost_dns::zonefile;

pub(super) fn command() -> Command {
    let out = directory(option("out", "DIR"))
        .help("The directory for the files <apex>.zone, created if necessary [default: print to standard output]");
    Command::new("export")
        .about("Write zones as zone files: those compiled from the API's objects, and those of --zones")
        .after_help(
            "Exit codes: 0 written, 1 the API is unreachable, a zone file has errors, or a file cannot be written, 2 \
             invalid usage.",
        )
        .arg(out)
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let (_, zones) = super::gather(matches)?;
    write(&zones, matches.get_one::<PathBuf>("out").map(PathBuf::as_path))?;
    Ok(Exit::Success)
}

fn write(zones: &Zones, out: Option<&Path>) -> Result<(), String> {
    let zones = zones.zones.iter().map(|zone| &zone.contents);
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
        // A process that loads the directory meanwhile sees only complete files.
        std::fs::write(&beside, zonefile::write::to_text(zone))
            .and_then(|()| std::fs::rename(&beside, &path))
            .map_err(|error| fault(&path, error))?;
        print(&format!("{}\n", path.display()));
    }
    Ok(())
}
