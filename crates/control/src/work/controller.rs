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

use futures::stream::{BoxStream, SelectAll, Stream, StreamExt as _, unfold};
use futures::{FutureExt as _, future};
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

    /// Does a job. A controller whose plans have none does not need it.
    fn act(&self, _: &Self::Key, _: Self::Job) -> impl Future<Output = kube::Result<Self::Done>> + Send + 'static {
        future::pending()
    }

    /// Handles the end of a job. The key is in the queue only if it was added during the job.
    fn done(&mut self, _key: Self::Key, _result: kube::Result<Self::Done>, _now: Instant) {}

    /// Removes what must not outlive the loop, such as metrics.
    fn end(&mut self) {}
}

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

impl<C: 'static> Inputs<C> {
    pub fn new() -> Self {
        Inputs(SelectAll::new())
    }

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

impl<C: 'static> Default for Inputs<C> {
    fn default() -> Self {
        Inputs::new()
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

/// The next step of a loop without changes.
#[derive(Debug, PartialEq)]
enum Wake {
    /// More keys are due.
    Now,
    At(Option<Instant>),
}

/// Runs the controller until `stop`. Jobs in progress are aborted then.
pub async fn run<C: Controller>(mut controller: C, mut inputs: Inputs<C>, stop: CancellationToken) {
    let mut jobs = Executor::new(controller.job_timeout());
    loop {
        let now = Instant::now();
        controller.prepare(now);
        let wake = plan_due(&mut controller, now, |controller, key, job| {
            let action = controller.act(&key, job);
            jobs.start(key, action);
        });
        let settle_at = controller.settle(now);
        let (has_more, wake_at) = match wake {
            Wake::Now => (true, None),
            Wake::At(at) => (false, at.into_iter().chain(settle_at).min()),
        };
        tokio::select! {
            () = stop.cancelled() => break,
            Some(take) = inputs.0.next() => {
                take(&mut controller);
                for _ in 1..CHANGES_IN_A_ROW {
                    let Some(Some(take)) = inputs.0.next().now_or_never() else { break };
                    take(&mut controller);
                }
            }
            Some((key, result)) = jobs.next() => finish(&mut controller, key, result, Instant::now()),
            () = sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {}
            () = yield_now(), if has_more => {}
        }
    }
    // A job cut short does no harm: each is one write, or none.
    jobs.shutdown().await;
    controller.end();
}

/// Plans the due keys; `start` gets their jobs.
fn plan_due<C: Controller>(controller: &mut C, now: Instant, mut start: impl FnMut(&C, C::Key, C::Job)) -> Wake {
    for _ in 0..KEYS_IN_A_ROW {
        let gate = controller.gate();
        let key = if gate == Gate::Open { controller.queue().begin(now) } else { None };
        let Some(key) = key else {
            let next_at = controller.queue().next_at().filter(|_| gate != Gate::Shut);
            return Wake::At(next_at.map(|at| at.max(now + C::PACE)));
        };
        let at = match controller.plan(&key, now) {
            Plan::Act(job) => {
                start(controller, key, job);
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
    Wake::Now
}

fn finish<C: Controller>(controller: &mut C, key: C::Key, result: kube::Result<C::Done>, now: Instant) {
    controller.queue().end(&key);
    controller.done(key, result, now);
}
