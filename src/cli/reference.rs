//! `docs/cli.md`, made from the definitions of the commands so that it cannot be wrong. A test compares the two.

use std::fmt::Write as _;

use clap::{Arg, Command};

const HEAD: &str = "\
# Command line

Made from the program: `signpost man --markdown`. The same is in `signpost help`, and in manual pages (`signpost man`).

## What all commands share

**Exit codes.** 0: it did what it was asked. 1: it could not, or found what it was asked to look for (errors, differences). 2: it
was called or configured wrongly. Each command says below what that means for it.

**Output.** What a command was asked for goes to standard output, all else to standard error. `--output table` is for people:
its columns may change. `--output json` and `--output yaml` say the same to programs: fields are added, and none is renamed or
taken away. Colours are used on a terminal alone, and not if `NO_COLOR` is set. What takes longer than a second says so on a
terminal.

**The API.** Commands that ask it use the first kubeconfig of these: `--kubeconfig` (or the setting, or `SIGNPOST_KUBECONFIG`);
`<data-dir>/kubeconfig` if `--data-dir` is given; the files of `$KUBECONFIG`; `<data-dir>/kubeconfig`; `~/.kube/config`. `--context`
chooses a context of it, and `--api-server` (repeats) names the API servers to use in place of the one in it. What may be seen is
what its user may see.

**Objects.** `kubectl` lists, watches and waits for objects: `kubectl get routes -o wide` shows names, Routers and reasons, `kubectl
get routers -o wide` load and addresses, `kubectl events --for route/NAME` what happened, and `kubectl wait
--for=condition=Resolvable route/NAME` waits.

**Settings.** Flags that are settings of the server mean what they mean there, and can be given in the file and by variables,
too: see [Configuration](configuration.md).

**Completion.** `signpost completion bash`, `zsh`, `fish`, `elvish` or `powershell` prints a script for the shell.
";

/// Columns of a help screen on the page.
const WIDTH: usize = 100;
/// The arguments of every command that asks the API, which the head describes.
const OF_THE_API: [&str; 5] = ["config", "data-dir", "kubeconfig", "api-server", "context"];

/// The page: the help of every command, without what the head or the page of the configuration describes.
pub(super) fn page() -> String {
    let mut all = super::command().term_width(WIDTH).disable_help_flag(true).disable_version_flag(true);
    all.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Commands\n\n| command | does |\n|---|---|\n");
    for command in shown(&all) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(page, "| [`signpost {0}`](#signpost-{0}) | {about} |", command.get_name());
    }
    shown(&all).for_each(|command| section(&mut page, command, "signpost", 2));
    page
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| command.get_name() != "help")
}

fn section(page: &mut String, command: &Command, above: &str, depth: usize) {
    let name = format!("{above} {}", command.get_name());
    let asks_api = command.get_arguments().any(|argument| argument.get_id() == "context");
    let is_elsewhere = |argument: &Arg| {
        argument.get_help_heading().is_some() || asks_api && OF_THE_API.contains(&argument.get_id().as_str())
    };
    let hidden = |argument: Arg| if is_elsewhere(&argument) { argument.hide(true) } else { argument };
    let help = command.clone().mut_args(hidden).render_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n{} {name}\n\n```text\n{}\n```\n", "#".repeat(depth), lines.join("\n").trim());
    if command.get_arguments().any(|argument| argument.get_help_heading().is_some()) {
        page.push_str("\nThe flags include all settings of [Configuration](configuration.md).\n");
    }
    if asks_api {
        page.push_str("\nThe flags include those that say [where the API is](#what-all-commands-share).\n");
    }
    shown(command).for_each(|command| section(page, command, &name, depth + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_repository_is_this_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
        let found = std::fs::read_to_string(path).expect("docs/cli.md is there");
        let message = "docs/cli.md is out of date; write the output of `signpost man --markdown` there";
        assert!(found == page(), "{message}");
    }

    /// Whoever scripts a command wants to know what its exit code means.
    #[test]
    fn every_command_states_its_exit_codes() {
        fn collect(command: &Command, path: &str, stated: bool, without: &mut Vec<String>) {
            let own = |text: Option<&clap::builder::StyledStr>| {
                text.is_some_and(|text| text.to_string().contains("Exit codes:"))
            };
            let stated = stated || own(command.get_after_help());
            let path = format!("{path} {}", command.get_name());
            let mut below = command.get_subcommands().peekable();
            if below.peek().is_none() && !stated {
                without.push(path.clone());
            }
            below.for_each(|command| collect(command, &path, stated, without));
        }
        let mut without = Vec::new();
        collect(&crate::cli::command(), "", false, &mut without);
        assert_eq!(without, Vec::<String>::new());
    }
}
