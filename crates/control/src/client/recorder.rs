//! Records Events (`events.k8s.io/v1`), and joins equal ones to a series, as client-go's recorder of that API does.
//!
//! Equal are events that say the same of the same object, by the same reporter: `type`, `action`, `reason` and `note`.
//! One that comes again within six minutes of the last makes no new object: `series` of the first one counts it and
//! says when that was. It costs one write, as a new one would.
//!
//! Two things differ from client-go. It leaves the note out of what must be equal, and so loses all notes but the
//! first, of which ours name Routers and servers. And it writes the count when a series is over, so that a third event
//! is seen six minutes after the second; here each is written.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::time::Instant;

use super::write;

/// How long after an event an equal one belongs to the same series, as in client-go. An API keeps events for longer.
const APART_MAX: Duration = Duration::from_secs(6 * 60);
/// Most events that are known to come again: beyond, the oldest are forgotten, and come as new ones if they do. As in
/// client-go.
const KNOWN_MAX: usize = 4096;

/// Records events. Nothing is tried again.
pub struct Recorder {
    client: kube::Client,
    known: Mutex<Known>,
}

impl Recorder {
    /// A recorder that speaks through `client`.
    pub fn new(client: kube::Client) -> Self {
        Recorder { client, known: Mutex::default() }
    }

    /// Records an event that happened now: a new one, or one more of its series. Its name and namespace are those that
    /// it has if it is new.
    pub async fn record(&self, event: &Event) -> kube::Result<()> {
        let key = self.known().key(event);
        let again = self.known().again(key, Instant::now());
        if let Some(Again { namespace, name, count }) = again {
            let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
            let patch = json!({"series": series});
            match write::merge::<Event>(&self.client, Some(&*namespace), &name, &patch).await {
                // It was deleted, or has expired: this one is the first.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => return done,
            }
        }
        write::create(&self.client, event.metadata.namespace.as_deref(), event).await?;
        self.known().insert(key, event, Instant::now());
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// The events that were recorded lately, by the hash of what makes them equal.
#[derive(Default)]
struct Known {
    /// Its keys come from users, among others.
    hasher: RandomState,
    series: HashMap<u64, Series>,
    /// The keys, each with a time at which it was seen, about in that order.
    order: VecDeque<(Instant, u64)>,
}

/// An event, and how often it happened.
struct Series {
    namespace: Box<str>,
    name: Box<str>,
    count: i32,
    seen: Instant,
}

/// One more of a series.
#[derive(Debug, PartialEq)]
struct Again {
    namespace: Box<str>,
    name: Box<str>,
    count: i32,
}

impl Known {
    fn key(&self, event: &Event) -> u64 {
        let about = event.regarding.as_ref();
        let about = about.map(|about| (&about.kind, &about.namespace, &about.name, &about.uid));
        let says = (&event.type_, &event.action, &event.reason, &event.note);
        self.hasher.hash_one((about, says, &event.reporting_controller, &event.reporting_instance))
    }

    /// Counts an event, if it is one more of a series.
    fn again(&mut self, key: u64, now: Instant) -> Option<Again> {
        let series = self.series.get_mut(&key).filter(|series| series.seen + APART_MAX >= now)?;
        series.count = series.count.saturating_add(1);
        series.seen = now;
        Some(Again { namespace: series.namespace.clone(), name: series.name.clone(), count: series.count })
    }

    fn insert(&mut self, key: u64, event: &Event, now: Instant) {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let (namespace, name) = (text(&event.metadata.namespace), text(&event.metadata.name));
        if self.series.insert(key, Series { namespace, name, count: 1, seen: now }).is_none() {
            self.order.push_back((now, key));
        }
        self.forget_old(now);
    }

    /// Forgets what was not seen for [`APART_MAX`], and what is too many.
    fn forget_old(&mut self, now: Instant) {
        while let Some((seen, key)) = self.order.front().copied()
            && (seen + APART_MAX < now || self.order.len() > KNOWN_MAX)
        {
            self.order.pop_front();
            match self.series.get(&key).map(|series| series.seen) {
                // It came again since.
                Some(last) if last != seen => self.order.push_back((last, key)),
                _ => drop(self.series.remove(&key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn event(name: &str, note: &str) -> Event {
        let mut event = Event { reason: Some("Scheduled".to_owned()), note: Some(note.to_owned()), ..Event::default() };
        event.metadata.namespace = Some("shop".to_owned());
        event.metadata.name = Some(name.to_owned());
        event.regarding = Some(ObjectReference { name: Some("front".to_owned()), ..ObjectReference::default() });
        event
    }

    /// Whether an event is one more of a series: which, and how many there are by then.
    fn tell(known: &mut Known, event: &Event, now: Instant) -> Option<(String, i32)> {
        let key = known.key(event);
        let again = known.again(key, now);
        if again.is_none() {
            known.insert(key, event, now);
        }
        again.map(|again| (again.name.into(), again.count))
    }

    #[test]
    fn equal_events_are_a_series_as_long_as_they_come() {
        let (mut known, start) = (Known::default(), Instant::now());
        let other = |change: fn(&mut Event)| {
            let mut event = event("e", "on one");
            change(&mut event);
            event
        };
        for (event, after, expected) in [
            (event("a", "on one"), 0, None),
            (event("b", "on one"), 300, Some(2)),
            (event("c", "on two"), 300, None),
            (event("d", "on one"), 660, Some(3)),
            (other(|event| event.type_ = Some("Warning".to_owned())), 660, None),
            (other(|event| event.reporting_instance = Some("another".to_owned())), 660, None),
            (other(|event| event.regarding = None), 660, None),
            (event("f", "on one"), 1021, None),
        ] {
            let told = tell(&mut known, &event, start + Duration::from_secs(after));
            assert_eq!(told, expected.map(|count| ("a".to_owned(), count)), "{event:?}");
        }
    }

    #[test]
    fn what_is_known_is_bounded() {
        let (mut known, now) = (Known::default(), Instant::now());
        for at in 0..KNOWN_MAX * 3 {
            tell(&mut known, &event("e", &(at % (KNOWN_MAX * 2)).to_string()), now);
            tell(&mut known, &event("often", "the same"), now);
            assert!(known.series.len() <= KNOWN_MAX && known.order.len() <= KNOWN_MAX);
        }
        let told = tell(&mut known, &event("once more", "the same"), now).expect("it is one more");
        assert_eq!(told.0, "often");
        known.forget_old(now + APART_MAX * 2);
        assert!(known.series.is_empty() && known.order.is_empty());
    }
}
