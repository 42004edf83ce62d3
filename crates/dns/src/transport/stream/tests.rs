//! Ends of connections that no client can bring about in time: stops and ages between the answers to one read.

use std::collections::HashMap;

use super::*;
use crate::nameserver::Settings;
use crate::nameserver::hand_off::{Answer, Cursor, HandOff, Handler, Progress};
use crate::transfer::{Rule, Transfers};
use crate::transport::hand_off::HandOffs;
use crate::wire::{Name, RecordType};
use crate::zone::db::ZoneDb;
use crate::zone::{Contents, Ttl, Zone};
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Octets of the text at the apex of `large.test`; one answer with it is more than is written at once.
const TEXT_OCTETS: usize = 40_000;

fn service(change: impl FnOnce(&mut Limits)) -> Service {
    let mut limits = Limits { unsent_octets_max: 4_096, ..Limits::default() };
    change(&mut limits);
    let db = ZoneDb::new();
    db.publish(large(0));
    db.set_ready();
    service_of(&db, None, limits)
}

fn service_of(db: &ZoneDb, handler: Option<Arc<dyn Handler>>, limits: Limits) -> Service {
    let settings = Arc::new(arc_swap::ArcSwap::from_pointee(Settings::default()));
    let hand_offs = handler.map(|handler| Arc::new(HandOffs::new(handler, limits.transfer)));
    let (stream_workers, _) = StreamWorkerPool::new(1, db, &settings, hand_offs);
    Service::new(Arc::new(stream_workers), limits)
}

/// The zone `large.test`, with this many names.
fn large(names: u32) -> Zone {
    let apex: Name = "large.test.".parse().unwrap();
    let mut contents = Contents::new(apex.clone());
    let mut add = |rtype, rdata: Vec<u8>| {
        contents.add(apex.clone(), rtype, Ttl::from_wire(30), rdata.into()).unwrap();
    };
    add(RecordType::SOA, [apex.as_wire(), apex.as_wire(), &[0; 20]].concat());
    add(RecordType::NS, apex.as_wire().to_vec());
    (0..200u8).for_each(|number| add(RecordType::TXT, [&[199, number], &[b'x'; 198][..]].concat()));
    for number in 0..names {
        let owner = apex.prepend(format!("name-{number}").as_bytes()).unwrap();
        contents.add(owner, RecordType::A, Ttl::from_wire(30), number.to_be_bytes().into()).unwrap();
    }
    Zone::build(contents).unwrap()
}

/// Both ends of a connection on which `count` queries for the large text have been written.
async fn pipelined(count: usize) -> (DuplexStream, DuplexStream) {
    let (mut client, server) = duplex(16 * 1024);
    let query = [&[0, 28, 7, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x05large\x04test\0\0\x10\0\x01"].concat();
    client.write_all(&query.repeat(count)).await.unwrap();
    (client, server)
}

/// Takes answers, `octets` at a time and a breath after each, to the end of the stream; returns how much that was.
async fn take_slowly(mut client: DuplexStream, octets: usize, breath: Duration) -> usize {
    let (mut all, mut buffer) = (0, vec![0; octets]);
    while let Ok(read @ 1..) = client.read(&mut buffer).await {
        all += read;
        tokio::time::sleep(breath).await;
    }
    all
}

fn peer() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

#[tokio::test]
async fn a_client_that_reads_slowly_does_not_hold_up_a_stop() {
    let service = Arc::new(service(|limits| limits.write = Duration::from_millis(800)));
    let (client, server) = pipelined(400).await;
    let serving = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.serve(server, peer(), Transport::Tcp).await }
    });
    // Half a second for an answer and 200 s for all: never too slow for one write.
    let reading = tokio::spawn(take_slowly(client, 1_600, Duration::from_millis(20)));
    tokio::time::sleep(Duration::from_millis(200)).await;
    service.stop();
    let ended = timeout(PATIENCE, serving).await.expect("it ends regardless of the client").unwrap();
    assert!(matches!(ended, CloseReason::Stopped | CloseReason::SlowWrite), "{ended:?}");
    let octets = timeout(PATIENCE, reading).await.expect("the stream has an end").unwrap();
    assert!(octets < 10 * TEXT_OCTETS, "{octets}");
}

