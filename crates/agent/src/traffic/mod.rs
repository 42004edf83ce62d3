//! The traffic of each Route: requests by the class of their status, errors, times, bytes, open connections, and endpoints.
//!
//! A proxy counts, and its [`Meter`] reads: the counters of HAProxy ([`haproxy`]), or a log line of nginx for each request ([`nginx`]).
//! A reading has what was added since the previous one, by the identifier of the Route. [`Traffic`] adds it up. It has the Routes of the
//! Site and no other, so that its size is bounded by that of the Site.

pub mod haproxy;
pub mod nginx;

pub mod socket;

pub mod view;

pub mod access_log;

mod busiest;

pub mod history;

pub mod metrics;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use signpost_types::probe::{backend_id, route_id};

use self::busiest::Busiest;
use self::history::{Counts, Spans};
use crate::site::{RouteKey, Server, Site};

/// The least time between two readings. An alert needs several readings in a minute.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// The pause after a reading in relation to its duration. A change of a Route that meets the reading of 10,000 Routes waits for some 0.1 s:
/// fewer than one in a hundred should.
pub const PAUSE_FACTOR: u32 = 200;
/// The most Routes and endpoints for which a meter keeps changes between two readings. More exist only if a proxy is compromised.
const PENDING_MAX: usize = 1 << 16;
/// The number of requests whose mean time is reported. It is that of HAProxy, which has no other measure of time.
const SAMPLES: u64 = 512;

/// The period of rates.
const RATE_PERIOD: Duration = Duration::from_secs(60);

/// The source of readings: a proxy.
#[async_trait]
pub trait Meter: Send + Sync {
    /// Returns what was added since the last call.
    async fn read(&self) -> io::Result<Reading>;
}

/// The additions to the counters of all Routes since the last reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The additions by [`route_id`].
    pub routes: HashMap<Box<str>, Delta>,
    /// The requests that were lost: they are not in `routes`.
    pub lost: u64,
}

/// The additions to the counters of one Route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    pub counters: Counters,
    /// The requests and connections in progress; `None`: the proxy does not count them.
    pub open: Option<u64>,
    /// The current mean of `SAMPLES` requests, in milliseconds, or that of the new requests with their number.
    pub mean: Option<Mean>,
    /// The outcomes of requests by the identifier or address of the endpoint.
    pub endpoints: HashMap<Box<str>, Attempts>,
}

/// Returns the changes of a Route among those of others; `None`: there are too many.
fn delta_of<'a>(pending: &'a mut HashMap<Box<str>, Delta>, route: &str) -> Option<&'a mut Delta> {
    if !pending.contains_key(route) {
        if pending.len() >= PENDING_MAX {
            return None;
        }
        pending.insert(route.into(), Delta::default());
    }
    pending.get_mut(route)
}

/// A mean time to the head of the response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mean {
    /// The mean of the last requests, in milliseconds.
    Last(f64),
    /// The sum in milliseconds and the number of new requests.
    New(f64, u64),
}

/// The counters of a Route. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Finished requests by the class of their status, from 1xx to 5xx. The first one is for those that the client ended before.
    pub requests: [u64; 6],
    /// Requests and connections that no endpoint answered. Requests among them also count by their status.
    pub errors: u64,
    /// Connections with TLS passthrough, whose requests the router cannot see.
    pub connections: u64,
    /// The bytes of clients.
    pub bytes_in: u64,
    /// The bytes to clients.
    pub bytes_out: u64,
}

impl Counters {
    /// Returns the number of finished requests and connections.
    pub fn total(&self) -> u64 {
        self.requests.iter().fold(self.connections, |sum, more| sum.saturating_add(*more))
    }

    pub fn add(&mut self, other: &Counters) {
        // Those of another instance can be wrong.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.requests.iter_mut().zip(other.requests).for_each(|(sum, more)| add(sum, more));
        add(&mut self.errors, other.errors);
        add(&mut self.connections, other.connections);
        add(&mut self.bytes_in, other.bytes_in);
        add(&mut self.bytes_out, other.bytes_out);
    }
}

/// The outcomes of requests to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    pub answered: u64,
    pub failed: u64,
}

