//! The numbers of the role `dns`, read at a scrape from counters that belong to the workers. No query thread is touched.

use std::fmt;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use prometheus_client::registry::Unit;

use super::query_log;
use super::unrouted::Unrouted;
use crate::admin::page::{Histogram, Page, Rows};
use signpost_api::v1alpha1::deletion_hold::DeletionHoldKind;
use signpost_control::client::reflector::{Health, HealthProbe, Restart};
use signpost_control::controller::static_zones;
use signpost_control::controller::zone::hold::Held;
use signpost_control::controller::zone::status::Status;
use signpost_dns::nameserver::{sizes, stats};
use signpost_dns::transport::{Running, durations};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Serial, ZoneDb};

/// Reads the counters of a running name server.
pub struct DnsMetrics {
    /// Not held: whoever stops the listeners waits for their threads.
    pub running: Weak<Running>,
    /// The zones.
    pub db: Arc<ZoneDb>,
    /// What the query log has done.
    pub query_log: Arc<query_log::Counts>,
    /// Of the directory of zone files.
    pub files: Option<Arc<static_zones::Status>>,
    /// Of the loop that follows the API.
    pub status: Option<Arc<Status>>,
    /// Of names without a Route.
    pub unrouted: Option<Arc<Unrouted>>,
}

impl DnsMetrics {
    /// Writes all of them.
    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        if let Some(running) = self.running.upgrade() {
            queries(page, &running.counts())?;
            durations(page, &running)?;
            zones(page, &self.db.numbered(), &running.zone_counts())?;
            serials(page, &self.db)?;
            sockets(page, &running)?;
            let written = [(vec![], self.query_log.written())];
            page.counter("dns_query_log_records", "Requests written to the query log", &written)?;
            let dropped = [
                (vec![("reason", "full")], running.query_log_lost()),
                (vec![("reason", "write")], self.query_log.unwritten()),
            ];
            page.counter("dns_query_log_dropped", "Requests drawn for the query log but not written", &dropped)?;
        }
        if let Some(unrouted) = &self.unrouted {
            unrouted_names(page, unrouted)?;
        }
        page.gauge("dns_zones", "Zones that are served", &[(vec![], self.db.zone_count() as i64)])?;
        let ready = i64::from(self.db.is_ready());
        page.gauge(
            "dns_ready",
            "Whether all zones are there (1); until then (0) names outside those that are there get SERVFAIL",
            &[(vec![], ready)],
        )?;
        if let Some(files) = &self.files {
            page.gauge("zone_files", "Zones that files give", &[(vec![], files.zones() as i64)])?;
            let broken = [(vec![], files.broken() as i64)];
            page.gauge("zone_files_broken", "Zone files with errors that give no zone", &broken)?;
            page.counter(
                "zone_file_reads",
                "Readings of the zones folder, but for looks that find nothing new",
                &[(vec![], files.reloads() as u64)],
            )?;
        }
        match &self.status {
            Some(status) => synced(page, status),
            None => Ok(()),
        }
    }
}

/// Transports that are always listened on. Others' series appear with their first request, so that a page is not mostly zeros.
const ALWAYS: [&str; 2] = ["udp", "tcp"];

/// What the query engine counted.
fn queries(page: &mut Page<'_>, sum: &stats::Counts) -> Result<(), fmt::Error> {
    let used = |(transport, traffic): &(&&'static str, &stats::Traffic<u64>)| {
        ALWAYS.contains(transport) || traffic.request_count() > 0
    };
    let traffic: Vec<(&'static str, &stats::Traffic<u64>)> = stats::TRANSPORTS
        .iter()
        .zip(&sum.traffic)
        .filter(used)
        .map(|(transport, traffic)| (*transport, traffic))
        .collect();
    let mut requests: Rows<'_, u64> = Vec::new();
    let mut responses: Rows<'_, u64> = Vec::new();
    for (transport, traffic) in &traffic {
        for (family, types) in stats::FAMILIES.iter().zip(&traffic.requests) {
            let labels = |qtype| vec![("transport", *transport), ("family", family), ("type", qtype)];
            requests.extend(stats::QTYPES.iter().zip(types).map(|(qtype, count)| (labels(qtype), *count)));
        }
        let labels = |rcode| vec![("transport", *transport), ("rcode", rcode)];
        responses.extend(stats::RCODES.iter().zip(traffic.responses).map(|(rcode, count)| (labels(rcode), count)));
    }
    page.counter("dns_requests", "Requests received, those included that get no response", &requests)?;
    page.counter("dns_responses", "Responses made, by response code", &responses)?;
    let truncated: Rows<'_, u64> =
        traffic.iter().map(|(transport, traffic)| (vec![("transport", *transport)], traffic.truncated)).collect();
    page.counter("dns_truncated_responses", "Responses that were truncated (TC)", &truncated)?;
    page.counter("dns_dropped_requests", "Requests that got no response", &by("reason", &stats::DROPS, &sum.drops))?;
    page.counter("dns_answers", "Answers from zones, by what was found", &by("kind", &stats::KINDS, &sum.kinds))?;
    let opcodes = by("opcode", &stats::OPCODES, &sum.opcodes);
    page.counter("dns_opcode_requests", "Requests that are no queries, by opcode", &opcodes)?;
    page.counter("dns_cookies", "Requests with a cookie", &by("kind", &stats::COOKIES, &sum.cookies))?;
    let limited = by("action", &stats::LIMITED, &sum.limited);
    page.counter("dns_rate_limited", "Responses over the rate limit, by what became of them", &limited)?;
    let bounds = sizes::BOUNDS.map(f64::from);
    let histograms = |sizes: fn(&stats::Traffic<u64>) -> &stats::Sizes<u64>| -> Vec<Histogram<'_>> {
        let histogram = |(transport, traffic): &(&'static str, &stats::Traffic<u64>)| {
            let stats::Sizes { messages, octets } = sizes(traffic);
            Histogram { labels: vec![("transport", *transport)], buckets: messages.to_vec(), sum: *octets as f64 }
        };
        traffic.iter().map(histogram).collect()
    };
    let requests = histograms(|traffic| &traffic.request_sizes);
    page.histogram("dns_request_size", "Size of requests", Unit::Bytes, &bounds, &requests)?;
    let responses = histograms(|traffic| &traffic.response_sizes);
    page.histogram("dns_response_size", "Size of responses", Unit::Bytes, &bounds, &responses)
}

