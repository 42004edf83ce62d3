//! Datagrams: one thread per worker and address, each with its own socket, from `recvmmsg` to `sendmmsg` without a lock.
//!
//! All workers of an address bind it with SO_REUSEPORT, so the kernel spreads clients over them by a hash and they share
//! nothing. A worker for several addresses would need a `poll` before each batch, about a tenth of the cost of an answer.
//! Sleeping threads cost nothing, so each address has its own workers.
//!
//! A thread sleeps in `recvmmsg` until datagrams arrive or [`IDLE`] passes: then it checks for a stop request and releases
//! replaced zones. After a stop request, it answers the requests that have already arrived and ends. Only the answers that come later
//! ([`super::hand_off`]) are sent by other threads.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, MsgHdr, Protocol, Socket, Type};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::hand_off::Later;
use super::stream::Service;
use super::worker::QueryWorker;
use super::{BindError, Config};
use crate::nameserver::{Exchange, Outcome, Peer, Transport};
use crate::sys::BATCH_MAX;
use crate::sys::datagrams::{Batch, Wait};
use crate::sys::{cpu, packet_info};

/// The maximum sleep of a worker: half of the time for a clean stop, and rare enough to cost nothing.
const IDLE: Duration = Duration::from_millis(100);

/// The maximum number of batches that a worker answers after a stop request.
const LAST_BATCHES_MAX: usize = 64;

/// One thread's part of an address.
pub(super) struct Worker {
    socket: Arc<Socket>,
    address: SocketAddr,
    /// The processor to which the worker is pinned, if any.
    cpu: Option<usize>,
    /// Whether replies to one peer may be combined.
    gso: bool,
}

/// Binds the sockets of one address's workers; the n-th stays on the n-th of `cpus` if there are any. Port 0 becomes a port that
/// the first socket gets and all share.
pub(super) fn bind(
    address: SocketAddr,
    config: &Config,
    cpus: &[usize],
) -> Result<(SocketAddr, Vec<Worker>), BindError> {
    let fault = |source| BindError::new(address, "UDP", source);
    let workers = config.udp_workers.max(1);
    // The first socket is bound without SO_REUSEPORT, so that an address in use by another process is an error, even if that
    // process shares it. Then it opens the address to the other workers.
    let first = socket(address, config).map_err(fault)?;
    first.bind(&address.into()).map_err(fault)?;
    let bound =
        first.local_addr().map_err(fault)?.as_socket().ok_or_else(|| fault(io::ErrorKind::InvalidData.into()))?;
    if workers > 1 {
        first.set_reuse_port(true).map_err(fault)?;
    }
    let mut sockets = vec![first];
    for _ in 1..workers {
        let another = socket(address, config).map_err(fault)?;
        another.set_reuse_port(true).map_err(fault)?;
        another.bind(&bound.into()).map_err(fault)?;
        sockets.push(another);
    }
    Ok((bound, workers_of(bound, sockets, config, cpus)))
}

/// Makes workers of sockets that are bound to `address` already: at least one worker for each socket, so that none is ignored;
/// if there are fewer sockets than workers, some share one.
pub(super) fn adopt(
    address: SocketAddr,
    given: Vec<UdpSocket>,
    config: &Config,
    cpus: &[usize],
) -> Result<Vec<Worker>, BindError> {
    let open = || -> io::Result<Vec<Socket>> {
        let given: Vec<Socket> = given.into_iter().map(Socket::from).collect();
        for socket in &given {
            socket.set_nonblocking(false)?;
            tune(socket, address, config)?;
        }
        let more = config.udp_workers.saturating_sub(given.len());
        let shared = given.iter().cycle().take(more).map(Socket::try_clone).collect::<io::Result<Vec<_>>>()?;
        Ok(given.into_iter().chain(shared).collect())
    };
    let sockets = open().map_err(|source| BindError::new(address, "UDP", source))?;
    Ok(workers_of(address, sockets, config, cpus))
}

