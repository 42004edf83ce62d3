//! The process of `signpost agent`: the agent, its admin endpoints, its signals, and its lookup of its own address in DNS.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router as Endpoints;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use kube::Api;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::data_dir::DataDir;
use super::signals::Signals;
use super::sockets;
use super::traffic_server::TrafficServer;
use crate::admin::metrics::Metrics;
use crate::config::Settings;
use crate::config::value::system_resolvers;
use signpost_agent::lease::Report;
use signpost_agent::proxy::haproxy::Haproxy;
use signpost_agent::proxy::isolation::Isolation;
use signpost_agent::proxy::nginx::Nginx;
use signpost_agent::proxy::{Proxy, ProxyError};
use signpost_agent::render;
use signpost_agent::run::{self, Agent};
use signpost_agent::traffic::Traffic;
use signpost_control::client;
use signpost_control::client::failover::Servers;
use signpost_control::dns_client::{Data, Question, Record, Response};
use signpost_dns::transport::inherited_sockets::InheritedSockets;
use signpost_dns::wire::{Name, RecordType};
use signpost_runtime::httpd::{self, ConnectionSlots, Limits};
use signpost_runtime::telemetry;
use signpost_runtime::telemetry::page::Page;
use signpost_types::v1alpha1::router::Router;

/// The time for one DNS query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval of DNS lookups.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of queries per type and name server in a lookup, each for another name below the wildcard.
const QUERIES: u32 = 3;
/// The time for which clients use an address after its TTL: resolvers count in whole seconds, and a request follows the answer.
const AFTER_TTL: Duration = Duration::from_secs(1);
/// The time for a request to the API while the agent leaves.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    Haproxy,
    Nginx,
}

impl ProxyKind {
    /// Returns the word for the proxy, which is also the name of its program.
    pub fn word(self) -> &'static str {
        match self {
            ProxyKind::Haproxy => "haproxy",
            ProxyKind::Nginx => "nginx",
        }
    }

    /// Returns the path of the program. Debian has it in a directory that is in the `PATH` of root only.
    pub fn program(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = std::env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from));
        let mut programs = directories.filter(|directory| directory.is_absolute()).map(|path| path.join(self.word()));
        programs.find(|program| program.is_file())
    }

    fn create(
        self,
        directory: &std::path::Path,
        rendering: render::Settings,
        isolation: &Isolation,
    ) -> Result<Box<dyn Proxy>, ProxyError> {
        let program = self.program().unwrap_or_else(|| PathBuf::from(self.word()));
        Ok(match self {
            ProxyKind::Haproxy => Box::new(Haproxy::new(program, directory, rendering, isolation)?),
            ProxyKind::Nginx => Box::new(Nginx::new(program, directory, rendering, isolation)?),
        })
    }
}

/// The settings of the process.
pub struct RouterAgent {
    pub proxy: ProxyKind,
    /// The settings of the proxy.
    pub rendering: render::Settings,
    pub isolation: Isolation,
    pub running: run::Settings,
    /// The name servers of the Router's zone; none: they are looked up.
    pub name_servers: Vec<SocketAddr>,
    /// The maximum wait after SIGTERM until DNS does not return the agent's address any longer.
    pub leave_timeout: Duration,
    /// The address for the traffic; `None`: it is not offered.
    pub traffic: Option<SocketAddr>,
    /// Settings that are shared with `signpost serve`.
    pub settings: Settings,
}

/// Runs the agent until it has left.
///
/// # Errors
///
/// The agent cannot start.
pub fn run(agent: RouterAgent) -> Result<(), Box<dyn Error>> {
    telemetry::init(&agent.settings.log.level, agent.settings.log.format);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(no_threads)?.block_on(serve(agent))
}

fn no_threads(error: std::io::Error) -> String {
    format!("cannot start threads: {error}")
}

