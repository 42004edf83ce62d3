//! The conditions that a process needs to be ready, and those that are missing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The interval at which a check is evaluated again.
const INTERVAL: Duration = Duration::from_millis(50);

/// All checks of a process. There are as many as its roles need, a dozen at most.
#[derive(Default)]
pub struct Health {
    checks: Mutex<Vec<Arc<State>>>,
    warnings: Mutex<Vec<(&'static str, &'static str, Warning)>>,
}

/// The function that returns a problem that does not affect readiness, if there is one.
pub type Warning = Box<dyn Fn() -> Option<String> + Send + Sync>;

struct State {
    role: &'static str,
    what: &'static str,
    status: Mutex<CheckStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CheckStatus {
    Ready,
    /// The part works, but has a problem.
    Warning(String),
    Missing(String),
}

/// A check, owned by the part that knows its state.
#[derive(Clone)]
pub struct Check(Arc<State>);

impl Check {
    pub fn ready(&self) {
        self.set(CheckStatus::Ready);
    }

    /// Reports that the part works, with a problem.
    pub fn warn(&self, what: impl Into<String>) {
        self.set(CheckStatus::Warning(what.into()));
    }

    pub fn missing(&self, why: impl Into<String>) {
        self.set(CheckStatus::Missing(why.into()));
    }

    /// Reports the result of `missing` until it is `None`, and continues until `stop`.
    pub async fn follow(self, missing: impl Fn() -> Option<String>, stop: CancellationToken) {
        while let Some(why) = missing() {
            self.missing(why);
            if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
                return;
            }
        }
        self.ready();
        stop.cancelled().await;
    }

    fn set(&self, status: CheckStatus) {
        *self.0.status.lock() = status;
    }
}

impl Health {
    /// Adds a check that is not ready yet, with the reason.
    pub fn add(&self, role: &'static str, what: &'static str, missing: &str) -> Check {
        let state = Arc::new(State { role, what, status: Mutex::new(CheckStatus::Missing(missing.to_owned())) });
        self.checks.lock().push(state.clone());
        Check(state)
    }

    /// Adds a check that can report a problem while the process is ready.
    pub fn warn(&self, role: &'static str, what: &'static str, warning: Warning) {
        self.warnings.lock().push((role, what, warning));
    }

    pub fn report(&self) -> Report {
        let checks = self.checks.lock();
        let line =
            |state: &Arc<State>| CheckLine { role: state.role, what: state.what, status: state.status.lock().clone() };
        let warnings = self.warnings.lock();
        let warning = |(role, what, warning): &(&'static str, &'static str, Warning)| {
            Some(CheckLine { role, what, status: CheckStatus::Warning(warning()?) })
        };
        Report(checks.iter().map(line).chain(warnings.iter().filter_map(warning)).collect())
    }
}

/// The state of a process: one line per check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(Vec<CheckLine>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckLine {
    role: &'static str,
    what: &'static str,
    status: CheckStatus,
}

impl Report {
    /// Returns whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        !self.0.iter().any(|line| matches!(line.status, CheckStatus::Missing(_)))
    }

    /// Returns the failed checks, such as `dns/zones: …`.
    pub fn missing(&self) -> Vec<String> {
        self.lines(|status| match status {
            CheckStatus::Missing(why) => Some(why),
            CheckStatus::Ready | CheckStatus::Warning(_) => None,
        })
    }

    /// Returns the passed checks with a problem, in the same form.
    pub fn warnings(&self) -> Vec<String> {
        self.lines(|status| match status {
            CheckStatus::Warning(what) => Some(what),
            CheckStatus::Ready | CheckStatus::Missing(_) => None,
        })
    }

    fn lines(&self, words: impl Fn(&CheckStatus) -> Option<&String>) -> Vec<String> {
        let text = |line: &CheckLine| Some(format!("{}/{}: {}", line.role, line.what, words(&line.status)?));
        self.0.iter().filter_map(text).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.0 {
            match &line.status {
                CheckStatus::Ready => writeln!(f, "[+] {}/{}", line.role, line.what)?,
                CheckStatus::Warning(what) => writeln!(f, "[!] {}/{}: {what}", line.role, line.what)?,
                CheckStatus::Missing(why) => writeln!(f, "[-] {}/{}: {why}", line.role, line.what)?,
            }
        }
        writeln!(f, "{}", if self.is_ready() { "ready" } else { "not ready" })
    }
}