/// How long the listeners took.
fn durations(page: &mut Page<'_>, running: &Running) -> Result<(), fmt::Error> {
    let mut rows = Vec::new();
    for (transport, counts) in stats::TRANSPORTS.iter().zip(running.durations()) {
        if ALWAYS.contains(transport) || counts.request_count() > 0 {
            let labels = vec![("transport", *transport)];
            rows.push(Histogram { labels, buckets: counts.requests.to_vec(), sum: counts.seconds });
        }
    }
    let help = "Time from receiving a batch of requests until its responses are sent, for each of its requests";
    page.histogram("dns_request_duration", help, Unit::Seconds, &durations::BOUNDS_SECONDS, &rows)
}

/// Label of the zones that are not counted one by one.
const OTHER_ZONES: &str = "other";

/// What was counted for each zone that has a number, and for all others together.
fn zones(page: &mut Page<'_>, apexes: &[Name], counts: &[stats::ZoneCounts]) -> Result<(), fmt::Error> {
    let names: Vec<String> = apexes.iter().map(|apex| apex.to_string().to_ascii_lowercase()).collect();
    let others = counts.last().map(|counts| (OTHER_ZONES, counts));
    let mut rows: Rows<'_, u64> = Vec::new();
    for (zone, counts) in names.iter().map(String::as_str).zip(counts).chain(others) {
        let labels = |kind| vec![("zone", zone), ("kind", kind)];
        rows.extend(stats::KINDS.iter().zip(counts).map(|(kind, count)| (labels(kind), *count)));
    }
    page.counter("dns_zone_requests", "Requests for names in zones, by what was found", &rows)
}

/// Requests for names without a Route.
fn unrouted_names(page: &mut Page<'_>, unrouted: &Unrouted) -> Result<(), fmt::Error> {
    let counts = unrouted.counts();
    let zones: Vec<(String, u64)> =
        counts.zones.iter().map(|(apex, count)| (apex.to_string().to_ascii_lowercase(), *count)).collect();
    let zones = zones.iter().map(|(zone, count)| (zone.as_str(), *count)).chain([(OTHER_ZONES, counts.others)]);
    let rows: Rows<'_, u64> = zones.map(|(zone, count)| (vec![("zone", zone)], count)).collect();
    page.counter(
        "dns_unrouted_requests",
        "Requests that a shard's wildcard answered though no Route has the name",
        &rows,
    )?;
    let lost = [(vec![], counts.lost)];
    page.counter("dns_unrouted_lost", "Requests not looked at for that, since too many came at once", &lost)
}

/// The serials under which the zones that have numbers are served.
fn serials(page: &mut Page<'_>, db: &ZoneDb) -> Result<(), fmt::Error> {
    let serial = |apex: &Name| Some((apex.to_string().to_ascii_lowercase(), db.get(apex)?.serial()?));
    let serials: Vec<(String, Serial)> = db.numbered().iter().filter_map(serial).collect();
    let rows: Rows<'_, i64> =
        serials.iter().map(|(zone, serial)| (vec![("zone", zone.as_str())], i64::from(serial.0))).collect();
    page.gauge("dns_zone_serial", "SOA serial under which a zone is served", &rows)
}

