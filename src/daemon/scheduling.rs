//! The role `scheduler`: leadership, and the loops that only the leader runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use futures::future::OptionFuture;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::dns_metrics::holds;
use super::domains;
use super::platform;
use super::runtime_settings::RuntimeSettings;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::config;
use crate::config::value::{Resolver, RouterRuntime, system_resolvers};
use signpost_control::client::lease::{self, Leadership, Lease};
use signpost_control::client::reflector::HealthProbe;
use signpost_control::compiler;
use signpost_control::compiler::settings::text_of;
use signpost_control::controller::domain::{self, DomainMismatch, Duty};
use signpost_control::controller::ledger::{self, BaseSerial};
use signpost_control::controller::zone::denials::SILENCE_LONGEST;
use signpost_control::deletion_hold::keep;
use signpost_control::deletion_hold::losses::HeldLosses;
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::observe::hosts::HostCheck;
use signpost_control::observe::ownership::OwnershipCheck;
use signpost_control::observe::ownership::authorities::AuthoritativeServers;
use signpost_control::observe::ownership::challenge::Key;
use signpost_control::observe::verify::feed::ZoneFeed;
use signpost_control::observe::verify::state::Server;
use signpost_control::observe::{
    certificates, health, hosts, instances, ownership, programmed, resolved_refs, route_checks, services, verify,
};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::world::World;
use signpost_dns::wire::Name;
use signpost_types::v1alpha1::SCHEDULER_LEASE;
use signpost_types::v1alpha1::zone::ZonePlatform;

/// The clients of the loops, each with its own identity if the API is in this process.
pub struct Clients<'a> {
    pub scheduler: Client,
    pub controller: Client,
    pub world: &'a World,
}

/// The handles of the started loops.
pub struct Started {
    /// The sender of a changed strategy.
    pub switch: watch::Sender<StrategyConfig>,
    /// The sender of changed settings that the API publishes.
    pub published: watch::Sender<Option<ZonePlatform>>,
    /// Whether this process leads.
    pub leadership: watch::Receiver<Leadership>,
}

/// The properties of this process that the loops need.
pub struct Here<'a> {
    /// The name of the process, the same after a restart.
    pub instance: &'a str,
    pub listened: &'a [SocketAddr],
    /// The key for the challenges of hosts; `None`: hosts need no verification.
    pub host_key: Option<Key>,
    /// The serial in the file of the platform's domain, which the allocation of serials waits for.
    pub base: BaseSerial,
    /// The apexes of the zones that it serves from files.
    pub files: watch::Receiver<Arc<BTreeSet<Name>>>,
    pub runtime_settings: &'a RuntimeSettings,
}

/// The role, before it starts.
pub struct Role<'a> {
    pub config: &'a config::Settings,
    pub clients: Clients<'a>,
    pub platform: Arc<compiler::Settings>,
    /// The properties of this process that the loops need.
    pub here: Here<'a>,
    /// The admin endpoint to which they report their health.
    pub admin: &'a Admin,
}

