//! Queries per second, from the counters of processes at two times.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scrape::Scrape;

/// The requests and responses between two times, per second. Its JSON is an interface: fields are added, and none is
/// renamed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rates {
    pub(super) queries: f64,
    /// Responses by code, those without any left out.
    pub(super) rcodes: BTreeMap<String, f64>,
    /// Requests by transport, those without any left out.
    pub(super) transports: BTreeMap<String, f64>,
    /// Requests for names in zones by zone, those without any left out.
    pub(super) zones: BTreeMap<String, f64>,
    /// Requests that a shard's wildcard answered though no Route has the name.
    pub(super) unrouted: f64,
    /// Requests that got no response.
    pub(super) dropped: f64,
    /// Responses that were held back or truncated over the rate limit.
    pub(super) rate_limited: f64,
}

impl Rates {
    /// Returns the rates of one process between two scrapes. A counter that decreased restarted at zero with the
    /// process.
    pub(super) fn between(before: &Scrape, after: &Scrape) -> Rates {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |before: f64, after: f64| {
            let counted = if after >= before { after - before } else { after };
            counted / seconds
        };
        let by = |name: &str, label: &str| -> BTreeMap<String, f64> {
            let (before, after) = (before.by(name, label), after.by(name, label));
            let rates = after.into_iter().map(|(value, after)| {
                let before = before.get(&value).copied().unwrap_or(0.0);
                (value, rate(before, after))
            });
            rates.filter(|(_, rate)| *rate > 0.0).collect()
        };
        let sum = |name: &str| rate(before.sum(name).unwrap_or(0.0), after.sum(name).unwrap_or(0.0));
        Rates {
            queries: sum("signpost_dns_requests_total"),
            rcodes: by("signpost_dns_responses_total", "rcode"),
            transports: by("signpost_dns_requests_total", "transport"),
            zones: by("signpost_dns_zone_requests_total", "zone"),
            unrouted: sum("signpost_dns_unrouted_requests_total"),
            dropped: sum("signpost_dns_dropped_requests_total"),
            rate_limited: sum("signpost_dns_rate_limited_total"),
        }
    }
}

/// Returns the parts, the largest first, and by name where they are equal.
pub(super) fn largest(parts: &BTreeMap<String, f64>) -> Vec<(&str, f64)> {
    let mut parts: Vec<(&str, f64)> = parts.iter().map(|(name, rate)| (name.as_str(), *rate)).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    parts
}

/// Formats a rate with its significant digits: `0`, `0.25`, `17.3`, `12345`.
pub(super) fn number(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate if rate < 1_000.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn page(udp: u32, tcp: u32, noerror: u32, zone: u32) -> String {
        format!(
            "signpost_dns_requests_total{{transport=\"udp\",family=\"ipv4\",type=\"A\"}} {udp}\n\
             signpost_dns_requests_total{{transport=\"tcp\",family=\"ipv4\",type=\"A\"}} {tcp}\n\
             signpost_dns_responses_total{{transport=\"udp\",rcode=\"NOERROR\"}} {noerror}\n\
             signpost_dns_responses_total{{transport=\"udp\",rcode=\"NXDOMAIN\"}} 7\n\
             signpost_dns_zone_requests_total{{zone=\"a.example.\",kind=\"data\"}} {zone}\n"
        )
    }

    #[test]
    fn rates_between_two_moments() {
        let start = Instant::now();
        let before = Scrape::of_text(start, &page(100, 10, 50, 5));
        let after = Scrape::of_text(start + Duration::from_secs(2), &page(140, 10, 90, 8));
        let rates = Rates::between(&before, &after);
        assert_eq!(rates.queries, 20.0);
        assert_eq!(rates.rcodes, BTreeMap::from([("NOERROR".into(), 20.0)]));
        assert_eq!(rates.transports, BTreeMap::from([("udp".into(), 20.0)]));
        assert_eq!(rates.zones, BTreeMap::from([("a.example.".into(), 1.5)]));
        // The other process was restarted, and counts from nothing.
        let restarted = Scrape::of_text(start + Duration::from_secs(2), &page(6, 4, 2, 8));
        let rates = Rates::between(&before, &restarted);
        assert_eq!((rates.queries, rates.transports["tcp"]), (5.0, 2.0));
        assert_eq!(Rates::between(&after, &after), Rates::default());
    }

    #[test]
    fn numbers_for_people() {
        for (rate, text) in [(0.0, "0"), (0.25, "0.25"), (17.34, "17.3"), (12345.6, "12346")] {
            assert_eq!(number(rate), text);
        }
        let parts = BTreeMap::from([("a".to_owned(), 1.0), ("b".to_owned(), 3.0), ("c".to_owned(), 1.0)]);
        assert_eq!(largest(&parts), [("b", 3.0), ("a", 1.0), ("c", 1.0)]);
    }
}
