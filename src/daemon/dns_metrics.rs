//! The metrics of the role `dns`, read at a scrape from counters of the workers, without an effect on query threads.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::registry::Unit;

use super::query_log;
use super::unrouted::Unrouted;
use signpost_control::deletion_hold::hold::Held;
use signpost_control::name_server::files::static_zones;
use signpost_control::name_server::status::Status;
use signpost_dns::nameserver::{Transport, sizes, stats};
use signpost_dns::notify::Notifier;
use signpost_dns::secondary::Secondary;
use signpost_dns::transfer::{self, Transfers};
use signpost_dns::transport::{Running, Totals, durations};
use signpost_dns::update::{self, Updates};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Serial, ZoneDb};
use signpost_runtime::telemetry::page::{Histogram, Page, Rows};
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

/// Reads the counters of a running name server.
pub struct DnsMetrics {
    /// The running name server; weak, because stopping the listeners must not wait for a scrape.
    pub running: Weak<Running>,
    pub db: Arc<ZoneDb>,
    pub query_log: Arc<query_log::Counts>,
    pub files: Option<Arc<Mutex<static_zones::Counts>>>,
    pub status: Option<Arc<Status>>,
    /// The counts of names without a Route.
    pub unrouted: Option<Arc<Unrouted>>,
    pub transfers: Arc<Transfers>,
    pub updates: Arc<Updates>,
    pub notifier: Arc<Notifier>,
    /// The zones from primary servers.
    pub copied: Option<Arc<Secondary>>,
}

impl DnsMetrics {
    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        if let Some(running) = self.running.upgrade() {
            queries(page, &running)?;
            durations(page, &running)?;
            zones(page, &self.db.numbered(), &running.zone_counts())?;
            serials(page, &self.db)?;
            sockets(page, &running)?;
            encrypted(page, &running.encrypted_stats())?;
            page.count("dns_query_log_records", "Requests written to the query log", self.query_log.written())?;
            let dropped = [("full", running.query_log_lost()), ("write", self.query_log.unwritten())];
            page.counts(
                "dns_query_log_dropped",
                "Requests sampled for the query log but not written",
                "reason",
                dropped,
            )?;
        }
        if let Some(unrouted) = &self.unrouted {
            unrouted_names(page, unrouted)?;
        }
        page.level("dns_zones", "Zones served", self.db.zone_count() as i64)?;
        let help = "Whether all zones are loaded (1); until then (0), names outside the loaded zones get SERVFAIL";
        page.level("dns_ready", help, i64::from(self.db.is_ready()))?;
        if let Some(files) = &self.files {
            let files = *files.lock();
            page.level("zone_files", "Zones loaded from files", files.zones as i64)?;
            page.level("zone_files_broken", "Zone files that are not served because of errors", files.broken as i64)?;
            let help = "Zone files with errors, instead of which the previous version of the zone is served";
            page.level("zone_files_outdated", help, files.outdated as i64)?;
            let help = "Reloads of the zone directory, without checks that found no change";
            page.count("zone_file_reads", help, files.reloads)?;
        }
        transfers(page, &self.transfers)?;
        updates(page, &self.updates)?;
        notified(page, &self.notifier)?;
        self.copied.as_ref().map_or(Ok(()), |copied| of_primaries(page, copied))?;
        self.status.as_ref().map_or(Ok(()), |status| synced(page, status))
    }
}

fn transfers(page: &mut Page<'_>, transfers: &Transfers) -> fmt::Result {
    let kinds = transfer::KINDS.into_iter().zip(transfers.counts());
    page.counts("dns_transfers", "Answers to requests for zone transfers, by kind", "kind", kinds)
}

fn updates(page: &mut Page<'_>, updates: &Updates) -> fmt::Result {
    let results = update::RESULTS.into_iter().zip(updates.counts());
    page.counts("dns_updates", "Requests to change challenges (UPDATE), by result", "result", results)
}

