//! What a process must have before it is of use, and what of it is missing.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// All checks of a process. There are as many as its roles need, a dozen at most.
#[derive(Default)]
pub struct Health {
    checks: Mutex<Vec<Arc<State>>>,
}

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

    /// How it stands.
    pub fn report(&self) -> Report {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |state: &Arc<State>| Line {
            role: state.role,
            what: state.what,
            missing: state.missing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        Report(checks.iter().map(line).collect())
    }
}

/// How a process stands: a line a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(Vec<Line>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    role: &'static str,
    what: &'static str,
    missing: Option<String>,
}

impl Report {
    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.0.iter().all(|line| line.missing.is_none())
    }

    /// What is missing, such as `dns/zones: …`.
    pub fn missing(&self) -> Vec<String> {
        let text = |line: &Line| line.missing.as_ref().map(|why| format!("{}/{}: {why}", line.role, line.what));
        self.0.iter().filter_map(text).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.0 {
            match &line.missing {
                None => writeln!(f, "[+] {}/{}", line.role, line.what)?,
                Some(why) => writeln!(f, "[-] {}/{}: {why}", line.role, line.what)?,
            }
        }
        writeln!(f, "{}", if self.is_ready() { "ready" } else { "not ready" })
    }
}
