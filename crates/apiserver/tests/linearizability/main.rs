//! Checks that clients of several API servers see one register for each object, during faults of servers and stores.
//!
//! Clients read and write a few objects at random servers and record when each request began and returned, and how it ended. Watchers
//! follow the objects and switch between the servers. Afterwards every history of an object must be linearizable, no read may be
//! older than what was seen before it, and every watcher must have seen what the store has committed, once and in order.
//!
//! `LINEARIZABILITY_SEED` is the seed of what clients do and what goes wrong, and `LINEARIZABILITY_SECONDS` how long a run lasts.
#![allow(clippy::unwrap_used)]

mod checker;
mod clients;
#[cfg(feature = "etcd")]
mod etcd;
mod faults;
mod history;
mod servers;
mod verdict;
mod watchers;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use signpost_apiserver::store::Store;
use signpost_apiserver::store::embedded::{Embedded, OpenError, Options};

use self::clients::{Run, SeededRandom};
use self::faults::Stores;
use self::servers::Servers;
use self::verdict::Evidence;

const CLIENTS: usize = 8;
const WATCHERS: usize = 2;
/// The duration of a run in seconds, if the environment does not set it.
const SECONDS: u64 = 6;

/// Returns a number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    setting("LINEARIZABILITY_SEED", u64::from(now.subsec_nanos()))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(test)
}

/// Runs clients and watchers on `servers` servers during `faults`, and checks their observations.
async fn examine<'a>(
    servers: usize,
    stores: &'a dyn Stores,
    seed: u64,
    faults: impl FnOnce(Arc<Run>, Instant) -> BoxFuture<'a, ()>,
) {
    let run = Arc::new(Run::new(Servers::new(servers)));
    for server in 0..servers {
        run.servers.start(server, stores.open(server).await).await;
    }
    let start = run.mark("start").await - 1;
    let end = Instant::now() + Duration::from_secs(setting("LINEARIZABILITY_SECONDS", SECONDS));
    let last = Arc::new(AtomicU64::new(0));
    let watchers = (0..WATCHERS).map(|number| {
        let (run, last, draw) = (run.clone(), last.clone(), SeededRandom::new(seed, 1_000 + number as u64));
        tokio::spawn(async move { watchers::follow(&run.servers, start, draw, &last).await })
    });
    let watchers: Vec<_> = watchers.collect();
    let clients = (0..CLIENTS).map(|number| {
        let (run, draw) = (run.clone(), SeededRandom::new(seed, number as u64));
        tokio::spawn(async move { run.work(number, draw, end).await })
    });
    let (records, ()) = tokio::join!(join_all(clients.collect::<Vec<_>>()), faults(run.clone(), end));
    let mut records: Vec<_> = records.into_iter().map(Result::unwrap).collect();
    records.push(run.list_everywhere(CLIENTS).await);
    let marked = run.mark("end").await;
    last.store(marked, Ordering::SeqCst);
    let watched = join_all(watchers).await.into_iter().map(Result::unwrap).collect();
    for server in 0..servers {
        run.servers.stop(server).await;
    }
    drop(run);
    let committed = watchers::committed(&stores.open(0).await, start, marked).await;
    let operations: usize = records.iter().flat_map(|record| record.operations.values()).map(Vec::len).sum();
    println!("seed {seed}: {operations} operations on objects, {} changes", committed.len());
    let evidence = Evidence { records, committed, watched };
    if let Err(fault) = verdict::evaluate(evidence) {
        panic!("LINEARIZABILITY_SEED={seed}: {fault}");
    }
}

/// A directory of the embedded store.
struct Directory(PathBuf);

impl Stores for Directory {
    fn open(&self, _server: usize) -> BoxFuture<'_, Arc<dyn Store>> {
        async {
            let until = Instant::now() + Duration::from_secs(60);
            loop {
                // Requests in flight can hold the last store for a moment.
                match Embedded::open(&self.0, Options { history: None, ..Options::default() }) {
                    Ok(store) => return Arc::new(store) as Arc<dyn Store>,
                    Err(OpenError::InUse { .. }) if Instant::now() < until => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        .boxed()
    }
}

#[test]
fn one_server_over_the_embedded_store() {
    let (directory, seed) = (tempfile::tempdir().unwrap(), seed());
    let stores = Directory(directory.path().to_owned());
    run(examine(1, &stores, seed, |_, _| std::future::ready(()).boxed()));
}

#[test]
fn one_server_that_closes_the_embedded_store_and_opens_it_again() {
    let (directory, seed) = (tempfile::tempdir().unwrap(), seed());
    let stores = Directory(directory.path().to_owned());
    run(examine(1, &stores, seed, |run, end| {
        let (stores, draw) = (&stores, SeededRandom::new(seed, 2_000));
        async move { faults::restart_servers(&run.servers, stores, draw, end).await }.boxed()
    }));
}
