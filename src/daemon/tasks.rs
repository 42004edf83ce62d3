//! The tasks of a process: each has a name, can be stopped, and is waited for.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Tasks that are stopped together.
#[derive(Default)]
pub struct Tasks {
    stop: CancellationToken,
    /// The tasks; each returns the reason for its end.
    set: JoinSet<String>,
    names: std::collections::HashMap<tokio::task::Id, String>,
}

impl Tasks {
    /// Returns the token that stops all tasks. Each task has its own child of it.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs a task, which must end when the [`Self::stop_token`] fires.
    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.add(name, async move {
            task.await;
            "ended".to_owned()
        });
    }

    /// Watches work outside the set, such as a thread: `ended` returns the reason if it ends by itself.
    pub fn watch(&mut self, name: impl Into<String>, ended: impl Future<Output = String> + Send + 'static) {
        let stop = self.stop_token();
        self.add(name, async move {
            tokio::select! {
                why = ended => format!("failed: {why}"),
                () = stop.cancelled() => "ended".to_owned(),
            }
        });
    }

    /// Spawns a task on another runtime.
    pub fn spawn_on(
        &mut self,
        name: impl Into<String>,
        runtime: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = async move {
            task.await;
            "ended".to_owned()
        };
        let handle = self.set.spawn_on(task, runtime);
        self.names.insert(handle.id(), name.into());
    }

    /// Runs a task that returns the reason for its end.
    pub fn add(&mut self, name: impl Into<String>, task: impl Future<Output = String> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name.into());
    }

    /// Waits until a task ends without a request to stop, and returns its name and the reason. Without tasks, it waits
    /// indefinitely.
    pub async fn failure(&mut self) -> String {
        loop {
            let (id, how) = match self.set.join_next_with_id().await {
                None => std::future::pending().await,
                Some(Ok((id, how))) => (id, how),
                Some(Err(error)) => (error.id(), error.to_string()),
            };
            let name = self.names.remove(&id).unwrap_or_default();
            if !self.stop.is_cancelled() {
                return format!("{name} {how}");
            }
        }
    }

    /// Stops all tasks and waits for them, at most `longest`; then it aborts the remaining ones. Returns their names.
    pub async fn end(mut self, longest: Duration) -> Vec<String> {
        self.stop.cancel();
        let wait = async {
            while let Some(joined) = self.set.join_next_with_id().await {
                let id = joined.map_or_else(|error| error.id(), |(id, _)| id);
                self.names.remove(&id);
            }
        };
        match tokio::time::timeout(longest, wait).await {
            Ok(()) => Vec::new(),
            Err(_) => {
                self.set.abort_all();
                self.names.into_values().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_runtime::ending::ExitReport;

    #[tokio::test]
    async fn tasks_that_end_early_are_named() {
        let mut tasks = Tasks::default();
        let stop = tasks.stop_token();
        tasks.spawn("good", async move { stop.cancelled().await });
        tasks.spawn("hasty", async {});
        assert_eq!(tasks.failure().await, "hasty ended");
        tasks.add("unlucky", async { "failed: the disk is gone".to_owned() });
        assert_eq!(tasks.failure().await, "unlucky failed: the disk is gone");
        tasks.spawn("rash", async { panic!("of its own") });
        let failure = tasks.failure().await;
        assert!(failure.starts_with("rash ") && failure.contains("of its own"), "{failure}");
        let (thread, still) = (ExitReport::new(), ExitReport::new());
        tasks.watch("thread", thread.reported());
        tasks.watch("still", still.reported());
        thread.report("it panicked");
        assert_eq!(tasks.failure().await, "thread failed: it panicked");
        tasks.spawn("deaf", std::future::pending());
        assert_eq!(tasks.end(Duration::from_millis(20)).await, ["deaf"]);
    }
}
