//! The folder of zone files: what each scan finds, through edits, mistakes, renames, includes and ConfigMap links.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zonefile::folder::{Extent, FileChange, Folder, is_zone_file, origin_by_name};

struct Fixture {
    dir: tempfile::TempDir,
    folder: Folder,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), 2);
        Fixture { dir, folder }
    }

    fn write(&self, file: &str, text: &str) {
        // By way of a rename, so that the inode is new: the tests do not wait for the clock to tick.
        let temporary = self.dir.path().join(".new");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.dir.path().join(file)).unwrap();
    }

    /// The zone of `apex` in `file`, with one address.
    fn zone(&self, file: &str, apex: &str, address: &str) {
        self.write(file, &zone_text(apex, address));
    }

    /// Returns the changes that a scan finds, one in each line.
    fn scan(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        let short = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let ns1 = |zone: signpost_dns::zone::Contents| {
            let owner = zone.apex().prepend(b"ns1").unwrap();
            zone.get(&owner, RecordType::A).map(|rrset| rrset.rdata[0][3])
        };
        let tally = self.folder.rescan(ns1, |change| {
            changes.push(match change {
                FileChange::Serve { path, apex, zone, findings, .. } => {
                    assert_eq!(findings, []);
                    format!("{} serves {apex} {}", short(&path), zone.unwrap_or(0))
                }
                FileChange::Refuse { path, apex, last_good, findings } => {
                    let keeps = last_good.map_or(String::new(), |apex| format!(", keeps {apex}"));
                    let finding = &findings[0];
                    let include = match finding.file == path {
                        true => String::new(),
                        false => short(&finding.file) + ":",
                    };
                    let place = format!("{include}{}:{}", finding.line, finding.column);
                    format!("{} refused ({}) {place} {}{keeps}", short(&path), apex.unwrap(), finding.code)
                }
                FileChange::Withdraw { path, apex } => format!("{} withdrew {apex}", short(&path)),
            });
        });
        let tally = tally.unwrap();
        assert_eq!(tally.served + tally.refused + tally.withdrawn, changes.len());
        changes
    }
}

fn zone_text(apex: &str, address: &str) -> String {
    format!("$ORIGIN {apex}\n$TTL 60\n@ SOA ns1 admin 1 2 3 4 60\n@ NS ns1\nns1 A {address}\n")
}

#[test]
fn what_changes_is_found_and_nothing_else() {
    let mut f = Fixture::new();
    assert_eq!(f.scan(), [""; 0]);
    f.zone("a.example.zone", "a.example.", "192.0.2.1");
    f.zone("b.zone", "b.example.", "192.0.2.1");
    f.write("notes.txt", "not a zone");
    f.write(".hidden.zone", "not a zone");
    fs::create_dir(f.dir.path().join("sub.zone")).unwrap();
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 1", "b.zone serves b.example. 1"]);
    assert_eq!(f.scan(), [""; 0]);
    f.zone("b.zone", "b.example.", "192.0.2.2");
    f.zone("c.zone", "c.example.", "192.0.2.1");
    fs::remove_file(f.dir.path().join("a.example.zone")).unwrap();
    assert_eq!(
        f.scan(),
        ["b.zone serves b.example. 2", "c.zone serves c.example. 1", "a.example.zone withdrew a.example."]
    );
    f.zone("b.zone", "b.example.", "192.0.2.2");
    assert_eq!(f.scan(), [""; 0], "rewritten with the same text");
    assert_eq!(f.folder.zone_count(), 2);
    assert!(f.folder.file_of(&"C.example.".parse::<Name>().unwrap()).unwrap().ends_with("c.zone"));
}