/// Writes the state of each secondary server. A server has many zones, so zones are counted.
fn notified(page: &mut Page<'_>, notifier: &Notifier) -> fmt::Result {
    let servers: Vec<String> = notifier.secondaries().iter().map(|server| server.address.to_string()).collect();
    if servers.is_empty() {
        return Ok(());
    }
    let now = Instant::now();
    let mut zones = vec![([0u64; 3], Duration::ZERO); servers.len()];
    notifier.each_state(|server, _, state| {
        let (counts, oldest) = &mut zones[server];
        counts[state.progress() as usize] += 1;
        let pending = state.pending_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        *oldest = pending.max(*oldest);
    });
    let states = ["acknowledged", "pending", "failed"];
    let rows: Rows<'_, i64> = servers
        .iter()
        .zip(&zones)
        .flat_map(|(server, (zones, _))| {
            let labels = move |state| vec![("server", &**server), ("state", state)];
            states.iter().zip(zones).map(move |(state, zones)| (labels(*state), *zones as i64))
        })
        .collect();
    let help = "Zones of each notified server, by the state of their current serial; absent if there is none";
    page.gauge("dns_notify_zones", help, &rows)?;
    let oldest: Rows<'_, f64> = servers
        .iter()
        .zip(&zones)
        .map(|(server, (_, oldest))| (vec![("server", &**server)], oldest.as_secs_f64()))
        .collect();
    let help =
        "Age of the oldest change that a notified server has not acknowledged, in seconds; absent if there is none";
    page.gauge("dns_notify_pending_seconds", help, &oldest)
}

/// Writes the state of the zones from primary servers.
fn of_primaries(page: &mut Page<'_>, copied: &Secondary) -> fmt::Result {
    let mut zones = ["current", "failing", "expired", "missing"].map(|state| (state, 0u64));
    for (_, status) in copied.statuses() {
        zones.iter_mut().filter(|(state, _)| *state == status.word()).for_each(|(_, count)| *count += 1);
    }
    let rows: Rows<'_, i64> = zones.iter().map(|(state, zones)| (vec![("state", *state)], *zones as i64)).collect();
    page.gauge("dns_primary_zones", "Zones from primary servers, by state; absent if there is none", &rows)
}

/// Returns the transports with listeners. Others have no series, so that a page is not mostly zeros.
fn listened(running: &Running) -> Vec<&'static str> {
    let encrypted = running.encrypted_stats().into_iter().map(|(transport, _)| transport);
    let all = [Transport::Udp, Transport::Tcp].into_iter().chain(encrypted);
    all.map(|transport| stats::TRANSPORTS[transport as usize]).collect()
}

