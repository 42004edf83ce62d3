//! Clusters of etcd on loopback, and what goes wrong with their members.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::net::{free_address, http_get};
use crate::process::Process;

/// A cluster of etcd members on loopback. Dropping it kills them.
pub struct Cluster {
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    arguments: Vec<String>,
    members: Vec<Option<Process>>,
    data: TempDir,
}

impl Cluster {
    /// Starts a cluster of `members` members with more `arguments` for each. It may take a moment until they serve.
    pub fn start(members: usize, arguments: &[&str]) -> Cluster {
        let addresses = || (0..members).map(|_| free_address()).collect();
        let mut cluster = Cluster {
            clients: addresses(),
            peers: addresses(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            members: Vec::new(),
            data: TempDir::new().expect("a temporary directory can be created"),
        };
        for number in 0..members {
            let member = cluster.spawn(number);
            cluster.members.push(Some(member));
        }
        cluster
    }

    /// Returns the number of members, those that were killed included.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the URLs that clients use.
    pub fn endpoints(&self) -> Vec<String> {
        self.clients.iter().map(|client| format!("http://{client}")).collect()
    }

    /// Returns the member that reports that it leads. A stopped or killed member is not queried.
    pub fn leader(&self) -> Option<usize> {
        let leads = |number: &usize| {
            let metrics = http_get(self.clients[*number], "/metrics");
            metrics.is_some_and(|(_, text)| text.lines().any(|line| line == "etcd_server_is_leader 1"))
        };
        (0..self.size()).filter(|number| self.members[*number].is_some()).find(leads)
    }

    /// Ends a member with SIGKILL. It keeps its data.
    pub fn kill(&mut self, number: usize) {
        self.members[number].take().expect("the member runs").kill();
    }

    /// Starts a member that was killed.
    pub fn restart(&mut self, number: usize) {
        assert!(self.members[number].is_none(), "the member runs");
        self.members[number] = Some(self.spawn(number));
    }

    /// Returns the number of watches on a member.
    pub fn watches(&self, number: usize) -> u64 {
        let (_, metrics) = http_get(self.clients[number], "/metrics").expect("the member runs");
        let line = metrics.lines().find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
        line.expect("etcd counts its watchers").parse().expect("a number")
    }

    /// Returns the data directory of a member.
    pub fn data(&self, number: usize) -> PathBuf {
        self.data.path().join(number.to_string())
    }

    /// Sends a signal to a member by name: STOP and CONT, for example.
    pub fn signal(&self, number: usize, signal: &str) {
        self.members[number].as_ref().expect("the member runs").signal(signal);
    }

    fn spawn(&self, number: usize) -> Process {
        let (client, peer) = (format!("http://{}", self.clients[number]), format!("http://{}", self.peers[number]));
        let all = self.peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}"));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{number}"), "--data-dir"]).arg(self.data(number));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.collect::<Vec<_>>().join(","), "--log-level", "error"]);
        Process::logged(command.args(&self.arguments))
    }
}
