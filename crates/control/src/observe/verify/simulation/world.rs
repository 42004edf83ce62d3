//! The world of these tests: proofs, a clock that they move, and name servers that are functions.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::agenda::Job;
use super::super::check::{Fault, Seen, Shown, WhenOld};
use super::super::feed::{AliasNews, ShardNews, ZoneNews};
use super::super::proofs::{Proofs, Server};
use super::super::verdict::Saying;
use crate::compiler::Settings;
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::dns_client::QueryError;
use signpost_dns::zone::Serial;

pub(super) const INTERVAL: Duration = Duration::from_secs(30);

pub(super) struct World {
    pub(super) proofs: Proofs,
    pub(super) now: Instant,
    /// Every check so far.
    pub(super) jobs: Vec<Job>,
}

impl World {
    pub(super) fn new(servers: Option<usize>) -> Self {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let server =
            |number| Server { name: format!("ns{number}.v3.example"), address: ([127, 0, 0, 1], 5300 + number).into() };
        let servers = servers.map(|count| (1..=count).map(|number| server(number as u16)).collect());
        let proofs = Proofs::new(Arc::new(settings.expect("good settings")), servers, INTERVAL);
        World { proofs, now: Instant::now(), jobs: Vec::new() }
    }

    pub(super) fn shard(&mut self, name: &str, spec: serde_json::Value, serial: u32) {
        let router = serde_json::json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec,
        });
        let router = serde_json::from_value(router).expect("a Router");
        let router = RouterInput::read(&router, "v3.example", &mut Vec::new()).expect("it has a zone");
        let (apex, router) = (router.apex.clone(), Arc::new(router));
        let mut news = ZoneNews::default();
        news.shards.insert(apex, Some(ShardNews { router, serial: Serial(serial) }));
        self.proofs.take(news, self.now);
    }

    pub(super) fn no_shard(&mut self, name: &str) {
        let mut news = ZoneNews::default();
        news.shards.insert(format!("{name}.v3.example.").parse().expect("a name"), None);
        self.proofs.take(news, self.now);
    }

    pub(super) fn alias(&mut self, label: &str, shard: &str, serial: u32) {
        let binding = BindingInput {
            key: format!("ns/{label}").into(),
            created: 0,
            label: label.into(),
            shard: format!("{shard}.v3.example").into(),
            former_names: Box::default(),
            leads_to: None,
        };
        let mut news = ZoneNews { alias_serial: Some(Serial(serial)), ..ZoneNews::default() };
        let alias = AliasNews { binding: Arc::new(binding), serial: Serial(serial) };
        news.aliases.insert(label.into(), Some(alias));
        self.proofs.take(news, self.now);
    }

    /// Carries out all checks that are due now or within `time`; each ends at once, as `answer` says.
    pub(super) fn run(&mut self, time: Duration, mut answer: impl FnMut(&Job) -> Result<Serial, Fault>) {
        self.run_seen(time, |job| answer(job).map(Seen::from));
    }

    /// The same, where single names may be answered wrong.
    pub(super) fn run_seen(&mut self, time: Duration, mut answer: impl FnMut(&Job) -> Result<Seen, Fault>) {
        let end = self.now + time;
        for _ in 0..100_000 {
            while let Some(job) = self.proofs.next_job(self.now, 7 << 40) {
                let result = answer(&job);
                self.proofs.landed(&job, result, self.now, 1 << 63);
                self.jobs.push(job);
            }
            self.judge();
            match self.proofs.next_check_at() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => {
                    self.now = end;
                    return self.judge();
                }
            }
        }
        panic!("checks without end");
    }

    /// Judges as the loop does.
    pub(super) fn judge(&mut self) {
        while let Some(label) = self.proofs.pop_dirty(self.now) {
            let reason = self.saying(&label).resolvable.map(|statement| statement.reason);
            self.proofs.note(&label, reason);
            if reason.is_none() {
                self.proofs.look_at_when_late(&label, self.now);
            }
        }
    }

    pub(super) fn saying(&self, label: &str) -> Saying {
        self.proofs.saying(label, None, self.now, Timestamp::UNIX_EPOCH)
    }

    /// What is said of `Resolvable`: reason and message.
    pub(super) fn resolvable(&self, label: &str) -> Option<(&'static str, String)> {
        self.saying(label).resolvable.map(|statement| (statement.reason, statement.message))
    }

    pub(super) fn reason(&self, label: &str) -> Option<&'static str> {
        self.resolvable(label).map(|(reason, _)| reason)
    }

    /// The names that were asked for so far, and from then on again.
    pub(super) fn asked(&mut self) -> Vec<String> {
        let jobs = std::mem::take(&mut self.jobs);
        let names = jobs.iter().flat_map(|job| {
            job.check
                .probes
                .iter()
                .map(move |probe| format!("{} {}", job.server + 1, super::super::check::text(&probe.name)))
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// Every server has what is asked for.
pub(super) fn right(job: &Job) -> Result<Serial, Fault> {
    Ok(job.check.serial)
}

/// Every server has what is asked for, but for names that this picks.
pub(super) fn right_but(is_wrong: impl Fn(&str) -> bool) -> impl Fn(&Job) -> Result<Seen, Fault> {
    move |job: &Job| {
        let mut seen = Seen::from(job.check.serial);
        for (at, probe) in job.check.probes.iter().enumerate() {
            if is_wrong(&super::super::check::text(&probe.name)) {
                match probe.is_own {
                    true => seen.faults.push((at, Fault::NotAuthoritative(probe.name.clone()))),
                    false => return Err(Fault::NotAuthoritative(probe.name.clone())),
                }
            }
        }
        Ok(seen)
    }
}

pub(super) fn silent() -> Fault {
    Fault::NotAnswering(QueryError::Silent(Duration::from_secs(1)))
}

/// A server that has an older version, and answers right for some names of it, if it is asked.
pub(super) fn old(job: &Job, found: Serial, is_shown: impl Fn(&str) -> bool) -> Fault {
    let names = job.check.probes.iter().map(|probe| is_shown(&super::super::check::text(&probe.name)));
    let shown = match job.check.when_old {
        WhenOld::Stop => Shown::default(),
        _ => Shown::new(names),
    };
    Fault::OldSerial { found, needed: job.check.serial, shown }
}

pub(super) fn is_alias(job: &Job) -> bool {
    job.check.apex.to_string().starts_with("routes")
}

pub(super) fn addresses() -> serde_json::Value {
    serde_json::json!({"addresses": [{"ip": "192.0.2.1"}]})
}
