//! Ends of connections that no client can bring about in time: stops and ages between the answers to one read.

use super::*;
use crate::nameserver::Settings;
use crate::wire::{Name, RecordType};
use crate::zone::db::ZoneDb;
use crate::zone::{Contents, Ttl, Zone};
use tokio::io::{DuplexStream, duplex};

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Octets of the text at the apex of `large.test`; one answer with it is more than is written at once.
const TEXT_OCTETS: usize = 40_000;

fn service(change: impl FnOnce(&mut Limits)) -> Service {
    let mut limits = Limits { unsent_octets_max: 4_096, ..Limits::default() };
    change(&mut limits);
    let apex: Name = "large.test.".parse().unwrap();
    let mut contents = Contents::new(apex.clone());
    let mut add = |rtype, rdata: Vec<u8>| {
        contents.add(apex.clone(), rtype, Ttl::from_wire(30), rdata.into()).unwrap();
    };
    add(RecordType::SOA, [apex.as_wire(), apex.as_wire(), &[0; 20]].concat());
    add(RecordType::NS, apex.as_wire().to_vec());
    (0..200u8).for_each(|number| add(RecordType::TXT, [&[199, number], &[b'x'; 198][..]].concat()));
    let db = ZoneDb::new();
    db.publish(Zone::build(&contents).unwrap());
    db.set_ready();
    let (stream_workers, _) =
        StreamWorkerPool::new(1, &db, &Arc::new(arc_swap::ArcSwap::from_pointee(Settings::default())), None);
    Service::new(Arc::new(stream_workers), limits)
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
