//! The table: good and bad objects of every kind.

use serde_json::{Value, json};

use super::Case;
use crate::kinds::fixture::NOW;
use crate::names;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(routers());
    cases.extend(sources());
    cases.extend(health_checks());
    cases.extend(selectors());
    cases.extend(routes());
    cases.extend(traffic());
    cases.extend(changed_routes());
    cases.extend(bindings());
    cases.extend(claims());
    cases.extend(zones());
    cases.extend(deletion_holds());
    cases
}

fn spec(spec: Value) -> Value {
    json!({"spec": spec})
}

/// Adds what `of` makes of each of these words.
fn judge(cases: &mut Vec<Case>, kind: &'static str, of: impl Fn(&str) -> Value, good: &str, bad: &str) {
    for (words, is_good) in [(good, true), (bad, false)] {
        cases.extend(words.split_whitespace().map(|word| (kind, None, of(word), is_good)));
    }
}

fn routers() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let long = format!("{}.example", ["a".repeat(60), "b".repeat(60), "c".repeat(59)].join("."));
    let too_long = format!("d{long}");
    let of = |dns: &str| spec(json!({"dns": dns}));
    judge(
        &mut cases,
        "Router",
        of,
        "s1.v3.example shards.elsewhere.test xn--bcher-kva.test test xroutes.v3.example av3.example",
        "_s.elsewhere.test s._s.elsewhere.test S1.v3.example s1.v3.example. s1..v3.example -s.test s_1.test \
         *.test bücher.test v3.example example routes.v3.example x.routes.v3.example",
    );
    for (dns, good) in [(&long, true), (&too_long, false)] {
        cases.push(("Router", None, of(dns), good));
    }
    let of = |ip: &str| spec(json!({"addresses": [{"ip": ip}]}));
    judge(
        &mut cases,
        "Router",
        of,
        "192.0.2.1 2001:db8::1 2001:DB8:0::1 127.0.0.1 ::1 169.254.1.1 fc00::1",
        "300.0.0.1 192.0.2.01 192.0.2.1/32 host 0.0.0.0 :: 224.0.0.1 239.1.1.1 ff02::1 255.255.255.255 \
         ::ffff:192.0.2.1 0:0:0:0:0:ffff:c000:201 fe80::1 fe80::1%eth0",
    );
    for (a, b, good) in [
        ("192.0.2.1", "192.0.2.2", true),
        ("192.0.2.1", "192.0.2.1", false),
        ("2001:db8::1", "2001:DB8:0::1", false),
        ("2001:db8::1", "2001:db8::2", true),
    ] {
        cases.push(("Router", None, spec(json!({"addresses": [{"ip": a}, {"ip": b}]})), good));
    }
    for (record, good) in [
        ("@ TXT \"x\"", true),
        ("@\tCAA 0 issue \"ca.example\"", true),
        ("ä TXT \"ö\"", true),
        ("", false),
        ("  \t\u{a0}\u{3000}", false),
        ("$INCLUDE /etc/passwd", false),
        (" \u{2003}$INCLUDE x", false),
        ("a$b TXT x", true),
        ("a A 192.0.2.1\nb A 192.0.2.2", false),
        ("a\r", false),
        ("a\u{85}b", false),
        ("a\u{7f}", false),
        ("a\0", false),
    ] {
        cases.push(("Router", None, spec(json!({"records": [record]})), good));
    }
    for (length, character, good) in [(8192, "x", true), (8193, "x", false), (4096, "ä", true), (4097, "ä", false)] {
        cases.push(("Router", None, spec(json!({"records": [character.repeat(length)]})), good));
    }
    cases
}

fn sources() -> Vec<Case> {
    let of = |from: Value| spec(json!({"addressesFrom": from}));
    let selector = json!({"matchLabels": {"app": "router"}});
    let wrong = json!({"matchExpressions": [{"key": "app", "operator": "In"}]});
    let mut cases: Vec<Case> = Vec::new();
    for (from, good) in [
        (json!({"instances": true}), true),
        (json!({"serviceSelector": selector, "namespace": "edge"}), true),
        (json!({"serviceSelector": selector, "namespace": "edge", "instances": false}), true),
        (json!({}), false),
        (json!({"instances": false}), false),
        (json!({"serviceSelector": selector}), false),
        (json!({"serviceSelector": selector, "namespace": "edge", "instances": true}), false),
        (json!({"instances": true, "namespace": "edge"}), false),
        (json!({"serviceSelector": wrong, "namespace": "edge"}), false),
    ] {
        cases.push(("Router", None, of(from), good));
    }
    for (ports, good) in [(json!({"http": 8080, "https": 8443}), true), (json!({"http": 443}), false)] {
        cases.push(("Router", None, spec(json!({"ports": ports})), good));
    }
    cases
}

