//! Clusters of etcd for the suite.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signpost_apiserver::store::Store;
use signpost_apiserver::store::etcd::{Etcd, Settings};
use signpost_testing::net::free_address;
use signpost_testing::process::Process;

/// The members of a cluster on loopback, which ends with it.
pub struct Cluster {
    clients: Vec<SocketAddr>,
    _members: Vec<Process>,
    _data: tempfile::TempDir,
}

impl Cluster {
    /// A cluster of so many members, which may not have come up yet.
    pub fn start(members: usize) -> Cluster {
        let data = tempfile::tempdir().unwrap();
        let addresses = || (0..members).map(|_| free_address()).collect::<Vec<_>>();
        let (clients, peers) = (addresses(), addresses());
        let all: Vec<String> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let member = |number: usize| {
            let (client, peer) = (format!("http://{}", clients[number]), format!("http://{}", peers[number]));
            let mut command = Command::new("etcd");
            command.args(["--name", &format!("m{number}"), "--data-dir"]).arg(data.path().join(number.to_string()));
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &all.join(","), "--log-level", "error"]);
            Process::logged(&mut command)
        };
        let members = (0..members).map(member).collect();
        Cluster { clients, _members: members, _data: data }
    }

    /// The engine over all of them, once they are up.
    pub async fn connect(&self) -> Arc<dyn Store> {
        let endpoints = self.clients.iter().map(|client| format!("http://{client}")).collect();
        let settings = Settings { endpoints, prefix: "/signpost".to_owned(), ..Settings::default() };
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match Etcd::connect(&settings).await {
                Ok(store) => return Arc::new(store),
                Err(error) if Instant::now() > until => panic!("etcd does not come up: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
