//! Ring buffers for records of a worker: one per worker, with one writer and one reader, without waits. A record that finds the
//! ring full, because its reader is too slow, is lost and counted.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};

use super::count::Count;

/// The worker's end of a ring.
pub(super) struct RingSender<T> {
    records: Producer<T>,
    lost: Arc<Count>,
}

/// The reader's end of a ring.
pub struct RingReceiver<T> {
    records: Consumer<T>,
    lost: Arc<Count>,
}

/// Returns a ring of this many records. Its memory is not touched before it is used.
pub(super) fn ring<T>(records_max: usize) -> (RingSender<T>, RingReceiver<T>) {
    let (producer, consumer) = RingBuffer::new(records_max);
    let lost = Arc::new(Count::default());
    (RingSender { records: producer, lost: Arc::clone(&lost) }, RingReceiver { records: consumer, lost })
}

impl<T> RingSender<T> {
    /// Adds the record that `make` returns, which represents this many requests.
    pub(super) fn push_with(&mut self, requests: u64, make: impl FnOnce() -> T) {
        if self.records.is_full() || self.records.push(make()).is_err() {
            self.lost.add(requests);
        }
    }
}

impl<T> RingReceiver<T> {
    /// Removes the oldest record and returns it.
    pub fn pop(&mut self) -> Option<T> {
        self.records.pop().ok()
    }

    /// Returns the number of requests that the lost records represent, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.read()
    }

    /// Returns the counter that [`Self::lost`] reads.
    pub(super) fn lost_counter(&self) -> Arc<Count> {
        Arc::clone(&self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_loses_and_counts() {
        let (mut sender, mut receiver) = ring(8);
        (0..11u64).for_each(|number| sender.push_with(number, || number));
        assert_eq!(receiver.lost(), 8 + 9 + 10);
        assert_eq!(std::iter::from_fn(|| receiver.pop()).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(receiver.lost_counter().read(), receiver.lost());
    }
}
