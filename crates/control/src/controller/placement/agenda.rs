//! What is to be looked at, and when.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::Subject;

/// Subjects to be looked at, each once, at the earliest time asked for.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    times: HashMap<Subject, Instant>,
    order: BTreeSet<(Instant, Subject)>,
}

impl Agenda {
    /// Has the subject looked at by `time` at the latest.
    pub(super) fn add(&mut self, subject: Subject, time: Instant) {
        match self.times.get(&subject) {
            Some(earlier) if *earlier <= time => return,
            Some(later) => {
                self.order.remove(&(*later, subject.clone()));
            }
            None => {}
        }
        self.times.insert(subject.clone(), time);
        self.order.insert((time, subject));
    }

    /// Whether the subject is to be looked at.
    pub(super) fn has(&self, subject: &Subject) -> bool {
        self.times.contains_key(subject)
    }

    /// Takes the one that is due the longest, if any is by `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Subject> {
        let (time, subject) = self.order.first().filter(|(time, _)| *time <= now).cloned()?;
        self.order.remove(&(time, subject.clone()));
        self.times.remove(&subject);
        if self.times.is_empty() {
            // After a storm of them the room is given back.
            self.times = HashMap::new();
        }
        Some(subject)
    }

    /// When the next one is due.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.order.first().map(|(time, _)| *time)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_agenda_holds_each_subject_once_at_its_earliest_time() {
        let mut agenda = Agenda::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let subject = |name: &str| Subject::Router(name.to_owned());
        agenda.add(subject("a"), at(20));
        agenda.add(subject("b"), at(10));
        agenda.add(subject("a"), at(30));
        agenda.add(subject("b"), at(5));
        assert_eq!((agenda.len(), agenda.next_time()), (2, Some(at(5))));
        assert_eq!(agenda.pop_due(at(4)), None);
        assert_eq!(agenda.pop_due(at(25)), Some(subject("b")));
        assert_eq!(agenda.pop_due(at(25)), Some(subject("a")));
        assert_eq!((agenda.len(), agenda.next_time()), (0, None));
    }
}
