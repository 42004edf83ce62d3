//! The program under test: `signpost serve` on free ports, and one run of a command.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::{Command, ExitStatus, Output};
use std::sync::LazyLock;

use serde_json::Value;

use crate::net::{free_address, http_get};
use crate::process::Process;

/// Returns the path of the program, which Cargo builds before tests and benches.
pub fn program() -> &'static str {
    // Cargo sets the variable; a test binary that was started by hand is in `deps`, and the program is in its parent directory.
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        std::env::var("CARGO_BIN_EXE_signpost").unwrap_or_else(|_| {
            let test = std::env::current_exe().expect("a test knows its own path");
            let program = test.ancestors().nth(2).expect("a test is in target/*/deps").join("signpost");
            program.into_os_string().into_string().expect("the path is UTF-8")
        })
    });
    &PROGRAM
}

/// Returns the program's command with `arguments`, and with no settings of the developer's own.
pub fn command(arguments: &[&str]) -> Command {
    bare(program(), arguments)
}

/// Returns the command of another program, which may start ours, with no settings of the developer's own.
pub fn bare(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("HOME").env_remove("NO_COLOR");
    without_settings(&mut command);
    command
}

/// Removes the variables that the program reads, except those that `command` sets.
fn without_settings(command: &mut Command) {
    for (key, _) in std::env::vars_os() {
        let is_set = command.get_envs().any(|(set, _)| set == key);
        if (key.to_string_lossy().starts_with("SIGNPOST_") || key == "KUBECONFIG") && !is_set {
            command.env_remove(key);
        }
    }
}

/// The end of a run: its exit code and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs the program with `arguments`.
pub fn run(arguments: &[&str]) -> Ran {
    Ran::of(&mut command(arguments))
}

/// Runs the program with `arguments`, expects success, and returns its standard output.
#[track_caller]
pub fn ok(arguments: &[&str]) -> String {
    run(arguments).ok()
}

/// Runs the program with `arguments`, expects success, and returns the JSON that it printed.
#[track_caller]
pub fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(&[arguments, &["-o", "json"]].concat())).expect("JSON")
}

impl Ran {
    /// Runs `command`.
    pub fn of(command: &mut Command) -> Ran {
        let Output { status, stdout, stderr } = command.output().expect("the command starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Expects success, and returns the standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Expects this exit code, and returns the standard error.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

/// The ports of one server, so that it can be started again on the same ones.
#[derive(Clone, Copy)]
pub struct Ports {
    /// The DNS address of the program.
    pub dns: SocketAddr,
    /// The API address of the program.
    pub api: SocketAddr,
    /// The admin address of the program.
    pub admin: SocketAddr,
}

impl Ports {
    /// Ports that are free at the moment.
    pub fn free() -> Ports {
        Ports { dns: free_address(), api: free_address(), admin: free_address() }
    }

    /// Returns the flags for them.
    pub fn arguments(&self) -> [String; 6] {
        let flags = [("--dns-listen", self.dns), ("--api-listen", self.api), ("--admin-listen", self.admin)];
        let mut arguments = flags.into_iter().flat_map(|(flag, address)| [flag.to_owned(), address.to_string()]);
        std::array::from_fn(|_| arguments.next().expect("three flags with a value each"))
    }
}

/// Returns whether the process with this admin endpoint is ready.
pub fn is_ready(admin: SocketAddr) -> bool {
    matches!(http_get(admin, "/readyz"), Some((200, _)))
}

/// A running `signpost serve`. Dropping it kills it.
pub struct Server {
    process: Process,
    /// The DNS address of the program.
    pub dns: SocketAddr,
    /// The admin address of the program.
    pub admin: SocketAddr,
}

impl Server {
    /// Starts `signpost serve` with `arguments` on `ports` and waits until it is ready.
    #[track_caller]
    pub fn start(ports: Ports, arguments: &[&str]) -> Server {
        Server::spawn(ports, arguments).ready()
    }

    /// Starts it without waiting.
    pub fn spawn(ports: Ports, arguments: &[&str]) -> Server {
        let mut command = Command::new(program());
        if !arguments.contains(&"--domain") {
            // The domain of examples/rhcloud.
            command.env("SIGNPOST_DOMAIN", "v3.rhcloud.com");
        }
        command.arg("serve").args(arguments).args(ports.arguments());
        Server::logged(ports, command)
    }

    /// Starts `command` without input, with all that it prints in the log, and without waiting. It must listen on `ports`.
    pub fn logged(ports: Ports, mut command: Command) -> Server {
        without_settings(&mut command);
        Server { process: Process::logged(&mut command), dns: ports.dns, admin: ports.admin }
    }

    /// Starts `command` with the standard input and output that it has, without waiting. It must listen on `ports`.
    pub fn spawn_as(ports: Ports, mut command: Command) -> Server {
        without_settings(&mut command);
        Server { process: Process::spawn(&mut command), dns: ports.dns, admin: ports.admin }
    }

    /// Waits until it is ready.
    #[track_caller]
    pub fn ready(mut self) -> Server {
        self.wait_ready();
        self
    }

    /// Waits until `/readyz` returns 200.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let admin = self.admin;
        self.process.until("the server is ready", || match http_get(admin, "/readyz") {
            Some((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Ends it with SIGKILL.
    pub fn kill(self) {
        self.process.kill();
    }

    /// Ends it with SIGTERM, and returns how it ended.
    pub fn terminate(self) -> ExitStatus {
        self.process.terminate()
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
