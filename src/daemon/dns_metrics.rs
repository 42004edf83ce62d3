//! The numbers of the role `dns`, read at a scrape from counters that belong to the workers. No query thread is touched.

use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::client::reflector::{Health, HealthProbe, Restart};
use crate::controller::static_zones;
use crate::controller::zone::status::Status;
use crate::nameserver::stats;
use crate::transport::Running;
use crate::zone::ZoneDb;

/// Reads the counters of a running name server.
pub struct DnsMetrics {
    /// Not held: whoever stops the listeners waits for their threads.
    running: Weak<Running>,
    db: Arc<ZoneDb>,
    files: Option<Arc<static_zones::Status>>,
    status: Option<Arc<Status>>,
}

impl DnsMetrics {
    /// The numbers of these listeners and zones.
    pub fn new(running: &Arc<Running>, db: Arc<ZoneDb>) -> Self {
        DnsMetrics { running: Arc::downgrade(running), db, files: None, status: None }
    }

    /// Adds those of a folder of zone files.
    pub fn zone_files(&mut self, status: Arc<static_zones::Status>) {
        self.files = Some(status);
    }

    /// Adds those of the loop that follows the API.
    pub fn status(&mut self, status: Arc<Status>) {
        self.status = Some(status);
    }
}

impl fmt::Debug for DnsMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DnsMetrics")
    }
}

impl Collector for DnsMetrics {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut page = Page(encoder);
        if let Some(running) = self.running.upgrade() {
            queries(&mut page, &running.counts())?;
            sockets(&mut page, &running)?;
        }
        page.gauge("dns_zones", "Zones that are served", &[(vec![], self.db.zone_count() as i64)])?;
        let ready = i64::from(self.db.is_ready());
        page.gauge(
            "dns_ready",
            "Whether queries are answered from zones (1) or with SERVFAIL (0)",
            &[(vec![], ready)],
        )?;
        if let Some(files) = &self.files {
            page.gauge("zone_files", "Zones that files give", &[(vec![], files.zones() as i64)])?;
            let broken = [(vec![], files.broken() as i64)];
            page.gauge("zone_files_broken", "Zone files with errors that never had a good version", &broken)?;
            page.counter("zone_file_reads", "Readings of the zones folder", &[(vec![], files.reloads() as u64)])?;
        }
        match &self.status {
            Some(status) => synced(&mut page, status),
            None => Ok(()),
        }
    }
}

/// What the query engine counted.
fn queries(page: &mut Page<'_>, sum: &stats::Counts) -> Result<(), fmt::Error> {
    let mut rows: Rows<u64> = Vec::new();
    for (transport, families) in stats::TRANSPORTS.iter().zip(sum.queries) {
        for (family, count) in stats::FAMILIES.iter().zip(families) {
            rows.push((vec![("transport", transport), ("family", family)], count));
        }
    }
    page.counter("dns_requests", "Queries received", &rows)?;
    page.counter("dns_request_types", "Questions by type", &by("type", &stats::QTYPES, &sum.qtypes))?;
    page.counter("dns_responses", "Responses sent by response code", &by("rcode", &stats::RCODES, &sum.rcodes))?;
    page.counter("dns_answers", "Answers from zones by what was found", &by("kind", &stats::KINDS, &sum.kinds))?;
    page.counter("dns_dropped", "Queries that got no response", &by("reason", &stats::DROPS, &sum.drops))?;
    page.counter("dns_cookies", "Queries with a cookie", &by("kind", &stats::COOKIES, &sum.cookies))?;
    let limited = by("action", &stats::LIMITED, &sum.limited);
    page.counter("dns_rate_limited", "Responses over the rate limit by what became of them", &limited)?;
    page.counter("dns_truncated", "Responses that were truncated", &[(vec![], sum.truncated)])?;
    page.counter("dns_request_bytes", "Octets of queries", &[(vec![], sum.query_octets)])?;
    page.counter("dns_response_bytes", "Octets of responses", &[(vec![], sum.response_octets)])
}

/// What the listeners counted.
fn sockets(page: &mut Page<'_>, running: &Running) -> Result<(), fmt::Error> {
    let totals = running.stats();
    let one = |count| [(Vec::new(), count)];
    page.counter("dns_udp_datagrams", "Datagrams received", &one(totals.datagrams))?;
    page.counter("dns_udp_batches", "System calls that received datagrams", &one(totals.batches))?;
    page.counter("dns_udp_trains", "System's messages that held several replies to one peer", &one(totals.trains))?;
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
        ("train", totals.trains_refused),
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
    let held: Rows<i64> = status.held().iter().map(|held| (vec![("kind", held.kind)], held.count as i64)).collect();
    page.gauge("held_losses", "Objects missing from the API's list whose names are still served", &held)?;
    page.gauge("verdicts", "Faults of objects that zones are made from", &[(vec![], status.verdicts().len() as i64)])
}

/// The mirrors that the loop keeps, for [`crate::client::metrics::MirrorMetrics`]. Until the loop runs they are unheard of.
pub fn mirrors(status: &Arc<Status>) -> Vec<(&'static str, HealthProbe)> {
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
            objects: 0,
            version: String::new(),
        };
        ("dns", Arc::new(move || status.mirrors().into_iter().nth(at).unwrap_or_else(&unheard)))
    };
    ["Router", "RouteBinding", "Zone"].into_iter().enumerate().map(probe).collect()
}

type Labels<'a> = Vec<(&'a str, &'a str)>;
type Rows<'a, T> = Vec<(Labels<'a>, T)>;

/// A row for each label of a list of counts.
fn by<'a>(label: &'a str, values: &[&'a str], counts: &[u64]) -> Rows<'a, u64> {
    values.iter().zip(counts).map(|(value, count)| (vec![(label, *value)], *count)).collect()
}

/// The page being written.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, u64)]) -> Result<(), fmt::Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            match labels.is_empty() {
                true => metric.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
                false => metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
            }
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, i64)]) -> Result<(), fmt::Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            match labels.is_empty() {
                true => metric.encode_gauge(value)?,
                false => metric.encode_family(labels)?.encode_gauge(value)?,
            }
        }
        Ok(())
    }
}
