//! Instances as child processes of this one: `signpost agent`, each with its own directory.
//!
//! | file | contents |
//! |---|---|
//! | `instance.json` | the configuration of the instance, its process id and start time |
//! | `log`, `log.1` | its output, at most [`LOG_BYTES_MAX`] each |
//! | `agent-<router>/` | the files of the agent and its proxy |
//!
//! Instances outlive this process, and the next one adopts those whose process id and start time match. An instance that ends by
//! itself is restarted after a growing pause.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Uri;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde::{Deserialize, Serialize};

use super::plan::{Shape, Slot, Step, steps};
use super::{KeepFilter, Runtime, Wanted};
use crate::client::backoff::random;
use crate::client::failover;
use signpost_types::instance::lease_name;
use signpost_types::v1alpha1::router::{Ports, RouterKind};

/// The log size from which a log is renamed to `log.1`.
pub const LOG_BYTES_MAX: u64 = 1 << 20;
/// The network of instances without an address of their Router: 65,534 addresses on loopback.
const NETWORK: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 0);
/// The addresses in it that are tried for a new instance: more than the instances of the other servers on a machine. If a program
/// listens on the port of all addresses, none is free.
const TRIED_MAX: usize = 256;
/// The port of an agent's admin endpoints on its address.
const ADMIN_PORT: u16 = 9453;
/// The pause before a restart of an instance: the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The run time from which an instance is restarted with the first pause.
const STABLE: Duration = Duration::from_secs(60);
/// The most open files of an instance: four for each connection that a proxy forwards, plus a margin.
const FILES_MAX: u64 = 65_536;
/// The longest wait of [`Runtime::shut_down`] for instances; they continue and finish their connections.
const SHUT_DOWN_LONGEST: Duration = Duration::from_secs(3);
/// The pause between two checks of processes that end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const RECORD: &str = "instance.json";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The settings for running instances.
#[derive(Clone, Debug)]
pub struct Settings {
    pub program: PathBuf,
    pub directory: PathBuf,
    /// The kubeconfig of agents.
    pub kubeconfig: PathBuf,
    /// The API servers, instead of the one in the kubeconfig.
    pub api_servers: Vec<Uri>,
    /// The directory with certificates.
    pub certificates: Option<PathBuf>,
    /// The name servers of the platform.
    pub name_servers: Vec<SocketAddr>,
    /// The certificate authorities of applications.
    pub upstream_authorities: Option<PathBuf>,
    /// Further options of agents. Instances with others are replaced.
    pub options: Vec<String>,
}

/// The metrics; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    starts: Counter,
    adoptions: Counter,
    failures: Counter,
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("instance_starts", "Instance processes started", self.starts.clone());
        let help = "Running instance processes adopted after a restart";
        registry.register("instance_adoptions", help, self.adoptions.clone());
        registry.register("instance_failures", "Instance processes that exited on their own", self.failures.clone());
    }
}

/// The file that describes an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    router: String,
    #[serde(rename = "type")]
    kind: RouterKind,
    ports: Ports,
    address: IpAddr,
    /// The version of the program that started it.
    version: String,
    /// The options with which it was started.
    #[serde(default)]
    options: Vec<String>,
    is_stopping: bool,
    /// The process, and its start time according to the kernel.
    process: Option<(i32, u64)>,
}

struct Instance {
    record: Record,
    /// The process, if it was not adopted.
    child: Option<Child>,
    started: Instant,
    /// The time of the next start, and the pause before that.
    restart: Option<(Instant, Duration)>,
    /// The reason why it ended.
    error: Option<String>,
}

/// Instances as child processes.
pub struct Processes {
    settings: Settings,
    metrics: Metrics,
    instances: BTreeMap<u32, Instance>,
    /// The Routers for whose instances there is no address, each with the error.
    unplaced: BTreeMap<String, String>,
}

