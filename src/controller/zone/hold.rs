//! The judgement of a sudden loss: a full list in which most of what was known is missing. Pure.
//!
//! A list may legally be empty while an API server is upgraded, restored from the wrong backup, or asked with too few
//! rights. Taking it at its word takes every name off the air. So what a list no longer holds is *held* if it is most of
//! what there was: old answers go on, and a condition, a metric and a log line say so, until the objects are there again,
//! are deleted one by one, or someone approves. The deletion of one object that a watch tells is deliberate, and never held.

use std::collections::HashSet;

/// What is held of one kind.
#[derive(Debug, Clone)]
pub struct Hold {
    kind: &'static str,
    /// Fewer losses than this are never held.
    losses_min: usize,
    held: HashSet<Box<str>>,
}

impl Hold {
    /// Nothing held of `kind`.
    pub fn new(kind: &'static str, losses_min: usize) -> Self {
        Hold { kind, losses_min, held: HashSet::new() }
    }

    /// The kind.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// How many objects are held.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Judges a full list: of the `known` objects, with those that were held already, the list does not hold `vanished`.
    /// Returns those to remove; what is not returned is held.
    pub fn judge(&mut self, known: usize, vanished: HashSet<Box<str>>) -> HashSet<Box<str>> {
        if vanished.len() >= self.losses_min && vanished.len() * 2 > known {
            self.held = vanished;
            return HashSet::new();
        }
        self.held.clear();
        vanished
    }

    /// The objects that are held.
    pub fn held(&self) -> impl Iterator<Item = &str> {
        self.held.iter().map(|key| &**key)
    }

    /// An object was seen again, or its deletion was told.
    pub fn release(&mut self, key: &str) {
        // Nearly always nothing is held.
        if !self.held.is_empty() {
            self.held.remove(key);
        }
    }

    /// Someone says that the loss is right: returns what to remove.
    pub fn approve(&mut self) -> HashSet<Box<str>> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_held_and_some_is_believed() {
        for (known, losses_min, vanished, held) in
            [(4, 1, 2, 0), (4, 1, 3, 3), (4, 1, 4, 4), (1, 1, 1, 1), (0, 1, 0, 0), (9, 10, 9, 0), (10, 10, 10, 10)]
        {
            let mut hold = Hold::new("Router", losses_min);
            let keys = (0..vanished).map(|number| number.to_string().into_boxed_str()).collect();
            let removed = hold.judge(known, keys);
            assert_eq!((removed.len(), hold.count()), (vanished - held, held), "{known} {losses_min} {vanished}");
            hold.release("0");
            assert_eq!(hold.count(), held.saturating_sub(1));
            assert_eq!(hold.approve().len(), held.saturating_sub(1));
            assert_eq!(hold.count(), 0);
        }
    }
}
