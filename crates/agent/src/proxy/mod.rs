//! Proxies: the real programs, started, configured and stopped.

pub mod haproxy;
pub mod nginx;

pub mod isolation;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use self::isolation::Confinement;
use crate::render::{Account, CERTIFICATES, DEFAULT_CERTIFICATE};
use crate::site::{Certificate, Changes, Host, Part, Paths, Site};
use crate::traffic::Meter;
use crate::traffic::access_log::AccessLog;

/// The most parts of one Site that are left out one by one because the proxy rejects them. A search for one takes about
/// `2 × log2(parts)` checks; more rejected parts than these mean that something else is wrong.
const REJECTED_MAX: usize = 16;
/// The time for one check of a configuration, and for a reload to take effect. With 10,000 backends it takes 0.3 s.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// The least share of the time limit that a check has. A part of a Site has a part of the time for the whole.
const CHECK_SHARE_MIN: f64 = 1.0 / 12.0;
/// The time for a process to end after SIGTERM or SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two checks of a process that starts, reloads or ends.
const PAUSE: Duration = Duration::from_millis(20);

/// A proxy that serves a [`Site`].
#[async_trait]
pub trait Proxy: Send {
    /// Takes over the proxy that an agent before this one started. It serves what it did. Returns whether one runs.
    async fn adopt(&mut self) -> bool;

    /// Makes the proxy serve a Site, without failing a request in progress. If no proxy runs that can be adopted, one is
    /// started.
    ///
    /// `changes` since the Site of the last call save the comparison of all that has not changed; `None`: they are not known.
    ///
    /// Parts that the proxy rejects are left out and reported. After an error, the proxy serves what it served before.
    async fn apply(&mut self, site: &Site, changes: Option<&Changes>) -> Result<Applied, ProxyError>;

    /// Removes what no change needs any more. It takes some milliseconds at most, and the rest is for the next call.
    async fn tidy(&mut self) {}

    /// Returns the counters of the proxy, which can be read at any time; `None`: it has none.
    fn meter(&self) -> Option<Arc<dyn Meter>> {
        None
    }

    /// Returns the log of the requests of a Site that has one; `None`: the proxy has none.
    fn access_log(&self) -> Option<Arc<AccessLog>> {
        None
    }

    /// Returns the time for which the next change should wait, so that changes are applied together. Certificates do not wait.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Stops the proxy: it closes its listeners at once, and ends when its connections have ended or after `drain`.
    async fn stop(&mut self, drain: Duration);
}

/// A proxy's own check of a configuration.
#[async_trait]
pub(crate) trait Check: Sync {
    /// Validates a Site in a directory of its own; fails with [`ProxyError::Rejected`] and the proxy's message.
    async fn check(&self, site: &Site) -> Result<(), ProxyError>;

    /// Returns the time limit for the check of a whole Site.
    fn timeout(&self) -> Duration {
        CHECK_TIMEOUT
    }
}

/// The outcome of an applied Site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether the proxy was started or reloaded; otherwise the change was made in the running process, or there was none.
    pub reloaded: bool,
    /// The parts that the proxy does not serve because it rejects them, or that have more settings than it can have.
    pub faults: Vec<Fault>,
}

/// A part of the Site that the proxy rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub part: Part,
    pub message: String,
}

/// A proxy does not serve what it should.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A file of the configuration cannot be written, or the program cannot be started.
    #[error("{what}: {source}")]
    Io {
        /// The file or program.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The proxy rejects the configuration, and no single Route is the reason.
    #[error("the proxy rejects its configuration: {0}")]
    Rejected(String),
    /// The program lacks a feature that the configuration needs.
    #[error("{0}")]
    Unsuitable(String),
    /// An operation took longer than its time limit.
    #[error("{0} timed out")]
    Timeout(&'static str),
}

impl ProxyError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ProxyError {
        move |source| ProxyError::Io { what: what.into(), source }
    }
}

