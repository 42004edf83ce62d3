//! What goes wrong during a run, at random moments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use signpost_apiserver::store::Store;
use signpost_testing::etcd::Cluster;
use tokio::task::block_in_place;

use crate::clients::Draw;
use crate::servers::Servers;

/// The store of a server, opened when the server starts.
pub trait Stores: Send + Sync {
    fn open(&self, server: usize) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Ends one server after the other and starts it again, until `end`.
pub async fn restart_servers(servers: &Servers, stores: &dyn Stores, mut draw: Draw, end: Instant) {
    loop {
        pause(&mut draw, 800..2_500).await;
        if Instant::now() > end {
            return;
        }
        let server = draw.below(servers.count() as u64) as usize;
        servers.stop(server).await;
        servers.start(server, stores.open(server).await).await;
    }
}

/// Kills members of a cluster and starts them again, or stops and continues them, the leader as often as any, until `end`. One
/// at a time: the others go on.
pub async fn disturb_members(cluster: &mut Cluster, stop_milliseconds_max: u64, mut draw: Draw, end: Instant) {
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

async fn pause(draw: &mut Draw, milliseconds: std::ops::Range<u64>) {
    let pause = milliseconds.start + draw.below(milliseconds.end - milliseconds.start);
    tokio::time::sleep(Duration::from_millis(pause)).await;
}
