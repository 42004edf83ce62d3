//! Maintenance of certificates and users while the process runs: checks files every second, and renews certificates when they are
//! due.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use signpost_runtime::tls;
use signpost_runtime::tls::served::Served;

/// The interval at which certificates are checked. A certificate is renewed weeks before its end.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The interval at which files are checked: a revoked user can have access for that long.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The time before the end of the operator's own certificate from which the log has warnings.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// A check for replaced files.
    Look,
    Renewal,
}

/// A part that needs maintenance.
pub trait Maintenance: Send + Sync + 'static {
    /// Runs the due task. It can read, write, and sync files.
    fn maintain(&self, due: MaintenanceTask);
}

/// Maintains `subject` until `stop` fires.
pub async fn keep(subject: Arc<impl Maintenance>, stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewals = tokio::time::interval(RENEWAL_INTERVAL);
    loop {
        let due = tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => MaintenanceTask::Look,
            _ = renewals.tick() => MaintenanceTask::Renewal,
        };
        let subject = subject.clone();
        // Not on a thread that other tasks need.
        if tokio::task::spawn_blocking(move || subject.maintain(due)).await.is_err() {
            tracing::error!(?due, "the check of certificates and users panicked");
        }
    }
}

/// Logs the result of reloading the operator's files; `whose` is the endpoint with the certificate.
pub fn log_read(whose: &str, taken: Result<bool, tls::Error>) {
    match taken {
        Ok(true) => tracing::info!("new connections to {whose} use the new certificate"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%error, "failed to load the new certificate of {whose}; the former one stays in use");
        }
    }
}

/// Warns if the operator's own certificate expires soon.
pub fn warn_of_end(whose: &str, served: &Served) {
    let file = served.files()[0].display();
    if let Some(why) = served.invalid(SystemTime::now()) {
        tracing::error!("the certificate of {whose} in {file} {why}, and clients reject it; replace the file");
    } else if served.ends_before(SystemTime::now() + WARN_BEFORE) {
        tracing::warn!("the certificate of {whose} in {file} ends within two weeks; replace the file");
    }
}
