//! Publishes the zones of objects, and writes the last-known-good state of those that are served.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::last_known_good::{LastKnownGood, Opened, StateError};
use super::metrics::Publishing;
use super::platform_zones::{Output, Zones};
use super::record::{self, JournalEntry, Loaded};
use super::restore::Restored;
use super::status::Status;
use crate::compiler::former_domains::FormerDomain;
use crate::compiler::{Platform, Settings};
use crate::name_server::domain::Domains;
use signpost_dns::wire::Name;
use signpost_dns::zone::Zone;
use signpost_dns::zone::publish::{self, Change, Origin, Swap};

/// The objects' zones that were swapped, each with its new version, since the last-known-good state was written.
type Swapped = Mutex<Vec<(Name, Option<Arc<Zone>>)>>;

/// The publisher of all zones, and the last-known-good state, which follows it.
pub struct Publisher {
    pub(super) zones: Arc<publish::Publisher>,
    swapped: Arc<Swapped>,
    pub(super) status: Arc<Status>,
    publishing: Publishing,
    state: Option<LastKnownGood>,
    /// The number of entries that must be on disk before a new state replaces a rejected one; set when all zones are built.
    renewed: Option<u64>,
    /// Entries for the last-good state.
    pub(super) journal: Vec<JournalEntry>,
    /// Zones that wait until all are built; `None` after that.
    first: Option<Vec<Change>>,
    /// Dropped when all names of the platform have an answer.
    loading: Option<oneshot::Sender<Infallible>>,
}

impl Publisher {
    /// Returns a publisher without a last-known-good state, which has published nothing yet.
    pub fn new(
        zones: Arc<publish::Publisher>,
        status: Arc<Status>,
        publishing: Publishing,
        loading: oneshot::Sender<Infallible>,
    ) -> Self {
        let swapped = Arc::<Swapped>::default();
        let listening = Arc::clone(&swapped);
        zones.listen(move |step| listening.lock().extend(step.swaps.iter().filter_map(of_objects)));
        Publisher {
            zones,
            swapped,
            status,
            publishing,
            state: None,
            renewed: None,
            journal: Vec::new(),
            first: Some(Vec::new()),
            loading: Some(loading),
        }
    }

    /// Opens the last-good state in `directory`. Returns its contents.
    pub fn open_state(&mut self, directory: &Path, domains: &Domains) -> Result<Option<Loaded>, StateError> {
        let (state, Opened { loaded, problem, aside, former }) = LastKnownGood::open(directory, domains)?;
        self.status.state().last_good_failing = state.failing();
        self.state = Some(state);
        if let Some(problem) = problem {
            tracing::error!("last-known-good state: {problem}");
        }
        if let Some(former) = former {
            tracing::info!(former, "the domain has changed: serving the last-known-good state of the former one");
        }
        if aside.is_some() {
            let mut status = self.status.state();
            (status.is_last_good_refused, status.last_good_refused_at) = (true, Some(Timestamp::now()));
            status.hindrance = Some("the last-known-good state could not be used".to_owned());
            tracing::error!("no last-known-good state: the platform's names get SERVFAIL until the API is reachable");
        }
        Ok(loaded)
    }

    /// Returns a future that ends when the writer of the last-good state fails, with the reason.
    pub fn ended(&self) -> impl Future<Output = StateError> + use<> {
        match &self.state {
            Some(state) => state.ended().map(StateError::Ended).left_future(),
            None => std::future::pending().right_future(),
        }
    }

    /// Serves the zones from before a restart, before the objects are read.
    pub fn serve_restored(&mut self, restored: &Restored, settings: &Settings) {
        if restored.is_empty() {
            return;
        }
        self.zones.publish(restored.changes(settings));
        // They come from the state.
        self.swapped.lock().clear();
        self.zones.db().set_ready();
        if restored.is_whole(settings) {
            self.status.state().is_ready = true;
            self.loading = None;
        }
    }

