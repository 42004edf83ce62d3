//! A full disk: writes that would enlarge the store are rejected, and nothing is lost; deletions, reads, and DNS continue, and
//! all works again when there is space.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::model::{Key, Model, Outcome};
use crate::observer::Observer;
use crate::platform::{Objects, alias_of, spawn, start};
use crate::split::start_api;
use signpost_testing::program::{is_ready, run};
use signpost_testing::{DataDir, Ports, Scrape, eventually, http_get};

/// A small disk in memory.
struct Disk {
    folder: DataDir,
}

impl Disk {
    /// `None`, and a word about it, where nothing may be mounted.
    fn mount() -> Option<Disk> {
        let disk = Disk { folder: DataDir::new() };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m,mode=0700", "signpost-faults", disk.folder.path()])
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(disk);
        }
        println!("skipped: a small disk cannot be mounted here; run as root");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Fills the disk until `left_mib` MiB are free.
    fn fill_to(&self, left_mib: u64) {
        let df = Command::new("df").args(["--output=avail", "-B1", self.folder.path()]).output().expect("df runs");
        let free = String::from_utf8_lossy(&df.stdout).lines().nth(1).and_then(|line| line.trim().parse::<u64>().ok());
        let taken = free.expect("df prints it").saturating_sub(left_mib << 20);
        std::fs::write(self.path("ballast"), vec![7; taken as usize]).expect("there is room");
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.path("ballast")).expect("a file");
        let mut piece = vec![7; 1 << 20];
        while !piece.is_empty() {
            if ballast.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
    }

    /// Gives it back.
    fn free(&self) {
        std::fs::remove_file(self.path("ballast")).expect("it was filled");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that a failed test has not ended yet may still use it.
        drop(Command::new("umount").args(["-l", self.folder.path()]).status());
    }
}

/// Writes that enlarge the store are rejected with 507 and the reason; operations that free space continue.
fn refused_but_for_deletions(objects: &Objects, model: &mut Model, gone: &str, when: &str) {
    for (key, state) in [
        (Key::Route("late".to_owned()), Some("first".to_owned())),
        (Key::Route("r0".to_owned()), Some("changed-to-something-longer".to_owned())),
        (Key::Router("shard1".to_owned()), Some("192.0.2.99,192.0.2.100,192.0.2.101".to_owned())),
    ] {
        match objects.write(model, key.clone(), state) {
            Outcome::Refused(507, message) => assert!(message.contains("disk"), "{when}: {message}"),
            other => panic!("{when}: {key}: {other:?}"),
        }
    }
    objects.must(model, Key::Route(gone.to_owned()), None);
    // An object with a finalizer is first marked, and deleted when the finalizer is removed.
    let held = format!("held-{gone}");
    objects.delete_held(model, &held);
}

/// `/readyz` reports the problem with this status.
fn reports_full(ports: Ports, status: u16) -> Option<()> {
    let (code, text) = http_get(ports.admin, "/readyz")?;
    (code == status && text.contains("the disk is full")).then_some(())
}

/// Waits until a write is taken.
fn taken(objects: &Objects, model: &mut Model, when: &str) {
    let key = Key::Route("afterwards".to_owned());
    eventually(&format!("{when}: writes are taken again"), || {
        let outcome = objects.write(model, key.clone(), Some(when.replace(' ', "-")));
        (outcome == Outcome::Acknowledged).then_some(())
    });
}

