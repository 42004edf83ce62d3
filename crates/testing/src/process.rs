//! A child process: its log, its signals, its memory. Dropping it kills it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::running;
use crate::wait::{eventually, until};

/// The maximum number of log lines in memory.
const LOG_LINES_MAX: usize = 2_000;

/// A running child process. Dropping it kills it, and prints its log if the test fails.
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Mutex<Log>>,
    /// The threads that fill the log. Each ends with the stream that it reads.
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Log {
    lines: VecDeque<String>,
    /// The number of lines dropped from the front.
    dropped: usize,
    /// The number of the line after the most recently returned one.
    next: usize,
}

impl Process {
    /// Starts `command`. The log gets its standard error, and its standard output if that is piped.
    pub fn spawn(command: &mut Command) -> Process {
        command.stderr(Stdio::piped());
        Process::start(command).unwrap_or_else(|error| panic!("{error}: the test command of the README installs it"))
    }

    /// Starts `command` without input, with all that it prints in the log.
    pub fn logged(command: &mut Command) -> Process {
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))
    }

    /// Starts `command` with the standard streams that it has; returns an error that names the program if it does not start.
    pub fn start(command: &mut Command) -> Result<Process, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        if Path::new(&name).ends_with("signpost") {
            running::expect(child.id());
        }
        let log = Arc::<Mutex<Log>>::default();
        let mut readers = Vec::new();
        readers.extend(child.stderr.take().map(|stream| collect(stream, Arc::clone(&log))));
        readers.extend(child.stdout.take().map(|stream| collect(stream, Arc::clone(&log))));
        Ok(Process { name, child, log, readers })
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the last lines that it printed.
    pub fn log(&self) -> String {
        lock(&self.log).lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Waits for the next line that contains `part`, and returns it. Each line is returned once.
    #[track_caller]
    pub fn logs(&self, part: &str) -> String {
        eventually(&format!("{} prints {part:?}", self.name), || {
            let is_silent = self.readers.iter().all(JoinHandle::is_finished);
            let mut log = lock(&self.log);
            let first = log.next.saturating_sub(log.dropped);
            let found = log.lines.iter().enumerate().skip(first).find(|(_, line)| line.contains(part));
            let Some((at, line)) = found.map(|(at, line)| (at, line.clone())) else {
                assert!(!is_silent, "{} ended and never printed {part:?}", self.name);
                return None;
            };
            log.next = log.dropped + at + 1;
            Some(line)
        })
    }

    /// Returns whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.ended().is_none()
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let ended = self.child.try_wait().expect("the child can be queried");
        if ended.is_some() {
            running::forget(self.id());
        }
        ended
    }

    /// Sends a signal by name.
    pub fn signal(&self, signal: &str) {
        if matches!(signal, "TERM" | "INT" | "KILL") {
            running::forget(self.id());
        }
        let status = Command::new("kill").args([&format!("-{signal}"), &self.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits until it ends and the log is complete.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        eventually(&format!("{name} ends"), || {
            self.ended().filter(|_| self.readers.iter().all(JoinHandle::is_finished))
        })
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("the process runs");
        self.child.wait().expect("the process was killed");
    }

    /// Ends it with SIGTERM, and returns how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Returns the resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Returns the peak of its resident memory in KiB.
    pub fn resident_peak_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Returns the processor time that it has used.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("Linux has /proc");
        // The name in parentheses may contain spaces. After it, utime is the 12th field and stime the 13th, in hundredths.
        let fields = stat.rsplit_once(')').expect("the name is in parentheses").1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    fn status(&self, key: &str) -> u64 {
        self.proc("status", key).split_whitespace().next().and_then(|number| number.parse().ok()).expect("KiB")
    }

    /// Returns the number of open files and sockets.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).expect("Linux has /proc").count()
    }

    /// Returns the limit of open files and sockets.
    pub fn files_max(&self) -> u64 {
        let limits = self.proc("limits", "Max open files");
        limits.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a soft limit")
    }

    /// Returns the rest of the line that begins with `key`.
    fn proc(&self, file: &str, key: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.id())).expect("Linux has /proc");
        text.lines().find_map(|line| line.strip_prefix(key)).expect("the line is there").to_owned()
    }

    /// Waits until `attempt` succeeds; fails at once if the process ends before.
    #[track_caller]
    pub fn until<T>(&mut self, what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
        let name = self.name.clone();
        until(what, || {
            attempt().inspect_err(|_| {
                if let Some(status) = self.ended() {
                    panic!("{name} ended with {status} before: {what}");
                }
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        running::forget(self.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {} ({}) ---\n{}", self.name, self.id(), self.log());
        }
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn collect(stream: impl Read + Send + 'static, log: Arc<Mutex<Log>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut log = lock(&log);
            if log.lines.len() == LOG_LINES_MAX {
                log.lines.pop_front();
                log.dropped += 1;
            }
            log.lines.push_back(line);
        }
    })
}
