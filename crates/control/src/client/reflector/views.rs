//! One mirror of a kind for all loops of a process that follow it, each with its own view of the objects.
//!
//! ```text
//!                              ┌─► line ─► Changes of one loop
//!   changes of the mirror ─────┼─► line ─► Changes of another
//!                              └─► line ─► Changes of a third
//! ```
//!
//! There is no task here either: who polls its [`Changes`] and has none in line polls the mirror, and puts what that tells in
//! everyone's line. So all are told the same in the same order, and one that is not polled for a while keeps nobody waiting.
//! If its line becomes too long, what is in it becomes a list of what it has missed, object by object, and it is told the
//! difference at once, as after a list of the mirror: nothing is lost, and what waits is bounded by what there is.
//!
//! The objects may be ahead of what a loop was told, by what is in its line; but nobody finds everything listed
//! ([`Store::is_synced`]) before it was told what there is.

use std::any::{Any, TypeId};
use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::{BoxStream, StreamExt as _, poll_fn};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Applied, Change, Changes, Health, ObjectKey, Resync, Settings, Shared, Store, Table, changes};

/// Most changes in a line: at 2,000 a second a loop may be half a second late before it is told of them together. A list is
/// one of them.
const LINE_MAX: usize = 1_024;

/// What one view makes of an object.
type Value = Arc<dyn Any + Send + Sync>;
/// What each of them does, in the order of views.
type Values = [Value];
type Project<K> = Box<dyn Fn(&K) -> Value + Send + Sync>;

/// The mirrors that loops of one process share: one of each kind. All views are made before they are opened.
pub struct Mirrors {
    client: kube::Client,
    kinds: Mutex<HashMap<TypeId, Kind>>,
}

struct Kind {
    hub: Arc<Hub>,
    /// `Arc<RwLock<Vec<Project<K>>>>`.
    projects: Box<dyn Any + Send>,
}

impl Mirrors {
    /// None yet. `client`'s identity must be allowed to list and watch what there will be views of.
    pub fn new(client: kube::Client) -> Self {
        Mirrors { client, kinds: Mutex::default() }
    }

    /// A view of all objects of kind `K`, each kept as what `project` makes of it.
    ///
    /// # Panics
    ///
    /// If the mirrors are open: objects that are there were looked at without it.
    pub fn view<K, V>(&self, project: impl Fn(&K) -> V + Send + Sync + 'static) -> View<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
        V: Send + Sync + 'static,
    {
        let mut kinds = lock(&self.kinds);
        let kind = kinds.entry(TypeId::of::<K>()).or_insert_with(|| {
            let projects = Arc::<RwLock<Vec<Project<K>>>>::default();
            Kind { hub: Hub::of_kind(self.client.clone(), Arc::clone(&projects)), projects: Box::new(projects) }
        });
        assert!(!lock(&kind.hub.bell.0).is_open, "a view of an open mirror of {}", K::kind(&()));
        let projects = kind.projects.downcast_ref::<Arc<RwLock<Vec<Project<K>>>>>().expect("it was made so");
        let mut projects = projects.write().unwrap_or_else(PoisonError::into_inner);
        projects.push(Box::new(move |object| Arc::new(project(object))));
        View { hub: Arc::clone(&kind.hub), slot: projects.len() - 1, of: PhantomData }
    }

    /// Begins: there will be no further views.
    pub fn open(&self) {
        lock(&self.kinds).values().for_each(|kind| kind.hub.bell.open());
    }
}

/// One view of a shared mirror, for as many readers as wanted, at any time.
pub struct View<V> {
    hub: Arc<Hub>,
    /// Its place among the values of an object.
    slot: usize,
    of: PhantomData<fn() -> V>,
}

impl<V> Clone for View<V> {
    fn clone(&self) -> Self {
        View { hub: Arc::clone(&self.hub), slot: self.slot, of: PhantomData }
    }
}

impl<V: Send + Sync + 'static> View<V> {
    /// The objects, and their changes from now on, which must be polled or dropped; the first is a [`Change::Resynced`] with all
    /// that is there.
    pub fn read(&self) -> (Store<V>, Changes<V>) {
        let (slot, synced) = (self.slot, Arc::new(watch::Sender::new(false)));
        let part = Part { hub: Arc::clone(&self.hub), slot, synced: Arc::clone(&synced), of: PhantomData };
        let reader = Hub::join(&self.hub);
        let (hub, id) = (Arc::clone(&self.hub), reader.id);
        let is_behind = move || hub.bell.has_more(id);
        let stream = poll_fn(move |context| {
            reader.hub.poll(reader.id, context).map(|change| {
                if matches!(*change, Change::Resynced(_)) {
                    synced.send_replace(true);
                }
                Some(seen(&change, slot))
            })
        });
        (Store { table: Arc::new(part) }, Changes { stream: stream.boxed(), is_behind: Some(Box::new(is_behind)) })
    }
}

