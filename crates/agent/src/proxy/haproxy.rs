//! HAProxy in master-worker mode: changes go through the Runtime API, and a reload through the master.
//!
//! The contents of a worker follow from the commands of this process. If a command fails, or HAProxy runs already at the start, the
//! configuration is written in full and the master reloads it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Resource, Signal, getrlimit};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command as Process;
use tokio::time::{Instant, sleep, timeout};

use super::isolation::{Confinement, Isolation, account, admit};
use super::{
    Applied, CHECK_TIMEOUT, CHECKED, Check, PAUSE, Proxy, ProxyError, Rejected, Running, kill_remains, prepare, read,
    remove_certificates, remove_check, run, run_check, start, write_file, write_files,
};
use crate::render::haproxy::{CONFIG, Command, DESCRIPTORS_MAX, LOG_SOCKET, Layout, WORKER_SOCKET};
use crate::render::{AUTHORITIES, DEFAULT_CERTIFICATE, Settings};
use crate::site::{Certificate, Changes, Host, Site};
use crate::traffic::Meter;
use crate::traffic::access_log::AccessLog;
use crate::traffic::haproxy::HaproxyMeter;
use crate::traffic::socket::receive;

/// The name of its processes.
const NAME: &str = "haproxy";
const MASTER_SOCKET: &str = "master.sock";
/// The file with the master's process id.
const PID_FILE: &str = "haproxy.pid";
/// The time for one response of the Runtime API.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest response that is read. The largest one is that of `show info`, with 4 KiB.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;
/// The most servers that are tried for deletion with one change, unless it adds more.
const DELETIONS_MAX: usize = 256;
/// The time for further deletions, between two changes. HAProxy stops all of its threads for each.
const TIDY_TIME: Duration = Duration::from_millis(10);
/// The longest directory: the path of a socket has 107 bytes at most, and HAProxy adds a suffix while it binds.
const DIRECTORY_BYTES_MAX: usize = 80;

/// The descriptors for each connection that one client may have. A connection over TLS has four, so that one client never has more
/// than a tenth of all.
const DESCRIPTORS_PER_CONNECTION: u64 = 40;

/// HAProxy 2.6 or later, built with Lua.
pub struct Haproxy {
    program: PathBuf,
    directory: PathBuf,
    settings: Settings,
    running: Option<Running>,
    /// The contents of the worker; `None` if they are unknown.
    layout: Option<Layout>,
    rejected: Rejected,
    /// The number of servers that were tried for deletion and had connections.
    deletions_begun: usize,
    /// Whether the program has all that the configuration needs.
    is_suitable: bool,
    confinement: Confinement,
    meter: Arc<HaproxyMeter>,
    access_log: Arc<AccessLog>,
}

impl Haproxy {
    /// Creates a proxy that keeps its files in a directory, whose absolute path has at most 80 bytes, and which one agent at a time
    /// uses. The directory has or gets `default.pem`, the certificate for unknown hosts.
    pub fn new(
        program: PathBuf,
        directory: &Path,
        mut settings: Settings,
        isolation: &Isolation,
    ) -> Result<Haproxy, ProxyError> {
        let directory = prepare(directory)?;
        if directory.as_os_str().len() > DIRECTORY_BYTES_MAX {
            let long = io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for sockets");
            return Err(ProxyError::io(directory.display().to_string())(long));
        }
        let wanted = settings.client_connections_max;
        // HAProxy raises its soft limit.
        settings.client_connections_max = client_connections(wanted, getrlimit(Resource::Nofile).maximum);
        if settings.client_connections_max < wanted {
            tracing::warn!(
                wanted,
                limit = settings.client_connections_max,
                "the limit of open files permits fewer connections of one client; raise it"
            );
        }
        settings.account = account(isolation, NAME)?;
        if let Some(account) = &settings.account {
            admit(account, &directory)?;
        }
        let confinement = Confinement::new(&program, &directory, isolation);
        let meter = HaproxyMeter::new(directory.join(WORKER_SOCKET), directory.join(MASTER_SOCKET));
        let access_log = Arc::new(AccessLog::default());
        let owner = settings.account.as_ref().map(|account| account.uid);
        receive(&directory.join(LOG_SOCKET), owner, &access_log).map_err(ProxyError::io(LOG_SOCKET))?;
        Ok(Haproxy {
            program,
            directory,
            settings,
            running: None,
            layout: None,
            rejected: Rejected::default(),
            deletions_begun: 0,
            is_suitable: false,
            confinement,
            meter: Arc::new(meter),
            access_log,
        })
    }

