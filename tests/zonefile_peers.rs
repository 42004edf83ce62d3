//! Other name servers load what we write: a zone with every type, and the proposal's zones, through `nsd-checkzone`, Knot's
//! `knotc zone-check` and BIND's `named-checkzone`, each where it is installed (Debian: `nsd`, `knot`, `bind9-utils`).

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use signpost_dns::wire::Name;
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::read_zone;
use signpost_dns::zonefile::write::to_text;

fn load(text: &str, origin: &str) -> Contents {
    let origin: Name = origin.parse().unwrap();
    let read = read_zone(text.as_bytes(), &Arc::from(Path::new("test")), Some(origin), &mut NoIncludes);
    read.contents.unwrap_or_else(|| panic!("{:#?}", read.findings))
}

fn zones(unsayable: &[&str]) -> Vec<Contents> {
    let mut every_type = String::from("$TTL 300\n@ SOA ns admin 1 2 3 4 300\n@ NS ns\nns A 192.0.2.1\n");
    every_type += "\\*.esc\\.aped TXT \"\\000\\\"\\\\;\\255\"\n* A 192.0.2.7\nx 60 A 192.0.2.7\n\\$d\\@ A 192.0.2.7\n";
    for (index, line) in include_str!("../crates/dns/tests/zonefile/types.txt").lines().enumerate() {
        // A checker correctly reports proofs and delegations without a target.
        let skip = ["#", "NSEC", "DNAME", "NS "].iter().chain(unsayable).any(|start| line.starts_with(start));
        if !line.is_empty() && !skip {
            let given = line.split(" => ").next().expect("a line has a first part");
            every_type += &format!("t{index} {given}\n");
        }
    }
    vec![
        load(&every_type, "example.org."),
        load(include_str!("../zones/shard1.zone"), "shard1."),
        load(include_str!("../zones/v3.rhcloud.com.zone"), "v3.rhcloud.com."),
        load(include_str!("../crates/dns/tests/zonefile/signed-nsec.zone"), "example.org."),
        load(include_str!("../crates/dns/tests/zonefile/signed-nsec3.zone"), "example.org."),
    ]
}

/// Runs a checker on each zone; prints a note if it is not installed. `unsayable` lists the beginnings of valid records that it
/// rejects in any form.
fn check_with(program: &str, unsayable: &[&str], arguments: impl Fn(&Path, &str, &Path) -> Vec<String>) {
    let paths = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let Some(program) = paths.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.exists()) else {
        eprintln!("SKIPPED: {program} is not installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for zone in zones(unsayable) {
        let file = dir.path().join("exported.zone");
        let text = to_text(&zone);
        std::fs::write(&file, &text).unwrap();
        let apex = zone.apex().to_string();
        let output = Command::new(&program).args(arguments(dir.path(), &apex, &file)).output().unwrap();
        assert!(
            output.status.success(),
            "{} {apex}: {}{}\n{}",
            program.display(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&text),
        );
    }
}

#[test]
fn nsd_loads_what_we_write() {
    check_with("nsd-checkzone", &["KEY 49152"], |_, apex, file| vec![apex.to_owned(), file.display().to_string()]);
}

#[test]
fn knot_loads_what_we_write() {
    check_with("knotc", &["KEY 49152"], |dir, apex, file| {
        let config = dir.join("knot.conf");
        let dir = dir.display();
        let text = format!(
            "server:\n    rundir: {dir}\ndatabase:\n    storage: {dir}\nzone:\n  - domain: {apex}\n    file: {}\n    semantic-checks: soft\n",
            file.display()
        );
        std::fs::write(&config, text).unwrap();
        vec!["-c".into(), config.display().to_string(), "zone-check".into(), apex.to_owned()]
    });
}

#[test]
fn bind_loads_what_we_write() {
    let unsayable = ["MD", "MF", "LOC \\#", "APL \\#", "IPSECKEY 10 0 0", "ZONEMD 2018031900 241 1"];
    check_with("named-checkzone", &unsayable, |_, apex, file| {
        vec!["-i".into(), "none".into(), "-k".into(), "warn".into(), apex.to_owned(), file.display().to_string()]
    });
}

