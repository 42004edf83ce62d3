//! One list-watch of a kind for all loops of a process that follow it.
//!
//! ```text
//!                                ┌─► queue ─► Changes of one reader
//!   changes of the informer ─────┼─► queue ─► Changes of another
//!                                └─► queue ─► Changes of a third
//! ```
//!
//! There is no task: a reader that polls its [`Changes`] with an empty queue polls the informer, and puts the result in every
//! reader's queue. All readers get the same changes in the same order, and a slow reader does not delay the others. A queue that
//! becomes too long is replaced by the difference between the reader's state and the current objects, which the reader gets as a
//! [`Relist`]: no change is lost, and the number of objects bounds the waiting changes.
//!
//! The store can be ahead of a reader by the contents of its queue, but [`Store::is_synced`] is true for a reader only after it
//! got the first list. The watch opens with the first reader and closes with the last one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::{BoxStream, StreamExt as _, poll_fn};
use kube::Resource;
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::compact_store::Entry;
use super::{Applied, Change, Changes, ObjectKey, Relist, Settings, Shared, Store, changes};

/// The most changes in a queue: at 2,000 per second, a loop can be half a second late before the changes are coalesced. A list
/// counts as one.
const LINE_MAX: usize = 1_024;

/// The shared list-watch of a kind, for any number of readers, at any time.
pub struct Informer<V> {
    shared_reflector: Arc<SharedReflector<V>>,
}

impl<V> Clone for Informer<V> {
    fn clone(&self) -> Self {
        Informer { shared_reflector: Arc::clone(&self.shared_reflector) }
    }
}

impl<V: Send + Sync + 'static> Informer<V> {
    /// Returns an informer of all objects of kind `K` that `settings` selects, each converted by `project`.
    ///
    /// The identity of `client` must be allowed to list and watch them. Nothing happens until a reader polls.
    pub fn new<K>(client: kube::Client, settings: Settings, project: impl Fn(K) -> V + Send + Sync + 'static) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    {
        Self::indexed(client, settings, project, |_| ())
    }

    /// Returns such an informer with an index, which takes in each change once, before any reader gets it.
    pub fn indexed<K>(
        client: kube::Client,
        settings: Settings,
        project: impl Fn(K) -> V + Send + Sync + 'static,
        index: impl Fn(&Change<V>) + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    {
        let shared = Arc::new(Shared::new(settings.kind::<K>()));
        let (project, of_reflector) = (Arc::new(project), Arc::clone(&shared));
        let open = move || {
            let project = Arc::clone(&project);
            let project = Box::new(move |object| Arc::new(project(object)));
            changes(client.clone(), settings.clone(), project, &of_reflector).inspect(index.clone()).boxed()
        };
        Informer { shared_reflector: Arc::new(SharedReflector::new(shared, Box::new(open))) }
    }

    /// Returns the objects, and their changes from now on, which must be polled or dropped; the first one is a
    /// [`Change::Relisted`] with all objects.
    pub fn read(&self) -> (Store<V>, Changes<V>) {
        let synced = Arc::new(watch::Sender::new(false));
        let store = Store { shared: Arc::clone(&self.shared_reflector.shared), synced: Arc::clone(&synced) };
        let reader = SharedReflector::join(&self.shared_reflector);
        let (shared_reflector, id) = (Arc::clone(&self.shared_reflector), reader.id);
        let is_behind = move || shared_reflector.notifier.has_more(id);
        let stream = poll_fn(move |context| {
            reader.shared_reflector.poll(reader.id, context).map(|change| {
                if matches!(*change, Change::Relisted(_)) {
                    synced.send_replace(true);
                }
                Some(Arc::unwrap_or_clone(change))
            })
        });
        (store, Changes { stream: stream.boxed(), is_behind: Arc::new(is_behind) })
    }
}

/// Opens the list-watch.
type Open<V> = Box<dyn Fn() -> BoxStream<'static, Change<V>> + Send + Sync>;

