//! `kill -9` during group commits: afterwards, every acknowledged write exists, no transaction is partially applied, and no
//! revision is allocated twice.
//!
//! The test runs itself a second time as the process to kill; `SIGNPOST_CRASH_ROUNDS` sets the number of rounds (default: 30).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use signpost_apiserver::store::embedded::{Embedded, Options};
use signpost_apiserver::store::{Key, Outcome, Revision, Store, Txn, Write};

/// Set in the process to be killed: its data directory.
const DIRECTORY: &str = "SIGNPOST_CRASH_DIRECTORY";

/// The number of concurrent writer tasks.
const TASKS: usize = 16;

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        write_until_killed(Path::new(&directory));
    }
    let rounds: u64 = std::env::var("SIGNPOST_CRASH_ROUNDS").map_or(30, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let (mut newest, mut writes) = (Revision(1), 0);
    for round in 0..rounds {
        // From before the first commit's end to some hundred commits in.
        let mut acknowledged = BTreeMap::new();
        for (task, number, revision) in run_and_kill(directory.path(), Duration::from_micros(round * 7_919 % 60_000)) {
            assert!(revision > newest.0, "revision {revision} was there before this round");
            let before = acknowledged.insert(revision, (task, number));
            assert_eq!(before, None, "revision {revision} was allocated twice");
        }
        writes += acknowledged.len() as u64;
        newest = check(directory.path(), newest, &acknowledged);
    }
    assert!(writes > rounds, "only {writes} writes in {rounds} rounds");
}

/// Returns the names of a task's two keys, which always hold the same number.
fn keys(task: usize) -> [Key; 2] {
    [Key(format!("/left/{task}").into()), Key(format!("/right/{task}").into())]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The process to be killed: writes as fast as it can, and prints each acknowledgement.
fn write_until_killed(directory: &Path) -> ! {
    let runtime = runtime();
    let store = Embedded::open(directory, Options::default()).unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    let [left, right] = keys(task);
                    let (_, held) = store.get(&left, None).await.unwrap();
                    let last: u64 = held.map_or(0, |held| std::str::from_utf8(&held.value).unwrap().parse().unwrap());
                    for number in last + 1.. {
                        let value = Bytes::from(number.to_string());
                        let put = |key: &Key| Write::Put { key: key.clone(), value: value.clone(), ttl: None };
                        let txn = Txn { writes: vec![put(&left), put(&right)], ..Txn::default() };
                        let Outcome::Committed(revision) = store.commit(txn).await.unwrap() else { unreachable!() };
                        let line = format!("ack {task} {number} {}\n", revision.0);
                        std::io::stdout().write_all(line.as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    unreachable!("the tasks write until they are killed")
}

/// Runs the process, kills it `after` its first acknowledgement, and returns what it acknowledged.
fn run_and_kill(directory: &Path, after: Duration) -> Vec<(usize, u64, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill_9_loses_nothing_that_was_acknowledged", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (send, receive) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        for line in output.lines() {
            let Ok(line) = line else { break };
            // A line that was cut off by the kill was not acknowledged.
            let Some(("", line)) = line.split_once("ack ") else { continue };
            let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
            if let [task, number, revision] = numbers[..] {
                let _ = send.send((task as usize, number, revision));
            }
        }
    });
    let first = receive.recv_timeout(Duration::from_secs(120)).expect("the process writes");
    let deadline = Instant::now() + after;
    let mut acknowledged = vec![first];
    while let Ok(more) = receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        acknowledged.push(more);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap();
    acknowledged.extend(receive.try_iter());
    acknowledged
}

/// Opens what the killed process left after revision `after` and compares it with what it had acknowledged; returns the
/// newest revision.
fn check(directory: &Path, after: Revision, acknowledged: &BTreeMap<u64, (usize, u64)>) -> Revision {
    let store = Embedded::open(directory, Options::default()).unwrap();
    runtime().block_on(async {
        let newest = store.revision().await.unwrap();
        assert!(acknowledged.last_key_value().is_none_or(|(revision, _)| *revision <= newest.0));
        for task in 0..TASKS {
            let [left, right] = keys(task);
            let (left, right) = (store.get(&left, None).await.unwrap().1, store.get(&right, None).await.unwrap().1);
            let content = |held: &Option<signpost_apiserver::store::KeyValue>| {
                held.as_ref().map(|held| (held.value.clone(), held.modified))
            };
            assert_eq!(content(&left), content(&right), "task {task}: half a transaction");
        }
        // History has every acknowledged write under its revision, and whole.
        let history: Vec<_> = store.watch(&Key("/".into()), after).take((newest.0 - after.0) as usize).collect().await;
        let mut found = BTreeMap::new();
        for events in history {
            let events = events.unwrap();
            assert_eq!(events.len(), 2, "both keys or none");
            assert_eq!(events[0].now.value, events[1].now.value);
            let task = events[0].now.key.0.rsplit('/').next().unwrap().parse().unwrap();
            let number = std::str::from_utf8(&events[0].now.value).unwrap().parse().unwrap();
            assert_eq!(found.insert(events[0].at.0, (task, number)), None);
        }
        for (revision, write) in acknowledged {
            assert_eq!(found.get(revision), Some(write), "revision {revision} was acknowledged");
        }
        newest
    })
}
