//! The zones directory of a running server: invalid files next to valid ones, files that are written slowly, and changes without
//! a notification by the system.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, try_dig};

/// A directory of zone files and a server of it.
struct Fixture {
    data: DataDir,
    server: Option<Server>,
}

impl Fixture {
    fn new() -> Fixture {
        let data = DataDir::new();
        fs::create_dir(data.join("zones")).expect("a folder");
        Fixture { data, server: None }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.data.join("zones").join(file)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).expect("written");
    }

    fn start(&mut self) {
        let zones = self.data.join("zones");
        let zones = zones.to_str().expect("UTF-8");
        self.server = Some(Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", zones]));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it was started")
    }

    /// Returns the address at `name`, or the response code.
    fn ask(&self, name: &str) -> Option<String> {
        ask(self.server(), name)
    }

    fn becomes(&self, name: &str, expected: &str) {
        becomes(self.server(), name, expected);
    }

    /// Reloads the directory, and waits until that is done: then a new file is served.
    fn reload(&self, number: u32) {
        self.write(&format!("mark{number}.test.zone"), &zone("192.0.2.99"));
        self.server().signal("HUP");
        self.becomes(&format!("www.mark{number}.test"), "192.0.2.99");
    }
}

fn ask(server: &Server, name: &str) -> Option<String> {
    let response = try_dig(server.dns, name, "A", &[])?;
    Some(response.data("A").first().copied().unwrap_or(&response.status).to_owned())
}

fn becomes(server: &Server, name: &str, expected: &str) {
    eventually(&format!("{name} is {expected}"), || (ask(server, name)? == expected).then_some(()));
}

fn zone(address: &str) -> String {
    format!("$TTL 5\n@ SOA ns h 1 1 1 1 1\n@ NS ns\nns A 192.0.2.53\nwww A {address}\n")
}

const BROKEN: &str = "$TTL 5\n@ SOA ns h 1 1 1 1 1\n@ NS ns\nns A 192.0.2\n";

#[test]
fn a_refused_file_takes_nothing_from_the_file_that_gives_its_zone() {
    let mut f = Fixture::new();
    let of = |apex: &str, text: &str| format!("$ORIGIN {apex}.\n{text}");
    f.write("a1.zone", &of("two.test", &zone("192.0.2.1")));
    f.write("b1.zone", &of("two.test", &zone("192.0.2.2")));
    f.write("a2.zone", &of("before.test", BROKEN));
    f.write("b2.zone", &of("before.test", &zone("192.0.2.3")));
    f.write("a3.zone", &of("after.test", &zone("192.0.2.4")));
    f.write("b3.zone", &of("after.test", BROKEN));
    f.write("c3.zone", &of("after.test", BROKEN));
    std::os::unix::fs::symlink("nowhere", f.path("link.test.zone")).expect("a link");
    f.write("lonely.zone", &of("first.test", BROKEN));
    f.start();
    let all = |expected: [&str; 6]| {
        let names = ["two", "before", "after", "link", "first", "second"];
        assert_eq!(names.map(|name| f.ask(&format!("www.{name}.test"))), expected.map(|word| Some(word.to_owned())));
    };
    all(["192.0.2.1", "192.0.2.3", "192.0.2.4", "SERVFAIL", "SERVFAIL", "REFUSED"]);
    for part in ["still serving the zone from another file", "the zone file has errors; the zone answers SERVFAIL"] {
        eventually(part, || f.server().log().contains(part).then_some(()));
    }

    // The broken files go, or turn to other zones.
    for file in ["b1.zone", "a2.zone", "b3.zone", "link.test.zone"] {
        fs::remove_file(f.path(file)).expect("removed");
    }
    f.write("lonely.zone", &of("second.test", BROKEN));
    f.reload(1);
    all(["192.0.2.1", "192.0.2.3", "192.0.2.4", "REFUSED", "REFUSED", "SERVFAIL"]);

    // The valid file is removed, and the invalid one is kept and then corrected.
    fs::remove_file(f.path("a3.zone")).expect("removed");
    f.write("lonely.zone", &of("second.test", &zone("192.0.2.5")));
    f.reload(2);
    all(["192.0.2.1", "192.0.2.3", "SERVFAIL", "REFUSED", "REFUSED", "192.0.2.5"]);
    fs::remove_file(f.path("c3.zone")).expect("removed");
    f.reload(3);
    all(["192.0.2.1", "192.0.2.3", "REFUSED", "REFUSED", "REFUSED", "192.0.2.5"]);
}