fn queries(page: &mut Page<'_>, running: &Running) -> fmt::Result {
    let (sum, listened) = (running.counts(), listened(running));
    let used = |(transport, _): &(&&'static str, &stats::Traffic<u64>)| listened.contains(transport);
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
    page.counter("dns_requests", "Requests received, including requests without a response", &requests)?;
    page.counter("dns_responses", "Responses, by response code", &responses)?;
    let truncated = traffic.iter().map(|(transport, traffic)| (*transport, traffic.truncated));
    page.counts("dns_truncated_responses", "Truncated responses (TC)", "transport", truncated)?;
    for (name, help, label, values, counts) in [
        ("dns_dropped_requests", "Requests without a response", "reason", &stats::DROPS[..], &sum.drops[..]),
        ("dns_answers", "Answers from zones, by kind", "kind", &stats::KINDS, &sum.kinds),
        ("dns_opcode_requests", "Requests that are not queries, by opcode", "opcode", &stats::OPCODES, &sum.opcodes),
        ("dns_cookies", "Requests with a cookie", "kind", &stats::COOKIES, &sum.cookies),
        ("dns_rate_limited", "Responses over the rate limit, by action", "action", &stats::LIMITED, &sum.limited),
    ] {
        page.counts(name, help, label, values.iter().copied().zip(counts.iter().copied()))?;
    }
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

/// Writes the durations of the listeners' work.
fn durations(page: &mut Page<'_>, running: &Running) -> fmt::Result {
    let (mut rows, listened) = (Vec::new(), listened(running));
    for (transport, counts) in stats::TRANSPORTS.iter().zip(running.durations()) {
        if listened.contains(transport) {
            let labels = vec![("transport", *transport)];
            rows.push(Histogram { labels, buckets: counts.requests.to_vec(), sum: counts.seconds });
        }
    }
    let help = "Time from the receipt of a batch of requests until its responses are sent, for each request";
    page.histogram("dns_request_duration", help, Unit::Seconds, &durations::BOUNDS_SECONDS, &rows)
}

/// The label of the zones that are not counted individually.
const OTHER_ZONES: &str = "other";

/// Writes the counts of each zone that has a number, and of all others together.
fn zones(page: &mut Page<'_>, apexes: &[Name], counts: &[stats::ZoneCounts]) -> fmt::Result {
    let names: Vec<String> = apexes.iter().map(|apex| apex.to_string().to_ascii_lowercase()).collect();
    let others = counts.last().map(|counts| (OTHER_ZONES, counts));
    let mut rows: Rows<'_, u64> = Vec::new();
    for (zone, counts) in names.iter().map(String::as_str).zip(counts).chain(others) {
        let labels = |kind| vec![("zone", zone), ("kind", kind)];
        rows.extend(stats::KINDS.iter().zip(counts).map(|(kind, count)| (labels(kind), *count)));
    }
    page.counter("dns_zone_requests", "Requests for names in zones, by kind of answer", &rows)
}

/// Requests for names without a Route.
fn unrouted_names(page: &mut Page<'_>, unrouted: &Unrouted) -> fmt::Result {
    let counts = unrouted.counts();
    let zones: Vec<(String, u64)> =
        counts.zones.iter().map(|(apex, count)| (apex.to_string().to_ascii_lowercase(), *count)).collect();
    let zones = zones.iter().map(|(zone, count)| (zone.as_str(), *count)).chain([(OTHER_ZONES, counts.others)]);
    let help = "Requests for names without a Route that the wildcard of a shard answered";
    page.counts("dns_unrouted_requests", help, "zone", zones)?;
    let help = "Requests not checked for a Route, because too many arrived at once";
    page.count("dns_unrouted_lost", help, counts.lost)
}

/// Writes the serials of the zones that have numbers.
fn serials(page: &mut Page<'_>, db: &ZoneDb) -> fmt::Result {
    let serial = |apex: &Name| Some((apex.to_string().to_ascii_lowercase(), db.get(apex)?.serial()?));
    let serials: Vec<(String, Serial)> = db.numbered().iter().filter_map(serial).collect();
    let rows: Rows<'_, i64> =
        serials.iter().map(|(zone, serial)| (vec![("zone", zone.as_str())], i64::from(serial.0))).collect();
    page.gauge("dns_zone_serial", "SOA serial of a zone that is served", &rows)
}

fn sockets(page: &mut Page<'_>, running: &Running) -> fmt::Result {
    let totals = running.stats();
    page.count("dns_udp_datagrams", "Datagrams received", totals.datagrams)?;
    page.count("dns_udp_batches", "System calls that received datagrams", totals.batches)?;
    page.count(
        "dns_udp_gso_messages",
        "UDP GSO messages, each with several responses to one client",
        totals.gso_messages,
    )?;
    page.count("dns_tcp_connections", "Connections accepted", totals.connections)?;
    page.count("dns_tcp_messages", "Messages received on connections", totals.messages)?;
    let closed = closings(&totals);
    page.counts("dns_tcp_closed", "Connections that the server closed, or that broke, by reason", "reason", closed)?;
    let faults = [
        ("send", totals.send_errors),
        ("gso", totals.gso_refused),
        ("receive", totals.receive_errors),
        ("accept", totals.accept_errors),
        ("panic", totals.panics),
    ];
    page.counts("dns_socket_errors", "Errors of sockets and workers", "reason", faults)
}

fn closings(totals: &Totals) -> [(&'static str, u64); 7] {
    [
        ("total", totals.refused_total),
        ("client", totals.refused_client),
        ("idle", totals.idle_timeouts),
        ("slow_read", totals.read_timeouts),
        ("slow_write", totals.write_timeouts),
        ("malformed", totals.malformed),
        ("broken", totals.broken),
    ]
}

/// Writes the metrics of connections over encrypted transports: the series of TCP, by transport, and the outcomes of handshakes.
fn encrypted(page: &mut Page<'_>, all: &[(Transport, Totals)]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    let label = |transport: &Transport| ("transport", stats::TRANSPORTS[*transport as usize]);
    let each = |count: fn(&Totals) -> u64| -> Rows<'_, u64> {
        all.iter().map(|(transport, totals)| (vec![label(transport)], count(totals))).collect()
    };
    let by = |name: &'static str, counts: &dyn Fn(&Totals) -> Vec<(&'static str, u64)>| -> Rows<'_, u64> {
        let row = |transport, (value, count)| (vec![label(transport), (name, value)], count);
        all.iter()
            .flat_map(|(transport, totals)| counts(totals).into_iter().map(move |one| row(transport, one)))
            .collect()
    };
    let help = "Connections accepted by encrypted transports";
    page.counter("dns_encrypted_connections", help, &each(|totals| totals.connections))?;
    let help = "Messages received by encrypted transports";
    page.counter("dns_encrypted_messages", help, &each(|totals| totals.messages))?;
    let help = "Connections of encrypted transports that the server closed, or that broke, by reason";
    page.counter("dns_encrypted_closed", help, &by("reason", &|totals| closings(totals).to_vec()))?;
    let help = "TLS handshakes of encrypted transports, by result";
    let handshakes = |totals: &Totals| {
        vec![
            ("full", totals.handshakes_full),
            ("resumed", totals.handshakes_resumed),
            ("timeout", totals.handshake_timeouts),
            ("no_protocol", totals.handshakes_no_protocol),
            ("incompatible", totals.handshakes_incompatible),
            ("refused_by_client", totals.handshakes_refused_by_client),
            ("invalid", totals.handshakes_invalid),
            ("broken", totals.handshakes_broken),
        ]
    };
    page.counter("dns_encrypted_handshakes", help, &by("result", &handshakes))
}

