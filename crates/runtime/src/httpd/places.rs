//! Limits of connections per client, and of unread responses.
//!
//! A connection takes a slot when it is accepted. Beyond the limits, the oldest connection without a request in flight is closed
//! in favor of the new one, but a trusted connection is never closed for an untrusted one. If there is none, the new connection
//! is closed immediately. No connection waits in the accept queue, so a server that is full of silent connections still serves
//! all clients. One eighth of the slots is reserved for loopback and for addresses from which a user of the platform itself has
//! authenticated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::flood::{self, Input};

/// The divisor of the reserved part of the places and of the responses.
const RESERVED_PART: usize = 8;
/// The time for which an address counts as one of the platform after one of its users has authenticated from there.
const PLATFORM_FOR: Duration = Duration::from_secs(3600);
/// The maximum number of such addresses in memory.
const PLATFORM_ADDRESSES_MAX: usize = 4096;
/// The number of unread responses of one connection that may be dropped before the connection is closed.
const STALLED_MAX: usize = 8;

/// The places of one server; its listeners may share them.
pub struct ConnectionSlots {
    pub(super) limits: Limits,
    state: Mutex<State>,
}

/// The counts of rejected and closed connections by reason, and of open ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Open connections.
    pub open: usize,
    /// The octets of responses in flight that count.
    pub answer_octets: usize,
    /// Connections refused because all places were taken.
    pub refused_total: u64,
    /// Connections refused because their client had reached its maximum.
    pub refused_client: u64,
    /// Responses refused because too many octets were in flight.
    pub refused_answers: u64,
    /// Idle connections closed in favor of new ones.
    pub closed_evicted: u64,
    /// Connections closed because no request came in time.
    pub closed_idle: u64,
    /// Connections closed because their client left too many responses unread.
    pub closed_stalled: u64,
    /// Connections closed because their client sent too much that belongs to no request.
    pub closed_flooded: u64,
}

/// The order of closing: untrusted connections before trusted ones, those without a request before others, then by age.
type Rank = (bool, bool, u64);

#[derive(Default)]
struct State {
    next: u64,
    connections: HashMap<u64, Connection>,
    clients: HashMap<IpAddr, Client>,
    idle: BTreeMap<Rank, u64>,
    /// The time of the last authentication of a platform user from each address.
    platform: HashMap<IpAddr, Instant>,
    totals: Totals,
}

struct Connection {
    client: IpAddr,
    in_flight: usize,
    stalled: usize,
    is_platform: bool,
    /// The time when the connection became idle, and its position among the idle ones; `None` while it must not be closed for
    /// others.
    idle_since: Instant,
    rank: Option<Rank>,
    had_request: bool,
    close: CancellationToken,
}

#[derive(Default)]
struct Client {
    connections: usize,
    idle: BTreeSet<Rank>,
    answers: usize,
}

/// The place of a connection, freed when this is dropped.
pub(super) struct ConnectionSlot {
    of: Arc<ConnectionSlots>,
    id: u64,
    close: CancellationToken,
    input: Arc<Input>,
}

/// A request in flight, until its response is consumed or dropped.
pub(super) struct InFlight {
    place: Arc<ConnectionSlot>,
    client: IpAddr,
    octets: usize,
}

impl From<Limits> for Arc<ConnectionSlots> {
    fn from(limits: Limits) -> Self {
        Arc::new(ConnectionSlots { limits, state: Mutex::default() })
    }
}

impl ConnectionSlots {
    /// Returns the counts of rejected and closed connections.
    pub fn totals(&self) -> Totals {
        let state = self.state.lock();
        Totals { open: state.connections.len(), ..state.totals }
    }

