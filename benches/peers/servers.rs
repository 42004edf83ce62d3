//! Starting each server on one processor with one worker, and reading what it used.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::generator::{self, Load};
use crate::zones::Zones;

/// The compared servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Datagrams of an answer's size sent back at once: what the kernel alone costs.
    Echo,
    /// Our transport, engine and zones, without the control plane; or the program named by `SIGNPOST_BIN`.
    Signpost,
    Knot,
    Nsd,
    Gdnsd,
}

impl Server {
    pub fn name(self) -> &'static str {
        match self {
            Server::Echo => "echo",
            Server::Signpost => "signpost",
            Server::Knot => "knot",
            Server::Nsd => "nsd",
            Server::Gdnsd => "gdnsd",
        }
    }
}

/// One way to start one server.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub server: Server,
    pub zones: &'a Zones,
    /// Signpost with GSO, and with the DF bit.
    pub gso: bool,
    pub dont_fragment: bool,
    /// Signpost with cookies and a rate limit that is never reached; the queries have client cookies.
    pub guarded: bool,
    /// The number of Signpost's zones that change per second; if it is not zero, a separate copy of the data plane runs.
    pub changes: u32,
}

impl Setup<'_> {
    /// Returns the program that is Signpost: the named one, or the built one for zones that only files have; `None`: this one.
    fn program(&self) -> Option<OsString> {
        let built = (self.zones.hosts > 0).then(|| env!("CARGO_BIN_EXE_signpost").into());
        std::env::var_os("SIGNPOST_BIN").filter(|_| self.changes == 0).or(built)
    }

    fn command(&self, directory: &Path, address: SocketAddr) -> std::io::Result<Option<Command>> {
        let (ip, port, here) = (address.ip(), address.port(), directory.display());
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]);
        match self.server {
            Server::Echo => {
                command.arg(std::env::current_exe()?).args(["--serve-echo", &address.to_string()]);
            }
            Server::Signpost => match self.program() {
                None => {
                    command.arg(std::env::current_exe()?).args(["--serve-zones", &address.to_string()]);
                    command.args(["--zones", &self.zones.count.to_string(), "--changes", &self.changes.to_string()]);
                    command.args(["--gso", switch(self.gso), "--dont-fragment", switch(self.dont_fragment)]);
                    command.args(["--guard", switch(self.guarded)]);
                }
                Some(program) => {
                    command.arg(program).args(["serve", "--roles", "dns", "--dns-workers", "1"]);
                    command.args(["--dns-udp-gso", &self.gso.to_string()]);
                    command.args(["--dns-dont-fragment", &self.dont_fragment.to_string()]);
                    let limit = if self.guarded { "1000000" } else { "0" };
                    command.args(["--dns-cookies", switch(self.guarded), "--dns-rate-limit-per-second", limit]);
                    command.arg("--zones").arg(self.zones.files()?).args(["--dns-listen", &address.to_string()]);
                }
            },
            Server::Knot => {
                let files = self.zones.files()?.display();
                let mut text = format!(
                    "server:\n    rundir: {here}\n    listen: {ip}@{port}\n    udp-workers: 1\n    tcp-workers: 1\n    \
                     background-workers: 1\nlog:\n  - target: stderr\n    any: error\ndatabase:\n    storage: {here}\n\
                     template:\n  - id: default\n    storage: {files}\n    file: \"%s.zone\"\n    journal-content: none\n    \
                     zonefile-sync: -1\nzone:\n"
                );
                for name in self.zones.names() {
                    writeln!(text, "  - domain: {name}").expect("a string takes all");
                }
                std::fs::write(directory.join("knot.conf"), text)?;
                command.args(["knotd", "-c"]).arg(directory.join("knot.conf"));
            }
            Server::Nsd => {
                let files = self.zones.files()?.display();
                let mut text = format!(
                    "server:\n  server-count: 1\n  ip-address: {ip}@{port}\n  username: \"\"\n  zonesdir: {files}\n  \
                     pidfile: {here}/nsd.pid\n  xfrdfile: {here}/xfrd.state\n  zonelistfile: {here}/zone.list\n  \
                     rrl-ratelimit: 0\n  minimal-responses: yes\nremote-control:\n  control-enable: no\n"
                );
                for name in self.zones.names() {
                    writeln!(text, "zone:\n  name: {name}\n  zonefile: {name}.zone").expect("a string takes all");
                }
                std::fs::write(directory.join("nsd.conf"), text)?;
                command.args(["nsd", "-d", "-c"]).arg(directory.join("nsd.conf"));
            }
            Server::Gdnsd => {
                std::os::unix::fs::symlink(self.zones.bare_files()?, directory.join("zones"))?;
                let text = format!(
                    "options => {{ listen => [ \"{ip}:{port}\" ], udp_threads => 1, tcp_threads => 1, run_dir => \
                     \"{here}/run\", state_dir => \"{here}/state\" }}\n"
                );
                std::fs::write(directory.join("config"), text)?;
                command.args(["gdnsd", "-c"]).arg(directory).arg("start");
            }
        }
        let program = command.get_args().nth(2).map(|program| program.to_owned()).unwrap_or_default();
        let found = Path::new(&program).is_absolute()
            || ["/usr/sbin", "/usr/bin", "/usr/local/sbin"]
                .iter()
                .any(|folder| Path::new(folder).join(&program).exists());
        Ok(found.then_some(command))
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A server that runs; dropping it ends it.
pub struct Process {
    child: Child,
    server: Server,
    directory: tempfile::TempDir,
}