/// A mirror and those who read it. Whoever needs both of its locks takes that of the mirror first.
struct Hub {
    shared: Arc<Shared<Values>>,
    mirror: Mutex<BoxStream<'static, Change<Values>>>,
    bell: Arc<Bell>,
}

/// Those who read, to be woken when the mirror has something: any of them may be the one that polls it.
struct Bell(Mutex<Readers>);

#[derive(Default)]
struct Readers {
    is_open: bool,
    lines: HashMap<u64, Line>,
    next_id: u64,
}

/// What one reader is yet to be told.
#[derive(Default)]
struct Line {
    changes: VecDeque<Arc<Change<Values>>>,
    /// In place of these, where they were too many.
    missed: Option<Missed>,
    waker: Option<Waker>,
    /// Whether what there is is among them, or was. Without that changes say nothing.
    has_all: bool,
}

/// What a reader far behind has missed.
#[derive(Default)]
struct Missed {
    /// It was never told what there is.
    everything: bool,
    /// Else what it knows of each object that has changed since: the value, and whether that one is gone.
    objects: HashMap<ObjectKey, (Option<Arc<Values>>, bool)>,
}

/// Takes a reader's line away with it.
struct Reader {
    hub: Arc<Hub>,
    id: u64,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.hub.bell.leave(self.id);
    }
}

impl Hub {
    fn of_kind<K>(client: kube::Client, projects: Arc<RwLock<Vec<Project<K>>>>) -> Arc<Self>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
    {
        let shared = Arc::new(Shared::new(K::kind(&()).into_owned()));
        let project = move |object: K| {
            let projects = projects.read().unwrap_or_else(PoisonError::into_inner);
            projects.iter().map(|project| project(&object)).collect::<Arc<Values>>()
        };
        let mirror = changes(client, Settings::default(), Box::new(project), &shared);
        Arc::new(Hub { shared, mirror: Mutex::new(mirror), bell: Arc::new(Bell(Mutex::default())) })
    }

    /// One more reader.
    fn join(hub: &Arc<Hub>) -> Reader {
        // As long as the mirror does not go on, what is there is what the others were told.
        let _mirror = lock(&hub.mirror);
        let mut readers = lock(&hub.bell.0);
        let mut line = Line::default();
        if readers.lines.values().any(|other| other.has_all) {
            line.start(hub.all());
        } else if *hub.shared.synced.borrow() {
            // Nobody has read for a while, so that what is there may be long past.
            hub.shared.again.notify_one();
        }
        let id = readers.next_id;
        readers.next_id += 1;
        readers.lines.insert(id, line);
        drop(readers);
        Reader { hub: Arc::clone(hub), id }
    }

    /// All that is there, for one who knows nothing.
    fn all(&self) -> Change<Values> {
        let objects = self.shared.objects();
        let applied = |entry: &super::kept::Entry<Values>| Applied {
            key: entry.key(),
            now: Arc::clone(entry.value()),
            before: None,
            recreated: false,
        };
        let applied: Vec<_> = objects.iter().map(applied).collect();
        Change::Resynced(Resync { first: true, total: applied.len(), applied, vanished: Vec::new() })
    }