/// A copy of a file with its times, or the unpacking of a reproducible one, leaves size and time unchanged.
#[test]
fn a_change_that_leaves_size_and_time_is_found() {
    let mut f = Fixture::new();
    let path = f.dir.path().join("a.example.zone");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    for address in ["192.0.2.1", "192.0.2.2"] {
        fs::write(&path, zone_text("a.example.", address)).unwrap();
        fs::File::options().append(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(f.scan(), [format!("a.example.zone serves a.example. {}", &address[8..])]);
    }
}

#[test]
fn a_file_whose_name_is_no_domain_name_gives_no_origin() {
    for (file, origin) in [
        ("v3.test.zone", Some("v3.test.")),
        ("b\u{fc}cher.zone", None),
        ("a..b.zone", None),
        (r"\252.zone", Some(r"\252.")),
    ] {
        let found = origin_by_name(Path::new(file)).map(|name| name.to_string());
        assert_eq!(found.as_deref(), origin, "{file}");
    }
}

#[test]
fn the_origin_is_the_files_name_unless_it_says_another() {
    let mut f = Fixture::new();
    f.write("v3.test.zone", "$TTL 60\n@ SOA ns1 admin 1 2 3 4 60\n@ NS ns1\nns1 A 192.0.2.1\n");
    f.write("any name.zone", &zone_text("other.test.", "192.0.2.2"));
    assert_eq!(f.scan(), ["any name.zone serves other.test. 2", "v3.test.zone serves v3.test. 1"]);
}

#[test]
fn a_mistake_never_replaces_the_last_good_version() {
    let mut f = Fixture::new();
    f.zone("a.example.zone", "a.example.", "192.0.2.1");
    f.write("new.example.zone", "@ SOA oops\n");
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 1", "new.example.zone refused (new.example.) 1:11 rdata"]);
    f.zone("a.example.zone", "a.example.", "192.0.2");
    assert_eq!(f.scan(), ["a.example.zone refused (a.example.) 5:7 rdata, keeps a.example."]);
    assert_eq!(f.scan(), [""; 0], "reported once");
    f.zone("a.example.zone", "a.example.", "192.0.2.3");
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 3"]);
    f.zone("a.example.zone", "a.example.", "192.0.2");
    f.scan();
    fs::remove_file(f.dir.path().join("a.example.zone")).unwrap();
    assert_eq!(f.scan(), ["a.example.zone withdrew a.example."]);
}

#[test]
fn a_file_that_cannot_be_read_is_refused_until_it_can() {
    let mut f = Fixture::new();
    std::os::unix::fs::symlink("nowhere", f.dir.path().join("a.example.zone")).unwrap();
    assert_eq!(f.scan(), ["a.example.zone refused (a.example.) 1:1 unreadable"]);
    assert_eq!(f.scan(), [""; 0]);
    f.zone("nowhere", "a.example.", "192.0.2.1");
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 1"]);
    fs::remove_dir_all(f.dir.path()).unwrap();
    assert!(f.folder.rescan(|_| (), |_| panic!("nothing changes")).is_err());
    assert_eq!(f.folder.zone_count(), 1);
}

/// Opening a FIFO waits for a writer: one in the folder, or behind a link or an `$INCLUDE`, must not hold up the others.
#[test]
fn what_is_no_regular_file_is_refused_and_waited_for_by_nobody() {
    let mut f = Fixture::new();
    let path = |file: &str| f.dir.path().join(file);
    for fifo in ["a.example.zone", "hosts"] {
        assert!(std::process::Command::new("mkfifo").arg(path(fifo)).status().unwrap().success());
    }
    let _socket = std::os::unix::net::UnixListener::bind(path("b.example.zone")).unwrap();
    std::os::unix::fs::symlink("/dev/null", path("c.example.zone")).unwrap();
    std::os::unix::fs::symlink("hosts", path("d.example.zone")).unwrap();
    fs::create_dir(path("folder")).unwrap();
    std::os::unix::fs::symlink("folder", path("e.example.zone")).unwrap();
    f.write("f.example.zone", "$TTL 60\n@ SOA ns1 admin 1 2 3 4 60\n@ NS ns1\n$INCLUDE hosts\n");
    f.zone("g.example.zone", "g.example.", "192.0.2.1");
    // A scan that waits would never end: this way the test fails instead.
    let (sender, scans) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send([f.scan(), f.scan()]).expect("is waited for"));
    let [first, second] = scans.recv_timeout(std::time::Duration::from_secs(60)).expect("the scan ends");
    assert_eq!(
        first,
        [
            "a.example.zone refused (a.example.) 1:1 unreadable",
            "b.example.zone refused (b.example.) 1:1 unreadable",
            "c.example.zone refused (c.example.) 1:1 unreadable",
            "d.example.zone refused (d.example.) 1:1 unreadable",
            "e.example.zone refused (e.example.) 1:1 unreadable",
            "f.example.zone refused (f.example.) 4:10 include",
            "g.example.zone serves g.example. 1",
        ]
    );
    assert_eq!(second, [""; 0], "reported once");
}

