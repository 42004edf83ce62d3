//! The examples in the help of each command: two typical calls. A test parses all of them.

use clap::Command;

/// The commands without subcommands, each with its examples.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("init", ["signpost init", "signpost init --domain apps.example.com --nameserver ns1.example.com=192.0.2.53"]),
    ("serve", ["signpost serve --demo", "signpost serve --config /etc/signpost/signpost.toml"]),
    (
        "agent",
        [
            "signpost agent --router shard1 --proxy haproxy --address 192.0.2.10 --kubeconfig agent.kubeconfig",
            "signpost agent --router shard1 --proxy nginx --address 192.0.2.11 --http-port 8080 --https-port 8443",
        ],
    ),
    ("status", ["signpost status", "signpost status --admin http://192.0.2.53:9453 --interval 5"]),
    ("dashboard", ["signpost dashboard", "signpost dashboard --no-browser --admin http://192.0.2.53:9453"]),
    ("topology", ["signpost topology", "signpost topology -n shop --filter shard1"]),
    ("explain route", ["signpost explain route shop/web", "signpost explain route web -n shop --why-not shard2"]),
    ("dig", ["signpost dig shop-web.routes.apps.example.com", "signpost dig @192.0.2.53 www.example.com AAAA +tcp"]),
    ("curl", ["signpost curl shop/web", "signpost curl www.example.com --https --path /healthz"]),
    (
        "check zone",
        ["signpost check zone zones/example.com.zone", "signpost check zone zones/a.zone zones/b.zone -o json"],
    ),
    ("check config", ["signpost check config --config signpost.toml", "signpost check config --reference"]),
    ("check store", ["signpost check store", "signpost check store --data-dir /var/lib/signpost -o json"]),
    ("zone list", ["signpost zone list", "signpost zone list --sort-by records -o wide"]),
    ("zone show", ["signpost zone show shard1.apps.example.com", "signpost zone show apps.example.com -o json"]),
    ("zone status", ["signpost zone status", "signpost zone status apps.example.com --server 192.0.2.53 --all"]),
    ("zone export", ["signpost zone export --out exported", "signpost zone export --out exported --zones zones"]),
    ("doctor", ["signpost doctor", "signpost doctor --domain apps.example.com --name www.example.com"]),
    ("hold list", ["signpost hold list", "signpost hold list -o wide"]),
    ("hold approve", ["signpost hold approve 3f2a", "signpost hold approve 3f2a --dry-run"]),
    ("hold reject", ["signpost hold reject 3f2a", "signpost hold reject 3f2a --context production"]),
    (
        "move route",
        ["signpost move route shop/web --to shard2", "signpost move route web -n shop --to shard2 --dry-run"],
    ),
    ("drain router", ["signpost drain router shard1 --dry-run", "signpost drain router shard1 --yes"]),
    ("cordon", ["signpost cordon shard1", "signpost cordon shard1 --dry-run"]),
    ("uncordon", ["signpost uncordon shard1", "signpost uncordon shard1 --dry-run"]),
    ("simulate", ["signpost simulate --drain shard1", "signpost simulate --add router.yaml --set-weight shard1=50"]),
    (
        "sources",
        [
            "signpost sources",
            "signpost sources -f objects.yaml --domain apps.example.com --ingress-class nginx=web.apps.example.com",
        ],
    ),
    (
        "user add",
        [
            "signpost user add tina --role tenant --namespace shop",
            "signpost user add agent-shard1 --role router-agent --router shard1 --no-credential",
        ],
    ),
    ("user list", ["signpost user list", "signpost user list --data-dir /var/lib/signpost -o json"]),
    ("user revoke", ["signpost user revoke tina", "signpost user revoke tina --credential 8c1f"]),
    (
        "key tsig generate",
        [
            "signpost key tsig generate transfer.example --output transfer.key",
            "signpost key tsig generate transfer.example --algorithm hmac-sha512",
        ],
    ),
    ("key tsig show", ["signpost key tsig show transfer.key", "signpost key tsig show transfer.key --format knot"]),
    (
        "kubeconfig",
        [
            "signpost kubeconfig --user tina --namespace shop --out tina.kubeconfig",
            "signpost kubeconfig --sign-in --out signpost.kubeconfig",
        ],
    ),
    ("backup", ["signpost backup signpost.backup", "signpost backup signpost.backup --online"]),
    ("restore", ["signpost restore signpost.backup", "signpost restore signpost.backup --data-dir /var/lib/signpost"]),
    (
        "store migrate",
        [
            "signpost store migrate --from file --to etcd --etcd-endpoints https://192.0.2.20:2379",
            "signpost store migrate --from etcd --to file --etcd-endpoints https://192.0.2.20:2379",
        ],
    ),
    ("store rekey", ["signpost store rekey", "signpost store rekey --remove-former"]),
    ("crds", ["signpost crds --domain apps.example.com", "signpost crds"]),
    ("completion", ["signpost completion bash", "signpost completion fish"]),
    ("man", ["signpost man", "signpost man --dir /usr/local/share/man/man1"]),
    ("version", ["signpost version", "signpost version -o json"]),
];

/// Adds the examples to the help of `command` and of all commands below it. `path` is the name of `command` without that of the
/// program.
pub(super) fn add(command: Command, path: &str) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    if below.is_empty() {
        let Some((_, examples)) = EXAMPLES.iter().find(|(name, _)| *name == path) else { return command };
        let [one, other] = examples;
        let before = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
        return command.after_help(format!("{before}Examples:\n  {one}\n  {other}"));
    }
    below.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |command| add(command, &path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name()).trim_start().to_owned();
            match below.has_subcommands() {
                true => leaves(below, &path, found),
                false => found.push(path),
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut commands = Vec::new();
        leaves(&crate::cli::command(), "", &mut commands);
        let named: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(commands, named, "the commands in the order of the help");
        for (name, examples) in EXAMPLES {
            for example in examples {
                let parsed = crate::cli::command().try_get_matches_from(example.split(' '));
                parsed.unwrap_or_else(|error| panic!("{example}: {error}"));
                assert!(example.starts_with(&format!("signpost {name}")), "{example}");
            }
        }
    }
}