async fn serve(this: RouterAgent) -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new().map_err(no_threads)?;
    let directory = DataDir::open(&this.running.directory)?;
    let client = connect(&this.settings).await?;
    let proxy = this.proxy.create(&directory.join("proxy"), this.rendering, &this.isolation)?;
    let mut running = this.running;
    let traffic = this.traffic.map(|listen| TrafficServer::open(listen, running.instance.address)).transpose();
    let traffic = traffic.map_err(|error| format!("cannot offer the traffic: {error}"))?;
    running.instance.traffic = traffic.as_ref().map(TrafficServer::access);
    let instance = running.instance.clone();
    let agent = Agent::new(running, proxy);

    let listen = &this.settings.admin.listen;
    let listeners = sockets::listen(listen, "--admin-listen", &mut InheritedSockets::default());
    let stop = CancellationToken::new();
    let (announced, is_announced) = watch::channel(false);
    let endpoints = endpoints(AgentMetrics {
        report: agent.report(),
        renewed: agent.renewed(),
        traffic: agent.traffic(),
        is_announced,
    });
    let places: Arc<ConnectionSlots> = Limits::default().into();
    for listener in listeners? {
        tokio::spawn(httpd::serve(listener, None, endpoints.clone(), places.clone(), stop.clone()));
    }

    if let Some(traffic) = traffic {
        traffic.spawn(agent.traffic(), stop.clone());
    }

    let (first, second) = (Notify::new(), Notify::new());
    let left = async {
        let gone = timeout(this.leave_timeout, gone(&client, &instance.router, instance.address, &this.name_servers));
        tokio::select! {
            // Also the usual end of instances whose server is ended at a terminal.
            () = second.notified() => tracing::info!("stopping without waiting for DNS"),
            gone = gone => if gone.is_err() {
                tracing::warn!(address = %instance.address, "DNS still returns the address, or cannot be queried; stopping");
            }
        }
    };
    let heed = async {
        signals.end().await;
        first.notify_one();
        signals.end().await;
        second.notify_one();
        std::future::pending::<()>().await;
    };
    let announcing = wait_until_announced(client.clone(), instance.router.clone(), instance.address, announced);
    let _announcing = AbortOnDropHandle::new(tokio::spawn(announcing));
    tracing::info!(router = instance.router, address = %instance.address, proxy = instance.proxy, "agent started");
    tokio::select! {
        () = agent.run(client.clone(), first.notified(), left) => {}
        () = heed => unreachable!("it never returns"),
    }
    stop.cancel();
    Ok(())
}

/// Returns a client by the kubeconfig, or in a pod without one by its service account.
async fn connect(settings: &Settings) -> Result<kube::Client, client::ClientError> {
    let of_data_dir = settings.data_dir.join("kubeconfig");
    let servers = Servers::new(settings.api_server.clone());
    match &settings.kubeconfig {
        Some(path) => client::from_kubeconfig(path, settings.api.read_timeout, &servers).await,
        None if !of_data_dir.exists() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => client::in_cluster(),
        None => client::from_kubeconfig(&of_data_dir, settings.api.read_timeout, &servers).await,
    }
}

/// Waits until the Router's addresses include that of the instance, if they come from instances.
async fn wait_until_announced(client: kube::Client, router: String, address: IpAddr, announced: watch::Sender<bool>) {
    let routers = Api::<Router>::all(client);
    loop {
        match timeout(REQUEST_TIMEOUT, routers.get(&router)).await {
            Ok(Ok(found)) if found.includes_instance(address) => break,
            _ => sleep(LOOK_INTERVAL).await,
        }
    }
    announced.send_replace(true);
}

/// Waits until no name server of the Router's zone returns the address, and the last answers with it have expired.
async fn gone(client: &kube::Client, router: &str, address: IpAddr, name_servers: &[SocketAddr]) {
    let (zone, mut ttl) = loop {
        let request = timeout(REQUEST_TIMEOUT, Api::<Router>::all(client.clone()).get(router)).await;
        let error = match request {
            Ok(Ok(found)) if let Some(zone) = found.spec.dns.as_ref().and_then(|dns| dns.parse::<Name>().ok()) => {
                break (zone, found.spec.ttl);
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Ok(_)) => "spec.dns is not a domain name".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the API server did not respond in time".to_owned(),
        };
        tracing::warn!(router, error, "failed to read the zone of the Router; retrying");
        sleep(LOOK_INTERVAL).await;
    };
    loop {
        let servers = match name_servers.is_empty() {
            true => name_servers_of(&zone).await,
            false => name_servers.to_vec(),
        };
        match query_all(&zone, address, &servers).await {
            Look::Absent => break,
            Look::Present(found) => ttl = ttl.max(found),
            Look::Unknown => tracing::warn!(%zone, "no name server of the Router's zone responds"),
        }
        sleep(LOOK_INTERVAL).await;
    }
    tracing::info!(%address, ttl, "DNS no longer returns the address; waiting for its TTL to expire");
    sleep(Duration::from_secs(ttl.into()) + AFTER_TTL).await;
}

/// The results of name servers for names below a Router's wildcard.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// No name server returns the address.
    Absent,
    /// A name server returns it, with this TTL in seconds.
    Present(u32),
    /// No name server responds.
    Unknown,
}

