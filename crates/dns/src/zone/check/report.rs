//! The findings of a check: it counts all, but keeps a limited number.

use std::fmt;

use super::code::{Code, Severity, UnparsedRecords};
use crate::wire::{Name, RecordType};

/// A problem of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    /// The kind.
    pub code: Code,
    /// The owner of the records.
    pub owner: Name,
    /// The type of the records, if the finding is about some; a record of this type and owner is in the zone, or is missing
    /// there.
    pub rtype: Option<RecordType>,
    /// The human-readable message: the finding, and the action.
    pub message: String,
}

/// The findings of one check.
#[derive(Debug, Default)]
pub struct Report {
    /// The reported findings, in the order of the checks. If there is an error, at least one is reported; the same applies to
    /// faults.
    pub findings: Vec<CheckFinding>,
    /// The numbers of further errors, faults, warnings, and notes.
    pub omitted: usize,
    errors: usize,
    faults: usize,
    others: usize,
}

/// Adds a finding to a [`Reporter`]: its code, the owner and the type of the records that it is about, and its message.
macro_rules! found {
    ($report:ident: $code:expr, $owner:expr, $rtype:expr; $($message:tt)+) => {
        $report.push($code, $owner, $rtype, format_args!($($message)+))
    };
}
pub(super) use found;

/// Collects findings; suppresses those that are caused by unparsed records, and limits the number of kept ones.
pub(super) struct Reporter<'a> {
    report: Report,
    kept_max: usize,
    unparsed: &'a UnparsedRecords,
}

impl<'a> Reporter<'a> {
    /// Keeps at most `kept_max` errors, as many faults, and as many others; suppresses findings that records of `unparsed` might
    /// resolve.
    pub(super) fn new(kept_max: usize, unparsed: &'a UnparsedRecords) -> Self {
        Reporter { report: Report::default(), kept_max: kept_max.max(1), unparsed }
    }

    /// Adds a finding; creates its message only if the finding is kept.
    pub(super) fn push(
        &mut self,
        code: Code,
        owner: &Name,
        rtype: impl Into<Option<RecordType>>,
        message: fmt::Arguments<'_>,
    ) {
        let rtype = rtype.into();
        if self.unparsed.may_resolve(code, owner, rtype) {
            return;
        }
        // Counted separately, so that warnings never hide worse findings.
        let count = match code.severity() {
            Severity::Error => &mut self.report.errors,
            Severity::Fault => &mut self.report.faults,
            Severity::Warning | Severity::Note => &mut self.report.others,
        };
        *count += 1;
        if *count <= self.kept_max {
            let (owner, message) = (owner.clone(), message.to_string());
            self.report.findings.push(CheckFinding { code, owner, rtype, message });
        } else {
            self.report.omitted += 1;
        }
    }

    pub(super) fn finish(self) -> Report {
        self.report
    }
}
