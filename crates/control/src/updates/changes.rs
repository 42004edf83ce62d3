//! The ChallengeRecords that the operations of one UPDATE request create and delete. Pure.
//!
//! A client manages the records of one order, and several orders can be in progress at one name: a certificate for a domain and
//! for its wildcard needs two values there. Some clients delete the RRset before they add a value (lego), or after the order (acme.sh),
//! and would delete the value of another order. So a client changes only the records of its key, and a deletion of the RRset keeps those
//! that are younger than [`YOUNG`]. A name has at most [`VALUES_MAX`] values: a further one replaces the oldest of its key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use signpost_dns::update::Operation;
use signpost_dns::wire::Name;
use signpost_types::v1alpha1::challenge_record::VALUES_MAX;

/// The age up to which a deletion of the RRset keeps a value. Clients wait at most some minutes until authorities have seen it.
const YOUNG: Duration = Duration::from_secs(600);

/// The remaining time below which a value that is added again gets a new record.
const RENEW_BEFORE: Duration = Duration::from_secs(3_600);

/// A ChallengeRecord that exists at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    pub owner: Name,
    pub value: Box<str>,
    /// Whether the key of the request added it.
    pub is_own: bool,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// The effects of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The records to delete, first.
    pub deleted: Vec<(Name, Box<str>)>,
    /// The records to create.
    pub created: Vec<(Name, Box<str>)>,
    /// The result at each name that the request changes.
    pub expected: Vec<Expected>,
}

/// The TXT values that name servers have at a name, and do not have any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub owner: Name,
    pub present: BTreeSet<Box<str>>,
    pub absent: BTreeSet<Box<str>>,
}

/// This name has [`VALUES_MAX`] values of other keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Full(pub Name);

/// Returns the effects of operations on these records, which include all at the names of the operations.
pub fn changes(operations: &[Operation], known: &[Existing], now: Timestamp) -> Result<Changes, Full> {
    let mut by_owner: BTreeMap<&Name, Vec<&Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| by_owner.entry(operation.owner()).or_default().push(operation));
    let mut changes = Changes::default();
    for (owner, operations) in by_owner {
        let at_owner = || known.iter().filter(|known| known.owner == *owner);
        let others: Vec<&Existing> = at_owner().filter(|known| !known.is_own).collect();
        let mut before: Vec<&Existing> = at_owner().filter(|known| known.is_own).collect();
        before.sort_by_key(|known| known.created);
        let result = apply(&operations, &before, others.len(), now);
        let (after, added) = result.ok_or_else(|| Full(owner.clone()))?;
        let has = |value: &str| after.iter().any(|one| **one == *value);
        let mut expected = Expected { owner: owner.clone(), present: added, absent: BTreeSet::new() };
        for known in before.iter().filter(|known| !has(&known.value)) {
            changes.deleted.push((owner.clone(), known.value.clone()));
            if others.iter().all(|other| other.value != known.value) {
                expected.absent.insert(known.value.clone());
            }
        }
        for value in after {
            let existing = before.iter().find(|known| known.value == value);
            match existing {
                Some(known) if !expected.present.contains(&value) || known.expires > now + RENEW_BEFORE => continue,
                Some(_) => changes.deleted.push((owner.clone(), value.clone())),
                None => {}
            }
            changes.created.push((owner.clone(), value));
        }
        changes.expected.push(expected);
    }
    Ok(changes)
}

/// Values of a name, the oldest first.
type Values = Vec<Box<str>>;

