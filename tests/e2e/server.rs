//! The real program as a child process, on ports that were free a moment ago.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

/// How long anything that should happen may take on a busy two-core machine.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How many lines of a server's log are kept for a failure's report.
const LOG_LINES_MAX: usize = 400;

/// The path of the program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_signpost")
}

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A running `signpost serve`. Dropping it kills it.
pub struct Server {
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    /// What fills the log: each ends with what it reads.
    readers: Vec<JoinHandle<()>>,
    /// Where it answers DNS.
    pub dns: SocketAddr,
    /// Where its admin endpoint listens.
    pub admin: SocketAddr,
}

/// Ports for one server, so that it can be started again on the same ones.
#[derive(Clone, Copy)]
pub struct Ports {
    pub dns: SocketAddr,
    pub api: SocketAddr,
    pub admin: SocketAddr,
}

impl Ports {
    /// Ports that nobody uses at the moment.
    pub fn free() -> Ports {
        Ports { dns: free_address(), api: free_address(), admin: free_address() }
    }

    /// The flags that say so.
    pub fn arguments(&self) -> [String; 6] {
        let flags = [("--dns-listen", self.dns), ("--api-listen", self.api), ("--admin-listen", self.admin)];
        let mut arguments = flags.into_iter().flat_map(|(flag, address)| [flag.to_owned(), address.to_string()]);
        std::array::from_fn(|_| arguments.next().expect("three flags with a value each"))
    }
}

/// A loopback address with a port that nobody uses at the moment, by TCP or UDP, and that stays free between two starts of a
/// server: no connection gets it by chance, since the system takes those ports from higher up.
pub fn free_address() -> SocketAddr {
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        AtomicU32::new(since.subsec_nanos() ^ std::process::id())
    });
    for _ in PORTS {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(PORTS.start + at).expect("a port")));
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free for both UDP and TCP");
}

impl Server {
    /// Starts `signpost serve` with `arguments` on `ports` and waits until it is ready.
    pub fn start(ports: Ports, arguments: &[&str]) -> Server {
        let mut server = Server::spawn(ports, arguments);
        server.wait_ready();
        server
    }

    /// Starts it without waiting.
    pub fn spawn(ports: Ports, arguments: &[&str]) -> Server {
        let mut command = Command::new(program());
        if !arguments.contains(&"--domain") {
            // The one of examples/rhcloud.
            command.env("SIGNPOST_DOMAIN", "v3.rhcloud.com");
        }
        command.arg("serve").args(arguments).args(ports.arguments()).stdin(Stdio::null()).stdout(Stdio::piped());
        Server::spawn_as(ports, command)
    }

    /// Starts what `command` says, without waiting. It must listen on `ports`.
    pub fn spawn_as(ports: Ports, mut command: Command) -> Server {
        // Nothing of the developer's own settings reaches the server under test.
        for (key, _) in std::env::vars_os() {
            let is_set = command.get_envs().any(|(set, _)| set == key);
            if (key.to_string_lossy().starts_with("SIGNPOST_") || key == "KUBECONFIG") && !is_set {
                command.env_remove(key);
            }
        }
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let mut readers = vec![collect(child.stderr.take().expect("was piped"), Arc::clone(&log))];
        readers.extend(child.stdout.take().map(|stdout| collect(stdout, Arc::clone(&log))));
        Server { child, log, readers, dns: ports.dns, admin: ports.admin }
    }

    /// Waits until `/readyz` says 200.
    pub fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let last = http_get(self.admin, "/readyz");
            match &last {
                Some((200, _)) => return,
                _ if Instant::now() > deadline => panic!("not ready: {last:?}\n{}", self.log()),
                _ => {}
            }
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                panic!("the server ended with {status}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What it has printed, newest last.
    pub fn log(&self) -> String {
        self.log.lock().expect("no reader panics").iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Its process.
    #[allow(dead_code, reason = "for the fault tests")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server was killed");
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Sends a signal by name.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for its end, and until the log has its last words.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().expect("the child can be asked");
            if let Some(status) = ended.filter(|_| self.readers.iter().all(JoinHandle::is_finished)) {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server on {} ---\n{}", self.dns, self.log());
        }
    }
}

fn collect(stream: impl Read + Send + 'static, log: Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut log = log.lock().expect("no reader panics");
            if log.len() == LOG_LINES_MAX {
                log.pop_front();
            }
            log.push_back(line);
        }
    })
}

/// Status and body of a plain HTTP GET; `None` if nobody answers.
pub fn http_get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Asks again and again until `probe` gives something, and fails with `what` when it never does.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(25));
    }
}

/// A data directory that goes away with the test.
pub struct DataDir(TempDir);

impl DataDir {
    pub fn new() -> DataDir {
        DataDir(TempDir::new().expect("a temporary directory"))
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().expect("temporary paths are UTF-8")
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
