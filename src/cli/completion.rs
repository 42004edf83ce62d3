//! `signpost completion`: prints a completion script for a shell.
//!
//! Those of bash, zsh and fish come with a few lines of ours: where names of objects may stand, those of the API are offered,
//! and what the script offers where they may not, or there are none. Each asks `completion names` (`names`) with the words of
//! the line as they are so far.

use std::collections::BTreeSet;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::{Exit, Outcome, print};

mod names;

/// Behind the script for bash.
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

/// Where the script for zsh begins what it offers. It has to be the function of this name that is called: zsh loads the file and
/// registers the function by its own name.
const ZSH_BEGIN: &str = "\n_signpost() {\n";

/// In front of that, which goes by another name then.
const ZSH_NAMES: &str = r#"
_signpost() {
    local -a names
    names=("${(@f)$("${(Q)words[1]}" completion names -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    names=(${names:#})
    if (( $#names )); then
        compadd -a names
    else
        _signpost_words "$@"
    fi
}

_signpost_words() {
"#;

/// Behind the script for fish, with [`fish_options`].
const FISH_NAMES: &str = r#"
function __fish_signpost_names
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    set -g __fish_signpost_found ($words[1] completion names -- $words "$begun" 2>/dev/null)
    test (count $__fish_signpost_found) -gt 0
end

complete -c signpost -n __fish_signpost_names -f -a '$__fish_signpost_found'
"#;

/// The lines for fish about options whose values are names: with such an option in front it asks for nothing else.
fn fish_options(program: &Command) -> String {
    let mut options = BTreeSet::new();
    let mut commands = vec![program];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        let named = command.get_arguments().filter(|argument| names::kind(argument, None).is_some());
        options.extend(named.filter_map(|argument| Some((argument.get_long()?, argument.get_short()))));
    }
    let line = |(long, short): (&str, Option<char>)| {
        let short = short.map(|short| format!(" -s {short}")).unwrap_or_default();
        format!("complete -c signpost -n __fish_signpost_names -l {long}{short} -x -a '$__fish_signpost_found'\n")
    };
    options.into_iter().map(line).collect()
}

pub(super) fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell to print it for");
    Command::new("completion")
        .about("Print a completion script for a shell")
        .after_help(
            "Those for bash, zsh and fish also complete the names of Routers, Routes and namespaces, which they ask the API for.\n\
             bash: signpost completion bash > /etc/bash_completion.d/signpost\n\
             zsh: signpost completion zsh > /usr/local/share/zsh/site-functions/_signpost\n\
             fish: signpost completion fish > ~/.config/fish/completions/signpost.fish\n\n\
             Exit codes: 0 printed, 2 invalid usage.",
        )
        .arg(shell)
        .subcommand(names::command())
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    if let Some((_, matches)) = matches.subcommand() {
        return names::run(matches);
    }
    let shell = *matches.get_one::<Shell>("shell").expect("clap demands it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "signpost", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => print(&format!("{script}{BASH_NAMES}")),
        Shell::Zsh => print(&script.replacen(ZSH_BEGIN, ZSH_NAMES, 1)),
        Shell::Fish => print(&format!("{script}{FISH_NAMES}{}", fish_options(&super::command()))),
        _ => print(&script),
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_names_are_known_to_fish() {
        let options = fish_options(&crate::cli::command());
        for option in ["-l to -x", "-l why-not -x", "-l namespace -s n -x"] {
            assert!(options.contains(option), "{option}: {options}");
        }
        assert!(!options.contains("domain"), "{options}");
    }
}
