//! A platform with an attacker and a bystander on it.
//!
//! [`Platform`] is one real process with a Router and two tenants in namespaces of their own. [`Bystander`] uses the API, DNS and
//! the health endpoint all the time, as someone would who has nothing to do with the attack, and reports what failed.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::server::{DataDir, Ports, Server, eventually, http_get, program};
use crate::tools::{Kubectl, try_dig};

/// The path of the Routes of a namespace in the API.
pub fn routes_path(namespace: &str) -> String {
    format!("/apis/signpost.dev/v1alpha1/namespaces/{namespace}/routes")
}

/// Whether the attacks run in their long form.
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

    /// Stops the process in good order and starts it again, without flags.
    #[allow(dead_code, reason = "for the attacks that last")]
    pub fn restarted(self) -> Platform {
        let Platform { server, ports, data, admin } = self;
        assert!(server.terminate().success());
        let server = Server::spawn(ports, &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
        // It compacts a store of hundreds of MiB first, which takes a debug build on a busy machine more than a minute.
        let deadline = Instant::now() + Duration::from_secs(300);
        while http_get(ports.admin, "/readyz").is_none_or(|(status, _)| status != 200) {
            assert!(Instant::now() < deadline, "not ready again: {}", server.log());
            std::thread::sleep(Duration::from_millis(50));
        }
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
        let mut command = Command::new(program());
        let output = command.args(["user", "add", name]).args(flags).args(["--data-dir", self.data.path()]).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Client::new(self, String::from_utf8(output.stdout).expect("text").trim())
    }

    /// Resident memory now, in MiB.
    pub fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())).expect("Linux tells");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux tells");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number of KiB") >> 10
    }

    /// The size of all files in the data directory, in MiB.
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

    /// Starts someone who uses the platform while it is attacked: a tenant of the namespace `bystander` with one Route.
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

/// A user of the API with a token. Clones share a connection pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    runtime: Arc<Runtime>,
    base: String,
    token: String,
}

impl Client {
    fn new(platform: &Platform, token: &str) -> Client {
        let pem = std::fs::read(platform.data.join("pki/ca.crt")).expect("the authority's certificate is there");
        let tls = signpost_runtime::trust::only(&pem).expect("a certificate");
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls).timeout(Duration::from_secs(60));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Client {
            http: http.build().expect("a client"),
            runtime: Arc::new(runtime.expect("a runtime")),
            base: format!("https://{}", platform.ports.api),
            token: token.to_owned(),
        }
    }

    /// What it proves itself with.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Sends a request, `PATCH` as a merge patch; the status (0 without an answer) and the body.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let method = method.parse().expect("a method");
        let content_type =
            if method == reqwest::Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("content-type", content_type).body(body.to_string());
        }
        self.runtime.block_on(async {
            match request.send().await {
                Ok(response) => {
                    let status = response.status().as_u16();
                    (status, response.text().await.unwrap_or_default())
                }
                Err(error) => (0, format!("{error:?}")),
            }
        })
    }
}

impl Client {
    /// The answer to a GET with the media type of a Table, as `kubectl get` does.
    pub fn table(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.base)).bearer_auth(&self.token);
        let request = request.header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        self.runtime.block_on(async {
            match request.send().await {
                Ok(response) => response.text().await.unwrap_or_default(),
                Err(error) => panic!("{path}: {error:?}"),
            }
        })
    }
}

/// Someone who uses the API, DNS and the health endpoint all the time.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

/// What the bystander saw.
#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    /// What failed, in words.
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

    /// Ends it: everything that it did worked, and nothing took longer than `longest`.
    pub fn was_served_within(self, longest: Duration) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().expect("the bystander does not panic");
        assert!(report.rounds > 0, "the bystander had no time for a round");
        assert!(report.failures.is_empty(), "others were not served: {report:#?}");
        let slowest = report.slowest_api.max(report.slowest_dns).max(report.slowest_health);
        assert!(slowest <= longest, "others waited for {slowest:?}: {report:#?}");
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
        let answer = try_dig(ports.dns, name, "A", &["+tries=1", "+time=5"]);
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
