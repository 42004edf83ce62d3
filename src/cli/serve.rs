//! `signpost serve`: runs the process in the foreground.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use super::{Error, Exit, Outcome, option};
use crate::config::Places;
use crate::config::keys::{KEYS, Shape};
use crate::config::layers::{self, Given, Layer, Source};
use crate::daemon::{self, configuration};

pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Run the server in the foreground: API, scheduler, DNS and admin, or some of these roles")
        .after_help(
            "SIGTERM and SIGINT end it, SIGHUP reads configuration and zone files again. docs/configuration.md says more of \
             each setting. Exit codes: 0 ended as asked, 1 it could not start or go on, 2 the configuration cannot be used.",
        )
        .args(arguments())
}

/// `--config` and a flag for every key of the configuration.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let config = option("config", "FILE")
        .help("TOML file with settings; flags and variables win over it [env: SIGNPOST_CONFIG]")
        .value_parser(ValueParser::path_buf())
        .value_hint(ValueHint::FilePath);
    let flags = KEYS.iter().map(|key| {
        let action = if key.shape.is_list() { ArgAction::Append } else { ArgAction::Set };
        let hint = match key.shape {
            Shape::Path if key.value_name == "DIR" => ValueHint::DirPath,
            Shape::Path | Shape::Paths => ValueHint::AnyPath,
            _ => ValueHint::Other,
        };
        let repeats = if key.shape.is_list() { " (repeats)" } else { "" };
        Arg::new(key.name)
            .long(key.name)
            .value_name(key.value_name)
            .help(format!("{}{repeats} [env: {}] [default: {}]", key.help, key.variable(), key.default))
            .action(action)
            .value_hint(hint)
    });
    std::iter::once(config).chain(flags)
}

/// `--config` and the flags of these keys alone, for a command that needs no more.
pub(super) fn arguments_of(keys: &'static [&'static str]) -> impl Iterator<Item = Arg> {
    arguments().filter(move |argument| {
        let name = argument.get_id().as_str();
        name == "config" || keys.contains(&name)
    })
}

/// Where settings stand: the flags in `matches` and this process's environment.
pub(super) fn places(matches: &ArgMatches) -> Places {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let of_environment = || environment.iter().find(|(name, value)| name == "SIGNPOST_CONFIG" && !value.is_empty());
    let config = matches.get_one::<PathBuf>("config").cloned();
    let config = config.or_else(|| of_environment().map(|(_, value)| PathBuf::from(value)));
    let mut flags = Layer::new();
    for key in KEYS {
        let Some(given) = matches.try_get_many::<String>(key.name).ok().flatten() else { continue };
        let values = given.flat_map(|value| layers::split(value, key.shape.flag_separators())).collect();
        flags.insert(key.name, Given { values, source: Source::Flag(key.flag()) });
    }
    Places { config, flags, environment }
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let places = places(matches);
    let settings = configuration::load(&places)?;
    match daemon::run(places, settings) {
        Ok(()) => Ok(Exit::Success),
        Err(error) if error.is_configuration() => Err(Error::Usage(error.to_string())),
        Err(error) => Err(Error::Failed(error.to_string())),
    }
}
