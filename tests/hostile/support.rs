//! A platform with an attacker and a bystander on it.
//!
//! [`Platform`] is one real process with a Router and two tenants, each in its own namespace. [`Bystander`] continuously uses the
//! API, DNS, and the health endpoint, like a client that is not involved in the attack, and reports failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use signpost_testing::client::{Client, trusting};
use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, eventually, http_get, try_dig};

/// Returns the path of the Routes of a namespace in the API.
pub fn routes_path(namespace: &str) -> String {
    format!("/apis/signpost.dev/v1alpha1/namespaces/{namespace}/routes")
}

/// Returns whether the attacks run in their long form.
#[allow(dead_code, reason = "for the attacks that have one")]
pub fn is_long() -> bool {
    std::env::var("HOSTILE").is_ok_and(|form| form == "long")
}

/// One process with all roles, a Router `shard1` and the namespace `bystander` with a live Route.
pub struct Platform {
    pub server: Server,
    pub ports: Ports,
    pub data: DataDir,
    pub admin: Kubectl,
}

impl Platform {
    pub fn start(flags: &[&str]) -> Platform {
        let (data, ports) = (DataDir::new(), Ports::free());
        let mut all = vec!["--data-dir", data.path(), "--domain", "v3.rhcloud.com"];
        all.extend_from_slice(flags);
        let server = Server::start(ports, &all);
        let admin = Kubectl::new(data.join("kubeconfig"));
        admin.ok_with(
            &["apply", "-f", "-"],
            "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
             spec: {dns: shard1.v3.rhcloud.com, addresses: [{ip: 192.0.2.1}]}\n",
        );
        Platform { server, ports, data, admin }
    }

    /// Stops the process gracefully and restarts it, without flags.
    #[allow(dead_code, reason = "for the attacks that last")]
    pub fn restarted(self) -> Platform {
        let Platform { server, ports, data, admin } = self;
        assert!(server.terminate().success());
        let server = Server::start(ports, &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
        Platform { server, ports, data, admin }
    }

    /// Makes a namespace and a user who may do there what a tenant may, and waits until the user is known.
    pub fn tenant(&self, namespace: &str) -> Client {
        self.admin.ok(&["create", "namespace", namespace]);
        let client = self.user(namespace, &["--role", "tenant", "-n", namespace]);
        eventually("the server knows the tenant", || {
            (client.send("GET", &routes_path(namespace), None).0 == 200).then_some(())
        });
        client
    }

    /// Makes a user with a token.
    pub fn user(&self, name: &str, flags: &[&str]) -> Client {
        let token = ok(&[&["user", "add", name], flags, &["--data-dir", self.data.path()]].concat());
        let authority =
            std::fs::read_to_string(self.data.join("pki/ca.crt")).expect("the authority's certificate is there");
        Client::new(trusting(&authority), self.ports.api).with_token(token.trim())
    }

    /// Resident memory now, in MiB.
    pub fn resident_mib(&self) -> u64 {
        self.server.resident_kib() >> 10
    }

    /// Returns the value of a series of its metrics.
    pub fn metric(&self, series: &str) -> f64 {
        Scrape::of(self.ports.admin).value(series)
    }

    /// Returns the size of all files in the data directory, in MiB.
    #[allow(dead_code, reason = "for the attacks on the disk")]
    pub fn disk_mib(&self) -> u64 {
        fn octets(folder: &std::path::Path) -> u64 {
            let entries = std::fs::read_dir(folder).expect("readable").flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => octets(&entry.path()),
                    Ok(metadata) => metadata.len(),
                    Err(_) => 0,
                })
                .sum()
        }
        octets(std::path::Path::new(self.data.path())) >> 20
    }

    /// Starts a client that uses the platform during the attack: a tenant of the namespace `bystander` with one Route.
    pub fn bystander(&self) -> Bystander {
        let client = self.tenant("bystander");
        let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "app"},
                           "spec": {"to": {"name": "web"}}});
        let (status, created) = client.send("POST", &routes_path("bystander"), Some(&route));
        assert_eq!(status, 201, "{created}");
        let name = "bystander-app.shard1.v3.rhcloud.com";
        eventually("the bystander's name is live", || {
            let answer = try_dig(self.ports.dns, name, "A", &[])?;
            (answer.data("A") == ["192.0.2.1"]).then_some(())
        });
        Bystander::start(client, name, self.ports)
    }
}

/// A client that continuously uses the API, DNS, and the health endpoint.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

/// The observations of the bystander.
#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    /// The failures as text.
    pub failures: Vec<String>,
    /// The longest that one API request, one DNS query (by a `dig` of its own) and one request for health took.
    pub slowest_api: Duration,
    pub slowest_dns: Duration,
    pub slowest_health: Duration,
}

impl Bystander {
    fn start(client: Client, name: &'static str, ports: Ports) -> Bystander {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut report = Report::default();
            while !stopped.load(Ordering::Relaxed) {
                report.round(&client, name, ports);
                std::thread::sleep(Duration::from_millis(50));
            }
            report
        });
        Bystander { stop, thread }
    }

    /// Ends it: everything that it did worked. A request that lasts too long fails by the timeout of its client.
    pub fn was_served(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().expect("the bystander does not panic");
        assert!(report.rounds > 0, "the bystander had no time for a round");
        assert!(report.failures.is_empty(), "others were not served: {report:#?}");
        report
    }
}

impl Report {
    fn round(&mut self, client: &Client, name: &str, ports: Ports) {
        self.rounds += 1;
        let (path, began) = (routes_path("bystander") + "/app", Instant::now());
        let patch = json!({"metadata": {"annotations": {"round": self.rounds.to_string()}}});
        for (method, body) in [("GET", None), ("PATCH", Some(&patch))] {
            let (status, body) = client.send(method, &path, body);
            if status != 200 {
                self.failures.push(format!("{method} {path}: {status} {body}"));
            }
        }
        self.slowest_api = self.slowest_api.max(began.elapsed());
        let began = Instant::now();
        let answer = try_dig(ports.dns, name, "A", &["+tries=1", "+time=30"]);
        if answer.as_ref().is_none_or(|answer| answer.data("A") != ["192.0.2.1"]) {
            self.failures.push(format!("{name}: {answer:?}"));
        }
        self.slowest_dns = self.slowest_dns.max(began.elapsed());
        let began = Instant::now();
        for path in ["/livez", "/readyz"] {
            let answer = http_get(ports.admin, path);
            if answer.as_ref().is_none_or(|(status, _)| *status != 200) {
                self.failures.push(format!("{path}: {answer:?}"));
            }
        }
        self.slowest_health = self.slowest_health.max(began.elapsed());
    }
}
