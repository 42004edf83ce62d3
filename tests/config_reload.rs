//! Reloading the configuration of a running program: a bad file changes nothing and is complained of, a good one comes into
//! effect as far as it can.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

struct Running {
    child: Child,
    log: Receiver<String>,
}

impl Running {
    fn start(config: &Path, zones: &Path) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_signpost"))
            .args(["serve", "--roles", "dns", "--dns-listen", "127.0.0.1:0", "--config"])
            .arg(config)
            .arg("--zones")
            .arg(zones)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (sender, log) = channel();
        let lines = BufReader::new(child.stderr.take().expect("was piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Running { child, log }
    }

    /// Waits for a line that holds `part`, and gives it.
    fn says(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.log.recv_timeout(Duration::from_secs(60)) {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("never said {part:?}, but:\n{}", seen.join("\n"));
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bad_file_keeps_the_settings_and_a_good_one_changes_what_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("signpost.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("written");
    write("log.level = \"info\"");
    let mut running = Running::start(&config, folder.path());
    running.says("the zones folder was read");

    write("log.level = \"debug\"\nlog.lvel = 1");
    running.signal("HUP");
    running.says("signpost.toml:2:5: unknown key \"log.lvel\"; did you mean \"log.level\"?");
    running.says("all settings stay as they were");

    let turned =
        "deletion-hold.threshold = 50\ndns.stale-after = \"5m\"\nhealth.probes = 8\nhealth.panic-threshold = 20\n";
    write(&format!("{turned}log.level = \"debug\"\ndomain = \"other.example\""));
    running.signal("HUP");
    running
        .says("changed=\"dns.stale-after, deletion-hold.threshold, health.probes, health.panic-threshold, log.level\"");
    let restart = running.says("changes of these keys need a restart: ");
    assert!(restart.ends_with(": domain"), "{restart}");

    // The level that was read last is the one that counts: errors alone, and then all as before.
    write(&format!("{turned}log.level = \"error\"\nquery-log.sample = 1\nquery-log.file = \"/nonexistent/log\""));
    running.signal("HUP");
    running.says("the query log stays as it was");
    write(&format!("{turned}log.level = \"info\""));
    running.signal("HUP");
    let told = running.says("the configuration was reloaded");
    assert!(told.contains("changed=\"log.level\""), "the former reload was no error: {told}");

    running.signal("TERM");
    let status = running.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
