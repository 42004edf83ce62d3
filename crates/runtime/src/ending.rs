//! How a thread or task on which everything depends reports that it ended by itself.
//!
//! A panic ends its thread and nothing else: without this, a process whose store takes no writes any more, or whose zones
//! stand still, would go on and report itself ready. The owner of the thread holds an [`Ending`], and the process waits for
//! [`Ending::told`] among its tasks.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use futures::FutureExt as _;
use tokio::sync::watch;

/// The place where the end is reported. Clones share it.
#[derive(Debug, Clone)]
pub struct Ending {
    why: watch::Sender<Option<String>>,
}

impl Ending {
    /// Nothing has ended yet.
    pub fn new() -> Self {
        Ending { why: watch::Sender::new(None) }
    }

    /// Reports the end, and why; the first report counts.
    pub fn tell(&self, why: impl Into<String>) {
        self.why.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(|| why.into());
            is_first
        });
    }

    /// Whether an end was reported.
    pub fn is_told(&self) -> bool {
        self.why.borrow().is_some()
    }

    /// Waits until an end is reported, and returns why. Without one it waits for ever.
    pub fn told(&self) -> impl Future<Output = String> + Send + use<> {
        let mut why = self.why.subscribe();
        async move {
            let told = why.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
            match told {
                Some(why) => why,
                None => std::future::pending().await,
            }
        }
    }

    /// Starts a thread, whose panic is reported.
    ///
    /// # Errors
    ///
    /// What the system says if it refuses a thread.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let (ending, thread) = (self.clone(), name.to_owned());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // What the work shares with others it leaves as it is; the process ends.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                ending.tell(format!("the thread {thread} panicked: {}", message(&*panic)));
            }
        })
    }

    /// `task`, whose panic is reported.
    pub fn watch<T: Future<Output = ()> + Send>(
        &self,
        name: String,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<T> {
        let ending = self.clone();
        async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                ending.tell(format!("{name} panicked: {}", message(&*panic)));
            }
        }
    }
}

impl Default for Ending {
    fn default() -> Self {
        Self::new()
    }
}

/// The words of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_are_reported_and_regular_ends_are_not() {
        let ending = Ending::new();
        ending.spawn("good", || {}).expect("a thread").join().expect("it ended");
        ending.watch("good".to_owned(), async {}).await;
        assert!(!ending.is_told());
        assert!(ending.told().now_or_never().is_none());
        ending.spawn("bad", || panic!("number {}", 7)).expect("a thread").join().expect("its panic is caught");
        ending.tell("the second");
        assert_eq!(ending.told().await, "the thread bad panicked: number 7");
        let ending = Ending::new();
        ending.watch("the listener".to_owned(), async { panic!("now") }).await;
        assert_eq!(ending.told().await, "the listener panicked: now");
    }
}
