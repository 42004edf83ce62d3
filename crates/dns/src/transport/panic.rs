//! Reports that a worker or listener panicked. A panic ends only its own thread or task: without a report, the process would
//! continue and remain ready.

use tokio::sync::watch;

/// The first panic of the workers and listeners. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Panics {
    first: watch::Sender<Option<String>>,
}

impl Panics {
    /// Returns a guard for the thread or task `name`, which moves into it. Its drop reports a panic.
    pub(super) fn guard(&self, name: String) -> Guard {
        Guard { name, panics: self.clone() }
    }

    /// Waits until a guarded thread or task panics, and returns its name.
    pub(super) fn first(&self) -> impl Future<Output = String> + Send + use<> {
        let mut first = self.first.subscribe();
        async move {
            match first.wait_for(Option::is_some).await.ok().and_then(|first| first.clone()) {
                Some(first) => first,
                None => std::future::pending().await,
            }
        }
    }
}

/// Belongs to a thread or task.
pub(super) struct Guard {
    name: String,
    panics: Panics,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let report = || format!("{} panicked; its message is in the log above", self.name);
            self.panics.first.send_if_modified(|first| first.is_none() && first.replace(report()).is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_of_a_thread_or_task_is_reported() {
        let panics = Panics::default();
        let guard = panics.guard("good".to_owned());
        std::thread::spawn(move || drop(guard)).join().expect("it ends well");
        assert_eq!(*panics.first.borrow(), None);
        let guard = panics.guard("the listener".to_owned());
        let listener = tokio::spawn(async move {
            let _guard = guard;
            tokio::task::yield_now().await;
            panic!("as the test wants");
        });
        listener.await.expect_err("it panics");
        let guard = panics.guard("the worker".to_owned());
        let worker = move || {
            let _guard = guard;
            panic!("as the test wants");
        };
        std::thread::spawn(worker).join().expect_err("it panics");
        assert_eq!(panics.first().await, "the listener panicked; its message is in the log above");
    }
}