/// Parts that a proxy has rejected. Each is left out until it changes.
#[derive(Debug, Default)]
pub(crate) struct Rejected(BTreeMap<Part, Rejection>);

#[derive(Debug)]
struct Rejection {
    fingerprint: u64,
    /// The hosts of a Route.
    hosts: Vec<Host>,
    message: String,
}

impl Rejected {
    /// Returns the Site without the parts that were rejected as they still are; forgets the others.
    pub(crate) fn filter<'a>(&mut self, site: &'a Site) -> Cow<'a, Site> {
        self.0.retain(|part, rejection| site.fingerprint(part) == rejection.fingerprint);
        if self.0.is_empty() {
            return Cow::Borrowed(site);
        }
        let parts = site.parts().into_iter().filter(|part| !self.0.contains_key(part));
        Cow::Owned(site.only(&parts.collect()))
    }

    /// Returns the certificates of the Site without those that were rejected as they still are; forgets other certificates.
    pub(crate) fn certificates<'a>(&mut self, site: &'a Site) -> Cow<'a, BTreeMap<Host, Certificate>> {
        self.0.retain(|part, rejection| {
            matches!(part, Part::Route(_)) || site.fingerprint(part) == rejection.fingerprint
        });
        let mut certificates = Cow::Borrowed(&site.certificates);
        for part in self.0.keys() {
            if let Part::Certificate(host) = part {
                certificates.to_mut().remove(host);
            }
        }
        certificates
    }

    /// Records that a part was rejected.
    pub(crate) fn insert(&mut self, site: &Site, part: Part, message: String) {
        let has_part = |paths: &Paths| matches!(&part, Part::Route(route) if paths.values().any(|one| one == route));
        let hosts = site.hosts.iter().filter(|(_, paths)| has_part(paths)).map(|(host, _)| host.clone()).collect();
        let fingerprint = site.fingerprint(&part);
        self.0.insert(part, Rejection { fingerprint, hosts, message });
    }

    /// Returns whether no rejected Route is among what may have changed, so that the proxy can follow the changes without a
    /// comparison.
    pub(crate) fn is_apart_from(&self, changes: &Changes) -> bool {
        self.0.iter().all(|(part, rejection)| match part {
            Part::Route(route) => {
                let has_host = rejection.hosts.iter().any(|host| changes.hosts.contains(host));
                !changes.routes.contains(route) && !has_host
            }
            // They are always compared whole.
            Part::Certificate(_) => true,
        })
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.0.iter().map(|(part, one)| Fault { part: part.clone(), message: one.message.clone() }).collect()
    }

    /// Finds the parts that the proxy rejects by bisection, and returns the Site without them. A check that takes too long is like one that
    /// fails; if two Routes of a namespace are the reason for that, all of its Routes are left out.
    pub(crate) async fn search(&mut self, site: &Site, proxy: &impl Check) -> Result<Site, ProxyError> {
        let mut parts = site.parts();
        let count = parts.len();
        let mut slow_namespaces = BTreeSet::new();
        for _ in 0..=REJECTED_MAX {
            let Some(mut complaint) = rejection(site, &parts, count, proxy).await? else {
                return Ok(site.only(&parts.into_iter().collect()));
            };
            if let Some(complaint) = rejection(site, &[], count, proxy).await? {
                return Err(match complaint.timed_out {
                    true => ProxyError::Timeout("the check of a configuration without Routes"),
                    false => ProxyError::Rejected(complaint.message),
                });
            }
            // The first `good` parts are accepted, the first `bad` ones are not.
            let (mut good, mut bad) = (0, parts.len());
            while bad - good > 1 {
                let middle = good.midpoint(bad);
                match rejection(site, &parts[..middle], count, proxy).await? {
                    Some(found) => (bad, complaint) = (middle, found),
                    None => good = middle,
                }
            }
            let part = parts.remove(good);
            let slow = namespace(&part).map(str::to_owned).filter(|_| complaint.timed_out);
            let mut rejected = vec![part];
            if let Some(slow) = slow
                && !slow_namespaces.insert(slow.clone())
            {
                rejected.extend(parts.extract_if(.., |part| namespace(part) == Some(&slow)));
            }
            for part in rejected {
                let message = complaint.message.clone();
                tracing::warn!(%part, message, "the proxy rejected a part of its configuration; applying the rest without it");
                self.insert(site, part, message);
            }
        }
        Err(ProxyError::Rejected(format!("more than {REJECTED_MAX} parts are rejected")))
    }
}

