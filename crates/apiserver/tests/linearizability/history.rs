//! The history of the operations of all clients on one key: when each began and returned, and how it ended.

use std::fmt;

/// The contents of an object, with the revision that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    pub value: u64,
    pub revision: u64,
}

/// A request about one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// GET without `resourceVersion`, or the part of a list.
    Read,
    /// GET with this `resourceVersion`: any state that is not older. It is not an operation of a register.
    ReadFrom(u64),
    /// POST.
    Create(u64),
    /// PUT with `resourceVersion`.
    Replace { expected: Version, value: u64 },
    /// A merge patch without conditions. It writes nothing if the object has the value already.
    Set(u64),
    /// A JSON patch that tests the value and replaces it.
    Swap { expected: u64, value: u64 },
    /// DELETE, without or with `resourceVersion` as its precondition.
    Delete(Option<Version>),
}

impl Action {
    /// Returns the value that it writes.
    pub fn written(&self) -> Option<u64> {
        match self {
            Action::Create(value) | Action::Set(value) => Some(*value),
            Action::Replace { value, .. } | Action::Swap { value, .. } => Some(*value),
            Action::Read | Action::ReadFrom(_) | Action::Delete(_) => None,
        }
    }
}

/// The end of an operation, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The read found this, or no object.
    Found(Option<Version>),
    /// The write is committed; the object has this revision.
    Written(u64),
    /// The object was deleted.
    Deleted,
    /// No effect: there is no object.
    Absent,
    /// No effect: there is an object.
    Present,
    /// No effect: there is an object, and it is not the expected one.
    Differs,
    /// No effect, for a reason that has nothing to do with the object.
    Failed,
    /// The operation takes effect at any time after it began, or never.
    Unknown,
}

/// An operation of a client.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub client: usize,
    pub server: usize,
    /// The start and the end of the operation, on the logical clock that all clients share.
    pub invoked: u64,
    pub returned: u64,
    pub action: Action,
    pub outcome: Outcome,
}

impl Operation {
    /// Returns whether the operation constrains a register: an operation without effect and without response does not.
    pub fn counts(&self) -> bool {
        match (self.action, self.outcome) {
            (Action::ReadFrom(_), _) | (_, Outcome::Failed) => false,
            (Action::Read, outcome) => outcome != Outcome::Unknown,
            _ => true,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, server, invoked, returned, action, outcome } = self;
        write!(formatter, "{invoked:>6}..{returned:<6} client {client} server {server}  {action:?} -> {outcome:?}")
    }
}