#[test]
fn two_files_with_one_apex() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2.1");
    f.zone("b.zone", "X.example.", "192.0.2.2");
    assert_eq!(f.scan(), ["a.zone serves x.example. 1", "b.zone refused (X.example.) 1:1 apex-taken"]);
    assert_eq!(f.scan(), [""; 0]);
    // The file that has the zone keeps it, also with a file before it by name.
    f.zone("0.zone", "x.example.", "192.0.2.3");
    assert_eq!(f.scan(), ["0.zone refused (x.example.) 1:1 apex-taken"]);
    fs::remove_file(f.dir.path().join("a.zone")).unwrap();
    assert_eq!(f.scan(), ["0.zone serves x.example. 3"]);
    // A file that turns to a taken zone keeps its own.
    f.zone("c.zone", "c.example.", "192.0.2.4");
    assert_eq!(f.scan(), ["c.zone serves c.example. 4"]);
    f.zone("c.zone", "x.example.", "192.0.2.5");
    assert_eq!(f.scan(), ["c.zone refused (x.example.) 3:1 apex-changed, keeps c.example."]);
}

/// The zones that no file gives, though files name them: for any order of the files, and of their changes.
#[test]
fn unserved_is_what_only_broken_files_name() {
    let mut f = Fixture::new();
    let broken = |apex: &str| zone_text(apex, "192.0.2");
    let unserved = |f: &mut Fixture| {
        f.scan();
        let mut apexes: Vec<String> = f.folder.unserved().map(|(apex, _)| apex.to_string()).collect();
        apexes.sort_unstable();
        (apexes, f.folder.broken_count(), f.folder.outdated_count())
    };
    f.write("a.zone", &broken("first.example."));
    f.zone("b.zone", "first.example.", "192.0.2.1");
    f.zone("c.zone", "second.example.", "192.0.2.1");
    f.write("d.zone", &broken("second.example."));
    f.zone("e.zone", "second.example.", "192.0.2.2");
    f.write("g.zone", &broken("third.example."));
    f.write("h.zone", &broken("third.example."));
    assert_eq!(unserved(&mut f), (vec!["third.example.".to_owned(); 2], 4, 0));
    fs::remove_file(f.dir.path().join("g.zone")).unwrap();
    fs::remove_file(f.dir.path().join("b.zone")).unwrap();
    f.write("h.zone", &broken("fourth.example."));
    assert_eq!(unserved(&mut f), (vec!["first.example.".to_owned(), "fourth.example.".to_owned()], 3, 0));
    // The second good file takes the place of the first.
    fs::remove_file(f.dir.path().join("c.zone")).unwrap();
    f.zone("a.zone", "first.example.", "192.0.2.1");
    f.zone("h.zone", "fifth.example.", "192.0.2.1");
    assert_eq!(unserved(&mut f), (vec![], 1, 0));
    // What was good once is served.
    f.write("h.zone", &broken("fifth.example."));
    assert_eq!(unserved(&mut f), (vec![], 1, 1));
    // Also if the file is now one for the zone of another.
    f.zone("a.zone", "second.example.", "192.0.2.3");
    assert_eq!(unserved(&mut f), (vec![], 1, 2));
    f.zone("h.zone", "fifth.example.", "192.0.2.4");
    assert_eq!(unserved(&mut f), (vec![], 1, 1));
}

