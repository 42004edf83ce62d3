//! The cost of counting traffic: requests per second with and without it, with HAProxy and nginx.
//!
//! `cargo bench -p signpost-agent --bench traffic` runs both in turns, so that other work on the machine meets both alike. HAProxy
//! counts in any case, so that the cost is that of the readings, here one each second with 2,000 Routes. nginx without it sends no lines.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signpost_agent::proxy::Proxy;
use signpost_agent::proxy::haproxy::Haproxy;
use signpost_agent::proxy::isolation::Isolation;
use signpost_agent::proxy::nginx::Nginx;
use signpost_agent::render::Settings;
use signpost_agent::site::{Server, Site, Upstream};
use signpost_agent::traffic::Traffic;
use signpost_agent::traffic::view::Scope;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const ROUTES: usize = 2_000;
const CLIENTS: usize = 8;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers requests on kept connections.
async fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                    if stream.write_all(RESPONSE).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn site(application: SocketAddr) -> Site {
    let mut site = Site::default();
    for number in 0..ROUTES {
        let key: signpost_agent::site::RouteKey = format!("test/r{number}").parse().expect("a Route");
        let paths = site.hosts.entry(format!("r{number}.example").parse().expect("a host")).or_default();
        paths.insert("/".parse().expect("a path"), key.clone());
        let servers = vec![Server { address: application, tls_name: None, weight: 1 }];
        site.routes.insert(key, Upstream { uid: format!("uid{number}"), servers, ..Upstream::default() });
    }
    site
}

/// A proxy with the Site, in a directory that ends with it.
struct Bench {
    proxy: Box<dyn Proxy>,
    http: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new(kind: &str, counts: bool, site: &Site) -> Bench {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let http = signpost_testing::free_address();
        let settings =
            Settings { http: vec![http], https: vec![signpost_testing::free_address()], ..Settings::default() };
        let (place, isolation) = (directory.path().join("proxy"), Isolation::default());
        let mut proxy: Box<dyn Proxy> = match kind {
            "haproxy" => Box::new(Haproxy::new("haproxy".into(), &place, settings, &isolation).expect("a proxy")),
            _ => {
                let mut program = PathBuf::from("nginx");
                if !counts {
                    program = directory.path().join("nginx");
                    let script =
                        "#!/bin/sh\nsed -i 's/^ *access_log syslog.*/access_log off;/' nginx.conf\nexec nginx \"$@\"\n";
                    std::fs::write(&program, script).expect("it is written");
                    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is there");
                }
                Box::new(Nginx::new(program, &place, settings, &isolation).expect("a proxy"))
            }
        };
        proxy.apply(site, None).await.expect("the proxy serves");
        Bench { proxy, http, _directory: directory }
    }

    /// Returns the requests per second of one round.
    async fn round(&self, counts: bool, traffic: &Traffic) -> f64 {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let (stop, count, http) = (stop.clone(), count.clone(), self.http);
            clients.push(tokio::spawn(async move {
                let mut stream = TcpStream::connect(http).await.expect("a connection");
                let mut buffer = [0; 4_096];
                let mut number = client;
                while !stop.load(Ordering::Relaxed) {
                    number = (number + 37) % ROUTES;
                    let request = format!("GET / HTTP/1.1\r\nHost: r{number}.example\r\n\r\n");
                    let mut length = 0;
                    let mut is_sent = stream.write_all(request.as_bytes()).await.is_ok();
                    while !buffer[..length].ends_with(b"\r\n\r\nok") {
                        let read = stream.read(&mut buffer[length..]).await.unwrap_or_default();
                        length += read;
                        // nginx closes a connection after 1,000 requests.
                        if read == 0 || !is_sent {
                            stream = TcpStream::connect(http).await.expect("a connection");
                            is_sent = stream.write_all(request.as_bytes()).await.is_ok();
                            length = 0;
                        }
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        let started = Instant::now();
        let meter = self.proxy.meter().expect("the proxy counts");
        while started.elapsed() < ROUND {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if counts {
                traffic.add(meter.read().await.expect("counters"), Duration::from_secs(1));
            }
        }
        let rate = count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("no request failed");
        }
        rate
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let application = application().await;
    let site = site(application);
    for kind in ["haproxy", "nginx"] {
        let traffic = Traffic::default();
        traffic.follow(&site);
        let (mut with, mut without) = (Bench::new(kind, true, &site).await, Bench::new(kind, false, &site).await);
        let (mut counted, mut uncounted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            counted.push(with.round(true, &traffic).await);
            uncounted.push(without.round(false, &traffic).await);
        }
        let (counted, uncounted) = (median(counted), median(uncounted));
        let view = traffic.view(&Scope::All);
        println!(
            "{kind}: {uncounted:.0} requests/s without counting, {counted:.0} with: {:+.1} %; {} counted, {} lost",
            100.0 * (counted / uncounted - 1.0),
            view.totals.counters.total(),
            view.lost,
        );
        with.proxy.stop(Duration::from_secs(1)).await;
        without.proxy.stop(Duration::from_secs(1)).await;
    }
}
