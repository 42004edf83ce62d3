//! The traffic of Routes on the pages, through a real agent and its HAProxy.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::large::{client, make_routes, routes_wanted};
use crate::{Example, cookie_of, get};
use signpost_testing::net::exchange;
use signpost_testing::{DataDir, Process, free_address, program, until};

/// The number of Routes of the busy shard by default, in this number of namespaces.
const ROUTES: usize = 300;
const NAMESPACES: usize = 20;
/// The threads that send requests, and the pause of each after a request.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(10);

/// Returns an application that answers each request with 200.
fn application() -> SocketAddr {
    answering("200 OK")
}

/// Returns an application that answers each request with a status.
fn answering(status: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            if matches!(stream.read(&mut request), Ok(1..)) {
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    address
}

/// Returns a Service with one endpoint or none, and a Route to it.
fn route(namespace: &str, name: &str, endpoint: Option<SocketAddr>) -> String {
    let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"to": {"name": name}}});
    format!("{}---\n{route}\n", service(namespace, name, endpoint))
}

/// Returns a Service with one endpoint or none.
fn service(namespace: &str, name: &str, endpoint: Option<SocketAddr>) -> String {
    let port = endpoint.map_or(80, |endpoint| endpoint.port());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 80, "targetPort": port}]}});
    let slice = endpoint.map(|endpoint| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{name}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": [endpoint.ip()]}], "ports": [{"port": port}]})
    });
    let slice = slice.map(|slice| format!("---\n{slice}\n")).unwrap_or_default();
    format!("---\n{service}\n{slice}")
}

/// The agent of the Router shard1, which ends with its proxy.
struct Agent {
    process: Option<Process>,
    http: SocketAddr,
    _data: DataDir,
}

impl Agent {
    fn start(example: &Example) -> Agent {
        let (data, http, https) = (DataDir::new(), free_address(), free_address());
        let (http_port, https_port) = (http.port().to_string(), https.port().to_string());
        let kubeconfig = example.data.join("kubeconfig").display().to_string();
        let admin = free_address().to_string();
        let arguments = ["--router", "shard1", "--address", "127.0.0.1", "--http-port", &http_port, "--https-port"];
        let more = [&https_port, "--data-dir", data.path(), "--kubeconfig", &kubeconfig, "--admin-listen", &admin];
        let mut command = program::command(&["agent"]);
        command.args(arguments).args(more).args(["--loopback-endpoints", "--leave-timeout", "0"]);
        Agent { process: Some(Process::logged(&mut command)), http, _data: data }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM");
            process.signal("TERM");
            process.wait();
        }
    }
}

