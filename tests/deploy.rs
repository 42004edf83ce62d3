//! What `deploy/` and the operators' pages say fits the program: names of series, settings, alerts and findings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use signpost::config::{self, Places};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All words of `text` that begin with `signpost_`.
fn series(text: &str) -> BTreeSet<String> {
    let part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.split(|character| !part(character)).filter(|word| word.starts_with("signpost_")).map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_name_series_that_there_are() {
    let known = series(&read("docs/metrics.md"));
    for file in ["deploy/prometheus/alerts.yaml", "deploy/prometheus/alerts_test.yaml", "deploy/grafana/signpost.json"]
    {
        for name in series(&read(file)) {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(known.contains(histogram.unwrap_or(&name)), "{file} names {name}, which docs/metrics.md does not");
        }
    }
}

#[test]
fn each_alert_is_explained_and_tested() {
    let of_lines = |text: &str, prefix: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| line.trim_start().strip_prefix(prefix))
            .map(|name| name.trim().to_owned())
            .collect()
    };
    let rules = read("deploy/prometheus/alerts.yaml");
    let alerts = of_lines(&rules, "- alert:");
    assert!(alerts.len() > 20);
    assert_eq!(of_lines(&read("docs/alerts.md"), "## "), alerts);
    let tests = read("deploy/prometheus/alerts_test.yaml");
    for alert in &alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} is not tested");
        assert!(
            rules.contains(&format!("docs/alerts.md#{}\n", alert.to_lowercase())),
            "{alert} does not name its page"
        );
    }
}

#[test]
fn the_settings_that_are_shipped_are_valid() {
    for file in ["deploy/signpost.toml", "deploy/container/signpost.toml", "deploy/kubernetes/base/signpost.toml"] {
        let places = Places { config: Some(root().join(file)), ..Places::default() };
        let settings = config::load(&places).unwrap_or_else(|errors| panic!("{file}: {errors}"));
        assert!(settings.data_dir.starts_with(PathBuf::from("/var/lib/signpost")), "{file}");
    }
    // What is commented out is an example, and must be one that works.
    let text = read("deploy/signpost.toml");
    let is_setting = |line: &str| line.starts_with([']', ' ']) || line.contains(" = ");
    let uncommented: Vec<&str> =
        text.lines().map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signpost.toml");
    fs::write(&file, uncommented.join("\n")).expect("written");
    let settings = config::load(&Places { config: Some(file), ..Places::default() });
    let settings = settings.unwrap_or_else(|errors| panic!("deploy/signpost.toml, uncommented: {errors}"));
    assert_eq!((settings.domain.as_str(), settings.nameservers.len()), ("apps.example.com", 2));
}

#[test]
fn each_finding_of_the_doctor_is_explained() {
    let page = read("docs/delegate.md");
    // On one line, however it was formatted.
    let judge = read("src/cli/doctor/judge.rs").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut codes = BTreeSet::new();
    for before in ["Error, \"", "Warning, \"", "Note, \"", "faults.push((\"", "vec![(\""] {
        for (at, before) in judge.match_indices(before) {
            codes.extend(judge[at + before.len()..].split('"').next());
        }
    }
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes.iter().filter(|code| **code != "tcp") {
        assert!(page.contains(&format!("`{code}`")), "docs/delegate.md does not explain {code}");
    }
}

/// A tag can be moved to another image; a digest cannot.
#[test]
fn base_images_are_pinned_by_digest() {
    let file = read("deploy/container/Containerfile");
    let arguments: Vec<(&str, &str)> =
        file.lines().filter_map(|line| line.strip_prefix("ARG ")?.split_once('=')).collect();
    let images: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(images.len(), 2);
    for image in images {
        let image = image.split_whitespace().next().expect("an image");
        let name = image.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        let image = name.map_or(image, |name| {
            let found = arguments.iter().find(|(argument, _)| *argument == name);
            found.unwrap_or_else(|| panic!("{name} has no default")).1
        });
        let digest = image.split_once("@sha256:").unwrap_or_else(|| panic!("{image} is not pinned")).1;
        assert!(digest.len() == 64 && digest.bytes().all(|octet| octet.is_ascii_hexdigit()), "{image}");
    }
}
