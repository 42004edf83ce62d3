//! The role `scheduler`: leadership, and the loops that only the leader runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::tasks::Tasks;
use crate::admin::Admin;
use crate::api::v1alpha1::SCHEDULER_LEASE;
use crate::client::lease::{self, Leadership, Lease};
use crate::client::reflector::HealthProbe;
use crate::compiler;
use crate::config;
use crate::controller::health;
use crate::controller::ledger::{self, BaseSerial};
use crate::controller::live::feed::ZoneFeed;
use crate::controller::live::proofs::Server;
use crate::controller::{live, placement};
use crate::scheduler::chooser::Chooser;
use crate::scheduler::{Scheduler, Settings};

/// The clients of the loops, each of an identity of its own where the API is in this process.
pub struct Clients {
    /// The scheduler's.
    pub scheduler: Client,
    /// That of the loops beside it.
    pub controller: Client,
}

/// What is left in hand of the loops that were started.
pub struct Started {
    /// Their mirrors of the API's objects, each with its owner.
    pub mirrors: Vec<(&'static str, HealthProbe)>,
    /// Changes what chooses Routers.
    pub switch: watch::Sender<Chooser>,
}

/// Starts the loops in `tasks`. `instance` is this process's name, the same after a restart. The ledger waits for `base`.
/// `listened` is where the name server of this process answers.
pub fn start(
    config: &config::Settings,
    clients: Clients,
    (platform, listened): (Arc<compiler::Settings>, &[SocketAddr]),
    base: watch::Receiver<Option<BaseSerial>>,
    instance: &str,
    tasks: &mut Tasks,
    admin: &Admin,
) -> Started {
    let Clients { scheduler, controller } = clients;
    let stop = tasks.stop_token();
    let leadership =
        Lease::run(scheduler.clone(), SCHEDULER_LEASE, instance, lease::Settings::default(), stop.child_token());
    let metrics = crate::scheduler::metrics::Metrics::default();
    admin.metrics.register(|registry| metrics.register(registry));
    let mut settings = Settings::new(&platform.domain_text());
    settings.instance = instance.to_owned();
    settings.chooser = config.chooser();
    settings.drain_rate = config.drain_rate;
    settings.trail_minimum = config.trail_minimum;
    let loops = Scheduler::new(scheduler, settings, metrics);
    let switch = loops.switch();
    let counters = placement::Metrics::default();
    admin.metrics.register(|registry| counters.register(registry));
    let keeping = placement::Settings {
        quarantine: config.name_quarantine,
        platform: Some(platform.clone()),
        ..placement::Settings::default()
    };
    let placement = placement::Placement::new(controller.clone(), keeping, counters);
    let routes = placement.routes();
    admin.metrics.collect(placement.router_metrics());
    let of = |owner: &'static str, probes: Vec<HealthProbe>| probes.into_iter().map(move |probe| (owner, probe));
    let mirrors: Vec<_> = of("scheduler", loops.mirrors()).chain(of("placement", placement.mirrors())).collect();
    let watched = mirrors.clone();
    let check = admin.health.add("scheduler", "objects", "the objects have not been listed yet");
    tasks.spawn("scheduler", loops.run(leadership.clone(), stop.clone()));
    tasks.spawn("placement", placement.run(leadership.clone(), stop.clone()));
    let stopped = stop.clone();
    tasks.spawn("scheduler's readiness", async move {
        loop {
            let missing: Vec<String> = watched
                .iter()
                .map(|(_, mirror)| mirror())
                .filter(|health| !health.synced)
                .map(|health| health.kind)
                .collect();
            if missing.is_empty() {
                check.ready();
                return stopped.cancelled().await;
            }
            check.missing(format!("not listed yet: {}", missing.join(", ")));
            tokio::select! {
                () = stopped.cancelled() => return,
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
        }
    });
    let probes = health::metrics::Metrics::default();
    admin.metrics.register(|registry| probes.register(registry));
    let probing = health::Settings {
        domain: platform.domain_text(),
        probes_max: config.health_probes_max,
        panic_percent: config.health_panic_percent,
        instance: instance.to_owned(),
    };
    let prober = controller.clone();
    tasks.spawn(
        "health of addresses",
        while_leading(leadership.clone(), stop.clone(), move |stop| {
            health::run(prober.clone(), probing.clone(), probes.clone(), stop)
        }),
    );
    let proving = live::Settings {
        servers: config.verify.is_on.then(|| servers_to_ask(config, &platform, listened)),
        timeout: config.verify.timeout,
        interval: config.verify.interval,
        instance: instance.to_owned(),
    };
    let proofs = live::metrics::Metrics::default();
    admin.metrics.register(|registry| proofs.register(registry));
    tasks.spawn(
        "ledger of serials and proof of names",
        while_leading(leadership, stop, move |stop| {
            let feed = Arc::new(ZoneFeed::default());
            let ledger =
                ledger::run(controller.clone(), platform.clone(), base.clone(), Arc::clone(&feed), stop.clone());
            let feeds = (routes.clone(), feed);
            let proofs = live::run(controller.clone(), platform.clone(), proving.clone(), feeds, proofs.clone(), stop);
            async {
                tokio::join!(ledger, proofs);
            }
        }),
    );
    Started { mirrors, switch }
}

/// The name servers that are asked whether names are live: those of `verify-server`; else those of `nameserver` where
/// resolvers find them; else the one that a platform without any has, where it listens.
fn servers_to_ask(config: &config::Settings, platform: &compiler::Settings, listened: &[SocketAddr]) -> Vec<Server> {
    if !config.verify.servers.is_empty() {
        let server = |server: &config::VerifyServer| Server {
            name: server.name.clone().unwrap_or_default(),
            address: server.address,
        };
        return config.verify.servers.iter().map(server).collect();
    }
    let mut servers = Vec::new();
    if config.nameservers.is_empty() {
        let name = platform.name_servers().first().map(|server| compiler::settings::text_of(&server.name));
        let name = name.unwrap_or_default();
        let ask = |address: &SocketAddr| SocketAddr::new(reachable(address.ip()), address.port());
        servers.extend(listened.iter().map(|address| Server { name: name.clone(), address: ask(address) }));
        servers.dedup();
    }
    for server in &config.nameservers {
        if server.addresses.is_empty() {
            tracing::warn!(
                server = %server.name,
                "the name server has no address here, so it is not asked whether names are live; give verify-server"
            );
        }
        let address = |address: &IpAddr| SocketAddr::new(*address, config::DNS_PORT);
        servers.extend(server.addresses.iter().map(|ip| Server { name: server.name.clone(), address: address(ip) }));
    }
    if servers.len() > live::proofs::SERVERS_MAX {
        let (listed, asked) = (servers.len(), live::proofs::SERVERS_MAX);
        tracing::warn!(listed, asked, "not all addresses of name servers are asked whether names are live");
    }
    servers
}

/// An address to ask, for one that is listened on.
pub(super) fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// Runs what `start` makes whenever this process leads, and stops it when it no longer does, until `stop` fires.
async fn while_leading<F: Future<Output = ()> + Send + 'static>(
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    start: impl Fn(CancellationToken) -> F,
) {
    loop {
        let leads = leadership.borrow_and_update().term().is_some();
        if leads {
            let term = stop.child_token();
            let mut running = tokio::spawn(start(term.clone()));
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    _ = &mut running => break,
                    changed = leadership.changed() => {
                        if changed.is_err() || leadership.borrow_and_update().term().is_none() {
                            break;
                        }
                    }
                }
            }
            term.cancel();
            if !running.is_finished() {
                // It stops at its next await; an error is its panic, which has been told.
                let _ = running.await;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leadership.changed() => {
                if changed.is_err() {
                    return stop.cancelled().await;
                }
            }
        }
    }
}
