//! The metrics of the last minutes, for the dashboard's plots.
//!
//! Every [`INTERVAL`], the page of `/metrics` is created and parsed, so that each value has the same name as there and is not
//! counted twice. The families of `FAMILIES` are kept in columns of single-precision floats: a counter as its rate per second, a
//! gauge unchanged, a histogram as two quantiles of the observations since the previous sample. A column has the name of its
//! series, such as `signpost_dns_responses_total{rcode="NOERROR"}`.
//!
//! ```text
//!   at       t0   t1   t2 …          (POINTS_MAX of them, the oldest fall off)
//!   column   NaN  1.5  2.0 …         (COLUMNS_MAX of them; NaN: not known then)
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::admin::exposition::{self, MetricSample};

/// The time between two samples. A shorter interval shows nothing more about a platform; with a longer one, a plot does not move.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// The number of samples to keep: a quarter of an hour.
const POINTS_MAX: usize = 450;
/// The maximum number of columns: those of the process and of the first zones with their own counters. With all points, they take
/// half a megabyte.
const COLUMNS_MAX: usize = 256;

/// The aggregation of a family's samples to one number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The rate of a counter, per second.
    Rate,
    Sum,
    Largest,
    Smallest,
    /// The median and the 99th percentile of a histogram.
    Quantiles,
}

/// The recorded families, each with the label that separates its columns, and its aggregation.
const FAMILIES: &[(&str, Option<&str>, Reading)] = &[
    ("signpost_dns_requests_total", None, Reading::Rate),
    ("signpost_dns_responses_total", Some("rcode"), Reading::Rate),
    ("signpost_dns_dropped_requests_total", None, Reading::Rate),
    ("signpost_dns_rate_limited_total", None, Reading::Rate),
    ("signpost_dns_request_duration_seconds", None, Reading::Quantiles),
    ("signpost_dns_zones", None, Reading::Sum),
    ("signpost_dns_ready", None, Reading::Smallest),
    ("signpost_deletion_hold_objects", Some("kind"), Reading::Sum),
    ("signpost_zone_input_errors", None, Reading::Sum),
    ("signpost_informer_age_seconds", None, Reading::Largest),
    ("signpost_informer_connected", None, Reading::Smallest),
    ("signpost_scheduler_leading", None, Reading::Sum),
    ("signpost_scheduler_pending_routes", None, Reading::Sum),
    ("signpost_name_server_silent", Some("address"), Reading::Sum),
    // Last: there can be more of these than the limit permits.
    ("signpost_dns_zone_requests_total", Some("zone"), Reading::Rate),
];

/// The samples of a process.
#[derive(Default)]
pub struct Samples(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    /// The times of the samples, in milliseconds since the epoch.
    at: VecDeque<u64>,
    columns: BTreeMap<String, VecDeque<f32>>,
    /// Counters and buckets at the last sample.
    before: BTreeMap<String, f64>,
}

impl Samples {
    /// Takes a sample of a page in OpenMetrics or Prometheus text at `at`, in milliseconds since the epoch.
    pub fn take(&self, page: &str, at: u64) {
        let raw = read(page);
        let mut ring = self.0.lock();
        let seconds = ring.at.back().map(|last| at.saturating_sub(*last) as f64 / 1_000.0).filter(|since| *since > 0.0);
        let row = row(&raw, &ring.before, seconds);
        ring.before = raw;
        ring.push(at, row);
    }

    /// Returns the time of the newest sample; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.0.lock().at.back().copied().unwrap_or(0)
    }

    /// Returns all samples: times, and values by column.
    pub fn all(&self) -> Value {
        let ring = self.0.lock();
        let columns: Map<String, Value> = ring
            .columns
            .iter()
            .map(|(name, values)| (name.clone(), values.iter().copied().map(number).collect()))
            .collect();
        json!({"intervalMs": INTERVAL.as_millis() as u64, "pointsMax": POINTS_MAX, "at": ring.at, "columns": columns})
    }

    /// Returns the last one: its time, and the value of each column.
    pub fn last(&self) -> Option<Value> {
        let ring = self.0.lock();
        let at = ring.at.back()?;
        let last = |(name, values): (&String, &VecDeque<f32>)| Some((name.clone(), number(*values.back()?)));
        let columns: Map<String, Value> = ring.columns.iter().filter_map(last).collect();
        Some(json!({"at": at, "columns": columns}))
    }
}

