//! `signpost crds`: the kinds as CustomResourceDefinitions, for a Kubernetes cluster that serves them itself.

use clap::{ArgMatches, Command};

use super::{Exit, Outcome, option, print};
use signpost_api::crds;
use signpost_types::names;

pub(super) fn command() -> Command {
    let domain = option("domain", "NAME")
        .value_parser(|text: &str| {
            names::check_zone(text).map(|()| text.to_ascii_lowercase()).map_err(|error| error.to_string())
        })
        .help("The platform's domain; without it, the rules that depend on it are left out");
    Command::new("crds")
        .about("Print the kinds as CustomResourceDefinitions for a Kubernetes cluster (1.31 or later), one YAML document each")
        .after_help(
            "signpost crds --domain v3.rhcloud.com | kubectl apply --server-side -f -\n\nExit codes: 0 printed, 2 invalid usage.",
        )
        .arg(domain)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let mut text = String::new();
    for definition in crds::crds(matches.get_one::<String>("domain").map(String::as_str)) {
        // JSON is valid YAML, so no second writer is needed.
        let object = serde_json::to_string_pretty(&definition).expect("a definition is plain data");
        text.push_str("---\n");
        text.push_str(&object);
        text.push('\n');
    }
    print(&text);
    Ok(Exit::Success)
}
