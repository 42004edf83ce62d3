//! Sockets: how queries come in and responses go out. All DNS is in [`crate::nameserver`].
//!
//! [`bind`] opens every socket first, so that an address in use is one clear error before anything runs; [`Bound::start`] then
//! starts the UDP workers (`udp`: threads) and the streams (`stream`: tasks, over `tcp` and `tls`); [`Running::stop`] ends them,
//! after answers to all requests that have arrived.

mod admission;
mod buffered;
mod clock;
mod count;
mod counters;
pub mod durations;
mod encrypted;
mod hand_off;
pub mod https;
pub mod inherited_sockets;
mod panic;
pub mod query_log;
#[cfg(feature = "quic")]
pub mod quic;
mod random;
mod random_sampler;
mod requests;
pub mod ring;
mod stream;
mod tcp;
mod tls;
pub mod tls_base;
mod udp;
pub mod wildcard_hits;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio_util::task::TaskTracker;

use self::count::Count;
use self::counters::Counters;
use self::durations::DurationCounts;
use self::encrypted::{Encrypted, EncryptedSockets};
use self::hand_off::HandOffs;
use self::https::request::TemplatePath;
use self::inherited_sockets::InheritedSockets;
use self::panic::{Guard, Panics};
use self::query_log::QueryLogReceiver;
use self::stream::Service;
use self::tls_base::TlsBase;
use self::udp::LateReplies;
use self::wildcard_hits::WildcardHitReceiver;
use self::worker::{QueryWorker, StreamWorkerPool, WorkerOutputs};
use crate::nameserver::hand_off::Handler;
use crate::nameserver::stats::{Counts, TRANSPORTS, ZoneCounts};
use crate::nameserver::{Stats, Transport};
use crate::sys::cpu;
use crate::zone::db::ZoneDb;

pub use counters::Totals;
pub use stream::Limits;
pub use worker::LiveSettings;

/// The addresses and limits of the listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses for UDP and TCP. Port 0 selects a port that is free for both.
    pub addresses: Vec<SocketAddr>,
    /// Addresses for DNS over TLS. Port 0 selects a free port.
    pub tls_addresses: Vec<SocketAddr>,
    /// Addresses for DNS over QUIC, which needs the feature `quic`. Port 0 selects a free port.
    pub quic_addresses: Vec<SocketAddr>,
    /// Addresses for DNS over HTTPS. Port 0 selects a free port.
    pub https_addresses: Vec<SocketAddr>,
    /// The path of the URI template of DNS over HTTPS.
    pub https_path: TemplatePath,
    /// The number of UDP threads per address: one for each processor that answers.
    pub udp_workers: usize,
    /// Whether the n-th worker of each address stays on the n-th processor.
    pub pin: bool,
    /// The requested size of the kernel's receive buffer of a UDP worker in octets, limited by the kernel (`net.core.rmem_max`).
    /// 4 MiB hold the requests that arrive while a worker is off its processor for some milliseconds.
    pub udp_buffer_octets: usize,
    /// Whether replies to one peer are passed to the kernel together, if it can split them.
    pub udp_gso: bool,
    /// Whether replies over IPv4 forbid fragmentation by routers.
    pub udp_dont_fragment: bool,
    /// The limits of stream clients: for TCP, and again for each encrypted transport.
    pub streams: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            addresses: Vec::new(),
            tls_addresses: Vec::new(),
            quic_addresses: Vec::new(),
            https_addresses: Vec::new(),
            https_path: TemplatePath::default(),
            udp_workers: std::thread::available_parallelism().map_or(1, usize::from),
            pin: false,
            udp_buffer_octets: 4 * 1024 * 1024,
            udp_gso: true,
            udp_dont_fragment: true,
            streams: Limits::default(),
        }
    }
}

