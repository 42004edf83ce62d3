//! The usage of each account for one kind ([`Quota::account`]): the objects in the cache, and the additions of writes in flight.
//!
//! A write reserves its addition before its commit ([`Usage::reserve`]), so that concurrent writes cannot jointly exceed a quota.
//! The reservation ends when the cache contains a successor of the revision that the write was based on: then that write is
//! counted, or it has lost to another one. It also ends when it is dropped, after a commit that failed.
//!
//! [`Quota::account`]: crate::limits::Quota::account

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Amount;
use crate::object::Object;

/// The usage of one kind.
pub struct Usage {
    account: fn(&str) -> &str,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    all: HashMap<Box<str>, Account>,
    /// The number of the last reservation.
    last: u64,
}

/// The usage of one account. Writes in flight are few: the server bounds those of each user.
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

/// The addition of a write to its account, until the cache contains it or this is dropped.
pub struct Reservation {
    usage: Arc<Usage>,
    account: Box<str>,
    number: u64,
}

impl Usage {
    /// Returns a usage without objects, whose accounts are those that `account` returns for a key.
    pub fn new(account: fn(&str) -> &str) -> Arc<Self> {
        Arc::new(Usage { account, accounts: Mutex::default() })
    }

    /// Counts `objects` instead of those that were shown before.
    pub(super) fn fill<'a>(&self, objects: impl Iterator<Item = &'a Object>) {
        let mut accounts = self.accounts.lock();
        accounts.all.values_mut().for_each(|account| account.shown = Amount::default());
        for object in objects {
            accounts.of((self.account)(object.key()), |account| account.shown = account.shown.plus(amount(object)));
        }
        accounts.all.retain(|_, account| !account.is_empty());
    }

    /// Counts a change.
    pub(super) fn show(&self, now: &Object, before: Option<&Object>, deleted: bool) {
        let base = before.map_or(0, |before| before.revision);
        let gone = before.map(amount).unwrap_or_default();
        let new = if deleted { Amount::default() } else { amount(now) };
        self.accounts.lock().of((self.account)(now.key()), |account| {
            account.shown = account.shown.minus(gone).plus(new);
            account.reserved.retain(|reserved| reserved.base != base || *reserved.key != *now.key());
        });
    }

    /// Returns the bytes of the objects in the cache, of all accounts.
    pub fn bytes(&self) -> u64 {
        self.accounts.lock().all.values().map(|account| account.shown.bytes).sum()
    }

    /// Reserves the addition of a write of `key` over revision `base` to its account. If that exceeds `limit`, returns the
    /// usage of the account as an error. A bound on bytes or objects applies only to a write that adds some.
    pub fn reserve(
        self: &Arc<Self>,
        key: &str,
        base: u64,
        adds: Amount,
        limit: Option<Amount>,
    ) -> Result<Reservation, Amount> {
        let name = (self.account)(key);
        let mut accounts = self.accounts.lock();
        accounts.last += 1;
        let number = accounts.last;
        let account = accounts.all.entry(name.into()).or_default();
        let used = account.reserved.iter().fold(account.shown, |used, reserved| used.plus(reserved.adds));
        if limit.is_some_and(|limit| exceeds(used, adds, limit) != (false, false)) {
            if account.is_empty() {
                accounts.all.remove(name);
            }
            return Err(used);
        }
        account.reserved.push(Reserved { number, key: key.into(), base, adds });
        Ok(Reservation { usage: self.clone(), account: name.into(), number })
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
    fn of(&mut self, name: &str, change: impl FnOnce(&mut Account)) {
        match self.all.get_mut(name) {
            Some(account) => {
                change(account);
                if account.is_empty() {
                    self.all.remove(name);
                }
            }
            None => {
                let mut account = Account::default();
                change(&mut account);
                if !account.is_empty() {
                    self.all.insert(name.into(), account);
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
        let mut accounts = self.usage.accounts.lock();
        let Some(account) = accounts.all.get_mut(&self.account) else { return };
        account.reserved.retain(|reserved| reserved.number != self.number);
        if account.is_empty() {
            accounts.all.remove(&self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::by_namespace;
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
        let usage = Usage::new(by_namespace);
        let limit = Some(adding(2, 1_000));
        let reserve = |name: &str, base, adds| usage.reserve(&format!("n/{name}"), base, adds, limit);
        let (a, b) = (reserve("a", 0, adding(1, 10)), reserve("b", 0, adding(1, 10)));
        assert_eq!(reserve("c", 0, adding(1, 10)).err(), Some(adding(2, 20)));
        assert!(usage.reserve("other/c", 0, adding(1, 10), limit).is_ok());
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
        assert!(usage.accounts.lock().all.is_empty(), "the usage of deleted namespaces remains");
        // A namespace over its limit, which was lowered, takes nothing more.
        usage.fill([lease("a", 1, 10), lease("b", 2, 10), lease("c", 3, 10)].iter());
        assert!(reserve("d", 0, adding(1, 1)).is_err() && reserve("a", 1, adding(0, 1)).is_ok());
    }
}