impl Processes {
    /// Takes over the instances in the directory.
    pub fn open(settings: Settings, metrics: Metrics) -> Processes {
        let mut this = Processes { settings, metrics, instances: BTreeMap::new(), unplaced: BTreeMap::new() };
        for entry in std::fs::read_dir(&this.settings.directory).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let record = std::fs::read(entry.path().join(RECORD)).ok();
            let record = record.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
            let (Some(id), Some(record)) = (id, record) else { continue };
            let mut instance = Instance { record, child: None, started: Instant::now(), restart: None, error: None };
            if instance.is_running() {
                let Record { router, address, process, .. } = &instance.record;
                let process_id = process.map(|(id, _)| id);
                tracing::info!(router, %address, process_id, "adopted an instance");
                this.metrics.adoptions.inc();
            }
            this.instances.insert(id, instance);
        }
        this
    }

    fn directory(&self, id: u32) -> PathBuf {
        self.settings.directory.join(id.to_string())
    }

    /// Records ended processes, and restarts those that should run. An instance whose address another server has taken meanwhile is given
    /// up, unless the spec of its Router has the address: its Router then gets one at a free address.
    fn supervise(&mut self, wanted: &BTreeMap<String, Wanted>) {
        let ids: Vec<u32> = self.instances.keys().copied().collect();
        for id in ids {
            let directory = self.directory(id);
            rotate(&directory);
            let Some(instance) = self.instances.get_mut(&id) else { continue };
            if instance.is_running() {
                continue;
            }
            let now = Instant::now();
            if instance.record.is_stopping {
                tracing::info!(router = instance.record.router, address = %instance.record.address, "instance stopped");
                self.remove(id);
                continue;
            }
            if instance.record.process.is_some() {
                self.metrics.failures.inc();
                instance.failed(&directory, now);
            } else if instance.restart.is_none_or(|(at, _)| at <= now) {
                let Record { router, address, .. } = &instance.record;
                let is_chosen = wanted.get(router).is_some_and(|wanted| !wanted.addresses.contains(address));
                // A proxy that an agent left behind has the other ports.
                if is_chosen && is_taken(*address, ADMIN_PORT) {
                    tracing::warn!(router, %address, "another process has the address of an instance");
                    self.remove(id);
                } else {
                    self.launch(id);
                }
            }
        }
    }

    /// Removes an instance that does not run.
    fn remove(&mut self, id: u32) {
        let directory = self.directory(id);
        // A proxy outlives an agent that was killed.
        end_remains(&directory);
        self.instances.remove(&id);
        if let Err(error) = std::fs::remove_dir_all(&directory) {
            tracing::warn!(directory = %directory.display(), %error, "failed to remove the files of an instance");
        }
    }

    /// Starts the process of an instance.
    fn launch(&mut self, id: u32) {
        let directory = self.directory(id);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let now = Instant::now();
        match spawn(&self.settings, &instance.record, &directory) {
            Ok(child) => {
                self.metrics.starts.inc();
                let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
                instance.record.process = Some((pid, start_time(pid).unwrap_or(0)));
                (instance.child, instance.started) = (Some(child), now);
                let Record { router, address, kind, .. } = &instance.record;
                tracing::info!(router, %address, proxy = kind.word(), process_id = pid, "started an instance");
            }
            Err(error) => {
                instance.error = Some(format!("{}: {error}", self.settings.program.display()));
                instance.restart = Some(instance.next_restart(now));
            }
        }
        self.save(id);
    }

    fn save(&self, id: u32) {
        let Some(instance) = self.instances.get(&id) else { return };
        let path = self.directory(id).join(RECORD);
        let text = serde_json::to_vec_pretty(&instance.record).expect("a record is JSON");
        let candidate = path.with_extension("new");
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&candidate);
        let written = file.and_then(|mut file| file.write_all(&text)).and_then(|()| std::fs::rename(&candidate, &path));
        if let Err(error) = written {
            tracing::error!(path = %path.display(), %error, "failed to write; the instance will not be adopted");
        }
    }

    /// Returns an address in the network that no instance has, and at which the ports are free: instances of another server can
    /// have the first ones.
    fn free_address(&self, ports: Ports) -> Option<IpAddr> {
        let taken: BTreeSet<IpAddr> = self.instances.values().map(|instance| instance.record.address).collect();
        let network = u32::from(NETWORK);
        let addresses = (1..u32::from(u16::MAX)).map(|host| IpAddr::from(Ipv4Addr::from(network | host)));
        let mut untaken = addresses.filter(|ip| !taken.contains(ip)).take(TRIED_MAX);
        untaken.find(|ip| is_free(*ip, ports))
    }

    fn take(&mut self, router: &str, wanted: Option<&Wanted>, step: Step) {
        match (step, wanted) {
            (Step::Start(address), Some(wanted)) => {
                let Some(address) = address.or_else(|| self.free_address(wanted.ports)) else {
                    let Ports { http, https } = wanted.ports;
                    let error = format!(
                        "no loopback address has the free ports {http}, {https} and {ADMIN_PORT}; change spec.ports, or end \
                         the program that listens there"
                    );
                    self.unplaced.insert(router.to_owned(), error);
                    return;
                };
                let id = (0..).find(|id| !self.instances.contains_key(id)).expect("there are fewer instances");
                let record = Record {
                    router: router.to_owned(),
                    kind: wanted.kind,
                    ports: wanted.ports,
                    address,
                    version: VERSION.to_owned(),
                    options: self.settings.options.clone(),
                    is_stopping: false,
                    process: None,
                };
                let instance = Instance { record, child: None, started: Instant::now(), restart: None, error: None };
                self.instances.insert(id, instance);
                self.launch(id);
            }
            (Step::Stop(id), _) => {
                if let Some(instance) = self.instances.get_mut(&id) {
                    instance.record.is_stopping = true;
                    let address = instance.record.address;
                    tracing::info!(router, %address, "stopping an instance: its address leaves DNS, and its connections finish");
                    instance.signal();
                    self.save(id);
                }
            }
            (Step::Start(_), None) => {}
        }
    }

    fn slots(&self, router: &str, wanted: Option<&Wanted>) -> Vec<Slot> {
        let of_router = self.instances.iter().filter(|(_, instance)| instance.record.router == router);
        let slot = |(id, instance): (&u32, &Instance)| {
            let Record { kind, ports, address, is_stopping, ref version, ref options, .. } = instance.record;
            let is_current = version == VERSION && *options == self.settings.options;
            let shape = is_current.then_some(Shape { kind, ports });
            let lease = lease_name(router, address, ports.http);
            let is_serving = wanted.is_some_and(|wanted| wanted.serving.contains(&lease));
            Slot { id: *id, shape, address, is_stopping, is_serving }
        };
        of_router.map(slot).collect()
    }
}

