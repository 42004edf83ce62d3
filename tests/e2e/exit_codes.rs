//! The exit codes of all commands, compared with docs/cli.md and the manual pages: 0 done, 1 not done or something found, 2
//! invalid usage or configuration; and their error messages.

use std::collections::BTreeSet;
use std::path::Path;

use crate::platform::apply_example;
use signpost_testing::program::{Ran, command, ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, free_address};

/// The commands of one fixture, each with its exit code and, unless that is 0, its standard error: the only place where tests
/// contain the messages of the command line. `{admin}` is the administrator's kubeconfig, `{tina}` that of a tenant of the
/// namespace `foo`, `{server}` that of a name server, `{stranger}` one with an unknown token, `{dead}` that of an API that is not
/// reachable, `{none}` a path that does not exist.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/wording.txt");
/// The variable that makes the test rewrite the file.
const RENEW: &str = "SIGNPOST_RENEW_WORDING";

/// A command of the file.
struct Call {
    /// The comment above it.
    comment: String,
    line: String,
    code: i32,
    said: String,
}

impl Call {
    fn text(&self) -> String {
        let Call { comment, line, code, said } = self;
        format!("{comment}$ {line}\nexit {code}\n{said}")
    }
}

fn calls() -> Vec<Call> {
    let (mut calls, mut comment) = (Vec::<Call>::new(), String::new());
    for line in std::fs::read_to_string(FILE).expect("it is there").lines() {
        match (line.strip_prefix("$ "), line.strip_prefix("exit "), calls.last_mut()) {
            (Some(words), ..) => {
                let (comment, line) = (std::mem::take(&mut comment), words.to_owned());
                calls.push(Call { comment, line, code: 0, said: String::new() });
            }
            (_, Some(code), Some(call)) => call.code = code.parse().expect("an exit code"),
            _ if line.starts_with("# ") => comment += &format!("{line}\n"),
            (.., Some(call)) => call.said += &format!("{line}\n"),
            (.., None) => panic!("{line}: a command comes first"),
        }
    }
    calls
}

/// The commands whose codes are elsewhere: a decision needs a hold (`hold`), a resolver's way needs name servers (`doctor`), an agent
/// runs until it is stopped (`agent`), a request needs one (`curl`), a cluster has the objects of `sources`, moving between stores needs
/// etcd (`etcd`), and a new key a stopped server with Secrets (`certificates`).
const SUCCEED_ELSEWHERE: [&str; 8] =
    ["hold approve", "hold reject", "doctor", "agent", "curl", "sources", "store migrate", "store rekey"];
/// The commands that `kubectl` covers.
const KUBECTL_COVERS: [&str; 4] = ["routes", "routers", "events", "wait"];