impl Role<'_> {
    /// Starts the loops in `tasks`, and adds their informers, each with its owner.
    pub fn start(self, tasks: &mut Tasks, informers: &mut Vec<(&'static str, HealthProbe)>) -> Started {
        let leadership = self.run_for_leadership(tasks);
        let scheduler = self.scheduler();
        let reconciler = self.reconciler(&scheduler);
        let switch = scheduler.switch();
        let of = |owner: &'static str, probes: Vec<HealthProbe>| probes.into_iter().map(move |probe| (owner, probe));
        let own: Vec<_> =
            of("scheduler", scheduler.informers()).chain(of("placement", reconciler.informers())).collect();
        let check = self.admin.health.add("scheduler", "objects", "the objects have not been listed yet");
        let stop = tasks.stop_token();
        tasks.spawn("scheduler", scheduler.run(leadership.clone(), stop.clone()));
        tasks.spawn("placement", reconciler.run(leadership.clone(), stop.clone()));
        informers.extend(own.iter().cloned());
        tasks.spawn("scheduler's readiness", check.follow(move || unlisted(&own), stop));
        self.probe_addresses(tasks, leadership.clone());
        self.keep(tasks);
        let published = self.keep_serials_and_proofs(tasks, leadership.clone());
        Started { switch, published, leadership }
    }

    /// Competes for the Lease, once the API's objects are known to have this domain.
    fn run_for_leadership(&self, tasks: &mut Tasks) -> watch::Receiver<Leadership> {
        let (lead, leadership) = watch::channel(Leadership::Follower { holder: None });
        let domains = domains(self.config);
        let missing = "the domain of the objects in the API is not known yet";
        let objects = self.admin.health.add("scheduler", "domain", missing);
        let lease = lease::Settings::lasting(self.config.scheduler.lease_duration);
        let (candidate, name, stop) =
            (self.clients.scheduler.clone(), self.here.instance.to_owned(), tasks.stop_token());
        tasks.spawn("leadership", async move {
            let report = |other: Option<&DomainMismatch>| match other {
                None => objects.ready(),
                Some(other) => objects.missing(other.to_string()),
            };
            while domain::agreed(&candidate, &domains, Duty::Lead, &stop, report).await {
                let agreeing = stop.child_token();
                let candidacy = run_for_lease(candidate.clone(), &name, lease.clone(), &lead, agreeing.clone());
                tokio::pin!(candidacy);
                tokio::select! {
                    () = &mut candidacy => return,
                    // A process that still has the former domain would give all Routes its names again.
                    () = domain::disagrees(&candidate, &domains) => {
                        agreeing.cancel();
                        candidacy.await;
                        lead.send_replace(Leadership::Follower { holder: None });
                    }
                }
            }
        });
        // This does not affect readiness: another process can be at fault, and name servers in this one still answer.
        let seen = leadership.clone();
        let leader = move || {
            let is_unknown = matches!(*seen.borrow(), Leadership::Follower { holder: None });
            is_unknown.then(|| "no scheduler leads, so Routes get no Router; the log has the reason".to_owned())
        };
        self.admin.health.warn("scheduler", "leader", Box::new(leader));
        leadership
    }

    fn scheduler(&self) -> Scheduler {
        let Role { config, platform, here, .. } = self;
        let metrics = signpost_control::scheduler::metrics::Metrics::default();
        self.admin.metrics.register(|registry| metrics.register(registry));
        let mut settings = Settings::new(&platform.domain_text());
        settings.name_servers = platform.name_servers().iter().map(|server| text_of(&server.name)).collect();
        settings.instance = here.instance.to_owned();
        settings.chooser = config.chooser();
        settings.verify_hosts = here.host_key.is_some();
        settings.drain_rate = config.scheduler.drain_rate;
        settings.former_name_retention = config.former_name.retention;
        settings.quarantined_max = config.name.quarantine_max;
        settings.label_rules = config.label_rules();
        Scheduler::new(self.clients.scheduler.clone(), self.clients.world, settings, metrics)
    }

    fn reconciler(&self, scheduler: &Scheduler) -> Reconciler {
        let counters = reconcile::Metrics::default();
        self.admin.metrics.register(|registry| counters.register(registry));
        let settings = reconcile::Settings {
            quarantine: self.config.name.quarantine,
            host_reservation: self.config.host.reservation,
            verify_hosts: self.here.host_key.is_some(),
            verify_names: self.config.verify.names,
            instance: self.here.instance.to_owned(),
            ..reconcile::Settings::default()
        };
        let reconciler = Reconciler::new(self.clients.controller.clone(), self.clients.world, settings, counters);
        let (routers, routes) = (reconciler.router_metrics(), reconciler.route_states());
        self.admin.metrics.write_with(move |page| routers.write(page));
        self.admin.metrics.write_with(move |page| routes.write(page));
        reconciler.with_scheduler(scheduler)
    }

    /// Keeps what depends on lost Routers and Routes, and reports that.
    fn keep(&self, tasks: &mut Tasks) {
        let instances: &[&str] = match self.config.routers.runtime {
            RouterRuntime::Kubernetes => &["Deployment", "Service", "PodDisruptionBudget", "ServiceAccount"],
            RouterRuntime::Process if self.config.has(config::Role::Api) => &["process"],
            RouterRuntime::Process | RouterRuntime::Off => &[],
        };
        let (Clients { controller, world, .. }, losses) = (&self.clients, Arc::<HeldLosses>::default());
        let holder = Holder::scheduler(self.here.instance, instances);
        let reporter = Reporter::new(controller.clone(), &world.holds, holder, losses.clone());
        let threshold = self.here.runtime_settings.deletion_hold_threshold.subscribe();
        world.owners.set_share(*threshold.borrow());
        let counted = losses.clone();
        self.admin.metrics.write_with(move |page| {
            let (objects, undecided) = holds(&counted.held());
            let help = "Objects that are missing from the API, and whose dependent objects are kept";
            page.gauge("scheduler_deletion_hold_objects", help, &objects)?;
            let help = "Deletion holds of the scheduler that wait for approval or rejection";
            page.gauge("scheduler_deletion_hold_pending", help, &undecided)
        });
        tasks.spawn("kept objects", keep::run(World::clone(world), losses, threshold, tasks.stop_token()));
        tasks.spawn("reports of kept objects", reporter.run(tasks.stop_token()));
    }

    /// Probes the addresses of Routers, and watches their instances and the Services that they select, while this process leads.
    fn probe_addresses(&self, tasks: &mut Tasks, leadership: watch::Receiver<Leadership>) {
        let metrics = (health::metrics::Metrics::default(), instances::Metrics::default());
        self.admin.metrics.register(|registry| {
            metrics.0.register(registry);
            metrics.1.register(registry);
        });
        let (world, dial) = (self.clients.world.clone(), self.here.runtime_settings.health.subscribe());
        let client = self.clients.controller.clone();
        let start = move |stop| probe(client.clone(), world.clone(), dial.clone(), metrics.clone(), stop);
        tasks.spawn("health of addresses", while_leading(leadership, tasks.stop_token(), start));
    }

    /// Allocates serials, and verifies names and hosts, while this process leads.
    fn keep_serials_and_proofs(
        self,
        tasks: &mut Tasks,
        leadership: watch::Receiver<Leadership>,
    ) -> watch::Sender<Option<ZonePlatform>> {
        let Role { config, clients: Clients { controller, world, .. }, platform, here, admin } = self;
        let servers = config.verify.names.then(|| servers_to_ask(config, &platform, here.listened));
        let addresses: Vec<SocketAddr> = servers.iter().flatten().map(|server| server.address).collect();
        let (publish, published) = watch::channel(Some(platform::published(config, &platform, &addresses)));
        let proving = verify::Settings {
            servers,
            timeout: config.verify.timeout,
            interval: config.verify.interval,
            silence_longest: SILENCE_LONGEST,
            files: here.files,
        };
        let owners = here.host_key.map(|key| OwnershipCheck {
            domain: platform.domain_text().into(),
            key,
            authorities: authorities(config),
            interval: config.verify.hosts_interval,
            grace: config.verify.hosts_grace,
        });
        let former_domains = world.former_domains.clone();
        let pointing = HostCheck { former_domains, resolvers: host_resolvers(config), patience: config.verify.timeout };
        let (proofs, pointed, asked) = (verify::metrics::Metrics::default(), hosts::metrics(), ownership::metrics());
        let (probed, examined) = (programmed::Metrics::default(), certificates::Metrics::default());
        let resolved = resolved_refs::Metrics::default();
        admin.metrics.register(|registry| {
            proofs.register(registry);
            pointed.register(registry);
            asked.register(registry);
            probed.register(registry);
            examined.register(registry);
            resolved.register(registry);
        });
        let (settings, former) = (platform.clone(), config.former_domain.clone());
        let sources =
            ledger::Sources { world: world.clone(), settings, former, base: here.base, description: published };
        let world = world.clone();
        let start = move |stop: CancellationToken| {
            let client = || controller.clone();
            let feed = Arc::new(ZoneFeed::default());
            let ledger = ledger::run(client(), sources.clone(), Arc::clone(&feed), stop.clone());
            let proofs =
                verify::run(world.clone(), platform.clone(), proving.clone(), feed, proofs.clone(), stop.clone());
            let programmed = programmed::run(client(), world.clone(), probed.clone(), stop.clone());
            let certificates = certificates::run(world.clone(), examined.clone(), stop.clone());
            let backends = resolved_refs::run(world.clone(), resolved.clone(), stop.clone());
            let points = route_checks::run(pointing.clone(), client(), world.clone(), pointed.clone(), stop.clone());
            let owned = |owners| route_checks::run(owners, client(), world.clone(), asked.clone(), stop.clone());
            let hosts = OptionFuture::from(owners.clone().map(owned));
            async {
                tokio::join!(ledger, proofs, programmed, certificates, backends, points, hosts);
            }
        };
        tasks
            .spawn("ledger of serials and verification of names", while_leading(leadership, tasks.stop_token(), start));
        publish
    }
}

