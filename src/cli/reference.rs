//! `docs/cli.md`, made from the definitions of the commands so that it cannot be wrong. A test compares the two.

use std::fmt::Write as _;

use clap::{Arg, Command};

const HEAD: &str = "\
# Command line

The program generates this page: `signpost man --markdown`. `signpost help` and the manual pages (`signpost man`) have
the same contents.

## What all commands share

**Exit codes.** 0: success. 1: the command failed, or found what it checks for (errors, differences). 2: invalid usage
or configuration. The help of each command lists its exit codes.

**Output.** Results go to standard output, and everything else to standard error. `--output table` is for interactive
use: its columns can change. `--output json` and `--output yaml` contain the same data for programs: later versions add
fields, but do not rename or remove any. Colors are used only on a terminal, and not if `NO_COLOR` is set. On a
terminal, a command that takes longer than a second shows its progress.

**The API.** Commands that use the API read the first kubeconfig of these: `--kubeconfig` (or the setting, or
`SIGNPOST_KUBECONFIG`); `<data-dir>/kubeconfig` if `--data-dir` is given; the files of `$KUBECONFIG`;
`<data-dir>/kubeconfig`; `~/.kube/config`. `--context` selects a context, and `--api-server` (repeats) sets the API
servers to use instead of the one in the kubeconfig. A command sees only what its user is allowed to read.

**Objects.** Use `kubectl` to list, watch, and wait for objects: `kubectl get rt -o wide` shows names, Routers, and
reasons, `kubectl get routers -o wide` load and addresses, and `kubectl events --for rt/NAME` events. `kubectl wait
--for=condition=Resolvable route/NAME` waits for a name.

**Settings.** Flags that are settings of the server have the same meaning here. You can also set them in the
configuration file and in environment variables: see [Configuration](configuration.md).

**Completion.** `signpost completion bash`, `zsh`, `fish`, `elvish` or `powershell` prints a script for the shell.
";

/// Columns of a help screen on the page.
const WIDTH: usize = 100;
/// The arguments of every command that uses the API, which the head describes.
const OF_THE_API: [&str; 5] = ["config", "data-dir", "kubeconfig", "api-server", "context"];

/// Returns the page: the help of every command, without what the head or the page of the configuration describes.
pub(super) fn page() -> String {
    let mut all = super::command().term_width(WIDTH).disable_help_flag(true).disable_version_flag(true);
    all.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Commands\n\n| Command | Description |\n|---|---|\n");
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
        page.push_str("\nThe flags include all settings in [Configuration](configuration.md).\n");
    }
    if asks_api {
        page.push_str("\nThe flags also include those that [select the API](#what-all-commands-share).\n");
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

    /// Scripts depend on documented exit codes.
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