impl Runtime for Processes {
    async fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, Wanted>,
        kept: &KeepFilter<'_>,
    ) -> BTreeMap<String, String> {
        self.supervise(wanted);
        self.unplaced.clear();
        let mut routers: BTreeSet<String> = wanted.keys().cloned().collect();
        routers.extend(self.instances.values().map(|instance| instance.record.router.clone()));
        let surplus = self.instances.values().filter(|instance| !instance.record.is_stopping);
        let surplus = surplus.map(|instance| &*instance.record.router);
        let kept = kept(surplus.filter(|router| !wanted.contains_key(*router)).collect());
        for router in routers.difference(&kept) {
            let wanted = wanted.get(router);
            for step in steps(wanted, &self.slots(router, wanted)) {
                self.take(router, wanted, step);
            }
        }
        let failing = self.instances.values().filter(|instance| instance.started.elapsed() < STABLE);
        let error = |instance: &Instance| {
            let Record { router, address, ports, .. } = &instance.record;
            let lease = lease_name(router, *address, ports.http);
            let serves = wanted.get(router).is_some_and(|wanted| wanted.serving.contains(&lease));
            let error = instance.error.as_ref().filter(|_| !serves)?;
            Some((router.clone(), format!("the agent at {address} exited: {error}")))
        };
        self.unplaced.clone().into_iter().chain(failing.filter_map(error)).collect()
    }

    async fn shut_down(&mut self) {
        // At the first signal, an agent leaves DNS; at the second, it does not wait for that.
        for _ in 0..2 {
            self.instances.values_mut().for_each(Instance::signal);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let deadline = Instant::now() + SHUT_DOWN_LONGEST;
        while self.instances.values_mut().any(|instance| instance.is_running()) && Instant::now() < deadline {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Instance {
    /// Returns whether the process runs. This also reaps a child that has ended.
    fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.record.process.is_some_and(|(pid, started)| start_time(pid) == Some(started)),
        }
    }

    /// Signals the process to end, if it is still the started one.
    fn signal(&mut self) {
        let pid = self.record.process.map(|(pid, _)| pid).and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_running()) {
            // The only error is that it has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    fn failed(&mut self, directory: &Path, now: Instant) {
        let status = self.child.take().and_then(|mut child| child.wait().ok());
        let status = status.map_or_else(|| "the process is gone".to_owned(), |status| status.to_string());
        let error = match last_line(&directory.join("log")) {
            Some(line) => format!("{status}: {line}"),
            None => status,
        };
        let Record { router, address, .. } = &self.record;
        tracing::warn!(router, %address, error, "an instance exited");
        self.error = Some(error);
        self.restart = Some(self.next_restart(now));
        self.record.process = None;
    }

    /// Returns the time of the next start, and the pause before that.
    fn next_restart(&self, now: Instant) -> (Instant, Duration) {
        let former = self.restart.filter(|_| now.duration_since(self.started) < STABLE);
        let pause = former.map_or(PAUSE.0, |(_, pause)| (pause * 2).min(PAUSE.1));
        // Up to a quarter more, so that instances that fail together do not start together.
        let jitter = pause.mul_f64((random() % 256) as f64 / 1024.0);
        (now + pause + jitter, pause)
    }
}

/// Returns whether no program listens on the ports of an instance at an address. Of other errors, the instance has the details.
fn is_free(ip: IpAddr, ports: Ports) -> bool {
    ![ports.http, ports.https, ADMIN_PORT].into_iter().any(|port| is_taken(ip, port))
}

/// Returns whether a process listens on a port.
fn is_taken(ip: IpAddr, port: u16) -> bool {
    TcpListener::bind((ip, port)).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Starts the agent of an instance.
fn spawn(settings: &Settings, record: &Record, directory: &Path) -> io::Result<Child> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let log = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(directory.join("log"))?;
    let Record { router, kind, ports, address, options, .. } = record;
    let admin = match address.is_loopback() {
        true => SocketAddr::new(*address, ADMIN_PORT),
        false => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
    };
    let mut command = Command::new(&settings.program);
    command
        .args(["agent", "--router", router, "--proxy", kind.word(), "--address", &address.to_string()])
        .args(["--http-port", &ports.http.to_string(), "--https-port", &ports.https.to_string()])
        .args(["--admin-listen", &admin.to_string()])
        .arg("--data-dir")
        .arg(directory)
        .arg("--kubeconfig")
        .arg(&settings.kubeconfig)
        .args(settings.api_servers.iter().flat_map(|server| ["--api-server".to_owned(), failover::text_of(server)]))
        .args(settings.name_servers.iter().flat_map(|server| ["--name-server".to_owned(), server.to_string()]));
    if address.is_loopback() {
        command.arg("--loopback-endpoints");
    }
    if let Some(certificates) = &settings.certificates {
        command.arg("--certificates").arg(certificates);
    }
    if let Some(authorities) = &settings.upstream_authorities {
        command.arg("--upstream-ca").arg(authorities);
    }
    command.args(options);
    // A terminal's signal goes to this process, which signals the others.
    let child = command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    limit(&child);
    Ok(child)
}

/// Limits the resources of a process. If limiting fails, the process runs without limits.
fn limit(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, most) in [(Resource::Nofile, FILES_MAX), (Resource::Core, 0)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        if let Err(error) = prlimit(pid, resource, limit) {
            tracing::debug!(?resource, %error, "failed to limit an instance");
        }
    }
}

