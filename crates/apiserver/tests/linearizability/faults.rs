//! The faults during a run, at random moments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use signpost_apiserver::store::Store;

use crate::clients::SeededRandom;
use crate::servers::Servers;

/// The store of a server, opened when the server starts.
pub trait Stores: Send + Sync {
    fn open(&self, server: usize) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Ends one server after the other and starts it again, until `end`.
pub async fn restart_servers(servers: &Servers, stores: &dyn Stores, mut draw: SeededRandom, end: Instant) {
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

pub async fn pause(draw: &mut SeededRandom, milliseconds: std::ops::Range<u64>) {
    let pause = milliseconds.start + draw.below(milliseconds.end - milliseconds.start);
    tokio::time::sleep(Duration::from_millis(pause)).await;
}
