//! Running under a service manager: notifications, the end of the process, and sockets that outlive a process.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use signpost_testing::dns::{RecordType, query};
use signpost_testing::{DataDir, PATIENCE, Ports, Server, dig, eventually, free_address, http_get, program, root};

/// A name of the example's zone files, and its address.
const NAME: &str = "anything.shard1.v3.rhcloud.com";

/// The service manager's end of `NOTIFY_SOCKET`.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Manager {
        let folder = TempDir::new().expect("a temporary directory");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        Manager { socket, folder }
    }

    /// `signpost serve` on zone files, as this manager starts it.
    fn start(&self, ports: Ports, more: &[&str]) -> Server {
        let zones = root().join("zones");
        let zones = ["--roles", "dns,admin", "--zones", zones.to_str().expect("UTF-8")];
        self.start_as(ports, &[zones.as_slice(), more].concat())
    }

    /// `signpost serve` with these arguments.
    fn start_as(&self, ports: Ports, arguments: &[&str]) -> Server {
        let mut command = Command::new(program());
        command.arg("serve").args(arguments).args(ports.arguments());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify")).env("WATCHDOG_USEC", "400000");
        Server::logged(ports, command)
    }

    /// Returns the next message that has a line `line`; those before it are passed over.
    fn wait_for(&self, line: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = [0; 4096];
        while Instant::now() < deadline {
            let Ok(length) = self.socket.recv(&mut buffer) else { continue };
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if message.lines().any(|one| one == line) {
                return message;
            }
        }
        panic!("the service manager never received {line}");
    }
}

#[test]
fn the_service_manager_hears_of_start_reload_life_and_stop() {
    let manager = Manager::new();
    let mut server = manager.start(Ports::free(), &[]);
    let ready = manager.wait_for("READY=1");
    assert!(ready.contains("STATUS=running as dns, admin"), "{ready}");
    // The notification is accurate: the server answers immediately.
    assert_eq!(dig(server.dns, NAME, "A", &[]).status, "NOERROR");
    assert_eq!(http_get(server.admin, "/readyz").expect("answers").0, 200);
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    server.signal("HUP");
    let reloading = manager.wait_for("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.wait_for("READY=1");
    server.signal("TERM");
    let stopping = manager.wait_for("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC="), "{stopping}");
    assert!(server.wait().success());
}

#[test]
fn a_lame_duck_ends_when_its_time_is_over_though_the_manager_does_not_listen() {
    let manager = Manager::new();
    let mut server = manager.start(Ports::free(), &["--lame-duck", "3s"]);
    manager.wait_for("READY=1");
    let begun = Instant::now();
    // From here, the manager does not read notifications; its socket is full after ten messages, that is two seconds.
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn a_lame_duck_is_not_ready_and_answers_until_a_second_signal() {
    let manager = Manager::new();
    let server = manager.start(Ports::free(), &["--lame-duck", "10m"]);
    manager.wait_for("READY=1");
    server.signal("TERM");
    manager.wait_for("STOPPING=1");
    let response = eventually("it reports that it is not ready", || {
        http_get(server.admin, "/readyz").filter(|(status, _)| *status == 503)
    });
    assert!(response.1.contains("[-] process/stop"), "{}", response.1);
    assert_eq!(http_get(server.admin, "/livez").expect("answers").0, 200);
    assert_eq!(dig(server.dns, NAME, "A", &[]).status, "NOERROR");
    // The manager is kept quiet meanwhile.
    manager.wait_for("WATCHDOG=1");
    assert!(server.terminate().success());
}

/// The threads of a process, stopped until this is dropped. Another process traces them.
struct Frozen(Child);

impl Frozen {
    /// Stops the threads of `server` with this name; `None`, with a note, without the permission.
    fn threads(server: &Server, name: &str) -> Option<Frozen> {
        const SCRIPT: &str = "import ctypes, os, sys\n\
            ptrace = ctypes.CDLL(None, use_errno=True).ptrace\n\
            for thread in map(int, sys.argv[1:]):\n\
            \x20   for request in (0x4206, 0x4207):\n\
            \x20       if ptrace(request, thread, 0, 0):\n\
            \x20           print(os.strerror(ctypes.get_errno()), flush=True)\n\
            \x20           sys.exit(1)\n\
            print('stopped', flush=True)\n\
            sys.stdin.read()\n";
        // A thread takes its name when it first runs, which may be after the server is ready.
        let threads = eventually(&format!("the server has threads named {name}"), || {
            let all = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("Linux lists them");
            let paths = all.map(|entry| entry.expect("Linux lists them").path());
            let named =
                paths.filter(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim() == name));
            let threads: Vec<_> = named.filter_map(|path| Some(path.file_name()?.to_owned())).collect();
            (!threads.is_empty()).then_some(threads)
        });
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).args(threads).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: python3: {error}");
                return None;
            }
        };
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("was piped")).read_line(&mut line).expect("it prints a line");
        let frozen = Frozen(child);
        if line.trim() != "stopped" {
            println!("skipped: threads may not be traced here: {line}");
            return None;
        }
        Some(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Manager {
    /// Returns whether the process reports within `time` that it is alive, apart from earlier messages.
    fn gets_watchdog_ping_within(&self, time: Duration) -> bool {
        let mut buffer = [0; 4096];
        self.socket.set_nonblocking(true).expect("is set");
        while self.socket.recv(&mut buffer).is_ok() {}
        self.socket.set_nonblocking(false).expect("is set");
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let Ok(length) = self.socket.recv(&mut buffer) else { continue };
            if String::from_utf8_lossy(&buffer[..length]).lines().any(|line| line == "WATCHDOG=1") {
                return true;
            }
        }
        false
    }
}