#[tokio::test]
async fn what_has_arrived_before_a_stop_is_answered_to_who_takes_it() {
    let service = Arc::new(service(|_| {}));
    let (client, server) = pipelined(30).await;
    let serving = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.serve(server, peer(), Transport::Tcp).await }
    });
    service.stop();
    let octets = timeout(PATIENCE, take_slowly(client, 64 * 1024, Duration::ZERO)).await.expect("an end");
    assert_eq!(serving.await.unwrap(), CloseReason::Stopped);
    assert!(octets > 30 * TEXT_OCTETS, "{octets}");
}

#[tokio::test]
async fn a_lifetime_ends_between_the_answers_to_one_read() {
    let service = service(|limits| limits.lifetime = Duration::from_millis(50));
    let (client, server) = pipelined(40).await;
    let client = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        take_slowly(client, 64 * 1024, Duration::ZERO).await
    };
    let (ended, octets) =
        timeout(PATIENCE, async { tokio::join!(service.serve(server, peer(), Transport::Tcp), client) })
            .await
            .expect("both end");
    assert_eq!(ended, CloseReason::Old);
    assert!((TEXT_OCTETS..2 * TEXT_OCTETS).contains(&octets), "one whole answer: {octets}");
}

/// Answers transfers, and counts the octets of the messages that were made for each client.
struct Counting {
    transfers: Transfers,
    made: Mutex<HashMap<SocketAddr, Arc<AtomicUsize>>>,
}

impl Counting {
    fn new() -> Arc<Counting> {
        let rule = Rule { zones: Vec::new(), networks: Vec::new(), keys: Vec::new(), tls: false };
        Arc::new(Counting { transfers: Transfers::new(vec![rule]), made: Mutex::default() })
    }

    fn made(&self, peer: SocketAddr) -> usize {
        self.made.lock().get(&peer).map_or(0, |made| made.load(Ordering::Relaxed))
    }
}

impl Handler for Counting {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        let made = Arc::clone(self.made.lock().entry(request.peer.address).or_default());
        Some(match self.transfers.answer(request)? {
            Answer::Many(cursor) => Answer::Many(Box::new(CountingCursor { cursor, made })),
            other => other,
        })
    }
}

struct CountingCursor {
    cursor: Box<dyn Cursor>,
    made: Arc<AtomicUsize>,
}

impl Cursor for CountingCursor {
    fn fill(&mut self, buffer: &mut [u8]) -> Progress {
        let progress = self.cursor.fill(buffer);
        let (Progress::More(octets) | Progress::Last(octets)) = progress;
        self.made.fetch_add(octets, Ordering::Relaxed);
        progress
    }
}

/// The size of the buffers between the server and a client, as the kernel's.
const BETWEEN_OCTETS: usize = 64 * 1024;
/// The size up to which a message of a transfer is filled; with its length, and a record that is too many.
const MESSAGE_OCTETS: usize = 0x4000 + 64;
/// The names of a zone whose transfer has about two megabytes.
const NAMES: u32 = 80_000;

/// Begins the transfer of `large.test` to the client with this number.
async fn transfer(service: &Arc<Service>, number: u16) -> (DuplexStream, tokio::task::JoinHandle<CloseReason>) {
    let (mut client, server) = duplex(BETWEEN_OCTETS);
    let request =
        [&[0, 28, 7, number as u8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x05large\x04test\0\0\xfc\0\x01"].concat();
    client.write_all(&request).await.unwrap();
    let service = Arc::clone(service);
    let serving = tokio::spawn(async move { service.serve(server, client_of(number), Transport::Tcp).await });
    (client, serving)
}

/// Waits until a message was made for each client up to this number.
async fn begin(counting: &Counting, clients: u16) {
    while (1..=clients).any(|number| counting.made(client_of(number)) == 0) {
        tokio::task::yield_now().await;
    }
}

fn client_of(number: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], number))
}

/// Returns the records of the messages to the SOA record at the end of a transfer, of which the first message has the other one.
async fn records_of(mut client: DuplexStream) -> usize {
    let (mut records, mut message) = (0, Vec::new());
    // SOA twice, NS, the texts, the names.
    while records < 2 + 1 + 200 + NAMES as usize {
        let length = client.read_u16().await.expect("another message");
        message.resize(usize::from(length), 0);
        client.read_exact(&mut message).await.expect("the whole message");
        records += usize::from(u16::from_be_bytes([message[6], message[7]]));
    }
    records
}