/// The state of an endpoint according to the requests that it gets; the proxies send it no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndpointState {
    /// The endpoint answered in the last reading with a request to it.
    Up,
    /// All requests of that reading failed.
    Down,
    /// The endpoint has received no request yet.
    #[default]
    Unknown,
}

impl EndpointState {
    /// Returns the state of an endpoint that instances see in two states.
    fn best(self, other: EndpointState) -> EndpointState {
        match (self, other) {
            (EndpointState::Up, _) | (_, EndpointState::Up) => EndpointState::Up,
            (EndpointState::Down, _) | (_, EndpointState::Down) => EndpointState::Down,
            _ => EndpointState::Unknown,
        }
    }
}

/// An endpoint of a Route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    pub address: SocketAddr,
    /// The share of requests in relation to the other endpoints.
    pub weight: u16,
    pub state: EndpointState,
    /// The requests that it answered.
    pub answered: u64,
    /// The requests and connections that failed.
    pub failed: u64,
    #[serde(skip)]
    id: String,
}

/// The traffic of a Route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTraffic {
    /// The [`route_id`].
    pub id: String,
    #[serde(flatten)]
    pub counters: Counters,
    /// Requests and connections in progress; `None` if the proxy does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    /// The changes in each second, over the last minute.
    pub rates: Rates,
    /// The mean time from a request to the head of its response, over the last requests, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    pub endpoints: Vec<Endpoint>,
    /// The additions since the rates were updated.
    #[serde(skip)]
    recent: Counters,
    #[serde(skip)]
    counts: Counts,
}

/// Changes in each second, as a mean that decays over a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    /// Finished requests and connections.
    pub requests: f64,
    /// Requests with a status of 5xx.
    pub server_errors: f64,
    /// Requests and connections that no endpoint answered.
    pub errors: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

impl Rates {
    /// Updates the rates after a time in which `more` was counted.
    fn update(&mut self, more: &Counters, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let old = (-seconds / RATE_PERIOD.as_secs_f64()).exp();
        let update = |rate: &mut f64, more: u64| *rate = *rate * old + more as f64 / seconds * (1.0 - old);
        update(&mut self.requests, more.total());
        update(&mut self.server_errors, more.requests[5]);
        update(&mut self.errors, more.errors);
        update(&mut self.bytes_in, more.bytes_in);
        update(&mut self.bytes_out, more.bytes_out);
    }

    fn add(&mut self, other: &Rates) {
        self.requests += other.requests;
        self.server_errors += other.server_errors;
        self.errors += other.errors;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

impl RouteTraffic {
    /// Adds the traffic of the same Route on another instance. An endpoint that answers any instance is up.
    pub(crate) fn merge(&mut self, other: RouteTraffic) {
        // Weighted by the requests, as the means are.
        let (one, more) = (self.counters.total() as f64, other.counters.total() as f64);
        self.mean_ms = match (self.mean_ms, other.mean_ms) {
            (Some(mean), Some(others)) if one + more > 0.0 => Some((mean * one + others * more) / (one + more)),
            (mean, others) => mean.or(others),
        };
        self.counters.add(&other.counters);
        self.rates.add(&other.rates);
        self.open = match (self.open, other.open) {
            (Some(open), Some(others)) => Some(open.saturating_add(others)),
            (open, others) => open.or(others),
        };
        for endpoint in other.endpoints {
            match self.endpoints.iter_mut().find(|known| known.address == endpoint.address) {
                None => self.endpoints.push(endpoint),
                Some(known) => {
                    known.answered = known.answered.saturating_add(endpoint.answered);
                    known.failed = known.failed.saturating_add(endpoint.failed);
                    known.state = known.state.best(endpoint.state);
                }
            }
        }
    }

    /// Returns whether no endpoint can get requests.
    pub fn is_unavailable(&self) -> bool {
        self.endpoints.iter().all(|endpoint| endpoint.weight == 0)
    }

    fn add(&mut self, delta: Delta) {
        self.recent.add(&delta.counters);
        let before = self.counters.total();
        self.counters.add(&delta.counters);
        self.open = delta.open;
        match delta.mean {
            Some(Mean::Last(mean)) => self.mean_ms = Some(mean),
            Some(Mean::New(sum, count)) if count > 0 => {
                let known = before.min(SAMPLES.saturating_sub(count)) as f64;
                let known = if self.mean_ms.is_some() { known } else { 0.0 };
                let old = self.mean_ms.unwrap_or_default();
                self.mean_ms = Some((old * known + sum) / (known + count as f64));
            }
            _ => {}
        }
        for (key, Attempts { answered, failed }) in delta.endpoints {
            let is_it = |endpoint: &&mut Endpoint| *endpoint.id == *key || endpoint.address.to_string() == *key;
            let Some(endpoint) = self.endpoints.iter_mut().find(is_it) else { continue };
            endpoint.answered += answered;
            endpoint.failed += failed;
            endpoint.state = match (answered, failed) {
                (0, 0) => endpoint.state,
                (0, _) => EndpointState::Down,
                _ => EndpointState::Up,
            };
        }
    }
}

/// The counters of all Routes, which the agent reads and others see.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    routes: BTreeMap<RouteKey, RouteTraffic>,
    /// The Routes by [`route_id`].
    ids: HashMap<String, RouteKey>,
    busiest: Busiest,
    spans: Spans,
    lost: u64,
    readings: u64,
}

impl Traffic {
    /// Follows the Site: new Routes begin with zero, and Routes that are gone are forgotten. A Route that was deleted and created again
    /// is a new one.
    pub fn follow(&self, site: &Site) {
        let before: Vec<RouteKey> = self.0.lock().routes.keys().cloned().collect();
        self.follow_routes(site, &site.routes.keys().cloned().chain(before).collect());
    }

