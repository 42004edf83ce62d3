//! Executes actions: futures that run outside a loop, each for a key, with a time limit.
//!
//! A future that times out, or panics, ends as an error of its key, so that the loop handles all three in the same way.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

/// Futures in progress, by their keys. Dropping it aborts them.
#[derive(Debug)]
pub struct Executor<K, T> {
    limit: Duration,
    tasks: JoinSet<kube::Result<T>>,
    keys: HashMap<Id, K>,
}

impl<K, T: Send + 'static> Executor<K, T> {
    /// Returns an executor with the time limit `limit` for each future.
    pub fn new(limit: Duration) -> Self {
        Executor { limit, tasks: JoinSet::new(), keys: HashMap::new() }
    }

    pub fn start(&mut self, key: K, action: impl Future<Output = kube::Result<T>> + Send + 'static) {
        let limit = self.limit;
        let late =
            || kube::Error::ReadEvents(io::Error::new(io::ErrorKind::TimedOut, "the API did not answer in time"));
        let task = self.tasks.spawn(async move { timeout(limit, action).await.unwrap_or_else(|_| Err(late())) });
        self.keys.insert(task.id(), key);
    }

    /// Returns the number of futures in progress.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether no future is in progress.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Aborts all futures, and returns their keys.
    pub fn abort_all(&mut self) -> impl Iterator<Item = K> + use<K, T> {
        self.tasks = JoinSet::new();
        std::mem::take(&mut self.keys).into_values()
    }

    /// Waits for the next future to end; `None`: none is in progress.
    pub async fn next(&mut self) -> Option<(K, kube::Result<T>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "an action panicked");
                }
                (error.id(), Err(kube::Error::ReadEvents(io::Error::other(error.to_string()))))
            }
        };
        let key = self.keys.remove(&id).expect("each task was started with a key, and ends once");
        Some((key, result))
    }

    /// Aborts all futures, and waits until they are gone.
    pub async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_panics_or_hangs_is_an_error_of_its_key() {
        let mut executor = Executor::new(Duration::from_millis(20));
        executor.start("good", async { Ok(1) });
        executor.start("panics", async { panic!("a fault of its own") });
        executor.start("hangs", std::future::pending());
        let mut ends = Vec::new();
        while let Some((key, result)) = executor.next().await {
            ends.push((key, result.map_err(|error| error.to_string().contains("in time"))));
        }
        ends.sort();
        assert_eq!(ends, [("good", Ok(1)), ("hangs", Err(true)), ("panics", Err(false))]);
        assert!(executor.keys.is_empty() && executor.next().await.is_none());
    }
}
