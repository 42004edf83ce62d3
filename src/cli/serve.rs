//! `signpost serve`: runs the process in the foreground.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use super::{Error, Exit, Outcome, file, option, switch};
use crate::config::key::Key;
use crate::config::layers;
use crate::config::reader::Layer;
use crate::config::rule::Form;
use crate::config::{ConfigSources, KEYS};
use crate::daemon::{self, configuration, demo};

pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Run the server in the foreground: API, scheduler, DNS and admin, or some of these roles")
        .after_help(
            "SIGTERM and SIGINT stop the process, SIGHUP reloads configuration and zone files. docs/configuration.md describes \
             each setting. Exit codes: 0 stopped on request, 1 startup or runtime failure, 2 invalid configuration.",
        )
        .arg(switch("demo").help(format!("Start the example platform, whose domain is {}", demo::DOMAIN)))
        .args(arguments())
}

/// `--config` and a flag for every setting: common settings first, the others below the headings of their tables.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let (common, others): (Vec<&Key>, Vec<&Key>) = KEYS.iter().partition(|key| key.is_common);
    // Only where no positional argument can follow the flag.
    let flag = |key: &'static Key| match key.shape.form {
        Form::Boolean => flag(key).num_args(0..=1).default_missing_value("true"),
        _ => flag(key),
    };
    let common = std::iter::once(config()).chain(common.into_iter().map(flag));
    let common = common.map(|argument| argument.help_heading("Common settings"));
    common.chain(others.into_iter().map(move |key| flag(key).help_heading(key.heading)))
}

/// `--config` and the flags of these keys, without headings, for a command that needs only these.
pub(super) fn arguments_of(paths: &'static [&'static str]) -> impl Iterator<Item = Arg> {
    std::iter::once(config()).chain(flags_of(paths))
}

/// Returns the flags of these keys.
pub(super) fn flags_of(paths: &'static [&'static str]) -> impl Iterator<Item = Arg> {
    KEYS.iter().filter(|key| paths.contains(&key.path.as_str())).map(flag)
}

fn config() -> Arg {
    file(option("config", "FILE"))
        .help("The TOML file of settings; flags and variables override it [env: SIGNPOST_CONFIG]")
}

fn flag(key: &'static Key) -> Arg {
    let repeats = if key.is_list() { " (repeats)" } else { "" };
    let range = if key.shape.range.is_empty() { String::new() } else { format!(" [range: {}]", key.shape.range) };
    let is_choice = !key.shape.words.is_empty() && key.shape.form != Form::Boolean;
    let values = if is_choice { format!(" [values: {}]", key.shape.words.join(", ")) } else { String::new() };
    Arg::new(key.path.as_str())
        .long(key.flag.as_str())
        .value_name(key.shape.value_name)
        .help(format!(
            "{}{repeats}{range}{values} [env: {}] [default: {}]",
            key.help,
            key.variable(),
            key.default.shown
        ))
        .action(if key.is_list() { ArgAction::Append } else { ArgAction::Set })
        .value_hint(match key.shape.form {
            Form::Path if key.shape.value_name == "DIR" => ValueHint::DirPath,
            Form::Path => ValueHint::AnyPath,
            _ => ValueHint::Other,
        })
}

/// Returns the sources of settings: the flags in `matches` and this process's environment.
pub(super) fn places(matches: &ArgMatches) -> ConfigSources {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let of_environment = || environment.iter().find(|(name, value)| name == "SIGNPOST_CONFIG" && !value.is_empty());
    let config = matches.get_one::<PathBuf>("config").cloned();
    let config = config.or_else(|| of_environment().map(|(_, value)| PathBuf::from(value)));
    let mut flags = Layer::new();
    for key in KEYS.iter() {
        if let Some(given) = matches.try_get_many::<String>(&key.path).ok().flatten() {
            flags.insert(key.path.as_str(), layers::from_flag(key, given));
        }
    }
    ConfigSources { config, flags, environment, is_demo: false }
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let places = ConfigSources { is_demo: matches.get_flag("demo"), ..places(matches) };
    let settings = configuration::load(&places)?;
    match daemon::run(places, settings) {
        Ok(()) => Ok(Exit::Success),
        Err(error) if error.is_configuration() => Err(Error::Usage(error.to_string())),
        Err(error) => Err(Error::Failed(error.to_string())),
    }
}