#[test]
fn of_the_api() {
    let Some(disk) = Disk::mount() else { return };
    let (data, ports) = (disk.path("data"), Ports::free());
    let own = ["--data-dir", data.to_str().expect("UTF-8")];
    let server = start(ports, &own);
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    let observer = Observer::start(ports.dns);
    observer.watch(objects.check_served(&model, ports.dns, "at first").0);
    for gone in ["r1", "r2"] {
        objects.hold(&mut model, &format!("held-{gone}"));
    }
    let is_full = || Scrape::of(ports.admin).sum("signpost_store_writable", &[]) == 0.0;
    assert!(!is_full());

    disk.fill();
    observer.forget(&alias_of("r1"));
    observer.forget(&alias_of("held-r1"));
    eventually("it notices that the disk is full", || reports_full(ports, 200));
    refused_but_for_deletions(&objects, &mut model, "r1", "the disk is full");
    assert!(is_full() && is_ready(ports.admin));
    let (kubeconfig, admin) = (data.join("kubeconfig"), format!("http://{}", ports.admin));
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let status = run(&["status", "--kubeconfig", kubeconfig, "--admin", &admin, "--interval", "0"]).out;
    assert!(status.contains("the disk is full"), "{status}");
    server.logs("the disk is full");
    let count = server.log().lines().filter(|line| line.contains("the disk is full")).count();
    assert_eq!(count, 1, "{}", server.log());
    objects.check_kept(&mut model, "the disk is full");
    objects.check_served(&model, ports.dns, "the disk is full");
    disk.free();
    taken(&objects, &mut model, "room again");
    observer.watch(objects.check_served(&model, ports.dns, "room again").0);
    assert!(!is_full());
    observer.turn_page().assert_steady("the disk was full");

    // A start on a full disk reads the existing data and rejects writes.
    disk.fill();
    server.kill();
    let server = start(ports, &own);
    objects.check_kept(&mut model, "started on a full disk");
    objects.check_served(&model, ports.dns, "started on a full disk");
    eventually("it reports that the disk is full", || reports_full(ports, 200));
    observer.forget(&alias_of("r2"));
    observer.forget(&alias_of("held-r2"));
    refused_but_for_deletions(&objects, &mut model, "r2", "started on a full disk");
    disk.free();
    taken(&objects, &mut model, "room after the start");
    eventually("it no longer reports that", || {
        let (code, text) = http_get(ports.admin, "/readyz")?;
        (code == 200 && !text.contains("the disk is full")).then_some(())
    });
    server.kill();
    let _server = start(ports, &own);
    objects.check_kept(&mut model, "after all");
    objects.check_served(&model, ports.dns, "after all");
    let report = observer.report();
    report.assert_honest("started on a full disk");
    println!("disk of the API full: {report}");
}

/// If the store itself fills the disk, it becomes writable through the space that compaction returns.
#[test]
fn by_the_store_itself() {
    let Some(disk) = Disk::mount() else { return };
    let (data, ports) = (disk.path("data"), Ports::free());
    let server = start(ports, &["--data-dir", data.to_str().expect("UTF-8")]);
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 2);
    disk.fill_to(50);
    // History of one Route: the store keeps it for minutes while there is room.
    let mut number = 0;
    eventually("the store has filled the disk", || {
        number += 1;
        drop(objects.annotate("r0", &format!("{number:05}").repeat(10_000)));
        server.log().contains("the disk is full").then_some(())
    });
    // Nothing else frees space.
    taken(&objects, &mut model, "history is forgotten");
    eventually("the log has it", || server.log().contains("the disk has space again").then_some(()));
    objects.check_kept(&mut model, "after all");
    drop(server);
}

/// A first start on a disk with little space, or none: the process reports the reason for waiting, and continues when there is
/// space.
#[test]
fn at_a_first_start() {
    for left_mib in [0, 2, 24] {
        let Some(disk) = Disk::mount() else { return };
        let (data, ports) = (disk.path("data"), Ports::free());
        match left_mib {
            0 => disk.fill(),
            left => disk.fill_to(left),
        }
        let mut server = spawn(ports, &["--data-dir", data.to_str().expect("UTF-8")]);
        eventually(&format!("{left_mib} MiB: /readyz reports that the disk is full"), || reports_full(ports, 503));
        if left_mib == 24 {
            let objects = Objects::of(&data.join("kubeconfig"));
            let error = objects.present().err().expect("nothing can be listed yet");
            assert!(error.contains("disk"), "{error}");
        }
        // Long enough for a complaint a second to be seen.
        std::thread::sleep(Duration::from_secs(3));
        let log = server.log();
        let count = log.lines().filter(|line| line.contains("disk") || line.contains("No space")).count();
        assert!((1..=2).contains(&count), "{left_mib} MiB: {log}");
        assert!(!log.contains("Error {") && !log.contains("Io("), "{left_mib} MiB: {log}");
        disk.free();
        server.wait_ready();
        let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
        objects.found(&mut model, 1);
        objects.check_served(&model, ports.dns, "after a first start on a full disk");
    }
}

