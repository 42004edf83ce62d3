//! Confirmation on a terminal before a change that no other command reverts immediately. Scripts are not prompted.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::time::Duration;

use clap::{Arg, ArgMatches};

use super::switch;

/// The time for the user's answer, in addition to the time of the command.
const TO_THINK: Duration = Duration::from_secs(3_600);

/// `--yes`.
pub(super) fn argument() -> Arg {
    switch("yes").short('y').help("Do not prompt for confirmation on a terminal")
}

/// Returns whether the command prompts the user. A command without `--yes` never does.
pub(super) fn asks(matches: &ArgMatches) -> bool {
    // Without debug assertions, clap reports an unknown argument as one that is not set.
    let flag = |name| matches.try_get_one::<bool>(name).ok().flatten().copied();
    flag("dry-run") != Some(true) && flag("yes") == Some(false) && stdin().is_terminal() && stderr().is_terminal()
}

/// Returns the additional time of a command that prompts the user.
pub(super) fn time(matches: &ArgMatches) -> Duration {
    if asks(matches) { TO_THINK } else { Duration::ZERO }
}

/// Prompts the user to confirm.
pub(super) fn confirm(question: &str) -> Result<(), String> {
    let mut answer = String::new();
    let asked = write!(stderr(), "{question} [y/N] ").and_then(|()| stderr().flush());
    asked.and_then(|()| stdin().lock().read_line(&mut answer)).map_err(|error| error.to_string())?;
    if is_yes(&answer) { Ok(()) } else { Err("nothing was changed".to_owned()) }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_yes_is_one() {
        for (answer, is_yes) in
            [("y\n", true), ("Yes\n", true), ("\n", false), ("", false), ("no\n", false), ("yy\n", false)]
        {
            assert_eq!(super::is_yes(answer), is_yes, "{answer:?}");
        }
    }
}
