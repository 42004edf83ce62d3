//! The network between the process that verifies names and the name servers is cut, and heals.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use signpost_types::v1alpha1::route::Route;
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;

use crate::model::{Key, Model};
use crate::platform::{Objects, start};
use signpost_testing::{DataDir, Ports, Server, until};

const ROUTES: usize = 90;
const ROUTERS: usize = 6;
/// The length of the partition, at least. A check fails after two seconds.
const CUT: Duration = Duration::from_secs(4);
/// The time between checks of what is right: longer than the test waits for a recovery, so that no regular check causes it.
const INTERVAL: &str = "10m";

/// A UDP proxy to one name server. While it is cut, it drops all datagrams.
struct Cable {
    is_cut: Arc<AtomicBool>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Cable {
    fn to(server: SocketAddr) -> Cable {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let socket = runtime.block_on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let is_cut = Arc::new(AtomicBool::new(false));
        let (socket, cut) = (Arc::new(socket), Arc::clone(&is_cut));
        runtime.spawn(async move {
            let mut query = [0; 1500];
            while let Ok((length, client)) = socket.recv_from(&mut query).await {
                let (query, socket, cut) = (query[..length].to_vec(), Arc::clone(&socket), Arc::clone(&cut));
                if !cut.load(Ordering::Relaxed) {
                    tokio::spawn(async move {
                        let response = forward(&query, server).await?;
                        if !cut.load(Ordering::Relaxed) {
                            socket.send_to(&response, client).await?;
                        }
                        std::io::Result::Ok(())
                    });
                }
            }
        });
        Cable { is_cut, address, _runtime: runtime }
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

async fn forward(query: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    upstream.connect(server).await?;
    upstream.send(query).await?;
    let mut response = vec![0; 4096];
    let length = tokio::time::timeout(Duration::from_secs(5), upstream.recv(&mut response)).await??;
    response.truncate(length);
    Ok(response)
}

/// Reason and transition time of the condition `Resolvable`.
fn resolvable(route: &Route) -> Option<(String, Timestamp)> {
    let condition = route.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Resolvable")?;
    Some((condition.reason.clone(), condition.last_transition_time.0))
}

/// Returns the latest transition, once `accept` takes the number of Routes with this reason.
fn count(objects: &Objects, what: &str, reason: &str, accept: impl Fn(usize) -> bool) -> Timestamp {
    until(what, || {
        let routes = objects.present()?.routes;
        let found: Vec<_> = routes.iter().filter_map(resolvable).filter(|(found, _)| found == reason).collect();
        match found.iter().map(|(_, at)| *at).max() {
            Some(latest) if accept(found.len()) => Ok(latest),
            _ => Err(format!("{} of {} Routes are {reason}", found.len(), routes.len())),
        }
    })
}

#[test]
fn routes_are_resolvable_as_soon_as_a_partition_heals() {
    let (data, states) = (DataDir::new(), [DataDir::new(), DataDir::new()]);
    let ports = [Ports::free(), Ports::free()];
    let cables = ports.map(|ports| Cable::to(ports.dns));
    let servers = format!("ns1.v3.example={},ns2.v3.example={}", cables[0].address, cables[1].address);
    let control = ["--roles", "api,scheduler,admin", "--data-dir", data.path(), "--verify-server", &servers];
    let _control = start(Ports::free(), &[&control[..], &["--verify-interval", INTERVAL]].concat());
    let kubeconfig = data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let name_server = |at: usize| -> Server {
        start(ports[at], &["--roles", "dns,admin", "--data-dir", states[at].path(), "--kubeconfig", kubeconfig])
    };
    let name_servers = [name_server(0), name_server(1)];
    let (objects, mut model) = (Objects::of(&data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 0);
    for number in 3..=ROUTERS {
        objects.must(&mut model, Key::Router(format!("shard{number}")), Some(format!("192.0.2.{number}")));
    }
    for number in 0..ROUTES {
        objects.must(&mut model, Key::Route(format!("r{number}")), Some("first".to_owned()));
    }
    count(&objects, "all Routes are resolvable at first", "Resolvable", |count| count == ROUTES);

    // What is checked during the partition: the zones of all Routers, the alias zone, and all of them again.
    for (round, (changes_routers, creates)) in [(true, false), (false, true), (true, true)].into_iter().enumerate() {
        cables.iter().for_each(|cable| cable.set_cut(true));
        let is_api_lost = round == 2;
        if is_api_lost {
            // Neither does the API's news arrive.
            name_servers.iter().for_each(|server| server.signal("STOP"));
        }
        let begun = Instant::now();
        for number in (1..=ROUTERS).filter(|_| changes_routers) {
            let addresses = format!("192.0.2.{},192.0.2.{}", number, 10 * (round + 1) + number);
            objects.must(&mut model, Key::Router(format!("shard{number}")), Some(addresses));
        }
        if creates {
            objects.must(&mut model, Key::Route(format!("r{}", ROUTES + round)), Some("first".to_owned()));
        }
        let what = format!("round {round}: Routes are reported as not answering");
        count(&objects, &what, "NotAnswering", |count| count > ROUTES / 10);
        std::thread::sleep(CUT.saturating_sub(begun.elapsed()));
        let cut = begun.elapsed();
        if is_api_lost {
            name_servers.iter().for_each(|server| server.signal("CONT"));
        }
        cables.iter().for_each(|cable| cable.set_cut(false));
        let healed = Timestamp::now();
        let what = format!("round {round}: all Routes are resolvable again");
        let all = ROUTES + round;
        let latest = count(&objects, &what, "Resolvable", |count| count == all);
        let took = latest.duration_since(healed).as_secs_f64();
        println!("round {round}: cut for {cut:?}, all Routes are resolvable {took:.1} s after it");
    }
}