/// The reason why a proxy does not accept a Site.
struct Complaint {
    message: String,
    timed_out: bool,
}

/// Returns the reason why a proxy does not accept a Site that has only the given parts of `count`; `None` if it does.
async fn rejection(
    site: &Site,
    parts: &[Part],
    count: usize,
    proxy: &impl Check,
) -> Result<Option<Complaint>, ProxyError> {
    let share = parts.len() as f64 / count.max(1) as f64;
    let limit = proxy.timeout().mul_f64(share.max(CHECK_SHARE_MIN));
    let site = site.only(&parts.iter().cloned().collect());
    match timeout(limit, proxy.check(&site)).await {
        Ok(Ok(())) => Ok(None),
        Ok(Err(ProxyError::Rejected(message))) => Ok(Some(Complaint { message, timed_out: false })),
        Err(_) | Ok(Err(ProxyError::Timeout(_))) => {
            let message = format!("the check of a configuration with it takes longer than {limit:.0?}");
            Ok(Some(Complaint { message, timed_out: true }))
        }
        Ok(Err(other)) => Err(other),
    }
}

fn namespace(part: &Part) -> Option<&str> {
    match part {
        Part::Route(route) => route.as_str().split_once('/').map(|(namespace, _)| namespace),
        Part::Certificate(_) => None,
    }
}

/// A running process, started by this agent or by one before it.
#[derive(Debug)]
pub(crate) struct Running {
    pid: Pid,
    /// Absent if the process was adopted.
    child: Option<Child>,
}

impl Running {
    pub(crate) fn started(child: Child) -> Option<Running> {
        let pid = Pid::from_raw(child.id()?.try_into().ok()?)?;
        Some(Running { pid, child: Some(child) })
    }

    /// Takes over the process that an agent before this one started in a directory, by the file with its process id.
    pub(crate) fn adopt(name: &str, directory: &Path, pid_file: &str) -> Option<Running> {
        let pid = std::fs::read_to_string(directory.join(pid_file)).ok()?;
        let pid = Pid::from_raw(pid.trim().parse().ok()?).filter(|pid| runs_in(*pid, name, directory))?;
        tracing::info!(name, %pid, "adopted the running proxy");
        Some(Running { pid, child: None })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            // Not so for a process that has ended and that its parent has not waited for.
            None => std::fs::read_link(format!("/proc/{}/cwd", self.pid)).is_ok(),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The only error is that the process has ended, which `is_alive` reports.
        let _ = kill_process(self.pid, signal);
    }

    /// Sends a signal to end, waits for its connections, and kills it after the time limit.
    pub(crate) async fn stop(mut self, gracefully: Signal, drain: Duration) {
        self.signal(gracefully);
        for (signal, patience) in [(Signal::TERM, drain), (Signal::KILL, KILL_TIMEOUT)] {
            if wait_for(patience, || !self.is_alive()).await {
                return;
            }
            self.signal(signal);
        }
        wait_for(KILL_TIMEOUT, || !self.is_alive()).await;
    }
}

/// Returns whether a process with this name has this working directory, which is so for the proxies of an agent only.
fn runs_in(pid: Pid, name: &str, directory: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let has_name = std::fs::read_to_string(process.join("comm")).is_ok_and(|comm| comm.trim() == name);
    has_name && std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == directory)
}

