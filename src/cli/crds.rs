//! `signpost crds`: our kinds as CustomResourceDefinitions, for a Kubernetes cluster that is to serve them itself.

use clap::{ArgMatches, Command};

use super::{Exit, print};
use crate::apiserver::registry::crd;

pub(super) fn command() -> Command {
    Command::new("crds")
        .about("Prints our kinds as CustomResourceDefinitions for a Kubernetes cluster, a YAML document each")
        .after_help("signpost crds | kubectl apply --server-side -f -")
}

pub(super) fn run(_matches: &ArgMatches) -> Exit {
    let mut text = String::new();
    for definition in crd::crds() {
        // JSON is YAML, and says what it means without a second writer.
        let object = serde_json::to_string_pretty(&definition).expect("a definition is plain data");
        text.push_str("---\n");
        text.push_str(&object);
        text.push('\n');
    }
    print(&text);
    Exit::Success
}
