//! Reports that a critical thread or task ended by itself.
//!
//! A panic ends only its thread. Without this report, a process whose store accepts no writes any longer, or whose zones no
//! longer change, would keep running and report itself ready. The owner of the thread holds an [`ExitReport`], and the process
//! waits for [`ExitReport::reported`] among its tasks.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use futures::FutureExt as _;
use tokio::sync::watch;

/// The report of an end. Clones share it.
#[derive(Debug, Clone)]
pub struct ExitReport {
    why: watch::Sender<Option<String>>,
}

impl ExitReport {
    /// Nothing has ended yet.
    pub fn new() -> Self {
        ExitReport { why: watch::Sender::new(None) }
    }

    /// Reports the end, with the reason; only the first report counts.
    pub fn report(&self, why: impl Into<String>) {
        self.why.send_if_modified(|reported| {
            let is_first = reported.is_none();
            reported.get_or_insert_with(|| why.into());
            is_first
        });
    }

    /// Returns whether an end was reported.
    pub fn is_reported(&self) -> bool {
        self.why.borrow().is_some()
    }

    /// Waits until an end is reported, and returns the reason. Without a report, it waits indefinitely.
    pub fn reported(&self) -> impl Future<Output = String> + Send + use<> {
        let mut why = self.why.subscribe();
        async move {
            let reported = why.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
            match reported {
                Some(why) => why,
                None => std::future::pending().await,
            }
        }
    }

    /// Starts a thread whose panic is reported.
    ///
    /// # Errors
    ///
    /// The error of the system if it cannot start a thread.
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let (ending, thread) = (self.clone(), name.to_owned());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // State that is shared with other threads can be inconsistent after this; the process ends.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                ending.report(format!("the thread {thread} panicked: {}", message(&*panic)));
            }
        })
    }

    /// Wraps `task`; its panic is reported.
    pub fn watch<T: Future<Output = ()> + Send>(
        &self,
        name: String,
        task: T,
    ) -> impl Future<Output = ()> + Send + use<T> {
        let ending = self.clone();
        async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                ending.report(format!("{name} panicked: {}", message(&*panic)));
            }
        }
    }
}

impl Default for ExitReport {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the words of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_are_reported_and_regular_ends_are_not() {
        let ending = ExitReport::new();
        ending.spawn("good", || {}).expect("a thread").join().expect("it ended");
        ending.watch("good".to_owned(), async {}).await;
        assert!(!ending.is_reported());
        assert!(ending.reported().now_or_never().is_none());
        ending.spawn("bad", || panic!("number {}", 7)).expect("a thread").join().expect("its panic is caught");
        ending.report("the second");
        assert_eq!(ending.reported().await, "the thread bad panicked: number 7");
        let ending = ExitReport::new();
        ending.watch("the listener".to_owned(), async { panic!("now") }).await;
        assert_eq!(ending.reported().await, "the listener panicked: now");
    }
}
