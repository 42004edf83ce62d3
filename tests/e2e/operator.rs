//! The command line in bad conditions: an address without a response, a machine without CAs, a narrow terminal, a contradictory
//! configuration.

use std::path::Path;

use crate::commands::Example;
use crate::platform::apply_example;
use signpost_testing::program::{Ran, bare, command, run};
use signpost_testing::{DataDir, Kubectl, PATIENCE, Ports, Server, dig, eventually, http_get, program};

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// `signpost` with these variables, however it ends; its two outputs together.
fn with(variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let ran = Ran::of(command(arguments).envs(variables.iter().copied()));
    (ran.code, ran.out + &ran.err)
}

/// Runs the same on a terminal with `columns` columns, with `typed` as its input; `None` if `script` is not installed.
pub fn on_terminal(columns: u32, typed: &str, arguments: &[&str]) -> Option<(Option<i32>, String)> {
    let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let line = format!("stty cols {columns} rows 40; exec {} {}", program(), quoted.join(" "));
    let mut command = bare("script", &["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("NO_COLOR", "1");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().inspect_err(|error| println!("skipped: script: {error}")).ok()?;
    {
        use std::io::Write as _;
        let mut stdin = child.stdin.take().expect("was piped");
        stdin.write_all(typed.as_bytes()).expect("it reads");
        // The input stays buffered until it is read.
        let output = std::thread::spawn(move || child.wait_with_output().expect("it ends"));
        let output = output.join().expect("no panic");
        drop(stdin);
        Some((output.status.code(), shown(&text(&output.stdout))))
    }
}

/// Returns the text that the terminal shows at the end: a slow command erases the line of its progress.
fn shown(text: &str) -> String {
    const ERASE_LINE: &str = "\r\x1b[K";
    let lines = text.split('\n').map(|line| line.rsplit(ERASE_LINE).next().unwrap_or_default().replace('\r', ""));
    lines.collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_find_the_admin_endpoint_and_need_no_authorities_for_plain_http() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let config = data.join("signpost.toml");
    std::fs::write(&config, format!("admin.listen = [\"{}\"]\ndata-dir = \"{}\"\n", ports.admin, data.path()))
        .expect("written");
    let config = config.to_str().expect("UTF-8");
    let admin = format!("http://{}", ports.admin);
    let missing = data.file("missing");
    let none = [("SSL_CERT_FILE", missing.as_str()), ("SSL_CERT_DIR", &missing)];
    let listen = ports.admin.to_string();
    let in_environment = [none[0], none[1], ("SIGNPOST_ADMIN_LISTEN", listen.as_str())];
    for (variables, place) in [
        (&none[..], &["--config", config][..]),
        (&in_environment[..], &["--data-dir", data.path()]),
        (&none[..], &["--admin-listen", &listen, "--data-dir", data.path()]),
        (&none[..], &["--admin", &admin, "--data-dir", data.path()]),
    ] {
        let (code, said) = with(variables, &[&["status", "--interval", "0"], place].concat());
        assert_eq!(code, Some(0), "{place:?}: {said}");
    }
    // Over HTTPS, the error contains the reason and the fix.
    let https = admin.replace("http:", "https:");
    let (code, said) = with(&none, &["status", "--interval", "0", "--data-dir", data.path(), "--admin", &https]);
    assert!(code == Some(1) && !said.contains("builder error"), "{said}");
}

#[test]
fn a_drain_is_asked_about_on_a_terminal_and_tables_fit_it() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    apply_example(&kubectl);
    let state = || kubectl.ok(&["get", "router", "shard1", "-o", "jsonpath={.spec.state}"]);
    let drain = ["drain", "router", "shard1", "--data-dir", data.path()];
    let Some((code, said)) = on_terminal(100, "n\n", &drain) else { return };
    assert!(code == Some(1) && said.contains("Drain it? [y/N]") && said.contains("nothing was changed"), "{said}");
    assert_eq!(state(), "active");
    // Ctrl-D is not an answer.
    let (code, said) = on_terminal(100, "\u{4}", &drain).expect("it was there");
    assert!(code == Some(1) && said.contains("nothing was changed") && state() == "active", "{said}");
    let (code, said) = on_terminal(100, "y\n", &drain).expect("it was there");
    assert!(code == Some(0) && state() == "draining", "{said}");
    kubectl.ok(&["patch", "router", "shard1", "--type=merge", "-p", r#"{"spec":{"state":"active"}}"#]);
    let (code, said) = on_terminal(100, "", &[&drain[..], &["--yes"]].concat()).expect("it was there");
    assert!(code == Some(0) && !said.contains("[y/N]") && state() == "draining", "{said}");
    // A script gets no prompt.
    kubectl.ok(&["patch", "router", "shard1", "--type=merge", "-p", r#"{"spec":{"state":"active"}}"#]);
    assert_eq!(run(&drain).code, Some(0));

    for columns in [60, 80, 100] {
        for command in [&["zone", "list"][..], &["zone", "status"], &["explain", "route", "foo-bar/vault"]] {
            let arguments = [command, &["--data-dir", data.path()]].concat();
            // On a busy machine, a handshake with the API can take longer than its time limit.
            let said = eventually("the API responds", || {
                let (code, said) = on_terminal(columns, "", &arguments).expect("it was there");
                assert!(code.is_some(), "{command:?}: {said}");
                (!said.contains("cannot be reached")).then_some(said)
            });
            let longest = said.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= columns as usize, "{command:?} has {longest} of {columns} columns:\n{said}");
        }
    }
}

#[test]
fn a_backup_is_confirmed_and_not_overwritten() {
    let data = DataDir::new();
    let _server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let file = data.join("backup");
    let file = file.to_str().expect("UTF-8");
    let backup = |more: &[&str]| run(&[&["backup", file, "--data-dir", data.path()], more].concat());
    assert_eq!(backup(&[]).code, Some(0));
    let before = std::fs::read(file).expect("it is there");
    let again = backup(&[]);
    assert!(again.code == Some(1) && again.err.contains("--force"), "{}", again.err);
    assert_eq!(std::fs::read(file).expect("it is there"), before);
    assert_eq!(backup(&["--force"]).code, Some(0));
    let checked = run(&["backup", "--check", file]);
    assert!(checked.code == Some(0) && checked.err.contains("the backup is valid and complete"), "{}", checked.err);
}

#[test]
fn check_config_finds_what_cannot_work() {
    let folder = DataDir::new();
    let file = folder.join("signpost.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let ran = run(&["check", "config", "--config", file.to_str().expect("UTF-8")]);
        (ran.code, words(&(ran.out + &ran.err)))
    };
    for (text, expected) in [
        (
            "nameserver = [\"ns1.signpost.dev=192.0.2.1\", \"ns1.signpost.dev=192.0.2.2\"]",
            "\"ns1.signpost.dev=192.0.2.2\": given twice",
        ),
        ("zones = \"missing/zones\"", "missing/zones\": no such directory"),
        ("manifests = [\"missing/m\"]", "missing/m\": no such file or directory"),
        ("audit.log = \"missing/d/audit\"", "no such directory"),
        ("lame-duck = 5", "\"lame-duck\" must be a duration (a string), found integer 5; write lame-duck = \"5s\""),
        ("lame-duck = \"5\"", "must be a whole number and s, m, h or d, such as 5s"),
        ("verify.names = \"on\"", "write names = true"),
    ] {
        let (code, said) = check(&format!("domain = \"apps.signpost.dev\"\n{text}\n"));
        assert!(code == Some(2) && said.contains(expected), "{text}: {code:?} {said}");
    }
    let (code, said) = check("domain = \"apps.example.com\"");
    assert!(code == Some(0) && said.contains("a domain reserved for examples"), "{said}");
    let (code, said) = check("domain = \"apps.signpost.dev\"");
    assert!(code == Some(0) && !said.contains("warning"), "{said}");
}

#[test]
fn a_clean_stop_warns_of_nothing_and_an_outage_of_the_api_is_one_line() {
    let (data, state, ports) = (DataDir::new(), DataDir::new(), Ports::free());
    let api = ["--data-dir", data.path(), "--roles", "api,scheduler,admin"];
    let server = Server::start(ports, &api);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let kubeconfig = data.join("name-server.kubeconfig");
    let dns = ["--roles", "dns,admin", "--kubeconfig", kubeconfig.to_str().expect("UTF-8"), "--data-dir", state.path()];
    let name_server = Server::start(Ports::free(), &dns);
    apply_example(&kubectl);
    let pid = server.id().to_string();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let outages = |log: &str| log.lines().filter(|line| line.contains("the API is unreachable")).count();
    assert_eq!(outages(&name_server.log()), 0, "{}", name_server.log());
    let log = {
        server.signal("TERM");
        let mut server = server;
        assert!(server.wait().success());
        server.log()
    };
    let (_, after_signal) = log.split_once(" INFO stopping").expect("the stop is logged");
    assert!(!after_signal.contains("WARN") && !after_signal.contains("ERROR"), "{log}");

    eventually("the outage is logged", || (outages(&name_server.log()) > 0).then_some(()));
    // A while in which every informer has tried again and again.
    let metric = || {
        let (_, text) = http_get(name_server.admin, "/metrics")?;
        let of = |line: &str| {
            line.starts_with("signpost_informer_restarts_total") && line.contains("reason=\"unreachable\"")
        };
        let counts =
            text.lines().filter(|line| of(line)).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        (counts.sum::<f64>() >= 12.0).then_some(())
    };
    eventually("the informers have tried again", metric);
    let log = name_server.log();
    let warnings = log.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR"));
    // Ten seconds without an answer have a warning of their own.
    let warnings: Vec<&str> = warnings.filter(|line| !line.contains("no current answer from the API")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("DNS answers continue"), "{log}");
    assert!(!dig(name_server.dns, "anything.shard1.v3.rhcloud.com", "A", &[]).data("A").is_empty());
    let _server = Server::start(ports, &api);
    eventually("its end is logged", || name_server.log().contains("the API is reachable again").then_some(()));
    assert!(name_server.terminate().success(), "within {PATIENCE:?}");
}

/// A tenant queries its own names, and lists its own topology.
pub fn a_tenant_digs_and_sees_its_topology(example: &Example) {
    let Example { data, server, .. } = example;
    let tom = data.join("tom.kubeconfig");
    let tom = tom.to_str().expect("UTF-8");
    let at = ["--data-dir", data.path()];
    let add = ["user", "add", "tom", "--role", "tenant", "--namespace", "foo", "--no-credential"];
    assert_eq!(run(&[&add[..], &at].concat()).code, Some(0));
    let made = run(&[&["kubeconfig", "--user", "tom", "--namespace", "foo", "--out", tom][..], &at].concat());
    assert_eq!(made.code, Some(0), "{}", made.err);
    // At once: the command has waited.
    let seen = run(&["topology", "--kubeconfig", tom, "-o", "json"]);
    let topology: serde_json::Value = serde_json::from_str(&seen.out).unwrap_or_default();
    assert_eq!((seen.code, &topology["routes"]), (Some(0), &2.into()), "{}", seen.err);
    assert!(seen.err.contains("namespaces"), "{}", seen.err);
    let dns = format!("@{}", server.dns);
    let own = run(&["dig", &dns, "foo-cache.shard3.v3.rhcloud.com", "AAAA", "--kubeconfig", tom]);
    assert!(own.code == Some(0) && own.err.contains("of your Route foo/cache"), "{}{}", own.out, own.err);
    let other = run(&["dig", &dns, "pay.shard2.v3.rhcloud.com", "--kubeconfig", tom]);
    assert!(other.code == Some(0) && other.err.contains("no Route in namespace"), "{}{}", other.out, other.err);
}
