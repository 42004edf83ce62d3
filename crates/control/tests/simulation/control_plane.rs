//! A simulated control plane: the loops of the role `scheduler`, as the program starts them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::FuturesUnordered;
use signpost_api::identity::{USER_CONTROLLER, USER_SCHEDULER};
use signpost_control::client::lease::{self, Leadership, Lease};
use signpost_control::deletion_hold::keep;
use signpost_control::deletion_hold::losses::HeldLosses;
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::ledger::{self, BaseSerial};
use signpost_control::observe::ownership::authorities::AuthoritativeServers;
use signpost_control::observe::ownership::challenge::Key;
use signpost_control::observe::verify::feed::ZoneFeed;
use signpost_control::observe::verify::state::Server;
use signpost_control::observe::{
    certificates, health, hosts, instances, ownership, programmed, resolved_refs, route_checks, verify,
};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::sources::writer;
use signpost_control::world::{self, World};
use signpost_types::v1alpha1::SCHEDULER_LEASE;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::outside::OWNERS;
use super::scenarios::{self, cluster::Cluster};
use super::{DOMAIN, FORMER_NAME, GRACE, PANIC_PERCENT, SILENCE, settings};

/// Returns the loops. `verify_hosts`: whether hosts must be verified; `cluster`: the cluster that sources read.
pub fn loops(
    connection: &Connection,
    name: &str,
    servers: Vec<Server>,
    verify_hosts: bool,
    cluster: Option<Cluster>,
) -> Vec<BoxFuture<'static, ()>> {
    let (scheduler, controller) = (connection.client(USER_SCHEDULER), connection.client(USER_CONTROLLER));
    let (platform, stop) = (settings(), CancellationToken::new());
    let world = World::new(&controller, world::Settings::of(platform.clone()));
    // Renewed as rarely as possible: renewals are most of the events in calm.
    let lease = lease::Settings { duration: Duration::from_secs(120), renew: Duration::from_secs(55) };
    let losses = Arc::<HeldLosses>::default();
    let holder = Holder::scheduler(name, &["Deployment"]);
    let reporter = Reporter::new(controller.clone(), &world.holds, holder, losses.clone());
    let keep = keep::run(world.clone(), losses, watch::Sender::new(25).subscribe(), stop.clone());
    let leadership = Lease::run(scheduler.clone(), SCHEDULER_LEASE, name, lease, stop.clone());
    let mut scheduling = Settings::new(DOMAIN);
    scheduling.instance = name.to_owned();
    scheduling.former_name_retention = FORMER_NAME;
    scheduling.verify_hosts = verify_hosts;
    let loops = Scheduler::new(scheduler, &world, scheduling, Default::default());
    let settings = reconcile::Settings {
        quarantine: Duration::from_secs(1800),
        verify_hosts,
        instance: name.to_owned(),
        ..reconcile::Settings::default()
    };
    let reconciler = Reconciler::new(controller.clone(), &world, settings, reconcile::Metrics::default());
    let reconciler = reconciler.with_scheduler(&loops);
    let description = watch::Sender::new(None).subscribe();
    let base = BaseSerial::None;
    let sources = ledger::Sources { world: world.clone(), settings: platform.clone(), former: None, base, description };
    let proving = verify::Settings {
        servers: Some(servers),
        timeout: Duration::from_secs(1),
        interval: Duration::from_secs(300),
        silence_longest: SILENCE,
        served: None,
    };
    let (resolvers, patience) = (vec![OWNERS.parse().expect("an address")], Duration::from_secs(1));
    let former_domains = world.former_domains.clone();
    let pointing = hosts::HostCheck { former_domains, resolvers: resolvers.clone(), patience };
    let owners = ownership::OwnershipCheck {
        domain: DOMAIN.into(),
        key: Key::new(&[7; 32]),
        authorities: AuthoritativeServers { resolvers, port: 53, patience, private: true },
        interval: Duration::from_secs(300),
        grace: GRACE,
    };
    let instance = name.to_owned();
    let probing = health::Settings { probes_max: 64, panic_percent: PANIC_PERCENT };
    let leading = while_leading(leadership.clone(), move || {
        let (feed, stop) = (Arc::new(ZoneFeed::default()), CancellationToken::new());
        let (client, until) = (|| controller.clone(), || stop.clone());
        let ledger = ledger::run(client(), sources.clone(), feed.clone(), until());
        let proofs = verify::run(world.clone(), platform.clone(), proving.clone(), feed, Default::default(), until());
        let probes = health::run(world.clone(), probing.clone(), Default::default(), until());
        let instances = instances::run(client(), world.clone(), PANIC_PERCENT, Default::default(), until());
        let programmed = programmed::run(client(), world.clone(), Default::default(), until());
        let certificates = certificates::run(world.clone(), Default::default(), until());
        let backends = resolved_refs::run(world.clone(), Default::default(), until());
        let points = route_checks::run(pointing.clone(), client(), world.clone(), hosts::metrics(), until());
        let owned = || route_checks::run(owners.clone(), client(), world.clone(), ownership::metrics(), until());
        let owned = OptionFuture::from(verify_hosts.then(owned)).map(drop);
        let derived = cluster.as_ref().map(|cluster| {
            let parts = writer::Parts {
                cluster: cluster.client(),
                settings: Arc::new(scenarios::cluster::settings()),
                shared: Arc::default(),
                instance: instance.clone(),
                share_percent: watch::Sender::new(25).subscribe(),
                metrics: Default::default(),
            };
            writer::run(client(), world.clone(), parts, until())
        });
        let derived = OptionFuture::from(derived).map(drop);
        // Each loop is polled when it is woken, not whenever another one is.
        let loops = [ledger.boxed(), proofs.boxed(), probes.boxed(), instances.boxed(), programmed.boxed()];
        let others = [certificates.boxed(), backends.boxed(), points.boxed(), owned.boxed(), derived.boxed()];
        loops.into_iter().chain(others).collect::<FuturesUnordered<_>>().collect::<()>()
    });
    let (scheduling, reconciling) =
        (loops.run(leadership.clone(), stop.clone()), reconciler.run(leadership, stop.clone()));
    vec![scheduling.boxed(), reconciling.boxed(), leading.boxed(), keep.boxed(), reporter.run(stop).boxed()]
}

/// Runs the future of `start` while this process leads.
async fn while_leading<F: Future<Output = ()>>(mut leadership: watch::Receiver<Leadership>, start: impl Fn() -> F) {
    while leadership.wait_for(|now| now.term().is_some()).await.is_ok() {
        tokio::select! {
            () = start() => {}
            _ = leadership.wait_for(|now| now.term().is_none()) => {}
        }
    }
}