/// Processor time and memory of a server and its children.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    pub cpu: Duration,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub resident_octets: u64,
    pub peak_octets: u64,
}

impl Process {
    /// Starts a server; `None` if it is not installed.
    pub fn spawn(setup: Setup<'_>, address: SocketAddr) -> std::io::Result<Option<Process>> {
        let directory = tempfile::tempdir()?;
        let Some(mut command) = setup.command(directory.path(), address)? else { return Ok(None) };
        let log = std::fs::File::create(directory.path().join("log"))?;
        let path = format!("/usr/sbin:{}", std::env::var("PATH").unwrap_or_default());
        let child = command.env("PATH", path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Some(Process { child, server: setup.server, directory }))
    }

    /// Waits until a thousand queries in a row are answered rightly, and returns how long that took.
    pub fn wait(&self, load: Load, patience: Duration) -> std::io::Result<Duration> {
        let began = Instant::now();
        while self.server != Server::Echo && !generator::all_right(load, 1_000) {
            if began.elapsed() > patience {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                return Err(std::io::Error::other(format!("{} does not answer; its log: {log}", self.server.name())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(began.elapsed())
    }

    /// Returns the resources used so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for process in family(self.child.id()) {
            let of = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
            let field =
                |text: &str, place: usize| text.split_ascii_whitespace().nth(place).and_then(|n| n.parse().ok());
            for task in entries(&format!("/proc/{process}/task")) {
                let spent =
                    std::fs::read_to_string(format!("/proc/{process}/task/{task}/schedstat")).unwrap_or_default();
                usage.cpu += Duration::from_nanos(field(&spent, 0).unwrap_or(0));
            }
            // The fields after the name in parentheses, which may hold spaces: utime is the 12th of them, stime the 13th.
            let stat = of("stat");
            let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
            usage.user_ticks += field(after, 11).unwrap_or(0);
            usage.system_ticks += field(after, 12).unwrap_or(0);
            usage.resident_octets += field(&of("statm"), 1).unwrap_or(0) * 4096;
            let status = of("status");
            let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
            usage.peak_octets += peak.and_then(|line| field(line, 1)).unwrap_or(0) * 1024;
        }
        usage
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM first, so that a server with children stops them, too; then SIGKILL for the remaining processes.
        let end = |signal: &str, process: u32| {
            drop(Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status());
        };
        let members = family(self.child.id());
        end("-TERM", self.child.id());
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for process in members {
            if Path::new(&format!("/proc/{process}")).exists() {
                end("-KILL", process);
            }
        }
        drop(self.child.wait());
    }
}

/// Returns a process and all that come from it.
fn family(first: u32) -> Vec<u32> {
    let mut members = vec![first];
    let mut next = 0;
    while let Some(parent) = members.get(next).copied() {
        for task in entries(&format!("/proc/{parent}/task")) {
            let children = std::fs::read_to_string(format!("/proc/{parent}/task/{task}/children")).unwrap_or_default();
            members.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    members
}

fn entries(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}
