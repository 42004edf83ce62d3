//! Findings in a zone file, with their positions.
//!
//! Reading a file does not stop at the first mistake: each becomes a [`ZoneFinding`], so that one run shows them all; a server keeps
//! only the first of them. Errors keep the zone from being served; faults, warnings and notes do not.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use crate::zone::check::Severity;

/// The maximum numbers of findings that are kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The maximum number of errors of one zone, after which reading stops.
    pub errors_max: usize,
    /// The maximum number of faults, and of warnings and notes, of one zone; further ones are counted.
    pub warnings_max: usize,
}

impl Bounds {
    /// The limits for a server, which logs findings: more would only repeat the first ones.
    pub const SERVER: Bounds = Bounds { errors_max: 50, warnings_max: 100 };
    /// The limits for a full report, which only prevent a file that is not a zone file from filling the memory.
    pub const CHECK: Bounds = Bounds { errors_max: 1_000_000, warnings_max: 1_000_000 };
}

/// A position in a text: both numbers start at 1; columns are octets.
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

/// A problem of a zone, with its position. Its text is `file:line:column: severity: message [code]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneFinding {
    /// The severity, which shows whether the zone can be served.
    pub severity: Severity,
    /// The file, by the path of the request; an included file by its own path.
    pub file: Arc<Path>,
    /// The line, from 1.
    pub line: u32,
    /// The column in octets, from 1.
    pub column: u32,
    /// The human-readable message: the finding, and the expected input.
    pub message: String,
    /// The kind of finding; stays the same over versions.
    pub code: &'static str,
}

impl fmt::Display for ZoneFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ZoneFinding { severity, file, line, column, message, code } = self;
        write!(f, "{}:{line}:{column}: {severity}: {message} [{code}]", file.display())
    }
}

/// The reason why an entry cannot be parsed; becomes a [`ZoneFinding`] once its file is known.
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
#[derive(Debug)]
pub struct FindingList {
    list: Vec<ZoneFinding>,
    errors: usize,
    faults: usize,
    warnings: usize,
    /// The findings that were only counted.
    omitted: usize,
    bounds: Bounds,
}

impl FindingList {
    /// Creates an empty list.
    pub fn new(bounds: Bounds) -> Self {
        FindingList { list: Vec::new(), errors: 0, faults: 0, warnings: 0, omitted: 0, bounds }
    }

    /// Adds a finding, or only counts it when there are enough of its severity.
    pub fn push(&mut self, finding: ZoneFinding) {
        let (count, max) = match finding.severity {
            Severity::Error => (&mut self.errors, self.bounds.errors_max),
            Severity::Fault => (&mut self.faults, self.bounds.warnings_max),
            Severity::Warning | Severity::Note => (&mut self.warnings, self.bounds.warnings_max),
        };
        *count += 1;
        if *count <= max {
            self.list.push(finding);
        }
    }

    /// Counts findings that were omitted elsewhere.
    pub fn count_omitted(&mut self, more: usize) {
        self.omitted += more;
    }

    /// Returns whether there is an error among them.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Returns whether it drops further errors.
    pub fn is_full(&self) -> bool {
        self.errors >= self.bounds.errors_max
    }

    /// Returns the findings by position, followed by one with the number of omitted ones, if there are any.
    pub fn into_sorted(mut self) -> Vec<ZoneFinding> {
        // A stable order by file keeps the findings of each included file together.
        self.list.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let Bounds { errors_max, warnings_max } = self.bounds;
        let omitted = [(self.errors, errors_max), (self.faults, warnings_max), (self.warnings, warnings_max)];
        let more = self.omitted + omitted.iter().map(|(found, max)| found.saturating_sub(*max)).sum::<usize>();
        if let Some(last) = self.list.last().filter(|_| more > 0) {
            let message = format!("{more} more findings not shown");
            let summary = ZoneFinding { severity: Severity::Warning, message, code: "more-findings", ..last.clone() };
            self.list.push(summary);
        }
        self.list
    }
}
