//! The registry behind `/metrics`.
//!
//! Every name begins with `signpost_`. Parts that count for themselves (the DNS workers) are read at a scrape, and write a
//! [`Page`]; nothing is counted twice.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::exposition::Format;
use signpost_runtime::telemetry::page::{Page, collector};

/// The metrics of a process.
pub struct Metrics {
    registry: Mutex<Registry>,
}

impl Default for Metrics {
    /// Returns the metrics of a process that starts now: `signpost_build_info`, `signpost_start_time_seconds`, and
    /// `signpost_clock_seconds` at first.
    fn default() -> Self {
        let mut registry = Registry::with_prefix("signpost");
        registry.register(
            "build",
            "The version of the running program",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        registry.register(
            "start_time_seconds",
            "Start time of the process, in seconds since the epoch",
            ConstGauge::new(clock().as_secs_f64()),
        );
        let metrics = Metrics { registry: Mutex::new(registry) };
        metrics.write_with(move |page| {
            let help = "System time at the scrape, in seconds since the epoch";
            page.level("clock_seconds", help, i64::try_from(clock().as_secs()).unwrap_or(i64::MAX))
        });
        metrics
    }
}

impl Metrics {
    /// Lets `register` add to the registry; names get the prefix `signpost_`.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Adds the output of `write` at each scrape.
    pub fn write_with(&self, write: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static) {
        self.register(|registry| registry.register_collector(collector(write)));
    }

    /// Answers a scrape, in the format that its headers request.
    pub fn respond(&self, headers: &HeaderMap) -> Response {
        let format = Format::of(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
        match self.encode(format) {
            Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        }
    }

    /// Returns the text of a scrape.
    pub fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        drop(registry);
        Ok(format.text(text))
    }
}
