//! A platform of many Routes on 50 shards, in the real program: the page does not grow with it, search and filters find, and what
//! kubectl applies is seen.
//!
//! `SIGNPOST_DASHBOARD_ROUTES=10000 cargo test --test dashboard many_routes -- --nocapture` prints the figures of docs/dashboard.md.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use signpost_control::client;
use signpost_control::client::failover::Servers;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

use crate::Example;
use crate::browser::Browser;
use signpost_testing::{Scrape, wait_for};

/// The number of Routes by default: more than a page has rows, and fast to create in a debug build.
const ROUTES: usize = 2_000;
const SHARDS: usize = 50;
const NAMESPACES: usize = 200;
/// The number of concurrent requests while the platform is created.
const AT_A_TIME: usize = 64;

/// Returns the number of Routes in the environment, otherwise this one.
pub fn routes_wanted(default: usize) -> usize {
    let count = std::env::var("SIGNPOST_DASHBOARD_ROUTES");
    count.map_or(default, |count| count.parse().expect("SIGNPOST_DASHBOARD_ROUTES is a number"))
}

fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Makes Routers, Namespaces and this number of Routes through the API.
async fn make(kubeconfig: &std::path::Path, count: usize) {
    let client = client(kubeconfig).await;
    let routers: Api<Router> = Api::all(client.clone());
    for shard in 0..SHARDS {
        let spec = json!({
            "addresses": [{"ip": format!("192.0.2.{shard}")}, {"ip": format!("2001:db8::{shard}")}],
            "capacity": {"soft": 250, "hard": 400},
        });
        let router = object("Router", json!({"name": format!("shard{shard}")}), spec);
        let router = serde_json::from_value(router).expect("a Router");
        routers.create(&PostParams::default(), &router).await.expect("is created");
    }
    make_routes(&client, NAMESPACES, count).await;
}

pub async fn client(kubeconfig: &std::path::Path) -> kube::Client {
    let client = client::from_kubeconfig(kubeconfig, Duration::from_secs(60), &Servers::default()).await;
    client.expect("the server wrote it")
}

/// Makes the namespaces `team-0` and so on, and in turn in each of them the Routes `app-0` and so on, to the Service `web`.
pub async fn make_routes(client: &kube::Client, namespace_count: usize, count: usize) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for number in 0..namespace_count {
        let namespace = json!({"metadata": {"name": format!("team-{number}")}});
        let namespace = serde_json::from_value(namespace).expect("a Namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("is created");
    }
    let created = futures::stream::iter(0..count).map(|number| {
        let namespace = format!("team-{}", number % namespace_count);
        let routes: Api<Route> = Api::namespaced(client.clone(), &namespace);
        let metadata = json!({"name": format!("app-{number}"), "namespace": namespace});
        let route = object("Route", metadata, json!({"to": {"kind": "Service", "name": "web"}}));
        let route: Route = serde_json::from_value(route).expect("a Route");
        async move { routes.create(&PostParams::default(), &route).await.map(|_| ()) }
    });
    let mut created = std::pin::pin!(created.buffer_unordered(AT_A_TIME));
    while let Some(result) = created.next().await {
        result.expect("is created");
    }
}

/// Waits until this number of Routes has a Router, and returns the time since the first request.
fn made(example: &Example, count: usize) -> Duration {
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads").block_on(make(&example.data.join("kubeconfig"), count));
    eprintln!("{count} routes were created within {:?}", began.elapsed());
    // Each tenth by itself: a debug build on a busy machine is slow.
    for tenth in 1..=10 {
        wait_for(&format!("{tenth} tenths of the routes have a Router"), || {
            let placed = Scrape::of(example.server.admin).sum("signpost_routes", &[("state", "scheduled")]);
            placed >= (tenth * count / 10) as f64
        });
    }
    began.elapsed()
}

/// Returns the time until a view is shown, as the page itself measures it: from the navigation until its main part contains the
/// expected text, and a frame was drawn.
fn shown_within(browser: &Browser, place: &str, wanted: &str) -> Duration {
    let script = format!(
        "window.shownAt = null; const began = performance.now(); location.hash = {}; \
         const look = () => document.querySelector({}) ? requestAnimationFrame(() => {{ window.shownAt = performance.now() - began; }}) \
         : requestAnimationFrame(look); look()",
        Value::from(place),
        Value::from(wanted)
    );
    browser.script(&script);
    browser.comes_true("return window.shownAt !== null");
    milliseconds(browser, "return window.shownAt")
}

fn milliseconds(browser: &Browser, script: &str) -> Duration {
    Duration::from_secs_f64(browser.script(script).as_f64().expect("a number") / 1_000.0)
}

/// Reloads the page at a view and returns the time until it is there and responds, from the start of the navigation.
fn interactive_within(browser: &Browser, example: &Example, place: &str, wanted: &str) -> Duration {
    browser.open("about:blank");
    browser.open(&format!("http://{}/dashboard/{place}", example.server.admin));
    // A frame that is drawn after what is waited for is there: the page's thread has nothing before it.
    browser.script(&format!(
        "window.readyAt = null; const look = () => document.querySelector({}) \
         ? requestAnimationFrame(() => setTimeout(() => {{ window.readyAt = performance.now(); }})) \
         : requestAnimationFrame(look); look()",
        Value::from(wanted)
    ));
    browser.comes_true("return window.readyAt !== null");
    milliseconds(browser, "return window.readyAt")
}

