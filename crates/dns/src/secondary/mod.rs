//! Zones from primary servers: this server as a secondary server (RFC 1034 §4.3.5, RFC 5936, RFC 1995, RFC 1996, RFC 9103).
//!
//! [`Secondary`] has the zones. [`Secondary::restore`] serves their copies on disk, and [`Secondary::run`] follows their primary
//! servers: it requests the serial when the refresh time of the SOA record has passed and after a NOTIFY, and transfers a newer
//! version. Each primary server is tried until one has a newer version, so that one that is behind does not stop the zone.
//!
//! ```text
//!  NOTIFY ──┐                                                                        ┌─► zone::publish
//!  refresh ─┴─► timers ─► client (SOA, IXFR, AXFR) ─► incoming (check) ─► build ─────┴─► copy on disk
//! ```
//!
//! A zone that was not refreshed within its expire time answers SERVFAIL, as one that was never transferred: it is known, and
//! its contents are not.

pub mod client;
mod copy;
pub mod incoming;
mod timers;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use client::{Error, Primary, fetch};
use copy::Copies;
use incoming::{Fault, Received, apply, check};
use timers::{Soa, Timers};

use crate::nameserver::hand_off::{Answer, HandOff, HandOffKind, Handler};
use crate::wire::header::{FLAG_AA, FLAG_QR, HEADER_OCTETS, Header, Opcode};
use crate::wire::{Class, Name, RecordType};
use crate::zone::image::Unavailable;
use crate::zone::publish::{Change, Origin, Publisher, What, build};
use crate::zone::{Contents, Serial, Zone, diff};

/// The maximum number of zones that are transferred at once.
const TRANSFERS_MAX: usize = 16;

/// The zones from primary servers.
pub struct Secondary {
    zones: BTreeMap<Name, FollowedZone>,
    copies: Copies,
    publisher: Arc<Publisher>,
    transfers: Semaphore,
}

/// A zone, and its state.
struct FollowedZone {
    apex: Name,
    primaries: Vec<Primary>,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    timers: Timers,
    /// The number of the first primary server to query: the last sender of a NOTIFY.
    first: usize,
    status: Status,
}

/// The state of a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The serial of the served version; `None`: there is none, or it has expired.
    pub serial: Option<Serial>,
    /// The time of the last answer of a primary server that has no newer version.
    pub refreshed: Option<SystemTime>,
    /// Whether the zone has expired.
    pub has_expired: bool,
    /// The errors of the last attempt, each with the address of the primary server, if all of them failed.
    pub error: Option<String>,
}

impl Status {
    /// Returns the name of the state: `expired`, `missing` (never transferred), `failing` (the last attempt failed), or `current`.
    pub fn word(&self) -> &'static str {
        match self {
            Status { has_expired: true, .. } => "expired",
            Status { serial: None, .. } => "missing",
            Status { error: Some(_), .. } => "failing",
            _ => "current",
        }
    }
}

/// A version that a primary server has sent.
struct Version {
    zone: Arc<Zone>,
    soa: Soa,
    serial: Serial,
    change: What,
}

impl Secondary {
    /// Returns the zones, with the directory of their copies.
    ///
    /// # Errors
    ///
    /// The error of the directory.
    pub fn new(
        zones: impl IntoIterator<Item = (Name, Vec<Primary>)>,
        directory: &Path,
        publisher: Arc<Publisher>,
    ) -> io::Result<Secondary> {
        let now = Instant::now();
        let zone = |(apex, primaries): (Name, Vec<Primary>)| {
            let state = State { timers: Timers::new(now), first: 0, status: Status::default() };
            (apex.clone(), FollowedZone { apex, primaries, state: Mutex::new(state), changed: Notify::new() })
        };
        let zones = zones.into_iter().map(zone).collect();
        Ok(Secondary { zones, copies: Copies::open(directory)?, publisher, transfers: Semaphore::new(TRANSFERS_MAX) })
    }

    /// Serves the copies on disk. It reads files, and takes time. Returns the problems of copies, which are transferred again.
    pub fn restore(&self) -> Vec<String> {
        let (now, mut problems) = (Instant::now(), Vec::new());
        for zone in self.zones.values() {
            let mut change = Change::unavailable(Origin::Primary, &zone.apex);
            match self.copies.read(&zone.apex, SystemTime::now()) {
                Ok(None) => {}
                Ok(Some((contents, age))) => {
                    let mut state = zone.state.lock();
                    match version(contents).ok().filter(|version| state.timers.restore(version.soa, age, now)) {
                        Some(Version { serial, change: what, .. }) => {
                            state.status.serial = Some(serial);
                            state.status.refreshed = SystemTime::now().checked_sub(age);
                            change = Change::of(&zone.apex, Origin::Primary, what);
                        }
                        None => {
                            state.status.has_expired = true;
                            change = expired(&zone.apex);
                        }
                    }
                }
                Err(problem) => problems.push(problem),
            }
            self.publisher.publish([change]);
        }
        problems
    }