    /// Checks once that the program was built with Lua.
    async fn require_lua(&mut self) -> Result<(), ProxyError> {
        if self.is_suitable {
            return Ok(());
        }
        let name = self.program.display().to_string();
        let mut command = Process::new(&self.program);
        command.arg("-vv").stdin(Stdio::null());
        let output = run(command, &self.confinement, "haproxy -vv").await?;
        if !has_lua(&String::from_utf8_lossy(&output.stdout)) {
            return Err(ProxyError::Unsuitable(format!(
                "{name} was built without Lua; install a package of HAProxy with Lua, such as that of Debian, Ubuntu, or Fedora"
            )));
        }
        self.is_suitable = true;
        Ok(())
    }

    fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(Running::is_alive)
    }

    /// Makes the worker follow the Site, with some of its certificates, without a reload.
    async fn change(
        &mut self,
        site: &Site,
        certificates: &BTreeMap<Host, Certificate>,
        changes: Option<&Changes>,
    ) -> Result<(), Unchanged> {
        // Taken, so that it is gone if any step fails.
        let mut layout = self.layout.take().ok_or(Unchanged::Unknown)?;
        if !layout.has_settings_of(site) {
            return Err(Unchanged::Settings);
        }
        let files = layout.certificate_files();
        let commands = layout.advance(site, certificates, changes).ok_or(Unchanged::Full)?;
        let most = DELETIONS_MAX.max(commands.len());
        self.meter.assign(layout.backends(changes).into_iter()).await;
        if !commands.is_empty() || layout.retired() > 0 {
            let mut session = Session::open(&self.directory.join(WORKER_SOCKET)).await?;
            for command in commands {
                let response = session.run(&command.text).await?;
                if !command.is_success(&response) {
                    return Err(Unchanged::Refused(command, response));
                }
            }
            self.delete(&mut layout, &mut session, most, None).await?;
        }
        let needed = layout.certificate_files();
        if !files.is_subset(&needed) {
            // Their keys are not needed any more. The next reload writes the files of those that are.
            let removed = remove_certificates(&self.directory, |name| !needed.contains(name));
            removed.map_err(|error| Unchanged::Io(io::Error::other(error)))?;
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Deletes servers that no Route uses any more and that have no connections: at most a number of them, and for a time.
    async fn delete(
        &mut self,
        layout: &mut Layout,
        session: &mut Session,
        most: usize,
        time: Option<Duration>,
    ) -> io::Result<()> {
        let started = Instant::now();
        for (command, backend, server) in layout.deletions(self.deletions_begun, most) {
            if time.is_some_and(|time| started.elapsed() > time) {
                break;
            }
            let response = session.run(&command.text).await?;
            if command.is_success(&response) || response.starts_with("No such server") {
                layout.deleted(&backend, &server);
            } else {
                // In turn, so that servers with long connections do not keep others.
                self.deletions_begun += 1;
            }
        }
        Ok(())
    }

    /// Writes the whole configuration, and starts HAProxy or makes the master reload it.
    async fn reload(&mut self, site: &Site) -> Result<(), ProxyError> {
        self.require_lua().await?;
        let mut rejected = std::mem::take(&mut self.rejected);
        let accepted = rejected.search(site, self).await;
        self.rejected = rejected;
        remove_check(&self.directory);
        let layout = Layout::new(&accepted?, &self.settings);
        write_files(&self.directory, &self.files(&layout)?)?;
        if self.is_running() {
            let before = self.worker().await.ok();
            self.meter.before_reload().await;
            // The connection ends without a response: the master executes itself again.
            let reload = Session::open_master(&self.directory.join(MASTER_SOCKET)).await;
            let _ = reload.map_err(ProxyError::io(MASTER_SOCKET))?.run("reload\n").await;
            self.wait_for_worker(before).await?;
        } else {
            self.start().await?;
        }
        if let Ok(worker) = self.worker().await {
            self.meter.started(worker, layout.backends(None).into_iter());
        }
        self.layout = Some(layout);
        Ok(())
    }

    async fn start(&mut self) -> Result<(), ProxyError> {
        kill_remains(NAME, &self.directory).await;
        let mut command = Process::new(&self.program);
        command.args(["-q", "-W", "-S", &format!("unix@{MASTER_SOCKET},mode,600"), "-f", CONFIG]);
        // In a process group of its own, so that it survives what ends the agent.
        command.current_dir(&self.directory).stdin(Stdio::null()).process_group(0);
        self.running = start(&mut command, &self.confinement, self.settings.account.as_ref())?;
        let pid = self.running.as_ref().map(|running| running.pid.to_string());
        write_file(&self.directory.join(PID_FILE), &pid.unwrap_or_default())?;
        self.wait_for_worker(None).await
    }

    /// Returns all files, with those that come from elsewhere.
    fn files(&self, layout: &Layout) -> Result<BTreeMap<String, String>, ProxyError> {
        let mut files = layout.files(&self.settings);
        files.insert(DEFAULT_CERTIFICATE.to_owned(), read(&self.directory.join(DEFAULT_CERTIFICATE))?);
        if let Some(path) = &self.settings.upstream_authorities {
            files.insert(AUTHORITIES.to_owned(), read(path)?);
        }
        Ok(files)
    }

    /// Returns the process id of the worker that accepts commands.
    async fn worker(&self) -> io::Result<String> {
        let info = Session::open(&self.directory.join(WORKER_SOCKET)).await?.run("show info\n").await?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid: "));
        pid.map(str::to_owned).ok_or_else(|| io::Error::other("no process id in show info"))
    }

    /// Waits until another worker than `before` accepts commands, and the socket of `before` is closed.
    async fn wait_for_worker(&mut self, before: Option<String>) -> Result<(), ProxyError> {
        let deadline = Instant::now() + CHECK_TIMEOUT;
        let mut seen = 0;
        // For some milliseconds, the old worker accepts commands, too.
        while seen < 3 {
            match self.worker().await {
                Ok(pid) if Some(&pid) != before.as_ref() => seen += 1,
                _ => seen = 0,
            }
            if !self.is_running() {
                return Err(ProxyError::Rejected("HAProxy ended while it started".to_owned()));
            }
            if Instant::now() > deadline {
                return Err(ProxyError::Timeout("the start of HAProxy's worker"));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Check for Haproxy {
    async fn check(&self, site: &Site) -> Result<(), ProxyError> {
        let directory = self.directory.join(CHECKED);
        write_files(&directory, &self.files(&Layout::new(site, &self.settings))?)?;
        let mut command = Process::new(&self.program);
        command.args(["-c", "-f", CONFIG]).current_dir(&directory).stdin(Stdio::null());
        run_check(command, &self.confinement).await
    }
}

#[async_trait]
impl Proxy for Haproxy {
    async fn adopt(&mut self) -> bool {
        if self.running.is_none() {
            self.running = Running::adopt(NAME, &self.directory, PID_FILE);
        }
        self.is_running()
    }

    async fn apply(&mut self, site: &Site, changes: Option<&Changes>) -> Result<Applied, ProxyError> {
        if !self.adopt().await {
            self.layout = None;
        }
        // A part that was left out can be back with all its hosts.
        let changes = changes.filter(|changes| self.rejected.is_apart_from(changes));
        let outcome = match changes {
            Some(_) => {
                let certificates = self.rejected.certificates(site);
                self.change(site, &certificates, changes).await
            }
            None => {
                let wanted = self.rejected.filter(site);
                self.change(&wanted, &wanted.certificates, None).await
            }
        };
        let reloaded = outcome.is_err();
        if let Err(reason) = outcome {
            tracing::info!(%reason, "reloading HAProxy");
            let wanted = self.rejected.filter(site);
            self.reload(&wanted).await?;
        }
        Ok(Applied { reloaded, faults: self.rejected.faults() })
    }

    fn meter(&self) -> Option<Arc<dyn Meter>> {
        Some(self.meter.clone())
    }

    fn access_log(&self) -> Option<Arc<AccessLog>> {
        Some(self.access_log.clone())
    }

    async fn tidy(&mut self) {
        let Some(mut layout) = self.layout.take() else { return };
        if layout.retired() > 0 {
            let deleted = async {
                let mut session = Session::open(&self.directory.join(WORKER_SOCKET)).await?;
                self.delete(&mut layout, &mut session, DELETIONS_MAX, Some(TIDY_TIME)).await
            };
            if let Err(error) = deleted.await {
                tracing::debug!(%error, "failed to delete servers that are not used any more; retrying");
            }
        }
        self.layout = Some(layout);
    }

    async fn stop(&mut self, drain: Duration) {
        self.layout = None;
        if let Some(running) = self.running.take() {
            running.stop(Signal::USR1, drain).await;
        }
    }
}

/// Returns the most connections of one client: the setting, or less if the limit of descriptors is low.
fn client_connections(wanted: u32, descriptors: Option<u64>) -> u32 {
    let descriptors = descriptors.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    u32::try_from(descriptors / DESCRIPTORS_PER_CONNECTION).map_or(wanted, |most| wanted.min(most)).max(1)
}

/// Returns whether the features in the output of `haproxy -vv` contain Lua.
fn has_lua(features: &str) -> bool {
    features
        .lines()
        .filter(|line| line.starts_with("Feature list"))
        .flat_map(str::split_whitespace)
        .any(|one| one == "+LUA")
}

/// The reason for a reload.
#[derive(Debug, thiserror::Error)]
enum Unchanged {
    #[error("the contents of the worker are not known")]
    Unknown,
    #[error("all backends of a pool are in use")]
    Full,
    #[error("the Router has other settings")]
    Settings,
    #[error("the Runtime API failed: {0}")]
    Io(#[from] io::Error),
    #[error("{:?} failed: {:?}", .0.text.lines().next().unwrap_or_default(), .1.trim())]
    Refused(Command, String),
}

/// An interactive session of the Runtime API, in which each response ends with a prompt.
struct Session {
    stream: BufReader<UnixStream>,
    prompt: &'static [u8],
}

impl Session {
    async fn open(socket: &Path) -> io::Result<Session> {
        let stream = BufReader::new(timeout(RESPONSE_TIMEOUT, UnixStream::connect(socket)).await??);
        let mut session = Session { stream, prompt: b"\n> " };
        session.run("prompt\n").await?;
        Ok(session)
    }

    /// Opens a session with a master, which takes one command.
    async fn open_master(socket: &Path) -> io::Result<Session> {
        let stream = BufReader::new(timeout(RESPONSE_TIMEOUT, UnixStream::connect(socket)).await??);
        Ok(Session { stream, prompt: b"" })
    }

    /// Runs a command and returns its response.
    async fn run(&mut self, command: &str) -> io::Result<String> {
        timeout(RESPONSE_TIMEOUT, self.exchange(command)).await?
    }

    async fn exchange(&mut self, command: &str) -> io::Result<String> {
        self.stream.write_all(command.as_bytes()).await?;
        let mut response = Vec::new();
        let mut limited = (&mut self.stream).take(RESPONSE_BYTES_MAX);
        if self.prompt.is_empty() {
            // A master waits for further commands otherwise.
            limited.get_mut().shutdown().await?;
            limited.read_to_end(&mut response).await?;
        }
        while !self.prompt.is_empty() && !response.ends_with(self.prompt) {
            if limited.read_until(b' ', &mut response).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        response.truncate(response.len() - self.prompt.len());
        String::from_utf8(response).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_at_most_a_tenth() {
        for (wanted, descriptors, expected) in [
            (1_024, None, 1_024),
            (1_024, Some(4_096), 102),
            (1_024, Some(1 << 20), 1_024),
            (9_999, None, 5_000),
            (8, Some(10), 1),
        ] {
            assert_eq!(client_connections(wanted, descriptors), expected, "{wanted} of {descriptors:?}");
        }
    }

    #[test]
    fn features() {
        assert!(has_lua(
            "HAProxy version 3.2.0\nFeature list : -51DEGREES +KQUEUE +LUA -QUIC\nBuilt with Lua version : Lua 5.4.6"
        ));
        assert!(!has_lua("Feature list : -51DEGREES -LUA\nLua +LUA"));
    }
}
