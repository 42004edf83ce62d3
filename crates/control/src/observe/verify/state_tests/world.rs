//! The world of these tests: verification states, a clock that they advance, and name servers as functions.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::check::{CheckResult, Fault, Probe, StaleSerialPolicy, text};
use super::super::checks::Job;
use super::super::conditions::DesiredConditions;
use super::super::feed::ZoneUpdate;
use super::super::state::{Server, VerificationState};
use crate::compiler::inputs::BindingInput;
use crate::compiler::{Settings, ShardView};
use crate::dns_client::QueryError;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

pub(super) const INTERVAL: Duration = Duration::from_secs(30);
pub(super) const SILENCE: Duration = Duration::from_secs(13);

pub(super) struct World {
    pub(super) proofs: VerificationState,
    pub(super) now: Instant,
    settings: Arc<Settings>,
    /// Every check so far.
    pub(super) jobs: Vec<Job>,
}

impl World {
    pub(super) fn new(servers: Option<usize>) -> Self {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let server =
            |number| Server { name: format!("ns{number}.v3.example"), address: ([127, 0, 0, 1], 5300 + number).into() };
        let servers = servers.map(|count| (1..=count).map(|number| server(number as u16)).collect());
        let settings = Arc::new(settings.expect("good settings"));
        let proofs = VerificationState::new(Arc::clone(&settings), servers, INTERVAL, SILENCE);
        World { proofs, now: Instant::now(), settings, jobs: Vec::new() }
    }

    /// Returns the shard `s` in version 7, with Routes of these labels in version 9 of the alias zone.
    pub(super) fn with_routes(servers: Option<usize>, labels: &[&str]) -> Self {
        let mut world = World::new(servers);
        world.shard("s", addresses(), 7);
        labels.iter().for_each(|label| world.alias(label, "s", 9));
        world
    }