fn workers_of(address: SocketAddr, sockets: Vec<Socket>, config: &Config, cpus: &[usize]) -> Vec<Worker> {
    let place = |(number, socket)| {
        let cpu = cpus.get(number % cpus.len().max(1)).copied();
        Worker { socket: Arc::new(socket), address, cpu, gso: config.udp_gso }
    };
    sockets.into_iter().enumerate().map(place).collect()
}

fn socket(address: SocketAddr, config: &Config) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // The two families have separate sockets: an address has one meaning, and 0.0.0.0 and [::] can both be used.
        socket.set_only_v6(true)?;
    }
    tune(&socket, address, config)?;
    Ok(socket)
}

/// Sets the options of every socket, inherited or not.
fn tune(socket: &Socket, address: SocketAddr, config: &Config) -> io::Result<()> {
    if address.ip().is_unspecified() {
        packet_info::enable(socket.as_fd(), address)?;
    }
    // Best effort: the kernel limits the buffers, and an old one may not support the third option.
    drop(socket.set_recv_buffer_size(config.udp_buffer_octets));
    drop(socket.set_send_buffer_size(config.udp_buffer_octets));
    drop(match config.udp_dont_fragment {
        true => packet_info::forbid_fragments(socket.as_fd(), address),
        false => packet_info::ignore_path_mtu(socket.as_fd(), address),
    });
    socket.set_read_timeout(Some(IDLE))?;
    // Sending waits for room, which is milliseconds at worst. A device that never drains must not block a worker: after the
    // first reply of a batch that waits in vain, the rest is dropped, so that a batch waits at most once.
    socket.set_write_timeout(Some(IDLE))
}

impl Worker {
    /// Answers until a stop is requested.
    pub(super) fn run(
        self,
        mut query_worker: QueryWorker,
        counters: &Counters,
        late_replies: &LateReplies,
        stop: &AtomicBool,
    ) {
        if let Some(cpu) = self.cpu
            && let Err(error) = cpu::pin(cpu)
        {
            tracing::warn!(cpu, %error, "failed to pin a UDP worker to its processor");
        }
        let mut batch = Batch::new();
        if self.gso {
            batch.enable_gso(self.socket.as_fd());
        }
        loop {
            // No query may make a worker panic. If one does, more would follow, and other clients still need answers: only its
            // batch is lost.
            let serve = || self.serve(&mut batch, &mut query_worker, counters, late_replies, stop);
            match catch_unwind(AssertUnwindSafe(serve)) {
                Ok(()) => return,
                Err(_) => {
                    counters.panics.add(1);
                    query_worker.clean();
                }
            }
        }
    }

    fn serve(
        &self,
        batch: &mut Batch,
        query_worker: &mut QueryWorker,
        counters: &Counters,
        late_replies: &LateReplies,
        stop: &AtomicBool,
    ) {
        let mut exchanges = Vec::with_capacity(BATCH_MAX);
        while !stop.load(Ordering::Relaxed) {
            exchanges = self.serve_batch(batch, Wait::ForOne, query_worker, (counters, late_replies), exchanges).1;
        }
        for _ in 0..LAST_BATCHES_MAX {
            let received;
            (received, exchanges) =
                self.serve_batch(batch, Wait::No, query_worker, (counters, late_replies), exchanges);
            if received == 0 {
                break;
            }
        }
    }

