//! Network namespaces.

use std::process::Command;

/// The variable of the process that runs inside the namespace.
const INSIDE: &str = "E2E_INSIDE_NAMESPACE";

/// Returns the arguments of `unshare`. Users other than root keep their ID, because nginx as root would change its groups, which
/// no user namespace allows.
fn isolation() -> &'static [&'static str] {
    let net = Command::new("unshare").args(["--net", "true"]).output().expect("util-linux is installed");
    if net.status.success() { &["--net"] } else { &["--map-current-user", "--keep-caps", "--net"] }
}

/// The arguments of `unshare` for a separate namespace of process identifiers. When the first process ends, the kernel kills all
/// others.
const PROCESSES: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Runs the named test of this program again inside a network namespace with its loopback up; returns true there, and false
/// outside once that run has passed.
pub fn inside_namespace(test: &str) -> bool {
    inside(test, &[])
}

/// Does the same inside a PID namespace: no process that the test starts outlives it, however it ends.
pub fn inside_namespaces(test: &str) -> bool {
    inside(test, &PROCESSES)
}

fn inside(test: &str, more: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("iproute2 is installed");
        assert!(up.success());
        return true;
    }
    let program = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]).args(isolation()).args(more).arg("--").arg(program);
    let status =
        command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status().expect("util-linux is installed");
    assert!(status.success(), "{test} failed inside its network namespace");
    false
}

/// Kills every other process of the network namespace of this one, when it is dropped: those that outlive the process that has started
/// them, too. Only for use [inside](inside_namespace) a namespace of the test.
pub struct KillOthers;

impl Drop for KillOthers {
    fn drop(&mut self) {
        let namespace = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
        let own = namespace("self");
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_other = |id: &String| id.parse::<u32>().is_ok_and(|number| number != std::process::id());
        let others: Vec<String> = ids.filter(is_other).filter(|id| namespace(id) == own).collect();
        if std::env::var_os(INSIDE).is_some() && own.is_some() && !others.is_empty() {
            let _ = Command::new("kill").arg("-KILL").args(others).status();
        }
    }
}
