//! The loop of a controller.
//!
//! ```text
//!  inputs ──changes──► Controller ──keys──► WorkQueue ──due──► plan (pure) ──job──► act, in the Executor ──► done
//!                                               ▲                │ again at                                   │
//!                                               └────────────────┴────────────────────────────────────────────┘
//! ```
//!
//! A controller has a queue of keys. Its inputs, such as the changes of an informer, add keys. [`run`] plans each due key, does the
//! resulting jobs outside the loop, each with a time limit, and returns the result of each to the controller. A job that panics or
//! times out ends with an error. The queue bounds the jobs in progress and shares them between the owners of keys.

use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, SelectAll, Stream, StreamExt as _, unfold};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::executor::Executor;
use super::queue::{Item, WorkQueue};
use crate::client::reflector::{Change, Informer, Store};

/// The keys planned in a row, before other events.
const KEYS_IN_A_ROW: usize = 1024;
/// The most changes in a row before keys are planned: changes that arrive together are planned together.
const CHANGES_IN_A_ROW: usize = 4096;

/// A control loop, without the loop.
pub trait Controller: Sized + Send + 'static {
    type Key: Item;
    /// A planned action.
    type Job: Send;
    /// The result of a job.
    type Done: Send + 'static;

    /// The time limit of a job.
    const JOB_TIMEOUT: Duration = Duration::MAX;
    /// The shortest wait for a due key: timers that end together wake the loop once. If it is not zero, also the interval of checks
    /// whether keys can be planned.
    const PACE: Duration = Duration::ZERO;

    fn queue(&mut self) -> &mut WorkQueue<Self::Key>;

    /// Takes in what no input delivers, before due keys are planned.
    fn prepare(&mut self, _now: Instant) {}

    /// Returns whether the next key can be planned, for example because all lists are complete. Without a pace, only a change can
    /// make it so.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns the work for a due key.
    fn plan(&mut self, key: &Self::Key, now: Instant) -> Plan<Self::Job>;

    /// Does the work that belongs to no key, after due keys are planned; returns its next due time.
    fn settle(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Returns the action of a job. A controller whose plans have none does not need it.
    fn act(&self, _key: &Self::Key, _job: Self::Job) -> Action<Self::Done> {
        future::pending().boxed()
    }

    /// Handles the end of a job. The key is in the queue only if it was added during the job.
    fn done(&mut self, _key: Self::Key, _result: kube::Result<Self::Done>, _now: Instant) {}

    /// Removes what must not outlive the loop, such as metrics.
    fn end(&mut self) {}
}

/// A job in progress.
pub type Action<T> = BoxFuture<'static, kube::Result<T>>;

/// The work for a key.
#[derive(Debug)]
pub enum Plan<J> {
    /// There is none.
    Nothing,
    /// The key is due again at this time.
    At(Instant),
    Act(J),
    /// The key keeps its permit until the controller ends it.
    Hold,
}

/// The streams of changes that a controller reads.
pub struct Inputs<C>(SelectAll<BoxStream<'static, Input<C>>>);

/// One change, which the controller takes in.
type Input<C> = Box<dyn FnOnce(&mut C) + Send>;

impl<C> Default for Inputs<C> {
    fn default() -> Self {
        Inputs(SelectAll::new())
    }
}

impl<C: 'static> Inputs<C> {
    /// Adds a stream whose items `take` handles.
    pub fn add<T: Send + 'static>(&mut self, items: impl Stream<Item = T> + Send + 'static, take: fn(&mut C, T)) {
        let input = move |item| Box::new(move |controller: &mut C| take(controller, item)) as Input<C>;
        self.0.push(items.map(input).boxed());
    }

    /// Adds the changes of a kind; returns its objects.
    pub fn read<V: Send + Sync + 'static>(&mut self, kind: &Informer<V>, take: fn(&mut C, Change<V>)) -> Store<V> {
        let (store, changes) = kind.read();
        self.add(changes, take);
        store
    }
}

/// Returns the signals that `wait` waits for, one after another.
pub fn signals<S: Send + Sync>(source: S, wait: fn(&S) -> BoxFuture<'_, ()>) -> impl Stream<Item = ()> + Send {
    unfold(source, move |source| async move {
        wait(&source).await;
        Some(((), source))
    })
}

/// Returns the later values of a channel.
pub fn changes<T: Clone + Send + Sync + 'static>(values: watch::Receiver<T>) -> impl Stream<Item = T> + Send {
    unfold(values, |mut values| async {
        values.changed().await.ok()?;
        let value = values.borrow_and_update().clone();
        Some((value, values))
    })
}

/// Sets the value of a channel; an unchanged one notifies no receiver.
pub fn set<T: PartialEq>(channel: &watch::Sender<T>, value: T) {
    channel.send_if_modified(|before| {
        let differs = *before != value;
        *before = value;
        differs
    });
}

