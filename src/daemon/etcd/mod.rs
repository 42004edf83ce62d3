//! The store `etcd` of a process: connected at the start, watched while it runs.

mod credentials;
pub mod secrets;
mod seen_revision;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::credentials::Credentials;
use self::secrets::{Published, Secrets};
use self::seen_revision::SeenRevision;
use super::Error;
use super::access::Access;
use super::data_dir::DataDir;
use super::encryption_key;
use crate::admin::health::Check;
use crate::config::{Role, Settings};
use signpost_apiserver::store::backup;
use signpost_apiserver::store::etcd::{ConnectError, Etcd, is_denied};
use signpost_runtime::tls;

/// The pause between two attempts to connect, and between two checks of a running cluster.
const INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of attempts to start while other API servers change the shared secrets.
const STARTS_AT_ONCE_MAX: usize = 10;

/// Connects with the settings.
///
/// # Errors
///
/// A file that cannot be read.
pub async fn connect(settings: &Settings) -> Result<Result<Etcd, ConnectError>, Error> {
    Ok(Etcd::connect(&credentials::read(&settings.etcd)?).await)
}

/// Connects. Waits while the cluster does not answer.
pub async fn connected(settings: &Settings, check: &Check) -> Result<Etcd, Error> {
    let mut is_reported = false;
    loop {
        let error = match connect(settings).await? {
            Ok(etcd) => {
                if is_reported {
                    tracing::warn!("etcd responded; startup continues");
                }
                backup::check_whole(&etcd).await.map_err(|error| Error::Etcd(error.to_string()))?;
                return Ok(etcd);
            }
            Err(error) => error,
        };
        if is_denied(&error) {
            return Err(Error::Etcd(format!("access denied: {error}; check \"etcd.user\" and \"etcd.certificate\"")));
        }
        let endpoints = settings.etcd.endpoints.join(", ");
        check.missing(format!("no response from etcd at {endpoints}: {error}"));
        if !std::mem::replace(&mut is_reported, true) {
            tracing::error!("no response from etcd at {endpoints}: {error}; startup waits for it");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Opens the access of the API, with the CA, tokens and users that all API servers of the platform share.
pub async fn shared_access(
    settings: &Settings,
    data_dir: &DataDir,
    etcd: Etcd,
    open: impl AsyncFn() -> Result<Access, tls::Error>,
) -> Result<(Access, Secrets<Etcd>), Error> {
    let key = encryption_key::path(settings);
    let mut secrets = Secrets::open(etcd, &key, &data_dir.join("pki")).await?;
    for _ in 0..STARTS_AT_ONCE_MAX {
        secrets.fetch().await?;
        // It adds tokens of its own kubeconfigs.
        let access = open().await?;
        if secrets.publish().await? == Published::Equal {
            return Ok((access, secrets));
        }
    }
    Err(Error::Etcd("the platform's secrets changed again and again; start API servers one after another".to_owned()))
}

/// Reports the state of the cluster until `stop`. While no member answers, an API server is not ready, so that clients and load
/// balancers use another one. A process that also answers DNS queries reports a warning, because its answers stay correct.
///
/// Also connects again when the files of the credentials change.
pub async fn watch(etcd: Etcd, settings: Settings, check: Check, stop: CancellationToken) {
    let mut seen = SeenRevision::open(&settings.data_dir);
    let mut credentials = Credentials::new(settings.etcd.clone());
    let mut reported = None;
    while stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
        credentials.refresh(&etcd).await;
        // An idle process sends no other requests.
        let answer = etcd.place().await;
        if let Ok((cluster, newest)) = answer {
            seen.check(&etcd, cluster, newest).await;
        }
        let problem = match (answer.is_err(), etcd.metrics().is_full()) {
            (true, _) => Some("no response from etcd: objects can be read, possibly outdated, but not changed"),
            (false, true) => Some(
                "etcd is full (alarm NOSPACE): objects can be deleted, but not created or changed; compact and defragment \
                 it, or raise its quota, and then disarm the alarm (etcdctl alarm disarm)",
            ),
            (false, false) => None,
        };
        if problem != reported {
            match problem {
                Some(problem) if answer.is_err() && !settings.roles.contains(&Role::Dns) => check.missing(problem),
                Some(problem) => check.warn(problem),
                None => check.ready(),
            }
            match problem {
                Some(problem) => tracing::error!("{problem}"),
                None => tracing::warn!("etcd responds and accepts writes again"),
            }
            reported = problem;
        }
    }
}
