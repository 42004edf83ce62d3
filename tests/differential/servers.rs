//! The four servers on the same zone files, each on a loopback port of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use signpost_testing::dns::{Asker, RecordType, ResponseCode};
use signpost_testing::peers::Peer;
use signpost_testing::program::command;
use signpost_testing::{DataDir, Process, free_address, wait_for};

use super::zones::Zone;

pub struct Servers {
    running: [(&'static str, SocketAddr, Process); 4],
    _folder: DataDir,
}

impl Servers {
    /// Starts all four and waits until each answers for all zones.
    pub fn start(zones: &[Zone]) -> Servers {
        let folder = DataDir::new();
        for zone in zones {
            folder.write(&format!("{}zone", zone.apex), &zone.text);
        }
        let path = Path::new(folder.path());
        let apexes: Vec<&str> = zones.iter().map(|zone| zone.apex.as_str()).collect();
        let [ours, knot, nsd, named] = std::array::from_fn(|_| free_address());
        let peer = |listen, more| Peer { listen, folder: path, zones: path, apexes: &apexes, more };
        let own = ["serve", "--roles", "dns", "--dns-listen", &ours.to_string(), "--zones", folder.path()];
        let servers = Servers {
            running: [
                ("signpost", ours, Process::logged(&mut command(&own))),
                ("knot", knot, peer(knot, "  answer-rotation: off\n").knot()),
                ("nsd", nsd, peer(nsd, "  round-robin: no\n  minimal-responses: yes\n").nsd()),
                ("named", named, peer(named, NAMED).named()),
            ],
            _folder: folder,
        };
        for (name, address, _) in &servers.running {
            let mut asker = Asker::new(*address);
            for apex in &apexes {
                wait_for(&format!("{name} serves {apex}"), || {
                    let answer = asker.ask(apex, RecordType::SOA, Duration::from_millis(100));
                    answer.is_some_and(|answer| answer.rcode == ResponseCode::NoError)
                });
            }
        }
        servers
    }

    pub fn addresses(&self) -> [(&'static str, SocketAddr); 4] {
        self.running.each_ref().map(|(name, address, _)| (*name, *address))
    }
}

/// The options with which BIND loads the zones without changes.
const NAMED: &str =
    "recursion no; minimal-responses yes; check-names primary ignore; check-integrity no; check-mx ignore;";