/// What the listeners counted.
fn sockets(page: &mut Page<'_>, running: &Running) -> Result<(), fmt::Error> {
    let totals = running.stats();
    let one = |count| [(Vec::new(), count)];
    page.counter("dns_udp_datagrams", "Datagrams received", &one(totals.datagrams))?;
    page.counter("dns_udp_batches", "System calls that received datagrams", &one(totals.batches))?;
    page.counter(
        "dns_udp_gso_messages",
        "System's messages that held several replies to one peer",
        &one(totals.trains),
    )?;
    page.counter("dns_tcp_connections", "Connections accepted", &one(totals.connections))?;
    page.counter("dns_tcp_messages", "Messages received on connections", &one(totals.messages))?;
    let closed = [
        ("total", totals.refused_total),
        ("client", totals.refused_client),
        ("idle", totals.idle_timeouts),
        ("slow_read", totals.read_timeouts),
        ("slow_write", totals.write_timeouts),
        ("malformed", totals.malformed),
        ("broken", totals.broken),
    ];
    let closed: Rows<u64> = closed.into_iter().map(|(reason, count)| (vec![("reason", reason)], count)).collect();
    page.counter("dns_tcp_closed", "Connections that we closed, or that broke, by reason", &closed)?;
    let faults = [
        ("send", totals.send_errors),
        ("gso", totals.trains_refused),
        ("receive", totals.receive_errors),
        ("accept", totals.accept_errors),
        ("panic", totals.panics),
    ];
    let faults: Rows<u64> = faults.into_iter().map(|(reason, count)| (vec![("reason", reason)], count)).collect();
    page.counter("dns_socket_errors", "Faults of sockets and workers", &faults)
}

/// How the loop that follows the API fares.
fn synced(page: &mut Page<'_>, status: &Status) -> Result<(), fmt::Error> {
    let counters = status.counters();
    page.gauge("platform_zones", "Zones made from the API's objects", &[(vec![], status.zones() as i64)])?;
    page.counter("zones_published", "Times that a zone was published", &[(vec![], counters.published)])?;
    let provisional = [(vec![], counters.provisional)];
    page.counter("zones_provisional", "Of these, under a serial that the ledger did not name", &provisional)?;
    page.counter("zones_removed", "Zones taken away", &[(vec![], counters.removed)])?;
    let stale = [(vec![], i64::from(status.is_stale()))];
    page.gauge("dns_stale", "Whether answers are marked as stale, since the API was not heard for long (1)", &stale)?;
    let failing = [(vec![], i64::from(status.is_last_good_failing()))];
    page.gauge("last_good_failing", "Whether the last-good state cannot be written", &failing)?;
    let refused = [(vec![], i64::from(status.is_last_good_refused()))];
    let told = "Whether the last-good state found at the start was damaged or of another platform, and no new one is on the disk yet";
    page.gauge("last_good_refused", told, &refused)?;
    let told = "When a last-good state was damaged or of another platform and moved aside, in seconds since the epoch; 0: not since the start";
    let at = status.last_good_refused_at().map_or(0, Timestamp::as_second);
    page.gauge("last_good_refused_time_seconds", told, &[(vec![], at)])?;
    let held = status.held();
    let sum = |count: fn(&Held) -> usize| -> Rows<'_, i64> {
        let row = |kind: DeletionHoldKind| {
            let of_kind = held.iter().filter(|held| held.kind == kind);
            (vec![("kind", kind.word())], of_kind.map(|held| count(held) as i64).sum())
        };
        DeletionHoldKind::ALL.into_iter().map(row).collect()
    };
    let objects = sum(|held| held.count);
    page.gauge("deletion_hold_objects", "Objects that are missing in the API and still served", &objects)?;
    let undecided = sum(|held| usize::from(held.decision.is_none()));
    page.gauge("deletion_hold_pending", "Whether a hold waits for someone to approve or reject it", &undecided)?;
    page.gauge(
        "zone_input_errors",
        "Faults of objects that zones are made from",
        &[(vec![], status.diagnostics().len() as i64)],
    )
}

/// The informers that the loop keeps, for [`signpost_control::client::metrics::InformerMetrics`]. Until the loop runs they are unheard of.
pub fn informers(status: &Arc<Status>) -> Vec<(&'static str, HealthProbe)> {
    let probe = |(at, kind): (usize, &'static str)| -> (&'static str, HealthProbe) {
        let status = status.clone();
        let unheard = move || Health {
            kind: kind.to_owned(),
            synced: false,
            connected: false,
            age: None,
            error: None,
            restarts: Restart::ALL.map(|reason| (reason, 0)),
            undecodable: 0,
            unknown: 0,
            objects: 0,
            version: String::new(),
        };
        ("dns", Arc::new(move || status.informers().into_iter().nth(at).unwrap_or_else(&unheard)))
    };
    ["Router", "RouteBinding", "Zone"].into_iter().enumerate().map(probe).collect()
}

/// A row for each label of a list of counts.
fn by<'a>(label: &'a str, values: &[&'a str], counts: &[u64]) -> Rows<'a, u64> {
    values.iter().zip(counts).map(|(value, count)| (vec![(label, *value)], *count)).collect()
}
