//! The role `scheduler`: leadership, and the loops that only the leader runs.

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
use crate::controller::placement;
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
pub fn start(
    config: &config::Settings,
    clients: Clients,
    platform: Arc<compiler::Settings>,
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
    tasks.spawn(
        "ledger of serials",
        while_leading(leadership, stop, move |stop| {
            ledger::run(controller.clone(), platform.clone(), base.clone(), stop)
        }),
    );
    Started { mirrors, switch }
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