/// The reason why an address could not be bound. In this case, none of the others is open.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the address.
    #[error(
        "{protocol} {address} is in use by another process; stop it, or choose another address with {}",
        setting(protocol)
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// `UDP`, `TCP`, `TLS`, `QUIC` or `HTTPS`.
        protocol: &'static str,
    },
    /// Ports below 1024 need a right.
    #[error("{protocol} {address}: permission denied; grant CAP_NET_BIND_SERVICE, or set a port above 1023")]
    Denied {
        /// The address.
        address: SocketAddr,
        /// `UDP`, `TCP`, `TLS`, `QUIC` or `HTTPS`.
        protocol: &'static str,
    },
    /// The address does not belong to this machine.
    #[error("{address} is not an address of this machine; set one of its addresses, or 0.0.0.0 or [::] for all")]
    NotHere {
        /// The address.
        address: SocketAddr,
    },
    /// The program has no such transport.
    #[error("QUIC {address}: not supported by this build; build the program with the feature quic")]
    NotBuilt {
        /// The address.
        address: SocketAddr,
    },
    /// Another error of the system.
    #[error("{protocol} {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// `UDP`, `TCP`, `TLS`, `QUIC` or `HTTPS`.
        protocol: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl BindError {
    fn new(address: SocketAddr, protocol: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address, protocol },
            io::ErrorKind::PermissionDenied => BindError::Denied { address, protocol },
            io::ErrorKind::AddrNotAvailable => BindError::NotHere { address },
            _ => BindError::Io { address, protocol, source },
        }
    }
}

/// Returns the setting that names the addresses for this protocol.
fn setting(protocol: &str) -> &'static str {
    match protocol {
        "TLS" => "--dns-tls-listen",
        "QUIC" => "--dns-quic-listen",
        "HTTPS" => "--dns-https-listen",
        _ => "--dns-listen",
    }
}

/// The number of attempts with other ports if port 0 was requested and a port is free for UDP but not for TCP.
const PORT_TRIES: usize = 16;

/// Opens all sockets.
///
/// # Errors
///
/// See [`BindError`], for the first address that cannot be had.
pub fn bind(config: &Config) -> Result<Bound, BindError> {
    bind_with(config, &mut InheritedSockets::default())
}

/// Like [`bind`], but uses the inherited sockets in `given` for the addresses that have one.
///
/// # Errors
///
/// See [`BindError`], for the first address that cannot be had.
pub fn bind_with(config: &Config, given: &mut InheritedSockets) -> Result<Bound, BindError> {
    let cpus = if config.pin { cpu::allowed().unwrap_or_default() } else { Vec::new() };
    let mut bound = Bound {
        listeners: Vec::new(),
        encrypted: EncryptedSockets::default(),
        tls: None,
        handler: None,
        limits: config.streams.clone(),
    };
    for address in &config.addresses {
        let mut tries = 0;
        let listener = loop {
            tries += 1;
            match bind_one(*address, config, &cpus, given) {
                Err(BindError::InUse { .. }) if address.port() == 0 && tries < PORT_TRIES => {}
                other => break other?,
            }
        };
        bound.listeners.push(listener);
    }
    bound.encrypted = EncryptedSockets::bind(config, given)?;
    Ok(bound)
}

fn bind_one(
    address: SocketAddr,
    config: &Config,
    cpus: &[usize],
    given: &mut InheritedSockets,
) -> Result<Listener, BindError> {
    let sockets = given.take_udp(address);
    let (address, workers) = match sockets.is_empty() {
        true => udp::bind(address, config, cpus)?,
        false => (address, udp::adopt(address, sockets, config, cpus)?),
    };
    let tcp = tcp_listener(address, "TCP", given)?;
    Ok(Listener { address, workers, tcp })
}

fn tcp_listener(
    address: SocketAddr,
    protocol: &'static str,
    given: &mut InheritedSockets,
) -> Result<std::net::TcpListener, BindError> {
    match given.take_tcp(address) {
        None => tcp::bind(address, protocol),
        Some(listener) => tcp::adopt(address, listener, protocol),
    }
}