/// A disk that fills up in the middle of a commit, or fails: here by a limit on the size of files, which the process may
/// not exceed from one moment to the next.
#[test]
fn in_the_middle_of_a_commit() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let server = start(ports, &["--data-dir", data.path()]);
    let limit = |octets: &str| {
        let pid = server.id().to_string();
        let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={octets}:unlimited")]).status();
        assert!(status.expect("prlimit is part of util-linux").success());
    };
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    let observer = Observer::start(ports.dns);
    observer.watch(objects.check_served(&model, ports.dns, "at first").0);
    for round in 0..3 {
        let when = format!("failure {round}");
        // What it may write ends in the middle of the file.
        limit(&(16 * 1024 * (1 + round)).to_string());
        let failed = eventually(&format!("{when}: a write fails"), || {
            let key = Key::Route(format!("r{round}"));
            let outcome = objects.write(&mut model, key, Some(format!("while-{round}")));
            (outcome != Outcome::Acknowledged).then_some(outcome)
        });
        assert!(matches!(&failed, Outcome::Doubtful(_) | Outcome::Refused(503 | 504 | 507, _)), "{when}: {failed:?}");
        limit("unlimited");
        taken(&objects, &mut model, &when);
        objects.check_kept(&mut model, &when);
        observer.watch(objects.check_served(&model, ports.dns, &when).0);
        observer.turn_page().assert_steady(&when);
    }
    server.kill();
    let _server = start(ports, &["--data-dir", data.path()]);
    objects.check_kept(&mut model, "after a restart");
    objects.check_served(&model, ports.dns, "after a restart");
}

#[test]
fn of_a_name_server() {
    let Some(disk) = Disk::mount() else { return };
    let (data, state) = (DataDir::new(), disk.path("state"));
    let (api_ports, dns_ports) = (Ports::free(), Ports::free());
    let _api = start_api(api_ports, &data, "api,scheduler,admin");
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let own = ["--roles", "dns,admin", "--kubeconfig", kubeconfig, "--data-dir", state.to_str().expect("UTF-8")];
    let server = start(dns_ports, &own);
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    let observer = Observer::start(dns_ports.dns);
    observer.watch(objects.check_served(&model, dns_ports.dns, "at first").0);
    let is_failing = || Scrape::of(dns_ports.admin).sum("signpost_last_good_failing", &[]) == 1.0;

    disk.fill();
    let mut number = 0;
    eventually("it reports that the last-good state cannot be written", || {
        number += 1;
        objects.must(&mut model, Key::Route(format!("late{number}")), Some("first".to_owned()));
        is_failing().then_some(())
    });
    observer.watch(objects.check_served(&model, dns_ports.dns, "the disk is full").0);
    observer.turn_page().assert_steady("the name server's disk is full");
    // A start on the full disk answers as well; it reads from the API what it had not written before.
    server.kill();
    let server = start(dns_ports, &own);
    objects.check_served(&model, dns_ports.dns, "started on a full disk");
    observer.turn_page();
    disk.free();
    objects.must(&mut model, Key::Route("afterwards".to_owned()), Some("first".to_owned()));
    eventually("the last-good state is written again", || (!is_failing()).then_some(()));
    observer.turn_page().assert_steady("the name server's disk was full");
    server.kill();
    let _server = start(dns_ports, &own);
    objects.check_served(&model, dns_ports.dns, "after a restart");
    observer.report().assert_honest("after a restart");
}
