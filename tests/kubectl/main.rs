//! Stock `kubectl` with Signpost's API server: all common commands, each with its exit code and every output line, as with a real
//! API server.
//!
//! The cases are data: the [`transcript`]s in `transcripts/`, with a file for each kind of work. Each is played against its own
//! server over TLS, by each available `kubectl`. `SIGNPOST_KUBECTL` names them (a list as in `PATH`); without it, the one on the
//! `PATH` is used. Without any, the tests print a note and pass.

mod transcript;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::transcript::{Act, Step, Transcript};
use signpost_testing::{DataDir, PATIENCE, Ports, Server};

/// Older ones need OpenAPI version 2, which is not served.
const OLDEST_MINOR: u32 = 29;

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            play(stringify!($name), include_str!(concat!("transcripts/", stringify!($name), ".txt")));
        }
    )*};
}

transcripts!(
    apply,
    delete,
    discovery,
    events,
    change,
    read,
    refused,
    rights,
    secrets,
    server_side_apply,
    services,
    watch
);

#[test]
fn every_transcript_is_played() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/transcripts");
    let source = include_str!("main.rs");
    let list = source.split_once("\ntranscripts!(").and_then(|(_, rest)| rest.split_once(");")).expect("the list").0;
    for entry in std::fs::read_dir(folder).expect("a folder of the project") {
        let name = entry.expect("readable").file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".txt")).expect("transcripts are .txt");
        assert!(list.split(',').any(|listed| listed.trim() == stem), "{stem} is in no list");
    }
}

/// One `kubectl`.
struct Client {
    program: PathBuf,
    /// 32 of 1.32.
    minor: u32,
}

/// Returns the clients to test with; empty when there is none.
fn clients() -> Vec<Client> {
    let named = std::env::var_os("SIGNPOST_KUBECTL");
    let programs: Vec<PathBuf> = match &named {
        Some(list) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => vec![PathBuf::from("kubectl")],
    };
    let mut clients = Vec::new();
    for program in programs {
        match minor(&program) {
            Some(minor) if minor >= OLDEST_MINOR => clients.push(Client { program, minor }),
            Some(minor) => eprintln!("SKIPPED: {} is 1.{minor}, older than 1.{OLDEST_MINOR}", program.display()),
            None if named.is_some() => panic!("SIGNPOST_KUBECTL names {}, which does not run", program.display()),
            None => {}
        }
    }
    clients
}

fn minor(program: &Path) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    version["clientVersion"]["minor"].as_str()?.trim_end_matches('+').parse().ok()
}

fn play(name: &str, text: &str) {
    let transcript = Transcript::parse(text).unwrap_or_else(|error| panic!("{name}.txt: {error}"));
    let clients = clients();
    if clients.is_empty() {
        eprintln!("SKIPPED: {name}: no kubectl of 1.{OLDEST_MINOR} or later is on the PATH or in SIGNPOST_KUBECTL");
    }
    let mut failures = Vec::new();
    for client in clients {
        failures.extend(Session::start(&client).play(name, &transcript));
    }
    assert!(failures.is_empty(), "{} steps went otherwise:\n\n{}", failures.len(), failures.join("\n"));
}

/// One client with a server of its own.
struct Session<'a> {
    client: &'a Client,
    data: DataDir,
    cache: TempDir,
    server: Server,
    /// Commands that run on, by name.
    running: Vec<(String, Running)>,
    /// The values that later steps use as `@name@`, newest first.
    saved: Vec<(String, String)>,
}

/// A command that runs on, and what it has printed on its standard output and its standard error.
struct Running {
    child: Child,
    printed: [Arc<Mutex<Vec<u8>>>; 2],
}

impl Running {
    fn printed(&self) -> [String; 2] {
        let text = |octets: &Arc<Mutex<Vec<u8>>>| {
            String::from_utf8_lossy(&octets.lock().expect("readers do not panic")).into_owned()
        };
        self.printed.each_ref().map(text)
    }

    /// Returns whether its watch is open, by its log at [`REQUESTS_ARE_TOLD`]: later events reach it.
    fn watches(&self) -> bool {
        self.printed()[1].lines().any(|line| line.contains("watch=true") && line.contains("200 OK"))
    }
}

/// The option that makes `kubectl` log each answered request on standard error.
const REQUESTS_ARE_TOLD: &str = "-v=6";