/// Writes the status of the loop that follows the API.
fn synced(page: &mut Page<'_>, status: &Status) -> fmt::Result {
    let state = status.state();
    let counters = state.counters;
    page.level("platform_zones", "Zones built from the API's objects", state.zones as i64)?;
    let help = "Former domains of the platform whose zones are served";
    page.level("former_domains", help, state.former_domains as i64)?;
    page.count("zones_published", "Zone publications", counters.published)?;
    page.count("zones_provisional", "Zone publications under a provisional serial", counters.provisional)?;
    page.count("zones_removed", "Zones removed", counters.removed)?;
    let help = "Whether answers are marked as stale (1), because no message from the API arrived for a long time";
    page.level("dns_stale", help, i64::from(state.is_stale))?;
    let help =
        "Whether names that are not found get NXDOMAIN (1), or SERVFAIL (0), because the zones may lack new names";
    page.level("dns_denies_names", help, i64::from(state.is_denying))?;
    let help = "Whether the last-known-good state cannot be written";
    page.level("last_good_failing", help, i64::from(state.is_last_good_failing()))?;
    let help = "Whether the last-known-good state found at the start was damaged or of another platform, and no new one is on the disk yet";
    page.level("last_good_refused", help, i64::from(state.is_last_good_refused))?;
    let help = "Time at which a damaged last-known-good state, or one of another platform, was moved aside, in seconds since the epoch; 0: not since the start";
    let at = state.last_good_refused_at.map_or(0, Timestamp::as_second);
    page.level("last_good_refused_time_seconds", help, at)?;
    let (objects, undecided) = holds(&status.losses().held());
    page.gauge("deletion_hold_objects", "Objects that are missing from the API and still served", &objects)?;
    page.gauge("deletion_hold_pending", "Deletion holds that wait for approval or rejection", &undecided)?;
    page.level("zone_input_errors", "Errors in the objects from which zones are built", state.diagnostics.len() as i64)
}

/// Returns the number of held objects of each kind, and of their holds without a decision.
pub fn holds(held: &[Held]) -> (Rows<'static, i64>, Rows<'static, i64>) {
    let sum = |count: fn(&Held) -> usize| {
        let row = |kind: DeletionHoldKind| {
            let of_kind = held.iter().filter(|held| held.kind == kind);
            (vec![("kind", kind.word())], of_kind.map(|held| count(held) as i64).sum())
        };
        DeletionHoldKind::ALL.into_iter().map(row).collect()
    };
    (sum(|held| held.count), sum(|held| usize::from(held.decision.is_none())))
}
