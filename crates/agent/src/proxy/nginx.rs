//! nginx: every change is a new configuration, which the master process reloads.
//!
//! The workers of the former configuration, a *generation*, close their listeners and end with their last connection. A reload while many
//! of them live makes the next ones wait, and there are at most [`ReloadPacing::generations_max`]: the workers of the oldest are ended.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::isolation::{Confinement, Isolation, account, admit, set_mode};
use super::{
    Applied, CHECK_TIMEOUT, CHECKED, Check, Fault, Proxy, ProxyError, Rejected, Running, kill_remains, prepare, read,
    remove_certificates, remove_check, run_check, start, write_file, write_files,
};
use crate::pem::KeyPair;
use crate::render::nginx::{
    CONFIG, ERRORS, GENERATION_SOCKET, KEY_BYTES_MAX, SOCKETS, TRAFFIC_SOCKET, beyond_limits, files,
};
use crate::render::{AUTHORITIES, CERTIFICATES, DEFAULT_CERTIFICATE, Settings};
use crate::site::{Certificate, Changes, Host, Part, Site};
use crate::traffic::Meter;
use crate::traffic::access_log::AccessLog;
use crate::traffic::nginx::NginxMeter;

/// The name of its processes.
const NAME: &str = "nginx";
/// The file in which nginx writes its process id.
const PID_FILE: &str = "nginx.pid";
/// The time for the response with the generation.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two checks of a reload. A reload takes at least 0.1 s, for which the master waits for its new workers.
const PAUSE: Duration = Duration::from_millis(5);
/// The time from the first error until a reload has failed. An error of a worker, which is started again, is also one.
const REJECTION_DELAY: Duration = Duration::from_secs(1);
/// The settings of the C library's memory. nginx takes and returns 1.2 MB for each map that it reads. If that memory stays with the process,
/// a reload is 50 ms faster.
const MEMORY: [(&str, &str); 3] =
    [("MALLOC_TRIM_THRESHOLD_", "33554432"), ("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TOP_PAD_", "1048576")];
/// The longest time between the starts of two workers of a generation, in 1/100 s. Two reloads are at least 0.1 s apart; a reload right
/// after the start may count as one generation with it.
const START_TICKS_MAX: u64 = 5;

/// The limits of replaced workers, which take some MiB each until their last connection ends.
#[derive(Clone, Copy, Debug)]
pub struct ReloadPacing {
    /// The time between two reloads while one generation of replaced workers lives. It doubles with each further one.
    pub step: Duration,
    /// The longest time between two reloads.
    pub step_max: Duration,
    /// The most generations of replaced workers.
    pub generations_max: usize,
}

/// A worker takes 14 MiB: with eight generations of two workers, nginx takes about 250 MiB. If tenants change Routes without pause, and every generation has a
/// connection that stays, a change waits for at most ten seconds, and a connection lives for more than a minute.
impl Default for ReloadPacing {
    fn default() -> ReloadPacing {
        ReloadPacing { step: Duration::from_millis(250), step_max: Duration::from_secs(10), generations_max: 8 }
    }
}

impl ReloadPacing {
    /// Returns the time between two reloads.
    fn between(&self, generations: usize) -> Duration {
        let doubled = |over: usize| self.step.saturating_mul(1 << over.min(16));
        generations.checked_sub(1).map_or(Duration::ZERO, doubled).min(self.step_max)
    }
}

/// nginx 1.22 or later with its stream module.
pub struct Nginx {
    program: PathBuf,
    directory: PathBuf,
    settings: Settings,
    pace: ReloadPacing,
    running: Option<Running>,
    /// The Site that nginx serves; `None` if it is unknown.
    served: Option<Site>,
    /// The files of certificates that the running configuration names.
    chains: BTreeSet<String>,
    /// The certificates that were checked.
    sound: BTreeMap<Host, Certificate>,
    generation: u64,
    reloaded: Option<Instant>,
    rejected: Rejected,
    confinement: Confinement,
    meter: Arc<NginxMeter>,
    access_log: Arc<AccessLog>,
}

