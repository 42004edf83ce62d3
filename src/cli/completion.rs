//! `signpost completion`: prints a completion script for a shell.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::{Exit, print};

pub(super) fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell to print it for");
    Command::new("completion")
        .about("Prints a completion script for a shell")
        .after_help("bash: signpost completion bash > /etc/bash_completion.d/signpost")
        .arg(shell)
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let shell = *matches.get_one::<Shell>("shell").expect("clap demands it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "signpost", &mut script);
    print(&String::from_utf8_lossy(&script));
    Exit::Success
}