    /// Serves one batch: receive, answer, send. Returns the number of datagrams, and the vector to reuse.
    fn serve_batch<'a>(
        &self,
        batch: &mut Batch,
        wait: Wait,
        query_worker: &mut QueryWorker,
        (counters, late_replies): (&Counters, &LateReplies),
        exchanges: Vec<Exchange<'a>>,
    ) -> (usize, Vec<Exchange<'a>>) {
        counters.iterations.add(1);
        let received = match batch.receive(self.socket.as_fd(), wait) {
            Ok(received) => received,
            Err(error) => {
                match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                        query_worker.refresh()
                    }
                    // For example, an ICMP error for an earlier reply, which is irrelevant for the next query.
                    _ => counters.receive_errors.add(1),
                }
                return (0, exchanges);
            }
        };
        // Small, because they are cleared for every batch, even of one query.
        let mut slots = [0u8; BATCH_MAX];
        let mut lengths = [0u16; BATCH_MAX];
        let mut exchanges = emptied(exchanges);
        let begun = Instant::now();
        let now = query_worker.begin(begun);
        // Not a `for`: the compiler does not always inline its calls of `next`.
        batch.each().enumerate().for_each(|(number, datagram)| {
            slots[number] = datagram.slot as u8;
            let random = query_worker.random.next();
            let peer = Peer { address: datagram.source, transport: Transport::Udp, now, random, keepalive: None };
            exchanges.push(Exchange::new(datagram.query, peer, datagram.reply));
        });
        let later = query_worker.answer_batch(&mut exchanges);
        for (length, exchange) in lengths.iter_mut().zip(&exchanges) {
            if exchange.outcome == Outcome::Reply {
                *length = exchange.response.octets().len() as u16;
            }
        }
        let exchanges = emptied(exchanges);
        for (slot, length) in slots.iter().zip(lengths).take(received) {
            if length > 0 {
                batch.queue(usize::from(*slot), usize::from(length));
            }
        }
        for (number, later) in later {
            if let Some(control) = batch.reply_control(usize::from(slots[number])) {
                late_replies.send(later, Arc::clone(&self.socket), control);
            }
        }
        let had_gso = batch.is_gso_on();
        let sent = batch.send(self.socket.as_fd());
        if had_gso && !batch.is_gso_on() {
            // At most once in a worker's life.
            counters.gso_refused.add(1);
        }
        if sent.too_large > 0 {
            // An interface with such a small MTU is rare: from now on, the kernel fragments on this socket, and clients retry the
            // rejected queries.
            drop(packet_info::ignore_path_mtu(self.socket.as_fd(), self.address));
        }

        counters.durations(Transport::Udp).record(received as u64, begun.elapsed());
        counters.batches.add(1);
        counters.datagrams.add(received as u64);
        counters.replies.add(sent.sent as u64);
        counters.gso_messages.add(sent.gso_messages as u64);
        counters.send_errors.add(sent.failed as u64);
        (received, exchanges)
    }
}

/// Sends the answers that come later.
pub(super) struct LateReplies {
    pub(super) runtime: Handle,
    pub(super) tasks: TaskTracker,
    pub(super) service: Arc<Service>,
}

impl LateReplies {
    /// Sends the answer when it is ready, by the socket that received the request, with the control data of the reply.
    fn send(&self, later: Later, socket: Arc<Socket>, control: Box<[u8]>) {
        let service = Arc::clone(&self.service);
        let reply = async move {
            let peer = later.peer.address.into();
            let message = service.wait_for(later).await;
            let octets = [IoSlice::new(&message)];
            let header = MsgHdr::new().with_addr(&peer).with_buffers(&octets).with_control(&control);
            // A full socket must not block other answers; the client repeats its request.
            let counter = match socket.sendmsg(&header, libc::MSG_DONTWAIT) {
                Ok(_) => &service.counters.replies,
                Err(_) => &service.counters.send_errors,
            };
            counter.add_shared(1);
        };
        self.tasks.spawn_on(reply, &self.runtime);
    }
}

/// Returns the same memory for the exchanges of another batch: a vector without elements has no borrows. (The standard library
/// collects in place; otherwise, this would still be correct, and allocate once per batch.)
fn emptied<'b>(mut exchanges: Vec<Exchange<'_>>) -> Vec<Exchange<'b>> {
    exchanges.clear();
    exchanges.into_iter().map(|_| unreachable!("the vector was cleared")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_exchanges_is_used_again() {
        let exchanges: Vec<Exchange<'_>> = Vec::with_capacity(BATCH_MAX);
        let before = exchanges.as_ptr();
        let after = emptied(exchanges);
        assert_eq!((after.as_ptr(), after.capacity()), (before, BATCH_MAX));
    }
}
