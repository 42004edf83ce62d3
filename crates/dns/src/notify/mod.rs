//! NOTIFY (RFC 1996) to secondary servers: each published change of a zone is announced, and the state of each server is kept.
//!
//! [`Notifier::change`] is the listener of a [`crate::zone::publish::Publisher`]: the zone answers before it is announced. The request
//! has the SOA record, and is signed if the secondary server has a key. `schedule` decides when requests are sent.

mod schedule;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use schedule::{Schedule, Target};

use crate::transfer::message::{random_id, seconds_now};
use crate::tsig::{Key, Signer};
use crate::wire::header::{FLAG_AA, Header, Opcode};
use crate::wire::{Name, NameMap};
use crate::zone::Rrset;
use crate::zone::policy::ZonePattern;
use crate::zone::publish::Step;

pub use schedule::{Failure, Progress, State};

/// The maximum number of requests that are sent at once; a pause follows, so that a start with 100,000 zones is not a burst of as many.
const BURST_MAX: usize = 64;
const PAUSE: Duration = Duration::from_millis(20);

/// The size of a buffer for answers: larger ones are not of such a request.
const ANSWER_OCTETS_MAX: usize = 2_048;

/// A server that is notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secondary {
    /// The address of its DNS server.
    pub address: SocketAddr,
    /// The key that signs requests; `None`: they are not signed.
    pub key: Option<Arc<Key>>,
    /// The zones; none: all.
    pub zones: Vec<ZonePattern>,
    /// The source address of requests; `None`: the system selects it.
    pub source: Option<IpAddr>,
}

/// The sender of notifications.
pub struct Notifier {
    secondaries: Vec<Secondary>,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    schedule: Schedule,
    /// The SOA record of each announced zone.
    soa: NameMap<Rrset>,
}

/// A request in flight.
struct InFlight {
    target: Target,
    message: Vec<u8>,
    signer: Option<Signer>,
}

impl Notifier {
    /// Returns a notifier of these servers.
    pub fn new(secondaries: Vec<Secondary>) -> Self {
        Notifier { secondaries, inner: Mutex::default(), changed: Notify::new() }
    }

    /// Returns the servers.
    pub fn secondaries(&self) -> &[Secondary] {
        &self.secondaries
    }

