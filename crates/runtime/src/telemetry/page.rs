//! The page that collectors write at a scrape: families of counters, gauges, and histograms, each as rows of labels and values.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Labels with their values.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;
/// Values with their labels.
pub type Rows<'a, T> = Vec<(Labels<'a>, T)>;

/// A histogram to be written.
pub struct Histogram<'a> {
    /// The labels of the histogram.
    pub labels: Labels<'a>,
    /// One more than there are bounds; not cumulated.
    pub buckets: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// Returns a collector that calls `write` at each scrape.
pub fn collector(write: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static) -> Box<dyn Collector> {
    Box::new(Writing(write))
}

struct Writing<F>(F);

impl<F> fmt::Debug for Writing<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Writing")
    }
}

impl<F: Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Writing<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut Page(encoder))
    }
}

/// The page being written.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes a counter, a row for each set of labels.
    pub fn counter(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, u64)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, &format!("{help}."), None, MetricType::Counter)?;
        for (labels, value) in rows {
            match labels.is_empty() {
                true => metric.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
                false => metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
            }
        }
        Ok(())
    }

    /// Writes a counter without labels.
    pub fn count(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counter(name, help, &[(vec![], value)])
    }

    /// Writes a counter, a row for each value of a label.
    pub fn counts<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &'v str,
        rows: impl IntoIterator<Item = (&'v str, u64)>,
    ) -> fmt::Result {
        let rows: Rows<'v, u64> = rows.into_iter().map(|(value, count)| (vec![(label, value)], count)).collect();
        self.counter(name, help, &rows)
    }

    /// Writes a gauge without labels.
    pub fn level(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        self.gauge(name, help, &[(vec![], value)])
    }

    /// Writes a gauge, a row for each set of labels.
    pub fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, V)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, &format!("{help}."), None, MetricType::Gauge)?;
        for (labels, value) in rows {
            match labels.is_empty() {
                true => metric.encode_gauge(value)?,
                false => metric.encode_family(labels)?.encode_gauge(value)?,
            }
        }
        Ok(())
    }

    /// Writes histograms; the unit becomes the end of the name.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        bounds: &[f64],
        rows: &[Histogram<'_>],
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, &format!("{help}."), Some(&unit), MetricType::Histogram)?;
        for row in rows {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(row.buckets.iter().copied()).collect();
            let count = row.buckets.iter().sum();
            metric.encode_family(&row.labels)?.encode_histogram::<NoLabelSet>(row.sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
