//! What a check has found so far: all of it counts, but only so much of it is kept to be told.

use std::fmt;

use super::code::{Code, Severity, UnparsedRecords};
use crate::wire::{Name, RecordType};

/// One thing that is wrong with a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    /// The kind.
    pub code: Code,
    /// Whose records.
    pub owner: Name,
    /// Which of them, if it is about some; a record of this type and owner is in the zone, or else missing there.
    pub rtype: Option<RecordType>,
    /// What was found, and what to do, for people.
    pub message: String,
}

/// The findings of one check.
#[derive(Debug, Default)]
pub struct Report {
    /// What is told, in the order of the checks. An error is told if there is one, and so is a fault.
    pub findings: Vec<CheckFinding>,
    /// How many errors, faults, warnings and notes there are beyond those.
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

/// Takes findings, and knows which are none and how many are kept.
pub(super) struct Reporter<'a> {
    report: Report,
    kept_max: usize,
    unparsed: &'a UnparsedRecords,
}

impl<'a> Reporter<'a> {
    /// Keeps at most `kept_max` errors, as many faults, and as many others; what records of `unparsed` might resolve is no finding.
    pub(super) fn new(kept_max: usize, unparsed: &'a UnparsedRecords) -> Self {
        Reporter { report: Report::default(), kept_max: kept_max.max(1), unparsed }
    }

    /// Adds a finding. Its message is made only if it is kept.
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
        // Counted apart: however many warnings there are, they never hide what is worse.
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
