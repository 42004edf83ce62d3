//! The hosts, what runs on each, and when all of it is ready.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use signpost_testing::client::{Client, trusting};
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::hosts::{Host, Network};
use signpost_testing::net::{exchange, http_get};
use signpost_testing::peers::unbound_configuration;
use signpost_testing::program::{is_ready, program};
use signpost_testing::{DataDir, Process, until};

pub const DOMAIN: &str = "example.org";
/// The namespace of all Routes.
pub const NAMESPACE: &str = "web";
/// The Router whose addresses are those of the instances, and those with addresses of their own.
pub const INSTANCES: &str = "shard1";
pub const ROUTERS: [&str; 3] = [INSTANCES, "shard2", "shard3"];

const ETCD: [&str; 3] = ["etcd1", "etcd2", "etcd3"];
pub const API_SERVERS: [&str; 2] = ["api1", "api2"];
const SCHEDULERS: [&str; 2] = ["scheduler1", "scheduler2"];
pub const NAME_SERVERS: [&str; 3] = ["ns1", "ns2", "ns3"];
const AGENTS: [&str; 2] = ["router1", "router2"];
const RESOLVER: &str = "resolver";

const API: u16 = 6453;
const ADMIN: u16 = 9453;
/// The port of etcd for clients, and for its other members.
const ETCD_CLIENTS: u16 = 2379;
const ETCD_PEERS: u16 = 2380;
/// The timeout of a client's request.
const REQUEST: Duration = Duration::from_secs(5);
/// The timeout of a DNS query.
pub const ANSWER: Duration = Duration::from_secs(3);

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Etcd,
    ApiServer,
    Scheduler,
    NameServer,
    Agent,
    Resolver,
}

/// A host with what runs on it.
pub struct Machine {
    pub host: Host,
    pub role: Role,
    /// The program and its arguments.
    command: Vec<String>,
    process: Option<Process>,
    data: DataDir,
}

/// The whole scene. Fields are dropped in this order: processes before the network.
pub struct Scene {
    pub machines: Vec<Machine>,
    pub network: Network,
}

impl Scene {
    /// Starts everything on hosts of its own, and waits until it is ready.
    pub fn start() -> Scene {
        let mut network = Network::new();
        let roles = [
            (Role::Etcd, &ETCD[..]),
            (Role::ApiServer, &API_SERVERS),
            (Role::Scheduler, &SCHEDULERS),
            (Role::NameServer, &NAME_SERVERS),
            (Role::Agent, &AGENTS),
            (Role::Resolver, &[RESOLVER]),
        ];
        let all = roles.iter().flat_map(|(role, names)| names.iter().map(|name| (*role, *name)));
        let machines = all.map(|(role, name)| Machine {
            host: network.host(name),
            role,
            command: Vec::new(),
            process: None,
            data: DataDir::new(),
        });
        let mut scene = Scene { machines: machines.collect(), network };
        for index in 0..scene.machines.len() {
            scene.machines[index].command = scene.command(index);
            if scene.machines[index].role == Role::ApiServer && scene.machines[index].host.name() != API_SERVERS[0] {
                // What the API servers share is encrypted.
                let key = scene.machine(API_SERVERS[0]).data.join("encryption.key");
                std::fs::copy(key, scene.machines[index].data.join("encryption.key")).expect("the first has made it");
            }
            scene.machines[index].start();
            if matches!(scene.machines[index].role, Role::ApiServer) {
                scene.machines[index].wait_ready();
                if scene.machines[index].host.name() == API_SERVERS[0] {
                    scene.create_platform();
                }
            }
        }
        scene.wait_ready();
        scene
    }

