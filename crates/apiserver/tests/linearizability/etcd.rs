//! Several servers over one etcd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use signpost_apiserver::store::Store;
use signpost_apiserver::store::etcd::{Etcd, Settings};
use signpost_testing::etcd::Cluster;
use tokio::task::block_in_place;

use crate::clients::SeededRandom;
use crate::faults::{self, Stores, pause};
use crate::{examine, run, seed, setting};

/// The maximum time for which a member is stopped, in milliseconds: longer than the others need to elect a leader.
const STOP_MILLISECONDS_MAX: u64 = 2_500;

/// Connections to the members of a cluster.
struct Endpoints(Vec<String>);

impl Stores for Endpoints {
    fn open(&self, _server: usize) -> BoxFuture<'_, Arc<dyn Store>> {
        async {
            let settings =
                Settings { endpoints: self.0.clone(), prefix: "/signpost".to_owned(), ..Settings::default() };
            let until = Instant::now() + Duration::from_secs(60);
            loop {
                match Etcd::connect(&settings).await {
                    Ok(store) => return Arc::new(store) as Arc<dyn Store>,
                    Err(error) if Instant::now() > until => panic!("etcd does not come up: {error}"),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }
        .boxed()
    }
}

/// Kills and restarts members of a cluster, or stops and continues them, the leader as often as any, until `end`. It affects one
/// member at a time: the others keep working.
async fn disturb_members(cluster: &mut Cluster, stop_milliseconds_max: u64, mut draw: SeededRandom, end: Instant) {
    loop {
        pause(&mut draw, 300..1_500).await;
        if Instant::now() > end {
            return;
        }
        let leader = block_in_place(|| cluster.leader());
        let any = draw.below(cluster.size() as u64) as usize;
        let member = leader.filter(|_| draw.below(2) == 0).unwrap_or(any);
        if draw.below(2) == 0 {
            block_in_place(|| cluster.kill(member));
            pause(&mut draw, 50..1_500).await;
            block_in_place(|| cluster.restart(member));
        } else {
            block_in_place(|| cluster.signal(member, "STOP"));
            pause(&mut draw, 300..stop_milliseconds_max).await;
            block_in_place(|| cluster.signal(member, "CONT"));
        }
    }
}

#[test]
fn two_servers_over_one_member() {
    let (cluster, seed) = (Cluster::start(1, &[]), seed());
    run(examine(2, &Endpoints(cluster.endpoints()), seed, |_, _| std::future::ready(()).boxed()));
}

#[test]
fn two_servers_of_which_one_restarts_at_times() {
    let (cluster, seed) = (Cluster::start(1, &[]), seed());
    let stores = Endpoints(cluster.endpoints());
    run(examine(2, &stores, seed, |run, end| {
        let (stores, draw) = (&stores, SeededRandom::new(seed, 2_000));
        async move { faults::restart_servers(&run.servers, stores, draw, end).await }.boxed()
    }));
}

#[test]
fn three_servers_over_members_that_stop_and_die() {
    let (mut cluster, seed) = (Cluster::start(3, &[]), seed());
    let stores = Endpoints(cluster.endpoints());
    let stop = setting("LINEARIZABILITY_STOP_MILLISECONDS", STOP_MILLISECONDS_MAX);
    let cluster = &mut cluster;
    run(examine(3, &stores, seed, |_, end| {
        let draw = SeededRandom::new(seed, 2_000);
        async move { disturb_members(cluster, stop, draw, end).await }.boxed()
    }));
}