#[test]
fn what_is_not_whole_stays_as_it_was() {
    let mut f = Fixture::new();
    let including = |serial: u8| format!("$TTL 60\n@ SOA ns1 admin {serial} 2 3 4 60\n@ NS ns1\n$INCLUDE hosts\n");
    f.zone("a.example.zone", "a.example.", "192.0.2.1");
    f.write("b.example.zone", &including(1));
    f.write("hosts", "ns1 A 192.0.2.1\n");
    f.scan();
    let scan = |f: &mut Fixture, unfinished: &str| {
        let mut served = Vec::new();
        let is_whole = |path: &Path, _: Option<&_>, _: &_| !path.ends_with(unfinished);
        let note = |change| {
            if let FileChange::Serve { apex, .. } = change {
                served.push(apex.to_string());
            }
        };
        let tally = f.folder.rescan_whole(Extent::All, Some(&is_whole), |_| (), note).unwrap();
        (served, tally.unfinished)
    };
    let of = |served: &[&str], unfinished: usize| (served.iter().map(ToString::to_string).collect(), unfinished);
    f.zone("a.example.zone", "a.example.", "192.0.2.2");
    f.zone("c.example.zone", "c.example.", "192.0.2.2");
    f.write("hosts", "ns1 A 192.0.2.2\n");
    assert_eq!(scan(&mut f, "a.example.zone"), of(&["b.example.", "c.example."], 1));
    assert_eq!(scan(&mut f, "hosts"), of(&["a.example."], 0), "it is unchanged since it was read");
    f.write("hosts", "ns1 A 192.0.2.3\n");
    f.write("b.example.zone", &including(2));
    f.zone("d.example.zone", "d.example.", "192.0.2.2");
    assert_eq!(scan(&mut f, "hosts"), of(&["d.example."], 1));
    assert_eq!(scan(&mut f, "none"), of(&["b.example."], 0));
}

#[test]
fn the_conflict_names_both_files() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2.1");
    f.zone("b.zone", "x.example.", "192.0.2.2");
    let mut message = String::new();
    let see = |change: FileChange<()>| {
        if let FileChange::Refuse { findings, .. } = change {
            message = findings[0].to_string();
        }
    };
    f.folder.rescan(|_| (), see).unwrap();
    assert!(message.contains("a.zone") && message.contains("b.zone") && message.contains("x.example."), "{message}");
}

#[test]
fn renamed_files_leave_no_gap() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2.1");
    f.zone("b.zone", "y.example.", "192.0.2.2");
    f.scan();
    fs::rename(f.dir.path().join("a.zone"), f.dir.path().join("z.zone")).unwrap();
    assert_eq!(f.scan(), ["z.zone serves x.example. 1"]);
    // Two files whose new names are those of neither.
    f.zone("c.zone", "x.example.", "192.0.2.3");
    f.zone("d.zone", "y.example.", "192.0.2.4");
    fs::remove_file(f.dir.path().join("z.zone")).unwrap();
    fs::remove_file(f.dir.path().join("b.zone")).unwrap();
    assert_eq!(f.scan(), ["c.zone serves x.example. 3", "d.zone serves y.example. 4"]);
    assert_eq!(f.scan(), [""; 0]);
}

/// A file that provided x.example. and has other contents: the change, and the next one after it is corrected.
#[test]
fn a_replaced_file_never_withdraws_its_zone() {
    let soa = "SOA ns1.x.example. admin 1 2 3 4 60\n";
    let typed = zone_text("x.exmaple.", "192.0.2.2");
    let owner = format!("$ORIGIN x.example.\n$TTL 60\n@ NS ns1\n ;\nx.exmaple. {soa}");
    let below = format!("$ORIGIN x.example.\n$TTL 60\nwww {soa}www NS ns1\n");
    let above = "$TTL 60\n$ORIGIN example.\n@ NS ns1.x\n  SOA ns1.x admin 1 2 3 4 60\nns1.x A 192.0.2.2\n";
    let included = "$TTL 60\n$ORIGIN x.exmaple.\n$INCLUDE soa\n@ NS ns1\nns1 A 192.0.2.2\n";
    let included_at = "$TTL 60\n$ORIGIN x.example.\n$INCLUDE soa x.exmaple.\n@ NS ns1\nns1 A 192.0.2.2\n";
    let other_case = zone_text("X.Example.", "192.0.2.2");
    let no_ns = typed.replace("@ NS", "www NS");
    for (text, expected) in [
        (typed.as_str(), "a.zone refused (x.exmaple.) 3:1 apex-changed, keeps x.example."),
        (&owner, "a.zone refused (x.exmaple.) 5:1 apex-changed, keeps x.example."),
        (&below, "a.zone refused (www.x.example.) 3:1 apex-changed, keeps x.example."),
        (above, "a.zone refused (example.) 4:3 apex-changed, keeps x.example."),
        (&zone_text("y.example.", "192.0.2.2"), "a.zone refused (y.example.) 3:1 apex-changed, keeps x.example."),
        (&no_ns, "a.zone refused (x.exmaple.) 3:1 apex-changed, keeps x.example."),
        (included, "a.zone refused (x.exmaple.) soa:2:1 apex-changed, keeps x.example."),
        (included_at, "a.zone refused (x.exmaple.) soa:2:1 apex-changed, keeps x.example."),
        ("", "a.zone refused (a.) 1:1 soa-missing, keeps x.example."),
        ("; later\n", "a.zone refused (a.) 1:1 soa-missing, keeps x.example."),
        ("$ORIGIN x.example.\n@ 60 NS ns1\n", "a.zone refused (a.) 1:1 soa-missing, keeps x.example."),
        (&other_case, "a.zone serves X.Example. 2"),
    ] {
        let mut f = Fixture::new();
        f.write("soa", ";\n@ SOA ns1 admin 1 2 3 4 60\n");
        f.zone("a.zone", "x.example.", "192.0.2.1");
        f.zone("b.zone", "y.example.", "192.0.2.1");
        assert_eq!(f.scan(), ["a.zone serves x.example. 1", "b.zone serves y.example. 1"]);
        f.write("a.zone", text);
        assert_eq!(f.scan(), [expected], "{text}");
        assert_eq!(f.scan(), [""; 0], "reported once: {text}");
        assert!(f.folder.file_of(&"x.example.".parse().unwrap()).unwrap().ends_with("a.zone"), "{text}");
        assert_eq!((f.folder.zone_count(), f.folder.unserved().count()), (2, 0), "{text}");
        f.zone("a.zone", "x.example.", "192.0.2.3");
        assert_eq!(f.scan(), ["a.zone serves x.example. 3"], "{text}");
    }
}