#[test]
fn a_dns_worker_that_hangs_is_named_and_the_watchdog_is_not_fed() {
    let manager = Manager::new();
    let server = manager.start(Ports::free(), &["--dns-workers", "2"]);
    manager.wait_for("READY=1");
    for thread in ["dns-udp-1", "dns-stream"] {
        assert_eq!(http_get(server.admin, "/livez").expect("answers").0, 200);
        let Some(frozen) = Frozen::threads(&server, thread) else { return };
        let response = eventually(&format!("/livez reports {thread}"), || {
            http_get(server.admin, "/livez").filter(|(status, _)| *status == 500)
        });
        let named = if thread == "dns-stream" { "the DNS listener of TCP" } else { "the DNS worker dns-udp-1" };
        assert!(response.1.contains(named) && response.1.contains("is hung"), "{}", response.1);
        // What waited for this manager to read comes first.
        eventually("nothing is on its way", || {
            (!manager.gets_watchdog_ping_within(Duration::from_millis(500))).then_some(())
        });
        assert!(!manager.gets_watchdog_ping_within(Duration::from_secs(2)));
        drop(frozen);
        eventually("it is alive again", || http_get(server.admin, "/livez").filter(|(status, _)| *status == 200));
        manager.wait_for("WATCHDOG=1");
    }
}

#[test]
fn a_starved_api_hides_neither_health_nor_dns() {
    let manager = Manager::new();
    let (data, ports) = (DataDir::new(), Ports::free());
    let own = ["--roles", "api,scheduler,dns,admin", "--data-dir", data.path(), "--domain", "v3.rhcloud.com"];
    let mut server = manager.start_as(ports, &own);
    server.wait_ready();
    // All threads that serve the API and run the control loops.
    let Some(_frozen) = Frozen::threads(&server, "tokio-rt-worker") else { return };
    let deadline = Instant::now() + Duration::from_secs(12);
    while Instant::now() < deadline {
        assert_eq!(http_get(server.admin, "/livez").expect("answers"), (200, "ok\n".to_owned()));
        assert!(http_get(server.admin, "/readyz").is_some());
        for transport in ["+notcp", "+tcp"] {
            assert_eq!(dig(server.dns, "v3.rhcloud.com", "SOA", &[transport]).status, "NOERROR");
        }
        assert!(manager.gets_watchdog_ping_within(PATIENCE));
    }
}

/// Starts the program with `sockets` from descriptor 3 on, as a service manager does.
fn start_with(ports: Ports, udp: &UdpSocket, tcp: &TcpListener, more: &[&str]) -> Server {
    // Standard input and output are the only descriptors that can be handed over plainly; a shell moves them.
    let script = r#"exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, program(), "serve", "--roles", "dns,admin", "--zones"]).arg(root().join("zones"));
    command.args(ports.arguments()).args(more);
    command.stdin(Stdio::from(OwnedFd::from(udp.try_clone().expect("another handle"))));
    command.stdout(Stdio::from(OwnedFd::from(tcp.try_clone().expect("another handle"))));
    Server::spawn_as(ports, command)
}

/// UDP and TCP on one address, held by the test as by a service manager.
fn sockets() -> (SocketAddr, UdpSocket, TcpListener) {
    let address = free_address();
    let udp = UdpSocket::bind(address).expect("was free a moment ago");
    let tcp = TcpListener::bind(address).expect("was free a moment ago");
    (address, udp, tcp)
}

#[test]
fn a_query_between_two_processes_is_answered_by_the_next() {
    let (dns, udp, tcp) = sockets();
    let ports = Ports { dns, ..Ports::free() };
    let mut first = start_with(ports, &udp, &tcp, &["--dns-workers", "3"]);
    first.wait_ready();
    for _ in 0..8 {
        assert_eq!(dig(dns, NAME, "A", &[]).status, "NOERROR");
        assert_eq!(dig(dns, NAME, "A", &["+tcp"]).status, "NOERROR");
    }
    assert!(first.terminate().success());

    let question = query(7, NAME, RecordType::A);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.send_to(&question, dns).expect("the socket is open without a server");
    let mut second = start_with(ports, &udp, &tcp, &[]);
    let mut answer = [0; 512];
    let (length, from) = client.recv_from(&mut answer).expect("answered by the second process");
    assert_eq!((from, &answer[..2]), (dns, &[0, 7][..]));
    assert!(length > question.len() && answer[3] & 15 == 0, "it waited for the zones: {:?}", &answer[..length]);
    second.wait_ready();
    assert_eq!(dig(dns, NAME, "A", &[]).status, "NOERROR");
    assert_eq!(dig(dns, NAME, "A", &["+tcp"]).status, "NOERROR");
    assert!(second.terminate().success());
}

#[test]
fn sockets_that_no_setting_names_are_refused() {
    let (dns, udp, tcp) = sockets();
    let mut server = start_with(Ports::free(), &udp, &tcp, &[]);
    assert_eq!(server.wait().code(), Some(2));
    let log = eventually("it logs why", || Some(server.log()).filter(|log| log.contains("dns.listen")));
    assert!(log.contains(&format!("TCP {dns}")) && log.contains(&format!("UDP {dns}")), "{log}");
}
