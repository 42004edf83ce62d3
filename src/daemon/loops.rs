//! The loops of the roles `scheduler` and `dns`: one list, with the name and the constructor of each, and who runs it.
//!
//! - [`Shared::start`]: those of a process with the role `scheduler`. Each process runs the loops of `every`, and the leader those of
//!   `leader`.
//! - [`serve_files`]: those of a name server that need no API, and [`Following::start`]: those of one that follows the API.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::dns_metrics::holds;
use super::engine::{self, Engine};
use super::freshness::{UNHEARD, mark_stale, missing_zones};
use super::platform;
use super::runtime_settings::RuntimeSettings;
use super::scheduling::{
    authorities, host_resolvers, platform_resolvers, run_for_leadership, servers_to_ask, servers_to_verify,
};
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::config::value::RouterRuntime;
use crate::config::{self, Role};
use signpost_control::certificates::ca;
use signpost_control::challenges;
use signpost_control::client::lease::Leadership;
use signpost_control::client::reflector::HealthProbe;
use signpost_control::compiler;
use signpost_control::compiler::settings::text_of;
use signpost_control::deletion_hold::keep;
use signpost_control::deletion_hold::losses::HeldLosses;
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::instances as routers;
use signpost_control::instances::kubernetes::Kubernetes;
use signpost_control::instances::objects;
use signpost_control::instances::process::Processes;
use signpost_control::ledger::{self, BaseSerial};
use signpost_control::name_server;
use signpost_control::name_server::denials::SILENCE_LONGEST;
use signpost_control::name_server::files::static_zones::{self, Counts, Reloader, StaticZones};
use signpost_control::name_server::objects::Objects;
use signpost_control::name_server::permission::Permissions;
use signpost_control::name_server::status::Status;
use signpost_control::observe::hosts::HostCheck;
use signpost_control::observe::ownership::OwnershipCheck;
use signpost_control::observe::ownership::challenge::Key;
use signpost_control::observe::verify::feed::ZoneFeed;
use signpost_control::observe::{
    certificates, health, hosts, instances, ownership, programmed, resolve, resolved_refs, route_checks, services,
    verify,
};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::{self, Scheduler};
use signpost_control::sources;
use signpost_control::updates::Updates;
use signpost_control::world::World;
use signpost_dns::update::Job;
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::publish::Publisher;
use signpost_types::v1alpha1::zone::ZonePlatform;

/// The values that the loops share. The clients have an identity each if the API is in this process.
pub struct Shared<'a> {
    pub config: &'a config::Settings,
    pub scheduler: Client,
    pub controller: Client,
    pub world: &'a World,
    pub platform: Arc<compiler::Settings>,
    /// The name of the process, the same after a restart.
    pub instance: &'a str,
    pub listened: &'a [SocketAddr],
    /// The key for the challenges of hosts; `None`: hosts need no verification.
    pub host_key: Option<Key>,
    /// The certificate authority from which the platform gets certificates.
    pub authority: Option<ca::Settings>,
    /// The serial in the file of the platform's domain, which the allocation of serials waits for.
    pub base: BaseSerial,
    /// The zones of the name server in this process.
    pub served: Option<Arc<Publisher>>,
    pub runtime_settings: &'a RuntimeSettings,
    /// The cluster that the sources read, if any is on, and the values that their loops share.
    pub sources: Option<(Client, Arc<sources::Shared>)>,
    /// The admin endpoint to which the loops report their health.
    pub admin: &'a Admin,
}

/// The runtime of the instances of Routers.
pub enum Instances {
    Off,
    /// Child processes of this one, until the token stops them.
    Processes(Box<Processes>, CancellationToken),
    Pods(Box<(Client, objects::Settings)>),
}

/// The handles of the started loops.
pub struct Started {
    /// The sender of a changed strategy.
    pub switch: watch::Sender<StrategyConfig>,
    /// The sender of changed settings that the API publishes.
    pub published: watch::Sender<Option<ZonePlatform>>,
}

/// The list to which the loops are added.
struct List<'a> {
    tasks: &'a mut Tasks,
    leadership: watch::Receiver<Leadership>,
    client: Client,
    world: World,
}

