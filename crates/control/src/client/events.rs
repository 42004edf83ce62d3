//! Kubernetes Events (`events.k8s.io/v1`) about Routes, recorded without blocking the caller.
//!
//! Events wait in a bounded queue. One task records them in sequence, at a limited rate, and drops and counts events that do not
//! fit. An event costs the API as much as a binding, and only repeats the status. `kube`'s own recorder is not used, because it
//! searches all events of the last six minutes for each new one.
//!
//! Callers record an event only when a Route's condition changes. Equal events are joined to a series ([`super::recorder`]).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::recorder::{self, name_of};
use super::reflector::ObjectKey;
use signpost_types::text::cut;
use signpost_types::v1alpha1::{GROUP, VERSION};

/// The largest number of queued events: ten seconds of them. A longer queue would only delay events.
const WAITING_MAX: usize = 1024;
/// The events recorded immediately after an idle period: enough for manual changes and for most pipelines.
const BURST: u32 = 256;
/// The average rate beyond the burst, in events per second: at 2,000 Routes per second, one event in twenty. More would not be
/// read.
const PER_SECOND: u32 = 100;
/// The longest note that the API accepts, in bytes.
const NOTE_OCTETS_MAX: usize = 1024;
/// The time limit for recording one event.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Reporter {
    /// The controller named in events, such as `signpost.dev/scheduler`.
    pub controller: &'static str,
    /// The action as a single word, such as `Scheduling`.
    pub action: &'static str,
    /// The name of this process.
    pub instance: String,
}

/// Counters of recorded and dropped events; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    pub recorded: Counter,
    /// The events not recorded, because the queue was full or the API rejected them.
    pub dropped: Counter,
}

impl Counters {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("events", "Events recorded", self.recorded.clone());
        let help = "Events not recorded because too many were waiting";
        registry.register("events_dropped", help, self.dropped.clone());
    }
}

/// The sender of the event queue.
#[derive(Debug, Clone)]
pub struct Events {
    line: mpsc::Sender<Notice>,
    counters: Counters,
}

/// An event to record about an object.
#[derive(Debug)]
pub struct Notice {
    /// The object's `apiVersion`; `None`: that of the platform's kinds.
    pub api_version: Option<String>,
    /// The object's kind, such as `Route`.
    pub kind: &'static str,
    /// The object's key.
    pub object: ObjectKey,
    /// The object's uid.
    pub uid: String,
    pub is_warning: bool,
    /// The reason, as a single word.
    pub reason: &'static str,
    /// The description, in a sentence.
    pub note: String,
}

impl Events {
    /// Returns the queue, and the task that records its events for `reporter` until every clone of the queue is dropped.
    pub fn new(
        client: kube::Client,
        reporter: Reporter,
        counters: Counters,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (line, waiting) = mpsc::channel(WAITING_MAX);
        (Events { line, counters: counters.clone() }, record_all(client, reporter, counters, waiting))
    }

    /// Queues an event, or counts it as dropped.
    pub fn record(&self, notice: Notice) {
        if self.line.try_send(notice).is_err() {
            self.counters.dropped.inc();
        }
    }
}

async fn record_all(client: kube::Client, reporter: Reporter, counters: Counters, mut waiting: mpsc::Receiver<Notice>) {
    // The time at which the rate limit has no debt.
    let mut paid = Instant::now();
    while let Some(notice) = waiting.recv().await {
        sleep_until(paid.checked_sub(Duration::from_secs(1) * BURST / PER_SECOND).unwrap_or(paid)).await;
        paid = paid.max(Instant::now()) + Duration::from_secs(1) / PER_SECOND;
        let event = event(notice, &reporter, Timestamp::now());
        match timeout(RECORD_TIMEOUT, recorder::record(&client, &event)).await {
            Ok(Ok(())) => counters.recorded.inc(),
            // Statuses and logs contain the same facts, so an event is not worth a second try.
            Ok(Err(_)) | Err(_) => counters.dropped.inc(),
        };
    }
}

pub fn event(notice: Notice, reporter: &Reporter, now: Timestamp) -> Event {
    let ObjectKey { namespace, name } = notice.object;
    let mut event = Event {
        metadata: ObjectMeta {
            // Events about cluster-scoped objects are in this namespace.
            namespace: Some(namespace.clone().unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.to_owned()),
        action: Some(reporter.action.to_owned()),
        reason: Some(notice.reason.to_owned()),
        note: Some(cut(&notice.note, NOTE_OCTETS_MAX).to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(notice.api_version.unwrap_or_else(|| format!("{GROUP}/{VERSION}"))),
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
