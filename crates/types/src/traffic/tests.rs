//! The settings of a Route, and the reports about them, by its fields and annotations.

use serde_json::{Value, json};

use super::*;

fn spec(traffic: Value) -> RouteSpec {
    serde_json::from_value(json!({"traffic": traffic})).expect("a spec")
}

fn requested(traffic: Value, annotations: &[(&str, &str)]) -> Requested {
    let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Requested::of(&spec(traffic), Some(&annotations))
}

/// Returns the unhonored settings as `reason message`.
fn found(requested: &Requested, proxies: &[RouterKind], maxima: &TrafficMaxima) -> Vec<String> {
    let provider = Provider { router: "shard1", maxima: Some(maxima), proxies };
    let text = |one: Unhonored| format!("{} {}", one.reason.word(), one.message);
    requested.unhonored(provider).into_iter().map(text).collect()
}

#[test]
fn annotations_mean_what_they_mean_in_openshift() {
    const PREFIX: &str = "haproxy.router.openshift.io/";
    for (name, value, expected) in [
        ("timeout", "500ms", Some(json!({"request_timeout_ms": 500}))),
        ("timeout", "30s", Some(json!({"request_timeout_ms": 30_000}))),
        ("timeout", "5", Some(json!({"request_timeout_ms": 5}))),
        ("timeout", "1500us", Some(json!({"request_timeout_ms": 2}))),
        ("timeout-tunnel", "1d", Some(json!({"tunnel_timeout_ms": 86_400_000}))),
        ("timeout", "0s", None),
        ("timeout", "8d", None),
        ("timeout", "1h30m", None),
        ("timeout", "s", None),
        ("timeout", "99999999999999999999d", None),
        ("ip_whitelist", "192.0.2.7 10.1.0.0/8", Some(json!({"networks": ["10.0.0.0/8", "192.0.2.7/32"]}))),
        ("ip_whitelist", "", Some(json!({}))),
        ("ip_allowlist", " ", Some(json!({}))),
        ("ip_allowlist", "2001:db8::1/32", Some(json!({"networks": ["2001:db8::/32"]}))),
        ("ip_allowlist", "::ffff:192.0.2.7/120 ::/0", Some(json!({"networks": ["192.0.2.0/24", "::/0"]}))),
        (
            "hsts_header",
            "max-age=60;includeSubDomains; preload",
            Some(json!({"hsts": {"maxAgeSeconds": 60,
            "includeSubDomains": true, "preload": true}})),
        ),
        ("hsts_header", "includeSubDomains", None),
        ("hsts_header", "max-age=60;\r\nX: y", None),
        ("disable_cookies", "true", Some(json!({}))),
        ("disable_cookies", "perhaps", None),
        ("rate-limit-connections.rate-http", "20", Some(json!({}))),
        ("rate-limit-connections.rate-http", "many", None),
        ("balance", "source", Some(json!({}))),
    ] {
        let requested = requested(json!({}), &[(&format!("{PREFIX}{name}"), value)]);
        assert_eq!(requested.invalid.is_empty(), expected.is_some(), "{name} {value} {:?}", requested.invalid);
        assert_eq!(json!(requested.settings), expected.unwrap_or(json!({})), "{name} {value}");
    }
    let limited = requested(json!({}), &[(LIMITS, "true"), (RATE, "20")]);
    assert_eq!(limited.settings.requests_max, Some(20));
    let cookie = requested(json!({}), &[(COOKIE, "my-app")]).settings.sticky;
    assert_eq!(json!(cookie), json!({"cookie": "my-app"}));
    assert_eq!(requested(json!({}), &[(COOKIE, "my-app"), (NO_COOKIES, "true")]).settings.sticky, None);
    assert_eq!(requested(json!({}), &[(COOKIE, "a;b")]).invalid.len(), 1);
    // A field wins, and an invalid annotation is reported anyway.
    let both = requested(json!({"requestTimeoutSeconds": 7}), &[(TIMEOUT, "9s"), (TUNNEL, "never")]);
    assert_eq!((both.settings.request_timeout_ms, both.invalid.len()), (Some(7_000), 1));
    // No error in a list opens an application.
    let closed = requested(json!({}), &[(ALLOW, "10.0.0.0/99")]);
    assert_eq!((closed.settings.networks, closed.invalid.len()), (Some(Vec::new()), 1));
}

