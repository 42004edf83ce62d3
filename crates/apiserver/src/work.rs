//! Runs long computations outside the threads that serve requests.
//!
//! A list of many objects with a selector, or a patch of a large object, takes tens of milliseconds of CPU time. On a thread of
//! the runtime, all requests of that thread would wait as long. Here, the runtime releases the thread meanwhile. Because such
//! computations take turns ([`LargeWork`]), a user with many of them leaves CPU time to others.

use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of objects from which reading or writing all of them counts as large.
pub(crate) const OBJECTS_LARGE: usize = 1_000;
/// The size in octets from which a body counts as large. An ordinary object has a few KiB.
pub(crate) const BODY_LARGE: usize = 64 * 1024;

/// Turns at large work: half of the processors, so that others have the rest.
pub(crate) struct LargeWork(Semaphore);

impl LargeWork {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        LargeWork(Semaphore::new((processors / 2).max(1)))
    }

    /// Waits for a turn if the work is large.
    pub(crate) async fn take(&self, is_large: bool) -> Option<SemaphorePermit<'_>> {
        match is_large {
            true => Some(self.0.acquire().await.expect("the semaphore is never closed")),
            false => None,
        }
    }
}

/// Runs the work; if it is large, outside the runtime's threads.
pub(crate) fn beside<T>(is_large: bool, work: impl FnOnce() -> T) -> T {
    match is_large && may_block() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// Runs work that also waits; if it is large, its computations run outside the runtime's threads. While it waits, it can be
/// canceled: the work ends when its client leaves.
pub(crate) async fn wait_beside<T>(is_large: bool, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| beside(is_large, || work.as_mut().poll(context))).await
}

/// Returns whether this thread may block: a runtime with only one thread needs it.
fn may_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_leaves_the_only_thread_to_others() {
        for waits in [false, true] {
            let (sent, received) = std::sync::mpsc::channel();
            let other = tokio::spawn(async move { sent.send(()) });
            let limit = Duration::from_secs(60);
            let work = tokio::spawn(async move {
                let receive = move || received.recv_timeout(limit);
                match waits {
                    false => beside(true, receive),
                    true => wait_beside(true, async move { receive() }).await,
                }
            });
            assert_eq!(work.await.expect("no panic"), Ok(()), "the other task ran meanwhile");
            other.await.expect("no panic").expect("it was received");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_is_canceled_while_it_waits() {
        let (sent, received) = tokio::sync::oneshot::channel::<()>();
        let work = tokio::spawn(wait_beside(true, async move {
            std::future::pending::<()>().await;
            drop(sent);
        }));
        work.abort();
        assert!(received.await.is_err(), "what the work holds is dropped");
    }

    #[tokio::test]
    async fn in_a_runtime_of_one_thread_it_is_done_in_place() {
        assert_eq!(beside(true, || 1) + wait_beside(true, async { 2 }).await, 3);
    }

    #[tokio::test]
    async fn large_work_waits_and_small_work_does_not() {
        let large_work = LargeWork::new();
        let mut held = Vec::new();
        while let Ok(Some(turn)) = tokio::time::timeout(Duration::from_millis(10), large_work.take(true)).await {
            held.push(turn);
        }
        assert!(!held.is_empty());
        assert!(large_work.take(false).await.is_none());
        held.pop();
        assert!(large_work.take(true).await.is_some());
    }
}
