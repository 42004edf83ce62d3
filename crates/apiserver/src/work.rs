//! Runs long computations outside the threads that serve requests, and alternates between users.
//!
//! A list of many objects with a selector, or a patch of a large object, takes tens of milliseconds of CPU time. On a thread of
//! the runtime, all requests of that thread would wait as long. Here, the runtime releases the thread meanwhile.
//!
//! Such computations wait for a place ([`LargeWork`]). The model is Kubernetes' API priority and fairness: each user has a queue,
//! and the queues alternate. The wait of a user thus depends on the number of users, not on the number of requests of one of
//! them. Some users are exempt ([`Authorizer::is_reserved_for`]). The number of requests in a queue is that of a user's requests in
//! flight ([`crate::in_flight`]).
//!
//! [`Authorizer::is_reserved_for`]: crate::auth::rules::Authorizer::is_reserved_for

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// The number of objects from which reading or writing all of them counts as large.
pub(crate) const OBJECTS_LARGE: usize = 1_000;
/// The size in octets from which a body counts as large. An ordinary object has a few KiB.
pub(crate) const BODY_LARGE: usize = 64 * 1024;
/// The minimum number of places: with one, a request that waits for the store would hold up all others.
const PLACES_MIN: usize = 2;

/// Places for large work: half of the processors, so that small requests have the rest. One user gets half of them.
pub(crate) struct LargeWork {
    places: usize,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    held: usize,
    /// The users who hold a permit or wait for one. The first one who may have another gets the next.
    users: VecDeque<Queue>,
}

struct Queue {
    user: Arc<str>,
    held: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

/// A place, freed when this is dropped.
pub(crate) struct Permit {
    of: Arc<LargeWork>,
    user: Arc<str>,
}

/// The large work of one user; `None`: the user is exempt.
#[derive(Clone)]
pub(crate) struct UsersWork(Option<(Arc<LargeWork>, Arc<str>)>);

impl LargeWork {
    pub(crate) fn new() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(LargeWork { places: (processors / 2).max(PLACES_MIN), queues: Mutex::default() })
    }

    /// Returns the large work of a user.
    pub(crate) fn of(self: &Arc<Self>, user: &str, is_exempt: bool) -> UsersWork {
        UsersWork((!is_exempt).then(|| (self.clone(), user.into())))
    }

    fn places_of_one(&self) -> usize {
        self.places / 2
    }

    /// Adds a request of a user to its queue.
    fn enter(self: &Arc<Self>, user: &Arc<str>) -> oneshot::Receiver<Permit> {
        let (sender, receiver) = oneshot::channel();
        let mut queues = self.queues.lock();
        match queues.users.iter_mut().find(|queue| queue.user == *user) {
            Some(queue) => {
                // Requests whose clients have left do not count as in flight, so nothing else bounds their number.
                queue.waiting.retain(|waiting| !waiting.is_closed());
                queue.waiting.push_back(sender);
            }
            None => queues.users.push_back(Queue { user: user.clone(), held: 0, waiting: [sender].into() }),
        }
        drop(queues);
        self.grant();
        receiver
    }

    /// Gives the free places to the waiting requests.
    fn grant(self: &Arc<Self>) {
        loop {
            let mut queues = self.queues.lock();
            let Some((user, next)) = queues.next(self.places, self.places_of_one()) else { return };
            drop(queues);
            // A request whose client has just left frees the place again.
            let _ = next.send(Permit { of: self.clone(), user });
        }
    }
}

impl Queues {
    /// Takes the next request that gets a place, and its user.
    fn next(&mut self, places: usize, places_of_one: usize) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        self.users.iter_mut().for_each(|queue| queue.waiting.retain(|waiting| !waiting.is_closed()));
        self.users.retain(|queue| queue.held > 0 || !queue.waiting.is_empty());
        if self.held >= places {
            return None;
        }
        let is_next = |queue: &Queue| queue.held < places_of_one && !queue.waiting.is_empty();
        let mut queue = self.users.remove(self.users.iter().position(is_next)?)?;
        let next = queue.waiting.pop_front()?;
        queue.held += 1;
        self.held += 1;
        let user = queue.user.clone();
        self.users.push_back(queue);
        Some((user, next))
    }
}

impl UsersWork {
    /// Waits for a permit if the work is large.
    pub(crate) async fn permit(&self, is_large: bool) -> Option<Permit> {
        let (large_work, user) = self.0.as_ref().filter(|_| is_large)?;
        Some(large_work.enter(user).await.expect("a request in the queue gets a permit"))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut queues = self.of.queues.lock();
        queues.held -= 1;
        if let Some(queue) = queues.users.iter_mut().find(|queue| queue.user == self.user) {
            queue.held -= 1;
        }
        drop(queues);
        self.of.grant();
    }
}

