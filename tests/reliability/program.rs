//! The program as a name server of one zone.

use std::net::SocketAddr;
use std::ops::Deref;

use signpost_testing::{DataDir, Ports, Server};

/// A running `signpost serve` with the role `dns`. Dropping it kills it.
pub struct Program {
    pub server: Server,
    /// The DNS address of the program.
    pub dns: SocketAddr,
    _zones: DataDir,
}

impl Program {
    /// Starts the program with these flags in addition to those for its addresses, and waits until it answers.
    pub fn start(flags: &[&str]) -> Program {
        let zones = DataDir::new();
        zones.write("shard.example.zone", zone());
        let own = ["--roles", "dns,admin", "--log-level", "error", "--zones", zones.path()];
        let server = Server::start(Ports::free(), &[&own, flags].concat());
        Program { dns: server.dns, server, _zones: zones }
    }
}

impl Deref for Program {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Returns a wildcard with four addresses, and a text of 40,000 octets at `large`.
fn zone() -> String {
    let mut text = String::from(
        "$TTL 30\n@ SOA ns.example.test. admin.example.test. 1 3600 600 86400 30\n@ NS ns.example.test.\n",
    );
    (1..=4).for_each(|last| text += &format!("* A 192.0.2.{last}\n"));
    (0..200).for_each(|number| text += &format!("large TXT \"{number:03}{}\"\n", "x".repeat(197)));
    text
}