    /// Returns a slot for a connection from `address`; `None` if the connection must be closed immediately.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Arc<ConnectionSlot>> {
        let client = client(address);
        let mut state = self.state.lock();
        let of_client = state.clients.get(&client).map_or(0, |client| client.connections);
        if of_client >= self.limits.connections_per_client.max(1) {
            let oldest = state.clients.get(&client).and_then(|client| client.idle.first().copied());
            if !self.evict(&mut state, oldest) {
                state.totals.refused_client += 1;
                return None;
            }
        }
        let (all, is_trusted) = (self.limits.connections, state.is_trusted(client));
        let room = if is_trusted { all } else { all - all / RESERVED_PART };
        if state.connections.len() >= room {
            let oldest = state.idle.keys().next().copied().filter(|(of_trusted, ..)| is_trusted || !of_trusted);
            if !self.evict(&mut state, oldest) {
                state.totals.refused_total += 1;
                return None;
            }
        }
        let close = CancellationToken::new();
        let id = state.number();
        let connection = Connection {
            client,
            in_flight: 0,
            stalled: 0,
            is_platform: false,
            idle_since: Instant::now(),
            rank: None,
            had_request: false,
            close: close.clone(),
        };
        state.connections.insert(id, connection);
        state.clients.entry(client).or_default().connections += 1;
        state.becomes_idle(id);
        Some(Arc::new(ConnectionSlot { of: self.clone(), id, close, input: Arc::default() }))
    }

    fn evict(&self, state: &mut State, oldest: Option<Rank>) -> bool {
        let Some(id) = oldest.and_then(|rank| state.idle.get(&rank).copied()) else { return false };
        if let Some(connection) = state.remove(id) {
            connection.close.cancel();
            state.totals.closed_evicted += 1;
        }
        true
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_trusted(&self, client: IpAddr) -> bool {
        client.is_loopback() || self.platform.get(&client).is_some_and(|at| at.elapsed() < PLATFORM_FOR)
    }

    fn becomes_idle(&mut self, id: u64) {
        let number = self.number();
        let Some(client) = self.connections.get(&id).map(|connection| connection.client) else { return };
        let is_trusted = self.is_trusted(client);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.idle_since = Instant::now();
        if connection.is_platform {
            return;
        }
        let rank = (is_trusted, connection.had_request, number);
        connection.rank = Some(rank);
        self.idle.insert(rank, id);
        self.clients.entry(connection.client).or_default().idle.insert(rank);
    }

    fn is_not_idle(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(rank) = connection.rank.take() else { return };
        self.idle.remove(&rank);
        if let Some(client) = self.clients.get_mut(&connection.client) {
            client.idle.remove(&rank);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        self.is_not_idle(id);
        let connection = self.connections.remove(&id)?;
        if let Some(client) = self.clients.get_mut(&connection.client) {
            client.connections -= 1;
        }
        self.forget_unused(connection.client);
        Some(connection)
    }

    fn forget_unused(&mut self, client: IpAddr) {
        if self.clients.get(&client).is_some_and(|client| client.connections == 0 && client.answers == 0) {
            self.clients.remove(&client);
        }
    }
}

impl ConnectionSlot {
    /// Returns the meter of the connection's input.
    pub(super) fn input(&self) -> &Arc<Input> {
        &self.input
    }

    /// Counts the end of the connection because of its input.
    pub(super) fn count_flood(&self) {
        self.of.state.lock().totals.closed_flooded += 1;
    }

    /// Records the start of a request.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.input.expect(flood::REQUEST_OCTETS);
        let mut state = self.of.state.lock();
        state.is_not_idle(self.id);
        let mut client = IpAddr::from([0, 0, 0, 0]);
        if let Some(connection) = state.connections.get_mut(&self.id) {
            connection.in_flight += 1;
            connection.had_request = true;
            client = connection.client;
        }
        InFlight { place: self.clone(), client, octets: 0 }
    }

    /// Records that a user of the platform itself has authenticated on the connection: it is no longer closed in favor of others.
    pub(super) fn is_platforms(&self) {
        let mut state = self.of.state.lock();
        state.is_not_idle(self.id);
        let Some(connection) = state.connections.get_mut(&self.id) else { return };
        connection.is_platform = true;
        let client = connection.client;
        if state.platform.len() >= PLATFORM_ADDRESSES_MAX {
            state.platform.retain(|_, at| at.elapsed() < PLATFORM_FOR);
        }
        if state.platform.len() < PLATFORM_ADDRESSES_MAX || state.platform.contains_key(&client) {
            state.platform.insert(client, Instant::now());
        }
    }

    /// Completes when the connection must be closed in favor of another, or because its client does not read.
    pub(super) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// Completes when the connection has had no request in flight for longer than the idle timeout.
    pub(super) async fn idle_too_long(&self) {
        loop {
            let limits = &self.of.limits;
            let until = {
                let state = self.of.state.lock();
                let Some(connection) = state.connections.get(&self.id) else { return };
                match (connection.in_flight, connection.had_request) {
                    (0, true) => connection.idle_since + limits.idle,
                    (0, false) => connection.idle_since + limits.first,
                    _ => Instant::now() + limits.idle,
                }
            };
            if until <= Instant::now() {
                self.of.state.lock().totals.closed_idle += 1;
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.of.state.lock().remove(self.id);
    }
}

impl InFlight {
    /// Counts a response of `octets`; returns false if there are too many in flight, of all clients or of this one. A client
    /// without any can have one of any size, as long as there is space for it.
    pub(super) fn count(&mut self, octets: usize) -> bool {
        let places = &self.place.of;
        let all = places.limits.answer_octets;
        if all == usize::MAX || octets <= super::SMALL_ANSWER_OCTETS {
            return true;
        }
        let mut state = places.state.lock();
        let room = if state.is_trusted(self.client) { all } else { all - all / RESERVED_PART };
        let of_client = state.clients.get(&self.client).map_or(0, |client| client.answers);
        let is_over = state.totals.answer_octets > 0 && state.totals.answer_octets + octets > room;
        if is_over || (of_client > 0 && of_client + octets > all / RESERVED_PART) {
            state.totals.refused_answers += 1;
            return false;
        }
        state.totals.answer_octets += octets;
        state.clients.entry(self.client).or_default().answers += octets;
        self.octets = octets;
        true
    }

    /// Records that the client read nothing of the response for too long.
    pub(super) fn stalled(&self) {
        let mut state = self.place.of.state.lock();
        let Some(connection) = state.connections.get_mut(&self.place.id) else { return };
        connection.stalled += 1;
        if connection.stalled == STALLED_MAX {
            connection.close.cancel();
            state.totals.closed_stalled += 1;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.place.of.state.lock();
        if self.octets > 0 {
            state.totals.answer_octets -= self.octets;
            if let Some(client) = state.clients.get_mut(&self.client) {
                client.answers -= self.octets;
            }
            state.forget_unused(self.client);
        }
        let Some(connection) = state.connections.get_mut(&self.place.id) else { return };
        connection.in_flight -= 1;
        if connection.in_flight == 0 {
            state.becomes_idle(self.place.id);
        }
    }
}

/// Returns the key of one client: an IPv4 address, or the /56 of an IPv6 address, which is the usual size of one site.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6((address.to_bits() & (!0 << (128 - 56))).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, connections_per_client: usize) -> Arc<ConnectionSlots> {
        Limits { connections, connections_per_client, answer_octets: 800_000, ..Limits::default() }.into()
    }

    fn admit(places: &Arc<ConnectionSlots>, address: &str) -> Option<Arc<ConnectionSlot>> {
        places.admit(address.parse().expect("an address"))
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_makes_room() {
        let places = places(8, 4);
        let mut held: Vec<_> = (1..=7).filter_map(|index| admit(&places, &format!("192.0.2.{index}"))).collect();
        let busy = held[0].begin();
        drop(held[1].begin());
        let _new = admit(&places, "198.51.100.1").expect("room is made");
        assert!(held[2].close.is_cancelled(), "the oldest that never sent a request");
        assert!(!held[0].close.is_cancelled() && !held[1].close.is_cancelled());
        assert_eq!(places.totals().open, 7);
        let all_busy: Vec<_> = held.iter().chain([&_new]).map(ConnectionSlot::begin).collect();
        assert!(admit(&places, "198.51.100.2").is_none(), "no client is idle");
        let _local = admit(&places, "127.0.0.1").expect("the reserve is for loopback");
        assert_eq!((places.totals().refused_total, places.totals().closed_evicted), (1, 1));
        drop((busy, all_busy, _local));
        held.clear();
        drop(_new);
        assert_eq!(places.totals().open, 0);
        assert!(places.state.lock().clients.is_empty() && places.state.lock().idle.is_empty());
    }

    #[tokio::test]
    async fn a_stranger_closes_no_trusted_connection() {
        let places = places(8, 8);
        let local = admit(&places, "127.0.0.1").expect("a place");
        let idle = admit(&places, "192.0.2.1").expect("a place");
        let strangers: Vec<_> = (1..=5).filter_map(|_| admit(&places, "198.51.100.1")).collect();
        let _busy: Vec<_> = strangers.iter().map(ConnectionSlot::begin).collect();
        // The connection from loopback is older.
        let new = admit(&places, "203.0.113.1").expect("room is made");
        let _busy_too = new.begin();
        assert!(idle.close.is_cancelled() && !local.close.is_cancelled());
        assert!(admit(&places, "203.0.113.2").is_none());
        assert!(!local.close.is_cancelled());
        // A trusted connection takes the reserve, and then the place of another one.
        let _reserved = admit(&places, "127.0.0.1").expect("the reserve");
        assert!(!local.close.is_cancelled());
        let _next = admit(&places, "127.0.0.1").expect("room is made");
        assert!(local.close.is_cancelled());
    }

    #[tokio::test]
    async fn a_client_is_bounded_and_replaces_its_own() {
        let places = places(80, 2);
        let first = admit(&places, "2001:db8:0:1::1").expect("a place");
        let second = admit(&places, "2001:db8:0:ff::2").expect("a place");
        let third = admit(&places, "2001:db8::3").expect("the oldest of the site goes");
        assert!(first.close.is_cancelled() && !second.close.is_cancelled());
        let _busy = (second.begin(), third.begin());
        assert!(admit(&places, "2001:db8::4").is_none());
        assert!(admit(&places, "2001:db9::4").is_some());
        assert_eq!(places.totals().refused_client, 1);
    }

    #[tokio::test]
    async fn users_of_the_platform_keep_their_connections_and_may_use_the_reserve() {
        let places = places(8, 8);
        let ours = admit(&places, "192.0.2.1").expect("a place");
        ours.is_platforms();
        drop(ours.begin());
        let others: Vec<_> = (1..=6).filter_map(|_| admit(&places, "198.51.100.1")).collect();
        let _busy: Vec<_> = others.iter().map(ConnectionSlot::begin).collect();
        assert!(admit(&places, "203.0.113.1").is_none());
        assert!(!ours.close.is_cancelled());
        assert!(admit(&places, "192.0.2.1").is_some());
    }

    #[tokio::test]
    async fn answers_are_bounded_by_client_and_freed() {
        let places = places(8, 8);
        let place = admit(&places, "192.0.2.1").expect("a place");
        let (mut first, mut second, mut small) = (place.begin(), place.begin(), place.begin());
        assert!(first.count(90_000) && !second.count(90_000) && small.count(100));
        drop(first);
        assert!(second.count(90_000));
        let other = admit(&places, "192.0.2.2").expect("a place");
        assert!(other.begin().count(300_000), "one of any size");
        for _ in 0..STALLED_MAX {
            place.begin().stalled();
        }
        assert!(place.close.is_cancelled());
    }
}
