//! Several API servers: when the current one is unreachable or hangs, a name server and commands switch to another one.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use signpost_testing::dig::printed;
use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, free_address};

const DOMAIN: [&str; 2] = ["--domain", "v3.rhcloud.com"];
/// The duration for which the behavior of a connection to a server is sampled.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const FORWARDS: u8 = 0;
/// The server reads nothing, and keeps all connections open, like a machine that hangs.
const HANGS: u8 = 1;
/// The server closes all connections.
const ENDS: u8 = 2;

/// A TCP proxy in the role of an API server.
struct Proxy {
    address: SocketAddr,
    mode: Arc<AtomicU8>,
    /// The connections that are open.
    open: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy {
            address: listener.local_addr().expect("it is bound"),
            mode: Arc::new(AtomicU8::new(FORWARDS)),
            open: Arc::default(),
        };
        let (mode, open) = (Arc::clone(&proxy.mode), Arc::clone(&proxy.open));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if mode.load(Ordering::Relaxed) == ENDS {
                    continue;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let (mode, open) = (Arc::clone(&mode), Arc::clone(&open));
                    std::thread::spawn(move || {
                        open.fetch_add(1, Ordering::Relaxed);
                        forward(from, to, &mode);
                        open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        proxy
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Copies until one side or the proxy ends it.
fn forward(mut from: TcpStream, mut to: TcpStream, mode: &AtomicU8) {
    from.set_read_timeout(Some(LOOK_INTERVAL)).expect("it is not zero");
    let mut octets = [0; 16 << 10];
    loop {
        match mode.load(Ordering::Relaxed) {
            HANGS => std::thread::sleep(LOOK_INTERVAL),
            ENDS => break,
            _ => match from.read(&mut octets) {
                Ok(0) => break,
                Ok(count) if to.write_all(&octets[..count]).is_err() => break,
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                _ => {}
            },
        }
    }
    for socket in [from, to] {
        // The only error is that it is closed.
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn a_name_server_and_commands_go_on_with_another_api_server() {
    let (data, state) = (DataDir::new(), DataDir::new());
    let ports = Ports::free();
    let roles = ["--roles", "api,scheduler,admin", "--data-dir", data.path()];
    let _api = Server::start(ports, &[&roles[..], &DOMAIN].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let (dead, proxies) = (free_address(), [Proxy::start(ports.api), Proxy::start(ports.api)]);
    let urls = [format!("https://{dead}"), proxies[0].url(), proxies[1].url()];
    let servers: Vec<&str> = urls.iter().flat_map(|url| ["--api-server", url]).collect();
    // The name server begins with a token that the API refuses; the right one comes without a restart.
    let right = std::fs::read_to_string(data.join("name-server.kubeconfig")).expect("the API wrote it");
    let kubeconfig = state.join("kubeconfig");
    std::fs::write(&kubeconfig, right.replace("token: ", "token: not-")).expect("written");
    let more =
        ["--roles", "dns,admin", "--data-dir", state.path(), "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
    let server = Server::spawn(Ports::free(), &[&more[..], &servers, &DOMAIN].concat());
    server.logs("401");
    std::fs::write(&kubeconfig, right).expect("written");
    let server = server.ready();
    // Creates a Router, and waits until the name server answers for it.
    let is_followed = |name: &str| {
        let address = "spec: {addresses: [{ip: 192.0.2.1}]}";
        let router =
            format!("apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}}}\n{address}\n");
        kubectl.ok_with(&["apply", "-f", "-"], &router);
        let host = format!("app.{name}.v3.rhcloud.com");
        eventually("the shard is served", || printed(server.dns, &host, "A", &[]).contains("192.0.2.1").then_some(()));
    };
    is_followed("first");
    let current = || {
        eventually("one is used", || {
            let used: Vec<&Proxy> = proxies.iter().filter(|proxy| proxy.is_used()).collect();
            if let [one] = used.as_slice() { Some(*one) } else { None }
        })
    };

    let gone = current();
    gone.set(ENDS);
    is_followed("second");
    server.logs(&format!("API server {} does not answer", gone.url()));
    gone.set(FORWARDS);
    let hangs = current();
    assert_ne!(hangs.address, gone.address);
    hangs.set(HANGS);
    is_followed("third");
    server.logs(&format!("API server {} does not answer", hangs.url()));

    let admin = data.join("kubeconfig");
    hangs.set(ENDS);
    for _ in 0..3 {
        ok(&[&["hold", "list", "--kubeconfig", admin.to_str().expect("UTF-8")][..], &servers].concat());
    }
    assert!(server.terminate().success());
}