/// An informer and its readers. Code that needs both of its locks takes the informer's first.
struct SharedReflector<V> {
    shared: Arc<Shared<V>>,
    open: Open<V>,
    /// `None` while there are no readers.
    reflector: Mutex<Option<BoxStream<'static, Change<V>>>>,
    notifier: Arc<Notifier<V>>,
}

/// The readers, which are woken when the informer has something: any of them can be its poller.
struct Notifier<V>(Mutex<Readers<V>>);

struct Readers<V> {
    pending: HashMap<u64, PendingEvents<V>>,
    next_id: u64,
}

/// The changes that one reader has not received yet.
struct PendingEvents<V> {
    changes: VecDeque<Arc<Change<V>>>,
    /// Replaces the changes when there are too many.
    missed: Option<CoalescedEvents<V>>,
    waker: Option<Waker>,
    /// Whether a full list is among them, or was. Changes are meaningless without it.
    has_all: bool,
}

/// The coalesced changes of a reader that is far behind.
struct CoalescedEvents<V> {
    /// Whether the reader has never received a list.
    everything: bool,
    /// Otherwise, the reader's value of each object that has changed since, and whether that object was deleted.
    objects: HashMap<ObjectKey, (Option<Arc<V>>, bool)>,
}

/// Removes a reader's queue on drop.
struct Reader<V> {
    shared_reflector: Arc<SharedReflector<V>>,
    id: u64,
}

impl<V> Drop for Reader<V> {
    fn drop(&mut self) {
        if self.shared_reflector.notifier.leave(self.id) {
            self.shared_reflector.close();
        }
    }
}

impl<V> SharedReflector<V> {
    fn new(shared: Arc<Shared<V>>, open: Open<V>) -> Self {
        let notifier = Arc::new(Notifier(Mutex::new(Readers { pending: HashMap::new(), next_id: 0 })));
        SharedReflector { shared, open, reflector: Mutex::default(), notifier }
    }

    /// Ends the watch, if there are still no readers.
    fn close(&self) {
        // The holder of the informer's lock reads, or closes it.
        let Some(mut reflector) = self.reflector.try_lock() else { return };
        if self.notifier.0.lock().pending.is_empty() {
            *reflector = None;
            self.shared.state().connected = false;
        }
    }

    /// Adds a reader.
    fn join(shared_reflector: &Arc<SharedReflector<V>>) -> Reader<V> {
        // While the informer is locked, the current objects are those that the other readers received.
        let mut reflector = shared_reflector.reflector.lock();
        let mut readers = shared_reflector.notifier.0.lock();
        // The last reader may have left while the informer was busy.
        let stale = if readers.pending.is_empty() { reflector.take() } else { None };
        let mut pending = PendingEvents { changes: VecDeque::new(), missed: None, waker: None, has_all: false };
        if readers.pending.values().any(|other| other.has_all) {
            pending.start(shared_reflector.all());
        }
        let id = readers.next_id;
        readers.next_id += 1;
        readers.pending.insert(id, pending);
        drop(readers);
        drop(stale);
        Reader { shared_reflector: Arc::clone(shared_reflector), id }
    }

    /// Returns all objects, for a new reader.
    fn all(&self) -> Change<V> {
        let objects = self.shared.objects();
        let applied = |(key, entry): (&ObjectKey, &Entry<V>)| Applied {
            key: key.clone(),
            now: Arc::clone(&entry.value),
            before: None,
            recreated: false,
        };
        let applied: Vec<_> = objects.iter().map(applied).collect();
        Change::Relisted(Relist { first: true, total: applied.len(), applied, vanished: Vec::new() })
    }

