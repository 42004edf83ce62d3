//! `kubectl` and `dig` as a user runs them, and network namespaces.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "E2E_INSIDE_NAMESPACE";

/// Runs the named test of this program again, inside a network namespace with its loopback up.
pub fn inside_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("iproute2 is installed");
        assert!(up.success());
        return true;
    }
    let program = std::env::current_exe().expect("the test knows its own program");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--"]).arg(program);
    let status =
        command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status().expect("util-linux is installed");
    assert!(status.success(), "{test} failed inside its network namespace");
    false
}

/// `kubectl` with a kubeconfig of ours and a discovery cache of its own.
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: TempDir,
}

impl Kubectl {
    pub fn new(kubeconfig: PathBuf) -> Kubectl {
        Kubectl { kubeconfig, cache: TempDir::new().expect("a temporary directory") }
    }

    /// It, about to be run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(self.cache.path()).args(arguments);
        command
    }

    /// Runs it, however it ends.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl is installed: the test command of the README installs it")
    }

    /// Runs it with this text as its standard input, however it ends.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Output {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), input).expect("a temporary file can be written");
        let path = file.path().to_str().expect("temporary paths are UTF-8").to_owned();
        let arguments: Vec<&str> =
            arguments.iter().map(|argument| if *argument == "-" { path.as_str() } else { argument }).collect();
        self.run(&arguments)
    }

    /// Runs it, expects success, and gives what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        success(&format!("kubectl {}", arguments.join(" ")), self.run(arguments))
    }

    /// The same with a manifest for `-f -`.
    pub fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        success(&format!("kubectl {}", arguments.join(" ")), self.run_with(arguments, input))
    }

    /// Runs it, expects failure, and gives what it complained of.
    pub fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run_with(arguments, input);
        assert!(
            !output.status.success(),
            "kubectl {} should fail, but printed {}",
            arguments.join(" "),
            text(&output.stdout)
        );
        text(&output.stderr)
    }

    /// `kubectl get … -o json`.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ok(&[&["get"], arguments, &["-o", "json"]].concat());
        serde_json::from_str(&output).expect("kubectl prints JSON")
    }
}

fn success(what: &str, output: Output) -> String {
    assert!(output.status.success(), "{what} failed: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// A response as `dig` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// `NOERROR`, `NXDOMAIN`, …
    pub status: String,
    /// The letters of `;; flags:`.
    pub flags: Vec<String>,
    /// Each record's fields, in order.
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub owner: String,
    pub ttl: u32,
    pub rtype: String,
    pub data: String,
}

impl Response {
    /// The data of the answer's records of one type, in their order.
    pub fn data(&self, rtype: &str) -> Vec<&str> {
        self.answer.iter().filter(|record| record.rtype == rtype).map(|record| record.data.as_str()).collect()
    }

    /// The same, sorted: for sets that rotate.
    pub fn sorted(&self, rtype: &str) -> Vec<&str> {
        let mut data = self.data(rtype);
        data.sort_unstable();
        data
    }

    /// The serial of the SOA in the answer.
    pub fn serial(&self) -> Option<u32> {
        self.data("SOA").first()?.split(' ').nth(2)?.parse().ok()
    }
}

/// `dig @server name type`, with more options.
pub fn dig(server: SocketAddr, name: &str, rtype: &str, options: &[&str]) -> Response {
    try_dig(server, name, rtype, options).unwrap_or_else(|| panic!("{server} does not answer {name} {rtype}"))
}

/// The same; `None` if nobody answers.
pub fn try_dig(server: SocketAddr, name: &str, rtype: &str, options: &[&str]) -> Option<Response> {
    let output = Command::new("dig")
        .args([&format!("@{}", server.ip()), "-p", &server.port().to_string(), "+norecurse", "+time=15", "+tries=3"])
        .args(["+noall", "+comments", "+answer", "+authority", "+additional", "-q", name, "-t", rtype])
        .args(options)
        .output()
        .expect("dig is installed: the test command of the README installs it");
    output.status.success().then(|| parse(&text(&output.stdout)))
}

fn parse(printed: &str) -> Response {
    let mut response = Response {
        status: String::new(),
        flags: Vec::new(),
        answer: Vec::new(),
        authority: Vec::new(),
        additional: Vec::new(),
    };
    let mut section: Option<&str> = None;
    for line in printed.lines() {
        if let Some(rest) = line.strip_prefix(";; ->>HEADER<<-") {
            let status = rest.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
            response.status = status.expect("dig prints the status").to_owned();
        } else if let Some(rest) = line.strip_prefix(";; flags:") {
            let flags = rest.split(';').next().expect("split gives one part at least");
            response.flags = flags.split_whitespace().map(str::to_owned).collect();
        } else if let Some(rest) = line.strip_prefix(";; ").and_then(|rest| rest.strip_suffix(" SECTION:")) {
            section = Some(rest);
        } else if !line.starts_with(';') && !line.trim().is_empty() {
            let mut fields = line.split_whitespace();
            let mut next = || fields.next().unwrap_or_else(|| panic!("dig printed {line:?}")).to_owned();
            let (owner, ttl, _class, rtype) = (next(), next(), next(), next());
            let record = Record {
                owner,
                ttl: ttl.parse().unwrap_or_else(|_| panic!("dig printed {line:?}")),
                rtype,
                data: fields.collect::<Vec<_>>().join(" "),
            };
            match section {
                Some("ANSWER") => response.answer.push(record),
                Some("AUTHORITY") => response.authority.push(record),
                Some("ADDITIONAL") => response.additional.push(record),
                other => panic!("a record in section {other:?}: {line}"),
            }
        }
    }
    assert!(!response.status.is_empty(), "dig printed no header: {printed}");
    response
}
