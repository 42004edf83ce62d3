//! `signpost completion`: prints a completion script for a shell.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::{Exit, print};

mod names;

/// Behind the script for bash: where names of objects may stand, those of the API are offered, and what the script offers
/// where they may not or there are none.
const BASH_NAMES: &str = r#"
_signpost_or_names() {
    local names
    names=$("${COMP_WORDS[0]}" completion names -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    if [[ -n $names ]]; then
        local IFS=$'\n'
        COMPREPLY=($names)
    else
        _signpost "$@"
    fi
}

complete -F _signpost_or_names -o bashdefault -o default signpost
"#;

pub(super) fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell to print it for");
    Command::new("completion")
        .about("Prints a completion script for a shell")
        .after_help(
            "That for bash also completes the names of Routers, Routes and namespaces, which it asks the API for.\n\
             bash: signpost completion bash > /etc/bash_completion.d/signpost",
        )
        .arg(shell)
        .subcommand(names::command())
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    if let Some((_, matches)) = matches.subcommand() {
        return names::run(matches);
    }
    let shell = *matches.get_one::<Shell>("shell").expect("clap demands it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "signpost", &mut script);
    print(&String::from_utf8_lossy(&script));
    if shell == Shell::Bash {
        print(BASH_NAMES);
    }
    Exit::Success
}