    /// Returns the next change for the reader `id`.
    fn poll(&self, id: u64, context: &mut Context<'_>) -> Poll<Arc<Change<V>>>
    where
        V: Send + Sync + 'static,
    {
        if let Some(change) = self.notifier.next(id, context.waker()) {
            return Poll::Ready(change);
        }
        let mut reflector = self.reflector.lock();
        loop {
            // Another reader can have polled it meanwhile.
            if let Some(change) = self.notifier.next(id, context.waker()) {
                return Poll::Ready(change);
            }
            // While the informer is locked, the current objects match the delivered changes.
            if let Some(missed) = self.notifier.take_missed(id) {
                return Poll::Ready(Arc::new(self.difference(missed)));
            }
            let notifier = Waker::from(Arc::clone(&self.notifier));
            let stream = reflector.get_or_insert_with(&self.open);
            match stream.poll_next_unpin(&mut Context::from_waker(&notifier)) {
                Poll::Ready(Some(change)) => self.deliver(change),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Returns the difference that a reader has missed.
    fn difference(&self, missed: CoalescedEvents<V>) -> Change<V> {
        if missed.everything {
            return self.all();
        }
        let objects = self.shared.objects();
        let (mut applied, mut vanished) = (Vec::new(), Vec::new());
        for (key, (before, is_gone)) in missed.objects {
            match (objects.get(&key), before) {
                (Some(entry), Some(before)) if Arc::ptr_eq(&entry.value, &before) => {}
                (Some(entry), before) => {
                    let recreated = is_gone && before.is_some();
                    applied.push(Applied { key, now: Arc::clone(&entry.value), before, recreated });
                }
                (None, Some(last)) => vanished.push((key, last)),
                (None, None) => {}
            }
        }
        Change::Relisted(Relist { first: false, applied, vanished, total: objects.len() })
    }

    /// Puts a change in all queues. The informer is locked, so that all readers get the changes in the same order.
    fn deliver(&self, change: Change<V>) {
        let (is_list, is_first) = match &change {
            Change::Relisted(resync) => (true, resync.first),
            _ => (false, false),
        };
        let change = Arc::new(change);
        let mut readers = self.notifier.0.lock();
        for pending in readers.pending.values_mut() {
            match (pending.has_all, is_list) {
                (true, _) => pending.put(&change),
                (false, true) if is_first => {
                    pending.has_all = true;
                    pending.put(&change);
                }
                (false, true) => pending.start(self.all()),
                (false, false) => {}
            }
        }
        Notifier::ring(readers);
    }
}

impl<V> PendingEvents<V> {
    fn start(&mut self, all: Change<V>) {
        self.has_all = true;
        self.changes.push_back(Arc::new(all));
    }

    fn put(&mut self, change: &Arc<Change<V>>) {
        if let Some(missed) = &mut self.missed {
            return missed.note(change);
        }
        self.changes.push_back(Arc::clone(change));
        if self.changes.len() > LINE_MAX {
            let missed = self.missed.insert(CoalescedEvents { everything: false, objects: HashMap::new() });
            std::mem::take(&mut self.changes).iter().for_each(|change| missed.note(change));
        }
    }
}

impl<V> CoalescedEvents<V> {
    fn note(&mut self, change: &Change<V>) {
        match change {
            _ if self.everything => {}
            Change::Applied(applied) => self.note_applied(applied),
            Change::Deleted { key, last } => self.note_gone(key, last),
            Change::Relisted(resync) if resync.first => {
                *self = CoalescedEvents { everything: true, objects: HashMap::new() }
            }
            Change::Relisted(resync) => {
                resync.vanished.iter().for_each(|(key, last)| self.note_gone(key, last));
                resync.applied.iter().for_each(|applied| self.note_applied(applied));
            }
        }
    }

    fn note_applied(&mut self, applied: &Applied<V>) {
        let known = || (applied.before.clone(), false);
        let (_, is_gone) = self.objects.entry(applied.key.clone()).or_insert_with(known);
        *is_gone |= applied.recreated;
    }

    fn note_gone(&mut self, key: &ObjectKey, last: &Arc<V>) {
        let (_, is_gone) = self.objects.entry(key.clone()).or_insert_with(|| (Some(Arc::clone(last)), false));
        *is_gone = true;
    }
}

impl<V> Notifier<V> {
    /// Returns whether the reader `id` has queued changes or missed some.
    fn has_more(&self, id: u64) -> bool {
        self.0.lock().pending.get(&id).is_some_and(|pending| !pending.changes.is_empty() || pending.missed.is_some())
    }

    /// Returns the first change in the queue of the reader `id`; if there is none, `waker` is woken by the next one.
    fn next(&self, id: u64, waker: &Waker) -> Option<Arc<Change<V>>> {
        let mut readers = self.0.lock();
        let pending = readers.pending.get_mut(&id)?;
        let Some(change) = pending.changes.pop_front() else {
            if !pending.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                pending.waker = Some(waker.clone());
            }
            return None;
        };
        if pending.changes.is_empty() {
            // After a burst of changes, the memory is freed.
            pending.changes = VecDeque::new();
        }
        Some(change)
    }

    fn take_missed(&self, id: u64) -> Option<CoalescedEvents<V>> {
        self.0.lock().pending.get_mut(&id)?.missed.take()
    }

    /// Returns whether there are no other readers.
    fn leave(&self, id: u64) -> bool {
        let mut readers = self.0.lock();
        let left = readers.pending.remove(&id);
        let is_last = readers.pending.is_empty();
        // This reader was possibly the poller.
        Notifier::ring(readers);
        drop(left);
        is_last
    }

    /// Wakes all readers without a lock: a waker can hold the last reference to a task, and to a reader with it.
    fn ring(mut readers: MutexGuard<'_, Readers<V>>) {
        let wakers: Vec<Waker> = readers.pending.values_mut().filter_map(|pending| pending.waker.take()).collect();
        drop(readers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<V: Send + Sync + 'static> Wake for Notifier<V> {
    fn wake(self: Arc<Self>) {
        Notifier::ring(self.0.lock());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::channel::mpsc;

    use super::super::compact_store::Version;
    use super::*;
    use crate::client::uid::Uid;

    type ChangeSender = mpsc::UnboundedSender<Change<u64>>;

    /// Returns an informer whose changes the test sends.
    fn test_informer() -> (Informer<u64>, ChangeSender) {
        let (sender, received) = mpsc::unbounded();
        let shared = Arc::new(Shared::new("Test".to_owned()));
        let received = Mutex::new(Some(received.boxed()));
        let shared_reflector = Arc::new(SharedReflector::new(
            shared,
            Box::new(move || received.lock().take().expect("it is opened once")),
        ));
        (Informer { shared_reflector }, sender)
    }

    fn send_all(sender: &ChangeSender) {
        let all = Relist { first: true, applied: Vec::new(), vanished: Vec::new(), total: 0 };
        sender.unbounded_send(Change::Relisted(all)).expect("the receiver exists");
    }

    fn send_one(sender: &ChangeSender, number: u64) {
        let now = Arc::new(number);
        let one = Applied { key: ObjectKey::cluster("a"), now, before: None, recreated: false };
        sender.unbounded_send(Change::Applied(one)).expect("the receiver exists");
    }

    /// Sets or deletes an object's value, and sends the change, as an informer does.
    fn set(informer: &Informer<u64>, sender: &ChangeSender, name: &str, number: Option<u64>) {
        let key = ObjectKey::cluster(name);
        let mut objects = informer.shared_reflector.shared.objects_mut();
        let Some(number) = number else {
            let last = objects.remove(&key).expect("it is there").value;
            return sender.unbounded_send(Change::Deleted { key, last }).expect("the receiver exists");
        };
        let now = Arc::new(number);
        let entry = Entry { uid: Uid::from("u"), version: Version::new(&number.to_string()), value: Arc::clone(&now) };
        let before = objects.insert(key.clone(), entry).map(|entry| entry.value);
        let one = Applied { key, now, before, recreated: false };
        sender.unbounded_send(Change::Applied(one)).expect("the receiver exists");
    }

    /// Returns the next change without waiting: a number, or `None` for a list.
    fn next(changes: &mut Changes<u64>) -> Option<Option<u64>> {
        changes.next().now_or_never().map(|change| match change {
            Change::Applied(applied) => Some(*applied.now),
            _ => None,
        })
    }

    #[test]
    fn a_late_reader_delays_no_other_and_gets_the_difference() {
        let (informer, sender) = test_informer();
        let (mut prompt, mut late, mut never) = (informer.read(), informer.read(), informer.read());
        send_all(&sender);
        assert_eq!((next(&mut prompt.1), next(&mut late.1)), (Some(None), Some(None)));
        assert!(prompt.0.is_synced() && late.0.is_synced() && !never.0.is_synced());
        for (name, number) in [("same", 1), ("changed", 2), ("gone", 3), ("again", 4)] {
            set(&informer, &sender, name, Some(number));
            assert_eq!((next(&mut prompt.1), next(&mut late.1)), (Some(Some(number)), Some(Some(number))));
        }
        for (name, number) in [
            ("gone", None),
            ("changed", Some(20)),
            ("again", None),
            ("again", Some(40)),
            ("new", Some(5)),
            ("brief", Some(6)),
            ("brief", None),
        ] {
            set(&informer, &sender, name, number);
        }
        let count = 3 * LINE_MAX as u64;
        (100..100 + count).for_each(|number| set(&informer, &sender, "busy", Some(number)));
        let received: Vec<Option<u64>> = std::iter::from_fn(|| next(&mut prompt.1)).collect();
        assert_eq!((received.len() as u64, received.last()), (7 + count, Some(&Some(99 + count))));

        assert!(late.1.is_behind() && !prompt.1.is_behind());
        let Some(Change::Relisted(difference)) = late.1.next().now_or_never() else { panic!("no difference") };
        let mut applied: Vec<_> = difference
            .applied
            .iter()
            .map(|one| (one.key.name.as_str(), one.before.as_deref().copied(), *one.now, one.recreated))
            .collect();
        applied.sort_unstable();
        assert_eq!(
            applied,
            [
                ("again", Some(4), 40, true),
                ("busy", None, 99 + count, false),
                ("changed", Some(2), 20, false),
                ("new", None, 5, false)
            ]
        );
        let vanished: Vec<_> = difference.vanished.iter().map(|(key, last)| (key.name.as_str(), **last)).collect();
        assert!(!late.1.is_behind());
        assert_eq!((vanished, difference.first, difference.total), (vec![("gone", 3)], false, 5));
        assert_eq!(next(&mut late.1), None);
        set(&informer, &sender, "same", Some(10));
        assert_eq!((next(&mut late.1), next(&mut prompt.1)), (Some(Some(10)), Some(Some(10))));

        // A reader that has received nothing gets all objects.
        let Some(Change::Relisted(all)) = never.1.next().now_or_never() else { panic!("no list") };
        assert_eq!((all.first, all.applied.len(), never.0.is_synced()), (true, 5, true));
        assert_eq!(next(&mut never.1), None);
    }

    #[test]
    fn remaining_readers_go_on() {
        let (informer, sender) = test_informer();
        let (mut first, second) = (informer.read(), informer.read());
        send_all(&sender);
        (0..2 * LINE_MAX as u64).for_each(|number| send_one(&sender, number));
        drop(second);
        assert_eq!(std::iter::from_fn(|| next(&mut first.1)).flatten().count(), 2 * LINE_MAX);
    }

    #[tokio::test]
    async fn waiting_readers_are_woken_whichever_polls() {
        const COUNT: u64 = 2_000;
        let (informer, sender) = test_informer();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (_, mut changes) = informer.read();
                tokio::spawn(async move {
                    let mut received = Vec::new();
                    while received.len() < COUNT as usize {
                        if let Change::Applied(applied) = changes.next().await {
                            received.push(*applied.now);
                        }
                    }
                    received
                })
            })
            .collect();
        send_all(&sender);
        for number in 0..COUNT {
            send_one(&sender, number);
            if number % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for reader in readers {
            assert!(reader.await.expect("it received all").into_iter().eq(0..COUNT));
        }
    }
}