/// Runs the controller until `stop`. Jobs in progress are aborted then.
pub async fn run<C: Controller>(mut controller: C, mut inputs: Inputs<C>, stop: CancellationToken) {
    let mut jobs = Executor::new(C::JOB_TIMEOUT);
    loop {
        let now = Instant::now();
        controller.prepare(now);
        let (has_more, due_at) = plan_due(&mut controller, &mut jobs, now);
        let wake_at = due_at.into_iter().chain(controller.settle(now)).min();
        tokio::select! {
            () = stop.cancelled() => break,
            Some(take) = inputs.0.next() => {
                take(&mut controller);
                for _ in 1..CHANGES_IN_A_ROW {
                    let Some(Some(take)) = inputs.0.next().now_or_never() else { break };
                    take(&mut controller);
                }
            }
            Some((key, result)) = jobs.next() => {
                controller.queue().end(&key);
                controller.done(key, result, Instant::now());
            }
            () = sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() && !has_more => {}
            () = yield_now(), if has_more => {}
        }
    }
    // A job cut short does no harm: each is one write, or none.
    jobs.shutdown().await;
    controller.end();
}

/// Plans the due keys; returns whether there are more, and otherwise the time of the next one.
fn plan_due<C: Controller>(
    controller: &mut C,
    jobs: &mut Executor<C::Key, C::Done>,
    now: Instant,
) -> (bool, Option<Instant>) {
    for _ in 0..KEYS_IN_A_ROW {
        let is_ready = controller.is_ready();
        let Some(key) = is_ready.then(|| controller.queue().begin(now)).flatten() else {
            let due_at = controller.queue().next_at().filter(|_| is_ready || !C::PACE.is_zero());
            return (false, due_at.map(|at| at.max(now + C::PACE)));
        };
        let at = match controller.plan(&key, now) {
            Plan::Act(job) => {
                let action = controller.act(&key, job);
                jobs.start(key, action);
                continue;
            }
            Plan::Hold => continue,
            Plan::At(at) => Some(at),
            Plan::Nothing => None,
        };
        let queue = controller.queue();
        queue.end(&key);
        queue.succeeded(&key);
        at.into_iter().for_each(|at| queue.add(key.clone(), at));
    }
    (true, None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream::{iter, pending};
    use parking_lot::Mutex;

    use super::*;

    type Key = (&'static str, u64);

    struct Scene {
        queue: WorkQueue<Key>,
        has_waited: bool,
        log: Arc<Mutex<Vec<String>>>,
        stop: CancellationToken,
    }

    impl Controller for Scene {
        type Key = Key;
        type Job = u64;
        type Done = u64;

        const JOB_TIMEOUT: Duration = Duration::from_millis(10);

        fn queue(&mut self) -> &mut WorkQueue<Key> {
            &mut self.queue
        }

        fn plan(&mut self, key: &Key, now: Instant) -> Plan<u64> {
            match key.0 {
                "none" => Plan::Nothing,
                "later" if !std::mem::replace(&mut self.has_waited, true) => Plan::At(now + Duration::from_millis(20)),
                _ => Plan::Act(key.1),
            }
        }

        fn act(&self, key: &Key, job: u64) -> Action<u64> {
            match key.0 {
                "hangs" => future::pending().boxed(),
                "panics" => async { panic!("a fault of its own") }.boxed(),
                _ => future::ready(Ok(job)).boxed(),
            }
        }

        fn done(&mut self, key: Key, result: kube::Result<u64>, _: Instant) {
            assert!(!self.queue.has(&key), "it has ended");
            self.log.lock().push(format!("{} {:?}", key.0, result.ok()));
            if self.log.lock().len() == 4 {
                self.stop.cancel();
            }
        }

        fn end(&mut self) {
            self.log.lock().push("end".to_owned());
        }
    }

    #[tokio::test]
    async fn each_job_ends_once_and_a_key_returns_at_its_time() {
        let (log, stop) = (Arc::default(), CancellationToken::new());
        let queue = WorkQueue::new(16, [Duration::ZERO; 2]);
        let scene = Scene { queue, has_waited: false, log: Arc::clone(&log), stop: stop.clone() };
        let mut inputs = Inputs::default();
        let keys = [("none", 0), ("good", 1), ("panics", 2), ("hangs", 3), ("later", 4)];
        inputs.add(iter(keys).chain(pending()), |scene: &mut Scene, key| scene.queue.add(key, Instant::now()));
        run(scene, inputs, stop).await;
        log.lock()[..4].sort();
        assert_eq!(*log.lock(), ["good Some(1)", "hangs None", "later Some(4)", "panics None", "end"]);
    }
}