fn health_checks() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (check, good) in [
        (json!({"port": 80}), true),
        (json!({}), false),
        (json!({"port": 0}), false),
        (json!({"port": 65_536}), false),
        (json!({"port": 1, "type": "https", "insecure": true, "rise": 10, "fall": 1}), true),
        (json!({"port": 1, "type": "udp"}), false),
        (json!({"port": 1, "intervalSeconds": 0}), false),
        (json!({"port": 1, "timeoutSeconds": 61}), false),
        (json!({"port": 1, "panicThreshold": 101}), false),
        (json!({"port": 1, "path": "/a?b=%20"}), true),
        (json!({"port": 1, "path": "a"}), false),
        (json!({"port": 1, "path": ""}), false),
        (json!({"port": 1, "path": "/a b"}), false),
        (json!({"port": 1, "path": "/\n"}), false),
        (json!({"port": 1, "path": "/ä"}), false),
        (json!({"port": 1, "expectedStatuses": "200,301-399"}), true),
        (json!({"port": 1, "expectedStatuses": vec!["200-299"; 16].join(",")}), true),
        (json!({"port": 1, "expectedStatuses": vec!["200"; 17].join(",")}), false),
        (json!({"port": 1, "expectedStatuses": "600"}), false),
        (json!({"port": 1, "expectedStatuses": "200-"}), false),
        (json!({"port": 1, "expectedStatuses": "200,399-301"}), false),
        (json!({"port": 1, "expectedStatuses": "2xx"}), false),
        (json!({"port": 1, "host": "www.Shop.test"}), true),
        (json!({"port": 1, "host": "localhost"}), true),
        (json!({"port": 1, "host": "a b"}), false),
        (json!({"port": 1, "host": "a."}), false),
        (json!({"port": 1, "host": ""}), false),
    ] {
        cases.push(("Router", None, spec(json!({"healthCheck": check})), good));
    }
    for (capacity, good) in [
        (json!({"soft": 5, "hard": 10}), true),
        (json!({"soft": 10, "hard": 10}), true),
        (json!({"soft": 11}), true),
        (json!({"soft": 11, "hard": 10}), false),
        (json!({"hard": -1}), false),
    ] {
        cases.push(("Router", None, spec(json!({"capacity": capacity})), good));
    }
    cases
}

fn selectors() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let long_label = "a".repeat(64);
    let long_prefix = format!("{}/a", ["b".repeat(63).as_str(); 4].join("."));
    for selector in ["routeSelector", "namespaceSelector"] {
        for (key, value, good) in [
            ("app", "shop", true),
            ("example.com/app_1", "", true),
            ("A.b-c", "A_1.b", true),
            (&long_label[..63], &long_label[..63], true),
            (&long_label, "x", false),
            ("app", &long_label, false),
            (&long_prefix, "x", false),
            ("Example.com/app", "x", false),
            ("a/b/c", "x", false),
            ("/app", "x", false),
            ("-a", "x", false),
            ("app", "-", false),
            ("app", "a b", false),
        ] {
            cases.push(("Router", None, spec(json!({selector: {"matchLabels": {key: value}}})), good));
            let expression = json!([{"key": key, "operator": "In", "values": [value]}]);
            cases.push(("Router", None, spec(json!({selector: {"matchExpressions": expression}})), good));
        }
        for (operator, values, good) in [
            ("In", json!(["a"]), true),
            ("NotIn", json!([]), false),
            ("Exists", json!([]), true),
            ("Exists", json!(["a"]), false),
            ("DoesNotExist", Value::Null, true),
            ("In", Value::Null, false),
            ("exists", Value::Null, false),
        ] {
            let mut expression = json!({"key": "a", "operator": operator});
            if !values.is_null() {
                expression["values"] = values;
            }
            cases.push(("Router", None, spec(json!({selector: {"matchExpressions": [expression]}})), good));
        }
        let many: serde_json::Map<String, Value> = (0..65).map(|number| (format!("l{number}"), json!("x"))).collect();
        cases.push(("Router", None, spec(json!({selector: {"matchLabels": many}})), false));
    }
    for (changed, good) in [
        (json!({}), true),
        (json!({"mode": "active-passive", "state": "draining", "ttl": 0, "weight": 1000}), true),
        (json!({"mode": "passive"}), false),
        (json!({"ttl": 86401}), false),
        (json!({"weight": -1}), false),
        (json!({"addresses": [{"ip": "192.0.2.1", "weight": 0}]}), false),
        (json!({"addresses": [{}]}), false),
    ] {
        cases.push(("Router", None, spec(changed), good));
    }
    for (dns, good) in [(Some("a.v3.example"), true), (Some("b.v3.example"), false), (None, true)] {
        let mut new = json!({"ttl": 5});
        if let Some(dns) = dns {
            new["dns"] = json!(dns);
        }
        cases.push(("Router", Some(spec(json!({"dns": "a.v3.example"}))), spec(new), good));
    }
    cases
}

