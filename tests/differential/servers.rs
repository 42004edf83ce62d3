//! The four servers on the same zone files, each on a loopback port of its own.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::free_address;
use super::zones::Zone;

pub struct Servers {
    running: [(&'static str, SocketAddr, Child); 4],
    _folder: TempDir,
}

impl Servers {
    /// Starts all four and waits until each answers for the last zone.
    pub fn start(zones: &[Zone]) -> Servers {
        let folder = TempDir::new().expect("a temporary directory");
        let path = folder.path();
        for zone in zones {
            std::fs::write(path.join(format!("{}zone", zone.apex)), &zone.text).expect("written");
        }
        let [ours, knot, nsd, named] = std::array::from_fn(|_| free_address());
        let servers = Servers {
            running: [
                ("signpost", ours, spawn_signpost(path, ours)),
                ("knot", knot, spawn_knot(path, knot, zones)),
                ("nsd", nsd, spawn_nsd(path, nsd, zones)),
                ("named", named, spawn_named(path, named, zones)),
            ],
            _folder: folder,
        };
        for (name, address, _) in &servers.running {
            for zone in zones {
                wait_for(name, *address, &zone.apex);
            }
        }
        servers
    }

    pub fn addresses(&self) -> [(&'static str, SocketAddr); 4] {
        self.running.each_ref().map(|(name, address, _)| (*name, *address))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn_signpost(folder: &Path, address: SocketAddr) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signpost"));
    command.args(["serve", "--roles", "dns", "--dns-listen", &address.to_string(), "--zones"]).arg(folder);
    quiet(command)
}

fn spawn_knot(folder: &Path, address: SocketAddr, zones: &[Zone]) -> Child {
    let path = folder.display();
    let mut configuration = format!(
        "server:\n  listen: {}@{}\n  rundir: {path}\n  user: root\n  answer-rotation: off\ndatabase:\n  storage: {path}/db\nzone:\n",
        address.ip(),
        address.port(),
    );
    for zone in zones {
        configuration +=
            &format!("  - domain: {}\n    file: {path}/{}zone\n    zonefile-sync: -1\n", zone.apex, zone.apex);
    }
    std::fs::write(folder.join("knot.conf"), configuration).expect("written");
    let mut command = Command::new("knotd");
    command.arg("-c").arg(folder.join("knot.conf"));
    quiet(command)
}

fn spawn_nsd(folder: &Path, address: SocketAddr, zones: &[Zone]) -> Child {
    let path = folder.display();
    let mut configuration = format!(
        "server:\n  ip-address: {}@{}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  pidfile: \"\"\n  \
         zonesdir: \"{path}\"\n  xfrdfile: \"{path}/xfrd\"\n  zonelistfile: \"{path}/list\"\n  xfrdir: \"{path}\"\n  round-robin: no\n\
         \x20 minimal-responses: yes\nremote-control:\n  control-enable: no\n",
        address.ip(),
        address.port(),
    );
    for zone in zones {
        configuration += &format!("zone:\n  name: \"{}\"\n  zonefile: \"{path}/{}zone\"\n", zone.apex, zone.apex);
    }
    std::fs::write(folder.join("nsd.conf"), configuration).expect("written");
    let mut command = Command::new("nsd");
    command.arg("-d").arg("-c").arg(folder.join("nsd.conf"));
    quiet(command)
}

fn spawn_named(folder: &Path, address: SocketAddr, zones: &[Zone]) -> Child {
    let path = folder.display();
    let mut configuration = format!(
        "options {{ directory \"{path}\"; listen-on port {} {{ {}; }}; listen-on-v6 {{ none; }}; recursion no; pid-file none;\n\
         session-keyfile none; dnssec-validation no; notify no; minimal-responses yes; }};\ncontrols {{ }};\n",
        address.port(),
        address.ip(),
    );
    for zone in zones {
        configuration += &format!(
            "zone \"{}\" {{ type primary; file \"{path}/{}zone\"; check-names ignore; check-integrity no; check-mx ignore; }};\n",
            zone.apex, zone.apex
        );
    }
    std::fs::write(folder.join("named.conf"), configuration).expect("written");
    let mut command = Command::new("named");
    command.args(["-f", "-n", "1", "-c"]).arg(folder.join("named.conf"));
    quiet(command)
}

fn quiet(mut command: Command) -> Child {
    let program = command.get_program().to_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} is installed by the test command of the README: {error}", program.display()))
}

fn wait_for(name: &str, server: SocketAddr, apex: &str) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    socket.connect(server).expect("loopback");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let query = super::query(apex, 6, None);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut answer = [0; 512];
    while !(socket.send(&query).is_ok()
        && socket.recv(&mut answer).is_ok_and(|length| length > 12 && answer[3] & 0x0f == 0))
    {
        assert!(Instant::now() < deadline, "{name} does not serve {apex}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
