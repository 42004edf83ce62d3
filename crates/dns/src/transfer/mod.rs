//! Zone transfers to secondary servers: AXFR (RFC 5936) and IXFR (RFC 1995), over TCP, TLS (RFC 9103) and QUIC.
//!
//! [`Transfers`] is the handler of such requests: it checks the rights of the client, and returns a cursor over one version of the
//! zone, which makes each message when the client has read the previous one. Without a [`Rule`] that permits it, a transfer is
//! refused.
//!
//! Queries for the SOA record of a [`catalog`] come here, too.
//!
//! A transfer keeps its version of the zone, of which others share most of the memory, at most for the time that
//! [`crate::transport`] limits. A zone whose records have weights is transferred without these.

mod axfr;
pub mod catalog;
mod history;
mod ixfr;
pub(crate) mod message;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use axfr::Axfr;
use catalog::Catalog;
use history::History;
use ixfr::Ixfr;
use message::{Head, Message};

use crate::nameserver::hand_off::{Answer, Cursor, HandOff, HandOffKind, Handler, Progress};
use crate::nameserver::prefix::Prefix;
use crate::nameserver::{Peer, Transport};
use crate::tsig::Key;
use crate::wire::header::Rcode;
use crate::wire::{Class, Name, RecordType};
use crate::zone::policy::ZonePattern;
use crate::zone::publish::Step;
use crate::zone::rrset::{Rdata, Ttl};
use crate::zone::{Serial, Zone};

/// A record of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) owner: Name,
    pub(crate) rtype: RecordType,
    pub(crate) ttl: Ttl,
    pub(crate) rdata: Rdata,
}

/// A right to transfer zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The zones; none: all.
    pub zones: Vec<ZonePattern>,
    /// The networks of the clients; none: all.
    pub networks: Vec<Prefix>,
    /// The names of the keys, one of which must sign the request; none: no signature is necessary.
    pub keys: Vec<Name>,
    /// Whether the transfer must be encrypted (RFC 9103).
    pub tls: bool,
}

impl Rule {
    /// Returns whether the rule is about a zone.
    pub fn is_about(&self, apex: &Name) -> bool {
        ZonePattern::any(&self.zones, apex)
    }

    fn permits(&self, apex: &Name, peer: &Peer, key: Option<&Arc<Key>>) -> bool {
        let address = peer.address.ip().to_canonical();
        self.is_about(apex)
            && (self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address)))
            && (self.keys.is_empty() || key.is_some_and(|key| self.keys.contains(key.name())))
            && (!self.tls || matches!(peer.transport, Transport::Tls | Transport::Quic))
    }
}

/// Labels of answered requests. `full` and `incremental` are transfers; `current`: the client's version is current, or it should use
/// TCP; `refused`: no rule permits the request. `failed` are other errors: no such zone, an unavailable zone, or a malformed request.
pub const KINDS: [&str; 5] = ["full", "incremental", "current", "refused", "failed"];

/// The kind of an answer, in the order of [`KINDS`].
#[derive(Clone, Copy)]
enum Kind {
    Full,
    Incremental,
    Current,
    Refused,
    Failed,
}

/// The handler of requests for transfers.
#[derive(Default)]
pub struct Transfers {
    rules: ArcSwap<Vec<Rule>>,
    catalog: Option<Arc<Catalog>>,
    history: History,
    counters: [AtomicU64; KINDS.len()],
}

impl Transfers {
    /// Returns a handler that permits what these rules permit.
    pub fn new(rules: Vec<Rule>) -> Self {
        Transfers { rules: ArcSwap::from_pointee(rules), ..Transfers::default() }
    }

    /// Transfers this catalog, too, with the same rules.
    pub fn with_catalog(self, catalog: Option<Arc<Catalog>>) -> Self {
        Transfers { catalog, ..self }
    }