impl Nginx {
    /// Creates a proxy that keeps its files in a directory, which one agent at a time uses. The directory has or gets `default.pem`,
    /// the certificate for unknown hosts.
    pub fn new(
        program: PathBuf,
        directory: &Path,
        settings: Settings,
        isolation: &Isolation,
    ) -> Result<Nginx, ProxyError> {
        Nginx::with_pace(program, directory, settings, isolation, ReloadPacing::default())
    }

    pub fn with_pace(
        program: PathBuf,
        directory: &Path,
        settings: Settings,
        isolation: &Isolation,
        pace: ReloadPacing,
    ) -> Result<Nginx, ProxyError> {
        let directory = prepare(directory)?;
        let settings = Settings { account: account(isolation, NAME)?, ..settings };
        if let Some(account) = &settings.account {
            admit(account, &directory)?;
        }
        let confinement = Confinement::new(&program, &directory, isolation);
        let owner = settings.account.as_ref().map(|account| account.uid);
        let access_log = Arc::new(AccessLog::default());
        let meter = NginxMeter::new(&directory, owner, access_log.clone()).map_err(ProxyError::io(TRAFFIC_SOCKET))?;
        Ok(Nginx {
            program,
            directory,
            settings,
            pace,
            running: None,
            served: None,
            chains: BTreeSet::new(),
            sound: BTreeMap::new(),
            generation: 0,
            reloaded: None,
            rejected: Rejected::default(),
            confinement,
            meter: Arc::new(meter),
            access_log,
        })
    }

    fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(Running::is_alive)
    }

    /// Makes nginx serve a Site without the parts that it rejects.
    ///
    /// nginx itself keeps its configuration if it rejects a new one, so that no check comes before: with 1,000 Routes, a check takes a
    /// quarter of the time of a change.
    async fn reload(&mut self, site: &Site) -> Result<(), ProxyError> {
        let accepted = match self.attempt(site).await {
            Err(ProxyError::Rejected(message)) => {
                tracing::debug!(message, "nginx rejected its configuration");
                let mut rejected = std::mem::take(&mut self.rejected);
                let accepted = rejected.search(site, self).await;
                self.rejected = rejected;
                remove_check(&self.directory);
                let accepted = accepted?;
                self.attempt(&accepted).await?;
                accepted
            }
            outcome => outcome.map(|()| site.clone())?,
        };
        self.served = Some(accepted);
        Ok(())
    }

    async fn attempt(&mut self, site: &Site) -> Result<(), ProxyError> {
        self.generation += 1;
        let files = self.files(site)?;
        let chains: BTreeSet<String> = files.keys().filter(|name| name.starts_with(CERTIFICATES)).cloned().collect();
        self.write(&files, &chains)?;
        empty(&self.directory.join(ERRORS))?;
        let mut replaced = Vec::new();
        if self.is_running() {
            replaced =
                self.workers().into_iter().filter(|worker| !worker.is_replaced).map(|worker| worker.pid).collect();
            self.running.as_ref().inspect(|running| running.signal(Signal::HUP));
        } else {
            // A killed master leaves workers, which keep the listeners open, and sockets.
            kill_remains(NAME, &self.directory).await;
            for socket in SOCKETS {
                let _ = std::fs::remove_file(self.directory.join(socket));
            }
            empty(&self.directory.join(PID_FILE))?;
            let mut command = self.command(&self.directory);
            self.meter.started();
            self.running = start(command.process_group(0), &self.confinement, self.settings.account.as_ref())?;
        }
        self.wait_for_generation(&replaced).await?;
        self.reloaded = Some(Instant::now());
        self.end_oldest();
        // The workers before the last reload are not needed to accept connections any more.
        remove_certificates(&self.directory, |name| !self.chains.contains(name) && !chains.contains(name))?;
        self.chains = chains;
        Ok(())
    }

    /// Writes the files of a configuration. Those with the certificates have no keys, and workers read them.
    fn write(&self, files: &BTreeMap<String, String>, chains: &BTreeSet<String>) -> Result<(), ProxyError> {
        for (name, contents) in files {
            write_file(&self.directory.join(name), contents)?;
        }
        if let Some(account) = &self.settings.account {
            admit(account, &self.directory.join(CERTIFICATES))?;
            for name in chains.difference(&self.chains) {
                let path = self.directory.join(name);
                std::os::unix::fs::chown(&path, None, Some(account.gid)).map_err(ProxyError::io(name.as_str()))?;
                set_mode(&path, 0o640)?;
            }
        }
        Ok(())
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        // All paths are relative to the working directory, so that workers need no access to those above.
        command.current_dir(directory).stdin(Stdio::null()).args(["-p", "./", "-e", "stderr", "-c", CONFIG]);
        command.envs(MEMORY);
        if let Some(account) = &self.settings.account {
            command.args(["-g", &format!("user {} {};", account.user, account.group)]);
        }
        command
    }

    /// Returns all files, with those that come from elsewhere.
    fn files(&self, site: &Site) -> Result<BTreeMap<String, String>, ProxyError> {
        let default = read(&self.directory.join(DEFAULT_CERTIFICATE))?;
        let default = KeyPair::split(&default)
            .map_err(|error| ProxyError::Rejected(format!("{DEFAULT_CERTIFICATE}: {error}")))?;
        let mut files = files(site, &default, &self.settings, self.generation);
        files.insert("temporary/readme".to_owned(), "nginx requires this directory.\n".to_owned());
        if let Some(path) = &self.settings.upstream_authorities {
            files.insert(AUTHORITIES.to_owned(), read(path)?);
        }
        Ok(files)
    }

    /// Records the certificates that cannot be used, of those that have changed.
    fn check_certificates(&mut self, site: &Site) {
        self.sound.retain(|host, certificate| site.certificates.get(host) == Some(certificate));
        for (host, certificate) in &site.certificates {
            if self.sound.contains_key(host) {
                continue;
            }
            match usable(&certificate.pem) {
                Ok(()) => _ = self.sound.insert(host.clone(), certificate.clone()),
                Err(message) => self.rejected.insert(site, Part::Certificate(host.clone()), message),
            }
        }
    }

    /// Queries nginx for the generation of its configuration.
    async fn running_generation(&self) -> Option<u64> {
        let exchange = async {
            let mut stream = UnixStream::connect(self.directory.join(GENERATION_SOCKET)).await?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut response = String::new();
            stream.take(4_096).read_to_string(&mut response).await?;
            std::io::Result::Ok(response)
        };
        let response = timeout(RESPONSE_TIMEOUT, exchange).await.ok()?.ok()?;
        response.rsplit_once("\r\n\r\n")?.1.parse().ok()
    }

    /// Waits until new workers respond, and the replaced ones have closed their listeners.
    async fn wait_for_generation(&mut self, replaced: &[Pid]) -> Result<(), ProxyError> {
        let deadline = Instant::now() + CHECK_TIMEOUT;
        let mut rejected = None;
        while self.running_generation().await != Some(self.generation)
            || self.workers().iter().any(|worker| !worker.is_replaced && replaced.contains(&worker.pid))
        {
            let errors = read(&self.directory.join(ERRORS)).unwrap_or_default();
            if !self.is_running() {
                return Err(ProxyError::Rejected(format!("nginx ended while it started: {}", errors.trim())));
            }
            if !errors.is_empty() && rejected.get_or_insert_with(Instant::now).elapsed() > REJECTION_DELAY {
                return Err(ProxyError::Rejected(errors.trim().to_owned()));
            }
            if Instant::now() > deadline {
                return Err(ProxyError::Timeout("the start of nginx's workers"));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends the workers of the oldest generations, if there are too many.
    fn end_oldest(&self) {
        let generations = self.replaced_generations();
        let surplus = generations.len().saturating_sub(self.pace.generations_max);
        for generation in &generations[..surplus] {
            tracing::warn!(
                workers = generation.len(),
                "ended the oldest replaced workers of nginx and their connections, because there were too many reloads"
            );
            for pid in generation {
                // The only error is that it has ended. SIGTERM would end it as fast, and log each of its connections.
                let _ = kill_process(*pid, Signal::KILL);
            }
        }
    }

    /// Returns the replaced workers that still live, the oldest generation first.
    fn replaced_generations(&self) -> Vec<Vec<Pid>> {
        let mut workers: Vec<Worker> = self.workers().into_iter().filter(|worker| worker.is_replaced).collect();
        workers.sort_by_key(|worker| worker.started);
        let generations = workers.chunk_by(|one, next| next.started - one.started <= START_TICKS_MAX);
        generations.map(|workers| workers.iter().map(|worker| worker.pid).collect()).collect()
    }

    fn workers(&self) -> Vec<Worker> {
        let Some(master) = self.running.as_ref().map(Running::pid) else { return Vec::new() };
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| Worker::read(Pid::from_raw(pid.parse().ok()?)?)).collect()
    }
}

/// A worker process of nginx.
#[derive(Debug)]
struct Worker {
    pid: Pid,
    /// Whether it accepts no connections any more.
    is_replaced: bool,
    /// The time of its start, in 1/100 s.
    started: u64,
}

impl Worker {
    fn read(pid: Pid) -> Option<Worker> {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_replaced = String::from_utf8_lossy(&title).contains("is shutting down");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // proc(5): the name of the program is in parentheses; 20 fields later comes the time of the start.
        let started = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
        Some(Worker { pid, is_replaced, started })
    }
}

/// Creates a file without contents that only the owner may read, or removes the contents. nginx has it open, or will open it; by itself, it
/// creates files that everyone may read.
fn empty(path: &Path) -> Result<(), ProxyError> {
    let open = || {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
    };
    open().map_err(ProxyError::io(path.display().to_string()))
}

/// Returns why nginx cannot use a certificate.
fn usable(pem: &str) -> Result<(), String> {
    let pair = KeyPair::split(pem).map_err(|error| error.to_string())?;
    pair.check().map_err(|error| error.to_string())?;
    match pair.key.len() {
        0..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(format!("the private key has {bytes} bytes; nginx takes at most {KEY_BYTES_MAX}")),
    }
}

#[async_trait]
impl Check for Nginx {
    async fn check(&self, site: &Site) -> Result<(), ProxyError> {
        let directory = self.directory.join(CHECKED);
        let mut files = self.files(site)?;
        files.retain(|name, _| !name.starts_with(CERTIFICATES));
        files.extend([ERRORS, PID_FILE].map(|name| (name.to_owned(), String::new())));
        write_files(&directory, &files)?;
        let mut command = self.command(&directory);
        command.args(["-t", "-q"]);
        run_check(command, &self.confinement).await
    }
}

#[async_trait]
impl Proxy for Nginx {
    async fn adopt(&mut self) -> bool {
        if self.running.is_none() {
            self.running = Running::adopt(NAME, &self.directory, PID_FILE);
            self.generation = self.running_generation().await.unwrap_or_default();
        }
        self.is_running()
    }

    async fn apply(&mut self, site: &Site, _: Option<&Changes>) -> Result<Applied, ProxyError> {
        let runs = self.adopt().await;
        self.check_certificates(site);
        let wanted = self.rejected.filter(site);
        let served = self.served.take();
        let reloaded = !runs || served.as_ref() != Some(&*wanted);
        if reloaded {
            self.reload(&wanted).await?;
        } else {
            self.served = served;
        }
        let mut faults = self.rejected.faults();
        let beyond = self.served.as_ref().map(beyond_limits).unwrap_or_default().into_iter();
        faults.extend(beyond.map(|(route, message)| Fault { part: Part::Route(route), message }));
        Ok(Applied { reloaded, faults })
    }

    fn meter(&self) -> Option<Arc<dyn Meter>> {
        Some(self.meter.clone())
    }

    fn access_log(&self) -> Option<Arc<AccessLog>> {
        Some(self.access_log.clone())
    }

    fn pause(&self) -> Duration {
        let Some(reloaded) = self.reloaded else { return Duration::ZERO };
        // Those that were ended are still there for a moment.
        let generations = self.replaced_generations().len().min(self.pace.generations_max);
        self.pace.between(generations).saturating_sub(reloaded.elapsed())
    }

    async fn stop(&mut self, drain: Duration) {
        self.served = None;
        if let Some(running) = self.running.take() {
            running.stop(Signal::QUIT, drain).await;
        }
    }
}
