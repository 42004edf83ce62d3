//! `signpost status`: the state of the platform on one screen, from the API and from the admin endpoints of processes.

mod report;
mod warnings;

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use self::report::{ApiSnapshot, Objects, Process, Report, SchedulerLease, StatusInputs};
use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::output::{self, Format};
use super::rates::Rates;
use super::scrape::{self, Admin, Target};
use super::{Outcome, option, progress, success_if};
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::Zone;
use signpost_types::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};

/// The maximum time between the two scrapes of the counters, in seconds.
const INTERVAL_MAX: f64 = 60.0;

pub(super) fn command() -> Command {
    let interval = option("interval", "SECONDS")
        .default_value("1")
        .value_parser(|text: &str| match text.parse::<f64>() {
            Ok(seconds) if (0.0..=INTERVAL_MAX).contains(&seconds) => Ok(seconds),
            _ => Err("must be a number of seconds from 0 to 60"),
        })
        .help("The time over which queries are counted; 0: do not count");
    Command::new("status")
        .about("Show the state of the platform: API, leader, processes, zones, queries, and problems")
        .after_help(
            "Give --admin once for each process. Exit codes: 0 the API and all processes answer and are ready, and \
             every shard has an active address (warnings are allowed), 1 one of them does not, or there is an outage, \
             2 invalid usage.",
        )
        .args(scrape::arguments())
        .arg(interval)
        .arg(output::argument())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let interval = Duration::from_secs_f64(*matches.get_one::<f64>("interval").expect("it has a default"));
    let Target { urls, authorities } = scrape::target(matches)?;
    let limit = API_TIMEOUT + interval + Duration::from_secs(60);
    let asked = access::run(limit, async {
        let admin = Admin::new(authorities.as_deref())?;
        let processes = futures::future::join_all(urls.iter().map(|url| process(&admin, url, interval)));
        let asking = async { tokio::join!(platform(&place), processes) };
        let (platform, processes) = progress::during("reading the platform", asking).await;
        Ok(StatusInputs { kubeconfig: place.origin(), platform, processes })
    });
    let report = Report::new(asked?, Timestamp::now());
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    Ok(success_if(report.healthy))
}

async fn platform(place: &ApiLocation) -> Result<ApiSnapshot, String> {
    let access = place.connect().await?;
    let started = Instant::now();
    let version = access.client.apiserver_version().await.map_err(|error| access.unanswered(error))?.git_version;
    let took = started.elapsed();
    let (routers, routes, zones, holds, lease) = tokio::try_join!(
        access.all_permitted::<Router>(),
        access.all_permitted::<Route>(),
        access.all_permitted::<Zone>(),
        access.all_permitted::<DeletionHold>(),
        lease(&access),
    )?;
    Ok(ApiSnapshot { version, took, lease, objects: Objects { routers, routes, zones, holds } })
}

/// Returns the Lease of the schedulers. `None`: the user may not read it.
async fn lease(access: &Access) -> Result<Option<SchedulerLease>, String> {
    let leases: Api<Lease> = Api::namespaced(access.client.clone(), SCHEDULER_LEASE_NAMESPACE);
    match leases.get_opt(SCHEDULER_LEASE).await {
        Ok(lease) => Ok(Some(lease.map_or(SchedulerLease::Missing, |lease| SchedulerLease::Found(Box::new(lease))))),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(access.unanswered(error)),
    }
}

async fn process(admin: &Admin, url: &str, interval: Duration) -> Process {
    let look = async {
        let (ready, checks) = admin.ready(url).await?;
        let first = admin.scrape(url).await?;
        if interval.is_zero() {
            return Ok((ready, checks, first, None));
        }
        tokio::time::sleep_until((first.at + interval).into()).await;
        let second = admin.scrape(url).await?;
        let rates = Rates::between(&first, &second);
        Ok((ready, checks, second, Some(rates)))
    };
    match look.await {
        Ok((ready, checks, scrape, rates)) => Process::answered(url, ready, &checks, &scrape, rates, Timestamp::now()),
        Err(error) => Process::silent(url, error),
    }
}
