//! The register of former names: the names, their query marks, and the reported times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::client::reflector::{Change, ObjectKey};
use crate::world::BindingInfo;
use crate::world::binding::FormerNameInfo;
use signpost_dns::wire::Name;
use signpost_dns::zone::last_queried::LastQueried;
use signpost_dns::zone::qname::{NameHash, Qname, wildcard_hash};

/// The unreported queries of one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    /// The binding.
    pub key: ObjectKey,
    /// The last query of each name, in seconds since 1970.
    pub queried: HashMap<Box<str>, u64>,
}

/// The register. The loop of the zones sets its former names.
#[derive(Default)]
pub struct Register {
    state: Mutex<State>,
    table: watch::Sender<Option<Arc<LastQueried>>>,
}

#[derive(Default)]
struct State {
    former_names: HashMap<ObjectKey, Vec<FormerName>>,
    count: usize,
    /// The table before this one, in which query threads may still record.
    before: Option<Arc<LastQueried>>,
}

struct FormerName {
    name: Box<str>,
    /// The hashes of the name, and of the wildcard below it.
    hashes: [NameHash; 2],
    reported: Option<u64>,
}

impl Register {
    /// Returns the table in which query threads record queries, with a signal when it is replaced; `None` while there are no
    /// former names.
    pub fn table(&self) -> watch::Receiver<Option<Arc<LastQueried>>> {
        self.table.subscribe()
    }

    /// Takes in a change of RouteBindings.
    pub fn take(&self, change: &Change<BindingInfo>) {
        let mut state = self.state();
        match change {
            Change::Applied(applied) => self.set(&mut state, &applied.key, &applied.now.former_names),
            Change::Deleted { key, .. } => self.set(&mut state, key, &[]),
            Change::Relisted(resync) => {
                resync.vanished.iter().for_each(|(key, _)| self.set(&mut state, key, &[]));
                resync.applied.iter().for_each(|applied| self.set(&mut state, &applied.key, &applied.now.former_names));
            }
        }
    }

    fn set(&self, state: &mut State, key: &ObjectKey, shown: &[FormerNameInfo]) {
        let before = if shown.is_empty() {
            state.former_names.remove(key)
        } else {
            state.former_names.get_mut(key).map(std::mem::take)
        };
        let before = before.unwrap_or_default();
        state.count -= before.len();
        if shown.is_empty() {
            if state.count == 0 && !before.is_empty() {
                state.before = None;
                self.table.send_replace(None);
            }
            return;
        }
        let reported =
            |name: &str| before.iter().find(|former| *former.name == *name).and_then(|former| former.reported);
        let former_names: Vec<FormerName> = shown
            .iter()
            .filter_map(|one| {
                let hash = Qname::of(one.name.parse::<Name>().ok()?.as_wire()).hash(0);
                // The informer can be behind this process's own reports.
                let reported = one.asked.max(reported(&one.name));
                Some(FormerName { name: one.name.clone(), hashes: [hash, wildcard_hash(hash)], reported })
            })
            .collect();
        let hashes: Vec<NameHash> = former_names.iter().flat_map(|former| former.hashes).collect();
        state.count += former_names.len();
        state.former_names.insert(key.clone(), former_names);
        let has_places =
            self.table.borrow().as_ref().is_some_and(|table| hashes.into_iter().all(|hash| table.place(hash).is_ok()));
        if !has_places {
            self.make_room(state);
        }
    }

    /// Creates a table with room for twice the current number of former names, and copies the recorded queries.
    fn make_room(&self, state: &mut State) {
        let before = self.table.borrow().clone();
        let table = LastQueried::new(2 * 2 * state.count);
        for hash in state.former_names.values().flatten().flat_map(|former| former.hashes) {
            table.place(hash).expect("there is room for all of them twice");
            if let Some(second) = last(hash, [before.as_deref(), state.before.as_deref()]) {
                table.mark(hash, second);
            }
        }
        state.before = before;
        self.table.send_replace(Some(Arc::new(table)));
    }

