//! Looking after certificates and users while the process runs: files are looked at every second, certificates renewed when
//! they are due.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use signpost_runtime::tls;
use signpost_runtime::tls::served::Served;

/// How often certificates are looked at. A certificate is renewed weeks before it ends.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// How often files are looked at: so long a revoked user may still come in.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long before the end of the operator's own certificate the log begins to warn.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 86_400);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// A look whether files were replaced.
    Look,
    Renewal,
}

/// Something that is looked after.
pub trait Maintenance: Send + Sync + 'static {
    /// Does what is due. It may read, write and sync files.
    fn maintain(&self, due: MaintenanceTask);
}

/// Looks after `subject` until `stop` fires.
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
        // Not on a thread that others wait for.
        if tokio::task::spawn_blocking(move || subject.maintain(due)).await.is_err() {
            tracing::error!(?due, "the look at certificates and users panicked");
        }
    }
}

/// Says what came of reading the operator's files again; `whose` endpoint shows the certificate.
pub fn log_read(whose: &str, taken: Result<bool, tls::Error>) {
    match taken {
        Ok(true) => tracing::info!("new connections to {whose} get the new certificate"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%error, "the new certificate of {whose} cannot be used; the former one is served on");
        }
    }
}

/// Warns of the operator's own certificate if it ends soon.
pub fn warn_of_end(whose: &str, served: &Served) {
    let file = served.files()[0].display();
    if let Some(why) = served.invalid(SystemTime::now()) {
        tracing::error!("the certificate of {whose} in {file} {why}, and clients refuse it; replace the file");
    } else if served.ends_before(SystemTime::now() + WARN_BEFORE) {
        tracing::warn!("the certificate of {whose} in {file} ends within two weeks; replace the file");
    }
}
