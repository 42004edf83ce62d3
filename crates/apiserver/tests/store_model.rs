//! Random transactions on every engine, compared with a model too simple to be wrong: a list of all states.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use proptest::prelude::*;
use signpost_apiserver::store::embedded::{Embedded, Options};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Error, EventKind, Key, Outcome, Precondition, Revision, Store, Txn, Write};

/// The state of a key: value, created, modified.
type Held = (u8, u64, u64);

/// Every state there was, under its revision.
struct Model {
    states: BTreeMap<u64, BTreeMap<String, Held>>,
    oldest: u64,
}

#[derive(Debug, Clone)]
enum Step {
    /// Expectations by key and kind, writes by key (`None` deletes).
    Commit { expect: Vec<(u8, u8)>, writes: BTreeMap<u8, Option<u8>> },
    /// Forget all but this many of the newest revisions.
    Compact { kept: u64 },
    /// Close and open again.
    Reopen,
}

fn name(number: u8) -> String {
    // Two prefixes of which one is a prefix of the other's text.
    format!("/{}/{}", if number < 3 { "ns1" } else { "ns10" }, number)
}

fn step() -> impl Strategy<Value = Step> {
    let expect = prop::collection::vec((0..6u8, 0..4u8), 0..3);
    let writes = prop::collection::btree_map(0..6u8, prop::option::weighted(0.7, any::<u8>()), 0..4);
    prop_oneof![
        20 => (expect, writes).prop_map(|(expect, writes)| Step::Commit { expect, writes }),
        2 => (0..8u64).prop_map(|kept| Step::Compact { kept }),
        1 => Just(Step::Reopen),
    ]
}

impl Model {
    fn newest(&self) -> (u64, &BTreeMap<String, Held>) {
        let (revision, state) = self.states.last_key_value().unwrap();
        (*revision, state)
    }

    /// Returns the transaction of a step, and its expected result: whether it is applied, and the state after it.
    fn expected_outcome(
        &self,
        expect: &[(u8, u8)],
        writes: &BTreeMap<u8, Option<u8>>,
    ) -> (Txn, bool, BTreeMap<String, Held>) {
        let (newest, state) = self.newest();
        let mut holds = true;
        let mut txn = Txn::default();
        for (number, kind) in expect {
            let held = state.get(&name(*number));
            let (expect, met) = match kind {
                0 => (Precondition::Absent, held.is_none()),
                1 => (Precondition::Present, held.is_some()),
                2 => (Precondition::At(Revision(held.map_or(newest, |held| held.2))), held.is_some()),
                _ => (Precondition::At(Revision(newest)), held.is_some_and(|held| held.2 == newest)),
            };
            holds &= met;
            txn.expect.push((Key(name(*number).into()), expect));
        }
        let mut next = state.clone();
        for (number, value) in writes {
            let key = Key(name(*number).into());
            match value {
                Some(value) => {
                    let created = state.get(&name(*number)).map_or(newest + 1, |held| held.1);
                    next.insert(name(*number), (*value, created, newest + 1));
                    txn.writes.push(Write::Put { key, value: Bytes::copy_from_slice(&[*value]), ttl: None });
                }
                None => {
                    next.remove(&name(*number));
                    txn.writes.push(Write::Delete { key });
                }
            }
        }
        (txn, holds, next)
    }
}

async fn run(mut store: Arc<dyn Store>, reopen: Option<&std::path::Path>, steps: &[Step]) {
    let first = store.revision().await.unwrap().0;
    let mut model = Model { states: BTreeMap::from([(first, BTreeMap::new())]), oldest: first };
    for step in steps {
        match step {
            Step::Commit { expect, writes } => {
                let (txn, holds, next) = model.expected_outcome(expect, writes);
                let (newest, state) = model.newest();
                let changes = next != *state;
                let outcome = store.commit(txn).await.unwrap();
                match outcome {
                    Outcome::Refused { at, found } => {
                        assert!(!holds && at.0 == newest);
                        let held = expect.iter().map(|(number, _)| state.get(&name(*number)).copied());
                        let found = found.iter().map(|f| f.as_ref().map(|f| (f.value[0], f.created.0, f.modified.0)));
                        assert!(held.eq(found));
                    }
                    Outcome::Committed(at) => {
                        assert!(holds);
                        assert_eq!(at.0, if changes { newest + 1 } else { newest });
                        model.states.insert(at.0, next);
                    }
                }
            }
            Step::Compact { kept } => {
                let upto = model.newest().0.saturating_sub(*kept).max(first);
                store.compact(Revision(upto)).await.unwrap();
                model.oldest = model.oldest.max(upto);
            }
            Step::Reopen => {
                if let Some(directory) = reopen {
                    drop(store);
                    store = Arc::new(Embedded::open(directory, Options::default()).unwrap());
                }
            }
        }
    }
    check(&store, &model).await;
}

/// Compares all reads of the store with the model.
async fn check(store: &Arc<dyn Store>, model: &Model) {
    assert_eq!(store.revision().await.unwrap().0, model.newest().0);
    for (revision, state) in &model.states {
        let at = Some(Revision(*revision));
        for prefix in ["/", "/ns1/", "/ns10/"] {
            let listed = store.list(&Key(prefix.into()), None, at, None).await;
            if *revision < model.oldest {
                assert!(matches!(listed, Err(Error::Compacted { oldest }) if oldest.0 == model.oldest));
                continue;
            }
            let listed = listed.unwrap().items;
            let listed = listed.iter().map(|item| (&*item.key.0, (item.value[0], item.created.0, item.modified.0)));
            let held = state.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(name, held)| (&**name, *held));
            assert!(listed.eq(held), "{prefix} at {revision}");
        }
        for number in 0..6 {
            let found = store.get(&Key(name(number).into()), at).await;
            if *revision >= model.oldest {
                let found = found.unwrap().1.map(|found| (found.value[0], found.created.0, found.modified.0));
                assert_eq!(found, state.get(&name(number)).copied());
            }
        }
    }
    // The watch from the oldest revision turns each state into the next.
    let (newest, _) = model.newest();
    let mut state = model.states[&model.oldest].clone();
    let changes = model.states.range(model.oldest + 1..).count();
    let watch = store.watch(&Key("/".into()), Revision(model.oldest)).take(changes);
    let watched: Vec<_> = tokio::time::timeout(Duration::from_secs(120), watch.collect()).await.expect("in time");
    for events in watched {
        let events = events.unwrap();
        let revision = events[0].at;
        for event in events {
            assert_eq!(event.at, revision);
            let before = event.before.as_ref().map(|before| (before.value[0], before.created.0, before.modified.0));
            assert_eq!(before, state.get(&*event.now.key.0).copied());
            match event.kind {
                EventKind::Put => {
                    let now = (event.now.value[0], event.now.created.0, event.now.modified.0);
                    state.insert(event.now.key.0.into(), now);
                }
                EventKind::Delete => drop(state.remove(&*event.now.key.0)),
            }
        }
        assert_eq!(state, model.states[&revision.0]);
    }
    assert_eq!(state, model.states[&newest]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_engine_does_what_the_model_does(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(Arc::new(Memory::new()), None, &steps));
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(directory.path(), Options::default()).unwrap());
        runtime.block_on(run(store, Some(directory.path()), &steps));
    }
}