    /// The next change for the reader `id`.
    fn poll(&self, id: u64, context: &mut Context<'_>) -> Poll<Arc<Change<Values>>> {
        if let Some(change) = self.bell.next(id, context.waker()) {
            return Poll::Ready(change);
        }
        let mut mirror = lock(&self.mirror);
        loop {
            // Someone else may have polled it meanwhile.
            if let Some(change) = self.bell.next(id, context.waker()) {
                return Poll::Ready(change);
            }
            // While the mirror is locked, what is there is what was told.
            if let Some(missed) = self.bell.take_missed(id) {
                return Poll::Ready(Arc::new(self.difference(missed)));
            }
            if !self.bell.is_open() {
                return Poll::Pending;
            }
            let bell = Waker::from(Arc::clone(&self.bell));
            match mirror.poll_next_unpin(&mut Context::from_waker(&bell)) {
                Poll::Ready(Some(change)) => self.tell(change),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// What has become of what a reader has missed.
    fn difference(&self, missed: Missed) -> Change<Values> {
        if missed.everything {
            return self.all();
        }
        let objects = self.shared.objects();
        let (mut applied, mut vanished) = (Vec::new(), Vec::new());
        for (key, (before, is_gone)) in missed.objects {
            match (objects.get(&key), before) {
                (Some(entry), Some(before)) if Arc::ptr_eq(entry.value(), &before) => {}
                (Some(entry), before) => {
                    let recreated = is_gone && before.is_some();
                    applied.push(Applied { key, now: Arc::clone(entry.value()), before, recreated });
                }
                (None, Some(last)) => vanished.push((key, last)),
                (None, None) => {}
            }
        }
        Change::Resynced(Resync { first: false, applied, vanished, total: objects.len() })
    }

    /// Puts a change in all lines. The mirror is locked, so that all have it in the same order.
    fn tell(&self, change: Change<Values>) {
        let (is_list, is_first) = match &change {
            Change::Resynced(resync) => (true, resync.first),
            _ => (false, false),
        };
        let change = Arc::new(change);
        let mut readers = lock(&self.bell.0);
        for line in readers.lines.values_mut() {
            match (line.has_all, is_list) {
                (true, _) => line.put(&change),
                (false, true) if is_first => {
                    line.has_all = true;
                    line.put(&change);
                }
                (false, true) => line.start(self.all()),
                (false, false) => {}
            }
        }
        Bell::ring(readers);
    }
}

impl Line {
    fn start(&mut self, all: Change<Values>) {
        self.has_all = true;
        self.changes.push_back(Arc::new(all));
    }

    fn put(&mut self, change: &Arc<Change<Values>>) {
        if let Some(missed) = &mut self.missed {
            return missed.note(change);
        }
        self.changes.push_back(Arc::clone(change));
        if self.changes.len() > LINE_MAX {
            let missed = self.missed.insert(Missed::default());
            std::mem::take(&mut self.changes).iter().for_each(|change| missed.note(change));
        }
    }
}

impl Missed {
    fn note(&mut self, change: &Change<Values>) {
        match change {
            _ if self.everything => {}
            Change::Applied(applied) => self.note_applied(applied),
            Change::Deleted { key, last } => self.note_gone(key, last),
            Change::Resynced(resync) if resync.first => *self = Missed { everything: true, objects: HashMap::new() },
            Change::Resynced(resync) => {
                resync.vanished.iter().for_each(|(key, last)| self.note_gone(key, last));
                resync.applied.iter().for_each(|applied| self.note_applied(applied));
            }
        }
    }

    fn note_applied(&mut self, applied: &Applied<Values>) {
        let known = || (applied.before.clone(), false);
        let (_, is_gone) = self.objects.entry(applied.key.clone()).or_insert_with(known);
        *is_gone |= applied.recreated;
    }

    fn note_gone(&mut self, key: &ObjectKey, last: &Arc<Values>) {
        let (_, is_gone) = self.objects.entry(key.clone()).or_insert_with(|| (Some(Arc::clone(last)), false));
        *is_gone = true;
    }
}

impl Bell {
    fn open(&self) {
        let mut readers = lock(&self.0);
        readers.is_open = true;
        Bell::ring(readers);
    }

    fn is_open(&self) -> bool {
        lock(&self.0).is_open
    }

    /// Whether anything is in the line of the reader `id`, or was too much for it.
    fn has_more(&self, id: u64) -> bool {
        lock(&self.0).lines.get(&id).is_some_and(|line| !line.changes.is_empty() || line.missed.is_some())
    }

    /// The first in the line of the reader `id`; if there is none, `waker` is woken when there is.
    fn next(&self, id: u64, waker: &Waker) -> Option<Arc<Change<Values>>> {
        let mut readers = lock(&self.0);
        let line = readers.lines.get_mut(&id)?;
        let Some(change) = line.changes.pop_front() else {
            if !line.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                line.waker = Some(waker.clone());
            }
            return None;
        };
        if line.changes.is_empty() {
            // After a storm of them the room is given back.
            line.changes = VecDeque::new();
        }
        Some(change)
    }

    fn take_missed(&self, id: u64) -> Option<Missed> {
        lock(&self.0).lines.get_mut(&id)?.missed.take()
    }

    fn leave(&self, id: u64) {
        let mut readers = lock(&self.0);
        let left = readers.lines.remove(&id);
        // It may have been the one that would have polled.
        Bell::ring(readers);
        drop(left);
    }

    /// Wakes all, with nothing locked: a waker may be the last that holds a task, and a reader with it.
    fn ring(mut readers: MutexGuard<'_, Readers>) {
        let wakers: Vec<Waker> = readers.lines.values_mut().filter_map(|line| line.waker.take()).collect();
        drop(readers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        Bell::ring(lock(&self.0));
    }
}

/// A shared mirror, as one reader of one view has it.
struct Part<V> {
    hub: Arc<Hub>,
    slot: usize,
    synced: Arc<watch::Sender<bool>>,
    of: PhantomData<fn() -> V>,
}

impl<V: Send + Sync + 'static> Table<V> for Part<V> {
    fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.hub.shared.objects().get(key).map(|entry| value(entry.value(), self.slot))
    }

    fn get_versioned(&self, key: &ObjectKey) -> Option<(Arc<V>, Box<str>)> {
        let objects = self.hub.shared.objects();
        objects.get(key).map(|entry| (value(entry.value(), self.slot), entry.version().text()))
    }

    fn all(&self) -> Vec<(ObjectKey, Arc<V>)> {
        self.hub.shared.objects().iter().map(|entry| (entry.key(), value(entry.value(), self.slot))).collect()
    }

    fn len(&self) -> usize {
        self.hub.shared.objects().len()
    }

    fn synced(&self) -> &watch::Sender<bool> {
        &self.synced
    }

    fn list_again(&self) {
        self.hub.shared.again.notify_one();
    }

    fn unknown(&self) -> Vec<ObjectKey> {
        self.hub.shared.state().unknown.iter().cloned().collect()
    }

    fn health(&self) -> Health {
        self.hub.shared.health_of(&self.synced)
    }
}

fn value<V: Send + Sync + 'static>(values: &Arc<Values>, slot: usize) -> Arc<V> {
    Arc::clone(&values[slot]).downcast().expect("a view's place holds what it makes")
}