/// One address, open for UDP and TCP.
struct Listener {
    address: SocketAddr,
    workers: Vec<udp::Worker>,
    tcp: std::net::TcpListener,
}

/// Open sockets without workers: queries wait in them.
pub struct Bound {
    listeners: Vec<Listener>,
    encrypted: EncryptedSockets,
    tls: Option<TlsBase>,
    handler: Option<Arc<dyn Handler>>,
    limits: Limits,
}

impl Bound {
    /// Returns the addresses, in the order of the configuration, with the ports that the system chose for port 0.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).collect()
    }

    /// Returns whether there is an encrypted listener, so that [`Self::set_tls`] must be called before the start.
    pub fn needs_tls(&self) -> bool {
        !self.encrypted.is_empty()
    }

    /// Sets the certificate and the TLS settings of encrypted transports.
    pub fn set_tls(&mut self, tls: TlsBase) {
        self.tls = Some(tls);
    }

    /// Sets the handler of transfers, NOTIFY and UPDATE. Without one, they are refused.
    pub fn set_handler(&mut self, handler: Arc<dyn Handler>) {
        self.handler = Some(handler);
    }

    /// Starts answering from `db`: datagrams on threads, streams on a separate runtime, encrypted ones on another.
    ///
    /// # Errors
    ///
    /// The error of the system if it cannot create a thread or a registration; everything that had been started is stopped.
    /// `InvalidInput` if there are encrypted transports and [`Self::set_tls`] was not called.
    pub fn start(mut self, db: &ZoneDb, settings: &LiveSettings) -> io::Result<Running> {
        // Separate runtimes, so that no other work of the process makes clients wait.
        let runtime = runtime("dns-stream")?;
        let hand_offs = self.handler.take().map(|handler| Arc::new(HandOffs::new(handler, self.limits.transfer)));
        let count = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let (stream_workers, mut outputs) = StreamWorkerPool::new(count, db, settings, hand_offs.clone());
        let stream_workers = Arc::new(stream_workers);
        let limits = self.limits.clone();
        let service = || Arc::new(Service::new(Arc::clone(&stream_workers), limits.clone()));
        let mut running = Running {
            addresses: self.addresses(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            workers: Vec::new(),
            tasks: TaskTracker::new(),
            streams: service(),
            encrypted: Vec::new(),
            query_log: Mutex::default(),
            wildcard_hits: Mutex::default(),
            lost: Vec::new(),
            panics: Panics::default(),
            pulses: Vec::new(),
            runtimes: Vec::new(),
        };
        // A failure below drops `running`, which stops all started parts.
        let handle = runtime.handle().clone();
        running.runtimes.push(runtime);
        for Listener { address, workers, tcp } in std::mem::take(&mut self.listeners) {
            for (number, worker) in workers.into_iter().enumerate() {
                let (query_worker, worker_outputs) = QueryWorker::new(db, settings, hand_offs.clone());
                outputs.push(worker_outputs);
                running.start_udp(&handle, (number, address, worker), query_worker)?;
            }
            let streams = Arc::clone(&running.streams);
            running.start_tcp(&handle, tcp, "TCP", streams, tcp::serve)?;
        }
        let refreshing = tcp::refresh(Arc::clone(&running.streams));
        let guard = running.panics.guard("the refresh of the stream workers".to_owned());
        running.tasks.spawn_on(guarded(guard, refreshing), &handle);
        if self.needs_tls() {
            let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no certificate for the encrypted transports");
            let tls = self.tls.ok_or_else(missing)?;
            let runtime = self::runtime("dns-encrypted")?;
            let handle = runtime.handle().clone();
            running.runtimes.push(runtime);
            self.encrypted.start(&mut running, &handle, &tls, service)?;
        }
        for WorkerOutputs { query_log, wildcard_hits } in outputs {
            running.lost.push(query_log.lost_counter());
            running.query_log.get_mut().push(query_log);
            running.wildcard_hits.get_mut().push(wildcard_hits);
        }
        Ok(running)
    }
}

