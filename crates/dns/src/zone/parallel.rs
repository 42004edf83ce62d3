//! Parallel work on many items: a start has hundreds of thousands of zones and entries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

/// The number of items from which threads save time: the start of a thread costs about as much as compiling this many zones.
const PARALLEL_MIN: usize = 64;
/// The number of items that a thread of [`in_order`] takes at a time, so that the check of an unchanged file costs more than its
/// handover.
const CHUNK: usize = 16;
/// The maximum number of queued chunks of results. A few per thread keep the threads busy.
const QUEUE_MAX: usize = 8;

/// Applies `work` to each item, on several threads if there are many; returns the items with their results, in order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<(&T, R)> {
    // The number of permitted threads requires reading some files.
    let threads = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if items.len() < PARALLEL_MIN { 1 } else { threads() };
    let mut results = Vec::with_capacity(items.len());
    in_order(threads, items, work, |item, result| results.push((item, result)));
    results
}

/// Does `work` for each of `items` on `threads` threads, and passes the results to `take` here, in order, as soon as possible.
pub fn in_order<'i, I: Sync, R: Send>(
    threads: usize,
    items: &'i [I],
    work: impl Fn(&I) -> R + Sync,
    mut take: impl FnMut(&'i I, R),
) {
    if threads == 1 || items.len() < 2 {
        items.iter().for_each(|item| take(item, work(item)));
        return;
    }
    let chunks: Vec<&'i [I]> = items.chunks(CHUNK).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, results) = sync_channel(QUEUE_MAX);
        for _ in 0..threads.min(chunks.len()) {
            let (sender, next, chunks, work): (SyncSender<(usize, Vec<R>)>, _, _, _) =
                (sender.clone(), &next, &chunks, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(chunk) = chunks.get(index) else { return };
                    // The receiver ends only with the scan, because of a panic that already propagates.
                    if sender.send((index, chunk.iter().map(work).collect())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // The results that arrived early. A slow file delays those after it, so this can grow to all remaining results.
        let mut early = BTreeMap::new();
        let mut turn = 0;
        for (index, result) in results {
            early.insert(index, result);
            while let Some(results) = early.remove(&turn) {
                chunks[turn].iter().zip(results).for_each(|(item, result)| take(item, result));
                turn += 1;
            }
        }
    });
}
