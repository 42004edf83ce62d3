//! Kubernetes Events (`events.k8s.io/v1`) about Routes, recorded beside the work and never in its way.
//!
//! Events wait in a bounded line, and one task records them one after the other, so many a second at most; what does
//! not fit is dropped and counted. An event costs the API as much as a binding, and tells what the status tells as
//! well. `kube`'s own recorder is not used: it looks through all events of the last six minutes for each new one. Those
//! who tell repeat nothing as long as it is so: an event is told only when a route's condition changes. What comes
//! again nevertheless is joined to a series ([`super::recorder`]).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::recorder::{Recorder, name_of};
use super::reflector::ObjectKey;
use signpost_api::text::cut;
use signpost_api::v1alpha1::{GROUP, VERSION};

/// Events that may wait: ten seconds of them. More would only be told later.
const WAITING_MAX: usize = 1024;
/// Events recorded at once after a rest: what a person does by hand is told of at once, and what a pipeline does nearly.
const BURST: u32 = 256;
/// Events a second on average beyond that: at 2,000 routes a second one in twenty, which is as much as anyone reads.
const PER_SECOND: u32 = 100;
/// Longest note the API takes, in octets.
const NOTE_OCTETS_MAX: usize = 1024;
/// How long recording one event may take.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// Who tells of events.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// The controller named in events, such as `signpost.dev/scheduler`.
    pub controller: &'static str,
    /// What it does, in one word, such as `Scheduling`.
    pub action: &'static str,
    /// Name of this process.
    pub instance: String,
}

/// What becomes of events; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Events recorded.
    pub recorded: Counter,
    /// Events not recorded, since too many waited or the API did not take them.
    pub dropped: Counter,
}

/// Where events are put to be recorded.
#[derive(Debug, Clone)]
pub struct Events {
    line: mpsc::Sender<Notice>,
    counters: Counters,
}

/// Something to tell about an object.
#[derive(Debug)]
pub struct Notice {
    /// Its kind, such as `Route`.
    pub kind: &'static str,
    /// Where it is.
    pub object: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Whether something is wrong.
    pub is_warning: bool,
    /// What happened, in one word.
    pub reason: &'static str,
    /// What happened, in a sentence.
    pub note: String,
}

impl Events {
    /// A line, and the task that records what stands in it for `reporter`, until every clone of the line is gone.
    pub fn new(
        client: kube::Client,
        reporter: Reporter,
        counters: Counters,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (line, waiting) = mpsc::channel(WAITING_MAX);
        (Events { line, counters: counters.clone() }, record_all(client, reporter, counters, waiting))
    }

    /// Tells of something, or counts that it could not.
    pub fn record(&self, notice: Notice) {
        if self.line.try_send(notice).is_err() {
            self.counters.dropped.inc();
        }
    }
}

async fn record_all(client: kube::Client, reporter: Reporter, counters: Counters, mut waiting: mpsc::Receiver<Notice>) {
    // When all that was recorded is paid back.
    let mut paid = Instant::now();
    let recorder = Recorder::new(client);
    while let Some(notice) = waiting.recv().await {
        sleep_until(paid.checked_sub(Duration::from_secs(1) * BURST / PER_SECOND).unwrap_or(paid)).await;
        paid = paid.max(Instant::now()) + Duration::from_secs(1) / PER_SECOND;
        let event = event(notice, &reporter, Timestamp::now());
        match timeout(RECORD_TIMEOUT, recorder.record(&event)).await {
            Ok(Ok(())) => counters.recorded.inc(),
            // An event tells what status and logs tell too: it is not worth a second try.
            Ok(Err(_)) | Err(_) => counters.dropped.inc(),
        };
    }
}

/// The Event that tells of it.
pub fn event(notice: Notice, reporter: &Reporter, now: Timestamp) -> Event {
    let ObjectKey { namespace, name } = notice.object;
    let mut event = Event {
        metadata: ObjectMeta {
            // Events about objects without a namespace are in this one.
            namespace: Some(namespace.clone().unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.to_owned()),
        action: Some(reporter.action.to_owned()),
        reason: Some(notice.reason.to_owned()),
        note: Some(cut(&notice.note, NOTE_OCTETS_MAX).to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(notice.kind.to_owned()),
            namespace,
            name: Some(name.clone()),
            uid: Some(notice.uid),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(reporter.controller.to_owned()),
        reporting_instance: Some(reporter.instance.clone()),
        ..Event::default()
    };
    event.metadata.name = Some(name_of(&name, &event));
    event
}