    pub(super) fn shard(&mut self, name: &str, spec: serde_json::Value, serial: u32) {
        let router = serde_json::json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec,
        });
        let router = serde_json::from_value(router).expect("a Router");
        let router = ShardView::read(&router, &self.settings, &mut Vec::new()).expect("it has a zone");
        let shards = [(router.apex.clone(), Some((Arc::new(router), Serial(serial))))].into();
        self.proofs.apply(ZoneUpdate { shards, ..ZoneUpdate::default() }, self.now);
    }

    pub(super) fn no_shard(&mut self, name: &str) {
        let shards = [(format!("{name}.v3.example.").parse().expect("a name"), None)].into();
        self.proofs.apply(ZoneUpdate { shards, ..ZoneUpdate::default() }, self.now);
    }

    pub(super) fn alias(&mut self, label: &str, shard: &str, serial: u32) {
        self.put(label, shard, None, serial);
    }

    /// Adds a Route with an adopted host.
    pub(super) fn adopted(&mut self, label: &str, shard: &str, host: &str, serial: u32) {
        self.put(label, shard, Some(host.parse().expect("a name")), serial);
    }

    fn put(&mut self, label: &str, shard: &str, adopted: Option<Name>, serial: u32) {
        let binding = BindingInput {
            key: format!("ns/{label}").into(),
            created: 0,
            label: label.into(),
            shard: format!("{shard}.v3.example").into(),
            former_names: Box::default(),
            adopted,
            custom: None,
            leads_to: None,
        };
        let aliases = [(label.into(), Some((Arc::new(binding), Serial(serial))))].into();
        let news = ZoneUpdate { alias_serial: Some(Serial(serial)), aliases, ..ZoneUpdate::default() };
        self.proofs.apply(news, self.now);
    }

    /// Runs all checks that are due now or within `time`; each ends immediately, with the result of `answer`.
    pub(super) fn run(&mut self, time: Duration, mut answer: impl FnMut(&Job) -> Result<CheckResult, Fault>) {
        let end = self.now + time;
        for _ in 0..100_000 {
            while let Some(job) = self.proofs.next_job(self.now, 7 << 40) {
                let result = answer(&job);
                self.jobs.push(job.clone());
                self.proofs.finish(job, result, self.now, 1 << 63);
            }
            self.update_reasons();
            let next = [self.proofs.next_check_at(), self.proofs.next_late_at()].into_iter().flatten().min();
            match next {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => {
                    self.now = end;
                    return self.update_reasons();
                }
            }
        }
        panic!("checks without end");
    }

    /// Judges as the loop does.
    pub(super) fn update_reasons(&mut self) {
        while let Some(label) = self.proofs.next_route(self.now) {
            let desired = self.conditions(&label);
            let reason = desired.resolvable.map(|statement| statement.reason);
            self.proofs.set_reason(&label, reason);
            if reason.is_none() {
                self.proofs.queue_when_late(&label, self.now);
            }
            if let Some(at) = desired.revisit {
                self.proofs.queue_at(&label, at);
            }
        }
    }

    pub(super) fn conditions(&self, label: &str) -> DesiredConditions {
        self.proofs.conditions(label, None, self.now, Timestamp::UNIX_EPOCH)
    }

    /// Returns reason and message of `Resolvable`.
    pub(super) fn resolvable(&self, label: &str) -> Option<(&'static str, String)> {
        self.conditions(label).resolvable.map(|statement| (statement.reason, statement.message))
    }

    pub(super) fn reason(&self, label: &str) -> Option<&'static str> {
        self.resolvable(label).map(|(reason, _)| reason)
    }

    /// Returns the names queried so far, and starts again.
    pub(super) fn queried(&mut self) -> Vec<String> {
        let jobs = std::mem::take(&mut self.jobs);
        let names = jobs.iter().flat_map(|job| {
            job.check
                .names
                .iter()
                .chain(&job.check.witness)
                .map(move |probe| format!("{} {}", job.server + 1, text(&probe.name)))
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// Returns the answers of a server with this serial, which are correct for the selected names.
pub(super) fn answers(job: &Job, serial: Serial, is_right: impl Fn(&str) -> bool) -> Result<CheckResult, Fault> {
    answers_or(job, serial, is_right, Fault::NotAuthoritative)
}

/// Returns such answers, and this fault for the other names.
pub(super) fn answers_or(
    job: &Job,
    serial: Serial,
    is_right: impl Fn(&str) -> bool,
    fault: impl Fn(Name) -> Fault,
) -> Result<CheckResult, Fault> {
    let check = &job.check;
    let answer = |probe: &Probe| match is_right(&text(&probe.name)) {
        true => Ok(()),
        false => Err(fault(probe.name.clone())),
    };
    if !check.is_reached_by(serial) && check.stale == StaleSerialPolicy::Stop {
        return Ok(CheckResult { serial, witness: None, names: Vec::new() });
    }
    let names = check.names.iter().map(answer).collect();
    Ok(CheckResult { serial, witness: check.witness.as_ref().map(answer), names })
}

/// Answers correctly for all names on every server.
pub(super) fn right(job: &Job) -> Result<CheckResult, Fault> {
    answers(job, job.check.serial, |_| true)
}

/// Answers correctly for all names on every server, except for the selected ones.
pub(super) fn right_but(is_wrong: impl Fn(&str) -> bool) -> impl Fn(&Job) -> Result<CheckResult, Fault> {
    move |job: &Job| answers(job, job.check.serial, |name| !is_wrong(name))
}

pub(super) fn silent() -> Fault {
    Fault::NotAnswering(QueryError::Silent(Duration::from_secs(1)))
}

pub(super) fn is_alias(job: &Job) -> bool {
    job.check.apex.to_string().starts_with("routes")
}

pub(super) fn addresses() -> serde_json::Value {
    serde_json::json!({"addresses": [{"ip": "192.0.2.1"}]})
}