/// Kills the processes of a proxy whose master has ended, or is not known any more.
pub(crate) async fn kill_remains(name: &str, directory: &Path) {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    for pid in pids.filter(|pid| runs_in(*pid, name, directory)).collect::<Vec<_>>() {
        let _ = kill_process(pid, Signal::KILL);
        wait_for(KILL_TIMEOUT, || !runs_in(pid, name, directory)).await;
    }
}

/// Waits until a condition is true; returns false after the time limit.
pub(crate) async fn wait_for(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + patience;
    while !holds() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
    true
}

/// Starts a proxy, and logs how it is isolated.
pub(crate) fn start(
    command: &mut Command,
    confinement: &Confinement,
    account: Option<&Account>,
) -> Result<Option<Running>, ProxyError> {
    let program = program(command);
    let (child, confinement) = confinement.spawn(command).map_err(ProxyError::io(program.clone()))?;
    let user = account.map_or("that of the agent", |account| account.user.as_str());
    tracing::info!(program, process_id = child.id(), user, confinement, "started the proxy");
    Ok(Running::started(child))
}

/// Runs the program of a proxy to its end.
pub(crate) async fn run(
    mut command: Command,
    confinement: &Confinement,
    what: &'static str,
) -> Result<Output, ProxyError> {
    let program = program(&command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let (child, _) = confinement.spawn(&mut command).map_err(ProxyError::io(program.clone()))?;
    let output = timeout(CHECK_TIMEOUT, child.wait_with_output()).await;
    output.map_err(|_| ProxyError::Timeout(what))?.map_err(ProxyError::io(program))
}

fn program(command: &Command) -> String {
    command.as_std().get_program().to_string_lossy().into_owned()
}

/// Runs a proxy's own check of its configuration; its message is in the error.
pub(crate) async fn run_check(command: Command, confinement: &Confinement) -> Result<(), ProxyError> {
    let output = run(command, confinement, "the check of the configuration").await?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> =
        stderr.lines().filter(|line| line.contains("[ALERT]") || line.contains("[emerg]")).collect();
    let message = if errors.is_empty() { stderr.trim().to_owned() } else { errors.join("\n") };
    Err(ProxyError::Rejected(message))
}

/// Creates the directory of a proxy, with a self-signed certificate for unknown hosts unless it has one, and returns its absolute
/// path.
pub(crate) fn prepare(directory: &Path) -> Result<PathBuf, ProxyError> {
    let make = || {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        directory.canonicalize()
    };
    let directory = make().map_err(ProxyError::io(directory.display().to_string()))?;
    if !directory.join(DEFAULT_CERTIFICATE).exists() {
        let certificate = rcgen::generate_simple_self_signed(vec!["unknown.invalid".to_owned()]);
        let certificate =
            certificate.map_err(|error| ProxyError::io(DEFAULT_CERTIFICATE)(std::io::Error::other(error)))?;
        let pem = certificate.cert.pem() + &certificate.signing_key.serialize_pem();
        write_file(&directory.join(DEFAULT_CERTIFICATE), &pem)?;
    }
    Ok(directory)
}

pub(crate) fn read(path: &Path) -> Result<String, ProxyError> {
    std::fs::read_to_string(path).map_err(ProxyError::io(path.display().to_string()))
}

/// The directory of a configuration that is being checked, in that of a proxy.
pub(crate) const CHECKED: &str = "check";

/// Removes a configuration that was checked: it has private keys, which may be out of use.
pub(crate) fn remove_check(directory: &Path) {
    // Without one, there is nothing to remove; a later check writes its files again.
    let _ = std::fs::remove_dir_all(directory.join(CHECKED));
}

/// Writes the files of a configuration into a directory, and removes the certificates that are not among them.
pub(crate) fn write_files(directory: &Path, files: &BTreeMap<String, String>) -> Result<(), ProxyError> {
    for (name, contents) in files {
        write_file(&directory.join(name), contents)?;
    }
    remove_certificates(directory, |name| !files.contains_key(name))
}

/// Removes the certificates in a directory that are not needed.
pub(crate) fn remove_certificates(directory: &Path, is_unused: impl Fn(&str) -> bool) -> Result<(), ProxyError> {
    for entry in std::fs::read_dir(directory.join(CERTIFICATES)).into_iter().flatten().flatten() {
        let name = format!("{CERTIFICATES}/{}", entry.file_name().to_string_lossy());
        if is_unused(&name) {
            std::fs::remove_file(entry.path()).map_err(ProxyError::io(name))?;
        }
    }
    Ok(())
}

/// Writes a file whole or not at all, and only if its contents differ. It can hold a key, so that only the owner may read it.
pub(crate) fn write_file(path: &Path, contents: &str) -> Result<(), ProxyError> {
    if std::fs::read(path).is_ok_and(|before| before == contents.as_bytes()) {
        return Ok(());
    }
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        let candidate = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&candidate)?;
        std::io::Write::write_all(&mut file, contents.as_bytes())?;
        std::fs::rename(&candidate, path)
    };
    write().map_err(ProxyError::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{Server, Upstream};

    /// A check that does not end with more than 50,000 servers, and rejects those of port 1.
    struct Slow;

    #[async_trait]
    impl Check for Slow {
        async fn check(&self, site: &Site) -> Result<(), ProxyError> {
            let servers = || site.routes.values().flat_map(|upstream| &upstream.servers);
            if servers().count() > 50_000 {
                std::future::pending().await
            }
            match servers().any(|server| server.address.port() == 1) {
                true => Err(ProxyError::Rejected("port 1".to_owned())),
                false => Ok(()),
            }
        }

        fn timeout(&self) -> Duration {
            Duration::from_millis(60)
        }
    }

    /// Returns a Site with Routes, each with a number of servers on a port.
    fn site(routes: &[(String, usize, u16)]) -> Site {
        let mut site = Site::default();
        for (route, servers, port) in routes {
            let server = |_| Server { address: ([192, 0, 2, 1], *port).into(), tls_name: None, weight: 1 };
            let upstream = Upstream { servers: (0..*servers).map(server).collect(), ..Upstream::default() };
            site.routes.insert(route.parse().expect("a Route"), upstream);
        }
        site
    }

    /// Returns the rejected Routes.
    async fn search(routes: &[(String, usize, u16)]) -> Vec<String> {
        let mut rejected = Rejected::default();
        let accepted = rejected.search(&site(routes), &Slow).await.expect("the rest is accepted");
        let parts: Vec<String> = rejected.faults().iter().map(|fault| fault.part.to_string()).collect();
        assert_eq!(accepted.routes.len() + parts.len(), routes.len());
        parts
    }

    #[tokio::test]
    async fn a_check_that_times_out_is_bisected() {
        let small = || (0..1_000).map(|at| (format!("n{at:03}/r"), 2, 80));
        let with = |more: Vec<(String, usize, u16)>| small().chain(more).collect::<Vec<_>>();
        assert_eq!(search(&with(vec![])).await, Vec::<String>::new());
        let huge = || ("huge/r".to_owned(), 100_000, 80);
        assert_eq!(search(&with(vec![huge()])).await, ["Route huge/r"]);
        // A rejected Route in the same namespace.
        let parts = search(&with(vec![huge(), ("n500/bad".to_owned(), 1, 1)])).await;
        assert_eq!(parts, ["Route huge/r", "Route n500/bad"]);
        // Very many Routes of a tenant that are slow together.
        let parts = search(&with((0..200).map(|at| (format!("huge/r{at:03}"), 1_000, 80)).collect())).await;
        assert_eq!(parts.len(), 200);
        assert!(parts.iter().all(|part| part.starts_with("Route huge/")));
    }
}
