//! Other name servers load what we write: a zone with every type, and the proposal's zones, through `nsd-checkzone`, Knot's
//! `knotc zone-check` and BIND's `named-checkzone`, each where it is installed (Debian: `nsd`, `knot`, `bind9-utils`).

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use signpost::wire::Name;
use signpost::zone::Contents;
use signpost::zonefile::include::NoIncludes;
use signpost::zonefile::read_zone;
use signpost::zonefile::write::to_text;

fn load(text: &str, origin: &str) -> Contents {
    let origin: Name = origin.parse().unwrap();
    let read = read_zone(text.as_bytes(), &Arc::from(Path::new("test")), Some(origin), &mut NoIncludes);
    read.contents.unwrap_or_else(|| panic!("{:#?}", read.findings))
}

fn zones(unsayable: &[&str]) -> Vec<Contents> {
    let mut every_type = String::from("$TTL 300\n@ SOA ns admin 1 2 3 4 300\n@ NS ns\nns A 192.0.2.1\n");
    every_type += "\\*.esc\\.aped TXT \"\\000\\\"\\\\;\\255\"\n* A 192.0.2.7\nx 60 A 192.0.2.7\n\\$d\\@ A 192.0.2.7\n";
    for (index, line) in include_str!("zonefile/types.txt").lines().enumerate() {
        // Proofs and delegations that lead nowhere are what a checker rightly complains about.
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
        load(include_str!("zonefile/signed-nsec.zone"), "example.org."),
        load(include_str!("zonefile/signed-nsec3.zone"), "example.org."),
    ]
}

/// Runs a checker over each zone; says so if it is not installed. `unsayable` begins records of valid data that it refuses
/// in any form.
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
    let unsayable = ["MD", "MF", "LOC \\#", "APL \\#", "IPSECKEY 10 0 0"];
    check_with("named-checkzone", &unsayable, |_, apex, file| {
        vec!["-i".into(), "none".into(), "-k".into(), "warn".into(), apex.to_owned(), file.display().to_string()]
    });
}