    /// Announces the changes of a step.
    pub fn change(&self, step: &Step) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        for swap in &step.swaps {
            let has_it = |one: &Secondary| ZonePattern::any(&one.zones, &swap.apex);
            let mut targets = self.secondaries.iter().enumerate().filter(|(_, one)| has_it(one)).peekable();
            if targets.peek().is_none() {
                continue;
            }
            let soa = swap.after.as_ref().and_then(|version| version.zone.soa());
            let announced = soa.clone().zip(swap.new_serial()).filter(|(_, serial)| swap.old_serial() != Some(*serial));
            for (secondary, _) in targets {
                let target = Target { secondary, apex: swap.apex.clone() };
                match &announced {
                    Some((_, serial)) => inner.schedule.change(target, *serial, now),
                    None if soa.is_none() => inner.schedule.remove(&target),
                    None => {}
                }
            }
            match soa {
                Some(soa) => drop(inner.soa.insert(swap.apex.clone(), soa)),
                None => drop(inner.soa.remove(&swap.apex)),
            }
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Calls `each` with the state of each zone at each server, which is given by its position in [`Self::secondaries`].
    pub fn each_state(&self, mut each: impl FnMut(usize, &Name, &State)) {
        let inner = self.inner.lock();
        inner.schedule.states().for_each(|(secondary, apex, state)| each(secondary, apex, state));
    }

    /// Returns the state of a zone at each server that is notified of it, with the position of the server in [`Self::secondaries`].
    pub fn states_of(&self, apex: &Name) -> Vec<(usize, State)> {
        let inner = self.inner.lock();
        let states = (0..self.secondaries.len()).map(|secondary| (secondary, inner.schedule.state(secondary, apex)));
        states.filter_map(|(secondary, state)| Some((secondary, state?.clone()))).collect()
    }

    /// Sends requests and reads answers until `stop`.
    ///
    /// # Errors
    ///
    /// The error of the system if a socket cannot be opened, with the address.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), (IpAddr, io::Error)> {
        if self.secondaries.is_empty() {
            return Ok(());
        }
        let mut sockets: HashMap<IpAddr, UdpSocket> = HashMap::new();
        for secondary in &self.secondaries {
            let source = source_of(secondary);
            if let std::collections::hash_map::Entry::Vacant(place) = sockets.entry(source) {
                place.insert(UdpSocket::bind((source, 0)).await.map_err(|error| (source, error))?);
            }
        }
        let mut in_flight: HashMap<(SocketAddr, u16), InFlight> = HashMap::new();
        let mut buffer = [0; ANSWER_OCTETS_MAX];
        loop {
            let mut sent = 0;
            while sent < BURST_MAX
                && let Some((target, soa)) = self.next()
            {
                sent += 1;
                self.send(target, &soa, &sockets, &mut in_flight);
            }
            let next_at =
                if sent < BURST_MAX { self.inner.lock().schedule.next_at() } else { Some(Instant::now() + PAUSE) };
            let timer = async {
                match next_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let receive = async {
                // There is one socket for each source address.
                let readable = sockets.values().map(|socket| Box::pin(socket.readable()));
                drop(futures::future::select_all(readable).await);
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = receive => {
                    for socket in sockets.values() {
                        while let Ok((octets, from)) = socket.try_recv_from(&mut buffer) {
                            self.receive(&buffer[..octets], from, &mut in_flight);
                        }
                    }
                }
                () = self.changed.notified() => {}
                () = timer => {}
            }
            // Requests whose wait has ended.
            let inner = self.inner.lock();
            in_flight.retain(|_, request| inner.schedule.is_in_flight(&request.target));
        }
    }

    /// Returns the next request to send.
    fn next(&self) -> Option<(Target, Option<Rrset>)> {
        let mut inner = self.inner.lock();
        let (target, _) = inner.schedule.next(Instant::now())?;
        let soa = inner.soa.get(&target.apex).cloned();
        Some((target, soa))
    }

    fn send(
        &self,
        target: Target,
        soa: &Option<Rrset>,
        sockets: &HashMap<IpAddr, UdpSocket>,
        in_flight: &mut HashMap<(SocketAddr, u16), InFlight>,
    ) {
        let secondary = &self.secondaries[target.secondary];
        let id = random_id();
        let mut message = request(id, &target.apex, soa.as_ref());
        let signer = Signer::sign_request(secondary.key.as_ref(), &mut message, seconds_now());
        let socket = sockets.get(&source_of(secondary));
        let is_sent = socket.is_some_and(|socket| socket.try_send_to(&message, secondary.address).is_ok());
        if is_sent {
            // A late answer to an earlier request is of an earlier serial.
            in_flight.retain(|_, other| other.target != target);
            in_flight.insert((secondary.address, id), InFlight { target, message, signer });
        } else {
            self.inner.lock().schedule.fail(&target, Failure::NotSent, Instant::now());
        }
    }

    fn receive(&self, answer: &[u8], from: SocketAddr, in_flight: &mut HashMap<(SocketAddr, u16), InFlight>) {
        let Some(header) = Header::read(answer).filter(|header| header.is_response()) else { return };
        let key = (from, header.id);
        let Some(request) = in_flight.get(&key) else { return };
        let is_answer = header.opcode() == Opcode::NOTIFY
            && request
                .signer
                .as_ref()
                .is_none_or(|signer| header.rcode().0 != 0 || signer.verify(answer, seconds_now()));
        if !is_answer || !has_question(answer, &request.message) {
            return;
        }
        let Some(request) = in_flight.remove(&key) else { return };
        let mut inner = self.inner.lock();
        match header.rcode().0 {
            0 => inner.schedule.acknowledge(&request.target, Instant::now()),
            rcode => inner.schedule.fail(&request.target, Failure::Refused(rcode), Instant::now()),
        }
    }
}

/// Returns whether an answer has the question of the request, or none, as some servers answer errors.
fn has_question(answer: &[u8], request: &[u8]) -> bool {
    use crate::wire::question::Question;
    let Some(question) = Question::read(request) else { return false };
    match (Header::read(answer), Question::read(answer)) {
        (Some(header), _) if header.questions == 0 => true,
        (_, Some(other)) => other == question && other.name(answer).eq_ignore_ascii_case(question.name(request)),
        _ => false,
    }
}

/// Returns a request (RFC 1996 §3).
fn request(id: u16, apex: &Name, soa: Option<&Rrset>) -> Vec<u8> {
    let flags = u16::from(Opcode::NOTIFY.0) << 11 | FLAG_AA;
    let rdata = soa.and_then(|soa| soa.rdata.first());
    let header =
        Header { id, flags, questions: 1, answers: u16::from(rdata.is_some()), authorities: 0, additionals: 0 };
    let mut message = header.to_octets().to_vec();
    message.extend_from_slice(apex.as_wire());
    message.extend_from_slice(&[0, 6, 0, 1]);
    if let (Some(soa), Some(rdata)) = (soa, rdata) {
        message.extend_from_slice(&[0xc0, 0x0c, 0, 6, 0, 1]);
        message.extend_from_slice(&soa.ttl.seconds().to_be_bytes());
        message.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
        message.extend_from_slice(rdata);
    }
    message
}

fn source_of(secondary: &Secondary) -> IpAddr {
    let any = match secondary.address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    secondary.source.filter(|source| source.is_ipv4() == secondary.address.is_ipv4()).unwrap_or(any)
}
