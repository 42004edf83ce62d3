//! Spans of objects' walks on their way to a collector, if the settings name one.

use super::Error;
use super::data_dir::DataDir;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::config::settings::Trace;
use signpost_runtime::telemetry::otlp::{Sender, Settings};
use signpost_runtime::telemetry::trace::{self, Counters};

/// Begins to take spans and to send them in `tasks`, which end after all that makes spans. The numbers are there in any case.
pub fn start(config: &Trace, data_dir: Option<&DataDir>, tasks: &mut Tasks, admin: &Admin) -> Result<(), Error> {
    let counters = Counters::default();
    admin.metrics.register(|registry| counters.register(registry));
    let Some(endpoint) = config.endpoint.clone() else { return Ok(()) };
    // Two processes of one machine are told apart, and each is the same after a restart where it keeps anything.
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
