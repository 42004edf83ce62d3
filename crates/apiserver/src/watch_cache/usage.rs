//! The usage of each namespace for one kind: the objects in the cache, and the additions of writes in flight.
//!
//! A write reserves its addition before its commit ([`Usage::reserve`]), so that concurrent writes cannot jointly exceed a quota.
//! The reservation ends when the cache contains a successor of the revision that the write was based on: then that write is
//! counted, or it has lost to another one. It also ends when it is dropped, after a commit that failed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Amount;
use crate::object::Object;

/// The usage of one kind.
#[derive(Default)]
pub struct Usage(Mutex<Accounts>);

#[derive(Default)]
struct Accounts {
    namespaces: HashMap<Box<str>, Account>,
    /// The number of the last reservation.
    last: u64,
}

/// The usage of one namespace. Writes in flight are few: the server bounds those of each user.
#[derive(Default)]
struct Account {
    shown: Amount,
    reserved: Vec<Reserved>,
}

struct Reserved {
    number: u64,
    key: Box<str>,
    /// The revision of the object that the write replaces; 0 for a new object.
    base: u64,
    adds: Amount,
}

/// The addition of a write to its namespace, until the cache contains it or this is dropped.
pub struct Reservation {
    usage: Arc<Usage>,
    namespace: Box<str>,
    number: u64,
}

impl Usage {
    /// Counts `objects` instead of those that were shown before.
    pub(super) fn fill<'a>(&self, objects: impl Iterator<Item = &'a Object>) {
        let mut accounts = self.0.lock();
        accounts.namespaces.values_mut().for_each(|account| account.shown = Amount::default());
        for object in objects {
            accounts.of(object, |account| account.shown = account.shown.plus(amount(object)));
        }
        accounts.namespaces.retain(|_, account| !account.is_empty());
    }

    /// Counts a change.
    pub(super) fn show(&self, now: &Object, before: Option<&Object>, deleted: bool) {
        let base = before.map_or(0, |before| before.revision);
        let gone = before.map(amount).unwrap_or_default();
        let new = if deleted { Amount::default() } else { amount(now) };
        self.0.lock().of(now, |account| {
            account.shown = account.shown.minus(gone).plus(new);
            account.reserved.retain(|reserved| reserved.base != base || *reserved.key != *now.key());
        });
    }

    /// Reserves the addition of a write of `key` over revision `base` to the namespace. If that exceeds `limit`, returns the
    /// usage of the namespace as an error. A bound on bytes or objects applies only to a write that adds some.
    pub fn reserve(
        self: &Arc<Self>,
        (namespace, key): (&str, &str),
        base: u64,
        adds: Amount,
        limit: Option<Amount>,
    ) -> Result<Reservation, Amount> {
        let mut accounts = self.0.lock();
        accounts.last += 1;
        let number = accounts.last;
        let account = accounts.namespaces.entry(namespace.into()).or_default();
        let used = account.reserved.iter().fold(account.shown, |used, reserved| used.plus(reserved.adds));
        if limit.is_some_and(|limit| exceeds(used, adds, limit) != (false, false)) {
            if account.is_empty() {
                accounts.namespaces.remove(namespace);
            }
            return Err(used);
        }
        account.reserved.push(Reserved { number, key: key.into(), base, adds });
        Ok(Reservation { usage: self.clone(), namespace: namespace.into(), number })
    }
}

/// Returns the limit that `adds` exceeds in addition to `used`: of objects, or of bytes.
pub fn exceeds(used: Amount, adds: Amount, limit: Amount) -> (bool, bool) {
    let after = used.plus(adds);
    (adds.objects > 0 && after.objects > limit.objects, adds.bytes > 0 && after.bytes > limit.bytes)
}

fn amount(object: &Object) -> Amount {
    Amount { objects: 1, bytes: object.stored_len() as u64 }
}

impl Accounts {
    fn of(&mut self, object: &Object, change: impl FnOnce(&mut Account)) {
        let namespace = object.namespace().unwrap_or_default();
        match self.namespaces.get_mut(namespace) {
            Some(account) => {
                change(account);
                if account.is_empty() {
                    self.namespaces.remove(namespace);
                }
            }
            None => {
                let mut account = Account::default();
                change(&mut account);
                if !account.is_empty() {
                    self.namespaces.insert(namespace.into(), account);
                }
            }
        }
    }
}

impl Account {
    fn is_empty(&self) -> bool {
        self.shown == Amount::default() && self.reserved.is_empty()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut accounts = self.usage.0.lock();
        let Some(account) = accounts.namespaces.get_mut(&self.namespace) else { return };
        account.reserved.retain(|reserved| reserved.number != self.number);
        if account.is_empty() {
            accounts.namespaces.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object;
    use crate::registry::lease::LEASE;

    fn lease(name: &str, revision: u64, octets: usize) -> Object {
        let tree =
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"holderIdentity": "x".repeat(octets)}});
        Object::from_stored(&LEASE, &format!("n/{name}"), &object::encode(&tree), revision).expect("encoded")
    }

    const fn adding(objects: u64, bytes: u64) -> Amount {
        Amount { objects, bytes }
    }

    #[test]
    fn writes_in_flight_count_until_they_are_shown_or_fail() {
        let usage = Arc::new(Usage::default());
        let limit = Some(adding(2, 1_000));
        let reserve = |name: &str, base, adds| usage.reserve(("n", &format!("n/{name}")), base, adds, limit);
        let (a, b) = (reserve("a", 0, adding(1, 10)), reserve("b", 0, adding(1, 10)));
        assert_eq!(reserve("c", 0, adding(1, 10)).err(), Some(adding(2, 20)));
        assert!(usage.reserve(("other", "other/c"), 0, adding(1, 10), limit).is_ok());
        // A failed write releases its reservation.
        drop(b);
        let c = reserve("c", 0, adding(1, 10));
        assert!(c.is_ok());
        // A visible object counts once, with or without its reservation.
        let shown = lease("a", 7, 100);
        usage.show(&shown, None, false);
        let used = adding(1, shown.stored_len() as u64);
        assert_eq!(reserve("d", 0, adding(1, 10)).err(), Some(used.plus(adding(1, 10))));
        drop((a, c));
        // A change that grows an object is checked only for bytes; a change that does not grow it, for nothing.
        assert!(reserve("d", 0, adding(1, 10)).is_ok());
        let grown = 1_000 - used.bytes;
        assert_eq!(reserve("a", 7, adding(0, grown + 1)).err(), Some(used));
        let all = reserve("a", 7, adding(0, grown));
        assert!(all.is_ok() && reserve("a", 7, adding(0, 0)).is_ok());
        // Another write of the same object was faster: the reservation has lost its base.
        let (one, two) = (lease("a", 8, 100), lease("a", 9, 100));
        usage.show(&one, Some(&shown), false);
        assert!(reserve("a", 8, adding(0, grown)).is_ok());
        usage.show(&two, Some(&one), true);
        drop(all);
        assert!(usage.0.lock().namespaces.is_empty(), "the usage of deleted namespaces remains");
        // A namespace over its limit, which was lowered, takes nothing more.
        usage.fill([lease("a", 1, 10), lease("b", 2, 10), lease("c", 3, 10)].iter());
        assert!(reserve("d", 0, adding(1, 1)).is_err() && reserve("a", 1, adding(0, 1)).is_ok());
    }
}