/// Returns a runtime whose threads have this name.
fn runtime(name: &str) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().thread_name(name).enable_all().build()
}

async fn guarded(guard: Guard, task: impl Future<Output = ()>) {
    let _guard = guard;
    task.await;
}

/// Running listeners. Dropping the value requests their stop; [`Running::stop`] also waits until they have stopped.
pub struct Running {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    workers: Vec<(Arc<Stats>, Arc<Counters>)>,
    tasks: TaskTracker,
    /// The streams over TCP.
    streams: Arc<Service>,
    /// The encrypted transports with listeners.
    encrypted: Vec<Encrypted>,
    /// The receivers of the query log, until its writer takes them.
    query_log: Mutex<Vec<QueryLogReceiver>>,
    /// The receivers of wildcard hits, until their counter takes them.
    wildcard_hits: Mutex<Vec<WildcardHitReceiver>>,
    /// Records of the query log that were lost.
    lost: Vec<Arc<Count>>,
    panics: Panics,
    pulses: Vec<Pulse>,
    /// The runtimes of the streams; empty when all have ended.
    runtimes: Vec<Runtime>,
}

/// The sign of progress of a worker or listener.
pub struct Pulse {
    /// The name of the worker or listener.
    pub name: String,
    stop: Arc<AtomicBool>,
    iterations: Box<dyn Fn() -> Option<u64> + Send + Sync>,
}

impl Pulse {
    /// Returns the number of iterations of its loop, several per second; `None` after a stop.
    pub fn iterations(&self) -> Option<u64> {
        if self.stop.load(Ordering::Relaxed) { None } else { (self.iterations)() }
    }
}