impl Ring {
    fn push(&mut self, at: u64, row: Vec<(String, f64)>) {
        if self.at.len() == POINTS_MAX {
            self.at.pop_front();
            for column in self.columns.values_mut() {
                column.pop_front();
            }
        }
        self.at.push_back(at);
        let points = self.at.len();
        for (name, value) in row {
            let is_new = !self.columns.contains_key(&name);
            if is_new && (value.is_nan() || self.columns.len() == COLUMNS_MAX) {
                continue;
            }
            let column = self.columns.entry(name).or_default();
            column.resize(points - 1, f32::NAN);
            column.push_back(value as f32);
        }
        // A value that is missing in this sample is unknown, and its column is removed when no sample has a value.
        self.columns.retain(|_, column| {
            column.resize(points, f32::NAN);
            column.iter().any(|value| !value.is_nan())
        });
    }
}

/// JSON has no NaN, and a plot shows fewer than four significant digits.
fn number(value: f32) -> Value {
    match value {
        value if !value.is_finite() => Value::Null,
        value if value.fract() == 0.0 && value.abs() < 1e7 => json!(value as i64),
        value => format!("{value:.3e}").parse::<f64>().map_or(Value::Null, |value| json!(value)),
    }
}

/// The values by column: `family`, `family{label="value"}`, or `family|bound` for a bucket of a histogram.
fn read(page: &str) -> BTreeMap<String, f64> {
    let mut columns: BTreeMap<String, f64> = BTreeMap::new();
    for MetricSample { name, labels, value } in exposition::samples(page) {
        let bucket_of = name.strip_suffix("_bucket");
        let wanted = FAMILIES.iter().find(|(family, _, reading)| match bucket_of {
            Some(histogram) => *reading == Reading::Quantiles && *family == histogram,
            None => *reading != Reading::Quantiles && *family == name,
        });
        let Some((family, label, reading)) = wanted else { continue };
        let label_of = |label: &str| labels.get(label).map(String::as_str);
        let key = match (bucket_of, label) {
            (Some(_), _) => format!("{family}|{}", label_of("le").unwrap_or("+Inf")),
            (None, Some(label)) => format!("{family}{{{label}={:?}}}", label_of(label).unwrap_or_default()),
            (None, None) => (*family).to_owned(),
        };
        let merged = |known: &mut f64| match reading {
            Reading::Largest => *known = known.max(value),
            Reading::Smallest => *known = known.min(value),
            Reading::Rate | Reading::Sum | Reading::Quantiles => *known += value,
        };
        columns.entry(key).and_modify(merged).or_insert(value);
    }
    columns
}

/// Returns the columns of a sample, those that matter most first.
fn row(raw: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>, seconds: Option<f64>) -> Vec<(String, f64)> {
    let mut row = Vec::new();
    for (family, _, reading) in FAMILIES {
        let of_family = |(key, _): &(&String, &f64)| {
            let rest = &key[family.len()..];
            rest.is_empty() || rest.starts_with('{') || rest.starts_with('|')
        };
        let columns =
            raw.range((*family).to_owned()..).take_while(|(key, _)| key.starts_with(family)).filter(of_family);
        match reading {
            Reading::Rate => row.extend(columns.map(|(key, value)| {
                // A counter that decreased was reset.
                let since = before.get(key).zip(seconds);
                let rate = since.map_or(f64::NAN, |(before, seconds)| (value - before).max(0.0) / seconds);
                (key.clone(), rate)
            })),
            Reading::Sum | Reading::Largest | Reading::Smallest => {
                row.extend(columns.map(|(key, value)| (key.clone(), *value)));
            }
            Reading::Quantiles => {
                let bound = |key: &str| key.rsplit('|').next().and_then(|bound| bound.parse::<f64>().ok());
                let mut buckets: Vec<(f64, f64)> =
                    columns.filter_map(|(key, value)| Some((bound(key)?, value - before.get(key)?))).collect();
                buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
                for share in [0.5, 0.99] {
                    row.push((format!("{family}{{quantile=\"{share}\"}}"), quantile(&buckets, share)));
                }
            }
        }
    }
    row
}