/// Runs the work; if it is large, outside the runtime's threads.
pub(crate) fn beside<T>(is_large: bool, work: impl FnOnce() -> T) -> T {
    match is_large && may_block() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// Runs work that also waits; if it is large, its computations run outside the runtime's threads. While it waits, it can be
/// canceled: the work ends when its client leaves.
pub(crate) async fn wait_beside<T>(is_large: bool, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|context| beside(is_large, || work.as_mut().poll(context))).await
}

/// Returns whether this thread may block: a runtime with only one thread needs it.
fn may_block() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_leaves_the_only_thread_to_others() {
        for waits in [false, true] {
            let (sent, received) = std::sync::mpsc::channel();
            let other = tokio::spawn(async move { sent.send(()) });
            let limit = Duration::from_secs(60);
            let work = tokio::spawn(async move {
                let receive = move || received.recv_timeout(limit);
                match waits {
                    false => beside(true, receive),
                    true => wait_beside(true, async move { receive() }).await,
                }
            });
            assert_eq!(work.await.expect("no panic"), Ok(()), "the other task ran meanwhile");
            other.await.expect("no panic").expect("it was received");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_is_canceled_while_it_waits() {
        let (begun, has_begun) = oneshot::channel();
        let (held, dropped) = oneshot::channel::<()>();
        let work = tokio::spawn(wait_beside(true, async move {
            let _ = begun.send(());
            std::future::pending::<()>().await;
            drop(held);
        }));
        has_begun.await.expect("the work begins");
        work.abort();
        let dropped = tokio::time::timeout(Duration::from_secs(60), dropped).await;
        assert!(dropped.is_ok_and(|dropped| dropped.is_err()), "what the work holds is dropped");
    }

    #[tokio::test]
    async fn in_a_runtime_of_one_thread_it_is_done_in_place() {
        assert_eq!(beside(true, || 1) + wait_beside(true, async { 2 }).await, 3);
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Option<Permit>> + 'a>>;

    /// Enters the queue, where it must wait.
    fn waits(work: &UsersWork) -> Waiting<'_> {
        let mut permit: Waiting<'_> = Box::pin(work.permit(true));
        assert!(permit.as_mut().now_or_never().is_none(), "it must wait");
        permit
    }

    /// Returns the permit, which is there.
    fn got(permit: impl Future<Output = Option<Permit>>) -> Permit {
        permit.now_or_never().flatten().expect("a permit")
    }

    #[test]
    fn a_user_has_half_of_the_places_and_leaves_nothing() {
        let large_work = Arc::new(LargeWork { places: 4, queues: Mutex::default() });
        let of = |user: &str| large_work.of(user, false);
        let (alice, bob, carol) = (of("alice"), of("bob"), of("carol"));
        let mut alices = vec![got(alice.permit(true)), got(alice.permit(true))];
        let third = waits(&alice);
        let others: Vec<_> = (0..100).map(|_| waits(&alice)).collect();
        assert!(alice.permit(false).now_or_never().expect("small work does not wait").is_none());
        let exempt = large_work.of("alice", true);
        assert!(exempt.permit(true).now_or_never().expect("nor does an exempt user").is_none());
        let mut bobs = vec![got(bob.permit(true)), got(bob.permit(true))];
        let carols = waits(&carol);
        // Alice has waited longest, but has the other half.
        bobs.pop();
        let carols = got(carols);
        alices.pop();
        alices.push(got(third));
        // A client that leaves gives its place in the queue, or the permit that was on its way, to the next one.
        drop(others);
        let (left, stays) = (waits(&alice), waits(&alice));
        drop(left);
        alices.pop();
        alices.push(got(stays));
        let (left, stays) = (waits(&alice), waits(&alice));
        alices.pop();
        drop(left);
        alices.push(got(stays));
        drop((alices, bobs, carols));
        let queues = large_work.queues.lock();
        assert_eq!((queues.held, queues.users.len()), (0, 0));
    }

    #[test]
    fn users_alternate() {
        let large_work = Arc::new(LargeWork { places: 2, queues: Mutex::default() });
        let tenants = ["one", "two"].map(|user| large_work.of(user, false));
        let mut held: VecDeque<Permit> = tenants.iter().map(|tenant| got(tenant.permit(true))).collect();
        let mut flood: Vec<_> = (0..120).flat_map(|_| tenants.iter().map(waits)).collect();
        let admin = large_work.of("admin", false);
        let mut admins = waits(&admin);
        let mut rounds = 0;
        while admins.as_mut().now_or_never().flatten().is_none() {
            rounds += 1;
            assert!(rounds <= 3, "it waits for one permit of each user, not for all requests of one");
            held.pop_front();
            flood.retain_mut(|waiting| match waiting.as_mut().now_or_never().flatten() {
                Some(permit) => {
                    held.push_back(permit);
                    false
                }
                None => true,
            });
        }
    }
}