fn routes() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let long = format!("{}.test", "a".repeat(64));
    let of = |host: &str| spec(json!({"host": host}));
    judge(
        &mut cases,
        "Route",
        of,
        "www.shop.test WWW.Shop.TEST *.shop.test _service.shop.test a-b.test 1.test av3.example example.com",
        "localhost *.test * a.*.test *.*.test *x.test www.shop.test. www..test -a.test a-.test a_b.test \
         __a.test bücher.test 192.0.2.1 a.1 xn--.test v3.example a.V3.example *.v3.example",
    );
    for (host, good) in [("", true), (&long, false)] {
        cases.push(("Route", None, of(host), good));
    }
    // Its own name, of the Route n-r in the namespace n, wherever a Router may be.
    for (part, good) in [
        (json!({"host": "n-n-r.s1.v3.example"}), true),
        (json!({"host": "N-N-R.s1.V3.example"}), true),
        (json!({"host": "n-other.s1.v3.example"}), false),
        (json!({"host": "n-r.s1.v3.example"}), false),
        (json!({"host": "*.n-n-r.s1.v3.example"}), false),
        (json!({"host": "shop.s1.v3.example", "subdomain": "Shop"}), true),
        (json!({"host": "shops.s1.v3.example", "subdomain": "shop"}), false),
        (json!({"host": "n-n-r.s1.v3.example", "subdomain": "shop"}), false),
    ] {
        cases.push(("Route", None, spec(part), good));
    }
    let longest = "a".repeat(63);
    let of = |subdomain: &str| spec(json!({"subdomain": subdomain}));
    judge(&mut cases, "Route", of, "shop Shop-1 routes1", "a.b a- a_b Routes localhost wpad ISATAP");
    for (subdomain, good) in [(longest.as_str(), true), ("", false)] {
        cases.push(("Route", None, of(subdomain), good));
    }
    let of = |path: &str| spec(json!({"path": path}));
    judge(&mut cases, "Route", of, "/ /shop/a%20b /ä", "shop /a?x /a#x");
    for (path, good) in [
        ("", true),
        ("/a b", false),
        ("/a\u{a0}b", false),
        ("/a\u{2028}b", false),
        ("/a\n", false),
        ("/a\u{85}", false),
    ] {
        cases.push(("Route", None, of(path), good));
    }
    cases
}

