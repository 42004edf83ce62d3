//! Limits of the HTTP listeners, and their metrics.

use std::fmt;
use std::sync::Arc;

use crate::config::Settings;
use signpost_runtime::httpd::{ConnectionSlots, Limits, Totals};
use signpost_runtime::telemetry::page::Page;

/// The divisor of the open files for one server's connections; the name server takes three quarters.
const FILES_PART: u64 = 8;
/// The maximum number of octets of responses in flight of the admin endpoints. The metrics of a large platform take a few MiB.
const ADMIN_ANSWER_OCTETS: usize = 64 << 20;
/// The maximum number of streams of one HTTP/2 connection to the admin endpoints. A browser uses few.
const ADMIN_STREAMS: u32 = 128;

/// Places of the API's listeners, where `files_max` files may be open at once.
pub fn api_places(settings: &Settings, files_max: u64) -> Arc<ConnectionSlots> {
    limits(settings, files_max).into()
}

/// Places of the admin listeners, likewise.
pub fn admin_places(settings: &Settings, files_max: u64) -> Arc<ConnectionSlots> {
    let limits = limits(settings, files_max);
    Limits { streams: ADMIN_STREAMS, answer_octets: ADMIN_ANSWER_OCTETS, ..limits }.into()
}

fn limits(settings: &Settings, files_max: u64) -> Limits {
    let http = &settings.http;
    let files = usize::try_from(files_max / FILES_PART).unwrap_or(usize::MAX).max(1);
    let limits = Limits::default();
    Limits {
        connections: http.connections.min(files),
        connections_per_client: http.connections_per_client,
        idle: http.idle_timeout,
        first: limits.first.min(http.idle_timeout),
        ..limits
    }
}

/// Writes the metrics of each server's listeners.
pub fn write_metrics(servers: &[(&'static str, Arc<ConnectionSlots>)], page: &mut Page<'_>) -> fmt::Result {
    let totals: Vec<_> = servers.iter().map(|(server, places)| (*server, places.totals())).collect();
    let open = totals.iter().map(|(server, totals)| (vec![("server", *server)], totals.open as i64));
    page.gauge("http_connections", "Open HTTP connections", &open.collect::<Vec<_>>())?;
    let mut counter = |name: &str, help: &str, reasons: &dyn Fn(&Totals) -> Vec<(&'static str, u64)>| {
        let row = |server, (reason, count)| (vec![("server", server), ("reason", reason)], count);
        let rows = totals.iter().flat_map(|(server, totals)| reasons(totals).into_iter().map(|one| row(*server, one)));
        page.counter(name, help, &rows.collect::<Vec<_>>())
    };
    let help = "HTTP connections rejected because the limit in total or of the client was reached";
    counter("http_connections_refused", help, &|totals| {
        vec![("total", totals.refused_total), ("client", totals.refused_client)]
    })?;
    let help = "HTTP connections closed by the server: in favor of another client, idle, or not reading responses";
    counter("http_connections_closed", help, &|totals| {
        vec![
            ("evicted", totals.closed_evicted),
            ("idle", totals.closed_idle),
            ("stalled", totals.closed_stalled),
            ("flooded", totals.closed_flooded),
        ]
    })?;
    let help = "HTTP responses rejected because too many octets were in flight";
    counter("http_responses_refused", help, &|totals| vec![("octets", totals.refused_answers)])
}