/// Returns whether a line is one of `kubectl`'s own log, such as `I1122 16:20:36.123456 …`.
fn is_log(line: &str) -> bool {
    line.strip_prefix('I').and_then(|rest| rest.get(..4)).is_some_and(|date| date.parse::<u16>().is_ok())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The outcome of a command.
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

impl<'a> Session<'a> {
    fn start(client: &'a Client) -> Self {
        let data = DataDir::new();
        // The API alone: there are no other writers, so all output is known.
        let arguments = ["--roles", "api,admin", "--data-dir", data.path(), "--domain", "v3.example"];
        let server = Server::start(Ports::free(), &arguments);
        Session {
            client,
            data,
            cache: TempDir::new().expect("a folder"),
            server,
            running: Vec::new(),
            saved: Vec::new(),
        }
    }

    /// Plays it, and gives what went otherwise.
    fn play(mut self, name: &str, transcript: &Transcript) -> Vec<String> {
        let mut failures = Vec::new();
        for step in &transcript.steps {
            if !step.minors.contains(&self.client.minor) {
                continue;
            }
            if let Err(found) = self.take(step) {
                let program = self.client.program.display();
                failures.push(format!("{program} (1.{}), {name}.txt:{}, {found}", self.client.minor, step.line));
            }
        }
        if !failures.is_empty() {
            eprintln!("--- log of the server ---\n{}", self.server.log());
        }
        failures
    }

    fn take(&mut self, step: &Step) -> Result<(), String> {
        match &step.act {
            Act::Run => {
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let outcome = self.run(step);
                    match step.check(outcome.code, &outcome.stdout, &outcome.stderr) {
                        Err(_) if step.again && Instant::now() < deadline => {
                            std::thread::sleep(Duration::from_millis(100));
                        }
                        verdict => {
                            if let Some(name) = &step.save {
                                self.saved.insert(0, (format!("@{name}@"), outcome.stdout.trim().to_owned()));
                            }
                            return verdict;
                        }
                    }
                }
            }
            Act::Begin(name) => {
                let mut command = self.command(step);
                command.arg(REQUESTS_ARE_TOLD);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut child = command.spawn().expect("it ran when it printed its version");
                let printed = [Arc::default(), Arc::default()];
                collect(child.stdout.take().expect("was piped"), &printed[0]);
                collect(child.stderr.take().expect("was piped"), &printed[1]);
                let running = Running { child, printed };
                let deadline = Instant::now() + PATIENCE;
                while !running.watches() {
                    if Instant::now() > deadline {
                        return Err(format!("{name:?} watches nothing: {:?}", running.printed()));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                self.running.push((name.clone(), running));
                Ok(())
            }
            Act::End(name) => {
                let place = self.running.iter().position(|(running, _)| running == name);
                let place = place.ok_or_else(|| format!("nothing with the name {name:?} was begun"))?;
                let (_, running) = self.running.remove(place);
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let [mut printed, errors] = running.printed();
                    printed.extend(errors.lines().filter(|line| !is_log(line)).flat_map(|line| [line, "\n"]));
                    match step.check(0, &printed, "") {
                        Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                        verdict => return verdict,
                    }
                }
            }
        }
    }

    fn command(&self, step: &Step) -> Command {
        let mut command = Command::new(&self.client.program);
        command.args(step.words.iter().map(|word| self.filled(word)));
        let own_config = step.words.iter().any(|word| word.starts_with("--kubeconfig"));
        if !own_config {
            command.arg("--kubeconfig").arg(self.data.join("kubeconfig"));
        }
        command.arg("--cache-dir").arg(self.cache.path()).env("HOME", self.cache.path());
        for name in ["KUBECONFIG", "EDITOR", "VISUAL", "KUBECTL_EXTERNAL_DIFF"] {
            command.env_remove(name);
        }
        command.envs(step.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the text with what was saved in its places.
    fn filled(&self, text: &str) -> String {
        self.saved.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn run(&self, step: &Step) -> Outcome {
        let mut child = self
            .command(step)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it ran when it printed its version");
        let mut input = child.stdin.take().expect("was piped");
        let mut text = self.filled(&step.input);
        if text.starts_with('{') && serde_json::from_str::<serde_json::Value>(&text).is_err() {
            // What begins so is JSON to clients before 1.30.
            text.insert_str(0, "---\n");
        }
        // A command that reads no input may have closed it.
        let _ = input.write_all(text.as_bytes());
        drop(input);
        let (stdout, stderr) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let readers = [
            collect(child.stdout.take().expect("was piped"), &stdout),
            collect(child.stderr.take().expect("was piped"), &stderr),
        ];
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().expect("the child can be checked") {
                Some(status) => break status.code().unwrap_or(-1),
                None if Instant::now() > deadline => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break -1;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        for reader in readers {
            let _ = reader.join();
        }
        let text = |octets: &Arc<Mutex<Vec<u8>>>| {
            String::from_utf8_lossy(&octets.lock().expect("readers do not panic")).into_owned()
        };
        Outcome { code: status, stdout: text(&stdout), stderr: text(&stderr) }
    }
}

fn collect(mut from: impl std::io::Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> std::thread::JoinHandle<()> {
    let into = into.clone();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            into.lock().expect("readers do not panic").extend_from_slice(&piece[..count]);
        }
    })
}
