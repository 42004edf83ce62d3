//! The exit codes of all commands, against what docs/cli.md and the manual pages promise: 0 done, 1 not done or something
//! found, 2 invalid usage or configuration.

use std::collections::BTreeSet;
use std::path::Path;

use crate::platform::apply_example;
use signpost_testing::program::{ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, free_address};

/// The commands of one fixture with their exit codes. `{admin}` is the administrator's kubeconfig, `{tina}` that of a tenant
/// of the namespace `foo`, `{server}` that of a name server, `{dead}` that of an API that is not reachable, `{none}` a path
/// that does not exist.
const SWEEP: &[(i32, &str)] = &[
    // Invalid usage and configuration. Unknown options and missing arguments are in the test below.
    (2, ""),
    (2, "nonsense"),
    (2, "serve --roles oracle"),
    (2, "serve --config {none}"),
    (2, "serve --domain not..a.name --data-dir {new}"),
    (2, "status --interval -1"),
    (2, "status --config {none}"),
    (2, "topology --output none"),
    (2, "explain route a/b/c"),
    (2, "explain route foo/cache -n other --kubeconfig {admin}"),
    (2, "top --count x"),
    (2, "dig a..b"),
    (2, "dig @127.0.0.1"),
    (2, "check zone --origin a..b {good}"),
    (2, "check config --config {none}"),
    (2, "check config --drain-rate x"),
    (2, "check config --domain not..a.name"),
    (2, "zone list --output none"),
    (2, "zone diff {none}"),
    (2, "zone diff {good} {other}"),
    (2, "doctor --parent nonsense..x"),
    (2, "move route foo/cache --to shard1 -n other --kubeconfig {admin}"),
    (2, "simulate --kubeconfig {admin} --add {none}"),
    (2, "user add tina --role tenant --data-dir {data}"),
    (2, "user add tina --role nonsense --data-dir {data}"),
    (2, "user add nora --role viewer --ttl soon --data-dir {data}"),
    (2, "kubeconfig --user tina --ttl soon --data-dir {data}"),
    (2, "backup --config {none} {new}/backup"),
    (2, "restore --config {none} {backup}"),
    (2, "crds --domain not..a.name"),
    (2, "completion nonsense"),
    (2, "man --dir {new} --markdown"),
    (2, "version --output none"),
    // The API, or a process, is not reachable.
    (1, "status --interval 0 --admin {url} --kubeconfig {dead}"),
    (1, "status --interval 0 --admin http://{nobody} --kubeconfig {admin}"),
    (1, "topology --kubeconfig {dead}"),
    (1, "explain route foo/cache --kubeconfig {dead}"),
    (1, "top --once --admin http://{nobody}"),
    (1, "dig @{dns} x.shard1.v3.rhcloud.com --kubeconfig {dead}"),
    (1, "dig @{nobody} x.shard1.v3.rhcloud.com --answer-only"),
    (1, "zone list --kubeconfig {dead}"),
    (1, "zone show shard1.v3.rhcloud.com --kubeconfig {dead}"),
    (2, "zone diff {shard} --kubeconfig {dead}"),
    (1, "zone status --kubeconfig {dead}"),
    (1, "zone export --out {new}/zones --kubeconfig {dead}"),
    (1, "zone unrouted --admin http://{nobody}"),
    (1, "hold list --kubeconfig {dead}"),
    (1, "hold approve routers-0000000000000000 --kubeconfig {dead}"),
    (1, "hold reject routers-0000000000000000 --kubeconfig {dead}"),
    (1, "move route foo/cache --to shard1 --kubeconfig {dead}"),
    (1, "drain router shard1 --kubeconfig {dead}"),
    (1, "cordon shard1 --kubeconfig {dead}"),
    (1, "uncordon shard1 --kubeconfig {dead}"),
    (1, "simulate --remove shard1 --kubeconfig {dead}"),
    (1, "backup --online {new}/backup --kubeconfig {dead}"),
    (1, "topology --kubeconfig {none}"),
    // The API forbids it.
    (1, "topology -n myapp --kubeconfig {tina}"),
    (1, "explain route myapp/test --kubeconfig {tina}"),
    (1, "zone list --kubeconfig {tina}"),
    (1, "zone show shard1.v3.rhcloud.com --kubeconfig {tina}"),
    (1, "zone status --kubeconfig {tina}"),
    (1, "zone export --out {new}/zones --kubeconfig {tina}"),
    (1, "hold list --kubeconfig {tina}"),
    (1, "hold approve routers-0000000000000000 --kubeconfig {tina}"),
    (1, "hold reject routers-0000000000000000 --kubeconfig {tina}"),
    (1, "move route foo/cache --to shard1 --kubeconfig {tina}"),
    (1, "drain router shard1 --kubeconfig {tina}"),
    (1, "cordon shard1 --kubeconfig {tina}"),
    (1, "uncordon shard1 --kubeconfig {tina}"),
    (1, "simulate --remove shard1 --kubeconfig {tina}"),
    (1, "backup --online {new}/backup --kubeconfig {tina}"),
    (1, "cordon shard1 --kubeconfig {server}"),
    // An object or a file does not exist.
    (1, "topology --kubeconfig {admin} --context none"),
    (1, "explain route foo/none --kubeconfig {admin}"),
    (1, "explain route foo/cache --why-not none --kubeconfig {admin}"),
    (1, "check zone {none}"),
    (1, "zone list --zones {none} --kubeconfig {admin}"),
    (1, "zone show none.example --kubeconfig {admin}"),
    (1, "zone status none.example --kubeconfig {admin}"),
    (1, "hold approve routers-0000000000000000 --kubeconfig {admin}"),
    (1, "hold reject routers-0000000000000000 --kubeconfig {admin}"),
    (1, "move route foo/none --to shard1 --kubeconfig {admin}"),
    (1, "move route foo/cache --to none --kubeconfig {admin}"),
    (1, "drain router none --kubeconfig {admin}"),
    (1, "cordon none --kubeconfig {admin}"),
    (1, "uncordon none --kubeconfig {admin}"),
    (1, "simulate --remove none --kubeconfig {admin}"),
    (1, "simulate --drain none --kubeconfig {admin}"),
    (1, "user revoke none --data-dir {data}"),
    (1, "user revoke tina --credential none --data-dir {data}"),
    (1, "kubeconfig --user none --data-dir {data}"),
    (1, "backup --check {none}"),
    (1, "restore {none} --data-dir {new}"),
    (1, "check store --data-dir {none}"),
    // The result is a finding, or the command cannot do its work.
    (1, "serve --domain v3.rhcloud.com --data-dir {data}"),
    (1, "check zone {bad}"),
    (1, "check zone {good} {bad}"),
    (1, "check zone --strict {warned}"),
    (1, "check store --data-dir {data}"),
    (1, "zone diff {shard} {changed}"),
    (1, "zone status --server {nobody} --kubeconfig {admin}"),
    (1, "zone export --out {good}/zones --kubeconfig {admin}"),
    (1, "user add tina --role viewer --data-dir {data}"),
    (1, "kubeconfig --user tina --out {good}/kubeconfig --data-dir {data}"),
    (1, "backup --check {good}"),
    (1, "backup --online {backup} --kubeconfig {admin}"),
    (1, "restore {backup} --data-dir {data}"),
    (1, "move route foo/cache --to shard1 --dry-run --kubeconfig {admin}"),
    (1, "man --dir {good}/pages"),
    // Done. The order counts: what is made by one row is used by the next ones.
    (0, "--help"),
    (0, "--version"),
    (0, "help zone"),
    (0, "status --interval 0 --admin {url} --kubeconfig {admin}"),
    (0, "topology --kubeconfig {admin}"),
    (0, "topology -n foo --kubeconfig {tina}"),
    (0, "explain route foo/cache --kubeconfig {admin}"),
    (0, "explain route foo-bar/vault --kubeconfig {admin}"),
    (0, "top --once --interval 0.1 --admin {url}"),
    (0, "dig @{dns} none.v3.rhcloud.com --kubeconfig {admin}"),
    (0, "dig @{dns} www.example.com --answer-only"),
    (0, "check zone {good} {warned}"),
    (0, "check config --domain apps.signpost.dev"),
    (0, "zone list --kubeconfig {admin}"),
    (0, "zone show shard1.v3.rhcloud.com --kubeconfig {admin}"),
    (0, "zone diff {shard} {shard}"),
    (0, "zone status --server {dns} --kubeconfig {admin}"),
    (0, "zone export --out {new}/zones --kubeconfig {admin}"),
    (0, "zone unrouted --admin {url}"),
    (0, "hold list --kubeconfig {admin}"),
    (0, "cordon shard1 --kubeconfig {admin}"),
    (0, "uncordon shard1 --kubeconfig {admin}"),
    (0, "simulate --remove shard1 --kubeconfig {admin}"),
    (0, "move route myapp/test --to shard1 --dry-run --kubeconfig {admin}"),
    (0, "drain router shard1 --dry-run --kubeconfig {admin}"),
    (0, "user add nora --role viewer --data-dir {data}"),
    (0, "kubeconfig --user nora --data-dir {data}"),
    (0, "user list --data-dir {data}"),
    (0, "user revoke nora --data-dir {data}"),
    (0, "backup --online {new}/backup --kubeconfig {admin}"),
    (0, "backup --check {new}/backup"),
    (0, "restore {new}/backup --data-dir {new}/restored"),
    (0, "check store --data-dir {new}/restored"),
    (0, "crds"),
    (0, "completion bash"),
    (0, "man"),
    (0, "version"),
];

