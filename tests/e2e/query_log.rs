//! The query log from the operator's view: off by default, in a file or on standard output, changed and rotated by SIGHUP.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use signpost_testing::{DataDir, Ports, Scrape, Server, dig, eventually};

const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n* A 192.0.2.2\n";

/// Returns a directory with a zones directory in it that serves `a.example`.
fn folder() -> DataDir {
    let folder = DataDir::new();
    std::fs::create_dir(folder.join("zones")).expect("made");
    std::fs::write(folder.join("zones/a.example.zone"), ZONE).expect("written");
    folder
}

fn start(folder: &DataDir, more: &[&str]) -> Server {
    let zones = folder.join("zones");
    let zones = zones.to_str().expect("UTF-8");
    Server::start(Ports::free(), &[&["--roles", "dns,admin", "--zones", zones], more].concat())
}

/// One query, sent once.
fn ask(server: &Server, name: &str, rtype: &str, more: &[&str]) {
    dig(server.dns, name, rtype, &[&["+tries=1", "+time=30"], more].concat());
}

/// Returns the lines of a log, when there are as many.
fn lines(path: &Path, count: usize) -> Vec<String> {
    eventually(&format!("{count} lines are logged"), || {
        let text = std::fs::read_to_string(path).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert!(lines.len() <= count, "too many lines: {lines:#?}");
        (lines.len() == count && text.ends_with('\n')).then_some(lines)
    })
}

