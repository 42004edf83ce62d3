//! `/unrouted-names`: the names without a Route that shards' wildcards answer most, as JSON.
//!
//! They are not labels of metrics, because clients choose them: a client could create any number of series.

use std::sync::OnceLock;

use jiff::Timestamp;
use serde::Serialize;

/// The report of a process. Its JSON is an interface: fields can be added, but not renamed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The start of the counted period: one to two hours ago, or the start of the process.
    pub since: Timestamp,
    /// The zones of shards with queries for such names, the zone with the most requests first.
    pub zones: Vec<Zone>,
}

/// One shard's zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    pub zone: String,
    /// Requests for names without a Route.
    pub requests: u64,
    /// The names with the most queries, in descending order.
    pub names: Vec<QueriedName>,
}

/// A name without a Route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueriedName {
    /// The name; `*.` represents all queried names below it.
    pub name: String,
    /// The upper bound of the number of requests.
    pub requests: u64,
    /// The lower bound of this number.
    pub at_least: u64,
    /// The time of the last query.
    pub last_queried_time: Timestamp,
}

type Source = Box<dyn Fn() -> Report + Send + Sync>;

/// The source of the endpoint's report: the name server of this process, once it runs.
#[derive(Default)]
pub struct Unrouted(OnceLock<Source>);

impl Unrouted {
    /// Sets the source of reports. A process has one name server; a second call changes nothing.
    pub fn open(&self, source: impl Fn() -> Report + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }

    /// Returns the report in JSON, or the reason why this process has none.
    pub(super) fn text(&self) -> Result<String, String> {
        let source = self.0.get().ok_or(NOTHING)?;
        Ok(serde_json::to_string(&source()).expect("a report is plain data"))
    }
}

/// The reason if nothing is counted.
const NOTHING: &str =
    "names are not counted: this process does not serve zones of shards, or metrics.unrouted-names is 0";