    /// Records the served domains in the last-good state.
    pub fn record_domains(&mut self, settings: &Settings) {
        if self.state.is_some() {
            let domains = [settings].into_iter().chain(settings.former_domains().iter().map(|former| &**former));
            let domains: Vec<FormerDomain> = domains.map(FormerDomain::of).collect();
            self.journal.push(record::domains(&domains));
        }
    }

    /// Records all objects in the last-good state.
    pub fn record(&mut self, platform: &Platform) {
        if self.state.is_some() {
            self.journal.extend(platform.routers().map(|router| record::router(&router.name, Some(router))));
            self.journal.extend(platform.bindings().map(|binding| record::binding(&binding.key, Some(binding))));
            self.journal.extend(platform.challenges().map(|(key, challenge)| record::challenge(key, Some(challenge))));
        }
    }

    /// Publishes the due zones; the first time, all of them in one step.
    pub fn publish_due(&mut self, zones: &mut Zones, unix_now: u64) {
        let begun = Instant::now();
        let output = zones.publish_due(begun, unix_now);
        let publishes = !output.changes.is_empty();
        self.carry_out(output, zones);
        if publishes {
            self.publishing.took(begun.elapsed());
        }
        if zones.next_deadline().is_none() {
            self.set_ready(zones);
        }
    }

    /// Publishes changes of the zones, or keeps them for the first step.
    pub fn carry_out(&mut self, output: Output, zones: &Zones) {
        let Output { changes, forgotten } = output;
        self.journal.extend(forgotten.iter().map(|apex| record::zone(apex, None, None)));
        match &mut self.first {
            Some(first) => first.extend(changes),
            None => self.publish(changes),
        }
        let mut status = self.status.state();
        (status.counters, status.zones) = (zones.counters, zones.count());
        status.former_domains = zones.former_domains();
        drop(status);
        self.write(zones);
    }

    /// Writes the last-known-good state of all that changed.
    fn write(&mut self, zones: &Zones) {
        let swapped = std::mem::take(&mut *self.swapped.lock());
        let Some(state) = &self.state else { return self.journal.clear() };
        let record = |(apex, zone): &(Name, Option<Arc<Zone>>)| {
            record::zone(apex, zones.version(apex), zone.as_deref().filter(|zone| zone.is_shard()))
        };
        self.journal.extend(swapped.iter().map(record));
        state.write(std::mem::take(&mut self.journal));
    }

    fn publish(&self, changes: Vec<Change>) {
        let step = self.zones.publish(changes);
        assert!(step.refused.is_empty(), "changes of the zones of objects do not fit them: {:?}", step.refused);
    }

    /// Serves the zones of the first step, when all of them are built.
    pub fn set_ready(&mut self, zones: &Zones) {
        if let Some(first) = self.first.take() {
            self.publish(first);
            self.zones.db().set_ready();
            self.write(zones);
        }
        self.status.state().is_ready = true;
        self.loading = None;
    }

    /// Reports that a new last-known-good state replaces a rejected one, when all zones are built and on disk.
    pub fn replace_refused(&mut self) {
        let mut status = self.status.state();
        let Some(state) = self.state.as_ref().filter(|_| status.is_last_good_refused && status.is_ready) else {
            return;
        };
        let mark = *self.renewed.get_or_insert_with(|| state.mark());
        if state.is_stored(mark) {
            status.is_last_good_refused = false;
            tracing::info!("wrote a new last-known-good state to disk");
        }
    }
}

/// Returns the new version of a zone of objects; `None` for a zone of another origin, even if it hides one of objects.
fn of_objects(swap: &Swap) -> Option<(Name, Option<Arc<Zone>>)> {
    let version = swap.after.as_ref().or(swap.before.as_ref()).filter(|version| version.origin == Origin::Objects)?;
    Some((swap.apex.clone(), swap.after.is_some().then(|| Arc::clone(&version.zone))))
}