/// The other zone is new, or another file provides it, or both files are exchanged: none of the zones is withdrawn.
#[test]
fn files_that_exchange_their_zones_are_refused() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2.1");
    f.zone("b.zone", "y.example.", "192.0.2.1");
    f.scan();
    f.zone("a.zone", "y.example.", "192.0.2.2");
    f.zone("b.zone", "x.example.", "192.0.2.2");
    let refused = [
        "a.zone refused (y.example.) 3:1 apex-changed, keeps x.example.",
        "b.zone refused (x.example.) 3:1 apex-changed, keeps y.example.",
    ];
    assert_eq!(f.scan(), refused);
    f.zone("b.zone", "w.example.", "192.0.2.3");
    assert_eq!(f.scan(), ["b.zone refused (w.example.) 3:1 apex-changed, keeps y.example."]);
    // A new file cannot take a zone that remains served. The zone changes its file when the earlier one is removed.
    f.zone("c.zone", "x.example.", "192.0.2.4");
    assert_eq!(f.scan(), ["c.zone refused (x.example.) 1:1 apex-taken"]);
    fs::remove_file(f.dir.path().join("a.zone")).unwrap();
    assert_eq!(f.scan(), ["c.zone serves x.example. 4"]);
    // The zone of a removed file can change.
    fs::remove_file(f.dir.path().join("b.zone")).unwrap();
    assert_eq!(f.scan(), ["b.zone withdrew y.example."]);
    f.zone("b.zone", "w.example.", "192.0.2.5");
    assert_eq!(f.scan(), ["b.zone serves w.example. 5"]);
}