/// The bound on what twenty clients can keep at once. One of them stops reading: the server makes as much for it as the buffers hold, and one
/// message more, and its version of the zone stays for [`Limits::write`]. The other clients do not wait for it. Their own limit is longer
/// than the first messages of twenty clients take.
#[tokio::test]
async fn a_client_that_stops_reading_keeps_a_message_and_a_version_for_the_time_of_a_write() {
    let (db, counting) = (ZoneDb::new(), Counting::new());
    db.publish(large(NAMES));
    db.set_ready();
    let limits = Limits { write: Duration::from_secs(3), ..Limits::default() };
    let service = Arc::new(service_of(&db, Some(counting.clone()), limits.clone()));
    let patient = Arc::new(Service::new(Arc::clone(&service.stream_workers), Limits { write: PATIENCE, ..limits }));
    let began = Instant::now();
    let (stalled, ending) = transfer(&service, 1).await;
    let others: Vec<_> = futures::future::join_all((2..=20).map(|number| transfer(&patient, number))).await;
    begin(&counting, 20).await;
    let zone = db.zones().pop().map(|zone| Arc::downgrade(&zone)).expect("it is served");
    db.publish(large(0));
    let reading = others.into_iter().map(|(client, _)| records_of(client));
    let records = timeout(PATIENCE, futures::future::join_all(reading)).await.expect("the other clients wait for none");
    assert_eq!(records, vec![NAMES as usize + 203; 19]);
    // All were of the version before the change. The stalled one has about as much as the buffers.
    let whole = counting.made(client_of(2));
    assert!(whole > 1_000_000 && (3..=20).all(|number| counting.made(client_of(number)) == whole), "{whole} octets");
    let made = counting.made(client_of(1));
    assert!(made <= BETWEEN_OCTETS + MESSAGE_OCTETS, "{made} octets were made for a client that does not read");
    // Another client gets its answer.
    let (mut client, server) = pipelined(1).await;
    let serving = Arc::clone(&service);
    tokio::spawn(async move { serving.serve(server, peer(), Transport::Tcp).await });
    assert!(client.read_u16().await.is_ok_and(|length| usize::from(length) > TEXT_OCTETS));
    assert_eq!(timeout(PATIENCE, ending).await.expect("it ends").unwrap(), CloseReason::SlowWrite);
    assert!(began.elapsed() >= Duration::from_secs(3), "not before the limit");
    assert!(counting.made(client_of(1)) <= BETWEEN_OCTETS + MESSAGE_OCTETS);
    drop(stalled);
    release(&service, &db, &zone).await;
}

/// A client that takes every message in time, but slowly, keeps its version for [`Limits::transfer`].
#[tokio::test]
async fn a_client_that_reads_slowly_keeps_a_version_for_the_time_of_a_transfer() {
    let (db, counting) = (ZoneDb::new(), Counting::new());
    db.publish(large(NAMES));
    db.set_ready();
    let limits = Limits { transfer: Duration::from_millis(500), write: PATIENCE, ..Limits::default() };
    let service = Arc::new(service_of(&db, Some(counting.clone()), limits));
    let zone = db.zones().pop().map(|zone| Arc::downgrade(&zone)).expect("it is served");
    let (client, ending) = transfer(&service, 1).await;
    begin(&counting, 1).await;
    db.publish(large(0));
    let octets = timeout(PATIENCE, take_slowly(client, 8_192, Duration::from_millis(20))).await.expect("it ends");
    assert_eq!(ending.await.unwrap(), CloseReason::SlowWrite);
    assert!(octets < 1_000_000 && octets >= counting.made(client_of(1)), "an unfinished transfer: {octets}");
    release(&service, &db, &zone).await;
}

/// Waits until the version of a zone is not in memory any more.
async fn release(service: &Service, db: &ZoneDb, zone: &std::sync::Weak<Zone>) {
    let released = async {
        while zone.upgrade().is_some() {
            service.stream_workers.refresh();
            db.reclaim();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, released).await.expect("nothing keeps the version");
}