    /// Follows the primary servers until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        join_all(self.zones.values().map(|zone| self.follow(zone, &stop))).await;
    }

    /// Returns the state of each zone.
    pub fn statuses(&self) -> impl Iterator<Item = (&Name, Status)> {
        self.zones.iter().map(|(apex, zone)| (apex, zone.state.lock().status.clone()))
    }

    /// Returns the addresses of the primary servers of a zone, and its state.
    pub fn zone(&self, apex: &Name) -> Option<(Vec<SocketAddr>, Status)> {
        let zone = self.zones.get(apex)?;
        Some((zone.primaries.iter().map(|primary| primary.address).collect(), zone.state.lock().status.clone()))
    }

    async fn follow(&self, zone: &FollowedZone, stop: &CancellationToken) {
        loop {
            let (next, expires) = {
                let timers = &zone.state.lock().timers;
                (timers.next(), timers.expires())
            };
            let until = expires.map_or(next, |expires| expires.min(next));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = zone.changed.notified() => continue,
                () = tokio::time::sleep_until(until.into()) => {}
            }
            self.expire(zone);
            if next <= Instant::now() {
                let attempt = async {
                    let _permit = self.transfers.acquire().await;
                    self.refresh(zone).await;
                };
                if stop.run_until_cancelled(attempt).await.is_none() {
                    return;
                }
            }
        }
    }

    fn expire(&self, zone: &FollowedZone) {
        let mut state = zone.state.lock();
        if state.timers.expire(Instant::now()) {
            tracing::error!(zone = %zone.apex, "zone expired: no primary server has answered; its names get SERVFAIL");
            (state.status.serial, state.status.has_expired) = (None, true);
            self.publisher.publish([expired(&zone.apex)]);
        }
    }

    /// Queries the primary servers, one after another, until one has a newer version.
    async fn refresh(&self, zone: &FollowedZone) {
        let first = {
            let mut state = zone.state.lock();
            state.timers.begin();
            state.first
        };
        let (mut errors, mut is_current) = (Vec::new(), false);
        for number in 0..zone.primaries.len() {
            let primary = &zone.primaries[(first + number) % zone.primaries.len()];
            match self.refresh_from(zone, primary).await {
                Ok(true) => return,
                Ok(false) => is_current = true,
                Err(error) => errors.push(format!("{}: {error}", primary.address)),
            }
        }
        let error = errors.join("; ");
        let mut state = zone.state.lock();
        let State { timers, status, .. } = &mut *state;
        let served = self.served(zone).and_then(|served| Soa::of(served.soa()?.rdata.first()?));
        match served.filter(|_| is_current) {
            Some(soa) => {
                timers.refreshed(soa, Instant::now());
                (status.refreshed, status.error) = (Some(SystemTime::now()), None);
                drop(state);
                if let Err(error) = self.copies.touch(&zone.apex, SystemTime::now()) {
                    let path = self.copies.path(&zone.apex);
                    tracing::warn!("{}: {error}; a restart may find the zone expired", path.display());
                }
            }
            None => {
                timers.failed(Instant::now());
                if status.error.as_ref() != Some(&error) {
                    tracing::warn!(zone = %zone.apex, %error, "failed to refresh the zone; retrying");
                }
                status.error = Some(error);
            }
        }
    }

    /// Returns whether the primary server had a newer version, which is served now.
    async fn refresh_from(&self, zone: &FollowedZone, primary: &Primary) -> Result<bool, Error> {
        let before = self.served(zone);
        let mut version = newer(primary, &zone.apex, before.clone(), false).await;
        if let Err(Error::Incremental(error)) = &version {
            tracing::info!(zone = %zone.apex, primary = %primary.address, %error, "incremental transfer failed; requesting the zone");
            version = newer(primary, &zone.apex, before, true).await;
        }
        let Some(version) = version? else { return Ok(false) };
        self.publish(zone, version, primary).await;
        Ok(true)
    }

    /// Returns the served version; `None` if there is none, or it has expired.
    fn served(&self, zone: &FollowedZone) -> Option<Arc<Zone>> {
        let version = self.publisher.of_primaries(&zone.apex)?;
        version.serial().is_some().then_some(version)
    }

    async fn publish(&self, zone: &FollowedZone, version: Version, primary: &Primary) {
        let Version { zone: served, soa, serial, change } = version;
        let step = self.publisher.publish([Change::of(&zone.apex, Origin::Primary, change)]);
        for error in step.refused {
            tracing::error!(zone = %zone.apex, %error, "failed to apply a transfer");
        }
        {
            let mut state = zone.state.lock();
            state.timers.refreshed(soa, Instant::now());
            let refreshed = Some(SystemTime::now());
            state.status = Status { serial: Some(serial), refreshed, has_expired: false, error: None };
        }
        tracing::info!(zone = %zone.apex, %serial, primary = %primary.address, "zone transferred");
        let copies = self.copies.clone();
        let written = tokio::task::spawn_blocking(move || copies.write(&served.contents())).await;
        if let Err(error) = written.map_err(io::Error::other).flatten() {
            let path = self.copies.path(&zone.apex);
            tracing::error!(
                "{}: {error}; the zone is served, but a restart does not have this version",
                path.display()
            );
        }
    }

    /// Answers a NOTIFY (RFC 1996 §4), and looks for a newer version. Its sender must be a primary server of the zone, by its address or
    /// by its key; others are refused.
    fn notified(&self, request: &HandOff<'_>) -> Option<Answer> {
        let apex = Name::from_wire(request.question.name(request.message)).ok()?;
        let zone = self.zones.get(&apex)?;
        let address: IpAddr = request.peer.address.ip().to_canonical();
        let has_key = |primary: &Primary| {
            primary.key.as_ref().zip(request.key).is_some_and(|(key, used)| key.name() == used.name())
        };
        // Several primary servers can share a key.
        let by_address = zone.primaries.iter().position(|primary| primary.address.ip() == address);
        let sender = by_address.or_else(|| zone.primaries.iter().position(has_key))?;
        if request.question.qtype != RecordType::SOA || request.question.qclass != Class::IN {
            return None;
        }
        let mut state = zone.state.lock();
        state.first = sender;
        state.timers.notify(Instant::now());
        drop(state);
        zone.changed.notify_one();
        let query = Header::read(request.message)?;
        let flags = FLAG_QR | FLAG_AA | u16::from(Opcode::NOTIFY.0) << 11;
        let header = Header { id: query.id, flags, questions: 1, ..Header::default() };
        let question = request.message.get(HEADER_OCTETS..request.question.end())?;
        Some(Answer::One([&header.to_octets(), question].concat()))
    }
}

