//! A name server that restarts does not answer until it can answer correctly: meanwhile, clients get the former answers or none,
//! and never SERVFAIL.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use signpost_testing::dns::{RecordType, query};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, try_dig};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
const OBJECTS: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
spec: {addresses: [{ip: 192.0.2.1}]}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n---\n\
apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: shop, namespace: web}\nspec: {to: {name: x}}\n";
const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";
/// Names of a shard, of the aliases, of the parent zone, and of a zone file.
const NAMES: [&str; 4] =
    ["web-shop.shard1.v3.rhcloud.com", "web-shop.routes.v3.rhcloud.com", "ns1.v3.rhcloud.com", "app.file.example"];
/// The pause between two queries: a start of the process takes some hundred times as long.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of correct answers that end the observation of a start.
const ANSWERS: usize = 200;

/// Queries the address of each of [`NAMES`] continuously (the ID is its number), even without a response.
struct Client {
    right: Arc<AtomicUsize>,
    wrong: Arc<Mutex<BTreeMap<String, usize>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(server: SocketAddr) -> Client {
        let (right, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let wrong = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let shared = (Arc::clone(&right), Arc::clone(&wrong), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (right, wrong, stop) = shared;
            // The socket is not connected, so that a closed port causes no error.
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            socket.set_read_timeout(Some(PAUSE)).expect("a duration");
            let mut answer = [0; 1500];
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let at = number % NAMES.len();
                let question = query(u16::try_from(at).expect("a few"), NAMES[at], RecordType::A);
                socket.send_to(&question, server).expect("loopback takes it");
                while let Ok((length, _)) = socket.recv_from(&mut answer) {
                    // Answers keep the ID, and their number of records is that of the answer section.
                    let (rcode, records) = (answer[3] & 15, answer[7]);
                    assert!(length > 12 && usize::from(answer[1]) < NAMES.len());
                    if (rcode, records) == (0, 1) || (rcode == 0 && records == 2 && answer[1] == 1) {
                        right.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let what = format!("{}: rcode {rcode}, {records} records", NAMES[usize::from(answer[1])]);
                    *wrong.lock().expect("no thread panics").entry(what).or_default() += 1;
                }
            }
        });
        Client { right, wrong, stop, thread: Some(thread) }
    }

    /// Waits for right answers, and finds no others.
    fn check(&self, when: &str) {
        let before = self.right.load(Ordering::Relaxed);
        eventually(when, || (self.right.load(Ordering::Relaxed) > before + ANSWERS).then_some(()));
        assert_eq!(*self.wrong.lock().expect("no thread panics"), BTreeMap::new(), "{when}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[test]
fn every_answer_of_a_name_server_that_restarts_is_right() {
    let (data, state) = (DataDir::new(), DataDir::new());
    let name_server = ["--nameserver", "ns1.v3.rhcloud.com=192.0.2.53"];
    let arguments = ["--roles", "api,scheduler,admin", "--data-dir", data.path()];
    let api = Server::start(Ports::free(), &[&arguments[..], &DOMAIN, &name_server].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    kubectl.ok(&["wait", "-n", "web", "routes.signpost.dev/shop", "--for=condition=Scheduled", "--timeout=180s"]);

    std::fs::write(state.join("file.example.zone"), ZONE).expect("written");
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let arguments = ["--roles", "dns,admin", "--data-dir", state.path(), "--zones", state.path()];
    let arguments = [&arguments[..], &["--kubeconfig", kubeconfig], &DOMAIN, &name_server].concat();
    let ports = Ports::free();
    let mut server = Server::start(ports, &arguments);
    // The first start has no last-known-good state: its responses before it has reached the API do not count.
    eventually("the route's name is served", || {
        let answer = try_dig(server.dns, NAMES[1], "A", &[])?;
        (!answer.answer.is_empty()).then_some(())
    });
    let client = Client::start(server.dns);
    client.check("before anything");
    let mut api = Some(api);
    for round in 0..6 {
        if round == 2 {
            assert!(api.take().expect("it runs").terminate().success());
        }
        let how = match round % 2 {
            0 => {
                server.kill();
                "killed"
            }
            _ => {
                assert!(server.terminate().success());
                "ended"
            }
        };
        server = Server::spawn(ports, &arguments);
        let api = if api.is_some() { "there" } else { "away" };
        client.check(&format!("round {round}, {how}, the API {api}"));
        server.wait_ready();
        // During a reload, the former data is still served.
        server.signal("HUP");
        client.check(&format!("round {round}, reloaded, the API {api}"));
    }
}