    /// Returns the reports that are due `now`: names with a query after their last report, if that report is at least `pause`
    /// old. Returns at most `bindings_max` bindings: first those without a report, then those with the oldest reports.
    pub fn due(&self, now: Timestamp, pause: Duration, bindings_max: usize) -> Vec<UsageReport> {
        let reported_before = u64::try_from(now.as_second()).unwrap_or(0).saturating_sub(pause.as_secs());
        let state = self.state();
        let table = self.table.borrow().clone();
        let tables = [table.as_deref(), state.before.as_deref()];
        let mut due: Vec<(Option<u64>, UsageReport)> = Vec::new();
        for (key, former_names) in &state.former_names {
            let mut oldest = Some(u64::MAX);
            let mut queried = HashMap::new();
            for former in former_names {
                let Some(second) = former.hashes.into_iter().filter_map(|hash| last(hash, tables)).max() else {
                    continue;
                };
                if former.reported.is_none_or(|reported| second > reported && reported <= reported_before) {
                    queried.insert(former.name.clone(), second);
                    oldest = oldest.min(former.reported);
                }
            }
            if !queried.is_empty() {
                due.push((oldest, UsageReport { key: key.clone(), queried }));
            }
        }
        if due.len() > bindings_max {
            due.select_nth_unstable_by_key(bindings_max, |(oldest, _)| *oldest);
            due.truncate(bindings_max);
        }
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// Records that these names were reported.
    pub fn reported(&self, due: &UsageReport) {
        let mut state = self.state();
        for former in state.former_names.get_mut(&due.key).into_iter().flatten() {
            former.reported = former.reported.max(due.queried.get(&former.name).copied());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns the latest query recorded in these tables.
fn last(hash: NameHash, tables: [Option<&LastQueried>; 2]) -> Option<u64> {
    tables.into_iter().flatten().filter_map(|table| table.last(hash)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::Applied;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced("ns", &format!("app{number}"))
    }

    fn name(number: usize, shard: usize) -> String {
        format!("ns-app{number}.shard{shard}.v3.example")
    }

    fn set(register: &Register, number: usize, former_names: &[(usize, Option<u64>)]) {
        let of = |(shard, queried): &(usize, Option<u64>)| FormerNameInfo {
            name: name(number, *shard).into(),
            router: "shard".into(),
            zone: "v3.example".into(),
            from: None,
            until: Timestamp::MAX,
            asked: *queried,
        };
        let now =
            Arc::new(BindingInfo { former_names: former_names.iter().map(of).collect(), ..BindingInfo::default() });
        let applied = Applied { key: key(number), now, before: None, recreated: false };
        register.take(&Change::Applied(applied));
    }

    fn hash(number: usize, shard: usize) -> NameHash {
        Qname::of(name(number, shard).parse::<Name>().expect("a name").as_wire()).hash(0)
    }

    const PAUSE: Duration = Duration::from_secs(100);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// Returns the due names, as binding, shard, and second.
    fn due(register: &Register, now: i64, bindings_max: usize) -> Vec<(String, String, u64)> {
        let due = register.due(at(now), PAUSE, bindings_max);
        let mut reported: Vec<_> = due
            .iter()
            .flat_map(|due| due.queried.iter().map(|(name, second)| (due.key.name.clone(), name.to_string(), *second)))
            .collect();
        reported.sort_unstable();
        reported
    }

    fn one(number: usize, shard: usize, second: u64) -> (String, String, u64) {
        (format!("app{number}"), name(number, shard), second)
    }

    #[test]
    fn queries_are_reported_now_and_then() {
        let register = Register::default();
        let table = register.table();
        let mark = |hash, second| table.borrow().as_ref().expect("there are former names").mark(hash, second);
        assert!(table.borrow().is_none());
        set(&register, 1, &[(1, None), (2, Some(900))]);
        set(&register, 2, &[(1, None)]);
        assert_eq!(due(&register, 1_000, 9), []);
        mark(hash(1, 1), 980);
        mark(wildcard_hash(hash(1, 1)), 990);
        mark(hash(1, 2), 950);
        mark(hash(3, 1), 990);
        assert_eq!(due(&register, 999, 9), [one(1, 1, 990)], "below the name counts, too; the other is recent");
        let both = register.due(at(1_000), PAUSE, 9);
        assert_eq!(both[0].queried.len(), 2);
        register.reported(&both[0]);
        assert_eq!(due(&register, 2_000, 9), [], "a reported query is not reported again");
        // The informer is behind: a report is not repeated.
        set(&register, 1, &[(1, None), (2, Some(900))]);
        assert_eq!(due(&register, 2_000, 9), []);
        mark(hash(1, 1), 991);
        assert_eq!(due(&register, 1_089, 9), []);
        assert_eq!(due(&register, 1_090, 9), [one(1, 1, 991)], "the last time is reported without a later query");
        // Another name server was faster.
        set(&register, 1, &[(1, Some(1_000)), (2, Some(950))]);
        assert_eq!(due(&register, 1_090, 9), []);
        set(&register, 1, &[]);
        set(&register, 2, &[]);
        assert!(table.borrow().is_none(), "without former names there is nothing to mark");
    }

    #[test]
    fn marks_survive_a_larger_table_and_the_longest_untold_go_first() {
        let register = Register::default();
        set(&register, 0, &[(1, Some(10))]);
        let first = register.table().borrow().clone().expect("there is a former name");
        first.mark(hash(0, 1), 1_000);
        for number in 1..500 {
            set(&register, number, &[(1, (number > 9).then_some(number as u64))]);
        }
        let table = register.table().borrow().clone().expect("there are former names");
        assert!(!Arc::ptr_eq(&first, &table));
        assert_eq!(due(&register, 1_000, 9), [one(0, 1, 1_000)]);
        // A thread with an old lookup marks the previous table.
        let before = register.state().before.clone().expect("it grew more than once");
        before.mark(hash(0, 1), 1_200);
        assert_eq!(due(&register, 1_200, 9), [one(0, 1, 1_200)]);
        (0..500).for_each(|number| table.mark(hash(number, 1), 2_000));
        let reported = due(&register, 2_000, 12);
        assert_eq!(reported.len(), 12);
        for number in [1, 5, 9, 0, 10] {
            assert!(reported.contains(&one(number, 1, 2_000)), "{reported:?}");
        }
    }
}