fn traffic() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (port, good) in [
        (json!(80), true),
        (json!(65535), true),
        (json!(0), false),
        (json!(65536), false),
        (json!(-1), false),
        (json!("https"), true),
        (json!("a-1"), true),
        (json!("80"), true),
        (json!("80-8080"), true),
        (json!(""), false),
        (json!("HTTP"), false),
        (json!("a--b"), true),
        (json!("-a"), false),
        (json!("a-"), false),
        (json!("a".repeat(63)), true),
        (json!("a".repeat(64)), false),
        (json!(true), false),
    ] {
        cases.push(("Route", None, spec(json!({"port": {"targetPort": port}})), good));
    }
    for (part, good) in [
        (json!({"to": {"name": "web"}}), true),
        (json!({"to": {"kind": "", "name": "web"}}), false),
        (json!({"to": {"kind": "Service"}}), false),
        (json!({"to": {"name": "web", "weight": 257}}), false),
        (json!({"tls": {"termination": "edge"}}), true),
        (json!({"tls": {"termination": "none"}}), false),
        (json!({"tls": {"termination": "edge"}, "path": "/x"}), true),
        (json!({"tls": {"termination": "passthrough"}, "path": ""}), true),
        (json!({"tls": {"termination": "passthrough"}, "path": "/"}), false),
        (json!({"tls": {"termination": "edge", "insecureEdgeTerminationPolicy": "None"}}), true),
        (json!({"tls": {"termination": "edge", "insecureEdgeTerminationPolicy": "Allow"}}), true),
        (json!({"tls": {"termination": "edge", "insecureEdgeTerminationPolicy": "redirect"}}), false),
        (json!({"tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Allow"}}), true),
        (json!({"tls": {"termination": "passthrough", "insecureEdgeTerminationPolicy": "None"}}), true),
        (json!({"tls": {"termination": "passthrough", "insecureEdgeTerminationPolicy": "Redirect"}}), true),
        (json!({"tls": {"termination": "passthrough", "insecureEdgeTerminationPolicy": "Allow"}}), false),
        (json!({"alternateBackends": [{"name": "b", "weight": 0}, {"name": "c"}, {"name": "d", "weight": 256}]}), true),
        (json!({"alternateBackends": [{"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"}]}), false),
        (json!({"alternateBackends": [{"name": "b"}, {"name": "b"}]}), false),
        (json!({"alternateBackends": [{"name": "b", "kind": ""}]}), false),
        (json!({"alternateBackends": [{"weight": 1}]}), false),
        (json!({"alternateBackends": [{"name": "b", "weight": 257}]}), false),
        (json!({"host": 7}), false),
    ] {
        cases.push(("Route", None, spec(part), good));
    }
    cases
}

