//! `/unrouted-names`: the names without a Route that shards' wildcards answer most, as JSON.
//!
//! They are no labels of metrics, since whoever asks chooses them: there would be as many series as a client likes.

use std::sync::OnceLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a process tells. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// From when on requests are counted here: an hour ago to two, or the start of the process.
    pub since: Timestamp,
    /// Zones of shards of which such a name was asked, the one with the most requests first.
    pub zones: Vec<Zone>,
}

/// One shard's zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    pub zone: String,
    /// Requests for names without a Route.
    pub requests: u64,
    /// The names asked most, the first one most of all.
    pub names: Vec<QueriedName>,
}

/// A name without a Route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueriedName {
    /// The name; `*.` stands for whatever was asked below it.
    pub name: String,
    /// Requests, at most.
    pub requests: u64,
    /// Of these, so many were seen for sure.
    pub at_least: u64,
    /// When it was asked last.
    pub last_queried_time: Timestamp,
}

type Source = Box<dyn Fn() -> Report + Send + Sync>;

/// Where the endpoint gets its report: from the name server of this process, once that runs.
#[derive(Default)]
pub struct Unrouted(OnceLock<Source>);

impl Unrouted {
    /// Reports come from here from now on. A process has one name server; a second call changes nothing.
    pub fn open(&self, source: impl Fn() -> Report + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }

    pub(super) fn respond(&self) -> Response {
        match self.0.get() {
            Some(source) => match serde_json::to_string(&source()) {
                Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            },
            None => (StatusCode::NOT_FOUND, NOTHING).into_response(),
        }
    }
}

/// What is told where nothing is counted.
const NOTHING: &str =
    "no names are counted here: this process serves no shards' zones, or metrics.unrouted-names is 0\n";
