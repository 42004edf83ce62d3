//! What a process must have before it is of use, and what of it is missing.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// All checks of a process. There are as many as its roles need, a dozen at most.
#[derive(Default)]
pub struct Health {
    checks: Mutex<Vec<Arc<State>>>,
    warnings: Mutex<Vec<(&'static str, &'static str, Warning)>>,
}

/// Tells what is wrong without being in the way of readiness, if anything is.
pub type Warning = Box<dyn Fn() -> Option<String> + Send + Sync>;

struct State {
    role: &'static str,
    what: &'static str,
    missing: Mutex<Option<String>>,
}

/// One check, in the hands of whoever knows its state.
#[derive(Clone)]
pub struct Check(Arc<State>);

impl Check {
    /// It is there.
    pub fn ready(&self) {
        *self.0.missing.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It is not there, and why.
    pub fn missing(&self, why: impl Into<String>) {
        *self.0.missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.into());
    }
}

impl Health {
    /// Adds a check that is not ready yet, and why.
    pub fn add(&self, role: &'static str, what: &'static str, missing: &str) -> Check {
        let state = Arc::new(State { role, what, missing: Mutex::new(Some(missing.to_owned())) });
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(state.clone());
        Check(state)
    }

    /// Adds something that may be wrong while the process is ready.
    pub fn warn(&self, role: &'static str, what: &'static str, warning: Warning) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push((role, what, warning));
    }

    /// How it stands.
    pub fn report(&self) -> Report {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |state: &Arc<State>| Line {
            role: state.role,
            what: state.what,
            missing: state.missing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = |(role, what, warning): &(&'static str, &'static str, Warning)| {
            warning().map(|why| format!("{role}/{what}: {why}"))
        };
        Report { lines: checks.iter().map(line).collect(), warnings: warnings.iter().filter_map(warning).collect() }
    }
}

/// How a process stands: a line a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    lines: Vec<Line>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    role: &'static str,
    what: &'static str,
    missing: Option<String>,
}

impl Report {
    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.lines.iter().all(|line| line.missing.is_none())
    }

    /// What is missing, such as `dns/zones: …`.
    pub fn missing(&self) -> Vec<String> {
        let text = |line: &Line| line.missing.as_ref().map(|why| format!("{}/{}: {why}", line.role, line.what));
        self.lines.iter().filter_map(text).collect()
    }

    /// What is wrong without being in the way, such as `api/stored values: …`.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match &line.missing {
                None => writeln!(f, "[+] {}/{}", line.role, line.what)?,
                Some(why) => writeln!(f, "[-] {}/{}: {why}", line.role, line.what)?,
            }
        }
        for warning in &self.warnings {
            writeln!(f, "[!] {warning}")?;
        }
        writeln!(f, "{}", if self.is_ready() { "ready" } else { "not ready" })
    }
}
