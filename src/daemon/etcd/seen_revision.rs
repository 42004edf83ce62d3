//! Detects that etcd was restored from an older snapshot. It then reuses revisions, and zones would reuse serials.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use signpost_api::kinds::zone::ZONE;
use signpost_apiserver::store::etcd::Etcd;
use signpost_apiserver::store::{self, Key, Precondition, Revision, Store as _, Txn, Write};
use signpost_runtime::tls::files;

use crate::daemon::restored;

/// The file in the data directory.
const FILE: &str = "etcd-revision";
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// The cluster and the newest revision that this machine has seen. A file keeps them, to detect a restore while the machine is off.
pub struct SeenRevision {
    path: PathBuf,
    seen: Option<(u64, Revision)>,
    written: Option<Instant>,
}

impl SeenRevision {
    /// Reads the file.
    pub fn open(data_dir: &Path) -> SeenRevision {
        let path = data_dir.join(FILE);
        let seen = files::read(&path).ok().flatten().as_deref().and_then(read);
        SeenRevision { path, seen, written: None }
    }

    /// Compares etcd with the revision seen before. After a restore, it advances the serials of zones, so that no serial has two
    /// contents.
    pub async fn check(&mut self, etcd: &Etcd, cluster: u64, newest: Revision) {
        if let Some((former, revision)) =
            self.seen.filter(|(former, revision)| *former != cluster || *revision > newest)
        {
            tracing::error!(
                "etcd was restored or replaced: cluster {former:x} at revision {} before, cluster {cluster:x} at revision {} now; \
                 writes in between are lost; the serials of all zones are advanced",
                revision.0,
                newest.0
            );
            if let Err(error) = move_on(etcd).await {
                tracing::error!(%error, "failed to advance the serials of zones; retrying");
                return;
            }
            self.written = None;
        }
        self.seen = Some((cluster, newest));
        if self.written.is_none_or(|written| written.elapsed() >= WRITE_INTERVAL) {
            let text = format!("{cluster:x} {}\n", newest.0);
            match files::write_private(&self.path, text.as_bytes()) {
                Ok(()) => self.written = Some(Instant::now()),
                Err(error) => tracing::warn!(%error, "failed to save the newest revision of etcd"),
            }
        }
    }
}

fn read(text: &str) -> Option<(u64, Revision)> {
    let (cluster, revision) = text.trim().split_once(' ')?;
    Some((u64::from_str_radix(cluster, 16).ok()?, Revision(revision.parse().ok()?)))
}

async fn move_on(etcd: &Etcd) -> store::Result<()> {
    let zones = etcd.list(&Key(ZONE.key_prefix.into()), None, None, None).await?;
    for zone in zones.items {
        let Some(value) = restored::moved_on(&zone) else { continue };
        let expect = vec![(zone.key.clone(), Precondition::At(zone.modified))];
        let writes = vec![Write::Put { key: zone.key, value, ttl: None }];
        // A conflict means that another server has advanced it.
        etcd.commit(Txn { expect, writes, ..Txn::default() }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        assert_eq!(read("cdf818194e3a8c32 77\n"), Some((0xcdf8_1819_4e3a_8c32, Revision(77))));
        for text in ["", "1", "x 1", "1 x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