#[test]
fn maxima() {
    let maxima = TrafficMaxima {
        request_timeout_seconds: Some(60),
        tunnel_timeout_seconds: Some(7_200),
        max_request_body_bytes: Some(1_000),
        requests_per_second: Some(10),
    };
    let get = |traffic| {
        let Settings { request_timeout_ms, tunnel_timeout_ms, body_bytes_max, requests_max, .. } =
            requested(traffic, &[]).within(Some(&maxima));
        [request_timeout_ms, tunnel_timeout_ms, body_bytes_max, requests_max.map(u64::from)].map(Option::unwrap)
    };
    let of = |factor: u64| {
        json!({"requestTimeoutSeconds": 30 * factor, "tunnelTimeoutSeconds": 3_600 * factor, "maxRequestBodyBytes": 500 * factor,
            "requestsPerSecond": 5 * factor})
    };
    // Nothing: the default or the maximum, whichever is less.
    assert_eq!(get(json!({})), [60_000, 3_600_000, 1_000, 100]);
    assert_eq!(get(of(1)), [30_000, 3_600_000, 500, 50]);
    assert_eq!(get(of(2)), [60_000, 7_200_000, 1_000, 100]);
    assert_eq!(get(of(3)), [60_000, 7_200_000, 1_000, 100]);
    let messages = |traffic| found(&requested(traffic, &[]), &[RouterKind::Haproxy], &maxima);
    let body = "NotSupported spec.traffic.maxRequestBodyBytes: HAProxy does not limit a body without Content-Length";
    assert_eq!(messages(of(2)), [body]);
    assert_eq!(
        messages(of(3)),
        [
            body,
            "AboveMaximum spec.traffic.requestTimeoutSeconds: 90 s is above the maximum of Router shard1, so 60 s applies",
            "AboveMaximum spec.traffic.tunnelTimeoutSeconds: 10800 s is above the maximum of Router shard1, so 7200 s applies",
            "AboveMaximum spec.traffic.maxRequestBodyBytes: 1500 bytes is above the maximum of Router shard1, so 1000 bytes applies",
            "AboveMaximum spec.traffic.requestsPerSecond: 15 requests per second is above the maximum of Router shard1, so 10 requests \
             per second applies",
        ]
    );
    let annotated = requested(json!({}), &[(TIMEOUT, "90s")]);
    let message =
        "AboveMaximum haproxy.router.openshift.io/timeout: 90 s is above the maximum of Router shard1, so 60 s applies";
    assert_eq!(found(&annotated, &[RouterKind::Nginx], &maxima), [message]);
    assert_eq!(requested(json!({}), &[]).within(None), Settings::default());
}

#[test]
fn support_of_the_proxies() {
    let all = json!({"requestTimeoutSeconds": 1, "tunnelTimeoutSeconds": 1, "maxRequestBodyBytes": 1, "stickySessions": {},
        "allowedNetworks": ["::/0"], "hsts": {"maxAgeSeconds": 1}, "requestsPerSecond": 1, "proxyProtocol": "v2", "upgrades": []});
    let names = |proxies: &[RouterKind], termination: Option<&str>, version: &str| {
        let mut traffic = all.clone();
        traffic["proxyProtocol"] = json!(version);
        let tls = termination.map(|termination| json!({"termination": termination}));
        let spec: RouteSpec = serde_json::from_value(json!({"traffic": traffic, "tls": tls})).expect("a spec");
        let found = found(&Requested::of(&spec, None), proxies, &TrafficMaxima::default());
        let name = |text: String| {
            text.split([' ', ':']).nth(1).and_then(|field| field.split('.').next_back().map(str::to_owned))
        };
        found.into_iter().filter_map(name).collect::<Vec<String>>().join(" ")
    };
    let unseen = "requestTimeoutSeconds tunnelTimeoutSeconds maxRequestBodyBytes stickySessions hsts requestsPerSecond";
    for (proxy, termination, version, expected) in [
        (RouterKind::Haproxy, Some("edge"), "v2", "maxRequestBodyBytes".to_owned()),
        (RouterKind::Haproxy, None, "v1", "maxRequestBodyBytes hsts".to_owned()),
        (RouterKind::Nginx, Some("reencrypt"), "v1", "stickySessions proxyProtocol".to_owned()),
        (RouterKind::Haproxy, Some("passthrough"), "v2", format!("{unseen} upgrades")),
        (RouterKind::Nginx, Some("passthrough"), "v1", format!("{unseen} upgrades")),
        (RouterKind::Nginx, Some("passthrough"), "v2", format!("{unseen} proxyProtocol upgrades")),
    ] {
        assert_eq!(names(&[proxy], termination, version), expected, "{proxy:?} {termination:?} {version}");
    }
    let nobody = found(&requested(all.clone(), &[]), &[], &TrafficMaxima::default());
    assert_eq!(nobody, ["NotSupported spec.traffic: no agent configures the proxies of Router shard1"]);
    assert_eq!(found(&requested(json!({}), &[]), &[], &TrafficMaxima::default()), [""; 0]);
}

#[test]
fn no_text_of_a_file_has_a_meaning_for_a_proxy() {
    for bad in [
        json!({"sticky": {"cookie": "a b"}}),
        json!({"sticky": {"cookie": "a\nb"}}),
        json!({"upgrades": ["a;b"]}),
        json!({"upgrades": ["h2c"]}),
        json!({"networks": ["10.0.0.0/8; }"]}),
    ] {
        assert!(serde_json::from_value::<Settings>(bad.clone()).is_err(), "{bad}");
    }
    let settings = requested(
        json!({"stickySessions": {"cookieName": "a"}, "upgrades": ["spdy/3.1"], "allowedNetworks": ["::1"]}),
        &[],
    );
    let text = serde_json::to_string(&settings.settings).expect("it is data");
    assert_eq!(serde_json::from_str::<Settings>(&text).expect("it was written so"), settings.settings);
}
