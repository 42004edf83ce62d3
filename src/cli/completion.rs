//! `signpost completion`: prints a completion script for a shell.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::{Exit, Outcome, print};

pub(super) fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell");
    Command::new("completion")
        .about("Print a completion script for a shell")
        .after_help(
            "bash: signpost completion bash > /etc/bash_completion.d/signpost\n\
             zsh: signpost completion zsh > /usr/local/share/zsh/site-functions/_signpost\n\
             fish: signpost completion fish > ~/.config/fish/completions/signpost.fish\n\n\
             Exit codes: 0 printed, 2 invalid usage.",
        )
        .arg(shell)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let shell = *matches.get_one::<Shell>("shell").expect("clap demands it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "signpost", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
