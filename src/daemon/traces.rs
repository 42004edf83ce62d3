//! The export of spans of objects' walks to a collector, if the settings configure one.

use super::Error;
use super::data_dir::DataDir;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::config::settings::Trace;
use signpost_runtime::telemetry::otlp::{Sender, Settings};
use signpost_runtime::telemetry::trace::{self, Counters};

/// Starts the collection and the export of spans in `tasks`, which stop after all producers of spans. The metrics exist in any
/// case.
pub fn start(config: &Trace, data_dir: Option<&DataDir>, tasks: &mut Tasks, admin: &Admin) -> Result<(), Error> {
    let counters = Counters::default();
    admin.metrics.register(|registry| counters.register(registry));
    let Some(endpoint) = config.endpoint.clone() else { return Ok(()) };
    // Distinguishes two processes on one machine, and stays the same after a restart if the process stores anything.
    let instance = data_dir.map(DataDir::instance).transpose()?;
    let settings = Settings {
        endpoint,
        headers: config.headers.clone(),
        authorities: config.ca.clone(),
        service: config.service.clone(),
        instance: instance.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
    };
    let sender = Sender::new(&settings, counters.clone())?;
    if let Some(spans) = trace::open(config.share, counters) {
        tracing::info!(endpoint = %settings.endpoint, percent = config.share, "sending spans to the collector");
        tasks.spawn("trace sender", sender.run(spans, tasks.stop_token()));
    }
    Ok(())
}