/// Returns the values of the key at one name after these operations, the oldest first, and those of them that were added; `None` if there is no room.
fn apply(
    operations: &[&Operation],
    before: &[&Existing],
    others: usize,
    now: Timestamp,
) -> Option<(Values, BTreeSet<Box<str>>)> {
    let mut after: Values = before.iter().map(|known| known.value.clone()).collect();
    let mut added = BTreeSet::new();
    for operation in operations {
        match operation {
            Operation::Add(_, text) => {
                let value: Box<str> = String::from_utf8_lossy(text).into();
                after.retain(|other| *other != value);
                after.push(value.clone());
                added.insert(value);
            }
            Operation::Delete(_, text) => {
                let value = String::from_utf8_lossy(text);
                after.retain(|other| **other != *value);
                added.remove(&*value);
            }
            Operation::DeleteAll(_) => {
                let is_young = |value: &str| {
                    let known = before.iter().find(|known| *known.value == *value);
                    known.is_some_and(|known| known.created > now - YOUNG)
                };
                after.retain(|value| is_young(value));
                added.clear();
            }
        }
    }
    let room = VALUES_MAX.saturating_sub(others);
    if room == 0 && !added.is_empty() {
        return None;
    }
    let displaced: Vec<_> = after.drain(..after.len().saturating_sub(room)).collect();
    added.retain(|value| !displaced.contains(value));
    Some((after, added))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// A record `[*]value@age`, of another key with a star; the age is in minutes.
    fn known(text: &str) -> Existing {
        let (value, minutes) = text.split_once('@').expect("an age");
        let created = Timestamp::from_second(NOW - 60 * minutes.parse::<i64>().expect("minutes")).expect("a time");
        let is_own = !value.starts_with('*');
        let value = value.trim_start_matches('*').into();
        Existing { owner: name("c.test."), value, is_own, created, expires: created + Duration::from_secs(86_400) }
    }

    /// Operations such as `+value`, `-value` and `-` on one name.
    fn operation(text: &str) -> Operation {
        let owner = name("c.test.");
        match text.split_at(1) {
            ("+", value) => Operation::Add(owner, value.as_bytes().into()),
            ("-", "") => Operation::DeleteAll(owner),
            ("-", value) => Operation::Delete(owner, value.as_bytes().into()),
            _ => panic!("{text}"),
        }
    }

    /// Returns what is deleted and created, and what is expected to be there and gone.
    fn outcome(operations: &str, before: &str) -> Result<String, Full> {
        let operations: Vec<_> = operations.split_whitespace().map(operation).collect();
        let before: Vec<_> = before.split_whitespace().map(known).collect();
        let changes = changes(&operations, &before, Timestamp::from_second(NOW).expect("a time"))?;
        let list = |sign: &str, values: &[(Name, Box<str>)]| -> Vec<String> {
            values.iter().map(|(_, value)| format!("{sign}{value}")).collect()
        };
        let [expected] = &changes.expected[..] else { panic!("one name") };
        let set = |sign: &str, values: &BTreeSet<Box<str>>| -> Vec<String> {
            values.iter().map(|value| format!("{sign}{value}")).collect()
        };
        let done = [list("-", &changes.deleted), list("+", &changes.created)].concat().join(" ");
        let seen = [set("has ", &expected.present), set("not ", &expected.absent)].concat().join(", ");
        Ok(format!("{done}; {seen}"))
    }

    #[test]
    fn operations_apply_in_order_to_the_records_of_the_key() {
        for (operations, before, expected) in [
            ("+a", "", "+a; has a"),
            ("+a +a", "", "+a; has a"),
            ("+a", "a@1", "; has a"),
            ("-a", "a@1", "-a; not a"),
            ("-a", "", "; "),
            ("-a +a", "a@1", "; has a"),
            ("+a -a", "", "; "),
            ("+a -", "", "; "),
            // A record with little time left is created again.
            ("+a", "a@1400", "-a +a; has a"),
            ("+b", "a@1400", "+b; has b"),
            // lego: the RRset is deleted, and a value added. Another order's value stays, a leftover does not.
            ("- +b", "a@1", "+b; has b"),
            ("- +b", "a@9 x@11", "-x +b; has b, not x"),
            ("- +x", "x@11", "; has x"),
            // acme.sh, after the order of `a`.
            ("-", "a@3 b@1", "; "),
            ("-", "a@11 b@1", "-a; not a"),
            // Records of another key stay, and are seen if they have the same value.
            ("-", "*a@11", "; "),
            ("-a", "*a@11", "; "),
            ("-a", "*a@11 a@11", "-a; "),
            ("+a", "*a@11", "+a; has a"),
        ] {
            assert_eq!(outcome(operations, before).as_deref(), Ok(expected), "{operations} after {before}");
        }
    }

    #[test]
    fn a_further_value_replaces_the_oldest_of_its_key() {
        let nine = (1..=9).map(|minutes| format!("v{minutes}@{minutes}")).collect::<Vec<_>>().join(" ");
        assert_eq!(outcome("+a", &nine).as_deref(), Ok("+a; has a"));
        assert_eq!(outcome("+a +b", &nine).as_deref(), Ok("-v9 +a +b; has a, has b, not v9"));
        assert_eq!(outcome("+v9 +a +b", &nine).as_deref(), Ok("-v8 +a +b; has a, has b, has v9, not v8"));
        let others = nine.replace('v', "*v");
        assert_eq!(outcome("+a +b", &others).as_deref(), Ok("+b; has b"));
        assert_eq!(outcome("+a", &format!("{others} *w@1")), Err(Full(name("c.test."))));
        assert_eq!(outcome("-a", &format!("{others} *w@1")).as_deref(), Ok("; "));
        // certbot sends all values of its zone so far.
        let many = (0..30).map(|value| format!("+v{value:02}")).collect::<Vec<_>>().join(" ");
        let last = (20..30).map(|value| format!("+v{value:02}")).collect::<Vec<_>>().join(" ");
        assert_eq!(
            outcome(&many, "").map(|outcome| outcome.split(';').next().unwrap_or_default().to_owned()),
            Ok(last)
        );
    }
}
