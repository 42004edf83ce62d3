//! The last-known-good Site on disk, from which an agent starts while the API is unreachable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use signpost_runtime::tls::files;
use signpost_types::instance::CertificatesReport;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::lease::Revisions;
use crate::site::Site;

const NAME: &str = "site.json";
/// The inverse share of time for writing: a changed Site is written immediately, unless writing would then take more than this
/// part of the time. A change during a write copies the Site, and shares the processor with it: fewer than one in a hundred should meet
/// one.
const SHARE: u32 = 300;
/// The longest time between two writes: a single slow one, on a busy disk, does not delay the next one for minutes.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// The contents of the file.
#[derive(Serialize, Deserialize)]
pub(crate) struct LastSite {
    /// The objects that it serves.
    #[serde(default)]
    pub(crate) revisions: Revisions,
    /// The certificates that the proxy served with it, for a proxy that still does.
    #[serde(default)]
    pub(crate) certificates: Option<Arc<CertificatesReport>>,
    /// The Site, without certificates.
    pub(crate) site: Arc<Site>,
}

/// The file. It is written concurrently with the work of the agent, which copies the Site only if it changes in the meantime.
pub(crate) struct LastSiteFile {
    path: PathBuf,
    is_saved: bool,
    /// A write, which ends with how long it took.
    writing: Option<JoinHandle<Result<Duration, String>>>,
    /// The time before which nothing is written.
    next: Instant,
}

impl LastSiteFile {
    pub(crate) fn new(directory: &Path) -> LastSiteFile {
        LastSiteFile { path: directory.join(NAME), is_saved: true, writing: None, next: Instant::now() }
    }

    /// Reads the Site that an earlier run has written.
    pub(crate) fn read(&self) -> Option<LastSite> {
        let text = files::read(&self.path).map_err(|error| error.to_string());
        let last = text.and_then(|text| {
            text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| error.to_string())
        });
        last.unwrap_or_else(|error| {
            tracing::error!(file = %self.path.display(), error, "failed to read the last-known-good Site");
            None
        })
    }

    /// Records whether the Site differs from that in the file.
    pub(crate) fn has_changed(&mut self, has_changed: bool) {
        self.is_saved &= !has_changed;
    }

    /// Starts to write a changed Site, unless another write runs or was just before.
    pub(crate) async fn save(&mut self, last: impl FnOnce() -> LastSite) {
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.end().await;
        }
        if self.is_saved || self.writing.is_some() || Instant::now() < self.next {
            return;
        }
        self.is_saved = true;
        let (path, last) = (self.path.clone(), last());
        self.writing = Some(spawn_blocking(move || {
            let started = Instant::now();
            let text = serde_json::to_vec(&last).expect("its keys are texts");
            files::write_private(&path, &text).map_err(|error| error.to_string())?;
            Ok(started.elapsed())
        }));
    }

    /// Writes a changed Site, and waits for that.
    pub(crate) async fn finish(&mut self, last: impl FnOnce() -> LastSite) {
        self.end().await;
        self.next = Instant::now();
        self.save(last).await;
        self.end().await;
    }

    /// Waits until a write has ended.
    async fn end(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        match writing.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(took) => self.next = Instant::now() + (took * SHARE).min(INTERVAL_MAX),
            Err(error) => {
                tracing::error!(file = %self.path.display(), error, "failed to write the last-known-good Site");
                (self.is_saved, self.next) = (false, Instant::now() + PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_delays_the_next_one_by_its_time_and_at_most_a_minute() {
        let mut file = LastSiteFile::new(Path::new("/nowhere"));
        for (took, expected) in [(0, 0), (10, 3_000), (200, 60_000), (9_000, 60_000)] {
            file.writing = Some(tokio::spawn(async move { Ok(Duration::from_millis(took)) }));
            let (earliest, expected) = (Instant::now(), Duration::from_millis(expected));
            file.end().await;
            assert!((earliest + expected..=Instant::now() + expected).contains(&file.next), "{took}");
        }
    }
}
