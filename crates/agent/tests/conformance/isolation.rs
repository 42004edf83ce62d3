//! The isolation of a proxy's processes: what a hole in a proxy does not give.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use landlock::{Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus};
use rustix::process::geteuid;
use signpost_agent::site::Site;
use signpost_testing::PATIENCE;

use crate::bench::{Bench, application, plain, route};
use crate::client::get;

/// The user and group of the tests of [`without_root`], which have no entry in `/etc/passwd` as a proxy.
const UNPRIVILEGED: u32 = 65_534;

/// Returns whether the kernel has Landlock.
fn has_landlock() -> bool {
    // It restricts the thread.
    let restrict = || {
        let abi = landlock::ABI::V1;
        let rules = landlock::path_beneath_rules(["/"], AccessFs::from_all(abi));
        let created = Ruleset::default().handle_access(AccessFs::from_all(abi))?.create()?;
        created.add_rules(rules)?.restrict_self()
    };
    let status = std::thread::spawn(restrict).join().expect("no panic");
    status.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// A program in place of the proxy, and the proxy after it, have its own directory only: with the rights of root, too. The same is true
/// for the check of a configuration.
pub async fn other_files(mut bench: Bench) {
    if !has_landlock() {
        println!("skipped: the kernel does not have Landlock");
        return;
    }
    let secret = bench.path("secret");
    std::fs::write(&secret, "secret").expect("it is written");
    let (kind, secret_path) = (bench.kind, secret.display().to_string());
    bench.replace_program(&format!(
        "#!/bin/sh\n(cat {secret_path} ../secret ../../secret /etc/shadow /proc/1/environ; echo x >>{secret_path}) >>found 2>/dev/null\n\
         case \"$*\" in *-vv*) ;; *) echo own >>own;; esac\nexec {kind} \"$@\"\n"
    ));
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(application("web", None).await, 1)]));
    bench.apply(&site).await;
    assert_eq!(get(bench.http, "a.example", "/").await.expect("a response").body, "web");
    let read = |file: &str| std::fs::read_to_string(bench.path(file)).unwrap_or_default();
    assert_eq!((read("proxy/found"), read("proxy/own").as_str()), (String::new(), "own\n"));
    assert_eq!(read("proxy/check/found"), "");
    assert_eq!(read("secret"), "secret");
}

/// If the agent is root, no process that serves clients is: only the master, which reads nothing of them.
pub async fn users(mut bench: Bench) {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(application("web", None).await, 1)]));
    for at in 0..2 {
        // A reload keeps that.
        bench.restart_agent();
        bench.apply(&site).await;
        assert_eq!(get(bench.http, "a.example", "/").await.expect("a response").body, "web");
        let is_expected = |owners: &[u32]| owners.iter().filter(|uid| **uid == 0).count() == 1 && owners.len() >= 2;
        // A process is root until it has changed its user.
        let deadline = Instant::now() + PATIENCE;
        let mut found = owners(&bench.path("proxy"));
        while !is_expected(&found) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = owners(&bench.path("proxy"));
        }
        assert!(is_expected(&found), "after {at} reloads: {found:?}");
    }
    // Its key, and the socket with the rights of an administrator.
    let mode = |file: &str| std::fs::metadata(bench.path(file)).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode("proxy/default.pem"), 0o600);
    assert_eq!(mode("proxy"), 0o710);
    // Nor do other files depend on that of the directory. A socket of nginx is for all, as nginx creates it.
    for path in files(&bench.path("proxy")) {
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o007, 0, "{} {mode:o}", path.display());
    }
}

/// Returns the regular files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("it is there").flatten();
    let (directories, files): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() || path.is_file())
        .partition(|path| path.is_dir());
    files.into_iter().chain(directories.iter().flat_map(|below| self::files(below))).collect()
}

/// Returns the user of each process with a working directory.
fn owners(directory: &Path) -> Vec<u32> {
    let directory = directory.canonicalize().expect("it is there");
    let entries = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let of_proxy =
        entries.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory));
    let user = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    of_proxy.filter_map(user).collect()
}

/// The same tests as a user without rights.
pub fn without_root(tests: &[&str]) {
    if !geteuid().is_root() {
        println!("skipped: the tests run without root");
        return;
    }
    // The directory of the build can be closed to others.
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is the test's own")
    };
    let program = directory.path().join("conformance");
    std::fs::copy(std::env::current_exe().expect("a test knows its own path"), &program).expect("copied");
    open(&program);
    open(directory.path());
    let mut command = Command::new(&program);
    command.args(tests).arg("--exact").current_dir("/tmp").env_remove("TMPDIR");
    let status = command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).status().expect("it runs");
    assert!(status.success(), "{tests:?} failed without root");
}
