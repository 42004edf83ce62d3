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

    /// The shortest wait for a due key: timers that end together wake the loop once.
    const PACE: Duration = Duration::ZERO;

    fn queue(&mut self) -> &mut WorkQueue<Self::Key>;

    /// Takes in what no input delivers, before due keys are planned.
    fn prepare(&mut self, _now: Instant) {}

    /// Returns whether the next key can be planned.
    fn gate(&self) -> Gate {
        Gate::Open
    }

    /// Returns the work for a due key.
    fn plan(&mut self, key: &Self::Key, now: Instant) -> Plan<Self::Job>;

    /// Does what is not for a key, after due keys are planned; returns the time of the next round without changes.
    fn settle(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// The time limit of a job.
    fn job_timeout(&self) -> Duration {
        Duration::MAX
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

/// Whether keys can be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// Not before the next change.
    Shut,
    /// Not now; [`Controller::PACE`] is the wait.
    Busy,
}

/// The work for a key.
#[derive(Debug)]
pub enum Plan<J> {
    /// There is none.
    Nothing,
    /// At this time, or at the next change before.
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
    #[must_use]
    pub fn on<T: Send + 'static>(
        mut self,
        changes: impl Stream<Item = T> + Send + 'static,
        take: impl Fn(&mut C, T) + Clone + Send + 'static,
    ) -> Self {
        let input = move |change| {
            let take = take.clone();
            Box::new(move |controller: &mut C| take(controller, change)) as Input<C>
        };
        self.0.push(changes.map(input).boxed());
        self
    }
}

/// Returns the later values of a channel.
pub fn changes<T: Clone + Send + Sync + 'static>(values: watch::Receiver<T>) -> impl Stream<Item = T> + Send {
    unfold(values, |mut values| async {
        values.changed().await.ok()?;
        let value = values.borrow_and_update().clone();
        Some((value, values))
    })
}

/// Runs the controller until `stop`. Jobs in progress are aborted then.
pub async fn run<C: Controller>(mut controller: C, mut inputs: Inputs<C>, stop: CancellationToken) {
    let mut jobs = Executor::new(controller.job_timeout());
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
        let gate = controller.gate();
        let key = if gate == Gate::Open { controller.queue().begin(now) } else { None };
        let Some(key) = key else {
            let due_at = controller.queue().next_at().filter(|_| gate != Gate::Shut);
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