/// Returns the start time of a process, in ticks since boot; `None`: it has ended.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses, and can contain parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // proc_pid_stat(5): the 22nd field; a zombie has ended.
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z").then_some(started)
}

/// Ends the processes whose working directory is that of an instance, or below it.
fn end_remains(directory: &Path) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let is_below = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        if let Some(pid) = pid.filter(|_| is_below) {
            tracing::warn!(%pid, directory = %directory.display(), "terminating a process that the agent left behind");
            // The only error is that it has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Renames a long log to `log.1`. The process continues to write at its end.
fn rotate(directory: &Path) {
    let log = directory.join("log");
    if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        let moved = std::fs::copy(&log, directory.join("log.1"))
            .and_then(|_| std::fs::OpenOptions::new().write(true).open(&log)?.set_len(0));
        if let Err(error) = moved {
            tracing::warn!(log = %log.display(), %error, "failed to rotate a log");
        }
    }
}

fn last_line(log: &Path) -> Option<String> {
    let text = std::fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &Path) -> Settings {
        Settings {
            program: directory.join("none"),
            directory: directory.to_owned(),
            kubeconfig: PathBuf::new(),
            api_servers: Vec::new(),
            certificates: None,
            name_servers: Vec::new(),
            upstream_authorities: None,
            options: Vec::new(),
        }
    }

    /// Returns a Router with these addresses in its spec.
    fn wanted(addresses: Vec<IpAddr>) -> Wanted {
        Wanted {
            kind: RouterKind::Haproxy,
            count: 1,
            ports: Ports { http: 80, https: 443 },
            addresses,
            ttl: 30,
            serving: BTreeSet::new(),
        }
    }

    #[test]
    fn an_instance_whose_address_another_server_has_taken_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let address = IpAddr::from(Ipv4Addr::from(u32::from(NETWORK) | 0xff01));
        let other = TcpListener::bind((address, ADMIN_PORT)).expect("no instance has so high an address");
        let record = Record {
            router: "a".to_owned(),
            kind: RouterKind::Haproxy,
            ports: Ports { http: 80, https: 443 },
            address,
            version: VERSION.to_owned(),
            options: Vec::new(),
            is_stopping: false,
            process: None,
        };
        let remains = |addresses: Vec<IpAddr>| {
            std::fs::create_dir_all(directory.path().join("0")).expect("created");
            let text = serde_json::to_vec(&record).expect("JSON");
            std::fs::write(directory.path().join("0").join(RECORD), text).expect("written");
            let mut processes = Processes::open(settings(directory.path()), Metrics::default());
            processes.supervise(&BTreeMap::from([("a".to_owned(), wanted(addresses))]));
            !processes.instances.is_empty()
        };
        assert!(!remains(Vec::new()));
        assert!(!directory.path().join("0").exists());
        assert!(remains(vec![address]), "the Router has no other address");
        drop(other);
        assert!(remains(Vec::new()), "it starts again at its address");
    }

    #[test]
    fn an_instance_gets_an_address_with_free_ports() {
        let directory = tempfile::tempdir().expect("a directory");
        let processes = Processes::open(settings(directory.path()), Metrics::default());
        let first = IpAddr::from(Ipv4Addr::from(u32::from(NETWORK) | 1));
        let held = TcpListener::bind((first, 0)).expect("a port");
        let ports = Ports { http: held.local_addr().expect("its address").port(), https: 443 };
        let found = processes.free_address(ports).expect("another address is free");
        assert!(found != first && found.is_loopback(), "{found}");
        let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let ports = Ports { https: everywhere.local_addr().expect("its address").port(), ..ports };
        assert_eq!(processes.free_address(ports), None);
    }

    #[tokio::test]
    async fn the_instances_of_a_router_whose_loss_is_held_run_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut processes = Processes::open(settings(directory.path()), Metrics::default());
        let wanted = wanted(vec![[192, 0, 2, 1].into()]);
        let both = BTreeMap::from(["a", "b"].map(|router| (router.to_owned(), wanted.clone())));
        let all = |running: BTreeSet<&str>| -> BTreeSet<String> { running.into_iter().map(str::to_owned).collect() };
        let none = |_: BTreeSet<&str>| BTreeSet::new();
        processes.reconcile(&both, &none).await;
        let mut running = async |kept: &KeepFilter<'_>| {
            processes.reconcile(&BTreeMap::new(), kept).await;
            let running = processes.instances.values().filter(|instance| !instance.record.is_stopping);
            running.map(|instance| instance.record.router.clone()).collect::<Vec<_>>()
        };
        assert_eq!(running(&all).await, ["a", "b"]);
        let one = |running: BTreeSet<&str>| -> BTreeSet<String> {
            all(running).into_iter().filter(|router| router == "a").collect()
        };
        assert_eq!(running(&one).await, ["a"]);
        assert_eq!(running(&none).await, [""; 0]);
    }

    #[test]
    fn what_a_dead_agent_leaves_ends() {
        let directories = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory")];
        let [mut own, mut other] = directories.each_ref().map(|directory| {
            let proxy = directory.path().join("proxy");
            std::fs::create_dir(&proxy).expect("created");
            Command::new("sleep").arg("1000").current_dir(proxy).spawn().expect("it runs")
        });
        end_remains(&directories[0].path().canonicalize().expect("it is there"));
        assert!(!own.wait().expect("it ends").success());
        assert!(other.try_wait().expect("it is known").is_none());
        other.kill().expect("it is killed");
        let _ = other.wait();
    }
}
