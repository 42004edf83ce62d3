//! `docs/cli.md`, made from the definitions of the commands so that it cannot be wrong. A test compares the two.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// What stands above the commands.
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
chooses a context of it. What may be seen is what its user may see.

**Objects.** `kubectl` lists, watches and waits for objects: `kubectl get routes -o wide` shows names, Routers and reasons, `kubectl
get routers -o wide` load and addresses, `kubectl events --for route/NAME` what happened, and `kubectl wait
--for=condition=Resolvable route/NAME` waits.

**Settings.** Flags that are settings of the server mean what they mean there, and can be given in the file and by variables,
too: see [Configuration](configuration.md).

**Completion.** `signpost completion bash`, `zsh`, `fish`, `elvish` or `powershell` prints a script for the shell. Those
for bash, zsh and fish also complete the names of Routers, Routes and namespaces, which they ask the API for.
";

/// The arguments of every command that asks the API.
const OF_THE_API: [&str; 4] = ["config", "data-dir", "kubeconfig", "context"];

/// The page.
pub(super) fn page() -> String {
    let mut all = super::command();
    all.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n## Commands\n\n| command | does |\n|---|---|\n");
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(page, "| [`signpost {0}`](#signpost-{0}) | {1} |", command.get_name(), about(command));
    }
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        section(&mut page, command, "signpost", 2);
    }
    page
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn section(page: &mut String, command: &Command, above: &str, depth: usize) {
    let name = format!("{above} {}", command.get_name());
    let _ = write!(page, "\n{} {name}\n\n{}.\n", "#".repeat(depth), about(command));
    let is_told = |command: &&Command| command.get_name() != "help" && !command.is_hide_set();
    let below: Vec<&Command> = command.get_subcommands().filter(is_told).collect();
    if below.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").trim();
        let _ = write!(page, "\n```text\n{usage}\n```\n");
    }
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        let (text, examples): (Vec<&str>, Vec<&str>) = after.lines().partition(|line| !line.starts_with("signpost "));
        for paragraph in text.into_iter().filter(|line| !line.is_empty()) {
            let _ = write!(page, "\n{}\n", escaped(paragraph));
        }
        if !examples.is_empty() {
            let _ = write!(page, "\n```sh\n{}\n```\n", examples.join("\n"));
        }
    }
    let asks_api = command.get_arguments().any(|argument| argument.get_id() == "context");
    let told = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        !(argument.is_hide_set() || ["help", "version"].contains(&id) || asks_api && OF_THE_API.contains(&id))
    };
    // The page of the configuration describes each setting with its variable and its default.
    let (settings, arguments): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(told).partition(|argument| argument.get_help_heading().is_some());
    if !settings.is_empty() {
        let _ =
            write!(page, "\nThe flags include all settings of [Configuration](configuration.md), and `--config`.\n");
    }
    if !arguments.is_empty() {
        page.push_str("\n| argument | meaning |\n|---|---|\n");
        for argument in arguments {
            let _ = writeln!(page, "| {} | {} |", spelling(argument), meaning(argument));
        }
    }
    if asks_api {
        let flags: Vec<String> = OF_THE_API.iter().map(|flag| format!("`--{flag}`")).collect();
        let _ = write!(page, "\nAnd {}, which say [where the API is](#what-all-commands-share).\n", flags.join(", "));
    }
    for command in below {
        section(page, command, &name, depth + 1);
    }
}

/// How an argument is written.
fn spelling(argument: &Arg) -> String {
    let values: Vec<String> =
        argument.get_value_names().unwrap_or_default().iter().map(|name| name.to_string()).collect();
    let value = match argument.get_action().takes_values() {
        true => values.join(" "),
        false => String::new(),
    };
    let code = |text: String| format!("`{}`", text.trim());
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => code(format!("-{short}, --{long} {value}")),
        (None, Some(long)) => code(format!("--{long} {value}")),
        (Some(short), None) => code(format!("-{short} {value}")),
        (None, None) if value.is_empty() => code(argument.get_id().to_string().to_ascii_uppercase()),
        (None, None) => code(value),
    }
}

fn meaning(argument: &Arg) -> String {
    let mut text = escaped(&argument.get_help().map(ToString::to_string).unwrap_or_default());
    let possible: Vec<String> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if !possible.is_empty() && argument.get_action().takes_values() {
        let _ = write!(text, ": {}", possible.join(", "));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        let _ = write!(text, " [default: {}]", defaults.join(", "));
    }
    text
}

/// Text that means itself in a table of Markdown.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;").replace('\n', " ")
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
        fn look(command: &Command, path: &str, stated: bool, without: &mut Vec<String>) {
            let own = |text: Option<&clap::builder::StyledStr>| {
                text.is_some_and(|text| text.to_string().contains("Exit codes:"))
            };
            let stated = stated || own(command.get_after_help());
            let path = format!("{path} {}", command.get_name());
            // What is hidden is called by scripts of ours.
            let mut below = command.get_subcommands().filter(|command| !command.is_hide_set()).peekable();
            if below.peek().is_none() && !stated {
                without.push(path.clone());
            }
            below.for_each(|command| look(command, &path, stated, without));
        }
        let mut without = Vec::new();
        look(&crate::cli::command(), "", false, &mut without);
        assert_eq!(without, Vec::<String>::new());
    }
}