/// A change as one view shows it.
fn seen<V: Send + Sync + 'static>(change: &Change<Values>, slot: usize) -> Change<V> {
    let seen = |applied: &Applied<Values>| Applied {
        key: applied.key.clone(),
        now: value(&applied.now, slot),
        before: applied.before.as_ref().map(|before| value(before, slot)),
        recreated: applied.recreated,
    };
    match change {
        Change::Applied(applied) => Change::Applied(seen(applied)),
        Change::Deleted { key, last } => Change::Deleted { key: key.clone(), last: value(last, slot) },
        Change::Resynced(resync) => Change::Resynced(Resync {
            first: resync.first,
            applied: resync.applied.iter().map(seen).collect(),
            vanished: resync.vanished.iter().map(|(key, last)| (key.clone(), value(last, slot))).collect(),
            total: resync.total,
        }),
    }
}

/// No holder of these locks leaves what they guard half done: a mirror that panics is at one of its steps.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::channel::mpsc;

    use super::super::kept::Entry;
    use super::*;
    use crate::client::uid::Uid;

    type Tell = mpsc::UnboundedSender<Change<Values>>;

    /// A view of a mirror that tells what the test says.
    fn view() -> (View<u64>, Tell) {
        let (tell, told) = mpsc::unbounded();
        let bell = Arc::new(Bell(Mutex::new(Readers { is_open: true, ..Readers::default() })));
        let shared = Arc::new(Shared::new("Test".to_owned()));
        let hub = Arc::new(Hub { shared, mirror: Mutex::new(told.boxed()), bell });
        (View { hub, slot: 0, of: PhantomData }, tell)
    }

    fn tell_all(tell: &Tell) {
        let all = Resync { first: true, applied: Vec::new(), vanished: Vec::new(), total: 0 };
        tell.unbounded_send(Change::Resynced(all)).expect("someone listens");
    }

    fn tell_one(tell: &Tell, number: u64) {
        let now: Arc<Values> = Arc::new([Arc::new(number) as Value]);
        let one = Applied { key: ObjectKey::cluster("a"), now, before: None, recreated: false };
        tell.unbounded_send(Change::Applied(one)).expect("someone listens");
    }

    /// As a mirror does: an object has a value, or none, and that is told.
    fn set(view: &View<u64>, tell: &Tell, name: &str, number: Option<u64>) {
        let key = ObjectKey::cluster(name);
        let mut objects = view.hub.shared.objects_mut();
        let Some(number) = number else {
            let last = Arc::clone(objects.remove(&key).expect("it is there").value());
            return tell.unbounded_send(Change::Deleted { key, last }).expect("someone listens");
        };
        let now: Arc<Values> = Arc::new([Arc::new(number) as Value]);
        let before = objects.insert(Entry::new(&key, Uid::new("u"), &number.to_string(), Arc::clone(&now)));
        let before = before.map(|entry| Arc::clone(entry.value()));
        let one = Applied { key, now, before, recreated: false };
        tell.unbounded_send(Change::Applied(one)).expect("someone listens");
    }

    /// What is told without waiting: a number, or nothing of a list.
    fn next(changes: &mut Changes<u64>) -> Option<Option<u64>> {
        changes.next().now_or_never().map(|change| match change {
            Change::Applied(applied) => Some(*applied.now),
            _ => None,
        })
    }

    #[test]
    fn one_who_is_far_behind_holds_up_nobody_and_is_told_the_difference() {
        let (view, tell) = view();
        let (mut prompt, mut late, mut never) = (view.read(), view.read(), view.read());
        tell_all(&tell);
        assert_eq!((next(&mut prompt.1), next(&mut late.1)), (Some(None), Some(None)));
        assert!(prompt.0.is_synced() && late.0.is_synced() && !never.0.is_synced());
        for (name, number) in [("same", 1), ("changed", 2), ("gone", 3), ("again", 4)] {
            set(&view, &tell, name, Some(number));
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
            set(&view, &tell, name, number);
        }
        let count = 3 * LINE_MAX as u64;
        (100..100 + count).for_each(|number| set(&view, &tell, "busy", Some(number)));
        let told: Vec<Option<u64>> = std::iter::from_fn(|| next(&mut prompt.1)).collect();
        assert_eq!((told.len() as u64, told.last()), (7 + count, Some(&Some(99 + count))));

        assert!(late.1.is_behind() && !prompt.1.is_behind());
        let Some(Change::Resynced(difference)) = late.1.next().now_or_never() else { panic!("no difference") };
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
        set(&view, &tell, "same", Some(10));
        assert_eq!((next(&mut late.1), next(&mut prompt.1)), (Some(Some(10)), Some(Some(10))));

        // Whoever was never told of anything is told of all there is.
        let Some(Change::Resynced(all)) = never.1.next().now_or_never() else { panic!("no list") };
        assert_eq!((all.first, all.applied.len(), never.0.is_synced()), (true, 5, true));
        assert_eq!(next(&mut never.1), None);
    }

    #[test]
    fn whoever_is_left_goes_on() {
        let (view, tell) = view();
        let (mut first, second) = (view.read(), view.read());
        tell_all(&tell);
        (0..2 * LINE_MAX as u64).for_each(|number| tell_one(&tell, number));
        drop(second);
        assert_eq!(std::iter::from_fn(|| next(&mut first.1)).flatten().count(), 2 * LINE_MAX);
    }

    #[tokio::test]
    async fn those_who_wait_are_woken_whoever_polls() {
        const COUNT: u64 = 2_000;
        let (view, tell) = view();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (_, mut changes) = view.read();
                tokio::spawn(async move {
                    let mut told = Vec::new();
                    while told.len() < COUNT as usize {
                        if let Change::Applied(applied) = changes.next().await {
                            told.push(*applied.now);
                        }
                    }
                    told
                })
            })
            .collect();
        tell_all(&tell);
        for number in 0..COUNT {
            tell_one(&tell, number);
            if number % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for reader in readers {
            assert!(reader.await.expect("it heard all").into_iter().eq(0..COUNT));
        }
    }
}