/// The name of a valid file was that of another one, which still has its zone: the removal of the old name withdraws neither.
#[test]
fn a_file_over_another_one_withdraws_none_of_their_zones() {
    let mut f = Fixture::new();
    let over = |f: &Fixture, from: &str, to: &str| fs::rename(f.dir.path().join(from), f.dir.path().join(to)).unwrap();
    let start = |f: &mut Fixture| {
        f.zone("a.zone", "x.example.", "192.0.2.1");
        f.zone("b.zone", "y.example.", "192.0.2.2");
        f.scan();
        over(f, "b.zone", "a.zone");
        assert_eq!(f.scan(), ["a.zone refused (y.example.) 3:1 apex-changed, keeps x.example."]);
        assert_eq!(f.scan(), [""; 0]);
        assert_eq!((f.folder.zone_count(), f.folder.unserved().count()), (2, 0));
    };
    start(&mut f);
    // Another name for it completes the rename.
    over(&f, "a.zone", "c.zone");
    assert_eq!(f.scan(), ["c.zone serves y.example. 2", "a.zone withdrew x.example."]);
    // Or the file is correct again: the zone of the removed file is then withdrawn, unless it is in another file.
    for (is_in_other, expected) in [(false, "b.zone withdrew y.example."), (true, "c.zone serves y.example. 4")] {
        let mut f = Fixture::new();
        start(&mut f);
        f.zone("a.zone", "x.example.", "192.0.2.3");
        if is_in_other {
            f.zone("c.zone", "y.example.", "192.0.2.4");
        }
        assert_eq!(f.scan(), ["a.zone serves x.example. 3", expected]);
    }
    // Both are withdrawn with the file that has them.
    let mut f = Fixture::new();
    start(&mut f);
    fs::remove_file(f.dir.path().join("a.zone")).unwrap();
    let mut changes = f.scan();
    changes.sort();
    assert_eq!(changes, ["a.zone withdrew x.example.", "b.zone withdrew y.example."]);
}

/// A file that was never valid has no zone to keep.
#[test]
fn a_file_without_a_last_good_zone_may_have_any_apex() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2");
    assert_eq!(f.scan(), ["a.zone refused (x.example.) 5:7 rdata"]);
    f.zone("a.zone", "y.example.", "192.0.2.1");
    assert_eq!(f.scan(), ["a.zone serves y.example. 1"]);
    f.zone("b.zone", "y.example.", "192.0.2.2");
    assert_eq!(f.scan(), ["b.zone refused (y.example.) 1:1 apex-taken"]);
    f.zone("b.zone", "z.example.", "192.0.2.2");
    assert_eq!(f.scan(), ["b.zone serves z.example. 2"]);
}

