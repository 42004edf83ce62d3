//! Every number of the dashboard is in `/metrics`, under the name that the dashboard gives it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Example, cookie_of, get};
use signpost_testing::{eventually, http_get, root, until};

/// Returns the sum of the samples of a page that are of this series; `None` if there is none. `label` is such as `zone="a."`.
fn sum(page: &str, name: &str, label: Option<&str>) -> Option<f64> {
    let values = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, labels) = series.split_once('{').unwrap_or((series, ""));
        let has = |label: &str| labels.trim_end_matches('}').split(',').any(|one| one == label);
        (found == name && label.is_none_or(has)).then(|| value.parse::<f64>().ok())?
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// Compares each number of the overview with the page; returns those that are missing or differ.
fn missing(overview: &Value, page: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut compare = |shown: &Value, name: &str, label: Option<&str>| {
        let found = sum(page, name, label);
        if found != shown.as_f64() {
            missing.push(format!("{name} {label:?}: {shown} is shown, {found:?} is in /metrics"));
        }
    };
    for (what, value) in overview.as_object().expect("an object") {
        match what.as_str() {
            "routes" => compare(value, "signpost_routes", None),
            "states" => {
                for (state, count) in value.as_object().expect("counts") {
                    compare(count, "signpost_routes", Some(&format!("state=\"{state}\"")));
                }
            }
            "namespaceCount" => compare(value, "signpost_route_namespaces", None),
            "routers" => {
                for router in value.as_array().expect("a list") {
                    let label = format!("router={}", router["name"]);
                    compare(&router["routes"], "signpost_router_routes", Some(&label));
                }
            }
            // What one namespace has is counted of its objects in the API: there may be any number of namespaces.
            "namespaces" | "links" => {}
            // Not shown: it identifies the content of the page.
            "version" => {}
            other => panic!("this test does not know the number {other}: give it a series"),
        }
    }
    missing
}

#[test]
fn every_number_is_in_metrics() {
    let example = Example::start();
    let admin = example.server.admin;
    let cookie = cookie_of(admin, &example.token());
    let page = || http_get(admin, "/metrics").expect("metrics are there").1;

    // Both show the counts after the last change.
    until("the overview shows the metrics", || {
        let (_, overview) = get(admin, "/dashboard/data/overview", &cookie);
        let missing = missing(&overview, &page());
        let route_states = &overview["states"];
        let is_shown = missing.is_empty() && route_states["resolvable"] == 11;
        if is_shown { Ok(()) } else { Err(format!("{missing:#?}\n{overview}")) }
    });

    // Plots.
    let columns = eventually("samples are taken", || {
        let (_, samples) = get(admin, "/dashboard/data/samples", &cookie);
        let columns = samples["columns"].as_object().cloned().unwrap_or_default();
        columns.contains_key("signpost_dns_requests_total").then_some(columns)
    });
    let page = page();
    for column in columns.keys() {
        let (name, label) = match column.trim_end_matches('}').split_once('{') {
            // A quantile is of the histogram's buckets.
            Some((name, label)) if label.starts_with("quantile=") => (format!("{name}_bucket"), None),
            Some((name, label)) => (name.to_owned(), Some(label)),
            None => (column.clone(), None),
        };
        assert!(sum(&page, &name, label).is_some(), "{column} is plotted, and not in /metrics:\n{page}");
    }

    // The names next to numbers, and those of the documentation page. Another test compares the reference with the program.
    let reference = std::fs::read_to_string(root().join("docs/metrics.md")).expect("is there");
    let known: BTreeSet<&str> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("signpost_"))
        .collect();
    let mut texts = vec![root().join("docs/dashboard.md")];
    let assets = std::fs::read_dir(root().join("src/admin/dashboard/assets")).expect("is there");
    texts.extend(assets.map(|entry| entry.expect("readable").path()));
    for path in texts {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let words = text.split(|character| !is_part(character)).filter(|word| word.starts_with("signpost_"));
        for word in words.filter(|word| *word != "signpost_session") {
            assert!(known.contains(word), "{} names {word}, which docs/metrics.md does not", path.display());
        }
    }
}