/// The expected findings in the first lines of a file of `crates/dns/tests/zonefile/check`: those of Signpost, and the exit codes
/// of others.
struct Expected {
    /// `ok`, `note`, `warning`, `fault` or `error`, and the codes.
    signpost: Vec<String>,
    knot: i32,
    bind: i32,
}

impl Expected {
    fn read(text: &str, file: &str) -> Self {
        let field = |name: &str| {
            let start = format!("; {name}: ");
            let line = text.lines().take(4).find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("{file} does not have '{start}…'")).to_owned()
        };
        let code = |name: &str| field(name).parse().unwrap_or_else(|_| panic!("{file}: {name}"));
        let expected = Expected {
            signpost: field("signpost").split(' ').map(str::to_owned).collect(),
            knot: code("knot"),
            bind: code("bind"),
        };
        let refused = matches!(&*expected.signpost[0], "error" | "fault");
        let differs = expected.knot != i32::from(refused) || expected.bind != i32::from(refused);
        let silent = expected.signpost[0] == "warning" && (expected.knot, expected.bind) == (0, 0);
        assert!(!differs || text.contains("; why: "), "{file} differs from others without a reason");
        assert!(!silent || !expected.signpost[1..].is_empty(), "{file} warns of nothing");
        expected
    }
}

/// Compares `signpost check zone` with `kzonecheck` and `named-checkzone`, on a directory of valid and invalid files. Where the
/// results differ, the file contains the reason.
#[test]
fn findings_beside_those_of_knot_and_bind() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/dns/tests/zonefile/check");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 30, "{} files only", files.len());
    let run = |program: &str, arguments: &[&str], file: &Path| {
        let output = Command::new(program).args(arguments).arg(file).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (scripts/test installs it): {error}"));
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for path in &files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = Expected::read(&std::fs::read_to_string(path).unwrap(), &file);
        let ours = env!("CARGO_BIN_EXE_signpost");
        let (exit, printed) = run(ours, &["check", "zone", "--origin", "example.org."], path);
        let findings = printed.lines().filter(|line| line.ends_with(']'));
        let mut codes: Vec<&str> =
            findings.clone().filter_map(|line| line.rsplit_once('[')?.1.strip_suffix(']')).collect();
        codes.sort_unstable();
        codes.dedup();
        let severities =
            [("error", ": error: "), ("fault", ": fault: "), ("warning", ": warning: "), ("note", ": note: ")];
        let worst = severities.iter().find(|(_, mark)| findings.clone().any(|line| line.contains(mark)));
        let severity = worst.map_or("ok", |(severity, _)| severity);
        let mut wanted: Vec<&str> = expected.signpost[1..].iter().map(String::as_str).collect();
        wanted.sort_unstable();
        assert_eq!((severity, codes), (&*expected.signpost[0], wanted), "{file}:\n{printed}");
        assert_eq!(exit, i32::from(matches!(severity, "error" | "fault")), "{file}");
        let (strict, _) = run(ours, &["check", "zone", "--strict", "--origin", "example.org."], path);
        assert_eq!(strict, i32::from(!matches!(severity, "ok" | "note")), "{file} with --strict");
        // Each finding has its position.
        for line in findings {
            let place = line.strip_prefix(&format!("{}:", path.display()));
            let number = place.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
            assert!(number.is_some_and(|number| number > 0), "{line}");
        }
        let (knot, printed) = run("kzonecheck", &["-t", "20270101000000", "-o", "example.org."], path);
        assert_eq!(knot, expected.knot, "{file}: kzonecheck: {printed}");
        let (bind, printed) = run("named-checkzone", &["-k", "warn", "example.org"], path);
        assert_eq!(bind, expected.bind, "{file}: named-checkzone: {printed}");
    }
}
