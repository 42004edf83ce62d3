//! `signpost key`: TSIG keys for secondary servers and other clients of the name server.

use clap::{Arg, ArgMatches, Command};

use super::{Error, Exit, Outcome, file, option, print};
use crate::daemon::secondaries::read_file;
use signpost_dns::tsig::{Algorithm, Key};
use signpost_dns::wire::Name;
use signpost_runtime::tls::files;

pub(super) fn command() -> Command {
    let format = || {
        option("format", "FORMAT")
            .value_parser(["bind", "knot"])
            .default_value("bind")
            .help("The form of the keys: key statements of BIND, or the section key of Knot")
    };
    let name = Arg::new("name")
        .value_name("NAME")
        .required(true)
        .value_parser(|text: &str| Name::parse(text.as_bytes(), &Name::root()).map_err(|error| error.to_string()))
        .help("The name of the key, such as transfer.example; it is the same on both sides");
    let algorithm = option("algorithm", "ALGORITHM")
        .value_parser(Algorithm::ALL.map(Algorithm::name))
        .default_value(Algorithm::Sha256.name())
        .help("The algorithm");
    let output =
        file(option("output", "FILE")).help("Write the key to this file, with mode 0600, instead of standard output");
    let generate = Command::new("generate").about("Generate a key with a random secret").arg(name).args([
        algorithm,
        output,
        format(),
    ]);
    let show = Command::new("show")
        .about("Print the keys of a key file, with their secrets, for the configuration of another server")
        .arg(file(Arg::new("file")).value_name("FILE").required(true).help("The key file"))
        .arg(format());
    let tsig = Command::new("tsig")
        .about("Manage TSIG keys (RFC 8945)")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([generate, show]);
    Command::new("key")
        .about("Manage keys of the name server")
        .after_help(
            "signpost key tsig generate transfer.example --output transfer.key\n\
             signpost key tsig show transfer.key --format knot\n\n\
             Exit codes: 0 done, 1 failed, 2 invalid usage.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(tsig)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let Some(("tsig", matches)) = matches.subcommand() else { return Ok(Exit::Usage) };
    match matches.subcommand() {
        Some(("generate", matches)) => generate(matches),
        Some(("show", matches)) => show(matches),
        _ => Ok(Exit::Usage),
    }
}

fn generate(matches: &ArgMatches) -> Outcome {
    let name = matches.get_one::<Name>("name").expect("it is required").clone();
    let algorithm = matches.get_one::<String>("algorithm").expect("it has a default");
    let algorithm = Algorithm::ALL.into_iter().find(|known| known.name() == algorithm).expect("clap accepts no other");
    let text = text(&[Key::generate(name, algorithm)], matches);
    match matches.get_one::<std::path::PathBuf>("output") {
        None => print(&text),
        Some(path) if path.exists() => {
            return Err(Error::Failed(format!(
                "{}: the file exists; remove it, or choose another name",
                path.display()
            )));
        }
        Some(path) => files::write_private(path, text.as_bytes()).map_err(|error| Error::Failed(error.to_string()))?,
    }
    Ok(Exit::Success)
}

fn show(matches: &ArgMatches) -> Outcome {
    let path = matches.get_one::<std::path::PathBuf>("file").expect("it is required");
    print(&text(&read_file(path).map_err(|error| Error::Failed(error.to_string()))?, matches));
    Ok(Exit::Success)
}

fn text(keys: &[Key], matches: &ArgMatches) -> String {
    let is_knot = matches.get_one::<String>("format").is_some_and(|format| format == "knot");
    match is_knot {
        false => keys.iter().map(Key::to_bind).collect(),
        true => {
            let keys: String = keys.iter().map(|key| key.to_knot().trim_start_matches("key:\n").to_owned()).collect();
            format!("key:\n{keys}")
        }
    }
}
