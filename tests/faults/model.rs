//! The model of acknowledged writes: the state that the API must still have, after any fault.

use std::collections::BTreeMap;
use std::fmt;

/// An object that the tests write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Router(String),
    Route(String),
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Router(name) => write!(formatter, "router {name}"),
            Key::Route(name) => write!(formatter, "route {name}"),
        }
    }
}

/// The state of an object as text: a Router's addresses, or a Route's target. `None`: the object does not exist.
pub type State = Option<String>;

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The write is acknowledged.
    Acknowledged,
    /// The server rejected the write.
    Refused(u16, String),
    /// No answer, or one that leaves it open.
    Doubtful(String),
}

/// All objects written, as they must be.
#[derive(Default)]
pub struct Model {
    objects: BTreeMap<Key, KnownObject>,
}

#[derive(Default)]
struct KnownObject {
    acknowledged: State,
    /// Writes since then that may or may not have happened.
    doubtful: Vec<State>,
}

impl Model {
    /// Notes how a write ended.
    pub fn note(&mut self, key: &Key, state: State, outcome: &Outcome) {
        let known = self.objects.entry(key.clone()).or_default();
        match outcome {
            Outcome::Acknowledged => *known = KnownObject { acknowledged: state, doubtful: Vec::new() },
            Outcome::Doubtful(_) => known.doubtful.push(state),
            Outcome::Refused(..) => {}
        }
    }

    /// Returns the keys of objects that are there, or may be.
    pub fn present(&self) -> Vec<Key> {
        let there = |known: &KnownObject| known.acknowledged.is_some() || known.doubtful.iter().any(Option::is_some);
        self.objects.iter().filter(|(_, known)| there(known)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the keys of objects that were deleted for sure.
    pub fn gone(&self) -> Vec<Key> {
        let gone = |known: &KnownObject| known.acknowledged.is_none() && known.doubtful.is_empty();
        self.objects.iter().filter(|(_, known)| gone(known)).map(|(key, _)| key.clone()).collect()
    }

    /// Compares the model with the current objects: all acknowledged writes must be there, and nothing that was never written.
    /// Afterwards, no write is in doubt.
    pub fn check(&mut self, found: &BTreeMap<Key, String>) -> Result<(), String> {
        let mut faults = Vec::new();
        for (key, known) in &mut self.objects {
            let there = found.get(key).cloned();
            if there != known.acknowledged && !known.doubtful.contains(&there) {
                faults.push(format!("{key}: {:?} was acknowledged, {there:?} is there", known.acknowledged));
            }
            *known = KnownObject { acknowledged: there, doubtful: Vec::new() };
        }
        let unknown = found.keys().filter(|key| !self.objects.contains_key(key));
        faults.extend(unknown.map(|key| format!("{key}: no client wrote it")));
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }
}
