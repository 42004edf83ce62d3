//! What the doctor says: findings, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Good,
    /// It could not be looked at, or is worth knowing.
    Note,
    /// It works, and not well, or not for everyone.
    Warning,
    /// It does not work.
    Error,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A word that stays the same from version to version, such as `glue-missing`.
    pub code: &'static str,
    /// What it is about: a zone, a name server with its address, a host.
    pub subject: String,
    /// What was found and what to do.
    pub message: String,
    /// Records to add, in the zone that the message names, as in a master file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Records to take away there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

impl Finding {
    /// A finding without records.
    pub fn new(severity: Severity, code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        let (add, remove) = (Vec::new(), Vec::new());
        Finding { severity, code, subject: subject.into(), message: message.into(), add, remove }
    }

    /// With records to add.
    pub fn add(mut self, records: impl IntoIterator<Item = String>) -> Self {
        self.add.extend(records);
        self
    }

    /// With records to take away.
    pub fn remove(mut self, records: impl IntoIterator<Item = String>) -> Self {
        self.remove.extend(records);
        self
    }
}

/// All findings of one visit.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The platform's domain.
    pub domain: String,
    /// How many findings are errors.
    pub errors: usize,
    /// How many are warnings.
    pub warnings: usize,
    /// The findings, in the order of the walk.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Counts the findings.
    pub fn new(domain: &str, findings: Vec<Finding>) -> Report {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        Report { domain: domain.to_owned(), errors, warnings, findings }
    }

    /// For programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data") + "\n"
    }

    /// For people: a line a finding, below it the records.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let word = match finding.severity {
                Severity::Good => "good",
                Severity::Note => "note",
                Severity::Warning => "WARNING",
                Severity::Error => "ERROR",
            };
            let Finding { subject, message, code, .. } = finding;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word:<8} {subject}: {message} [{code}]");
            for record in &finding.add {
                let _ = writeln!(text, "           add     {record}");
            }
            for record in &finding.remove {
                let _ = writeln!(text, "           remove  {record}");
            }
        }
        let _ = writeln!(text, "\n{}: {} errors, {} warnings", self.domain, self.errors, self.warnings);
        text
    }
}