#[test]
fn exit_codes_are_those_of_the_manual() {
    let (data, new, ports) = (DataDir::new(), DataDir::new(), Ports::free());
    let server = Server::start(ports, &["--data-dir", data.path()]);
    apply_example(&Kubectl::new(data.join("kubeconfig")));
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let file = |name: &str, text: &str| {
        let file = data.join(name);
        std::fs::write(&file, text).expect("written");
        path(&file)
    };
    let zone = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n";
    let admin = path(&data.join("kubeconfig"));
    let tina = path(&data.join("tina.kubeconfig"));
    let add = ["user", "add", "tina", "--role", "tenant", "--namespace", "foo", "--no-credential"];
    ok(&[&add[..], &["--data-dir", data.path()]].concat());
    ok(&["kubeconfig", "--user", "tina", "--namespace", "foo", "--out", &tina, "--data-dir", data.path()]);
    let backup = path(&data.join("backup"));
    ok(&["backup", "--online", &backup, "--kubeconfig", &admin]);
    let nobody = free_address().to_string();
    let kubeconfig = std::fs::read_to_string(&admin).expect("it is there");
    let dead = file("dead.kubeconfig", &kubeconfig.replace(&ports.api.to_string(), &nobody));
    let token = kubeconfig.lines().find(|line| line.contains("token:")).expect("a token");
    let stranger = file("stranger.kubeconfig", &kubeconfig.replace(token, "    token: \"signpost-nobody\""));
    let mut places: Vec<(&str, String)> = vec![
        ("{data}", data.path().to_owned()),
        ("{new}", new.path().to_owned()),
        ("{none}", path(&new.join("none"))),
        ("{tina}", tina),
        ("{server}", path(&data.join("name-server.kubeconfig"))),
        ("{dead}", dead),
        ("{nobody}", nobody),
        ("{url}", format!("http://{}", server.admin)),
        ("{dns}", server.dns.to_string()),
        ("{good}", file("a.example.zone", zone)),
        ("{bad}", file("b.example.zone", &format!("{zone}x A nonsense\n"))),
        ("{warned}", file("w.example.zone", &format!("{zone}x 30 A 192.0.2.1\nx 60 A 192.0.2.2\n"))),
        ("{backup}", backup),
        ("{admin}", admin.clone()),
        ("{stranger}", stranger),
        ("{api}", ports.api.to_string()),
        ("{process}", std::fs::read_to_string(data.join("pid")).expect("it is there").trim().to_owned()),
    ];
    // Whole paths before what they begin with.
    places.sort_by_key(|(_, text)| std::cmp::Reverse(text.len()));
    eventually("the zones are served", || {
        let status = ["zone", "status", "--server", &server.dns.to_string(), "--kubeconfig", &admin].map(str::to_owned);
        (run(&status.each_ref().map(String::as_str)).code == Some(0)).then_some(())
    });
    let mut text = String::new();
    for mut call in calls() {
        let words = call.line.split_whitespace().map(|word| {
            places.iter().fold(word.to_owned(), |word, (placeholder, text)| word.replace(placeholder, text))
        });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The default data directory is relative.
        let ran = Ran::of(command(&words).current_dir(new.path()));
        assert!(ran.code == Some(0) || !(ran.err.is_empty() && ran.out.is_empty()), "{}: no output", call.line);
        (call.code, call.said) = (ran.code.expect("an exit code"), String::new());
        if call.code != 0 {
            call.said = places.iter().fold(ran.err, |said, (placeholder, text)| said.replace(text, placeholder));
        }
        text += &call.text();
    }
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(FILE, &text).expect("written");
    }
    let expected = std::fs::read_to_string(FILE).expect("it is there");
    let differences: Vec<String> = text
        .lines()
        .zip(expected.lines())
        .filter(|(is, expected)| is != expected)
        .map(|(is, expected)| format!("- {expected}\n+ {is}"))
        .collect();
    assert!(
        text == expected,
        "{FILE} differs; if the change is intended, set {RENEW}=1, run the test again, and read the difference:\n{}",
        differences.join("\n")
    );
}

#[test]
fn every_command_refuses_what_it_does_not_know() {
    let pages = DataDir::new();
    ok(&["man", "--dir", pages.path()]);
    let folder = std::fs::read_dir(pages.path()).expect("it was written");
    let names = folder.map(|page| page.expect("readable").file_name().into_string().expect("UTF-8"));
    let commands: BTreeSet<String> =
        names.filter_map(|name| Some(name.strip_prefix("signpost-")?.strip_suffix(".1")?.replace('-', " "))).collect();
    assert!(commands.len() > 30, "{commands:?}");
    let calls = calls();
    assert_eq!(run(&[]).code, Some(2));
    for command in &commands {
        let words: Vec<&str> = command.split(' ').collect();
        let ran = run(&[&words[..], &["--no-such-option"]].concat());
        assert_eq!(ran.code, Some(2), "{command}: {}", ran.err);
        assert_eq!(run(&[&words[..], &["--help"]].concat()).code, Some(0), "{command}");
        let is_group = commands.iter().any(|other| other.starts_with(&format!("{command} ")));
        let is_it = |call: &Call| call.code == 0 && format!("{} ", call.line).starts_with(&format!("{command} "));
        let succeeds = calls.iter().any(is_it);
        let is_elsewhere = SUCCEED_ELSEWHERE.contains(&command.as_str()) || KUBECTL_COVERS.contains(&command.as_str());
        assert!(is_group || succeeds || is_elsewhere || command == "serve", "{command} has no row for its success");
    }
}
