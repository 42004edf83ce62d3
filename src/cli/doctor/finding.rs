//! Findings of the doctor, as data for programs and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::style::{Painter, Style, harmless};
use signpost_dns::wire::Name;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Good,
    /// A check that was not possible, or a useful fact.
    Note,
    /// A problem that affects some clients, or only the performance.
    Warning,
    /// A failure.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub severity: Severity,
    /// A word that stays the same from version to version, such as `glue-missing`.
    pub code: &'static str,
    /// The subject: a zone, a name server with its address, or a host. Of several servers with the same finding, the
    /// first.
    pub subject: String,
    /// All that it is about, where that is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    pub message: String,
    /// Records to add, in the zone that the message names, as in a master file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

impl Diagnosis {
    /// Returns a finding without records.
    pub fn new(severity: Severity, code: &'static str, subject: impl ToString, message: impl Into<String>) -> Self {
        let (subjects, add, remove) = (Vec::new(), Vec::new(), Vec::new());
        Diagnosis { severity, code, subject: subject.to_string(), subjects, message: message.into(), add, remove }
    }

    /// Returns whether the other finding differs only in its subject.
    pub fn matches(&self, other: &Diagnosis) -> bool {
        let Diagnosis { severity, code, message, add, remove, .. } = self;
        (severity, code, message, add, remove)
            == (&other.severity, &other.code, &other.message, &other.add, &other.remove)
    }

    /// Makes it one of what the other is about, too.
    pub fn join(&mut self, other: &Diagnosis) {
        if self.subjects.is_empty() {
            self.subjects.push(self.subject.clone());
        }
        self.subjects.push(other.subject.clone());
    }

    pub fn add(mut self, records: impl IntoIterator<Item = String>) -> Self {
        self.add.extend(records);
        self
    }

    /// Adds records to remove.
    pub fn remove(mut self, records: impl IntoIterator<Item = String>) -> Self {
        self.remove.extend(records);
        self
    }
}

/// All findings of one visit.
#[derive(Debug, Serialize)]
pub struct Report {
    pub domain: String,
    pub errors: usize,
    pub warnings: usize,
    /// The findings, in the order of the walk.
    pub findings: Vec<Diagnosis>,
}

impl Report {
    /// Counts the findings.
    pub fn new(domain: &Name, findings: Vec<Diagnosis>) -> Report {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        Report { domain: domain.to_string(), errors, warnings, findings }
    }

    /// Returns the text output: one line for each finding, and its records below.
    pub fn table(&self, painter: Painter) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let (word, style) = match finding.severity {
                Severity::Good => ("good    ", Style::Good),
                Severity::Note => ("note    ", Style::Dim),
                Severity::Warning => ("WARNING ", Style::Warning),
                Severity::Error => ("ERROR   ", Style::Bad),
            };
            let word = painter.paint(style, word);
            // Names and words of others' servers are in it.
            let subject = match finding.subjects.len() {
                0 => finding.subject.clone(),
                count => format!("{} and {} more", finding.subject, count - 1),
            };
            let line = harmless(&format!("{subject}: {} [{}]", finding.message, finding.code));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{word} {line}");
            if !finding.subjects.is_empty() {
                let _ = writeln!(text, "           of      {}", harmless(&finding.subjects.join(", ")));
            }
            for (what, records) in [("add   ", &finding.add), ("remove", &finding.remove)] {
                for record in records {
                    let _ = writeln!(text, "           {what}  {}", harmless(record));
                }
            }
        }
        let _ = writeln!(text, "\n{}: {} errors, {} warnings", self.domain, self.errors, self.warnings);
        text
    }
}
