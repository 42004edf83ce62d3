//! The strategy `webhook`: its requests, the use of its responses, and the behavior without them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::scheduler::webhook::Settings;
use signpost_runtime::httpd::{self, Limits};
use signpost_runtime::tls::{self, Authority};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::scheduling::{Running, per_router, platform_with_sockets, scheduled, start_with};
use super::{Scene, condition, namespace, route, router, until};

/// The reaction of an endpoint to a request.
#[derive(Clone)]
enum Reply {
    /// Answers this.
    Json(Value),
    /// Answers this status and text.
    Raw(u16, String),
    /// Answers when the switch is set.
    Later(watch::Receiver<bool>, Value),
    /// Does not answer.
    Never,
}

/// A web server that plays an operator's endpoint, and records the requests.
struct Endpoint {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
    /// The required token, if any; requests without it get a 401.
    token: Arc<Mutex<Option<String>>>,
    server: JoinHandle<()>,
}

impl Endpoint {
    async fn start(tls: Option<&Authority>, reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Endpoint {
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let token: Arc<Mutex<Option<String>>> = Arc::default();
        let (questions, wanted, reply) = (Arc::clone(&asked), Arc::clone(&token), Arc::new(reply));
        let service = Router::new().fallback(move |request: Request| {
            let (questions, reply) = (Arc::clone(&questions), Arc::clone(&reply));
            let wanted = wanted.lock().expect("no holder panics").clone().map(|token| format!("Bearer {token}"));
            async move {
                let shown =
                    request.headers().get("authorization").map(|value| value.to_str().expect("text").to_owned());
                if wanted.is_some() && shown != wanted {
                    return answer(Reply::Raw(401, String::new())).await;
                }
                let body = to_bytes(request.into_body(), 1 << 20).await.expect("a small body");
                let question: Value = serde_json::from_slice(&body).expect("a question is JSON");
                let reply = reply(&question);
                questions.lock().expect("no holder panics").push(question);
                answer(reply).await
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let tls = tls.map(|authority| authority.server_config(None).expect("a configuration"));
        let serving = httpd::serve(listener, tls, service, Limits::default(), CancellationToken::new());
        Endpoint { url: format!("{scheme}://{address}/choose"), asked, token, server: tokio::spawn(serving) }
    }

    fn chooser(&self) -> StrategyConfig {
        chooser(&self.url, Duration::from_secs(20), None)
    }

    fn questions(&self) -> Vec<Value> {
        self.asked.lock().expect("no holder panics").clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(reply: Reply) -> Response {
    let (status, text) = match reply {
        Reply::Json(value) => (200, value.to_string()),
        Reply::Raw(status, text) => (status, text),
        Reply::Later(mut released, value) => {
            released.wait_for(|released| *released).await.expect("the test continues");
            (200, value.to_string())
        }
        Reply::Never => std::future::pending().await,
    };
    Response::builder().status(status).body(Body::from(text)).expect("a response")
}

fn chooser(url: &str, timeout: Duration, authorities: Option<PathBuf>) -> StrategyConfig {
    let (url, fallback) = (url.to_owned(), StrategyName::LeastRoutes);
    StrategyConfig::Webhook(Settings { url, timeout, authorities, token: None, fallback })
}

fn start_choosing(api: &Scene, chooser: &StrategyConfig) -> Running {
    start_with(api, |settings| settings.chooser = chooser.clone())
}

/// Returns the strategy that chose the route's Router, the Router, and the text.
fn choice(api: &Scene, name: &str) -> (String, String, String) {
    let binding = api.get("routebindings", "ns", name).expect("it is bound");
    let text = |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/spec/strategy"), text("/spec/router"), text("/spec/explanation/summary"))
}

#[tokio::test]
async fn it_is_asked_and_its_choice_is_carried_out_and_kept() {
    let api = platform_with_sockets(2).await;
    api.put("routers", router("shard3", &json!({"state": "cordoned"})));
    let endpoint = Endpoint::start(None, |_| {
        Reply::Json(json!({"router": "shard2", "reason": "it is near", "scores": {"shard1": -5, "shard2": 7}}))
    })
    .await;
    let mut wanted = route("ns", "app", &json!({"path": "/shop", "to": {"kind": "Service", "name": "web"}}));
    wanted["metadata"]["labels"] = json!({"tier": "gold"});
    api.put("routes", wanted);
    let running = start_choosing(&api, &endpoint.chooser());
    until("it is scheduled", || scheduled(&api) == 1).await;
    let [question] = &endpoint.questions()[..] else { panic!("one question: {:?}", endpoint.questions()) };
    assert_eq!(
        (&question["apiVersion"], &question["kind"]),
        (&json!("signpost.dev/v1alpha1"), &json!("PlacementQuestion"))
    );
    let asked = &question["route"];
    assert_eq!((&asked["namespace"], &asked["name"], &asked["host"]), (&json!("ns"), &json!("app"), &json!(null)));
    assert_eq!((&asked["labels"], &asked["spec"]["path"]), (&json!({"tier": "gold"}), &json!("/shop")));
    assert_eq!(asked["uid"], api.get("routes", "ns", "app").expect("it is there")["metadata"]["uid"]);
    let names: Vec<&Value> = question["routers"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["shard1", "shard2"], "only those that may take it");
    assert_eq!(question["routers"][0]["families"], json!(["ipv4"]));
    assert_eq!((&question["snapshot"]["considered"], &question["snapshot"]["undecided"]), (&json!(3), &json!(0)));
    let (strategy, chosen, summary) = choice(&api, "app");
    assert_eq!((strategy.as_str(), chosen.as_str()), ("webhook", "shard2"));
    assert_eq!(
        summary,
        "strategy webhook selected shard2: 2 of 3 Routers feasible; it is near; filtered out: 1 Cordoned"
    );
    let explanation = &api.get("routebindings", "ns", "app").expect("it is bound")["spec"]["explanation"];
    let scores: Vec<&Value> =
        explanation["routers"].as_array().expect("a list").iter().map(|verdict| &verdict["score"]).collect();
    assert_eq!(scores, [&json!(7), &json!(-5), &json!(null)]);
    running.stop().await;
}

#[tokio::test]
async fn without_a_good_answer_the_fallback_decides_and_says_why() {
    let ready = |text: &str| Reply::Raw(200, text.to_owned());
    for (reply, asked, part) in [
        (Reply::Raw(500, String::new()), 2, "the webhook returned 500"),
        (Reply::Raw(429, String::new()), 2, "the webhook returned 429"),
        (Reply::Raw(404, r#"{"router":"shard2"}"#.to_owned()), 1, "the webhook returned 404"),
        (Reply::Raw(204, String::new()), 1, "returned an invalid response: EOF"),
        (Reply::Raw(302, String::new()), 1, "the webhook returned 302"),
        (ready("shard2"), 1, "returned an invalid response: expected value"),
        (ready(r#"{"router":["shard2"]}"#), 1, "returned an invalid response: invalid type"),
        (ready(&format!(r#"{{"router":"shard2","reason":"{}"}}"#, "x".repeat(1 << 20))), 1, "returned more than"),
        (ready(r#"{"router":"shard9"}"#), 1, r#"returned "shard9", which is not one of the feasible Routers"#),
        (ready(r#"{"router":"shard3"}"#), 1, r#"returned "shard3", which is not one of the feasible Routers"#),
        (ready(r#"{"router":""}"#), 1, r#"returned "", which is not one"#),
        (Reply::Never, 2, "the webhook did not answer within 2000 ms"),
    ] {
        let api = platform_with_sockets(2).await;
        api.put("routers", router("shard3", &json!({"state": "cordoned"})));
        let endpoint = Endpoint::start(None, move |_| reply.clone()).await;
        api.put("routes", route("ns", "app", &json!({})));
        // Long enough for the request to arrive on a busy machine.
        let waits = Duration::from_secs(if part.contains("2000 ms") { 2 } else { 20 });
        let running = start_choosing(&api, &chooser(&endpoint.url, waits, None));
        until(part, || scheduled(&api) == 1).await;
        let (strategy, chosen, summary) = choice(&api, "app");
        assert_eq!((strategy.as_str(), chosen.as_str()), ("least-routes", "shard1"), "{part}");
        assert!(summary.starts_with("strategy least-routes selected shard1: 2 of 3 Routers feasible; "), "{summary}");
        assert!(summary.contains(part) && summary.ends_with("; filtered out: 1 Cordoned"), "{summary}");
        assert_eq!(endpoint.questions().len(), asked, "{part}");
        running.stop().await;
    }
}

#[tokio::test]
async fn one_that_is_away_is_left_alone() {
    let api = platform_with_sockets(2).await;
    for i in 0..200 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    // No other process gets the address, and it has no listener.
    let nobody = TcpSocket::new_v4().expect("a socket");
    nobody.bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
    let address = nobody.local_addr().expect("is bound");
    let running = start_choosing(&api, &chooser(&format!("http://{address}/"), Duration::from_secs(20), None));
    until("all are placed", || scheduled(&api) == 200).await;
    assert_eq!(per_router(&api), [1, 2].map(|i| (format!("shard{i}"), 100)).into());
    let of = |part: &str| (0..200).filter(|i| choice(&api, &format!("r{i}")).2.contains(part)).count();
    let (tried, spared) = (of("the webhook is unreachable"), of("the webhook is not called after"));
    assert_eq!(tried + spared, 200);
    assert!(tried >= 5 && spared >= 100, "{tried} tried, {spared} spared");
    running.stop().await;
}

#[tokio::test]
async fn a_slow_answer_keeps_no_other_route_waiting() {
    let api = platform_with_sockets(2).await;
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |question| {
        let answer = json!({"router": "shard1"});
        if question["route"]["name"] == "slow" { Reply::Later(released.clone(), answer) } else { Reply::Json(answer) }
    })
    .await;
    api.put("routes", route("ns", "slow", &json!({})));
    let running = start_choosing(&api, &endpoint.chooser());
    until("the webhook gets the slow one", || !endpoint.questions().is_empty()).await;
    for i in 0..40 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    until("all others are placed", || scheduled(&api) == 40).await;
    assert!(api.get("routebindings", "ns", "slow").is_none());
    let undecided = endpoint.questions().iter().filter(|question| question["snapshot"]["undecided"] != 0).count();
    assert!(undecided > 0, "the other requests report that one is undecided");
    release.send_replace(true);
    until("it is placed", || scheduled(&api) == 41).await;
    assert_eq!(choice(&api, "slow").0, "webhook");
    running.stop().await;
}

#[tokio::test]
async fn an_answer_that_came_too_late_gives_no_router_more_than_it_may_have() {
    let api = platform_with_sockets(0).await;
    api.put("routers", router("shard1", &json!({"capacity": {"hard": 5}})));
    api.put("routers", router("shard2", &json!({})));
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |_| Reply::Later(released.clone(), json!({"router": "shard1"}))).await;
    for i in 0..30 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    let running = start_choosing(&api, &endpoint.chooser());
    // The maximum of calls in flight, all with the information that there is room.
    until("the webhook gets sixteen", || endpoint.questions().len() == 16).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(endpoint.questions().len(), 16, "exactly the limit");
    release.send_replace(true);
    until("all are placed", || scheduled(&api) == 30).await;
    assert_eq!(per_router(&api), [("shard1".to_owned(), 5), ("shard2".to_owned(), 25)].into());
    running.stop().await;
}

#[tokio::test]
async fn a_quota_holds_while_routes_are_asked_about() {
    let api = platform_with_sockets(1).await;
    let mut bounded = namespace("ns");
    bounded["metadata"]["annotations"] = json!({"signpost.dev/route-quota": "2"});
    api.put("namespaces", bounded);
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |_| Reply::Later(released.clone(), json!({"router": "shard1"}))).await;
    for i in 0..5 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    let running = start_choosing(&api, &endpoint.chooser());
    until("the webhook gets all", || endpoint.questions().len() == 5).await;
    release.send_replace(true);
    let refused = || {
        let says =
            |route: &Value| condition(route, "Scheduled").is_some_and(|(_, reason, _)| reason == "QuotaExceeded");
        api.count("routes", says)
    };
    until("two are placed and three are not", || scheduled(&api) == 2 && refused() == 3).await;
    running.stop().await;
}

#[tokio::test]
async fn a_route_that_changes_meanwhile_is_asked_about_anew() {
    let api = platform_with_sockets(2).await;
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |question| {
        let gold = question["route"]["labels"]["tier"] == "gold";
        let answer = json!({"router": if gold { "shard2" } else { "shard1" }});
        if gold { Reply::Json(answer) } else { Reply::Later(released.clone(), answer) }
    })
    .await;
    api.put("routes", route("ns", "app", &json!({})));
    let running = start_choosing(&api, &endpoint.chooser());
    until("the webhook gets it", || endpoint.questions().len() == 1).await;
    let mut changed = api.get("routes", "ns", "app").expect("it is there");
    changed["metadata"]["labels"] = json!({"tier": "gold"});
    api.put("routes", changed);
    // The scheduler must receive the change before the answer arrives.
    tokio::time::sleep(Duration::from_millis(50)).await;
    release.send_replace(true);
    until("it is scheduled", || scheduled(&api) == 1).await;
    assert_eq!(choice(&api, "app").1, "shard2");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tls_its_certificate_must_be_of_an_authority_that_is_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::open(folder.path(), tls::loopback_names(), SystemTime::now()).expect("an authority");
    let endpoint = Endpoint::start(Some(&authority), |_| Reply::Json(json!({"router": "shard2"}))).await;
    let ca = folder.path().join("trusted.pem");
    std::fs::write(&ca, authority.certificate_pem().as_bytes()).expect("written");
    let absent = folder.path().join("absent.pem");
    for (authorities, strategy, part) in [
        (Some(ca), "webhook", "strategy webhook selected shard2"),
        (
            None,
            "least-routes",
            "the webhook is unreachable: the certificate is not signed by an authority that this machine trusts",
        ),
        (Some(absent), "least-routes", "absent.pem: No such file"),
    ] {
        let api = platform_with_sockets(2).await;
        api.put("routes", route("ns", "app", &json!({})));
        let running = start_choosing(&api, &chooser(&endpoint.url, Duration::from_secs(20), authorities));
        until(part, || scheduled(&api) == 1).await;
        let (chose, _, summary) = choice(&api, "app");
        assert!(chose == strategy && summary.contains(part), "{chose}: {summary}");
        running.stop().await;
    }
}

#[tokio::test]
async fn it_is_shown_the_token_of_a_file_as_the_file_is_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let endpoint = Endpoint::start(None, |_| Reply::Json(json!({"router": "shard2"}))).await;
    let StrategyConfig::Webhook(settings) = endpoint.chooser() else { panic!("a webhook") };
    let with_token = StrategyConfig::Webhook(Settings { token: Some(file.clone()), ..settings });
    let api = platform_with_sockets(2).await;
    let running = start_choosing(&api, &with_token);
    for (count, (wanted, held, strategy, part)) in [
        ("one", Some("one\n"), "webhook", "strategy webhook selected shard2"),
        (
            "two",
            Some("one\n"),
            "least-routes",
            "returned 401 Unauthorized: it does not accept the token in webhook.token-file",
        ),
        ("two", Some("  two"), "webhook", "strategy webhook selected shard2"),
        ("two", Some("two three"), "least-routes", "webhook.token-file: the file must contain exactly one token"),
        ("two", Some("\n"), "least-routes", "webhook.token-file: the file must contain exactly one token"),
        ("two", None, "least-routes", "cannot be called: webhook.token-file: No such file"),
        ("two", Some("two"), "webhook", "strategy webhook selected shard2"),
    ]
    .into_iter()
    .enumerate()
    {
        *endpoint.token.lock().expect("no holder panics") = Some(wanted.to_owned());
        match held {
            Some(text) => std::fs::write(&file, text).expect("written"),
            None => std::fs::remove_file(&file).expect("removed"),
        }
        let name = format!("r{count}");
        api.put("routes", route("ns", &name, &json!({})));
        until(part, || scheduled(&api) == count + 1).await;
        let (chose, _, summary) = choice(&api, &name);
        assert!(chose == strategy && summary.contains(part), "{chose}: {summary}");
        assert!(!summary.contains(folder.path().to_str().expect("UTF-8")), "tenants read it: {summary}");
    }
    running.stop().await;
    let api = platform_with_sockets(2).await;
    api.put("routes", route("ns", "app", &json!({})));
    let running = start_choosing(&api, &endpoint.chooser());
    until("it is placed", || scheduled(&api) == 1).await;
    let summary = choice(&api, "app").2;
    assert!(summary.contains("it requires a token: set webhook.token-file"), "{summary}");
    running.stop().await;
}

#[tokio::test]
async fn another_strategy_takes_over_while_it_runs_and_moves_nothing() {
    let api = platform_with_sockets(2).await;
    let endpoint = Endpoint::start(None, |_| Reply::Json(json!({"router": "shard2"}))).await;
    let (running, switch) = super::scheduling::start_switchable(&api, |_| (), |_| ());
    let mut bound = 0;
    for (chooser, name) in [
        (StrategyConfig::Strategy(StrategyName::RoundRobin), "round-robin"),
        (endpoint.chooser(), "webhook"),
        (StrategyConfig::Strategy(StrategyName::Rendezvous), "rendezvous"),
    ] {
        let before = api.all("routebindings");
        switch.send_replace(chooser);
        // The switch is a message to the loop, which takes it before or just after these Routes.
        tokio::time::sleep(Duration::from_millis(50)).await;
        for i in 0..6 {
            api.put("routes", route("ns", &format!("{name}-{i}"), &json!({})));
        }
        bound += 6;
        until("six more are placed", || scheduled(&api) == bound).await;
        for i in 0..6 {
            assert_eq!(choice(&api, &format!("{name}-{i}")).0, name);
        }
        let now = api.all("routebindings");
        assert!(before.iter().all(|binding| now.contains(binding)), "existing bindings do not change");
    }
    // Calls in flight are not waited for.
    let silent = Endpoint::start(None, |_| Reply::Never).await;
    switch.send_replace(silent.chooser());
    tokio::time::sleep(Duration::from_millis(50)).await;
    for i in 0..20 {
        api.put("routes", route("ns", &format!("silent-{i}"), &json!({})));
    }
    bound += 20;
    until("the webhook gets sixteen", || silent.questions().len() == 16).await;
    switch.send_replace(StrategyConfig::Strategy(StrategyName::RoundRobin));
    until("all are placed", || scheduled(&api) == bound).await;
    assert!((0..20).all(|i| choice(&api, &format!("silent-{i}")).0 == "round-robin"));
    // A route that only the new strategy can place is scheduled again.
    for name in ["shard1", "shard2"] {
        api.put("routers", router(name, &json!({"weight": 0})));
    }
    switch.send_replace(StrategyConfig::Strategy(StrategyName::Weighted));
    tokio::time::sleep(Duration::from_millis(50)).await;
    api.put("routes", route("ns", "late", &json!({})));
    let weightless = || {
        let route = api.get("routes", "ns", "late").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(_, _, message)| message.contains("has weight 0"))
    };
    until("weight 0 is reported", weightless).await;
    switch.send_replace(StrategyConfig::Strategy(StrategyName::LeastRoutes));
    until("it is placed", || scheduled(&api) == bound + 1).await;
    running.stop().await;
}

#[tokio::test]
async fn a_host_goes_to_the_route_that_was_looked_at_first_whoever_is_answered_first() {
    let api = platform_with_sockets(1).await;
    api.put("namespaces", namespace("other"));
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |question| {
        let answer = json!({"router": "shard1"});
        let is_first = question["route"]["name"] == "first";
        if is_first { Reply::Later(released.clone(), answer) } else { Reply::Json(answer) }
    })
    .await;
    let running = start_choosing(&api, &endpoint.chooser());
    let host = |host: &str| json!({"host": host});
    api.put("routes", route("ns", "first", &host("www.shop.example")));
    until("the webhook gets the first", || !endpoint.questions().is_empty()).await;
    // One requests the same host, one a wildcard above it, one another host.
    api.put("routes", route("ns", "second", &host("WWW.shop.example")));
    api.put("routes", route("other", "around", &host("*.shop.example")));
    api.put("routes", route("other", "separate", &host("www.separate.example")));
    let message = |namespace: &str, name: &str| {
        let route = api.get("routes", namespace, name).expect("it is there");
        condition(&route, "Admitted").map(|(_, _, message)| message).unwrap_or_default()
    };
    until("the separate one is placed", || api.get("routebindings", "other", "separate").is_some()).await;
    until("the others wait", || {
        message("ns", "second") == "WWW.shop.example with the path / is being assigned to Route first"
            && message("other", "around") == "*.shop.example covers a host that a Route of another namespace holds"
    })
    .await;
    release.send_replace(true);
    until("the first has it", || api.get("routebindings", "ns", "first").is_some()).await;
    until("the second knows", || message("ns", "second") == "WWW.shop.example with the path / is held by Route first")
        .await;
    assert_eq!(scheduled(&api), 2);
    running.stop().await;
}

#[tokio::test]
async fn a_host_that_was_kept_for_a_route_goes_to_the_next_if_that_goes() {
    let api = platform_with_sockets(1).await;
    let (release, released) = watch::channel(false);
    let endpoint = Endpoint::start(None, move |question| {
        let answer = json!({"router": "shard1"});
        let is_first = question["route"]["name"] == "first";
        if is_first { Reply::Later(released.clone(), answer) } else { Reply::Json(answer) }
    })
    .await;
    let running = super::scheduling::start_both(&api, |settings| settings.chooser = endpoint.chooser(), |_| ());
    let host = json!({"host": "www.shop.example"});
    api.put("routes", route("ns", "first", &host));
    until("the webhook gets the first", || !endpoint.questions().is_empty()).await;
    api.put("routes", route("ns", "second", &host));
    until("the second waits", || {
        condition(&api.get("routes", "ns", "second").expect("it is there"), "Admitted").is_some()
    })
    .await;
    api.delete("routes", "ns", "first");
    release.send_replace(true);
    until("the second is placed", || api.get("routebindings", "ns", "second").is_some()).await;
    running.stop().await;
}