#[test]
fn the_error_of_a_changed_apex_has_both_zones_and_the_action() {
    let mut f = Fixture::new();
    f.zone("a.zone", "x.example.", "192.0.2.1");
    f.scan();
    f.zone("a.zone", "y.example.", "192.0.2.1");
    let mut message = String::new();
    let see = |change: FileChange<()>| {
        if let FileChange::Refuse { findings, .. } = change {
            message = findings[0].to_string();
        }
    };
    f.folder.rescan(|_| (), see).unwrap();
    for part in ["a.zone:3:1: error: ", "y.example.", "x.example.", "$ORIGIN", "another name", "delete this file"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn included_files_are_watched_too() {
    let mut f = Fixture::new();
    let text = "$TTL 60\n@ SOA ns1 admin 1 2 3 4 60\n@ NS ns1\n$INCLUDE hosts\n";
    f.write("a.example.zone", text);
    assert_eq!(f.scan(), ["a.example.zone refused (a.example.) 4:10 include"]);
    f.write("hosts", "ns1 A 192.0.2.1\n");
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 1"]);
    assert_eq!(f.scan(), [""; 0]);
    f.write("hosts", "ns1 A 192.0.2.2\n");
    assert_eq!(f.scan(), ["a.example.zone serves a.example. 2"]);
    f.write("hosts", "ns1 A 192.0.2\n");
    assert_eq!(f.scan(), ["a.example.zone refused (a.example.) hosts:1:7 rdata, keeps a.example."]);
}

/// Kubernetes mounts a ConfigMap as links through `..data`, which an update swaps.
#[test]
fn a_config_map_update_is_seen() {
    let mut f = Fixture::new();
    let version = |number: &str, address: &str| {
        let data = f.dir.path().join(number);
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a.zone"), zone_text("a.example.", address)).unwrap();
    };
    let link = |from: &str, to: &str| {
        let temporary = f.dir.path().join("..tmp");
        std::os::unix::fs::symlink(to, &temporary).unwrap();
        fs::rename(temporary, f.dir.path().join(from)).unwrap();
    };
    version("..1", "192.0.2.1");
    version("..2", "192.0.2.2");
    link("..data", "..1");
    link("a.zone", "..data/a.zone");
    assert_eq!(f.scan(), ["a.zone serves a.example. 1"]);
    let link = |to: &str| {
        let temporary = f.dir.path().join("..tmp");
        std::os::unix::fs::symlink(to, &temporary).unwrap();
        fs::rename(temporary, f.dir.path().join("..data")).unwrap();
    };
    link("..2");
    assert_eq!(f.scan(), ["a.zone serves a.example. 2"]);
}

#[test]
fn many_files_on_several_threads_come_in_order() {
    let mut f = Fixture::new();
    for number in 0..500 {
        let (file, apex) = (format!("{number:03}.zone"), format!("z{number}.example."));
        fs::write(f.dir.path().join(file), zone_text(&apex, "192.0.2.1")).unwrap();
    }
    let expected: Vec<_> = (0..500).map(|number| format!("{number:03}.zone serves z{number}.example. 1")).collect();
    assert_eq!(f.scan(), expected);
    assert_eq!(f.scan(), [""; 0]);
}

/// The parent zone and the two shards of this repository, as `--zones zones` loads them.
#[test]
fn the_repositorys_own_folder() {
    let mut folder = Folder::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones"), 2);
    let mut served = Vec::new();
    let tally = folder
        .rescan(
            |zone| zone.record_count(),
            |change| {
                if let FileChange::Serve { apex, zone, .. } = change {
                    served.push((apex.to_string(), zone));
                }
            },
        )
        .unwrap();
    assert_eq!((tally.served, tally.refused), (3, 0));
    assert_eq!(
        served,
        [
            ("shard1.v3.rhcloud.com.".to_owned(), 4),
            ("shard2.v3.rhcloud.com.".to_owned(), 4),
            ("v3.rhcloud.com.".to_owned(), 5),
        ]
    );
}

const FILES: [&str; 5] = ["a.zone", "b.zone", "c.zone", "hosts", ".new.zone"];

/// A change to one of [`FILES`].
#[derive(Debug, Clone)]
enum Deed {
    /// Writes one of three apexes' zones, or an invalid one, or one that includes `hosts`.
    Write(usize, u8),
    Remove(usize),
    Rename(usize, usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let file = 0..FILES.len();
    prop_oneof![
        4 => (file.clone(), 0u8..12).prop_map(|(file, text)| Deed::Write(file, text)),
        1 => file.clone().prop_map(Deed::Remove),
        1 => (file.clone(), file).prop_map(|(from, to)| Deed::Rename(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A scan of the changed files leaves nothing for a scan of all of them to find.
    #[test]
    fn the_names_that_changed_are_enough(steps in prop::collection::vec(prop::collection::vec(deed(), 1..4), 1..12)) {
        let mut f = Fixture::new();
        for deeds in steps {
            let mut names = BTreeSet::new();
            for deed in deeds {
                let path = |file: usize| f.dir.path().join(FILES[file]);
                match deed {
                    Deed::Write(file, text) => {
                        let apex = ["x.example.", "y.example.", "z.example."][usize::from(text % 3)];
                        let zone = zone_text(apex, &format!("192.0.2.{text}"));
                        f.write(FILES[file], &match text / 3 {
                            0 | 1 => zone,
                            2 => zone + "$INCLUDE hosts\n",
                            _ => zone + "oops\n",
                        });
                        names.insert(OsString::from(FILES[file]));
                    }
                    Deed::Remove(file) => {
                        if fs::remove_file(path(file)).is_ok() {
                            names.insert(FILES[file].into());
                        }
                    }
                    Deed::Rename(from, to) => {
                        if fs::rename(path(from), path(to)).is_ok() {
                            names.extend([FILES[from].into(), FILES[to].into()]);
                        }
                    }
                }
            }
            let mut withdrawn = Vec::new();
            let note = |change| {
                if let FileChange::Withdraw { apex, .. } = change {
                    withdrawn.push(apex.to_string());
                }
            };
            f.folder.rescan_whole(Extent::Names(&names), None, |_| (), note).unwrap();
            prop_assert_eq!(f.scan(), [""; 0]);
            // No file that can be served has a zone that was withdrawn.
            for apex in withdrawn {
                for file in FILES.iter().filter(|file| is_zone_file(OsStr::new(file))) {
                    let Ok(text) = fs::read_to_string(f.dir.path().join(file)) else { continue };
                    let is_valid = text.starts_with("$ORIGIN") && text.lines().count() == 5;
                    prop_assert!(!(is_valid && text.contains(&apex)), "{} was withdrawn, and is in {}", apex, file);
                }
            }
        }
    }
}
