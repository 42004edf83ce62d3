//! `/secondaries`: the state of the notifications (RFC 1996) of this process's name server to each secondary server, as JSON.
//!
//! Zones are not labels of metrics, because there can be any number of them.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use signpost_dns::notify::{Notifier, Progress, State};
use signpost_dns::wire::Name;

/// The maximum number of zones that a report has for each server, of which those with errors come first.
const ZONES_MAX: usize = 10_000;

/// The report of a process. Its JSON is an interface: fields can be added, but not renamed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub servers: Vec<Server>,
}

/// A secondary server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// The address and the port.
    pub server: String,
    /// The number of zones.
    pub total: usize,
    /// The zones, at most 10,000.
    pub zones: Vec<Notified>,
}

/// A zone at a secondary server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notified {
    pub zone: String,
    /// The serial that the name server announces.
    pub serial: u32,
    /// The last serial whose announcement the server has acknowledged.
    pub acknowledged: Option<u32>,
    /// `acknowledged`, `pending` or `failed`.
    pub state: String,
    /// The error of the last request, if it failed.
    pub error: Option<String>,
    /// The age of the oldest change that the server has not acknowledged, in seconds.
    pub pending_seconds: Option<f64>,
}

impl Notified {
    fn new(apex: &Name, state: &State, now: Instant) -> Notified {
        let word = match state.progress() {
            Progress::Acknowledged => "acknowledged",
            Progress::Pending => "pending",
            Progress::Failed => "failed",
        };
        Notified {
            zone: apex.to_string(),
            serial: state.serial.0,
            acknowledged: state.acknowledged.map(|serial| serial.0),
            state: word.to_owned(),
            error: state.error.map(|error| error.to_string()),
            pending_seconds: state.pending_since.map(|since| now.saturating_duration_since(since).as_secs_f64()),
        }
    }
}

/// The source of the endpoint's report: the name server of this process, once it runs.
#[derive(Default)]
pub struct Secondaries(OnceLock<Arc<Notifier>>);

impl Secondaries {
    /// Sets the source of reports. A process has one name server; a second call changes nothing.
    pub fn open(&self, notifier: Arc<Notifier>) {
        let _ = self.0.set(notifier);
    }

    /// Returns the state of a zone at each server that is notified of it, with the server's address.
    pub fn of_zone(&self, apex: &Name) -> Vec<(String, Notified)> {
        let Some(notifier) = self.0.get() else { return Vec::new() };
        let (now, servers) = (Instant::now(), notifier.secondaries());
        let states = notifier.states_of(apex).into_iter();
        states.map(|(at, state)| (servers[at].address.to_string(), Notified::new(apex, &state, now))).collect()
    }

    fn report(&self) -> Option<Report> {
        let notifier = self.0.get().filter(|notifier| !notifier.secondaries().is_empty())?;
        let now = Instant::now();
        let server =
            |address: std::net::SocketAddr| Server { server: address.to_string(), total: 0, zones: Vec::new() };
        let mut servers: Vec<Server> =
            notifier.secondaries().iter().map(|secondary| server(secondary.address)).collect();
        // Those with errors first: two passes, so that no list of all zones is made.
        for wants_errors in [true, false] {
            notifier.each_state(|at, apex, state| {
                let server = &mut servers[at];
                if state.error.is_some() == wants_errors {
                    server.total += 1;
                    if server.zones.len() < ZONES_MAX {
                        server.zones.push(Notified::new(apex, state, now));
                    }
                }
            });
        }
        Some(Report { servers })
    }

    /// Returns the report in JSON, or the reason why this process has none.
    pub(super) fn text(&self) -> Result<String, String> {
        let report = self.report().ok_or(NOTHING)?;
        Ok(serde_json::to_string(&report).expect("a report is plain data"))
    }
}

/// The reason without secondary servers.
const NOTHING: &str =
    "no server is notified: this process does not serve zones, or has no secondary server in dns.secondary";