#[test]
fn every_request_is_one_complete_line() {
    let folder = folder();
    let path = folder.join("queries.log");
    let server = start(&folder, &["--query-log-sample", "1", "--query-log-file", path.to_str().expect("UTF-8")]);
    ask(&server, "Www.a.example", "A", &["+dnssec", "+bufsize=4000", "+nocookie"]);
    ask(&server, "www.a.example", "AAAA", &["+tcp", "+noedns", "+cdflag"]);
    // A name with a line break, a quote and a space in it.
    ask(&server, "x\\010\\034\\032y.elsewhere.example", "TYPE65400", &["+noedns"]);
    let logged: Vec<Value> =
        lines(&path, 3).iter().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let by_name = |name: &str| logged.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{logged:#?}"));
    let first = by_name("Www.a.example.");
    for (field, expected) in [
        ("transport", Value::from("udp")),
        ("client", "127.0.0.1".into()),
        ("type", "A".into()),
        ("class", "IN".into()),
        ("opcode", "QUERY".into()),
        ("edns", serde_json::json!({"version": 0, "udp_payload": 4000, "do": true})),
        ("rcode", "NOERROR".into()),
        ("response_flags", serde_json::json!(["qr", "aa"])),
        ("answers", 2.into()),
        ("zone", "a.example.".into()),
    ] {
        assert_eq!(first[field], expected, "{field} of {first}");
    }
    assert!(
        first["port"].as_u64().is_some_and(|port| port > 0) && first["request_bytes"].as_u64() > Some(12),
        "{first}"
    );
    assert!(first["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')), "{first}");
    let second = by_name("www.a.example.");
    assert_eq!((&second["transport"], &second["edns"], &second["answers"]), (&"tcp".into(), &Value::Null, &0.into()));
    assert!(second["flags"].as_array().is_some_and(|flags| flags.contains(&"cd".into())), "{second}");
    let third = by_name("x\\010\\\"\\032y.elsewhere.example.");
    assert_eq!(
        (&third["type"], &third["rcode"], &third["zone"]),
        (&"TYPE65400".into(), &"REFUSED".into(), &Value::Null)
    );
    eventually("the written lines are counted", || {
        (Scrape::of(server.admin).sum("signpost_dns_query_log_records_total", &[]) == 3.0).then_some(())
    });
    assert_eq!(Scrape::of(server.admin).sum("signpost_dns_query_log_dropped_total", &[]), 0.0);
    // What was answered last is in the log, too.
    ask(&server, "last.a.example", "A", &[]);
    assert!(server.terminate().success());
    assert!(lines(&path, 4)[3].contains("last.a.example."));
}

#[test]
fn dnstap_has_both_messages() {
    let folder = folder();
    let path = folder.join("queries.dnstap");
    let file = path.to_str().expect("UTF-8");
    let server = start(
        &folder,
        &["--query-log-sample", "1", "--query-log-file", file, "--query-log-format", "dnstap", "--server-id", "ns1"],
    );
    ask(&server, "Www.a.example", "A", &["+nocookie"]);
    ask(&server, "www.a.example", "AAAA", &["+tcp"]);
    assert!(server.terminate().success());
    let read =
        Command::new("dnstap-read").args(["-y", file]).output().expect("dnstap-read is installed (bind9-dnsutils)");
    let text = String::from_utf8_lossy(&read.stdout);
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let count = |part: &str| text.matches(part).count();
    assert_eq!((count("type: AUTH_QUERY"), count("type: AUTH_RESPONSE")), (2, 2), "{text}");
    assert_eq!((count("socket_protocol: UDP"), count("socket_protocol: TCP")), (2, 2), "{text}");
    for part in ["identity: ns1", "query_address: \"127.0.0.1\"", "Www.a.example. IN A", "status: NOERROR", "192.0.2.2"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_reload_switches_it_on_and_off_and_reopens_the_file() {
    let folder = folder();
    let (path, moved, config) = (folder.join("queries.log"), folder.join("queries.1"), folder.join("signpost.toml"));
    let configure = |text: &str| std::fs::write(&config, text).expect("written");
    configure("");
    let server = start(&folder, &["--config", config.to_str().expect("UTF-8")]);
    let reloads = || server.log().matches("configuration reloaded").count();
    let reload = || {
        let before = reloads();
        server.signal("HUP");
        eventually("it is reloaded", || (reloads() > before).then_some(()));
    };
    ask(&server, "before.a.example", "A", &[]);
    configure(
        "query-log.sample = 1\nquery-log.file = \"queries.log\"\nquery-log.format = \"text\"\nquery-log.clients = \"none\"\n",
    );
    reload();
    ask(&server, "one.a.example", "A", &["+nocookie"]);
    let line = lines(&path, 1).remove(0);
    let columns: Vec<&str> = line.split(' ').collect();
    assert_eq!(columns.len(), 15, "{line}");
    assert_eq!(columns[1..7], ["udp", "-", "one.a.example.", "IN", "A", "QUERY"], "{line}");
    assert_eq!((columns[10], columns[14]), ("NOERROR", "a.example."), "{line}");

    // Moved away as a rotation does it: the rest goes into a new file.
    std::fs::rename(&path, &moved).expect("renamed");
    reload();
    ask(&server, "two.a.example", "A", &[]);
    assert!(lines(&path, 1)[0].contains("two.a.example."));
    lines(&moved, 1);

    // With an invalid path, the log continues at its former destination.
    configure("query-log.sample = 1\nquery-log.file = \"nowhere/queries.log\"\nquery-log.format = \"text\"\n");
    reload();
    eventually("the fault is logged", || server.log().contains("nowhere/queries.log").then_some(()));
    ask(&server, "three.a.example", "A", &[]);
    assert!(lines(&path, 2)[1].contains("three.a.example."));

    configure("query-log.file = \"queries.log\"");
    reload();
    for _ in 0..10 {
        ask(&server, "four.a.example", "A", &[]);
    }
    assert!(server.terminate().success());
    lines(&path, 2);
}

#[test]
fn standard_output_and_networks_in_the_place_of_addresses() {
    let folder = folder();
    let more = ["--query-log-sample", "1", "--query-log-format", "text", "--query-log-clients", "network"];
    let server = start(&folder, &more);
    ask(&server, "www.a.example", "A", &[]);
    eventually("the line is printed", || {
        server.log().contains(" udp 127.0.0.0/24 www.a.example. IN A QUERY ").then_some(())
    });
}

#[test]
fn a_file_that_cannot_be_opened_stops_the_start() {
    let folder = folder();
    let zones = folder.join("zones");
    let log = folder.file("missing/queries.log");
    let more = ["--query-log-sample", "1", "--query-log-file", &log];
    let arguments = [&["--roles", "dns,admin", "--zones", zones.to_str().expect("UTF-8")][..], &more].concat();
    let mut server = Server::spawn(Ports::free(), &arguments);
    assert_eq!(server.wait().code(), Some(1));
    eventually("the fault is logged", || server.log().contains(&format!("{log}: No such file")).then_some(()));
}