impl Handler for Secondary {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        match request.kind {
            HandOffKind::Notify => self.notified(request),
            HandOffKind::Transfer | HandOffKind::Update => None,
        }
    }
}

fn expired(apex: &Name) -> Change {
    Change::whole(Origin::Primary, Arc::new(Zone::unavailable(apex.clone(), Unavailable::Expired)))
}

/// Requests the version after `before` from a primary server; `whole`: not as differences. Returns `None` if it has no newer one.
async fn newer(
    primary: &Primary,
    apex: &Name,
    before: Option<Arc<Zone>>,
    whole: bool,
) -> Result<Option<Version>, Error> {
    let have = before.as_ref().and_then(|before| before.serial());
    let received = fetch(primary, apex, have, whole).await?;
    let is_incremental = matches!(received, Received::Changes(_));
    let read = tokio::task::spawn_blocking(move || next_version(before.as_deref(), received));
    match read.await.map_err(io::Error::other)? {
        // The differences are wrong, or do not begin with our version.
        Err(fault) if is_incremental => Err(Error::Incremental(Box::new(fault.into()))),
        read => Ok(read?),
    }
}

/// Returns the version after `before` in an answer; `None` if there is no newer one.
fn next_version(before: Option<&Zone>, received: Received) -> Result<Option<Version>, Fault> {
    let have = before.and_then(Zone::serial);
    let (contents, old) = match received {
        Received::Current(_) => return Ok(None),
        Received::Whole(contents) => (contents, None),
        Received::Changes(differences) => {
            let old = before.map(Zone::contents).ok_or_else(|| Fault::Mismatch("there is no zone".to_owned()))?;
            let mut contents = old.clone();
            apply(&mut contents, differences)?;
            (contents, Some(old))
        }
    };
    check(&contents)?;
    let changes = old.map(|old| diff::owners(&old, &contents));
    let mut version = version(contents)?;
    // It announced a newer version than it has sent.
    if have.is_some_and(|have| !version.serial.is_after(have)) {
        return Err(Fault::Message("the transferred zone is not newer"));
    }
    if let Some(changes) = changes {
        version.change = What::Owners { changes, serial: version.serial };
    }
    Ok(Some(version))
}

/// Compiles a zone that was checked.
fn version(contents: Contents) -> Result<Version, Fault> {
    let zone = build(contents).map_err(|error| Fault::Check(error.to_string()))?;
    let soa = zone.soa().and_then(|rrset| Soa::of(rrset.rdata.first()?));
    match (soa, zone.serial()) {
        (Some(soa), Some(serial)) => Ok(Version { change: What::Whole(Arc::clone(&zone)), zone, soa, serial }),
        _ => Err(Fault::Check("no SOA record".to_owned())),
    }
}
