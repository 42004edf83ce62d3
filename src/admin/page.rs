//! What a collector writes at a scrape: families of counters, gauges and histograms, each as rows of labels and values.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Labels with their values.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;
/// Values with their labels.
pub type Rows<'a, T> = Vec<(Labels<'a>, T)>;

/// A histogram to be written.
pub struct Histogram<'a> {
    /// The labels.
    pub labels: Labels<'a>,
    /// One more than there are bounds; not cumulated.
    pub buckets: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// The page being written.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl<'a> Page<'a> {
    /// A page that a collector writes to.
    pub fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Page(encoder)
    }

    /// Writes a counter, a row for each set of labels.
    pub fn counter(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, u64)]) -> Result<(), fmt::Error> {
        let mut metric = self.0.encode_descriptor(name, &format!("{help}."), None, MetricType::Counter)?;
        for (labels, value) in rows {
            match labels.is_empty() {
                true => metric.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
                false => metric.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(value, None)?,
            }
        }
        Ok(())
    }

    /// Writes a gauge, likewise.
    pub fn gauge(&mut self, name: &str, help: &str, rows: &[(Labels<'_>, i64)]) -> Result<(), fmt::Error> {
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
    ) -> Result<(), fmt::Error> {
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