impl List<'_> {
    /// Adds a loop that every process with the role runs.
    fn every(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, run);
    }

    /// Adds a loop of the leader, which starts with clones of `parts` in each term.
    fn leader<P, F>(&mut self, name: &'static str, parts: P, start: fn(Client, World, P, CancellationToken) -> F)
    where
        P: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (client, world) = (self.client.clone(), self.world.clone());
        let start = move |stop| start(client.clone(), world.clone(), parts.clone(), stop);
        self.tasks.spawn(name, while_leading(self.leadership.clone(), self.tasks.stop_token(), start));
    }
}

impl Shared<'_> {
    /// Starts the loops in `tasks`, and adds their informers, each with its owner.
    pub fn start(
        self,
        runtime: Instances,
        tasks: &mut Tasks,
        informers: &mut Vec<(&'static str, HealthProbe)>,
    ) -> Started {
        let stop = tasks.stop_token();
        let leadership = run_for_leadership(self.config, &self.scheduler, self.instance, self.admin, tasks);
        let scheduler = self.scheduler();
        let reconciler = self.reconciler(&scheduler);
        let switch = scheduler.switch();
        self.follow_informers(&scheduler, &reconciler, tasks, informers);
        let losses = Arc::default();
        let (client, world) = (self.controller.clone(), self.world.clone());
        let mut list = List { tasks, leadership: leadership.clone(), client, world };
        list.every("scheduler", scheduler.run(leadership.clone(), stop.clone()));
        list.every("reconciler", reconciler.run(leadership, stop.clone()));
        list.every("kept objects", self.keep(&losses, stop.clone()));
        list.every("reports of kept objects", self.reporter(losses).run(stop.clone()));
        let published = self.verify_names(&mut list);
        self.observe(&mut list);
        self.follow_sources(&mut list);
        let name = "instances of Routers";
        match runtime {
            Instances::Off => {}
            Instances::Processes(runtime, end) => {
                list.every(name, routers::run(self.world.clone(), *runtime, stop, end));
            }
            Instances::Pods(pods) => list.leader(name, *pods, |_, world, (client, pods), stop| {
                routers::run(world, Kubernetes::new(client, pods), stop, CancellationToken::new())
            }),
        }
        Started { switch, published }
    }

    /// Adds the allocation of serials and the verification of names; returns the sender of the settings that the API publishes.
    fn verify_names(&self, list: &mut List<'_>) -> watch::Sender<Option<ZonePlatform>> {
        let Shared { config, platform, .. } = self;
        let name_servers = config.verify.names.then(|| servers_to_ask(config, platform, self.listened));
        let servers = name_servers.as_ref().map(|name_servers| servers_to_verify(name_servers, &config.dns.secondary));
        let addresses: Vec<SocketAddr> = name_servers.iter().flatten().map(|server| server.address).collect();
        let published = watch::Sender::new(Some(platform::published(config, platform, &addresses)));
        let of_ledger = ledger::Sources {
            world: self.world.clone(),
            settings: platform.clone(),
            former: config.former_domain.clone(),
            base: self.base,
            description: published.subscribe(),
        };
        let proving = verify::Settings {
            servers,
            timeout: config.verify.timeout,
            interval: config.verify.interval,
            silence_longest: SILENCE_LONGEST,
            served: self.served.clone(),
        };
        let parts = (of_ledger, platform.clone(), proving, self.metrics(verify::metrics::Metrics::register));
        list.leader("ledger of serials and verification of names", parts, |client, world, parts, stop| async {
            // They share the names of each zone, for one term.
            let (feed, (sources, platform, settings, metrics)) = (Arc::<ZoneFeed>::default(), parts);
            let serials = ledger::run(client, sources, feed.clone(), stop.clone());
            tokio::join!(serials, verify::run(world, platform, settings, feed, metrics, stop));
        });
        published
    }

    /// Adds the checks of addresses, instances, Services and hosts.
    fn observe(&self, list: &mut List<'_>) {
        let metrics = (self.metrics(health::metrics::Metrics::register), self.metrics(instances::Metrics::register));
        let parts = (self.runtime_settings.health.subscribe(), metrics);
        list.leader("health of addresses", parts, |client, world, (dial, metrics), stop| {
            restart_on_change(dial, stop, move |(probes_max, panic_percent), stop| {
                let (client, (health, leases)) = (client.clone(), metrics.clone());
                let settings = health::Settings { probes_max, panic_percent };
                let probes = health::run(world.clone(), settings, health, stop.clone());
                let leases = instances::run(client, world.clone(), panic_percent, leases, stop);
                async { _ = tokio::join!(probes, leases) }
            })
        });
        list.leader("addresses of Services", (), |client, world, (), stop| services::run(client, world, stop));
        let settings =
            resolve::Settings { resolvers: platform_resolvers(self.config), patience: self.config.verify.timeout };
        list.leader("addresses of host names", settings, |_, world, settings, stop| {
            resolve::run(settings, world.host_names, stop)
        });
        list.leader("expired ChallengeRecords", (), |client, world, (), stop| challenges::run(client, world, stop));
        list.leader("Routes on instances", self.metrics(programmed::Metrics::register), programmed::run);
        list.leader("certificates", self.metrics(certificates::Metrics::register), |_, world, metrics, stop| {
            certificates::run(world, metrics, stop)
        });
        let metrics = self.metrics(signpost_control::certificates::Metrics::register);
        if let Some(settings) = self.issuing() {
            list.leader("orders of certificates", (settings, metrics), |client, world, (settings, metrics), stop| {
                signpost_control::certificates::run(client, world, settings, metrics, stop)
            });
        }
        list.leader("Services of Routes", self.metrics(resolved_refs::Metrics::register), |_, world, metrics, stop| {
            resolved_refs::run(world, metrics, stop)
        });
        let former_domains = self.world.former_domains.clone();
        let (resolvers, patience) = (host_resolvers(self.config), self.config.verify.timeout);
        let check = HostCheck { former_domains, resolvers, patience };
        let parts = (check, self.registered(hosts::metrics(), route_checks::Metrics::register));
        list.leader("targets of hosts", parts, |client, world, (check, metrics), stop| {
            route_checks::run(check, client, world, metrics, stop)
        });
        let metrics = self.registered(ownership::metrics(), route_checks::Metrics::register);
        if let Some(check) = self.ownership() {
            list.leader("owners of hosts", (check, metrics), |client, world, (check, metrics), stop| {
                route_checks::run(check, client, world, metrics, stop)
            });
        }
    }

    /// Adds the loop that writes what the sources mean.
    fn follow_sources(&self, list: &mut List<'_>) {
        let Some((cluster, shared)) = self.sources.clone() else { return };
        let settings = Arc::new(self.config.sources());
        let (instance, events) = (self.instance.to_owned(), self.metrics(sources::report::register));
        let reporting = sources::report::Parts {
            cluster: cluster.clone(),
            settings: Arc::clone(&settings),
            shared: Arc::clone(&shared),
            instance,
            events,
        };
        list.leader("reports on sources", reporting, sources::report::run);
        let parts = (Arc::clone(&settings), Arc::clone(&shared));
        list.leader("host names of sources", parts, |_, world, (settings, shared), stop| {
            sources::report::resolve(world, settings, shared, stop)
        });
        let (reported, leadership) = (Arc::clone(&shared), list.leadership.clone());
        self.admin.sources.open(move || match &*leadership.borrow() {
            Leadership::Leader(_) => Ok(json!(&**reported.derived.borrow())),
            Leadership::Follower { holder: Some(holder) } => {
                Err(format!("the process {holder} leads, and has the report"))
            }
            Leadership::Follower { holder: None } => Err("no process leads, so nothing is derived".to_owned()),
        });
        let parts = sources::writer::Parts {
            cluster,
            settings,
            shared,
            instance: self.instance.to_owned(),
            share_percent: self.runtime_settings.deletion_hold_threshold.subscribe(),
            metrics: self.metrics(sources::metrics::Metrics::register),
        };
        list.leader("sources", parts, sources::writer::run);
    }

    fn metrics<M: Default>(&self, register: fn(&M, &mut Registry)) -> M {
        self.registered(M::default(), register)
    }

    /// Adds metrics to those of the process.
    fn registered<M>(&self, metrics: M, register: fn(&M, &mut Registry)) -> M {
        self.admin.metrics.register(|registry| register(&metrics, registry));
        metrics
    }

    fn scheduler(&self) -> Scheduler {
        let Shared { config, platform, .. } = self;
        let metrics = self.metrics(scheduler::metrics::Metrics::register);
        let mut settings = scheduler::Settings::new(&platform.domain_text());
        settings.name_servers = platform.name_servers().iter().map(|server| text_of(&server.name)).collect();
        settings.instance = self.instance.to_owned();
        settings.chooser = config.chooser();
        settings.verify_hosts = self.host_key.is_some();
        settings.drain_rate = config.scheduler.drain_rate;
        settings.former_name_retention = config.former_name.retention;
        settings.quarantined_max = config.name.quarantine_max;
        settings.label_rules = config.label_rules();
        Scheduler::new(self.scheduler.clone(), self.world, settings, metrics)
    }

    fn reconciler(&self, scheduler: &Scheduler) -> Reconciler {
        let metrics = self.metrics(reconcile::Metrics::register);
        let settings = reconcile::Settings {
            quarantine: self.config.name.quarantine,
            host_reservation: self.config.host.reservation,
            verify_hosts: self.host_key.is_some(),
            verify_names: self.config.verify.names,
            instance: self.instance.to_owned(),
            ..reconcile::Settings::default()
        };
        let reconciler = Reconciler::new(self.controller.clone(), self.world, settings, metrics);
        let (routers, routes) = (reconciler.router_metrics(), reconciler.route_states());
        self.admin.metrics.write_with(move |page| routers.write(page));
        self.admin.metrics.write_with(move |page| routes.write(page));
        reconciler.with_scheduler(scheduler)
    }

    /// Reports the informers of the scheduler and the reconciler: the role is ready when all kinds are listed.
    fn follow_informers(
        &self,
        scheduler: &Scheduler,
        reconciler: &Reconciler,
        tasks: &mut Tasks,
        informers: &mut Vec<(&'static str, HealthProbe)>,
    ) {
        let of = |owner: &'static str, probes: Vec<HealthProbe>| probes.into_iter().map(move |probe| (owner, probe));
        let own: Vec<_> =
            of("scheduler", scheduler.informers()).chain(of("reconciler", reconciler.informers())).collect();
        informers.extend(own.iter().cloned());
        let check = self.admin.health.add("scheduler", "objects", "the objects have not been listed yet");
        tasks.spawn("scheduler's readiness", check.follow(move || unlisted(&own), tasks.stop_token()));
    }

    /// Keeps what depends on lost Routers and Routes.
    fn keep(&self, losses: &Arc<HeldLosses>, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let threshold = self.runtime_settings.deletion_hold_threshold.subscribe();
        self.world.owners.set_share(*threshold.borrow());
        let counted = losses.clone();
        self.admin.metrics.write_with(move |page| {
            let (objects, undecided) = holds(&counted.held());
            let help = "Objects that are missing from the API, and whose dependent objects are kept";
            page.gauge("scheduler_deletion_hold_objects", help, &objects)?;
            let help = "Deletion holds of the scheduler that wait for approval or rejection";
            page.gauge("scheduler_deletion_hold_pending", help, &undecided)
        });
        keep::run(self.world.clone(), losses.clone(), threshold, stop)
    }

    fn reporter(&self, losses: Arc<HeldLosses>) -> Reporter {
        let instances: &[&str] = match self.config.routers.runtime {
            RouterRuntime::Kubernetes => &["Deployment", "Service", "PodDisruptionBudget", "ServiceAccount"],
            RouterRuntime::Process if self.config.has(Role::Api) => &["process"],
            RouterRuntime::Process | RouterRuntime::Off => &[],
        };
        let holder = Holder::scheduler(self.instance, instances);
        Reporter::new(self.controller.clone(), &self.world.holds, holder, losses)
    }

    /// Returns the settings of orders of certificates, if the platform gets any.
    fn issuing(&self) -> Option<signpost_control::certificates::Settings> {
        let Shared { config, platform, .. } = self;
        let ca = self.authority.clone()?;
        let resolvers = host_resolvers(config);
        Some(signpost_control::certificates::Settings {
            ca,
            servers: servers_to_verify(&servers_to_ask(config, platform, self.listened), &config.dns.secondary),
            resolvers: if resolvers.is_empty() { platform_resolvers(config) } else { resolvers },
            patience: config.verify.timeout,
            verify_hosts: self.host_key.is_some(),
            namespace_orders: config.acme.namespace_orders,
            orders: config.acme.orders,
            instance: self.instance.to_owned(),
        })
    }

    /// Returns the check of owners, if hosts need verification.
    fn ownership(&self) -> Option<OwnershipCheck> {
        Some(OwnershipCheck {
            domain: self.platform.domain_text().into(),
            key: self.host_key.clone()?,
            authorities: authorities(self.config),
            interval: self.config.verify.hosts_interval,
            grace: self.config.verify.hosts_grace,
        })
    }
}

/// Starts the loops of a name server that need no API. Returns what requests a reload of these zone files, and their counts.
pub fn serve_files(
    tasks: &mut Tasks,
    engine: Arc<Engine>,
    files: Option<StaticZones>,
) -> Option<(Reloader, Arc<Mutex<Counts>>)> {
    let stop = tasks.stop_token();
    tasks.spawn("cookie secret", engine::roll(engine, stop.clone()));
    let (files, counts) = (files?, Arc::<Mutex<Counts>>::default());
    let (reloader, following) = static_zones::run(files, counts.clone(), stop);
    tasks.spawn("zone files", following);
    Some((reloader, counts))
}

/// The API that a name server follows.
pub struct Follow {
    pub client: Client,
    pub world: World,
    /// This process's name, the same after a restart.
    pub instance: String,
}

/// A name server that follows the API.
pub struct Following {
    pub follow: Follow,
    /// The location of the process for operators.
    pub here: String,
    pub zones: name_server::Started,
    /// The changes that clients request, the platform's zones, and the served ones.
    pub updates: (mpsc::Receiver<Job>, Arc<compiler::Settings>, Arc<ZoneDb>),
    pub status: Arc<Status>,
    pub engine: Arc<Engine>,
    pub stale_after: watch::Receiver<Option<Duration>>,
}

impl Following {
    /// Starts the loops in `tasks`, and adds their informers.
    pub fn start(self, tasks: &mut Tasks, admin: &Admin, informers: &mut Vec<(&'static str, HealthProbe)>) {
        let Following { follow: Follow { client, world, instance }, here, zones, updates, status, engine, stale_after } =
            self;
        let holder = Holder::name_server(instance, Some(here));
        let reporter = Reporter::new(client.clone(), &world.holds, holder, status.losses().clone());
        let objects = Objects::read(&world);
        let probes = objects.probes();
        informers.extend(probes.iter().cloned().chain([reporter.informer()]).map(|informer| ("dns", informer)));
        let (check, stop) = (admin.health.add("dns", "zones", UNHEARD), tasks.stop_token());
        tasks.spawn("staleness", mark_stale(engine, status.clone(), probes.clone(), stale_after, stop.clone()));
        tasks.spawn("deletion holds", reporter.run(stop.clone()));
        let (jobs, settings, db) = updates;
        let (permissions, questions) = Permissions::new();
        let updates = Updates::new(client.clone(), &objects, settings, db, permissions);
        tasks.spawn("updates of challenges", updates.run(jobs, stop.clone()));
        let zones = zones.answering(questions);
        tasks.spawn("readiness of zones", check.follow(move || missing_zones(&status, &probes), stop.clone()));
        tasks.add("zones", async move {
            let ended = name_server::run(client, objects, zones, stop).await;
            let ended = ended.inspect_err(|error| tracing::error!("{error}"));
            ended.map_or_else(|error| format!("failed: {error}"), |()| "ended".to_owned())
        });
    }
}

/// Returns the kinds that were not listed yet; `None` if all were.
fn unlisted(informers: &[(&'static str, HealthProbe)]) -> Option<String> {
    let unlisted = informers.iter().map(|(_, informer)| informer()).filter(|health| !health.synced);
    let kinds: Vec<String> = unlisted.map(|health| health.kind).collect();
    (!kinds.is_empty()).then(|| format!("not listed yet: {}", kinds.join(", ")))
}

/// Runs a loop with these settings until `stop`. When the settings change, it restarts from the Routers' status, as with a new
/// leader.
async fn restart_on_change<T: Clone, F: Future<Output = ()>>(
    mut settings: watch::Receiver<T>,
    stop: CancellationToken,
    start: impl Fn(T, CancellationToken) -> F,
) {
    while !stop.is_cancelled() {
        let (now, round) = (settings.borrow_and_update().clone(), stop.child_token());
        let mut running = pin!(start(now, round.clone()));
        tokio::select! {
            () = &mut running => return,
            Ok(()) = settings.changed() => {
                round.cancel();
                running.await;
            }
        }
    }
}

/// Runs `start` whenever this process leads, and stops it when it no longer leads, until `stop` fires. Returns earlier only if
/// the work ended by itself: a process must not lead without working.
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
    use signpost_control::client::lease::Term;

    #[tokio::test]
    async fn a_loop_that_ends_while_it_leads_ends_the_task() {
        let (_lead, leadership) = watch::channel(Leadership::Leader(Term::unlimited()));
        let panicking = while_leading(leadership, CancellationToken::new(), |_| async { panic!("a fault of its own") });
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, panicking).await.expect("it returns");
    }
}
