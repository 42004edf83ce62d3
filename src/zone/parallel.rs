//! Work on many items by several threads: a start has hundreds of thousands of zones and entries to look at.

/// From this many items on it is worth it: starting a thread costs about as much as compiling this many zones.
const PARALLEL_MIN: usize = 64;

/// Does `work` on each item, by several threads if there are many; the results stand beside their items, in order.
pub fn in_parallel<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&T) -> R + Sync) -> Vec<(&'a T, R)> {
    // How many threads there may be takes some files to be read.
    let threads = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if items.len() < PARALLEL_MIN { 1 } else { threads() };
    if threads == 1 {
        return items.iter().map(|item| (item, work(item))).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(threads));
        let part = |part: &'a [T]| scope.spawn(move || part.iter().map(|item| (item, work(item))).collect::<Vec<_>>());
        let running: Vec<_> = parts.map(part).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("the work does not panic")).collect()
    })
}