    /// Follows the Site, where only these Routes may differ.
    pub fn follow_routes(&self, site: &Site, changed: &BTreeSet<RouteKey>) {
        let mut state = self.0.lock();
        let state = &mut *state;
        for key in changed {
            let before = state.routes.remove(key);
            if let Some(before) = &before {
                state.ids.remove(&before.id);
            }
            let upstream = site.routes.get(key);
            let id = upstream.map(|upstream| route_id(&upstream.uid));
            state.busiest.forget_unless(key, id.as_deref());
            let Some((upstream, id)) = upstream.zip(id) else { continue };
            let mut route = before.filter(|route| route.id == id).unwrap_or_default();
            let mut known: HashMap<SocketAddr, Endpoint> =
                std::mem::take(&mut route.endpoints).into_iter().map(|one| (one.address, one)).collect();
            let endpoint = |server: &Server| match known.remove(&server.address) {
                Some(endpoint) => Endpoint { weight: server.weight, ..endpoint },
                None => Endpoint {
                    address: server.address,
                    weight: server.weight,
                    state: EndpointState::Unknown,
                    answered: 0,
                    failed: 0,
                    id: backend_id(&upstream.uid, server.address),
                },
            };
            route.endpoints = upstream.servers.iter().map(endpoint).collect();
            state.ids.insert(id.clone(), key.clone());
            route.id = id;
            state.routes.insert(key.clone(), route);
        }
    }

    /// Adds a reading, a time after the previous one. What belongs to no Route of the Site is dropped.
    pub fn add(&self, reading: Reading, elapsed: Duration) {
        let mut state = self.0.lock();
        let State { routes, ids, busiest, spans, lost, readings } = &mut *state;
        for (id, delta) in reading.routes {
            if let Some(key) = ids.get(&*id)
                && let Some(route) = routes.get_mut(key)
            {
                busiest.add(key, &id, &delta.counters);
                route.add(delta);
            }
        }
        for route in routes.values_mut() {
            let recent = std::mem::take(&mut route.recent);
            route.rates.update(&recent, elapsed);
            route.counts.add(spans, &recent);
        }
        spans.advance(elapsed);
        busiest.choose();
        *lost += reading.lost;
        *readings += 1;
    }

    /// Returns the Route with an identifier.
    pub fn name_of(&self, id: &str) -> Option<String> {
        self.0.lock().ids.get(id).map(RouteKey::to_string)
    }
}
