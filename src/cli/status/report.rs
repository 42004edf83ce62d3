//! The report of `signpost status`, and its text output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::Serialize;

use super::warnings;
use crate::cli::age;
use crate::cli::rates::{self, Rates};
use crate::cli::scrape::Scrape;
use crate::cli::style::{Painter, Style, harmless};
use crate::cli::table::{Cell, Properties};
use signpost_types::names::alias_zone;
use signpost_types::route_state::RouteState;
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::route::{HOST_POINTS_HERE, POINTS_TO_FORMER_DOMAIN, Route, RouteStatus};
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::{Zone, current_parent};
use signpost_types::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};

/// A watch without a message for longer than this has lost the API: an idle one gets a bookmark about every minute.
const SYNC_AGE_MAX_SECONDS: f64 = 180.0;

/// The number of custom hosts on a former domain that the report names.
const FORMER_HOSTS_NAMED: usize = 5;

pub(super) struct StatusInputs {
    pub(super) kubeconfig: String,
    pub(super) platform: Result<ApiSnapshot, String>,
    pub(super) processes: Vec<Process>,
}

pub(super) struct ApiSnapshot {
    pub(super) version: String,
    /// The duration of one request.
    pub(super) took: Duration,
    /// `None`: the user may not read it.
    pub(super) lease: Option<SchedulerLease>,
    pub(super) objects: Objects,
}

/// The Lease of the schedulers, as the API returned it.
pub(super) enum SchedulerLease {
    Missing,
    Found(Box<Lease>),
}

/// The objects; `None` of a kind that the user may not list.
pub(super) struct Objects {
    pub(super) routers: Option<Vec<Router>>,
    pub(super) routes: Option<Vec<Route>>,
    pub(super) zones: Option<Vec<Zone>>,
    pub(super) holds: Option<Vec<DeletionHold>>,
}

