//! UPDATE (RFC 2136) for ACME clients: changes of TXT records, signed by keys that may make them.
//!
//! [`Updates`] is the handler of such requests. It reads a request, checks it against the zone, and passes its changes as a [`Job`] to the
//! process that carries them out, which decides about the names. The client gets the answer of the job later. Without a [`Right`],
//! UPDATE is not implemented.
//!
//! A client that gets no answer sends its request again, and an attacker can send a recorded one. Either gets the answer of the
//! first one, and causes nothing (`recent.rs`).

mod plan;
mod recent;
mod request;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{Context, SHA256};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use self::recent::{Fingerprint, Pending, Recent};
use crate::nameserver::hand_off::{Answer, HandOff};
use crate::transfer::message::Head;
use crate::wire::Name;
use crate::wire::header::Rcode;

pub use plan::{Operation, plan};
pub use request::{RECORDS_MAX, Record, Request};

/// The maximum number of jobs in progress. Each waits for the API and for other name servers.
const JOBS_MAX: usize = 64;

/// The maximum number of jobs of one right in progress, so that one client does not take the room of the others.
const JOBS_PER_RIGHT_MAX: usize = 8;

/// A right to change records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// The name of the key that must sign the request.
    pub key: Name,
    /// The owner of the names that the key can change, for the process that carries out the jobs.
    pub holder: Arc<str>,
}

/// The changes of a request, to be carried out.
#[derive(Debug)]
pub struct Job {
    /// The right that permits them.
    pub right: Right,
    /// The apex of the zone.
    pub zone: Name,
    /// The changes, in order.
    pub operations: Vec<Operation>,
    /// The response code for the client. Without one, the client gets SERVFAIL.
    pub answer: oneshot::Sender<Rcode>,
    /// The room that it takes, if it is limited.
    permits: Vec<OwnedSemaphorePermit>,
}

impl Job {
    /// Returns a job, and the receiver of its answer.
    pub fn new(right: Right, zone: Name, operations: Vec<Operation>) -> (Self, oneshot::Receiver<Rcode>) {
        let (answer, answered) = oneshot::channel();
        (Job { right, zone, operations, answer, permits: Vec::new() }, answered)
    }
}

/// Labels of requests by their result. `applied`: the changes were carried out. `repeated`: a copy of an earlier request, which got the
/// same answer. `refused`: not permitted. `not_authoritative`: for a zone that the server does not have, or with names outside of the
/// zone. `prerequisite`: with a prerequisite that was not met. `failed`: the job failed, or exceeded the maximum number of jobs.
pub const RESULTS: [&str; 7] =
    ["applied", "repeated", "refused", "not_authoritative", "malformed", "prerequisite", "failed"];

/// The numbers of requests by [`RESULTS`].
#[derive(Default)]
struct Counters([AtomicU64; RESULTS.len()]);

impl Counters {
    const REPEATED: usize = 1;

    fn add(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    fn add_result(&self, rcode: Rcode) {
        self.add(match rcode {
            Rcode::NOERROR => 0,
            Rcode::REFUSED => 2,
            Rcode::NOTAUTH | Rcode::NOTZONE => 3,
            Rcode::FORMERR => 4,
            Rcode::NXDOMAIN | Rcode::YXDOMAIN | Rcode::NXRRSET | Rcode::YXRRSET => 5,
            _ => 6,
        });
    }
}

/// The handler of UPDATE requests.
pub struct Updates {
    rights: ArcSwap<Vec<(Right, Arc<Semaphore>)>>,
    jobs: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
    recent: Mutex<Recent>,
    counters: Arc<Counters>,
}

impl Updates {
    /// Returns a handler that permits these rights, and the receiver of its jobs.
    pub fn new(rights: Vec<Right>) -> (Arc<Self>, mpsc::Receiver<Job>) {
        let (jobs, receiver) = mpsc::channel(JOBS_MAX);
        let updates = Updates {
            rights: ArcSwap::default(),
            jobs,
            room: Arc::new(Semaphore::new(JOBS_MAX)),
            recent: Mutex::default(),
            counters: Arc::default(),
        };
        updates.set_rights(rights);
        (Arc::new(updates), receiver)
    }

    /// Replaces the rights. Jobs in progress continue.
    pub fn set_rights(&self, rights: Vec<Right>) {
        let with_room = |right| (right, Arc::new(Semaphore::new(JOBS_PER_RIGHT_MAX)));
        self.rights.store(Arc::new(rights.into_iter().map(with_room).collect()));
    }

    /// Returns the numbers of requests since the start, by [`RESULTS`].
    pub fn counts(&self) -> [u64; RESULTS.len()] {
        self.counters.0.each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Returns the answer to a request with the opcode UPDATE; `None`: the refusal.
    pub fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        let rights = self.rights.load();
        if rights.is_empty() {
            return None;
        }
        let head = Head::of(request.message)?;
        let fail = |rcode| {
            self.counters.add_result(rcode);
            Some(Answer::One(head.reply(rcode)))
        };
        let found = request.key.and_then(|key| rights.iter().find(|(right, _)| right.key == *key.name()));
        let Some((right, room)) = found else { return fail(Rcode::REFUSED) };
        let operations = match Request::read(request.message).and_then(|read| {
            let zone = request.zone.ok_or(Rcode::NOTAUTH)?;
            plan(&read, zone)
        }) {
            Ok(operations) => operations,
            Err(rcode) => return fail(rcode),
        };
        let (Some(zone), false) = (request.zone, operations.is_empty()) else { return fail(Rcode::NOERROR) };
        let fingerprint = Fingerprint {
            mac: request.mac.into(),
            message: digest(request.peer.address, request.message),
            at: request.peer.now,
        };
        let mut recent = self.recent.lock();
        let pending = match recent.find(&fingerprint) {
            Some(pending) => {
                self.counters.add(Counters::REPEATED);
                pending
            }
            None => {
                let permit = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_owned().ok();
                let (Some(one), Some(other)) = (permit(&self.room), permit(room)) else { return fail(Rcode::SERVFAIL) };
                let (mut job, answered) = Job::new(right.clone(), zone.apex().clone(), operations);
                job.permits = vec![one, other];
                if self.jobs.try_send(job).is_err() {
                    return fail(Rcode::SERVFAIL);
                }
                let counters = Arc::clone(&self.counters);
                let rcode = answered.map(move |answer| {
                    let rcode = answer.unwrap_or(Rcode::SERVFAIL);
                    counters.add_result(rcode);
                    rcode
                });
                let pending: Pending = rcode.boxed().shared();
                recent.add(fingerprint, pending.clone());
                pending
            }
        };
        Some(Answer::Later(Box::pin(async move { head.reply(pending.await) })))
    }
}

/// Returns a digest of a request and the address of its client.
fn digest(client: SocketAddr, message: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(client.to_string().as_bytes());
    context.update(&[0]);
    context.update(message);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 octets")
}
