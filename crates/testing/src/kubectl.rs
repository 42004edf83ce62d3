//! Runs `kubectl` as a user does.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The word that tests compare.
    pub reason: String,
    /// The message for users.
    pub message: String,
}

/// `kubectl` with a kubeconfig of the test and its own discovery cache.
pub struct Kubectl {
    kubeconfig: PathBuf,
    cache: TempDir,
}

impl Kubectl {
    /// `kubectl` with this kubeconfig.
    pub fn new(kubeconfig: PathBuf) -> Kubectl {
        Kubectl { kubeconfig, cache: TempDir::new().expect("a temporary directory") }
    }

    /// Returns the command with `arguments`, which does not run yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(self.cache.path()).args(arguments);
        // Newer versions read preferences of the user there.
        command.env("HOME", self.cache.path());
        // The tests start it thousands of times. Collecting the garbage of a process that ends takes a quarter of its processor time.
        command.env("GOGC", "off");
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

    /// Runs it, expects success, and returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        success(&format!("kubectl {}", arguments.join(" ")), self.run(arguments))
    }

    /// Runs it with a manifest for `-f -`, expects success, and returns its output.
    pub fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        success(&format!("kubectl {}", arguments.join(" ")), self.run_with(arguments, input))
    }

    /// Returns the condition of this type of the object that `kubectl get` returns for `arguments`, if it has one.
    pub fn condition(&self, arguments: &[&str], kind: &str) -> Option<Condition> {
        let object = self.json(arguments);
        let found = object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
        let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
        Some(Condition { status: text("status"), reason: text("reason"), message: text("message") })
    }

    /// Runs it, expects failure, and returns its standard error.
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
