//! The command line: one file for each command.
//!
//! Exit codes: [`Exit::Success`] 0, [`Exit::Failure`] 1 (it failed, or a check found errors), [`Exit::Usage`] 2 (the
//! command line or the configuration cannot be used). Results go to standard output, and everything else to standard
//! error.

// What commands share.
mod access;
mod age;
mod agent;
mod backends;
mod confirm;
mod output;
mod platform;
mod progress;
mod rates;
mod scrape;
mod style;
mod table;
mod traffic;
mod zones;

mod backup;
mod check;
mod check_store;
mod completion;
mod crds;
mod curl;
mod dashboard;
mod dig;
mod doctor;
mod examples;
mod explain;
mod folder;
mod hold;
mod init;
mod key;
mod kubeconfig;
mod man;
mod moves;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod pages;
mod reference;
mod serve;
mod simulate;
mod sources;
mod status;
mod store;
mod topology;
mod user;
mod version;
mod zone;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Success,
    /// The command failed, or found errors.
    Failure,
    /// Invalid usage or configuration.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
        })
    }
}

/// The outcome of a command: its exit code, or the error to report.
type Outcome = Result<Exit, Error>;

/// The error of a command.
#[derive(Debug)]
enum Error {
    /// The command line or the configuration cannot be used; an error a line.
    Usage(String),
    /// The command failed.
    Failed(String),
}

impl From<String> for Error {
    fn from(error: String) -> Self {
        Error::Failed(error)
    }
}

impl From<crate::config::Errors> for Error {
    fn from(errors: crate::config::Errors) -> Self {
        Error::Usage(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }
}

/// One command: how it is called and what it does.
struct Entry {
    command: fn() -> Command,
    run: fn(&ArgMatches) -> Outcome,
}

/// The commands, in the order in which help lists them.
const COMMANDS: &[Entry] = &[
    Entry { command: init::command, run: init::run },
    Entry { command: serve::command, run: serve::run },
    Entry { command: agent::command, run: agent::run },
    Entry { command: status::command, run: status::run },
    Entry { command: dashboard::command, run: dashboard::run },
    Entry { command: topology::command, run: topology::run },
    Entry { command: explain::command, run: explain::run },
    Entry { command: dig::command, run: dig::run },
    Entry { command: curl::command, run: curl::run },
    Entry { command: check::command, run: check::run },
    Entry { command: zone::command, run: zone::run },
    Entry { command: doctor::command, run: doctor::run },
    Entry { command: hold::command, run: hold::run },
    Entry { command: moves::move_command, run: moves::run_move },
    Entry { command: moves::drain_command, run: moves::run_drain },
    Entry { command: moves::cordon_command, run: moves::run_cordon },
    Entry { command: moves::uncordon_command, run: moves::run_uncordon },
    Entry { command: simulate::command, run: simulate::run },
    Entry { command: sources::command, run: sources::run },
    Entry { command: user::command, run: user::run },
    Entry { command: key::command, run: key::run },
    Entry { command: kubeconfig::command, run: kubeconfig::run },
    Entry { command: backup::command, run: backup::run },
    Entry { command: backup::restore_command, run: backup::run_restore },
    Entry { command: store::command, run: store::run },
    Entry { command: crds::command, run: crds::run },
    Entry { command: completion::command, run: completion::run },
    Entry { command: man::command, run: man::run },
    Entry { command: version::command, run: version::run },
];

/// Names that users of `kubectl` may try as commands, with the command to run instead.
const OF_KUBECTL: [(&str, &str); 4] = [
    ("routes", "kubectl get rt"),
    ("routers", "kubectl get routers"),
    ("events", "kubectl events --for route.signpost.dev/NAME"),
    ("wait", "kubectl wait --for=condition=Resolvable rt/NAME"),
];

/// Runs the program with `arguments`, the program's own name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches = match command().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            if let Some((name, instead)) = of_kubectl(&error) {
                complain(format_args!("{name}: not a command of signpost; run \"{instead}\""));
                return Exit::Usage.into();
            }
            if let Some(tip) = without_kind(&error, &arguments) {
                complain(tip);
                return Exit::Usage.into();
            }
            // Help and version are also printed this way, and are successes.
            return match error.print().and_then(|()| io::stdout().flush()) {
                _ if error.use_stderr() => Exit::Usage.into(),
                Ok(()) => Exit::Success.into(),
                Err(error) => unwritten(&error),
            };
        }
    };
    let (name, matches) = matches.subcommand().expect("clap demands a command");
    let entry = COMMANDS.iter().find(|entry| (entry.command)().get_name() == name).expect("clap knows only these");
    let exit = (entry.run)(matches).unwrap_or_else(|error| match error {
        Error::Usage(errors) => {
            errors.lines().for_each(complain);
            Exit::Usage
        }
        Error::Failed(error) => {
            complain(error);
            Exit::Failure
        }
    });
    exit.into()
}

