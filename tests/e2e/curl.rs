//! `signpost curl` and `signpost explain route` at the end of the way: the instances of a Router and the endpoints behind them.

use serde_json::Value;

use crate::agent::{Agent, application, platform, route, router, service};
use signpost_testing::program::{self, run};
use signpost_testing::{DataDir, Ports, until};

#[test]
fn every_instance_is_requested_and_names_the_endpoint() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let (server, kubectl) = platform(&data, ports);
    let mut agent = Agent::new(&data, ports.dns);
    let own = format!("{{ip: {}}}", agent.http.ip());
    kubectl.ok_with(&["apply", "-f", "-"], &router(&own));
    let endpoint = application("shop");
    let edge = route("edge", "shop").replace("spec: {", "spec: {tls: {termination: edge}, ");
    let objects = service("shop", endpoint) + &route("shop", "shop") + &route("none", "none") + &edge;
    kubectl.ok_with(&["apply", "-f", "-"], &objects);
    agent.start();
    agent.answers("web-shop.shard1.example.org", 200, "shop");
    agent.answers("web-none.shard1.example.org", 503, "");

    let (at, port) = (format!("@{}", server.dns), agent.http.port().to_string());
    let curl = |words: &[&str]| {
        // The Router's status has the ports.
        let fixed = ["curl", &at, "-o", "json"];
        let ran = run(&[&fixed[..], words].concat());
        let report = serde_json::from_str::<Value>(&ran.out).unwrap_or_default();
        (ran.code, report, ran.err)
    };
    let directory = ["--data-dir", data.path()];
    let admin = |words: &[&str]| curl(&[words, &directory].concat());
    let mut ids = Vec::new();
    for words in
        [&["shop", "-n", "web"][..], &["web/shop"], &["web-shop.shard1.example.org"], &["web-shop.routes.example.org"]]
    {
        // DNS answers after the Route is scheduled.
        until(&format!("{words:?} succeeds"), || match admin(words) {
            (Some(0), ..) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let (_, report, errors) = admin(words);
        let answer = &report["answers"][0];
        assert_eq!(report["answers"].as_array().map(Vec::len), Some(1), "{words:?}: {report} {errors}");
        assert_eq!((&answer["status"], &answer["address"]), (&200.into(), &agent.http.to_string().into()), "{report}");
        let backend = &answer["backend"];
        assert_eq!(
            (&backend["service"], &backend["address"]),
            (&"shop".into(), &endpoint.to_string().into()),
            "{report}"
        );
        let time = |name: &str| answer[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
        assert!(time("connectMilliseconds") <= time("firstByteMilliseconds"), "{report}");
        assert!(time("firstByteMilliseconds") <= time("totalMilliseconds"), "{report}");
        ids.push(backend["id"].clone());
    }
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");
    // Without the API, the identifier has to do.
    let absent = data.join("none").display().to_string();
    let (code, report, errors) = curl(&["web-shop.shard1.example.org", "--kubeconfig", &absent, "--port", &port]);
    assert_eq!((code, &report["answers"][0]["backend"]), (Some(0), &serde_json::json!({"id": ids[0]})), "{errors}");

    let (code, report, errors) = admin(&["web/none"]);
    let answer = &report["answers"][0];
    assert_eq!((code, &answer["status"], &answer["backend"]), (Some(1), &503.into(), &Value::Null), "{report}");
    assert!(errors.contains("returned 503"), "{errors}");
    assert_eq!(answer["proxy"], true, "the proxy answers itself: {report}");
    // The default certificate is for no host.
    let edge = |words: &[&str]| {
        let ran = run(&[&["curl", &at, "web/edge", "--https", "-o", "json"][..], words, &directory].concat());
        (ran.code, serde_json::from_str::<Value>(&ran.out).unwrap_or_default(), ran.err)
    };
    let (code, report, errors) = edge(&["-k"]);
    assert_eq!((code, &report["answers"][0]["backend"]["service"]), (Some(0), &"shop".into()), "{report} {errors}");
    let (code, _, errors) = edge(&[]);
    assert!(code == Some(1) && errors.contains("certificate"), "{errors}");
    let (code, _, errors) = admin(&["x.y.example.org"]);
    assert!(code == Some(1) && errors.contains("NXDOMAIN"), "{errors}");

    // An address without an instance.
    kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{own}, {{ip: 127.0.0.2}}")));
    until("both addresses are requested", || {
        let (code, report, errors) = admin(&["web/shop"]);
        let statuses: Vec<&Value> =
            report["answers"].as_array().into_iter().flatten().map(|answer| &answer["status"]).collect();
        let is_right = code == Some(1) && statuses == [&Value::from(200), &Value::Null];
        let is_reported = errors.contains("127.0.0.2:80") && errors.contains("connection refused");
        if is_right && is_reported { Ok(()) } else { Err(format!("{code:?} {report} {errors}")) }
    });

    // Of a shard without an agent, another server may have the address; it gets no request unless the user wants that.
    let other = router(&format!("{{ip: {}}}", endpoint.ip())).replace("shard1", "static");
    kubectl.ok_with(&["apply", "-f", "-"], &other);
    let name = "any.static.example.org";
    until("no request is sent", || {
        let (code, _, errors) = admin(&[name]);
        let is_right = code == Some(1) && errors.contains("no agent reports from Router static");
        if is_right { Ok(()) } else { Err(format!("{code:?} {errors}")) }
    });
    let (code, report, errors) = admin(&[name, "--any-address", "--port", &endpoint.port().to_string()]);
    let answer = &report["answers"][0];
    assert_eq!((code, &answer["status"], &answer["proxy"]), (Some(1), &200.into(), &false.into()), "{report} {errors}");
    assert!(errors.contains("not from a proxy"), "{errors}");
    // The API lists the name servers, and that of this platform does not exist.
    let ran = run(&["curl", name, "--data-dir", data.path()]);
    assert!(ran.code == Some(1) && ran.err.contains(" to 192.0.2.53:53 failed"), "{}", ran.err);

    let explain = |name: &str| program::ok(&[&["explain", "route", name][..], &directory].concat());
    let text = explain("web/shop");
    assert!(text.contains("Service shop, port 80, weight 100: 1 endpoint ready"), "{text}");
    let text = explain("web/none");
    for line in ["Service none, port 80, weight 100: 0 endpoints ready", "NoService: Service none does not exist"] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
