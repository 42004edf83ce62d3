//! A scrape: known queries are counted in the right series, every series follows the conventions, and `docs/metrics.md` lists
//! exactly these series.

use std::collections::BTreeSet;

use signpost_testing::scrape::Family;
use signpost_testing::{DataDir, Ports, Scrape, Server, dig, eventually, root, until};

/// Returns the row of the reference.
fn row(family: &Family) -> String {
    let labels: BTreeSet<&str> = family
        .samples
        .iter()
        .flat_map(|sample| sample.labels.keys())
        .map(String::as_str)
        .filter(|label| *label != "le")
        .collect();
    let labels: Vec<String> = labels.into_iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |", family.name, family.kind, labels.join(", "), family.help)
}

const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";

#[test]
fn known_queries_are_counted_where_they_belong() {
    let folder = DataDir::new();
    for zone in ["a.example", "b.example"] {
        std::fs::write(folder.join(&format!("{zone}.zone")), ZONE).expect("written");
    }
    std::fs::write(folder.join("broken.example.zone"), "@ SOA nonsense\n").expect("written");
    let server = Server::start(Ports::free(), &["--roles", "dns,admin", "--zones", folder.path()]);
    // One try, so that no query is sent twice on a busy machine.
    let ask = |name: &str, rtype: &str, more: &[&str]| {
        dig(server.dns, name, rtype, &[&["+tries=1", "+time=30"], more].concat()).status
    };
    for (name, rtype, more, status) in [
        ("x.a.example", "A", &[][..], "NOERROR"),
        ("y.a.example", "A", &[], "NOERROR"),
        ("x.a.example", "AAAA", &[], "NOERROR"),
        ("x.ns.a.example", "TXT", &[], "NXDOMAIN"),
        ("x.b.example", "TYPE65400", &["+tcp"], "NOERROR"),
        ("x.broken.example", "A", &[], "SERVFAIL"),
        ("x.elsewhere.example", "A", &["+tcp"], "REFUSED"),
    ] {
        assert_eq!(ask(name, rtype, more), status, "{name} {rtype}");
    }
    let scrape = Scrape::of(server.admin);
    for (name, labels, expected) in [
        ("dns_requests_total", &[("transport", "udp"), ("family", "ipv4"), ("type", "A")][..], 3.0),
        ("dns_requests_total", &[("transport", "udp")], 5.0),
        ("dns_requests_total", &[("transport", "tcp"), ("type", "other")], 1.0),
        ("dns_requests_total", &[], 7.0),
        ("dns_responses_total", &[("transport", "udp"), ("rcode", "NOERROR")], 3.0),
        ("dns_responses_total", &[("transport", "tcp"), ("rcode", "REFUSED")], 1.0),
        ("dns_responses_total", &[], 7.0),
        ("dns_answers_total", &[("kind", "data")], 2.0),
        ("dns_answers_total", &[("kind", "nodata")], 2.0),
        ("dns_zone_requests_total", &[("zone", "a.example."), ("kind", "data")], 2.0),
        ("dns_zone_requests_total", &[("zone", "a.example."), ("kind", "nxdomain")], 1.0),
        ("dns_zone_requests_total", &[("zone", "b.example.")], 1.0),
        ("dns_zone_requests_total", &[("zone", "broken.example."), ("kind", "failed")], 1.0),
        ("dns_zone_requests_total", &[], 6.0),
        ("dns_request_size_bytes_count", &[("transport", "udp")], 5.0),
        ("dns_response_size_bytes_count", &[("transport", "tcp")], 2.0),
        ("dns_truncated_responses_total", &[], 0.0),
        ("dns_query_log_records_total", &[], 0.0),
    ] {
        assert_eq!(scrape.sum(&format!("signpost_{name}"), labels), expected, "{name} {labels:?}");
    }
    // A batch is recorded when its answers have left, so a client may have its answer a moment earlier.
    eventually("the duration of each request is recorded", || {
        let scrape = Scrape::of(server.admin);
        let count = |transport| scrape.sum("signpost_dns_request_duration_seconds_count", &[("transport", transport)]);
        ((count("udp"), count("tcp")) == (5.0, 2.0)).then_some(())
    });
    assert!(Scrape::of(server.admin).sum("signpost_dns_request_duration_seconds_sum", &[]) > 0.0);

    // A zone that was removed and added again keeps its counter.
    let counted =
        |server: &Server| Scrape::of(server.admin).sum("signpost_dns_zone_requests_total", &[("zone", "a.example.")]);
    assert_eq!(counted(&server), 4.0);
    std::fs::remove_file(folder.join("a.example.zone")).expect("removed");
    server.signal("HUP");
    // Without a query, because it would be counted.
    let zones = |count| (Scrape::of(server.admin).sum("signpost_dns_zones", &[]) == count).then_some(());
    eventually("the zone is gone", || zones(2.0));
    assert_eq!(ask("x.a.example", "A", &[]), "REFUSED");
    assert_eq!(counted(&server), 4.0, "a counter never decreases");
    std::fs::write(folder.join("a.example.zone"), ZONE.replace("h 1", "h 2")).expect("written");
    server.signal("HUP");
    eventually("the zone is back", || zones(3.0));
    assert_eq!(ask("x.a.example", "A", &[]), "NOERROR");
    assert_eq!(counted(&server), 5.0);
}

