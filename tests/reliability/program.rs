//! The real program as a child process, serving one zone, and what the kernel says of its memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::server::free_address;

#[path = "../e2e/server.rs"]
#[allow(dead_code, reason = "of the end-to-end tests' server only its ports are of use here")]
mod server;

/// How long anything that should happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running `signpost serve` with the role `dns`. Dropping it kills it.
pub struct Program {
    child: Child,
    /// Where it answers.
    pub dns: SocketAddr,
    _zones: TempDir,
}

impl Program {
    /// Starts the program at `path` with these flags beside those for its addresses, and waits until it answers.
    pub fn start(path: &Path, flags: &[&str]) -> Program {
        let zones = TempDir::new().expect("a temporary directory");
        std::fs::write(zones.path().join("shard.example.zone"), zone()).expect("written");
        let (dns, admin) = (free_address(), free_address());
        let mut command = Command::new(path);
        command.args(["serve", "--roles", "dns,admin", "--log-level", "error", "--zones"]).arg(zones.path());
        command.args(["--dns-listen", &dns.to_string(), "--admin-listen", &admin.to_string()]).args(flags);
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("SIGNPOST_") {
                command.env_remove(key);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("the program starts");
        let mut program = Program { child, dns, _zones: zones };
        let deadline = Instant::now() + PATIENCE;
        while !is_ready(admin) {
            assert!(program.is_running(), "the program ended");
            assert!(Instant::now() < deadline, "the program is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        program
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child can be asked").is_none()
    }

    /// Its resident memory now, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most that its resident memory was, in KiB.
    #[allow(dead_code, reason = "for the bench")]
    pub fn resident_peak_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// How many files and sockets it has open.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("Linux tells").count()
    }

    /// How many files and sockets it may have open.
    pub fn files_max(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("Linux tells");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("Linux tells");
        line.split_whitespace().nth(3).and_then(|number| number.parse().ok()).expect("a soft limit")
    }

    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("Linux tells");
        let line = status.lines().find(|line| line.starts_with(key)).expect("Linux tells");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A wildcard with four addresses, and a text of 40,000 octets at `large`.
fn zone() -> String {
    let mut text = String::from(
        "$TTL 30\n@ SOA ns.example.test. admin.example.test. 1 3600 600 86400 30\n@ NS ns.example.test.\n",
    );
    (1..=4).for_each(|last| text += &format!("* A 192.0.2.{last}\n"));
    (0..200).for_each(|number| text += &format!("large TXT \"{number:03}{}\"\n", "x".repeat(197)));
    text
}

fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&admin, Duration::from_secs(10))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
