//! What is wrong with a zone file, and where.
//!
//! Reading a file does not stop at the first mistake: each becomes a [`Finding`], up to a bound, so that one run shows
//! them all. Errors keep the zone from being served; warnings do not.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use crate::zone::check::Severity;

/// Most errors kept for one zone; reading stops there. More would only repeat what the first say.
pub const ERRORS_MAX: usize = 50;
/// Most warnings kept for one zone; further ones are counted.
pub const WARNINGS_MAX: usize = 100;

/// A place in a text: both count from 1, columns in octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in octets.
    pub column: u32,
}

impl Position {
    /// The first octet.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// One thing that is wrong with a zone, at its place. Its text is `file:line:column: severity: message [code]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether the zone can be served nevertheless.
    pub severity: Severity,
    /// The file, as it was named by who asked for it; an included file by its own path.
    pub file: Arc<Path>,
    /// The line, from 1.
    pub line: u32,
    /// The column in octets, from 1.
    pub column: u32,
    /// What was found and what was expected, for people.
    pub message: String,
    /// The kind of finding; stays the same over versions.
    pub code: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { severity, file, line, column, message, code } = self;
        write!(f, "{}:{line}:{column}: {severity}: {message} [{code}]", file.display())
    }
}

/// Why an entry cannot be read; becomes a [`Finding`] once its file is known.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: Position,
    pub code: &'static str,
    pub message: String,
}

impl Fault {
    pub fn new(at: Position, code: &'static str, message: impl Into<String>) -> Self {
        Fault { at, code, message: message.into() }
    }
}

/// Findings of one zone, in the order of their discovery, bounded.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    /// Adds a finding, or only counts it when there are enough of its severity.
    pub fn push(&mut self, finding: Finding) {
        let (count, max) = match finding.severity {
            Severity::Error => (&mut self.errors, ERRORS_MAX),
            Severity::Warning => (&mut self.warnings, WARNINGS_MAX),
        };
        *count += 1;
        if *count <= max {
            self.list.push(finding);
        }
    }

    /// Whether there is an error among them.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether no further error would be kept.
    pub fn is_full(&self) -> bool {
        self.errors >= ERRORS_MAX
    }

    /// The findings by place, with a last one that says how many more there were, if there were more.
    pub fn into_sorted(mut self) -> Vec<Finding> {
        // Includes are named after the file that includes them; a stable order by file keeps each file's together.
        self.list.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let more = self.errors.saturating_sub(ERRORS_MAX) + self.warnings.saturating_sub(WARNINGS_MAX);
        if let Some(last) = self.list.last().filter(|_| more > 0) {
            let message = format!("{more} more findings are not shown");
            let summary = Finding { severity: Severity::Warning, message, code: "more-findings", ..last.clone() };
            self.list.push(summary);
        }
        self.list
    }
}