/// Queries all name servers. One that does not respond does not return the address either, as long as any responds.
async fn query_all(zone: &Name, address: IpAddr, servers: &[SocketAddr]) -> Look {
    let rtype = if address.is_ipv4() { RecordType::A } else { RecordType::AAAA };
    let mut seen = Look::Unknown;
    for server in servers {
        for _ in 0..QUERIES {
            // A label without a Route, so that the wildcard answers.
            let label = uuid::Uuid::new_v4().simple().to_string();
            let Ok(name) = format!("{label}.{zone}").parse() else { continue };
            let Ok(response) = (Question { name, rtype }).ask(*server, QUERY_TIMEOUT).await else { continue };
            let is_it = |record: &&Record| record.data == Data::Address(address);
            match (response.answers.iter().find(is_it), &seen) {
                (Some(record), _) => return Look::Present(record.ttl),
                (None, _) => seen = Look::Absent,
            }
        }
    }
    seen
}

/// Returns the addresses of a zone's name servers, as the system's resolvers return them.
async fn name_servers_of(zone: &Name) -> Vec<SocketAddr> {
    let mut addresses = BTreeSet::new();
    let hosts = resolve(zone, RecordType::NS).await;
    for record in hosts.iter().flat_map(|response| &response.answers) {
        let Data::NameServer(host) = &record.data else { continue };
        for rtype in [RecordType::A, RecordType::AAAA] {
            for record in resolve(host, rtype).await.iter().flat_map(|response| &response.answers) {
                if let Data::Address(address) = record.data {
                    addresses.insert(SocketAddr::new(address, 53));
                }
            }
        }
    }
    addresses.into_iter().collect()
}

/// Returns the response of the first of the system's resolvers that responds.
async fn resolve(name: &Name, rtype: RecordType) -> Option<Response> {
    let question = Question { name: name.clone(), rtype };
    for resolver in system_resolvers() {
        if let Ok(response) = question.ask_resolver(resolver, QUERY_TIMEOUT).await {
            return Some(response);
        }
    }
    None
}

#[derive(Clone)]
struct AgentMetrics {
    report: watch::Receiver<Report>,
    renewed: watch::Receiver<bool>,
    traffic: Arc<Traffic>,
    /// Whether the Router's addresses include that of the instance.
    is_announced: watch::Receiver<bool>,
}

/// `/livez`, `/readyz` and `/metrics`.
fn endpoints(agent: AgentMetrics) -> Endpoints {
    let metrics = Arc::new(Metrics::default());
    let counted = agent.clone();
    metrics.write_with(move |page| counted.write(page));
    let ready = move || async move {
        let report = agent.report.borrow();
        match &*report {
            Report { is_leaving: true, .. } => (StatusCode::SERVICE_UNAVAILABLE, "leaving\n"),
            Report { is_serving: false, .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "the proxy does not accept connections\n")
            }
            // While the API is unreachable, an instance that starts with the last-known-good state is ready.
            Report { is_synced: true, .. } if !*agent.is_announced.borrow() => {
                (StatusCode::SERVICE_UNAVAILABLE, "the Router's status does not have the address yet\n")
            }
            _ => (StatusCode::OK, "ok\n"),
        }
    };
    let scrape = move |headers: HeaderMap| async move { metrics.respond(&headers) };
    Endpoints::new().route("/livez", get("ok\n")).route("/readyz", get(ready)).route("/metrics", get(scrape))
}

impl AgentMetrics {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let report = self.report.borrow().clone();
        for (name, help, value) in [
            (
                "agent_applied_revision",
                "Resource version up to which every RouteBinding of the Router is applied",
                report.revisions.bindings,
            ),
            (
                "agent_applied_routes",
                "Resource version up to which every Route of the Router is applied",
                report.revisions.routes,
            ),
            ("agent_routes", "Routes served", report.routes as u64),
            ("agent_faults", "Routes and certificates that are not served, or only partly", report.faults as u64),
            (
                "agent_synced",
                "Whether the objects of the API are listed (1), or the last-known-good state is served (0)",
                report.is_synced.into(),
            ),
            ("agent_serving", "Whether the proxy accepts connections (1)", report.is_serving.into()),
            (
                "agent_lease_renewed",
                "Whether the last request to renew the Lease succeeded (1)",
                (*self.renewed.borrow()).into(),
            ),
        ] {
            page.level(name, help, value as i64)?;
        }
        page.count("agent_changes", "Changes applied to the proxy", report.changes)?;
        page.count("agent_reloads", "Starts and reloads of the proxy", report.reloads)?;
        self.traffic.write(page)
    }
}
