//! `signpost man`: manual pages, and the reference of the command line in Markdown, made from the same definitions as
//! the program's help.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};

use super::{Exit, Outcome, directory, option, print, reference, switch};

pub(super) fn command() -> Command {
    let dir = directory(option("dir", "DIR")).help(
        "Write a page for each command into this directory, and create it if necessary [default: print signpost(1)]",
    );
    let markdown =
        switch("markdown").conflicts_with("dir").help("Print the reference page of all commands instead (docs/cli.md)");
    Command::new("man")
        .about("Print the manual page, or write the pages of all commands")
        .after_help(
            "signpost man | man -l -\nsignpost man --dir /usr/local/share/man/man1\n\nExit codes: 0 written, 1 a \
             file cannot be written, 2 invalid usage.",
        )
        .args([dir, markdown])
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    if matches.get_flag("markdown") {
        print(&reference::page());
        return Ok(Exit::Success);
    }
    let mut all = super::command();
    all.build();
    match matches.get_one::<PathBuf>("dir") {
        None => print(&String::from_utf8_lossy(&page(&all, "signpost")?)),
        Some(folder) => write_all(&all, "signpost", folder)?,
    }
    Ok(Exit::Success)
}

/// Writes the page of a command, and of all below it.
fn write_all(command: &Command, name: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).map_err(|error| format!("{}: {error}", path.display()))?;
    print(&format!("{}\n", path.display()));
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        write_all(command, &format!("{name}-{}", command.get_name()), folder)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, String> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone().display_name(name.to_owned()));
    man.render(&mut page).map_err(|error| error.to_string())?;
    Ok(page)
}