/// The commands whose codes are elsewhere: a decision needs a hold (`hold`), a resolver's way needs name servers (`doctor`).
const SUCCEED_ELSEWHERE: [&str; 3] = ["hold approve", "hold reject", "doctor"];
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
    let places: [(&str, String); 17] = [
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
        ("{other}", file("o.example.zone", zone)),
        ("{shard}", file("shard1.v3.rhcloud.com.zone", zone)),
        ("{changed}", file("changed.zone", &format!("$ORIGIN shard1.v3.rhcloud.com.\n{zone}x A 192.0.2.1\n"))),
        ("{backup}", backup),
        ("{admin}", admin.clone()),
    ];
    eventually("the zones are served", || {
        let status = ["zone", "status", "--server", &server.dns.to_string(), "--kubeconfig", &admin].map(str::to_owned);
        (run(&status.each_ref().map(String::as_str)).code == Some(0)).then_some(())
    });
    let mut differences = Vec::new();
    for (code, line) in SWEEP {
        let words = line.split_whitespace().map(|word| {
            places.iter().fold(word.to_owned(), |word, (placeholder, text)| word.replace(placeholder, text))
        });
        let words: Vec<String> = words.collect();
        let ran = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        if ran.code != Some(*code) {
            differences.push(format!("{line}: {:?} instead of {code}: {}{}", ran.code, ran.out, ran.err));
        } else if *code != 0 && ran.err.is_empty() && ran.out.is_empty() {
            differences.push(format!("{line}: ends with {code} and says nothing"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
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
    for command in &commands {
        let words: Vec<&str> = command.split(' ').collect();
        let ran = run(&[&words[..], &["--no-such-option"]].concat());
        assert_eq!(ran.code, Some(2), "{command}: {}", ran.err);
        assert_eq!(run(&[&words[..], &["--help"]].concat()).code, Some(0), "{command}");
        let is_group = commands.iter().any(|other| other.starts_with(&format!("{command} ")));
        let succeeds =
            SWEEP.iter().any(|(code, line)| *code == 0 && format!("{line} ").starts_with(&format!("{command} ")));
        let is_elsewhere = SUCCEED_ELSEWHERE.contains(&command.as_str()) || KUBECTL_COVERS.contains(&command.as_str());
        assert!(is_group || succeeds || is_elsewhere || command == "serve", "{command} has no row for its success");
    }
}
