//! A full disk: a start waits for space and reports that, and a running process reports that it accepts few writes.

use std::error::Error;
use std::io;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::admin::health::Check;
use signpost_apiserver::store::Store;
use signpost_runtime::causes::causes;

/// The interval of checks for free space.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs a step of the start, and repeats it while the disk has no space for it. If the process exited instead, its service
/// manager would restart it with the same result, and its health endpoint could not report the problem.
pub async fn when_there_is_room<T, E: Error + 'static>(
    check: &Check,
    mut step: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut reported = false;
    loop {
        match step().await {
            Err(error) if is_full(&error) => {
                check.missing(format!("the disk is full: {error}; free some space to continue the start"));
                if !std::mem::replace(&mut reported, true) {
                    tracing::error!("the disk is full, startup waits for free space: {error}");
                }
                tokio::time::sleep(INTERVAL).await;
            }
            done => {
                if reported {
                    tracing::warn!("the disk has free space again, startup continues");
                }
                return done;
            }
        }
    }
}

/// Returns whether a full file system is the cause of an error.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// Returns the message for a store whose disk is full.
pub fn words(needed: u64) -> String {
    format!(
        "the disk is full (less than {} MiB left): objects can be deleted, but not created or made larger; free some space",
        needed >> 20
    )
}

/// Updates `check` with whether the disk of the store is full, until `stop`.
pub async fn watch(store: impl Store, check: Check, stop: CancellationToken) {
    let mut reported = None;
    while stop.run_until_cancelled(tokio::time::sleep(INTERVAL / 4)).await.is_some() {
        let full = store.full();
        if full != reported {
            match full {
                Some(needed) => check.warn(words(needed)),
                None => check.ready(),
            }
            reported = full;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::health::Health;
    use signpost_runtime::tls;

    #[tokio::test]
    async fn a_step_of_the_start_waits_for_room_and_for_nothing_else() {
        let health = Health::default();
        let check = health.add("process", "start", "it is starting");
        let error = |kind: io::ErrorKind| tls::Error::File { path: "pki/ca.key".into(), source: kind.into() };
        let mut tries = 0;
        let step = when_there_is_room(&check, async || {
            tries += 1;
            assert_eq!(tries > 1, health.report().missing()[0].contains("the disk is full: "), "{}", health.report());
            if tries < 3 { Err(error(io::ErrorKind::StorageFull)) } else { Ok(tries) }
        });
        assert_eq!(step.await.expect("there is room at last"), 3);
        let denied = when_there_is_room(&check, async || Err::<(), _>(error(io::ErrorKind::PermissionDenied)));
        assert!(denied.await.is_err());
    }
}