/// The state of the platform. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Whether the API and all processes answer, the processes are ready, and there is no outage.
    pub(super) healthy: bool,
    api: Api,
    domain: Option<String>,
    /// The former domains whose zones are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former_domains: Vec<FormerDomain>,
    /// The custom hosts that point to an alias below one of them; `None`: Routes are not read, or there is no former domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    former_hosts: Option<FormerHosts>,
    leader: Option<Leader>,
    processes: Vec<Process>,
    routers: Option<Counts>,
    routes: Option<Counts>,
    /// The Zone objects, which contain the serials of generated zones.
    ledger_zones: Option<usize>,
    /// The kinds that the user may not read, and that the report leaves out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_read: Vec<&'static str>,
    /// Names that do not resolve at any name server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outages: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Api {
    kubeconfig: String,
    reachable: bool,
    version: Option<String>,
    milliseconds: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FormerDomain {
    domain: String,
    /// The queries for names in its parent and alias zones, since the processes started; `None`: no process counts them.
    queries: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FormerHosts {
    total: usize,
    /// The first few.
    hosts: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leader {
    holder: Option<String>,
    renewed_seconds: Option<u64>,
    /// The number of leader changes, which is the fencing number.
    term: i32,
    /// Whether its Lease is over.
    expired: bool,
}

/// The number of objects of a kind, in total and in each state.
#[derive(Debug, Default, Serialize)]
struct Counts {
    total: usize,
    #[serde(flatten)]
    states: BTreeMap<&'static str, usize>,
}

impl Counts {
    fn of(states: impl Iterator<Item = &'static str>) -> Counts {
        let mut counts = Counts::default();
        for state in states {
            counts.total += 1;
            *counts.states.entry(state).or_default() += 1;
        }
        counts
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Process {
    url: String,
    reachable: bool,
    ready: bool,
    error: Option<String>,
    missing: Vec<String>,
    /// Faults that do not affect readiness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<String>,
    roles: Vec<String>,
    version: Option<String>,
    uptime_seconds: Option<u64>,
    /// Whether its scheduler leads.
    leading: Option<bool>,
    #[serde(flatten)]
    counts: ProcessCounts,
    /// The age of the last API message on the watch with the oldest one.
    sync_age_seconds: Option<f64>,
    /// Watches that are not connected or not complete, as `owner/kind`.
    broken_watches: Vec<String>,
    /// Listed name servers that do not answer the leader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent_name_servers: Vec<String>,
    rates: Option<Rates>,
    /// The queries for names in each zone that has a counter.
    #[serde(skip)]
    zone_queries: BTreeMap<String, f64>,
}

/// The numbers that a process reports.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProcessCounts {
    zones: Option<u64>,
    /// Objects missing from the API's list whose names are still served.
    held_losses: Option<u64>,
    /// Undecided holds of such objects.
    undecided_holds: Option<u64>,
    broken_zone_files: Option<u64>,
    expired_certificates: Option<u64>,
    /// Certificates that are not valid yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    premature_certificates: Option<u64>,
    /// Faults of objects that zones are made from.
    diagnostics: Option<u64>,
}

impl Process {
    /// Returns a process that does not respond.
    pub(super) fn silent(url: &str, error: String) -> Process {
        Process { url: url.to_owned(), error: Some(error), ..Process::default() }
    }

    /// Returns a process that responds, with the lines of its readiness and its metrics.
    pub(super) fn answered(
        url: &str,
        ready: bool,
        checks: &[String],
        scrape: &Scrape,
        rates: Option<Rates>,
        now: Timestamp,
    ) -> Process {
        let mut roles: Vec<String> = Vec::new();
        for role in checks.iter().filter_map(|check| check.get(4..)?.split('/').next()) {
            if role != "process" && !roles.iter().any(|known| known == role) {
                roles.push(role.to_owned());
            }
        }
        let marked =
            |mark| checks.iter().filter_map(move |check| check.strip_prefix(mark)).map(str::to_owned).collect();
        let (missing, faults) = (marked("[-] "), marked("[!] "));
        let count = |name: &str| scrape.sum(name).map(|value| value as u64);
        let started = scrape.sum("signpost_start_time_seconds");
        let version = scrape.of("signpost_build_info").find_map(|sample| sample.labels.get("version")).cloned();
        let ages = scrape.of("signpost_informer_age_seconds").map(|sample| sample.value);
        let now_seconds = now.as_second() as f64;
        let certificates = |metric: &str, is_invalid: fn(f64, f64) -> bool| {
            let invalid = scrape.of(metric).filter(|sample| is_invalid(sample.value, now_seconds)).count();
            Some(invalid as u64).filter(|count| *count > 0)
        };
        let mut broken = Vec::new();
        for name in ["signpost_informer_synced", "signpost_informer_connected"] {
            for sample in scrape.of(name).filter(|sample| sample.value == 0.0) {
                let label = |label: &str| sample.labels.get(label).map_or("", String::as_str);
                let watch = format!("{}/{}", label("owner"), label("kind"));
                if !broken.contains(&watch) {
                    broken.push(watch);
                }
            }
        }
        let silent = scrape.of("signpost_name_server_silent").filter(|sample| sample.value > 0.0).map(|sample| {
            let label = |label: &str| sample.labels.get(label).map_or("", String::as_str);
            format!("{} ({})", label("server"), label("address")).trim_start().to_owned()
        });
        let silent = silent.collect();
        Process {
            url: url.to_owned(),
            reachable: true,
            ready,
            error: None,
            missing,
            faults,
            roles,
            version,
            uptime_seconds: started.map(|started| (now.as_second() as f64 - started).max(0.0) as u64),
            leading: scrape.sum("signpost_scheduler_leading").map(|leading| leading > 0.0),
            counts: ProcessCounts {
                zones: count("signpost_dns_zones"),
                held_losses: count("signpost_deletion_hold_objects"),
                undecided_holds: count("signpost_deletion_hold_pending"),
                broken_zone_files: count("signpost_zone_files_broken"),
                expired_certificates: certificates("signpost_certificate_expiry_time_seconds", |end, now| end < now),
                premature_certificates: certificates("signpost_certificate_start_time_seconds", |start, now| {
                    now < start
                }),
                diagnostics: count("signpost_zone_input_errors"),
            },
            sync_age_seconds: ages.max_by(f64::total_cmp),
            broken_watches: broken,
            silent_name_servers: silent,
            zone_queries: scrape.by("signpost_dns_zone_requests_total", "zone"),
            rates: rates.filter(|_| scrape.sum("signpost_dns_requests_total").is_some()),
        }
    }

    fn warn(&self, warnings: &mut Vec<String>) {
        let Process { url, .. } = self;
        if let Some(error) = &self.error {
            warnings.push(error.clone());
        }
        warnings.extend(self.missing.iter().chain(&self.faults).map(|fault| format!("{url}: {fault}")));
        if !self.broken_watches.is_empty() {
            warnings.push(format!(
                "{url}: watches that are not connected or not complete: {}",
                self.broken_watches.join(", ")
            ));
        } else if let Some(age) = self.sync_age_seconds.filter(|age| *age > SYNC_AGE_MAX_SECONDS) {
            warnings.push(format!("{url}: no message from the API for {}", age::of_seconds(age as u64)));
        }
        warnings.extend(self.silent_name_servers.iter().map(|server| {
            format!("{url}: name server {server} does not answer; Routes do not wait for it while another one answers")
        }));
        // A loss that was decided of is known: it rings no alarm.
        let counts = &self.counts;
        let alarming = counts.held_losses.filter(|_| counts.undecided_holds != Some(0));
        for (count, what) in [
            (alarming, "objects are missing from the API; their names are still served"),
            (counts.broken_zone_files, "zone files are invalid and have no earlier valid version; see the log"),
            (counts.expired_certificates, "certificates have expired, and clients reject them; see the log"),
            (counts.premature_certificates, "certificates are not valid yet, and clients reject them; see the log"),
            (
                counts.diagnostics,
                "faults in objects that zones are built from; run \"signpost zone list\" to list them",
            ),
        ] {
            if let Some(count) = count.filter(|count| *count > 0) {
                warnings.push(format!("{url}: {count} {what}"));
            }
        }
    }
}

impl Report {
    /// Assembles the report.
    pub(super) fn new(asked: StatusInputs, now: Timestamp) -> Report {
        let StatusInputs { kubeconfig, platform, processes } = asked;
        let mut warnings = Vec::new();
        let reachable = platform.is_ok();
        let mut report = Report {
            healthy: reachable && processes.iter().all(|process| process.ready),
            api: Api { kubeconfig, reachable, ..Api::default() },
            processes,
            ..Report::default()
        };
        match platform {
            Ok(platform) => report.take(platform, &mut warnings, now),
            Err(error) => warnings.push(error),
        }
        report.healthy &= report.outages.is_empty();
        report.processes.iter().for_each(|process| process.warn(&mut warnings));
        report.warnings = warnings;
        report
    }

    fn take(&mut self, platform: ApiSnapshot, warnings: &mut Vec<String>, now: Timestamp) {
        self.api.version = Some(platform.version);
        self.api.milliseconds = Some((platform.took.as_secs_f64() * 10_000.0).round() / 10.0);
        match platform.lease {
            Some(SchedulerLease::Found(lease)) => self.leader = Some(leader(&lease, now)),
            Some(SchedulerLease::Missing) => warnings.push(format!(
                "no scheduler leads, and none has since the start of the platform: the Lease {SCHEDULER_LEASE} in the namespace \
                 {SCHEDULER_LEASE_NAMESPACE} does not exist; read the log of a process with the role scheduler"
            )),
            None => {}
        }
        match &self.leader {
            Some(Leader { holder: Some(holder), expired: true, renewed_seconds, .. }) => warnings.push(format!(
                "no scheduler leads: {holder} has not renewed its Lease for {}",
                age::of_seconds(renewed_seconds.unwrap_or(0))
            )),
            Some(Leader { holder: None, .. }) => {
                warnings.push("no scheduler leads: new Routes stay pending".to_owned())
            }
            _ => {}
        }
        let Objects { routers, routes, zones, holds } = platform.objects;
        let read = [
            ("Routers", routers.is_some()),
            ("the Routes of all namespaces", routes.is_some()),
            ("Zones", zones.is_some()),
            ("DeletionHolds", holds.is_some()),
        ];
        self.not_read = read.into_iter().filter(|(_, is_read)| !is_read).map(|(what, _)| what).collect();
        for hold in holds.iter().flatten().filter(|hold| hold.is_held() && hold.is_undecided()) {
            let (kind, objects, known) = (hold.spec.kind.word(), hold.objects(), hold.known());
            let id = hold.metadata.name.as_deref().unwrap_or_default();
            let keeps = Vec::from_iter(hold.keeps()).join(", ");
            let kept = if keeps.is_empty() { String::new() } else { format!("; kept until you decide: {keeps}") };
            warnings.push(format!(
                "deletion hold: {objects} of {known} {kind}s are missing from the API{kept}; run \"signpost hold approve \
                 {id}\", or reject"
            ));
        }
        if let Some(zones) = &zones {
            self.ledger_zones = Some(zones.len());
            let parent = current_parent(zones);
            self.domain = parent.and_then(|zone| zone.metadata.name.clone());
            let former = parent.map(|zone| &zone.spec.former_domains[..]).unwrap_or_default();
            self.former_domains = former
                .iter()
                .map(|domain| FormerDomain { domain: domain.clone(), queries: self.queries_below(domain) })
                .collect();
        }
        let named = |router: &Router| router.metadata.name.clone().unwrap_or_default();
        let names: Option<BTreeSet<String>> = routers.as_ref().map(|routers| routers.iter().map(named).collect());
        if let Some(routers) = routers {
            let dead = warnings::dead_routers(&routers, routes.as_deref());
            warnings.extend(warnings::of_routers(&routers, &dead));
            self.outages.extend(dead.into_values());
            self.routers = Some(Counts::of(routers.iter().map(|router| router.spec.state.word())));
        }
        if let Some(routes) = routes {
            let new = RouteStatus::default();
            let state = |route: &Route| RouteState::of(route.status.as_ref().unwrap_or(&new)).0.word();
            self.routes = Some(Counts::of(routes.iter().map(state)));
            self.former_hosts = (!self.former_domains.is_empty()).then(|| former_hosts(&routes));
            let routers = names.as_ref().map(|names| names.iter().map(String::as_str).collect());
            let of_routes = warnings::of_routes(&routes, routers.as_ref());
            self.outages.extend(of_routes.outages);
            warnings.extend(of_routes.warnings);
        }
    }

    /// Returns the number of queries in the parent and alias zones of a domain; `None`: no process counts them.
    fn queries_below(&self, domain: &str) -> Option<u64> {
        let zones = [format!("{domain}."), format!("{}.", alias_zone(domain))];
        let counts = self.processes.iter().flat_map(|process| zones.iter().map(|zone| process.zone_queries.get(zone)));
        counts.flatten().fold(None, |sum, count| Some(sum.unwrap_or(0) + *count as u64))
    }

    /// Returns the screen.
    pub(super) fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add(
            "api",
            match (&self.api.version, self.api.milliseconds) {
                (Some(version), Some(milliseconds)) => Cell::styled(
                    Style::Good,
                    format!("{version}, answers in {milliseconds} ms ({})", self.api.kubeconfig),
                ),
                _ => Cell::styled(Style::Bad, format!("does not answer ({})", self.api.kubeconfig)),
            },
        );
        if let Some(domain) = &self.domain {
            facts.add("domain", domain.as_str());
        }
        self.former_facts(&mut facts);
        if let Some(leader) = &self.leader {
            let renewed =
                leader.renewed_seconds.map_or("never".to_owned(), |seconds| age::of_seconds(seconds) + " ago");
            let text = match &leader.holder {
                Some(holder) => format!("{holder}, renewed {renewed}, term {}", leader.term),
                None => format!("none, term {}", leader.term),
            };
            let bad = leader.expired || leader.holder.is_none();
            facts.add("leader", if bad { Cell::styled(Style::Bad, text) } else { Cell::from(text) });
        }
        for process in &self.processes {
            process_facts(&mut facts, process);
        }
        for (name, counts) in [("routers", &self.routers), ("routes", &self.routes)] {
            if let Some(counts) = counts {
                let states: Vec<String> =
                    counts.states.iter().map(|(state, count)| format!("{count} {state}")).collect();
                let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
                facts.add(name, format!("{}{states}", counts.total));
            }
        }
        if let Some(zones) = self.ledger_zones {
            facts.add("serials", format!("{zones} zones"));
        }
        if !self.not_read.is_empty() {
            let text = format!("you are not allowed to read {}", self.not_read.join(", "));
            facts.add("not read", Cell::styled(Style::Warning, text));
        }
        if let Some(step) = self.next_step() {
            facts.add("next step", step);
        }
        if !self.outages.is_empty() {
            facts.add("outages", Cell::styled(Style::Bad, self.outages.len().to_string()));
        }
        if !self.warnings.is_empty() {
            facts.add("warnings", Cell::styled(Style::Warning, self.warnings.len().to_string()));
        }
        let mut text = facts.text(painter);
        text.push('\n');
        let lines = self.outages.iter().map(|outage| (Style::Bad, outage));
        for (style, line) in lines.chain(self.warnings.iter().map(|warning| (Style::Warning, warning))) {
            text.push_str(&painter.paint(style, &format!("- {}", harmless(line))));
            text.push('\n');
        }
        if !self.outages.is_empty() || !self.warnings.is_empty() {
            text.push('\n');
        }
        let style = match (self.healthy, self.warnings.is_empty()) {
            (true, true) => Style::Good,
            (true, false) => Style::Warning,
            (false, _) => Style::Bad,
        };
        text + &painter.paint(style, &self.verdict()) + "\n"
    }

    /// Adds the lines of the former domains.
    fn former_facts(&self, facts: &mut Properties) {
        for FormerDomain { domain, queries } in &self.former_domains {
            let queries = queries.map_or("queries are not counted".to_owned(), counted_queries);
            facts.add("former", format!("{domain}, still served: {queries}"));
        }
        if let Some(FormerHosts { total, hosts }) = &self.former_hosts {
            let more = if *total > hosts.len() { ", …" } else { "" };
            let text = match total {
                0 => "no custom host is known to point there".to_owned(),
                _ => format!("{} there: {}{more}", counted(*total, "custom host"), hosts.join(", ")),
            };
            facts.add("  hosts", harmless(&text));
        }
    }

    /// Returns the first step on an empty platform.
    fn next_step(&self) -> Option<&'static str> {
        match (self.routers.as_ref()?.total, self.routes.as_ref()?.total) {
            (0, _) => Some("create a Router; \"kubectl explain router.spec\" describes its fields"),
            (_, 0) => Some("create a Route; \"kubectl explain rt.spec\" describes its fields"),
            _ => None,
        }
    }

    /// Returns one line that agrees with the exit code.
    fn verdict(&self) -> String {
        let warnings = counted(self.warnings.len(), "warning");
        if self.healthy {
            return format!("healthy, {warnings}");
        }
        let mut reasons = Vec::new();
        if !self.api.reachable {
            reasons.push("the API does not answer".to_owned());
        }
        let unready = self.processes.iter().filter(|process| !process.ready).count();
        if unready > 0 {
            reasons.push(format!("{unready} of {} not ready", counted(self.processes.len(), "process")));
        }
        if !self.outages.is_empty() {
            reasons.push(counted(self.outages.len(), "outage"));
        }
        format!("unhealthy: {}; {warnings}", reasons.join(", "))
    }
}

/// Returns a number with its noun, in the plural unless it is 1.
fn counted(number: usize, noun: &str) -> String {
    let plural = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {noun}{plural}")
}

/// Returns the number of queries since the processes started.
fn counted_queries(queries: u64) -> String {
    format!("{queries} {} since the start of its name servers", if queries == 1 { "query" } else { "queries" })
}

/// Returns the custom hosts that point to an alias below a former domain.
fn former_hosts(routes: &[Route]) -> FormerHosts {
    let points_there = |route: &&Route| {
        route.status.as_ref().is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|said| said.type_ == HOST_POINTS_HERE && said.reason == POINTS_TO_FORMER_DOMAIN)
        })
    };
    let hosts = routes.iter().filter(points_there).filter_map(|route| route.spec.host.clone());
    // Several Routes can share a host.
    let hosts: BTreeSet<String> = hosts.collect();
    FormerHosts { total: hosts.len(), hosts: hosts.into_iter().take(FORMER_HOSTS_NAMED).collect() }
}