    /// Returns the program of a machine, and its arguments.
    fn command(&self, index: usize) -> Vec<String> {
        let machine = &self.machines[index];
        let (host, data) = (&machine.host, machine.data.path());
        let mut command: Vec<String> = Vec::new();
        let mut add = |arguments: &[&str]| command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        match machine.role {
            Role::Etcd => {
                let url = |port| format!("http://{}", host.port(port));
                let peers = ETCD.map(|name| format!("{name}=http://{}", self.host(name).port(ETCD_PEERS)));
                // Processes are killed here, not machines: written data is not lost without a sync.
                add(&["etcd", "--name", host.name(), "--data-dir", data, "--log-level", "error", "--unsafe-no-fsync"]);
                add(&["--listen-client-urls", &url(ETCD_CLIENTS), "--advertise-client-urls", &url(ETCD_CLIENTS)]);
                add(&["--listen-peer-urls", &url(ETCD_PEERS), "--initial-advertise-peer-urls", &url(ETCD_PEERS)]);
                add(&["--initial-cluster", &peers.join(",")]);
            }
            Role::ApiServer => {
                add(&[program(), "serve", "--roles", "api,admin", "--store", "etcd"]);
                add(&["--api-listen", &host.port(API).to_string()]);
                for name in ETCD {
                    add(&["--etcd-endpoints", &format!("http://{}", self.host(name).port(ETCD_CLIENTS))]);
                }
            }
            Role::Scheduler => {
                add(&[program(), "serve", "--roles", "scheduler,admin"]);
                add(&["--kubeconfig", &self.kubeconfig(index, "scheduler")]);
            }
            Role::NameServer => {
                add(&[program(), "serve", "--roles", "dns,admin", "--dns-listen", &host.port(53).to_string()]);
                // Clients delete many Routes at once here, and mean it.
                add(&["--kubeconfig", &self.kubeconfig(index, "name-server"), "--deletion-hold-threshold", "100"]);
            }
            Role::Agent => {
                add(&[program(), "agent", "--router", INSTANCES, "--proxy", "haproxy"]);
                add(&["--address", &host.address.to_string()]);
                add(&["--kubeconfig", &self.kubeconfig(index, "router-agent")]);
                for name in NAME_SERVERS {
                    add(&["--name-server", &self.host(name).port(53).to_string()]);
                }
            }
            Role::Resolver => {
                let stubs = NAME_SERVERS.map(|name| (DOMAIN, self.host(name).port(53)));
                let configuration = unbound_configuration(host.port(53), "10.0.0.0/8", &stubs);
                add(&["unbound", "-d", "-c", &machine.data.write("unbound.conf", configuration)]);
            }
        }
        if command[0] == program() {
            command.extend(["--data-dir".to_owned(), data.to_owned()]);
            command.extend(["--admin-listen".to_owned(), host.port(ADMIN).to_string()]);
            if machine.role != Role::Agent {
                command.extend(["--domain".to_owned(), DOMAIN.to_owned()]);
                for name in NAME_SERVERS {
                    let name_server = format!("{name}.{DOMAIN}={}", self.host(name).address);
                    command.extend(["--nameserver".to_owned(), name_server]);
                }
            }
            if matches!(machine.role, Role::Scheduler | Role::NameServer | Role::Agent) {
                for name in API_SERVERS {
                    command.extend(["--api-server".to_owned(), format!("https://{}", self.api(name))]);
                }
                // With the default, a process would wait for minutes for a response that a cut has swallowed.
                command.extend(["--api-read-timeout".to_owned(), "10s".to_owned()]);
            }
        }
        command
    }

    /// Returns the kubeconfig of a role that one of the API servers has made, another one for the next machine: each is valid at
    /// both.
    fn kubeconfig(&self, index: usize, role: &str) -> String {
        let api_server = self.machine(API_SERVERS[index % API_SERVERS.len()]);
        api_server.data.file(&format!("{role}.kubeconfig"))
    }