#[test]
fn a_broken_file_takes_nothing_from_a_router() {
    let data = DataDir::new();
    let zones = DataDir::new();
    let file = zones.join("shard1.v3.example.zone");
    let arguments = ["--data-dir", data.path(), "--domain", "v3.example", "--zones", zones.path()];
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let router = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
                  spec: {addresses: [{ip: 198.51.100.1}]}\n";
    kubectl.ok_with(&["create", "-f", "-"], router);
    let name = "x.shard1.v3.example";
    let of_router = "198.51.100.1";
    becomes(&server, name, of_router);
    let logged = |text: &str| eventually(text, || server.log().contains(text).then_some(()));
    fs::write(&file, "").expect("written");
    logged("the zone file has errors; still serving the zone from the API's objects");
    assert_eq!(ask(&server, name).as_deref(), Some(of_router));
    // A good one takes over; when it goes, the Router has its zone again.
    fs::write(&file, zone("192.0.2.99") + "x A 192.0.2.99\n").expect("written");
    becomes(&server, name, "192.0.2.99");
    fs::remove_file(&file).expect("removed");
    becomes(&server, name, of_router);
    // Without the Router, the file is all that names the zone.
    fs::write(&file, BROKEN).expect("written");
    eventually("it is refused again", || {
        (server.log().matches("still serving the zone from the API's objects").count() == 2).then_some(())
    });
    kubectl.ok(&["delete", "router", "shard1", "--wait=false"]);
    becomes(&server, name, "SERVFAIL");
    fs::remove_file(&file).expect("removed");
    eventually("no file names the zone", || (ask(&server, name)? != "SERVFAIL").then_some(()));
}

/// The file is written in place, in pieces: until it is closed, the zone stays unchanged.
#[test]
fn half_a_file_is_never_served() {
    let mut f = Fixture::new();
    f.write("slow.test.zone", &zone("192.0.2.1"));
    f.write("other.test.zone", &zone("192.0.2.1"));
    f.start();
    let (start, end) = ("$TTL 5\n@ SOA ns h 2 1 1 1 1\n@ NS ns\nns A 192.0.2.53\n", "www A 192.0.2.2\n");
    let mut writers = ["slow.test.zone", "new.test.zone"].map(|file| fs::File::create(f.path(file)).expect("opened"));
    for writer in &mut writers {
        writer.write_all(start.as_bytes()).expect("written");
    }
    // Other files do not wait for it; and what brings them makes the directory be read.
    f.write("other.test.zone", &zone("192.0.2.3"));
    f.becomes("www.other.test", "192.0.2.3");
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        assert_eq!(f.ask("www.slow.test").as_deref(), Some("192.0.2.1"));
        assert_eq!(f.ask("www.new.test").as_deref(), Some("REFUSED"));
        for writer in &mut writers {
            writer.write_all(b"; and so on\n").expect("written");
        }
    }
    for mut writer in writers {
        writer.write_all(end.as_bytes()).expect("written");
    }
    f.becomes("www.slow.test", "192.0.2.2");
    f.becomes("www.new.test", "192.0.2.2");
}

/// Changes are detected without a signal: files in subdirectories, behind links, and a directory that replaces the zones
/// directory.
#[test]
fn every_change_is_noticed_in_time() {
    let mut f = Fixture::new();
    fs::create_dir(f.path("sub")).expect("a folder");
    f.write("sub/hosts", "more A 192.0.2.1\n");
    f.write("include.test.zone", &(zone("192.0.2.1") + "$INCLUDE sub/hosts\n"));
    let outside = f.data.join("outside");
    fs::write(&outside, zone("192.0.2.1")).expect("written");
    std::os::unix::fs::symlink(&outside, f.path("link.test.zone")).expect("a link");
    f.start();
    f.becomes("more.include.test", "192.0.2.1");
    f.becomes("www.link.test", "192.0.2.1");
    f.write("sub/hosts", "more A 192.0.2.2\n");
    fs::write(&outside, zone("192.0.2.2")).expect("written");
    f.becomes("more.include.test", "192.0.2.2");
    f.becomes("www.link.test", "192.0.2.2");

    let (folder, other) = (f.data.join("zones"), f.data.join("other"));
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("third.test.zone"), zone("192.0.2.3")).expect("written");
    exchange(&folder, &other);
    f.becomes("www.third.test", "192.0.2.3");
    f.becomes("www.link.test", "REFUSED");
    f.write("third.test.zone", &zone("192.0.2.4"));
    f.becomes("www.third.test", "192.0.2.4");
}

fn exchange(folder: &Path, other: &Path) {
    fs::rename(folder, folder.with_extension("old")).expect("renamed");
    fs::rename(other, folder).expect("renamed");
}