fn leader(lease: &Lease, now: Timestamp) -> Leader {
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| u64::try_from(now.as_second() - time.0.as_second()).unwrap_or(0));
    let duration = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    Leader {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed_seconds: renewed,
        term: spec.lease_transitions.unwrap_or(0),
        // The leader's clock and ours may differ a little.
        expired: renewed.is_none_or(|renewed| renewed > 2 * duration),
    }
}

/// The lines of one process.
fn process_facts(facts: &mut Properties, process: &Process) {
    if !process.reachable {
        facts.add("process", Cell::styled(Style::Bad, format!("{} does not answer", process.url)));
        return;
    }
    let roles: Vec<String> = process
        .roles
        .iter()
        .map(|role| match (role.as_str(), process.leading) {
            ("scheduler", Some(true)) => "scheduler (leading)".to_owned(),
            _ => role.clone(),
        })
        .collect();
    let mut text = format!("{} {}", process.url, if process.ready { "ready" } else { "not ready" });
    if !roles.is_empty() {
        text += &format!(": {}", roles.join(", "));
    }
    if let Some(version) = &process.version {
        text += &format!("; version {version}");
    }
    if let Some(uptime) = process.uptime_seconds {
        text += &format!(", up {}", age::of_seconds(uptime));
    }
    facts.add("process", Cell::styled(if process.ready { Style::Good } else { Style::Bad }, text));
    if let Some(age) = process.sync_age_seconds {
        let late = age > SYNC_AGE_MAX_SECONDS || !process.broken_watches.is_empty();
        let heard = age::of_seconds(age as u64);
        // An idle watch has a word a minute, and that is all that can be expected of it.
        let text = match late {
            true => format!("last message from the API {heard} ago"),
            false => format!("all watches connected, last message {heard} ago"),
        };
        facts.add("  sync", if late { Cell::styled(Style::Bad, text) } else { Cell::from(text) });
    }
    if let Some(zones) = process.counts.zones {
        facts.add("  zones", format!("{zones} served"));
    }
    if let Some(rates) = &process.rates {
        let answered: f64 = rates.rcodes.values().sum();
        let parts: Vec<String> = rates::largest(&rates.rcodes)
            .into_iter()
            .map(|(rcode, rate)| format!("{rcode} {:.0}%", 100.0 * rate / answered))
            .collect();
        let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        facts.add("  queries", format!("{}/s{parts}", rates::number(rates.queries)));
    }
    match process.counts.held_losses {
        Some(0) => facts.add("  hold", "none"),
        Some(held) if process.counts.undecided_holds == Some(0) => {
            facts.add("  hold", format!("{held} missing objects are still served, as decided"));
        }
        Some(held) => {
            facts.add("  hold", Cell::styled(Style::Warning, format!("{held} missing objects are still served")))
        }
        None => {}
    }
}

#[cfg(test)]
mod tests;