/// Scrolls through the page for a second and returns the longest time between two frames.
fn scrolls(browser: &Browser) -> Duration {
    browser.script(
        "window.scrolled = null; let longest = 0, last = performance.now(); const began = last; \
         const step = (now) => { longest = Math.max(longest, now - last); last = now; window.scrollBy(0, 40); \
         if (now - began < 1000) { requestAnimationFrame(step); } else { window.scrolled = longest; } }; \
         requestAnimationFrame(step)",
    );
    browser.comes_true("return window.scrolled !== null");
    assert!(browser.script("return window.scrollY").as_f64().is_some_and(|at| at > 0.0), "it did not scroll");
    milliseconds(browser, "return window.scrolled")
}

#[test]
fn many_routes_stay_smooth() {
    let Some(browser) = Browser::start() else { return };
    let count = routes_wanted(ROUTES);
    // Name verification is off: the page is the same with verified names, and verification takes time in a debug build.
    let example = Example::serving(&["--domain", "example.org", "--verify-names", "false", "--audit-policy", "off"]);
    eprintln!("{count} routes on {SHARDS} shards were made within {:?}", made(&example, count));
    let admin = example.server.admin;
    browser.sign_in(admin, &example.token());
    let began = Instant::now();
    browser.sees("50 shards");
    eprintln!("the first page, the first list of all routes included: {:?} after signing in", began.elapsed());
    // On a busy machine, the first list takes longer than a request waits for it, and the page retries.
    let said: Vec<String> = browser.log().into_iter().filter(|entry| !entry.contains("503")).collect();
    assert!(said.is_empty(), "{said:#?}");

    let mut slowest = Duration::ZERO;
    for (place, wanted) in [("", ".shards"), ("#/topology", "#lines path"), ("#/namespaces/team-7", "tbody tr")] {
        let within = interactive_within(&browser, &example, place, wanted);
        eprintln!("/dashboard/{place} is interactive {within:?} after the navigation began");
        slowest = slowest.max(within);
    }
    // Long tasks are what one feels: the page's own thread was away for more than 50 ms.
    browser.script(
        "window.longest = 0; new PerformanceObserver((list) => { for (const one of list.getEntries()) \
         window.longest = Math.max(window.longest, one.duration); }).observe({type: 'longtask'})",
    );
    for (place, wanted) in [
        ("#/topology", "#lines path"),
        ("#/routes", "tbody tr:nth-child(100)"),
        ("#/routes?q=app-1999", "tbody tr:only-child"),
        ("#/routes?state=scheduled", "tbody tr:nth-child(100)"),
        ("#/topology?namespace=team-7", "#lines path"),
        ("#/namespaces/team-7", "tbody tr"),
        ("#/routers/shard7", ".tenants"),
        ("#/", ".shards"),
    ] {
        let within = shown_within(&browser, place, wanted);
        eprintln!("{place} is shown within {within:?}");
        slowest = slowest.max(within);
    }
    let nodes = browser.script("return document.querySelectorAll('*').length").as_u64().expect("a number");
    assert_eq!(browser.script("return document.querySelectorAll('.shard').length"), SHARDS);
    let mut worst = Duration::ZERO;
    for (place, wanted) in [("#/", ".shards"), ("#/topology", "#lines path"), ("#/routes", "tbody tr:nth-child(100)")] {
        shown_within(&browser, place, wanted);
        let frame = scrolls(&browser);
        eprintln!("{place} scrolls with a frame every {frame:?} at worst");
        worst = worst.max(frame);
    }

    // What is typed is found, among all of them.
    browser.script("document.getElementById('filter').focus()");
    browser.press("team-7/app-1407");
    browser.comes_true("return document.querySelectorAll('tbody tr').length === 1");
    browser.sees("team-7-app-1407.shard");
    browser.go("#/routes?state=pending");
    browser.sees("No matching Routes.");

    // What is applied is seen where one is.
    browser.go("#/namespaces/team-7");
    browser.sees("app-1407");
    let began = Instant::now();
    let route = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: a-new-one, namespace: team-7}\nspec: {to: {name: web}}\n";
    example.kubectl().ok_with(&["apply", "-f", "-"], route);
    browser.sees("team-7-a-new-one.shard");
    eprintln!("applied, scheduled and seen within {:?}, kubectl included", began.elapsed());

    let longest = browser.script("return window.longest").as_f64().expect("a number");
    eprintln!("{nodes} elements on the first page; the longest task of the page's thread took {longest:.0} ms");
    eprintln!("at worst a place is shown after {slowest:?}, and a frame takes {worst:?}");
    assert!(nodes < 6_000, "{nodes} elements: the page grows with the platform");
    let said = browser.log();
    assert!(said.is_empty(), "{said:#?}");
}
