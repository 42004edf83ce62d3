//! `signpost zone diff`: the differences between two zone files, or between a zone file and the current zone.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;

use crate::cli::output::{self, Format};
use crate::cli::style::{Painter, Style, harmless};
use crate::cli::zones::RecordLine;
use crate::cli::{Error, Outcome, file, folder, success_if, switch};
use signpost_control::compiler::apex;
use signpost_dns::wire::Name;
use signpost_dns::zone::{Contents, Rrset, diff};
use signpost_dns::zonefile::{CheckLevel, Severity};

pub(super) fn command() -> Command {
    let files = file(Arg::new("files").value_names(["BEFORE", "AFTER"]).required(true).num_args(1..=2))
        .help("The zone files; a single file is compared with the current zone of its apex");
    let origin = super::apex_argument()
        .long("origin")
        .value_name("NAME")
        .help("The first origin of the files [default: their names without .zone]");
    let serial = switch("ignore-serial").help("Ignore a difference of the SOA serial");
    Command::new("diff")
        .about("Print the differences between two zone files, or between a zone file and the current zone")
        .override_usage("signpost zone diff [OPTIONS] <BEFORE> [AFTER]")
        .after_help(
            "The command ignores the order and the notation of records. Exit codes: 0 no differences, 1 differences \
             found, 2 the zones cannot be compared, or invalid usage.",
        )
        .arg(files)
        .args([origin, serial])
        .arg(output::argument())
        .args(super::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    // As diff(1): exit code 1 means that there are differences, and nothing else does.
    compare(matches).map_err(|error| match error {
        Error::Usage(error) | Error::Failed(error) => Error::Usage(error),
    })
}

fn compare(matches: &ArgMatches) -> Outcome {
    let origin = matches.get_one::<Name>("apex");
    let files = matches.get_many::<PathBuf>("files").expect("clap demands it");
    let mut contents = files.map(|file| read(file, origin.cloned())).collect::<Result<Vec<_>, _>>()?;
    let before = contents.remove(0);
    let after = match contents.pop() {
        Some(after) => after,
        None => {
            let (_, zones) = super::gather(matches)?;
            let apex = before.apex();
            let zone = zones.at(apex).ok_or_else(|| super::not_found(apex))?;
            zone.contents.clone()
        }
    };
    if before.apex() != after.apex() {
        return Err(format!("{} and {} are different zones", before.apex(), after.apex()).into());
    }
    let changes = Changes::new(before, after, matches.get_flag("ignore-serial"));
    Format::of(matches).show(&changes, |painter| changes.text(painter))?;
    Ok(success_if(changes.removed.is_empty() && changes.added.is_empty()))
}

/// Reads a zone file. The error text lists every error in the file.
fn read(file: &Path, origin: Option<Name>) -> Result<Contents, String> {
    let read = folder::read(file, origin, |now, _| CheckLevel::of_server(now));
    let read = read.map_err(|error| format!("{}: {error}", file.display()))?;
    read.contents.ok_or_else(|| {
        let errors = read.findings.iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(ToString::to_string).collect::<Vec<_>>().join("\n")
    })
}

/// The records that are not in both. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Changes {
    zone: String,
    removed: Vec<RecordLine>,
    added: Vec<RecordLine>,
}

impl Changes {
    fn new(before: Contents, mut after: Contents, ignore_serial: bool) -> Changes {
        if ignore_serial && let Some(serial) = apex::serial_of(&before) {
            apex::set_serial(&mut after, serial);
        }
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for change in diff::rrsets(&before, &after) {
            let old = lines(&change.owner, change.before.as_ref());
            let new = lines(&change.owner, change.after.as_ref());
            removed.extend(old.iter().filter(|line| !new.contains(line)).cloned());
            added.extend(new.into_iter().filter(|line| !old.contains(line)));
        }
        Changes { zone: before.apex().to_string(), removed, added }
    }

    /// Returns the differences by owner and type, removed records before added ones.
    fn text(&self, painter: Painter) -> String {
        let mut all: Vec<(bool, &RecordLine)> = self.removed.iter().map(|line| (false, line)).collect();
        all.extend(self.added.iter().map(|line| (true, line)));
        // Both lists are in canonical order of their owners; the sort is stable and only merges them.
        let place = |line: &RecordLine| line.owner.parse::<Name>().unwrap_or_else(|_| Name::root());
        all.sort_by_cached_key(|(is_new, line)| (place(line), line.rtype.clone(), *is_new));
        let mut text = String::new();
        for (is_new, line) in all {
            let (sign, style) = if is_new { ("+", Style::Good) } else { ("-", Style::Bad) };
            text.push_str(&painter.paint(style, &harmless(&format!("{sign} {line}"))));
            text.push('\n');
        }
        text
    }
}

pub(super) fn lines(owner: &Name, rrset: Option<&Rrset>) -> Vec<RecordLine> {
    let Some(rrset) = rrset else { return Vec::new() };
    rrset.rdata.iter().map(|rdata| RecordLine::new(owner, rrset.ttl.seconds(), rrset.rtype, rdata)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> Contents {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("z.example.zone");
        std::fs::write(&path, text).expect("written");
        read(&path, None).expect("a good zone")
    }

    const BEFORE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nns A 192.0.2.2\nold TXT \"a b\"\n";

    #[test]
    fn records_that_are_not_in_both() {
        let after =
            "$TTL 60\n@ SOA ns h 2 2 3 4 5\n@ NS ns\nns A 192.0.2.3\nns A 192.0.2.1\nnew 5 TXT x\nnew 5 A 192.0.2.9\n";
        let changes = Changes::new(zone(BEFORE), zone(after), false);
        let expected = "\
- z.example. 60 IN SOA ns.z.example. h.z.example. 1 2 3 4 5
+ z.example. 60 IN SOA ns.z.example. h.z.example. 2 2 3 4 5
+ new.z.example. 5 IN A 192.0.2.9
+ new.z.example. 5 IN TXT \"x\"
- ns.z.example. 60 IN A 192.0.2.2
+ ns.z.example. 60 IN A 192.0.2.3
- old.z.example. 60 IN TXT \"a b\"
";
        assert_eq!(changes.text(Painter::PLAIN), expected);
        let ignored = Changes::new(zone(BEFORE), zone(after), true).text(Painter::PLAIN);
        assert!(!ignored.contains("SOA") && ignored.lines().count() == 5, "{ignored}");
        assert_eq!(Changes::new(zone(BEFORE), zone(&BEFORE.replace("h 1", "h 9")), true).text(Painter::PLAIN), "");
    }
}