/// Returns the kinds that were not listed yet; `None` if all were.
fn unlisted(informers: &[(&'static str, HealthProbe)]) -> Option<String> {
    let unlisted = informers.iter().map(|(_, informer)| informer()).filter(|health| !health.synced);
    let kinds: Vec<String> = unlisted.map(|health| health.kind).collect();
    (!kinds.is_empty()).then(|| format!("not listed yet: {}", kinds.join(", ")))
}

/// Competes for leadership until `stop`, and reports the state.
async fn run_for_lease(
    client: Client,
    name: &str,
    settings: lease::Settings,
    lead: &watch::Sender<Leadership>,
    stop: CancellationToken,
) {
    let mut leadership = Lease::run(client, SCHEDULER_LEASE, name, settings, stop);
    loop {
        let now = leadership.borrow_and_update().clone();
        lead.send_replace(now);
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Probes addresses and watches instances and Services until `stop`, as the runtime settings configure. When the settings change,
/// probing restarts from the Routers' status, as with a new leader.
async fn probe(
    client: Client,
    world: World,
    mut dial: watch::Receiver<(usize, u32)>,
    metrics: (health::metrics::Metrics, instances::Metrics),
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let (probes_max, panic_percent) = *dial.borrow_and_update();
        let (round, settings) = (stop.child_token(), health::Settings { probes_max, panic_percent });
        let probes = health::run(world.clone(), settings, metrics.0.clone(), round.clone());
        let (client, world) = (client.clone(), world.clone());
        let services = services::run(client.clone(), world.clone(), round.clone());
        let instances = instances::run(client, world, panic_percent, metrics.1.clone(), round.clone());
        let mut running = pin!(async { tokio::join!(probes, instances, services) });
        tokio::select! {
            _ = &mut running => return,
            Ok(()) = dial.changed() => {
                round.cancel();
                running.await;
            }
        }
    }
}

/// Returns the name servers that are queried to verify names: those of `verify.server`; otherwise those of `nameserver`, at the
/// addresses that resolvers use; otherwise the only name server of a platform without any, at its listener.
pub fn servers_to_ask(
    config: &config::Settings,
    platform: &compiler::Settings,
    listened: &[SocketAddr],
) -> Vec<Server> {
    if !config.verify.server.is_empty() {
        return config.verify.server.clone();
    }
    let mut servers = Vec::new();
    if config.nameserver.is_empty() {
        let name = platform.name_servers().first().map(|server| compiler::settings::text_of(&server.name));
        let name = name.unwrap_or_default();
        let ask = |address: &SocketAddr| SocketAddr::new(reachable(address.ip()), address.port());
        servers.extend(listened.iter().map(|address| Server { name: name.clone(), address: ask(address) }));
        servers.dedup();
    }
    for server in &config.nameserver {
        if server.addresses.is_empty() {
            tracing::warn!(
                server = %server.name,
                "the name server has no address in the configuration and is not queried to verify names; set verify.server"
            );
        }
        let address = |address: &IpAddr| SocketAddr::new(*address, config::DNS_PORT);
        servers.extend(server.addresses.iter().map(|ip| Server { name: server.name.clone(), address: address(ip) }));
    }
    if servers.len() > verify::state::SERVERS_MAX {
        let (listed, asked) = (servers.len(), verify::state::SERVERS_MAX);
        tracing::warn!(listed, asked, "too many addresses of name servers; not all are queried to verify names");
    }
    servers
}

/// Returns the resolvers that are queried for the addresses of hosts.
fn host_resolvers(config: &config::Settings) -> Vec<SocketAddr> {
    let each = config.host.resolvers.iter().flat_map(|resolver| match resolver {
        Resolver::At(address) => vec![*address],
        Resolver::System => {
            let found = system_resolvers();
            if found.is_empty() {
                tracing::warn!("host.resolvers has system, but /etc/resolv.conf contains no resolver");
            }
            found
        }
    });
    each.collect()
}

/// Returns the settings for finding and querying the name servers of hosts.
fn authorities(config: &config::Settings) -> AuthoritativeServers {
    let mut resolvers = config.verify.resolver.clone();
    if resolvers.is_empty() {
        resolvers = system_resolvers();
        if resolvers.is_empty() {
            tracing::warn!("verify.hosts is true, but /etc/resolv.conf contains no resolver; set verify.resolver");
        }
    }
    AuthoritativeServers {
        resolvers,
        port: config::DNS_PORT,
        patience: config.verify.timeout,
        private: config.verify.hosts_private_addresses,
    }
}

/// Returns an address to query for an address of a listener.
pub fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// Runs `start` whenever this process leads, and stops it when it no longer leads, until `stop` fires. Returns earlier only if
/// the work ended by itself: a process must not lead without working.
pub(super) async fn while_leading<F: Future<Output = ()> + Send + 'static>(
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
                    // Its panic has been logged.
                    _ = &mut running => return,
                    changed = leadership.changed() => {
                        if changed.is_err() || leadership.borrow_and_update().term().is_none() {
                            break;
                        }
                    }
                }
            }
            term.cancel();
            if !running.is_finished() {
                // It stops at its next await; an error is its panic, which has been logged.
                let _ = running.await;
            }
        }
        match stop.run_until_cancelled(leadership.changed()).await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(_)) => return stop.cancelled().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_loop_that_ends_while_it_leads_ends_the_task() {
        let (_lead, leadership) = watch::channel(Leadership::Leader(lease::Term::unlimited()));
        let panicking = while_leading(leadership, CancellationToken::new(), |_| async { panic!("a fault of its own") });
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, panicking).await.expect("it returns");
    }
}
