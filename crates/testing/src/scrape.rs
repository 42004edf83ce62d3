//! The metrics of a process.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::net::http_get;
use crate::wait::eventually;

/// A page in the Prometheus text format.
pub struct Scrape {
    /// The metric families.
    pub families: Vec<Family>,
}

/// A metric family.
pub struct Family {
    /// The name of the family.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The help text of the family.
    pub help: String,
    /// The samples of the family, in order.
    pub samples: Vec<MetricSample>,
}

/// A sample.
pub struct MetricSample {
    /// The name of the series, with the suffix of a histogram's.
    pub name: String,
    /// The labels of the sample.
    pub labels: BTreeMap<String, String>,
    /// The value of the sample.
    pub value: f64,
}

impl Scrape {
    /// Returns the metrics of the process whose admin endpoint this is.
    pub fn of(admin: SocketAddr) -> Scrape {
        eventually("the admin endpoint serves metrics", || {
            http_get(admin, "/metrics").filter(|(status, _)| *status == 200).map(|(_, text)| Scrape::parse(&text))
        })
    }

    /// Parses a page.
    pub fn parse(text: &str) -> Scrape {
        let mut families: Vec<Family> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a help");
                let (name, help) = (name.to_owned(), help.to_owned());
                families.push(Family { name, help, kind: String::new(), samples: Vec::new() });
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                let family = families.last_mut().expect("HELP comes first");
                assert_eq!(family.name, name);
                family.kind = kind.to_owned();
            } else {
                let family = families.last_mut().expect("HELP and TYPE come first");
                family.samples.push(MetricSample::parse(line));
            }
        }
        Scrape { families }
    }

    /// Returns all samples of this name that have these labels.
    pub fn samples(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &MetricSample> {
        let has = move |sample: &&MetricSample| {
            let has_label =
                |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|found| found == value);
            sample.name == name && labels.iter().all(has_label)
        };
        self.families.iter().flat_map(|family| &family.samples).filter(has)
    }

    /// Returns the sum of all samples of this name that have these labels; 0 without any.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples(name, labels).map(|sample| sample.value).sum()
    }

    /// Returns the value of one series, such as `name{label="value"}`.
    #[track_caller]
    pub fn value(&self, series: &str) -> f64 {
        let wanted = MetricSample::parse(&format!("{series} 0"));
        let mut all = self.families.iter().flat_map(|family| &family.samples);
        let found = all.find(|sample| sample.name == wanted.name && sample.labels == wanted.labels);
        found.unwrap_or_else(|| panic!("there is no {series}")).value
    }
}

impl MetricSample {
    /// Parses a sample. No label value of Signpost contains a quote or a comma.
    fn parse(line: &str) -> MetricSample {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("no sample: {line}"));
        let pair = |pair: &str| {
            let (label, value) = pair.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
            (label.to_owned(), value.trim_matches('"').to_owned())
        };
        let labels = labels.split(',').filter(|pair| !pair.is_empty()).map(pair).collect();
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        MetricSample { name: name.to_owned(), labels, value }
    }
}
