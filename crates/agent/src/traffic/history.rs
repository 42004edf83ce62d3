//! The traffic of the last minutes, in spans of at least `SPAN`: whole numbers of readings.
//!
//! A Route keeps the spans in which something was counted, at most `SPANS_MAX` of 16 bytes; the times of all spans are kept once.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Counters;

/// The least time of a span. A shorter one would have a single reading, and the memory of a busy Route grows with their number.
const SPAN: Duration = Duration::from_secs(10);
/// The most spans: ten minutes.
const SPANS_MAX: usize = 60;

/// The times of the spans that have ended.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// The number of spans that have ended, which is the number of the current one.
    current: u32,
    elapsed: Duration,
    ended: VecDeque<Duration>,
}

impl Spans {
    /// Adds the time of a reading to the current span.
    pub(super) fn advance(&mut self, elapsed: Duration) {
        self.elapsed += elapsed;
        if self.elapsed >= SPAN {
            self.ended.push_back(std::mem::take(&mut self.elapsed));
            self.current = self.current.saturating_add(1);
            let surplus = self.ended.len().saturating_sub(SPANS_MAX);
            self.ended.drain(..surplus);
        }
    }
}

/// The counts of a Route by span, in ascending order of their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts(VecDeque<Count>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Count {
    span: u32,
    requests: u32,
    server_errors: u32,
    errors: u32,
}

impl Counts {
    /// Adds what was counted in the current span.
    pub(super) fn add(&mut self, spans: &Spans, more: &Counters) {
        let (span, oldest) = (spans.current, spans.current.saturating_sub(SPANS_MAX as u32));
        let old = self.0.partition_point(|count| count.span < oldest);
        self.0.drain(..old);
        if *more == Counters::default() {
            return;
        }
        if self.0.back().is_none_or(|last| last.span != span) {
            self.0.push_back(Count { span, requests: 0, server_errors: 0, errors: 0 });
        }
        let Some(count) = self.0.back_mut() else { return };
        let add = |sum: &mut u32, more: u64| *sum = sum.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        add(&mut count.requests, more.total());
        add(&mut count.server_errors, more.requests[5]);
        add(&mut count.errors, more.errors);
    }
}

/// The traffic of the last minutes by span, the newest last: changes in each second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// The lengths of the spans, in seconds.
    pub seconds: Vec<f64>,
    /// Finished requests and connections.
    pub requests: Vec<f64>,
    /// Requests with a status of 5xx.
    pub server_errors: Vec<f64>,
    /// Requests and connections that no endpoint answered.
    pub errors: Vec<f64>,
}

impl History {
    /// Returns the sum of Routes.
    pub(super) fn of<'a>(spans: &Spans, routes: impl Iterator<Item = &'a Counts>) -> History {
        let seconds: Vec<f64> = spans.ended.iter().map(Duration::as_secs_f64).collect();
        let zeros = vec![0.0; seconds.len()];
        let mut history = History { seconds, requests: zeros.clone(), server_errors: zeros.clone(), errors: zeros };
        let first = spans.current as usize - history.seconds.len();
        for count in routes.flat_map(|route| &route.0) {
            let Some(at) = (count.span as usize).checked_sub(first).filter(|at| *at < history.seconds.len()) else {
                continue;
            };
            history.requests[at] += f64::from(count.requests) / history.seconds[at];
            history.server_errors[at] += f64::from(count.server_errors) / history.seconds[at];
            history.errors[at] += f64::from(count.errors) / history.seconds[at];
        }
        history
    }

    /// Adds that of another instance. Spans end at different times: the newest ones are added, and so on.
    pub fn merge(&mut self, other: &History) {
        let longer = other.seconds.len().min(SPANS_MAX).saturating_sub(self.seconds.len());
        let start = other.seconds.len().saturating_sub(self.seconds.len() + longer);
        self.seconds.splice(..0, other.seconds[start..start + longer].iter().copied());
        for (sums, more) in [
            (&mut self.requests, &other.requests),
            (&mut self.server_errors, &other.server_errors),
            (&mut self.errors, &other.errors),
        ] {
            sums.splice(..0, std::iter::repeat_n(0.0, longer));
            sums.iter_mut().rev().zip(more.iter().rev()).for_each(|(sum, more)| *sum += more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(requests: u64, server_errors: u64) -> Counters {
        Counters { requests: [0, 0, requests, 0, 0, server_errors], ..Counters::default() }
    }

    #[test]
    fn spans() {
        let (mut spans, mut busy, mut quiet) = (Spans::default(), Counts::default(), Counts::default());
        let mut read = |requests: u64, seconds: u64| {
            busy.add(&spans, &counters(requests, requests / 10));
            quiet.add(&spans, &counters(u64::from(requests == 30), 0));
            spans.advance(Duration::from_secs(seconds));
            (History::of(&spans, [&busy, &quiet].into_iter()), quiet.0.len())
        };
        // A span ends with the reading that fills it; what is counted in the current one is not shown.
        assert_eq!(read(10, 5).0, History::default());
        assert_eq!(read(30, 7).0.requests, [(40 + 4 + 1) as f64 / 12.0]);
        let (history, _) = read(50, 10);
        assert_eq!((history.seconds, history.requests[1], history.server_errors[1]), (vec![12.0, 10.0], 5.5, 0.5));
        // A long reading is a span of its own. The oldest span is forgotten, with the entries of Routes.
        for _ in 0..SPANS_MAX - 1 {
            read(0, 60);
        }
        assert_eq!(read(0, 10).1, 0);
        let (history, _) = read(0, 10);
        assert_eq!((history.seconds.len(), history.requests.iter().sum::<f64>()), (SPANS_MAX, 0.0));
    }

    #[test]
    fn instances() {
        let of = |requests: &[f64]| History {
            seconds: vec![10.0; requests.len()],
            requests: requests.to_vec(),
            server_errors: vec![0.0; requests.len()],
            errors: vec![1.0; requests.len()],
        };
        for (one, other, requests) in [
            (vec![], vec![], vec![]),
            (vec![1.0, 2.0], vec![], vec![1.0, 2.0]),
            (vec![], vec![1.0, 2.0], vec![1.0, 2.0]),
            (vec![1.0, 2.0, 3.0], vec![4.0], vec![1.0, 2.0, 7.0]),
            (vec![4.0], vec![1.0, 2.0, 3.0], vec![1.0, 2.0, 7.0]),
        ] {
            let mut sum = of(&one);
            sum.merge(&of(&other));
            assert_eq!((sum.seconds.len(), sum.errors.len()), (requests.len(), requests.len()));
            assert_eq!(sum.requests, requests);
        }
        // That of another version can be wrong.
        let mut sum = of(&[1.0]);
        sum.merge(&History { seconds: vec![10.0; 500], requests: vec![1.0], ..History::default() });
        assert_eq!((sum.seconds.len(), sum.requests.len(), sum.requests.last()), (SPANS_MAX, SPANS_MAX, Some(&2.0)));
    }
}
