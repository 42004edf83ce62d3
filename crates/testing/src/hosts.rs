//! Hosts on one machine: each is a network namespace with its own address and processes.
//!
//! ```text
//!   host 1: eth0 10.18.1.2 ──── h1 10.18.1.1 ┐
//!   host 2: eth0 10.18.2.2 ──── h2 10.18.2.1 ├ the namespace of the test, which forwards between them
//!   host 3: eth0 10.18.3.2 ──── h3 10.18.3.1 ┘
//! ```
//!
//! The test runs between the hosts: it reaches each host, also one that is isolated from all others. A partition between two
//! hosts is a rule there, so that packets are lost on their path and no sender gets an error. A rule drops only one direction.
//!
//! Real delay and loss need the queueing discipline `netem`, which many kernels lack. A slow link is a token bucket here (`tbf`).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::process::Process;
use crate::program::bare;
use crate::wait::until;

/// The network between the hosts. Only for use [inside](crate::namespace::inside_namespaces) namespaces of the test.
pub struct Network {
    hosts: u8,
    /// The device from which, and the address to which, nothing passes.
    cuts: BTreeSet<(String, Ipv4Addr)>,
}

impl Default for Network {
    fn default() -> Network {
        Network::new()
    }
}

impl Network {
    /// Makes this namespace forward packets.
    pub fn new() -> Network {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a namespace of the test has settings of its own");
        Network { hosts: 0, cuts: BTreeSet::new() }
    }

    /// Adds a host.
    pub fn host(&mut self, name: &str) -> Host {
        self.hosts += 1;
        let (number, device) = (self.hosts, format!("h{}", self.hosts));
        let (address, gateway) = (Ipv4Addr::new(10, 18, number, 2), Ipv4Addr::new(10, 18, number, 1));
        // A namespace lasts as long as a process in it.
        let holder = Process::logged(Command::new("unshare").args(["--net", "sleep", "infinity"]));
        let own = namespace("self").expect("Linux has /proc");
        let namespace = until(&format!("{name} has a namespace"), || {
            namespace(&holder.id().to_string()).filter(|found| *found != own).ok_or("not yet")
        });
        let host = Host { name: name.to_owned(), device, address, gateway, holder, namespace };
        host.connect();
        host
    }

    /// Drops packets that come from one host and go to another; those back still pass.
    pub fn cut(&mut self, from: &Host, to: &Host) {
        if self.cuts.insert((from.device.clone(), to.address)) {
            rule("add", &from.device, to.address);
        }
    }

    /// Lets all packets pass again.
    pub fn heal(&mut self) {
        for (device, address) in std::mem::take(&mut self.cuts) {
            rule("del", &device, address);
        }
    }
}

/// A host.
pub struct Host {
    name: String,
    /// The other end of its link.
    device: String,
    /// The address of the host.
    pub address: Ipv4Addr,
    /// The address that the test has on the same link.
    pub gateway: Ipv4Addr,
    holder: Process,
    namespace: String,
}

impl Host {
    /// Returns the name of the host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a port of it.
    pub fn port(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }

    /// Returns the command of a program on this host, without the developer's own settings. A process that is started from it is
    /// the program's.
    pub fn command(&self, program: &str) -> Command {
        bare("nsenter", &[&format!("--net=/proc/{}/ns/net", self.holder.id()), "--", program])
    }

    /// Kills all of its processes, also those that the test did not start itself.
    pub fn kill(&self) {
        until(&format!("{} has no process", self.name), || match self.signal("KILL") {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        });
    }

    /// Stops all of its processes where they are.
    pub fn pause(&self) {
        // What a process has started meanwhile is there the second time.
        self.signal("STOP");
        self.signal("STOP");
    }

    /// Resumes the processes of the host.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Limits what passes its link in each direction, such as to `1mbit`, with a queue of up to a second.
    pub fn limit(&self, rate: &str) {
        self.queue(&["replace"], &["tbf", "rate", rate, "burst", "16kb", "latency", "1s"]);
    }

    /// Takes the limit off.
    pub fn unlimit(&self) {
        self.queue(&["del"], &[]);
    }

    /// Sends a signal to each of its processes; returns how many there were.
    fn signal(&self, signal: &str) -> usize {
        let holder = self.holder.id().to_string();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let ids: Vec<String> =
            ids.filter(|id| *id != holder && namespace(id).as_ref() == Some(&self.namespace)).collect();
        if !ids.is_empty() {
            // One that has ended since then is not there any more.
            let _ = Command::new("kill").arg(format!("-{signal}")).args(&ids).output();
        }
        ids.len()
    }

    fn connect(&self) {
        let (device, holder) = (&*self.device, self.holder.id().to_string());
        let own = |ip: Ipv4Addr| format!("{ip}/24");
        let link = ["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", &holder];
        succeeds(Command::new("ip").args(link));
        succeeds(Command::new("ip").args(["addr", "add", &own(self.gateway), "dev", device]));
        succeeds(Command::new("ip").args(["link", "set", device, "up"]));
        let inside = |arguments: &[&str]| succeeds(self.command("ip").args(arguments));
        inside(&["link", "set", "lo", "up"]);
        inside(&["addr", "add", &own(self.address), "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
        inside(&["route", "add", "default", "via", &self.gateway.to_string()]);
    }

    fn queue(&self, action: &[&str], kind: &[&str]) {
        let mut outside = Command::new("tc");
        for (command, device) in [(&mut outside, &*self.device), (&mut self.command("tc"), "eth0")] {
            succeeds(command.arg("qdisc").args(action).args(["dev", device, "root"]).args(kind));
        }
    }
}

fn rule(action: &str, device: &str, address: Ipv4Addr) {
    let rule = ["rule", action, "iif", device, "to", &address.to_string(), "blackhole"];
    succeeds(Command::new("ip").args(rule));
}

/// Returns the network namespace of a process.
fn namespace(id: &str) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{id}/ns/net")).ok()?;
    link.into_os_string().into_string().ok()
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("iproute2 and util-linux are installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