fn changed_routes() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let own = "n-r.s1.v3.example";
    let scheduled = |spec: Value| {
        json!({"spec": spec, "status": {"phase": "scheduled", "router": "s1", "dns": own, "names": [
            {"name": own, "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]}})
    };
    let new = |spec: Value| json!({"spec": spec, "status": {"phase": "new"}});
    for (old, after, good) in [
        (new(json!({})), new(json!({"host": "a.shop.test", "subdomain": "b"})), true),
        (new(json!({"host": "a.shop.test"})), new(json!({})), true),
        (new(json!({})), new(json!({"host": own})), false),
        (new(json!({})), new(json!({"host": "n-n-r.s1.v3.example"})), true),
        (new(json!({"host": "n-n-r.s1.v3.example"})), new(json!({"host": "n-n-r.s1.v3.example", "path": "/x"})), true),
        (
            new(json!({"host": "n-n-r.s1.v3.example"})),
            new(json!({"host": "n-n-r.s1.v3.example", "subdomain": "b"})),
            false,
        ),
        (new(json!({})), new(json!({"subdomain": "routes"})), false),
        (scheduled(json!({})), scheduled(json!({"path": "/x", "host": ""})), true),
        (scheduled(json!({"host": ""})), scheduled(json!({})), true),
        (scheduled(json!({})), scheduled(json!({"host": "a.shop.test"})), false),
        (scheduled(json!({})), scheduled(json!({"host": own})), true),
        (scheduled(json!({})), scheduled(json!({"host": "N-R.s1.v3.example"})), true),
        (scheduled(json!({"host": own})), scheduled(json!({})), true),
        (scheduled(json!({"host": own})), scheduled(json!({"host": own, "path": "/x"})), true),
        (scheduled(json!({"host": "a.shop.test"})), scheduled(json!({"host": "a.shop.test", "path": "/"})), true),
        (scheduled(json!({"host": "a.shop.test"})), scheduled(json!({})), false),
        (scheduled(json!({"host": "a.shop.test"})), scheduled(json!({"host": "b.shop.test"})), false),
        (scheduled(json!({"host": "a.shop.test"})), scheduled(json!({"host": own})), false),
        (scheduled(json!({})), scheduled(json!({"subdomain": "b"})), false),
        (scheduled(json!({"subdomain": "b"})), scheduled(json!({"subdomain": "b"})), true),
        (scheduled(json!({"subdomain": "b"})), scheduled(json!({})), false),
    ] {
        cases.push(("Route", Some(old), after, good));
    }
    cases
}

fn bindings() -> Vec<Case> {
    let binding = |change: Value| {
        let mut spec = json!({"routeNamespace": "n", "routeName": "n-r", "routeUID": "u", "router": "s1",
            "dns": "s1.v3.example", "label": "n-r", "strategy": "round-robin", "names": [
                {"name": "n-r.s1.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let names = |list: &[(&str, &str)]| {
        let list: Vec<Value> = list.iter().map(|(kind, name)| json!({"name": name, "type": kind})).collect();
        json!({"names": list})
    };
    let former_names = |names: &[&str]| {
        let former = |name| json!({"name": name, "router": "s2", "since": NOW, "until": NOW});
        json!({"formerNames": names.iter().map(former).collect::<Vec<Value>>()})
    };
    let pending = |names: &[&str]| {
        let mut change = former_names(names);
        change["formerNames"].as_array_mut().unwrap().iter_mut().for_each(|former| former["from"] = json!(NOW));
        change
    };
    let (system, alias) = (("system", "n-r.s1.v3.example"), ("alias", "n-r.routes.v3.example"));
    let long = format!("{}.test", ["a".repeat(60).as_str(); 4].join("."));
    let mut cases: Vec<Case> = Vec::new();
    for (change, good) in [
        (json!({}), true),
        (json!({"routeName": "other"}), false),
        (json!({"routeUID": ""}), false),
        (json!({"router": ""}), false),
        (json!({"strategy": ""}), false),
        (json!({"label": "n.r"}), false),
        (json!({"label": ""}), false),
        (json!({"label": "a".repeat(64)}), false),
        (json!({"dns": "s2.v3.example"}), false),
        (
            json!({"dns": long, "label": "abcdefghij", "names": [
            {"name": "x.test", "type": "system"}, {"name": "abcdefghij.routes.v3.example", "type": "alias"}]}),
            false,
        ),
        (names(&[system, alias, ("custom", "www.shop.test")]), true),
        (former_names(&["n-r.s2.v3.example", "n-r.elsewhere.test"]), true),
        (former_names(&["n-r.s1.v3.example"]), false),
        (former_names(&["n-r."]), false),
        (former_names(&["n-x.s2.v3.example"]), false),
        (former_names(&["n-r.s2.v3.example", "n-r.s2.v3.example"]), false),
        (pending(&["n-r.s2.v3.example"]), true),
        (pending(&["n-r.s2.v3.example", "n-r.s3.v3.example"]), false),
        (names(&[system]), false),
        (names(&[alias]), false),
        (names(&[system, ("alias", "n-r.routes.v4.example")]), false),
        (names(&[system, alias, ("system", "x.s1.v3.example")]), false),
        (names(&[system, alias, ("alias", "x.routes.v3.example")]), false),
        (names(&[system, alias, ("custom", "a.shop.test"), ("custom", "b.shop.test")]), false),
        (names(&[system, system, alias]), false),
        (names(&[system, alias, ("other", "x")]), false),
    ] {
        cases.push(("RouteBinding", None, binding(change), good));
    }
    let moved = json!({"router": "s2", "dns": "s2.v3.example", "names": [
        {"name": "n-r.s2.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]});
    let relabelled = json!({"label": "x", "names": [
        {"name": "x.s1.v3.example", "type": "system"}, {"name": "x.routes.v3.example", "type": "alias"}]});
    for (change, good) in [(moved, true), (json!({"routeUID": "v"}), false), (relabelled, false)] {
        cases.push(("RouteBinding", Some(binding(json!({}))), binding(change), good));
    }
    cases
}

fn claims() -> Vec<Case> {
    let claim = |name: &str, kind: &str, value: &str, more: Value| {
        let mut spec = json!({"type": kind, "value": value, "since": NOW,
            "holder": {"namespace": "n", "name": "r", "uid": "u"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let label = |more: Value| claim("n-r", "label", "n-r", more);
    let host = |host: &str| claim(&names::host_claim_name(host), "host", host, json!({}));
    let mut cases: Vec<Case> = Vec::new();
    for (new, good) in [
        (label(json!({})), true),
        (claim("n-x", "label", "n-r", json!({})), false),
        (claim("n.r", "label", "n.r", json!({})), false),
        (claim("n-r", "label", "N-r", json!({})), false),
        (host("www.shop.test"), true),
        (host("*.shop.test"), true),
        (host("localhost"), false),
        (host("a.1"), false),
        (claim("www.shop.test", "host", "www.shop.test", json!({})), false),
        (claim("n-r", "name", "n-r", json!({})), false),
        (label(json!({"quarantineUntil": NOW})), false),
        (label(json!({"quarantineUntil": NOW, "releasedAt": NOW})), true),
        (label(json!({"holder": {"namespace": "", "name": "r", "uid": "u"}})), false),
        (label(json!({"holder": {"namespace": "n", "name": "", "uid": "u"}})), false),
        (label(json!({"holder": {"namespace": "n", "name": "r", "uid": ""}})), false),
        (label(json!({"holder": {"namespace": "n", "name": "r"}})), false),
        (label(json!({"since": "today"})), false),
    ] {
        cases.push(("NameClaim", None, new, good));
    }
    let (past, future) = ("2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z");
    let held = || label(json!({}));
    let quarantined = || label(json!({"releasedAt": past, "quarantineUntil": future}));
    let again = || label(json!({"holder": {"namespace": "n", "name": "r", "uid": "v"}}));
    let other = || label(json!({"holder": {"namespace": "m", "name": "r", "uid": "w"}}));
    for (old, new, good) in [
        (held(), again(), true),
        (held(), quarantined(), true),
        (held(), other(), false),
        (quarantined(), again(), true),
        (quarantined(), other(), false),
        (label(json!({"releasedAt": past, "quarantineUntil": past})), other(), true),
        (label(json!({"releasedAt": past})), other(), true),
        (held(), claim("n-r", "label", "other", json!({})), false),
        (
            host("www.shop.test"),
            claim(&names::host_claim_name("www.shop.test"), "host", "b.shop.test", json!({})),
            false,
        ),
        (held(), claim("n-r", "host", "n-r.test", json!({})), false),
    ] {
        cases.push(("NameClaim", Some(old), new, good));
    }
    cases
}

fn zones() -> Vec<Case> {
    let version = |digest: &str| json!({"serial": 1, "digest": digest, "at": NOW});
    let mut cases: Vec<Case> = Vec::new();
    for (new, good) in [
        (json!({"type": "shard", "router": "s1", "versions": [version("00ffAB")]}), true),
        (json!({"type": "parent"}), true),
        (json!({"type": "parent", "router": ""}), true),
        (json!({"type": "shard"}), false),
        (json!({"type": "shard", "router": ""}), false),
        (json!({"type": "alias", "router": "s1"}), false),
        (json!({"type": "other"}), false),
        (json!({"type": "parent", "versions": [version("")]}), false),
        (json!({"type": "parent", "versions": [version("xyz")]}), false),
        (json!({"type": "parent", "versions": [{"serial": -1, "digest": "0", "at": NOW}]}), false),
        (json!({"type": "parent", "versions": [{"serial": 1, "digest": "0", "at": "now"}]}), false),
    ] {
        cases.push(("Zone", None, spec(new), good));
    }
    let long = format!("{}.test", "a".repeat(64));
    for (name, good) in [("v3.example", true), ("test", true), (long.as_str(), false), ("a_b.test", false)] {
        cases.push(("Zone", None, json!({"metadata": {"name": name}, "spec": {"type": "parent"}}), good));
    }
    let update = |kind: &str| spec(json!({"type": kind}));
    cases.push(("Zone", Some(update("parent")), update("parent"), true));
    cases.push(("Zone", Some(update("parent")), update("alias"), false));
    cases
}

fn deletion_holds() -> Vec<Case> {
    let deletion_hold = |more: Value| {
        let mut spec = json!({"type": "Router", "objects": 3, "known": 3, "cause": "list", "names": ["a", "b", "c"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": spec})
    };
    let mut cases: Vec<Case> = Vec::new();
    for (change, good) in [
        (json!({}), true),
        (json!({"names": vec!["a"; 20]}), true),
        (json!({"names": vec!["a"; 21]}), false),
        (json!({"type": "Zone"}), false),
        (json!({"cause": "whim"}), false),
        (json!({"objects": -1}), false),
        (json!({"decision": "perhaps"}), false),
    ] {
        cases.push(("DeletionHold", None, deletion_hold(change), good));
    }
    for (change, good) in [
        (json!({"decision": "approve", "decidedAt": NOW}), true),
        (json!({"decision": "reject"}), true),
        (json!({"type": "RouteBinding"}), false),
        (json!({"objects": 4}), false),
        (json!({"known": 4}), false),
        (json!({"cause": "burst"}), false),
        (json!({"names": ["a", "b"]}), false),
    ] {
        cases.push(("DeletionHold", Some(deletion_hold(json!({}))), deletion_hold(change), good));
    }
    cases
}
