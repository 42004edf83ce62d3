//! Instances behind a shard fall and come back, as DNS clients and an operator see it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, dig, eventually};

/// An instance of an application at an address of loopback: it answers HTTP while it is well.
struct Instance {
    is_well: Arc<AtomicBool>,
    bad_answers: Arc<AtomicU32>,
}

impl Instance {
    /// Instances at these addresses, all on one port.
    fn start(addresses: &[&str]) -> (u16, Vec<Instance>) {
        for _ in 0..100 {
            let first = TcpListener::bind((addresses[0], 0)).expect("loopback has a free port");
            let port = first.local_addr().expect("it is bound").port();
            let others = addresses[1..].iter().map(|ip| TcpListener::bind((*ip, port)));
            if let Ok(others) = others.collect::<Result<Vec<_>, _>>() {
                return (port, std::iter::once(first).chain(others).map(Instance::serve).collect());
            }
        }
        panic!("no port is free at all of {addresses:?}");
    }

    fn serve(listener: TcpListener) -> Instance {
        let (is_well, bad_answers) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
        let (shared, counted) = (Arc::clone(&is_well), Arc::clone(&bad_answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                let _ = stream.read(&mut [0; 1024]);
                let is_well = shared.load(Ordering::SeqCst);
                counted.fetch_add(u32::from(!is_well), Ordering::SeqCst);
                let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
                let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Instance { is_well, bad_answers }
    }

    /// Returns the number of unhealthy responses so far.
    fn bad_answers(&self) -> u32 {
        self.bad_answers.load(Ordering::SeqCst)
    }

    fn set(&self, is_well: bool) {
        self.is_well.store(is_well, Ordering::SeqCst);
    }
}

fn answered(dns: SocketAddr, shard: &str) -> Vec<IpAddr> {
    let answer = dig(dns, &format!("app.{shard}.v3.rhcloud.com"), "A", &[]);
    assert_eq!(answer.status, "NOERROR", "health never takes a name away");
    answer.sorted("A").iter().map(|ip| ip.parse().expect("an address")).collect()
}

#[test]
fn what_is_down_leaves_dns_and_comes_back() {
    let (one, two, three) = ("127.0.0.11", "127.0.0.12", "127.0.0.13");
    let (port, instances) = Instance::start(&[one, two, three]);
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let router = |name: &str, mode: &str| {
        format!(
            "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}}}\nspec:\n  mode: {mode}\n  \
             addresses: [{{ip: {one}}}, {{ip: {two}, priority: 1}}, {{ip: {three}, priority: 1}}]\n  healthCheck: {{type: \
             http, port: {port}, path: /health, intervalSeconds: 2, timeoutSeconds: 2, rise: 1, fall: 2}}\n---\n"
        )
    };
    kubectl.ok_with(&["apply", "-f", "-"], &(router("all", "active-active") + &router("first", "active-passive")));
    let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<IpAddr>>();
    let within = |what: &str, all: &[&str], first: &[&str]| {
        eventually(what, || {
            let found = (answered(server.dns, "all"), answered(server.dns, "first"));
            (found == (ips(all), ips(first))).then_some(())
        });
    };
    within("all are answered", &[one, two, three], &[one]);
    kubectl.ok(&["wait", "router/all", "router/first", "--for=condition=AddressesHealthy", "--timeout=180s"]);
    let up =
        |address: &str| Scrape::of(server.admin).sum("signpost_address_up", &[("router", "all"), ("address", address)]);
    let ups = |expected: [f64; 3]| {
        eventually("the metrics have it", || ([up(one), up(two), up(three)] == expected).then_some(()));
    };
    ups([1.0; 3]);

    // One falls: it leaves the answers, and the standby takes over where it was the first.
    instances[0].set(false);
    let before = instances[0].bad_answers();
    within("the unhealthy one is gone", &[two, three], &[two, three]);
    // A probe without a response in time fails, too.
    assert!(instances[0].bad_answers() > before, "a probe had a bad answer");
    eventually("the status has it", || {
        let router = kubectl.json(&["router", "all"]);
        let address = router["status"]["addresses"].as_array()?.iter().find(|address| address["ip"] == one)?;
        let condition =
            router["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "AddressesHealthy")?;
        let is_so = address["health"] == "unhealthy" && condition["reason"] == "SomeUnhealthy";
        (is_so && address["error"].as_str().is_some_and(|error| error.contains("503"))).then_some(())
    });
    eventually("an event reports it", || {
        kubectl.ok(&["get", "events", "-n", "default"]).contains("AddressUnhealthy").then_some(())
    });
    ups([0.0, 1.0, 1.0]);
    instances[0].set(true);
    within("it comes back", &[one, two, three], &[one]);

    // All fall: all are answered, since nothing better is known.
    instances.iter().for_each(|instance| instance.set(false));
    eventually("panic is reported", || {
        let reason = "jsonpath={.status.conditions[?(@.type==\"AddressesHealthy\")].reason}";
        let of = |router: &str| kubectl.ok(&["get", "router", router, "-o", reason]);
        (of("all") == "Panic" && of("first") == "Panic").then_some(())
    });
    within("all are answered again", &[one, two, three], &[one]);
    eventually("the metric has it", || {
        let panic = Scrape::of(server.admin).sum("signpost_panic", &[]);
        (panic == 2.0).then_some(())
    });
    instances[2].set(true);
    // One of two standbys is enough for them; of three, one is too few.
    within("the standby that is well", &[one, two, three], &[three]);

    // A restart resumes with the last health states; without a check, health is discarded.
    let before = (answered(server.dns, "all"), answered(server.dns, "first"));
    assert!(server.terminate().success());
    let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    assert_eq!((answered(server.dns, "all"), answered(server.dns, "first")), before);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["patch", "router", "first", "--type=merge", "-p", r#"{"spec":{"healthCheck":null}}"#]);
    eventually("the first is answered again", || (answered(server.dns, "first") == ips(&[one])).then_some(()));
    eventually("the verdicts go", || {
        let router = kubectl.json(&["router", "first"]);
        router["status"]["addresses"].is_null().then_some(())
    });
}
