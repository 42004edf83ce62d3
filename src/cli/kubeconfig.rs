//! `signpost kubeconfig`: a kubeconfig for kubectl and client libraries.

use std::path::PathBuf;

use clap::{ArgMatches, Command};

use super::user::{self, NewCredential};
use super::{Exit, Outcome, access, file, note, option, print, serve};
use signpost_runtime::tls::files;
use signpost_runtime::tls::kubeconfig::{self, Contents, Secret};

pub(super) fn command() -> Command {
    let user = option("user", "NAME").required(true).help("The user, as created by \"signpost user add\"");
    let namespace = access::namespace_argument()
        .help("The default namespace of the kubeconfig [default: the namespace of a tenant with only one]");
    let server = option("server", "URL")
        .value_parser(access::https_url)
        .help("The URL of the API [default: that of the administrator's kubeconfig]");
    let out = file(option("out", "FILE")).help("Write to a file with mode 0600 instead of standard output");
    Command::new("kubeconfig")
        .about("Create a credential for a user and print a kubeconfig with it")
        .after_help(
            "Each run creates another token (or client certificate). Secrets are not stored, so an earlier one cannot \
             be printed again. \"signpost user list\" lists all, \"signpost user revoke NAME --credential ID\" revokes \
             one. Exit codes: 0 written, 1 the user does not exist, or a file cannot be read or written, 2 invalid \
             usage.",
        )
        .args([user, namespace, server, out])
        .args(user::credential_arguments())
        .args(serve::arguments_of(user::KEYS))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    write(matches, user::folder(matches)?)?;
    Ok(Exit::Success)
}

fn write(matches: &ArgMatches, data_dir: PathBuf) -> Result<(), String> {
    let name = matches.get_one::<String>("user").expect("clap demands it");
    let admin = data_dir.join("kubeconfig");
    let text = files::read(&admin).map_err(|error| error.to_string())?;
    let known = text.as_deref().and_then(kubeconfig::server_of);
    let (url, trust) = known.ok_or_else(|| {
        format!("{}: not a kubeconfig of this server; start the server once to create it", admin.display())
    })?;
    let server = matches.get_one::<String>("server").unwrap_or(&url);
    let made = user::make(matches, &data_dir.join("pki"), name).map_err(|error| error.to_string())?;
    let secret = match &made {
        NewCredential::Token(token) => Secret::Token(token),
        NewCredential::Certificate(made) => Secret::Certificate(&made.certificate_pem, &made.key_pem),
    };
    let own = user::only_namespace(&data_dir.join("pki"), name);
    let namespace = matches.get_one::<String>("namespace").or(own.as_ref()).map(String::as_str);
    let text = kubeconfig::text(&Contents { user: name, server, trust: &trust, secret, namespace });
    match matches.get_one::<PathBuf>("out") {
        None => print(&text),
        Some(path) => {
            files::write_private(path, text.as_bytes()).map_err(|error| error.to_string())?;
            note(format_args!("kubeconfig of user {name} written to {}", path.display()));
        }
    }
    if let NewCredential::Token(token) = &made {
        user::until_it_works(&data_dir.join("pki"), name, token);
    }
    Ok(())
}