#[test]
fn zones_beyond_the_bound_are_counted_together() {
    let folder = DataDir::new();
    for zone in ["long.name.example", "example", "other.example"] {
        std::fs::write(folder.join(&format!("{zone}.zone")), ZONE).expect("written");
    }
    let arguments = ["--roles", "dns,admin", "--zones", folder.path(), "--metrics-zones", "1"];
    let server = Server::start(Ports::free(), &arguments);
    for name in ["x.example", "x.long.name.example", "x.other.example"] {
        assert_eq!(dig(server.dns, name, "A", &["+tries=1", "+time=30"]).status, "NOERROR");
    }
    let scrape = Scrape::of(server.admin);
    let of = |zone| scrape.sum("signpost_dns_zone_requests_total", &[("zone", zone)]);
    assert_eq!((of("example."), of("other"), of("other.example.")), (1.0, 2.0, 0.0));
}

/// A Router with a health check. Nothing needs to listen there.
const CHECKED: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: checked}\nspec: {state: cordoned, \
addresses: [{ip: 127.0.0.1}], healthCheck: {port: 1}}\n";

#[test]
fn every_series_keeps_the_conventions_and_is_in_the_reference() {
    let data = DataDir::new();
    let example = root().join("examples/rhcloud");
    let (example, zones) = (example.to_str().expect("UTF-8"), root().join("zones"));
    let checked = data.join("checked.yaml");
    std::fs::write(&checked, CHECKED).expect("written");
    let server = Server::start(
        Ports::free(),
        &[
            "--data-dir",
            data.path(),
            "--domain",
            "v3.rhcloud.com",
            "--manifests",
            example,
            "--manifests",
            checked.to_str().expect("UTF-8"),
            "--zones",
            zones.to_str().expect("UTF-8"),
            "--dns-tls-listen",
            "127.0.0.1:0",
        ],
    );
    let page = root().join("docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("docs/metrics.md is there");
    let listed: BTreeSet<String> =
        page.lines().filter(|line| line.starts_with("| `signpost_")).map(str::to_owned).collect();

    // Some families have no sample before something has happened.
    let scrape = until("docs/metrics.md lists all families", || {
        let scrape = Scrape::of(server.admin);
        let found: BTreeSet<String> = scrape.families.iter().map(row).collect();
        let lines = |rows: Vec<&String>| rows.into_iter().fold(String::new(), |text, row| text + row + "\n");
        let is_expected = |row: &&String| !row.contains("absent if there is none");
        let (more, less) =
            (found.difference(&listed).collect(), listed.difference(&found).filter(is_expected).collect());
        let (more, less) = (lines(more), lines(less));
        if more.is_empty() && less.is_empty() {
            return Ok(scrape);
        }
        Err(format!("it lacks\n{more}\nand has, but the program has not\n{less}"))
    });
    let names: BTreeSet<&str> = scrape.families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names.len(), scrape.families.len(), "a family is written twice");
    for family in &scrape.families {
        conventions(family);
    }
}

/// Checks the rules of `promtool check metrics`, and Signpost's own naming rules.
fn conventions(family: &Family) {
    let Family { name, kind, help, samples } = family;
    let is_name =
        |name: &str| name.bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'_' || octet.is_ascii_digit());
    assert!(name.starts_with("signpost_") && is_name(name), "{name}");
    assert!(help.len() > 10 && help.ends_with('.') && !help.ends_with(".."), "{name}: {help}");
    assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{name}: {kind}");
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    for suffix in ["_count", "_sum", "_bucket"] {
        assert!(!name.ends_with(suffix), "{name}");
    }
    for unit in ["milliseconds", "microseconds", "minutes", "hours", "ms", "octets", "kilobytes", "percent"] {
        assert!(!name.split('_').any(|word| word == unit), "{name} is not in a base unit");
    }
    assert!(!samples.is_empty(), "{name} has no sample");
    let mut series = BTreeSet::new();
    for sample in samples {
        assert!(sample.labels.keys().all(|label| is_name(label) && (kind == "histogram" || label != "le")), "{name}");
        assert!(series.insert((&sample.name, &sample.labels)), "{name} has a series twice");
        assert!(kind != "counter" || sample.value >= 0.0, "{name}");
    }
    if kind != "histogram" {
        assert!(samples.iter().all(|sample| sample.name == *name), "{name}");
        return;
    }
    assert!(name.ends_with("_seconds") || name.ends_with("_bytes"), "{name} does not end with its unit");
    let (mut last, mut bound) = (0.0, f64::NEG_INFINITY);
    for sample in samples {
        if sample.name == format!("{name}_bucket") {
            let le = &sample.labels["le"];
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound is a number") };
            assert!(le > bound && sample.value >= last, "{name}: buckets ascend");
            (last, bound) = (sample.value, le);
        } else if sample.name == format!("{name}_count") {
            (last, bound) = (0.0, f64::NEG_INFINITY);
            let rest = |label: &(&String, &String)| *label.0 != "le";
            let all = samples.iter().find(|bucket| {
                bucket.labels.get("le").is_some_and(|le| le == "+Inf")
                    && bucket.labels.iter().filter(rest).eq(sample.labels.iter())
            });
            assert_eq!(all.map(|all| all.value), Some(sample.value), "{name}: the last bucket holds all");
        }
    }
}