/// Returns the quantile of cumulated buckets, between two bounds by their shares; NaN without a request.
fn quantile(buckets: &[(f64, f64)], share: f64) -> f64 {
    let total = buckets.last().map_or(0.0, |(_, count)| *count);
    if total <= 0.0 {
        return f64::NAN;
    }
    let rank = total * share;
    let (mut from, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= rank {
            let inside = if count > &below { (rank - below) / (count - below) } else { 1.0 };
            // Values above the last bound are not known to be any larger.
            return if bound.is_finite() { from + (bound - from) * inside } else { from };
        }
        (from, below) = (*bound, *count);
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(requests: u32, fast: u32, all: u32) -> String {
        format!(
            "# HELP x y\nsignpost_dns_requests_total{{transport=\"udp\",type=\"A\"}} {requests}\n\
             signpost_dns_requests_total{{transport=\"tcp\",type=\"A\"}} 7\n\
             signpost_dns_responses_total{{rcode=\"NOERROR\",transport=\"udp\"}} {requests}\n\
             signpost_dns_zone_requests_total{{zone=\"a\\\"b.\",kind=\"data\"}} {requests}\n\
             signpost_dns_request_duration_seconds_bucket{{le=\"0.001\",transport=\"udp\"}} {fast}\n\
             signpost_dns_request_duration_seconds_bucket{{le=\"0.002\",transport=\"udp\"}} {all}\n\
             signpost_dns_request_duration_seconds_bucket{{le=\"+Inf\",transport=\"udp\"}} {all}\n\
             signpost_informer_age_seconds{{kind=\"Route\"}} 1.5\nsignpost_informer_age_seconds{{kind=\"Zone\"}} 4.25\n\
             signpost_something_else 3\n# EOF\n"
        )
    }

    #[test]
    fn a_page_becomes_rates_under_its_own_names() {
        let samples = Samples::default();
        assert_eq!((samples.newest(), samples.last()), (0, None));
        samples.take(&page(100, 10, 10), 1_000);
        samples.take(&page(300, 110, 210), 3_000);
        let last = samples.last().expect("two were taken");
        assert_eq!(last["at"], 3_000);
        let columns = &last["columns"];
        assert_eq!(columns["signpost_dns_requests_total"], 100);
        assert_eq!(columns["signpost_dns_responses_total{rcode=\"NOERROR\"}"], 100);
        assert_eq!(columns["signpost_dns_zone_requests_total{zone=\"a\\\"b.\"}"], 100);
        assert_eq!(columns["signpost_informer_age_seconds"], 4.25);
        assert_eq!(columns["signpost_dns_request_duration_seconds{quantile=\"0.5\"}"], 0.001);
        assert_eq!(columns["signpost_dns_request_duration_seconds{quantile=\"0.99\"}"], 0.00198);
        assert_eq!(columns.get("signpost_something_else"), None);
        let all = samples.all();
        assert_eq!(all["at"], json!([1_000, 3_000]));
        assert_eq!(all["columns"]["signpost_dns_requests_total"], json!([null, 100]), "no rate of one sample");
    }

    #[test]
    fn a_restart_is_no_negative_rate_and_old_points_fall_off() {
        let samples = Samples::default();
        for second in 0..600_u64 {
            samples.take(&page(if second == 599 { 0 } else { 50 }, 1, 1), second * 2_000);
        }
        assert_eq!(samples.last().expect("taken")["columns"]["signpost_dns_requests_total"], 0);
        let all = samples.all();
        assert_eq!(all["at"].as_array().map(Vec::len), Some(POINTS_MAX));
        assert_eq!(all["columns"]["signpost_dns_requests_total"].as_array().map(Vec::len), Some(POINTS_MAX));
        assert_eq!(all["at"][0], 150 * 2_000);
    }

    #[test]
    fn columns_are_bounded_and_those_of_the_process_stay() {
        let samples = Samples::default();
        let zones: String =
            (0..2_000).map(|zone| format!("signpost_dns_zone_requests_total{{zone=\"z{zone}.\"}} 1\n")).collect();
        let page = zones + &page(1, 1, 1);
        samples.take(&page, 1_000);
        samples.take(&page, 2_000);
        let all = samples.all();
        assert_eq!(all["columns"].as_object().map(Map::len), Some(COLUMNS_MAX));
        assert!(all["columns"].get("signpost_informer_age_seconds").is_some());
    }
}
