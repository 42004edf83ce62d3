//! Reloading the configuration of a running program: an invalid file changes nothing and is logged; a valid one takes effect as
//! far as possible.

use signpost_testing::program::command;
use signpost_testing::{DataDir, Process};

#[test]
fn a_bad_file_keeps_the_settings_and_a_good_one_changes_what_it_can() {
    let folder = DataDir::new();
    let write = |text: &str| folder.write("signpost.toml", text);
    let config = write("log.level = \"info\"");
    let arguments = ["serve", "--roles", "dns", "--dns-listen", "127.0.0.1:0", "--zones", folder.path()];
    let running = Process::logged(command(&arguments).args(["--config", &config]));
    running.logs("zone files loaded");

    write("log.level = \"debug\"\nlog.lvel = 1");
    running.signal("HUP");
    running.logs("signpost.toml:2:5: unknown key \"log.lvel\"; did you mean \"log.level\"?");
    running.logs("all settings keep their values");

    let turned =
        "deletion-hold.threshold = 50\ndns.stale-after = \"5m\"\nhealth.probes = 8\nhealth.panic-threshold = 20\n";
    write(&format!("{turned}log.level = \"debug\"\ndomain = \"other.example\""));
    running.signal("HUP");
    running
        .logs("changed=\"dns.stale-after, deletion-hold.threshold, health.probes, health.panic-threshold, log.level\"");
    let restart = running.logs("changes of these keys require a restart: ");
    assert!(restart.ends_with(": domain"), "{restart}");

    // The most recently read level applies: errors only, and then all as before.
    write(&format!("{turned}log.level = \"error\"\nquery-log.sample = 1\nquery-log.file = \"missing/log\""));
    running.signal("HUP");
    running.logs("failed to open the query log; it stays unchanged");
    write(&format!("{turned}log.level = \"info\""));
    running.signal("HUP");
    let line = running.logs("configuration reloaded");
    assert!(line.contains("changed=\"log.level\""), "the former reload succeeded: {line}");

    let status = running.terminate();
    assert!(status.success(), "{status}");
}