impl Running {
    /// Waits until a worker or listener ends by itself, and returns its name and the reason.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.panics.first()
    }

    /// Returns the signs of progress of all workers and listeners; a second call returns none.
    pub fn pulses(&mut self) -> Vec<Pulse> {
        std::mem::take(&mut self.pulses)
    }

    /// Returns the addresses, in the order of the configuration, with the ports that the system chose for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Starts one UDP worker.
    fn start_udp(
        &mut self,
        handle: &Handle,
        (number, address, worker): (usize, SocketAddr, udp::Worker),
        query_worker: QueryWorker,
    ) -> io::Result<()> {
        let counters = Arc::new(Counters::default());
        self.workers.push((Arc::clone(query_worker.stats()), Arc::clone(&counters)));
        let (stop, read) = (Arc::clone(&self.stop), Arc::downgrade(&counters));
        let iterations = move || Some(read.upgrade()?.iterations.read());
        let name = format!("the DNS worker dns-udp-{number} of {address}");
        self.pulses.push(Pulse { name, stop: Arc::clone(&stop), iterations: Box::new(iterations) });
        let name = format!("dns-udp-{number}");
        let guard = self.panics.guard(format!("the thread {name}"));
        let (tasks, service) = (self.tasks.clone(), Arc::clone(&self.streams));
        let late_replies = LateReplies { runtime: handle.clone(), tasks, service };
        let work = move || {
            let _guard = guard;
            worker.run(query_worker, &counters, &late_replies, &stop);
        };
        self.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Starts accepting connections, each of which is served by `serve`.
    fn start_tcp<F>(
        &mut self,
        handle: &Handle,
        listener: std::net::TcpListener,
        protocol: &str,
        service: Arc<Service>,
        serve: impl Fn(TcpStream, SocketAddr, Arc<Service>) -> F + Send + Sync + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr()?;
        let _inside = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let tasks = self.tasks.clone();
        let accept = |iterations| tcp::accept((listener, address), service, iterations, tasks, serve);
        self.start_listener(handle, protocol, address, accept);
        Ok(())
    }

    /// Starts the task of a listener. It counts its iterations, which show its progress.
    fn start_listener<F>(
        &mut self,
        handle: &Handle,
        protocol: &str,
        address: SocketAddr,
        accept: impl FnOnce(Arc<Count>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let iterations = Arc::new(Count::default());
        let read = Arc::downgrade(&iterations);
        self.pulses.push(Pulse {
            name: format!("the DNS listener of {protocol} {address}"),
            stop: Arc::clone(&self.stop),
            iterations: Box::new(move || Some(read.upgrade()?.read())),
        });
        let guard = self.panics.guard(format!("the {protocol} listener {address}"));
        self.tasks.spawn_on(guarded(guard, accept(iterations)), handle);
    }

    /// Returns the counts of the UDP and TCP listeners, summed over all UDP workers and streams.
    pub fn stats(&self) -> Totals {
        let mut totals = Totals::default();
        self.workers.iter().for_each(|(_, counters)| totals.add(counters));
        totals.add(&self.streams.counters);
        totals
    }

    /// Returns the counts of the listeners of each encrypted transport in use.
    pub fn encrypted_stats(&self) -> Vec<(Transport, Totals)> {
        let stats = |encrypted: &Encrypted| {
            let mut totals = Totals::default();
            totals.add(&encrypted.service.counters);
            (encrypted.transport, totals)
        };
        self.encrypted.iter().map(stats).collect()
    }

    /// Returns the counts of the query engine, summed over all UDP workers and streams.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.each_stats().for_each(|stats| stats.add_to(&mut counts));
        counts
    }

    /// Returns the counts of the query engine for each zone, by the zones' numbers ([`ZoneDb::numbered`]); the last is for all
    /// zones without a number.
    pub fn zone_counts(&self) -> Vec<ZoneCounts> {
        let mut counts = Vec::new();
        self.each_stats().for_each(|stats| stats.add_zones(&mut counts));
        counts
    }

    /// Returns the durations of requests, by [`TRANSPORTS`].
    pub fn durations(&self) -> [DurationCounts; TRANSPORTS.len()] {
        let mut sums = [DurationCounts::default(); TRANSPORTS.len()];
        let of_streams = self.services().map(|service| &service.counters);
        for counters in self.workers.iter().map(|(_, counters)| &**counters).chain(of_streams) {
            sums.iter_mut().zip(counters.all_durations()).for_each(|(sum, durations)| sum.add(durations));
        }
        sums
    }

    /// Returns the receivers of the query log's records, one for each worker; a second call returns none.
    pub fn query_log(&self) -> Vec<QueryLogReceiver> {
        std::mem::take(&mut self.query_log.lock())
    }

    /// Returns the receivers of wildcard hits, one for each worker; a second call returns none.
    pub fn wildcard_hits(&self) -> Vec<WildcardHitReceiver> {
        std::mem::take(&mut self.wildcard_hits.lock())
    }

    /// Returns the number of query log records that were lost because the reader was too slow.
    pub fn query_log_lost(&self) -> u64 {
        self.lost.iter().map(|lost| lost.read()).sum()
    }

    fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.encrypted.iter().map(|encrypted| &encrypted.service).chain([&self.streams])
    }

    fn each_stats(&self) -> impl Iterator<Item = &Arc<Stats>> {
        self.workers.iter().map(|(stats, _)| stats).chain(self.streams.stream_workers.stats())
    }

    /// Stops within about 200 ms, plus the write timeout of a connection if a client is slow. Queries that have arrived are
    /// answered first.
    pub async fn stop(mut self) {
        self.signal_stop();
        let threads = std::mem::take(&mut self.threads);
        let ended = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(JoinHandle::join).filter(Result::is_err).count()
        });
        // First the threads, which may start tasks.
        if ended.await.is_ok_and(|panicked| panicked > 0) {
            tracing::error!("a UDP worker has panicked");
        }
        self.tasks.wait().await;
    }

    fn signal_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.services().for_each(|service| service.stop());
        self.tasks.close();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal_stop();
        // This must not block: to have the last answers written, call `stop`.
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}
