//! Other name servers and a resolver, on the zone files of a test.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::process::Process;

/// The zones and the address of a peer. The file of a zone is `<apex>.zone`.
pub struct Peer<'a> {
    /// The address on which the peer answers.
    pub listen: SocketAddr,
    /// The peer's own directory, for its configuration and state.
    pub folder: &'a Path,
    /// The directory of the zone files.
    pub zones: &'a Path,
    /// The apexes of its zones.
    pub apexes: &'a [&'a str],
    /// More lines of its configuration: of the section `server` (`options` of `named`).
    pub more: &'a str,
}

impl Peer<'_> {
    /// Starts Knot.
    pub fn knot(&self) -> Process {
        let (Peer { listen, more, .. }, here) = (self, self.folder.display());
        let configuration = format!(
            "server:\n  listen: {}@{}\n  rundir: {here}\n  user: root\n{more}database:\n  storage: {here}/db\nzone:\n{}",
            listen.ip(),
            listen.port(),
            self.each(|apex, file| format!("  - domain: {apex}\n    file: {file}\n    zonefile-sync: -1\n"))
        );
        self.run("knotd", &["-c"], &configuration)
    }

    /// Starts NSD.
    pub fn nsd(&self) -> Process {
        let (Peer { listen, more, .. }, here) = (self, self.folder.display());
        let configuration = format!(
            "server:\n  ip-address: {}@{}\n  server-count: 1\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n  \
             pidfile: \"\"\n  zonesdir: \"{here}\"\n  xfrdfile: \"{here}/xfrd\"\n  zonelistfile: \"{here}/list\"\n  \
             xfrdir: \"{here}\"\n{more}remote-control:\n  control-enable: no\n{}",
            listen.ip(),
            listen.port(),
            self.each(|apex, file| format!("zone:\n  name: \"{apex}\"\n  zonefile: \"{file}\"\n"))
        );
        self.run("nsd", &["-d", "-c"], &configuration)
    }

    /// Starts BIND. It listens on 127.0.0.0/8 only on the interface's address.
    pub fn named(&self) -> Process {
        let (Peer { listen, more, .. }, here) = (self, self.folder.display());
        let configuration = format!(
            "options {{ directory \"{here}\"; pid-file none; session-keyfile none; listen-on port {} {{ {}; }};\n\
             listen-on-v6 {{ none; }}; dnssec-validation no; notify no; {more} }};\ncontrols {{ }};\n{}",
            listen.port(),
            listen.ip(),
            self.each(|apex, file| format!("zone \"{apex}\" {{ type primary; file \"{file}\"; }};\n"))
        );
        self.run("named", &["-g", "-n", "1", "-c"], &configuration)
    }

    fn each(&self, zone: impl Fn(&str, &str) -> String) -> String {
        let zones = self.zones.display();
        self.apexes.iter().map(|apex| zone(apex, &format!("{zones}/{}.zone", apex.trim_end_matches('.')))).collect()
    }

    fn run(&self, program: &str, arguments: &[&str], configuration: &str) -> Process {
        run(program, arguments, self.folder, configuration)
    }
}

/// Starts Unbound with a stub for each of the zones `stubs` at its server; a zone with several servers is listed once per server,
/// consecutively.
pub fn unbound(listen: SocketAddr, folder: &Path, stubs: &[(&str, SocketAddr)]) -> Process {
    run("unbound", &["-d", "-c"], folder, &unbound_configuration(listen, "127.0.0.0/8", stubs))
}

/// Returns the configuration of that Unbound, which answers the network `clients`.
pub fn unbound_configuration(listen: SocketAddr, clients: &str, stubs: &[(&str, SocketAddr)]) -> String {
    let mut configuration = unbound_head(listen, clients);
    let mut before = "";
    for (zone, server) in stubs {
        if *zone != before {
            // Otherwise Unbound answers for the zones of RFC 6761 itself.
            write!(configuration, "server:\n  local-zone: \"{zone}\" transparent\nstub-zone:\n  name: \"{zone}\"\n")
                .expect("a string takes all");
        }
        before = zone;
        writeln!(configuration, "  stub-addr: {}@{}", server.ip(), server.port()).expect("a string takes all");
    }
    configuration
}

/// Starts Unbound, which forwards what is in a zone to a server over TLS, whose certificate has to be of the authorities in this
/// file and for this name.
pub fn unbound_over_tls(
    listen: SocketAddr,
    folder: &Path,
    (zone, server, name): (&str, SocketAddr, &str),
    authorities: &Path,
) -> Process {
    let forward = format!(
        "server:\n  tls-cert-bundle: \"{}\"\nforward-zone:\n  name: \"{zone}\"\n  forward-addr: {}@{}#{name}\n  \
         forward-tls-upstream: yes\n",
        authorities.display(),
        server.ip(),
        server.port()
    );
    run("unbound", &["-d", "-c"], folder, &(unbound_head(listen, "127.0.0.0/8") + &forward))
}

fn unbound_head(listen: SocketAddr, clients: &str) -> String {
    format!(
        "server:\n  interface: {}\n  port: {}\n  username: \"\"\n  chroot: \"\"\n  directory: \"/\"\n  pidfile: \"\"\n  \
         use-syslog: no\n  do-daemonize: no\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n  \
         access-control: {clients} allow\nremote-control:\n  control-enable: no\n",
        listen.ip(),
        listen.port()
    )
}

fn run(program: &str, arguments: &[&str], folder: &Path, configuration: &str) -> Process {
    let path = folder.join(format!("{program}.conf"));
    std::fs::write(&path, configuration).expect("the directory of a test is writable");
    Process::logged(Command::new(program).args(arguments).arg(path))
}