    /// The namespace, an application, and the Routers.
    fn create_platform(&self) {
        let client = self.client(API_SERVERS[0]);
        let router = |name: &str, spec: Value| json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec});
        let number = |name: &str| name.bytes().next_back().expect("a name") - b'0';
        for name in ROUTERS {
            let spec = if name == INSTANCES {
                json!({"ttl": 2, "addressesFrom": {"instances": true}, "instances": AGENTS.len()})
            } else {
                json!({"ttl": 2, "addresses": [{"ip": format!("192.0.2.{}", number(name))}]})
            };
            created(&client, "/apis/signpost.dev/v1alpha1/routers", &router(name, spec));
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        created(&client, "/api/v1/namespaces", &namespace);
        // A Route without an endpoint is not Ready.
        let port = json!({"name": "http", "port": 80, "protocol": "TCP"});
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [port]}});
        created(&client, &format!("/api/v1/namespaces/{NAMESPACE}/services"), &service);
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.80"]}], "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]});
        created(&client, &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"), &slice);
    }

    pub fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.host.name() == name).expect("it is a machine")
    }

    pub fn host(&self, name: &str) -> &Host {
        &self.machine(name).host
    }

    /// Returns a client of an API server, as an administrator.
    pub fn client(&self, api_server: &str) -> Client {
        let machine = self.machine(api_server);
        let authority = std::fs::read_to_string(machine.data.join("pki/ca.crt")).expect("it has started once");
        let kubeconfig = std::fs::read_to_string(machine.data.join("kubeconfig")).expect("it has started once");
        let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("it has a token");
        let http = trusting(&authority).timeout(REQUEST);
        Client::new(http, self.api(api_server)).with_token(token.trim_matches('"'))
    }

    pub fn api(&self, api_server: &str) -> SocketAddr {
        self.host(api_server).port(API)
    }

    pub fn name_servers(&self) -> [SocketAddr; NAME_SERVERS.len()] {
        NAME_SERVERS.map(|name| self.host(name).port(53))
    }

    pub fn resolver(&self) -> SocketAddr {
        self.host(RESOLVER).port(53)
    }

    pub fn agents(&self) -> [IpAddr; AGENTS.len()] {
        AGENTS.map(|name| self.host(name).address.into())
    }

    /// Returns the addresses that names on a Router may be answered with.
    pub fn addresses(&self, router: &str) -> Vec<IpAddr> {
        if router == INSTANCES {
            return self.agents().to_vec();
        }
        let number = router.bytes().next_back().expect("a name") - b'0';
        vec![IpAddr::from([192, 0, 2, number])]
    }

    /// Returns the member of etcd that leads.
    pub fn etcd_leader(&self) -> usize {
        until("etcd has a leader", || {
            let is_leader = |machine: &Machine| {
                let head = "POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: 2";
                let body = exchange(machine.host.port(ETCD_CLIENTS), head, "{}").map(|answer| answer.body);
                let status: Option<Value> = body.and_then(|body| serde_json::from_str(&body).ok());
                status.is_some_and(|status| status["leader"] == status["header"]["member_id"])
            };
            let found = self.machines.iter().position(|machine| machine.role == Role::Etcd && is_leader(machine));
            found.ok_or("no member leads")
        })
    }

    /// Waits until every machine is ready, and every name server returns both instances and has the serials of the others.
    pub fn wait_ready(&mut self) {
        self.machines.iter_mut().for_each(Machine::wait_ready);
        let mut expected = self.agents().to_vec();
        expected.sort_unstable();
        for (name, server) in NAME_SERVERS.iter().zip(self.name_servers()) {
            until(&format!("{name} returns both instances"), || {
                let name = format!("any.{INSTANCES}.{DOMAIN}");
                let answer = Asker::new(server).ask(&name, RecordType::A, ANSWER);
                let found: Vec<IpAddr> = answer.map_or(Vec::new(), |answer| answer.addresses.into_iter().collect());
                if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
            });
        }
        let zone = format!("routes.{DOMAIN}");
        until("the name servers serve the same version", || {
            let serials = self.name_servers().map(|server| serial(server, &zone));
            let is_one = serials[0].is_some() && serials.iter().all(|serial| *serial == serials[0]);
            if is_one { Ok(()) } else { Err(format!("{serials:?}")) }
        });
    }
}

/// Returns the serial of a zone on a name server.
pub fn serial(server: SocketAddr, zone: &str) -> Option<u32> {
    Asker::new(server).ask(zone, RecordType::SOA, ANSWER)?.serial
}

/// Returns whether a request was not answered, or failed because etcd has no leader. A write may have taken effect.
pub fn is_unavailable(status: u16) -> bool {
    matches!(status, 0 | 503 | 504)
}

fn created(client: &Client, path: &str, object: &Value) {
    let mut is_first = true;
    until(&format!("{path} has the object"), || {
        let (status, body) = client.send("POST", path, Some(object));
        let is_created = status == 201 || (status == 409 && !is_first);
        assert!(is_created || is_unavailable(status), "{path}: {status} {body}");
        is_first = false;
        if is_created { Ok(()) } else { Err(format!("{status} {body}")) }
    });
}

impl Machine {
    /// Starts what it runs.
    pub fn start(&mut self) {
        let (program, arguments) = self.command.split_first().expect("it runs something");
        let mut command: Command = self.host.command(program);
        self.process = Some(Process::logged(command.args(arguments).current_dir(Path::new(self.data.path()))));
    }

    /// Kills all that runs on it.
    pub fn kill(&mut self) {
        self.host.kill();
        self.process = None;
    }

    /// Returns whether it does its work.
    fn is_ready(&self) -> bool {
        match self.role {
            Role::Etcd => http_get(self.host.port(ETCD_CLIENTS), "/health").is_some_and(|(status, _)| status == 200),
            Role::Resolver => serial(self.host.port(53), DOMAIN).is_some(),
            _ => is_ready(self.host.port(ADMIN)),
        }
    }

    fn wait_ready(&mut self) {
        if self.is_ready() {
            return;
        }
        let what = format!("{} is ready", self.host.name());
        let mut process = self.process.take().expect("it runs");
        process.until(&what, || if self.is_ready() { Ok(()) } else { Err(String::from("it is not")) });
        self.process = Some(process);
    }
}
