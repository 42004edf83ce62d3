//! A disk that fails to write back data: Linux reports it once, and a second sync succeeds.
//!
//! A small library, loaded before the system's own, makes one sync of one file fail.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hickory_proto::rr::RecordType;

use crate::model::{Key, Model, Outcome};
use crate::platform::{Objects, alias_of, arguments, start};
use crate::split::start_api;
use signpost_testing::dns::Asker;
use signpost_testing::{DataDir, Ports, Scrape, Server, eventually, program};

/// Fails one `fsync` or `fdatasync` of a file of this name after the file at `FAIL_SYNC` was made.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *flag = getenv("FAIL_SYNC"), *name = getenv("FAIL_SYNC_OF");
    char link[64], path[4096];
    if (!flag || !name) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    const char *last = strrchr(path, '/');
    if (!last || strcmp(last + 1, name) != 0 || unlink(flag) != 0) return 0;
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails(fd) ? -1 : real(fd);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(fd) ? -1 : real(fd);
}
"#;

/// A directory with the library.
struct Shim {
    folder: DataDir,
}

impl Shim {
    /// `None`, and a word about it, where there is no compiler.
    fn build() -> Option<Shim> {
        let shim = Shim { folder: DataDir::new() };
        std::fs::write(shim.folder.join("shim.c"), SHIM).expect("a directory of the test");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(shim.library()).arg(shim.folder.join("shim.c")).arg("-ldl");
        match command.status() {
            Ok(status) => assert!(status.success(), "the library compiles"),
            Err(_) => {
                println!("skipped: there is no C compiler");
                return None;
            }
        }
        Some(shim)
    }

    fn library(&self) -> PathBuf {
        self.folder.join("shim.so")
    }

    /// Starts the program with these arguments; one sync of the file `name` is to fail.
    fn start(&self, ports: Ports, own: &[&str], name: &str) -> Server {
        let mut command = Command::new(program());
        command.arg("serve").args(arguments(own)).args(ports.arguments());
        command.env("LD_PRELOAD", self.library()).env("FAIL_SYNC", self.flag()).env("FAIL_SYNC_OF", name);
        Server::logged(ports, command).ready()
    }

    fn flag(&self) -> PathBuf {
        self.folder.join("fail")
    }

    /// The next sync fails.
    fn fail(&self) {
        std::fs::write(self.flag(), "").expect("a directory of the test");
    }

    fn has_failed(&self) -> bool {
        !self.flag().exists()
    }
}

#[test]
fn of_the_store_ends_the_process_and_nothing_acknowledged_is_lost() {
    let Some(shim) = Shim::build() else { return };
    let (data, ports) = (DataDir::new(), Ports::free());
    let own = ["--data-dir", data.path()];
    let mut server = shim.start(ports, &own, "store.redb");
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    shim.fail();
    let outcome = objects.write(&mut model, Key::Route("r0".to_owned()), Some("doubtful".to_owned()));
    assert_ne!(outcome, Outcome::Acknowledged, "a write whose sync failed is not acknowledged");
    let status = server.wait();
    assert_eq!(status.code(), Some(1), "{}", server.log());
    assert!(shim.has_failed());
    let log = server.log();
    for word in ["store.redb: failed to sync to disk", "check the disk", "restart the process"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    // As a service manager does.
    let _server = start(ports, &own);
    objects.check_kept(&mut model, "after the restart");
    objects.check_served(&model, ports.dns, "after the restart");
    objects.must(&mut model, Key::Route("afterwards".to_owned()), Some("first".to_owned()));
}

#[test]
fn of_the_last_known_good_state_is_followed_by_a_new_file() {
    let Some(shim) = Shim::build() else { return };
    let (data, state) = (DataDir::new(), DataDir::new());
    let (api_ports, dns_ports) = (Ports::free(), Ports::free());
    let api = start_api(api_ports, &data, "api,scheduler,admin");
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let own = ["--roles", "dns,admin", "--kubeconfig", kubeconfig, "--data-dir", state.path()];
    let server = shim.start(dns_ports, &own, "last-good");
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 4);
    objects.check_served(&model, dns_ports.dns, "at first");
    let file = state.join("state/last-good");
    let inode = |file: &Path| std::fs::metadata(file).expect("it is there").ino();
    let before = inode(&file);
    shim.fail();
    objects.must(&mut model, Key::Route("late".to_owned()), Some("first".to_owned()));
    eventually("the sync fails, and the state is written to a new file", || {
        (shim.has_failed() && inode(&file) != before).then_some(())
    });
    eventually("it is stored", || {
        (Scrape::of(dns_ports.admin).sum("signpost_last_good_failing", &[]) == 0.0).then_some(())
    });
    server.logs("failed to sync the last-known-good state to disk; rewriting it");
    objects.check_served(&model, dns_ports.dns, "after the failure");
    server.kill();
    api.kill();
    let _server = start(dns_ports, &own);
    let answer = Asker::new(dns_ports.dns).ask(&alias_of("late"), RecordType::A, Duration::from_secs(5));
    assert!(answer.as_ref().is_some_and(|answer| answer.alias.is_some()), "from its state alone: {answer:?}");
}