#[test]
fn traffic_is_that_of_the_routes_that_a_user_can_list() {
    let example = Example::serving(&["--domain", "example.org", "--nameserver", "ns1.example.org=192.0.2.53"]);
    let admin = example.server.admin;
    let objects = format!(
        "---\napiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: shard1}}\nspec: {{addressesFrom: {{instances: true}}}}\n\
         ---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: myapp}}\n\
         ---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: other}}\n{}{}{}",
        route("myapp", "web", Some(application())),
        route("other", "web", Some(application())),
        route("other", "empty", None),
    );
    example.kubectl().ok_with(&["apply", "-f", "-"], &objects);
    let agent = Agent::start(&example);
    let send = |host: &str| exchange(agent.http, &format!("GET / HTTP/1.1\r\nHost: {host}.shard1.example.org"), "");
    for (host, status) in [("myapp-web", 200), ("other-web", 200), ("other-empty", 503)] {
        until(&format!("{host} is served"), || match send(host).map(|answer| answer.status) {
            Some(found) if found == status => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
    for _ in 0..20 {
        assert_eq!(send("myapp-web").expect("a response").status, 200);
        assert_eq!(send("other-empty").expect("a response").status, 503);
    }

    let operator = cookie_of(admin, &example.token());
    let tenant = cookie_of(admin, &example.tenant("tina"));
    let traffic = |query: &str, cookie: &str| get(admin, &format!("/dashboard/data/traffic{query}"), cookie);
    let names = |found: &Value| -> Vec<String> {
        let routes = found["routes"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = routes.iter().filter_map(|one| one["route"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    };
    until("the requests are counted", || {
        let (_, found) = traffic("?router=shard1", &operator);
        let requests = &found["totals"]["requests"];
        let (served, failed) = (requests[2].as_u64().unwrap_or(0), requests[5].as_u64().unwrap_or(0));
        if served >= 22 && failed >= 21 { Ok(()) } else { Err(found) }
    });
    // The agent has two seconds to answer a new query, and a late answer is an error, which is repeated here. No response has other Routes.
    let complete = |query: &str, cookie: &str, wanted: &[&str]| -> Value {
        until(&format!("{query:?} returns {wanted:?}"), || {
            let (status, found) = traffic(query, cookie);
            let returned = names(&found);
            let is_wanted = returned.iter().all(|name| wanted.contains(&name.as_str()));
            assert!(status == 200 && is_wanted, "{query}: {status} {found}");
            if returned == wanted { Ok(found) } else { Err(found) }
        })
    };
    let all = complete("", &operator, &["myapp/web", "other/empty", "other/web"]);
    assert_eq!((&all["lost"], &all["answered"], &all["instanceCount"]), (&0.into(), &1.into(), &1.into()), "{all}");
    // A tenant gets its own Routes alone, also in the sums.
    for query in ["", "?router=shard1", "?namespace=myapp"] {
        let found = complete(query, &tenant, &["myapp/web"]);
        assert_eq!(found["totals"]["requests"][5], 0, "{found}");
    }
    let own = complete("?route=myapp/web&router=shard1", &tenant, &["myapp/web"]);
    assert_eq!(own["routes"][0]["endpoints"][0]["state"], "up", "{own}");
    for query in ["?namespace=other", "?route=other/web", "?route=other/web&router=shard1"] {
        assert_eq!(traffic(query, &tenant).0, 403, "{query}");
    }
    assert_eq!(traffic("", "signpost_session=made-up").0, 401);

    until("the traffic is explained", || {
        let explained = example.signpost(&["explain", "route", "myapp/web"]);
        let has_traffic = explained.contains("requests per second") && explained.contains("up, 100 % of the answers");
        if has_traffic { Ok(()) } else { Err(explained) }
    });

    let Some(browser) = Browser::start() else { return };
    browser.sign_in(admin, &example.token());
    browser.sees("Busiest Routes");
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.resize(width, height);
        for (place, texts) in [
            ("#/namespaces/myapp/routes/web", ["Traffic", "Response time", "Open the application"]),
            ("#/namespaces/other/routes/empty", ["no endpoint", "All requests get the status 503", "5xx"]),
            ("#/routers/shard1", ["Traffic", "Status 5xx", "myapp/web"]),
            ("#/", ["Traffic", "Status 5xx", "other/empty"]),
        ] {
            browser.go(place);
            texts.iter().for_each(|text| browser.sees(text));
            browser.comes_true("return document.documentElement.scrollWidth <= window.innerWidth");
        }
    }
    let opens = "return document.querySelector('a[target=_blank]')?.getAttribute('href') ?? ''";
    browser.go("#/namespaces/myapp/routes/web");
    browser.sees("Open the application");
    let address = browser.script(opens);
    assert_eq!(address, "http://myapp-web.routes.example.org/");
    assert_eq!(browser.log(), Vec::<String>::new());
}

/// Sends requests to Routes until it is dropped.
struct Clients(Arc<AtomicBool>);

impl Clients {
    /// Sends requests to `app-0` and so on, in turn in the namespaces; to the first ones more often.
    fn start(http: SocketAddr, namespaces: usize, routes: usize) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        for thread in 0..CLIENTS {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                for request in 0_usize.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let number = (request * CLIENTS + thread) % if request % 3 == 0 { namespaces } else { routes };
                    let host = format!("team-{}-app-{number}.shard1.example.org", number % namespaces);
                    let _ = exchange(http, &format!("GET / HTTP/1.1\r\nHost: {host}"), "");
                    std::thread::sleep(PAUSE);
                }
            });
        }
        Clients(stop)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The pages of a shard with many Routes under traffic fit any screen, in both colour schemes.
///
/// `SIGNPOST_DASHBOARD_ROUTES=2000 SIGNPOST_DASHBOARD_IMAGES=DIRECTORY cargo test --test dashboard a_busy_shard` writes images of them.
#[test]
fn a_busy_shard() {
    let Some(browser) = Browser::start() else { return };
    let count = routes_wanted(ROUTES);
    let platform = ["--domain", "example.org", "--verify-names", "false", "--audit-policy", "off"];
    let example = Example::serving(&platform);
    let mut objects = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\nspec: {addressesFrom: {instances: true}}\n"
        .to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads").block_on(async {
        let client = client(&example.data.join("kubeconfig")).await;
        make_routes(&client, NAMESPACES, count).await;
    });
    let (sound, failing) = (application(), answering("500 Internal Server Error"));
    for number in 0..NAMESPACES {
        let endpoint = match number {
            1 => None,
            2 => Some(failing),
            _ => Some(sound),
        };
        objects += &service(&format!("team-{number}"), "web", endpoint);
    }
    example.kubectl().ok_with(&["apply", "-f", "-"], &objects);
    let agent = Agent::start(&example);
    let last = count - 1;
    let last = format!("team-{}-app-{last}.shard1.example.org", last % NAMESPACES);
    until("the last Route is served", || {
        let answer = exchange(agent.http, &format!("GET / HTTP/1.1\r\nHost: {last}"), "");
        match answer.map(|answer| answer.status) {
            Some(404) | None => Err("not served"),
            Some(_) => Ok(()),
        }
    });
    let _clients = Clients::start(agent.http, NAMESPACES, count);

    browser.sign_in(example.server.admin, &example.token());
    for (width, height) in [(1440, 900), (390, 844)] {
        browser.resize(width, height);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for (name, place, wanted) in [
                ("platform", "#/", "Errors per second"),
                ("shard", "#/routers/shard1", "Errors per second"),
                ("route", "#/namespaces/team-0/routes/app-0", "Errors per second"),
                ("without-endpoint", "#/namespaces/team-1/routes/app-1", "All requests get the status 503"),
                ("failing", "#/namespaces/team-2/routes/app-2", "Errors per second"),
                ("routes", "#/routes", "app-1"),
                ("namespace", "#/namespaces/team-0", "app-0"),
            ] {
                browser.go(place);
                browser.sees(wanted);
                browser.comes_true("return document.documentElement.scrollWidth <= window.innerWidth");
                browser.photograph(&format!("{name}-{width}-{scheme}"));
            }
        }
    }
    // The line of requests ends above zero.
    browser.go("#/routers/shard1");
    browser.comes_true(
        "return /^Requests per second, last [0-9]+ minutes\\. Now Requests per second: [^0]/.test( \
         document.querySelector('.plots svg[role]')?.getAttribute('aria-label'))",
    );
    assert_eq!(browser.log(), Vec::<String>::new());
}