/// Returns the entry of [`OF_KUBECTL`] for an unknown command, if that is the error.
fn of_kubectl(error: &clap::Error) -> Option<&'static (&'static str, &'static str)> {
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(given) => OF_KUBECTL.iter().find(|(name, _)| name == given),
        _ => None,
    }
}

/// Returns the error for a command that needs a kind before the name of an object, such as `drain router NAME`, and got only the
/// name.
fn without_kind(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let ContextValue::String(given) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    let name = arguments.get(1)?.to_str()?;
    let command = command();
    let mut kinds = command.find_subcommand(name)?.get_subcommands().map(Command::get_name);
    let kind = kinds.next().filter(|_| arguments.len() > 2 && kinds.next().is_none())?;
    Some(format!("{name}: the kind is missing; run \"signpost {name} {kind} {given}\""))
}

/// The whole command line.
fn command() -> Command {
    let command = Command::new("signpost")
        .about("An authoritative DNS server whose zones follow a platform's router shards")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(|entry| (entry.command)()));
    examples::add(command, "")
}

/// A flag `--name` without a value.
fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

/// A flag `--name` with a value.
fn option(name: &'static str, value_name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name)
}

/// The argument as the path of a file.
fn file(argument: Arg) -> Arg {
    argument.value_parser(ValueParser::path_buf()).value_hint(ValueHint::FilePath)
}

/// The argument as the path of a folder.
fn directory(argument: Arg) -> Arg {
    argument.value_parser(ValueParser::path_buf()).value_hint(ValueHint::DirPath)
}

/// Prints to standard output. A reader that has gone (`| head`) ends the program quietly, as other tools do; output that
/// cannot be written for another reason ends it as a failure.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        unwritten(&error);
    }
}

fn unwritten(error: &io::Error) -> ! {
    let is_reader_gone = error.kind() == io::ErrorKind::BrokenPipe;
    if !is_reader_gone {
        complain(format_args!("failed to write to standard output: {error}"));
    }
    std::process::exit(i32::from(!is_reader_gone))
}

/// Prints an error to standard error, as `error: …`.
fn complain(error: impl std::fmt::Display) {
    note(format_args!("error: {error}"));
}

/// Prints additional information on standard error.
fn note(what: impl std::fmt::Display) {
    let line = format!("{what}\n");
    match &mut *NOTES.lock().expect("no thread panics with the lock") {
        Some(notes) => *notes += &line,
        None => print_stderr(&line),
    }
}

/// Prints to standard error.
fn print_stderr(text: &str) {
    // A failure of this cannot be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The lines that [`noted`] collects while it runs.
static NOTES: Mutex<Option<String>> = Mutex::new(None);

/// Runs `work`. Returns its result, and the lines that it would print to standard error: a watched list prints them only
/// when they change.
fn noted<T>(work: impl FnOnce() -> T) -> (T, String) {
    let notes = || NOTES.lock().expect("no thread panics with the lock");
    *notes() = Some(String::new());
    let done = work();
    (done, notes().take().unwrap_or_default())
}

/// The exit code of a command that reports whether it found everything as it should be.
fn success_if(is_good: bool) -> Exit {
    if is_good { Exit::Success } else { Exit::Failure }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
