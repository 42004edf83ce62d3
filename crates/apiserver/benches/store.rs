//! The store's part of the object walk: durable commits per second, alone and 64 in parallel, and the cost of a watcher.
//!
//! `cargo bench --bench store` measures the embedded store; with `--features etcd`, also a single etcd member that syncs to the
//! same disk. Each figure is the best of three runs of one second. Each run has a new file in the system's temporary directory
//! (`TMPDIR` selects the disk). The target is 5,000 durable creates per second, 64 in parallel. A value has 1,000 octets, about a
//! Route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use signpost_apiserver::store::embedded::{Embedded, Options};
use signpost_apiserver::store::{Key, Precondition, Store, Txn, Write};
use tokio::runtime::Runtime;

const RUN: Duration = Duration::from_secs(1);

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut files = 0;
    measure(&runtime, "file", || {
        files += 1;
        let directory = directory.path().join(files.to_string());
        Arc::new(Embedded::open(&directory, Options::default()).expect("a new store"))
    });
    #[cfg(feature = "etcd")]
    {
        use signpost_apiserver::store::etcd::{Etcd, Settings};
        let cluster = signpost_testing::etcd::Cluster::start(1, &[]);
        let mut prefixes = 0;
        measure(&runtime, "etcd", || {
            prefixes += 1;
            let (endpoints, prefix) = (cluster.endpoints(), format!("/{prefixes}"));
            let settings = Settings { endpoints, prefix, ..Settings::default() };
            loop {
                if let Ok(store) = runtime.block_on(Etcd::connect(&settings)) {
                    return Arc::new(store);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    }
}

/// Measures an engine, of which `open` opens empty stores.
fn measure(runtime: &Runtime, engine: &str, mut open: impl FnMut() -> Arc<dyn Store>) {
    for (name, writers, watchers) in [
        ("creates/s, 1 at a time", 1, 0),
        ("creates/s, 64 in parallel", 64, 0),
        ("creates/s, 64 in parallel, 10 watchers", 64, 10),
    ] {
        let rate = (0..3).map(|_| open()).map(|store| runtime.block_on(creates(store, writers, watchers)));
        println!("{engine}  {name:<42} {:>10.0}", rate.fold(0.0, f64::max));
    }
    runtime.block_on(reads(engine, open()));
}

/// Returns the number of durable creates per second.
async fn creates(store: Arc<dyn Store>, writers: usize, watchers: usize) -> f64 {
    let start = store.revision().await.expect("it is open");
    let watching: Vec<_> = (0..watchers)
        .map(|_| {
            let watch = store.watch(&Key("/".into()), start);
            tokio::spawn(watch.for_each(|_| std::future::ready(())))
        })
        .collect();
    let began = Instant::now();
    let writing: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut done = 0u64;
                while began.elapsed() < RUN {
                    store.commit(create(&format!("/routes/ns{writer}/{done}"))).await.expect("it commits");
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for writer in writing {
        done += writer.await.expect("it does not panic");
    }
    let took = began.elapsed();
    watching.into_iter().for_each(|watching| watching.abort());
    done as f64 / took.as_secs_f64()
}

fn create(name: &str) -> Txn {
    let key = Key(name.into());
    let value = Bytes::from(vec![b'x'; 1_000]);
    let expect = vec![(key.clone(), Precondition::Absent)];
    Txn { expect, writes: vec![Write::Put { key, value, ttl: None }], ..Txn::default() }
}

/// Measures reads with 10,000 objects in the store.
async fn reads(engine: &str, store: Arc<dyn Store>) {
    const OBJECTS: usize = 10_000;
    let filling: Vec<_> = (0..64)
        .map(|part| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (part..OBJECTS).step_by(64) {
                    store.commit(create(&format!("/routes/ns/{number}"))).await.expect("it commits");
                }
            })
        })
        .collect();
    for part in filling {
        part.await.expect("it does not panic");
    }
    let began = Instant::now();
    for number in 0..OBJECTS {
        store.get(&Key(format!("/routes/ns/{number}").into()), None).await.expect("it is there");
    }
    println!("{engine}  {:<42} {:>10.2}", "get, µs", began.elapsed().as_secs_f64() * 1e6 / OBJECTS as f64);
    let began = Instant::now();
    let page = store.list(&Key("/routes/".into()), None, None, None).await.expect("it lists");
    assert_eq!(page.items.len(), OBJECTS);
    println!("{engine}  {:<42} {:>10.2}", "list of 10,000, ms", began.elapsed().as_secs_f64() * 1e3);
}
