//! The system's clock jumps, forwards and back, under a running process.
//!
//! libfaketime replaces the clock of the program. It leaves the monotonic clock, which measures durations, unchanged, like the
//! system does when an administrator sets the clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hickory_proto::rr::RecordType;
use signpost_dns::zone::Serial;

use crate::model::{Key, Model};
use crate::observer::Observer;
use crate::platform::{DOMAIN, Objects, arguments};
use signpost_testing::dns::Asker;
use signpost_testing::program::is_ready;
use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, eventually, program, until};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Returns the path where Debian and its derivatives install the library.
fn library() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok).find_map(|folder| {
        let path = folder.path().join("faketime/libfaketimeMT.so.1");
        path.exists().then_some(path)
    });
    if found.is_none() {
        println!("skipped: libfaketime is not installed; scripts/test --tools installs it");
    }
    found
}

/// Sets the clock of the process relative to the true one, such as `+1d`. The file is replaced atomically, because the library
/// reads it at every access to the clock.
fn set_clock(file: &Path, offset: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{offset}\n")).expect("a folder of the test");
    std::fs::rename(new, file).expect("a folder of the test");
}

/// Returns a server whose clock the file sets.
fn start(library: &Path, clock: &Path, ports: Ports, store: &Path) -> Server {
    let mut command = Command::new(program());
    command.args(["serve", "--data-dir"]).arg(store).args(arguments(&[])).args(ports.arguments());
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Server::logged(ports, command)
}

/// Returns the serial of each zone.
fn serials(asker: &mut Asker, zones: &[String]) -> BTreeMap<String, Serial> {
    let ask = |zone: &String| {
        let serial = until(&format!("{zone} has a serial"), || {
            let answer = asker.ask(zone, RecordType::SOA, Duration::from_secs(2));
            answer.and_then(|answer| answer.serial).ok_or_else(|| "no SOA".to_owned())
        });
        (zone.clone(), Serial(serial))
    };
    zones.iter().map(ask).collect()
}

#[test]
fn forwards_and_back() {
    let Some(library) = library() else { return };
    let (data, ports) = (DataDir::new(), Ports::free());
    let file = data.join("clock");
    set_clock(&file, "+0");
    let store = data.join("data");
    let mut server = start(&library, &file, ports, &store);
    server.wait_ready();

    let (objects, mut model) = (Objects::of(&store.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    let observer = Observer::start(ports.dns);
    observer.watch(objects.check_served(&model, ports.dns, "at first").0);
    let mut asker = Asker::new(ports.dns);
    let zones = [DOMAIN.to_owned(), format!("routes.{DOMAIN}"), format!("shard1.{DOMAIN}")];
    let mut before = serials(&mut asker, &zones);
    let leads = || Scrape::of(ports.admin).sum("signpost_scheduler_leading", &[]) == 1.0;
    for (number, days) in [1, -1, 40, -1000, 0].into_iter().enumerate() {
        let when = format!("the clock is {days} days ahead");
        set_clock(&file, &format!("{days:+}d"));
        objects.must(&mut model, Key::Route(format!("new{number}")), Some("first".to_owned()));
        objects.must(&mut model, Key::Router("shard1".to_owned()), Some(format!("192.0.2.{}", 30 + number)));
        objects.must(&mut model, Key::Router(format!("spare{number}")), Some("192.0.2.200".to_owned()));
        let (live, took) = objects.check_served(&model, ports.dns, &when);
        observer.watch(live);
        // Each zone waits for its own serial: the parent zone's may come a moment after a shard's.
        before = until(&format!("{when}: the serial of each zone increases"), || {
            let now = serials(&mut asker, &zones);
            for zone in &zones {
                let (now, before) = (now[zone], before[zone]);
                assert!(!before.is_after(now), "{when}: {zone} had serial {before:?} and has {now:?}");
            }
            if zones.iter().all(|zone| now[zone].is_after(before[zone])) { Ok(now) } else { Err(format!("{now:?}")) }
        });
        // The lease's own times come from the clock: the scheduler has renewed it since the jump, and leads.
        eventually(&format!("{when}: the leader renews its lease"), || {
            let ahead =
                objects.lease_renewed()? - i64::try_from(signpost_runtime::clock::unix_seconds()).expect("in range");
            ((ahead - days * DAY).abs() < HOUR).then_some(())
        });
        eventually(&format!("{when}: it leads"), || leads().then_some(()));
        assert!(is_ready(ports.admin), "{when}");
        let report = observer.turn_page();
        report.assert_steady(&when);
        println!("{when}: changes are served after {took:?}; {report}");
    }
    objects.check_kept(&mut model, "after all jumps");
}

/// The first start has a wrong clock: its certificates are renewed when the clock is correct, while the server runs and at its
/// next start, and clients with the original kubeconfig have access.
#[test]
fn certificates_of_a_wrong_clock() {
    let Some(library) = library() else { return };
    for offset in ["+730d", "-730d"] {
        let (data, ports) = (DataDir::new(), Ports::free());
        let (file, store) = (data.join("clock"), data.join("data"));
        let kubectl = || Kubectl::new(store.join("kubeconfig"));
        for is_corrected_while_it_runs in [true, false] {
            set_clock(&file, offset);
            let mut server = start(&library, &file, ports, &store);
            server.wait_ready();
            let complaint = kubectl().refused(&["get", "routers"], "");
            assert!(complaint.contains("certificate"), "{offset}: {complaint}");
            let copied = data.join("copied");
            std::fs::copy(store.join("kubeconfig"), &copied).expect("a kubeconfig");
            if is_corrected_while_it_runs {
                set_clock(&file, "+0");
            } else {
                assert!(server.terminate().success());
                set_clock(&file, "+0");
                server = start(&library, &file, ports, &store);
                server.wait_ready();
            }
            eventually(&format!("{offset}: the API shows a certificate that is valid"), || {
                kubectl().run(&["get", "routers"]).status.success().then_some(())
            });
            assert!(Kubectl::new(copied).run(&["get", "routers"]).status.success(), "{offset}: with a copy");
            assert!(server.log().contains("check the clock"), "{}", server.log());
            assert!(server.terminate().success());
        }
    }
}
