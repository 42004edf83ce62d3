//! The two text formats of `/metrics`: OpenMetrics 1.0 for clients that request it, and for all others the Prometheus text format
//! 0.0.4, which scrapers, agents, and `promtool check metrics` of any version can parse.
//!
//! The registry writes OpenMetrics. The older format differs in the metadata of a family and hardly in its samples: a counter's
//! family has the name of its samples, including `_total`, and there are neither units, nor `info`, nor an end marker.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns the format for a client with this `Accept` header: OpenMetrics only if the header names it with at least the
    /// weight of plain text, because every client can parse plain text.
    pub fn of(accept: Option<&str>) -> Format {
        let accept = accept.unwrap_or_default();
        let open_metrics = quality(accept, |kind| kind == "application/openmetrics-text");
        let text = quality(accept, |kind| matches!(kind, "text/plain" | "text/*" | "*/*"));
        if open_metrics > 0.0 && open_metrics >= text { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// Returns the content type of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the text in this format, of a text in OpenMetrics.
    pub fn text(self, open_metrics: String) -> String {
        match self {
            Format::OpenMetrics => open_metrics,
            Format::Prometheus => to_prometheus(&open_metrics),
        }
    }
}

/// One sample of a page of metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Parses the samples of a page in either format. Other lines are skipped.
pub fn samples(page: &str) -> impl Iterator<Item = MetricSample> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<MetricSample> {
    let end = line.find(['{', ' '])?;
    let name = line[..end].to_owned();
    let mut labels = BTreeMap::new();
    let mut rest = &line[end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        // Each iteration parses one label of the line.
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, value) = rest.split_once("=\"")?;
            let (value, after) = quoted(value)?;
            labels.insert(label.to_owned(), value);
            rest = after;
        }
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(MetricSample { name, labels, value })
}

/// Returns the text up to the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Returns the highest weight (RFC 9110 §12.4.2) of the media ranges that `wanted` takes; zero if there is none.
fn quality(accept: &str, wanted: impl Fn(&str) -> bool) -> f32 {
    let weight = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next()?.to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        wanted(&kind).then(|| weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    };
    accept.split(',').filter_map(weight).fold(0.0, f32::max)
}

fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help comes before the type, which decides the family's name.
    let mut help = "";
    for line in open_metrics.lines() {
        match line.strip_prefix("# ").and_then(|comment| comment.split_once(' ')) {
            Some(("HELP", rest)) => help = rest.split_once(' ').map_or("", |(_, help)| help),
            Some(("TYPE", rest)) => {
                let (family, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
                let (family, kind): (Cow<'_, str>, &str) = match kind {
                    "counter" => (format!("{family}_total").into(), "counter"),
                    "info" => (format!("{family}_info").into(), "gauge"),
                    "gauge" | "histogram" | "summary" => (family.into(), kind),
                    _ => (family.into(), "untyped"),
                };
                text.extend(["# HELP ", &family, " ", help, "\n# TYPE ", &family, " ", kind, "\n"]);
            }
            Some(("UNIT", _)) => {}
            None if line == "# EOF" => {}
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_who_asks_for_it() {
        for (accept, format) in [
            (None, Format::Prometheus),
            (Some(""), Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/plain;version=0.0.4"), Format::Prometheus),
            (Some("text/html, */*;q=0.1"), Format::Prometheus),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (Some("application/openmetrics-text;q=0"), Format::Prometheus),
            (Some("application/openmetrics-text;q=0.2, text/plain;q=0.5"), Format::Prometheus),
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.3,*/*;q=0.2",
                ),
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::of(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn the_older_format_names_families_as_their_samples() {
        let open_metrics = "# HELP a What a counts.\n# TYPE a counter\na_total{x=\"# EOF\"} 1\n\
                            # HELP b_seconds How long.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 0.5\n\
                            # HELP c The program.\n# TYPE c info\nc_info{v=\"1\"} 1\n\
                            # HELP d Sizes.\n# TYPE d histogram\nd_sum 7.0\nd_count 1\nd_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let expected = "# HELP a_total What a counts.\n# TYPE a_total counter\na_total{x=\"# EOF\"} 1\n\
                        # HELP b_seconds How long.\n# TYPE b_seconds gauge\nb_seconds 0.5\n\
                        # HELP c_info The program.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n\
                        # HELP d Sizes.\n# TYPE d histogram\nd_sum 7.0\nd_count 1\nd_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(Format::Prometheus.text(open_metrics.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.text(open_metrics.to_owned()), open_metrics);
    }
}