    /// Replaces the rules. Transfers in progress continue.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        if let Some(catalog) = &self.catalog {
            catalog.set_rules(rules.clone());
        }
        self.rules.store(Arc::new(rules));
    }

    /// Records the differences of a step for incremental transfers: the listener of a [`crate::zone::publish::Publisher`].
    pub fn record(&self, step: &Step) {
        let rules = self.rules.load();
        self.history.record(step, |apex| rules.iter().any(|rule| rule.is_about(apex)));
    }

    /// Returns the numbers of answered requests since the start, by [`KINDS`].
    pub fn counts(&self) -> [u64; KINDS.len()] {
        self.counters.each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }

    fn count(&self, kind: Kind) {
        self.counters[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn transfer(&self, request: &HandOff<'_>) -> Option<Answer> {
        let apex = Name::from_wire(request.question.name(request.message)).ok()?;
        let is_permitted = self.rules.load().iter().any(|rule| rule.permits(&apex, request.peer, request.key));
        if !is_permitted || request.question.qclass != Class::IN {
            self.count(Kind::Refused);
            return None;
        }
        let head = Head::of(request.message)?;
        let fail = |rcode| {
            self.count(Kind::Failed);
            Some(Answer::One(head.reply(rcode)))
        };
        let catalog = self.catalog.as_ref().filter(|catalog| *catalog.name() == apex);
        let zone = match (request.zone, catalog) {
            (Some(zone), _) => Arc::clone(zone),
            // Unknown until all zones are: an empty catalog would delete them on the secondary servers.
            (None, Some(catalog)) => match catalog.zone() {
                Some(zone) => zone,
                None => return fail(Rcode::SERVFAIL),
            },
            // RFC 5936 §2.2.1: NOTAUTH if the server is not authoritative.
            (None, None) => return fail(Rcode::NOTAUTH),
        };
        let zone = &zone;
        if request.question.qtype == RecordType::SOA {
            return soa_only(zone, &head, request.octets_max).map(Answer::One);
        }
        let Some(serial) = zone.serial() else { return fail(Rcode::SERVFAIL) };
        if request.question.qtype == RecordType::IXFR {
            let Some(client) = ixfr::serial_of_client(request.message) else { return fail(Rcode::FORMERR) };
            // RFC 1995 §2: "If an IXFR query with the same or newer version number than that of the server is received, it is
            // replied to with a single SOA record of the server's current version". So is a serial without an order.
            if !serial.is_after(client) {
                self.count(Kind::Current);
                return soa_only(zone, &head, request.octets_max).map(Answer::One);
            }
            if let Some(answer) = self.increment(request, zone, &head, (client, serial)) {
                return Some(answer);
            }
        }
        if request.peer.transport == Transport::Udp {
            if request.question.qtype == RecordType::AXFR {
                self.count(Kind::Refused);
                return None;
            }
            // §2: "[...] or the server does not have it: [...] a single SOA", so that the client repeats the request over TCP.
            self.count(Kind::Current);
            return soa_only(zone, &head, request.octets_max).map(Answer::One);
        }
        self.count(Kind::Full);
        Some(Answer::Many(Box::new(Axfr::new(Arc::clone(zone), head))))
    }

    /// Returns the difference between two serials, if it is known, smaller than the zone, and fits in a datagram.
    fn increment(
        &self,
        request: &HandOff<'_>,
        zone: &Arc<Zone>,
        head: &Head,
        (from, to): (Serial, Serial),
    ) -> Option<Answer> {
        let difference = self.history.between(zone.apex(), from, to, zone.octets())?;
        let mut cursor = Ixfr::new(Arc::clone(zone), head.clone(), difference);
        if request.peer.transport != Transport::Udp {
            self.count(Kind::Incremental);
            return Some(Answer::Many(Box::new(cursor)));
        }
        let mut buffer = vec![0; request.octets_max];
        let Progress::Last(octets @ 1..) = cursor.fill(&mut buffer) else { return None };
        buffer.truncate(octets);
        self.count(Kind::Incremental);
        Some(Answer::One(buffer))
    }
}

/// Returns a response with the SOA record.
fn soa_only(zone: &Zone, head: &Head, octets_max: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; octets_max.min(usize::from(u16::MAX))];
    let mut message = Message::new(&mut buffer, head, zone, true).ok()?;
    message.put_soa(zone).ok()?;
    let octets = message.finish();
    buffer.truncate(octets);
    Some(buffer)
}

impl Handler for Transfers {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        match request.kind {
            HandOffKind::Transfer => self.transfer(request),
            HandOffKind::Notify | HandOffKind::Update => None,
        }
    }
}
