//! `signpost kubeconfig`: a kubeconfig for kubectl and client libraries, with a new credential of one user, or with the sign-in at
//! an identity provider for all users.

use std::path::PathBuf;

use clap::{ArgGroup, ArgMatches, Command};
use data_encoding::BASE64;

use super::access::{self, API_TIMEOUT};
use super::user::{self, NewCredential};
use super::{Exit, Outcome, file, note, option, print, serve, switch};
use crate::config::Settings;
use crate::daemon::sign_in;
use crate::oidc::{self, Registration};
use signpost_runtime::tls::files;
use signpost_runtime::tls::kubeconfig::{self, CONTEXT, Contents, Secret, Trust};

/// The configuration keys for the data directory and the identity providers.
const KEYS: &[&str] = &["data-dir", "jwt-issuer"];
/// The text for users without kubectl. Their next step is the plugin.
const INSTALL_HINT: &str = "install kubectl, and the plugin kubelogin with \"kubectl krew install oidc-login\" or from \
     https://github.com/int128/kubelogin";

pub(super) fn command() -> Command {
    let user = option("user", "NAME").help("The user, as created by \"signpost user add\"");
    let sign_in = switch("sign-in")
        .conflicts_with_all(["certificate", "ttl"])
        .help("Let each user sign in at the identity provider, with the kubectl plugin oidc-login (kubelogin)");
    let issuer = option("issuer", "URL")
        .requires("sign-in")
        .help("The identity provider [default: the only one in `jwt-issuer` with `client-id`]");
    let namespace = access::namespace_argument()
        .help("The default namespace of the kubeconfig [default: the namespace of a tenant with only one]");
    let server = option("server", "URL")
        .value_parser(access::https_url)
        .help("The URL of the API [default: that of the administrator's kubeconfig]");
    let out = file(option("out", "FILE")).help("Write to a file with mode 0600 instead of standard output");
    Command::new("kubeconfig")
        .about("Print a kubeconfig with a new credential of a user, or with the sign-in at an identity provider")
        .after_help(
            "With --user, each run creates another token (or client certificate). Secrets are not stored, so an earlier \
             one cannot be printed again. \"signpost user list\" lists all, \"signpost user revoke NAME --credential ID\" \
             revokes one. With --sign-in, the kubeconfig contains no secret, and all users can have the same one \
             (docs/sign-in.md). Exit codes: 0 written, 1 the user does not exist, a file cannot be read or written, or \
             the provider is unreachable or not configured, 2 invalid usage.",
        )
        .args([user, sign_in, issuer, namespace, server, out])
        .group(ArgGroup::new("credential").args(["user", "sign-in"]).required(true))
        .args(user::credential_arguments())
        .args(serve::arguments_of(KEYS))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let settings = user::settings(matches)?;
    let admin = settings.data_dir.join("kubeconfig");
    let text = files::read(&admin).map_err(|error| error.to_string())?;
    let known = text.as_deref().and_then(kubeconfig::server_of);
    let (url, trust) = known.ok_or_else(|| {
        format!("{}: not a kubeconfig of this server; start the server once to create it", admin.display())
    })?;
    let server = matches.get_one::<String>("server").unwrap_or(&url);
    match matches.get_one::<String>("user") {
        Some(name) => with_credential(matches, &settings, name, server, &trust)?,
        None => with_sign_in(matches, &settings, server, &trust)?,
    }
    Ok(Exit::Success)
}

/// Creates a credential of a user, and writes a kubeconfig with it.
fn with_credential(
    matches: &ArgMatches,
    settings: &Settings,
    name: &str,
    server: &str,
    trust: &Trust,
) -> Result<(), String> {
    let pki = settings.data_dir.join("pki");
    let made = user::make(matches, &pki, name).map_err(|error| error.to_string())?;
    let secret = match &made {
        NewCredential::Token(token) => Secret::Token(token),
        NewCredential::Certificate(made) => Secret::Certificate(&made.certificate_pem, &made.key_pem),
    };
    let own = user::only_namespace(&pki, name);
    let namespace = matches.get_one::<String>("namespace").or(own.as_ref()).map(String::as_str);
    let contents = Contents { context: CONTEXT, user: name, server, trust, secret, namespace };
    deliver(matches, &contents, &format!("of user {name}"))?;
    if let NewCredential::Token(token) = &made {
        user::until_it_works(&pki, name, token);
    }
    Ok(())
}

/// Writes a kubeconfig whose user gets tokens from kubelogin.
fn with_sign_in(matches: &ArgMatches, settings: &Settings, server: &str, trust: &Trust) -> Result<(), String> {
    let registrations = sign_in::of_command_lines(settings).map_err(|error| error.to_string())?;
    let registration = select(registrations, matches.get_one::<String>("issuer"))?;
    let client = oidc::Client::new(registration.clone(), None).map_err(|error| error.to_string())?;
    let scopes = access::run(API_TIMEOUT, async { client.scopes().await.map_err(|error| error.to_string()) })?;
    let (context, provider) = (without_scheme(server), without_scheme(&registration.issuer));
    let contents = Contents {
        context,
        user: &format!("{provider}@{context}"),
        server,
        trust,
        secret: Secret::Plugin { arguments: &arguments(&registration, &scopes), install_hint: INSTALL_HINT },
        namespace: matches.get_one::<String>("namespace").map(String::as_str),
    };
    deliver(matches, &contents, &format!("for the sign-in at {}", registration.issuer))
}

/// Returns the registration at this issuer, or the only one.
fn select(all: Vec<Registration>, issuer: Option<&String>) -> Result<Registration, String> {
    let known = all.iter().map(|one| one.issuer.as_str()).collect::<Vec<_>>().join(", ");
    let mut fitting = all.into_iter().filter(|one| issuer.is_none_or(|issuer| *issuer == one.issuer));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(format!("jwt-issuer: several providers have a client-id: {known}; set --issuer")),
        (None, _) if known.is_empty() => {
            Err("jwt-issuer: no provider has a client-id; set it, or set --config to the file of the server".to_owned())
        }
        (None, _) => Err(format!("--issuer: not in jwt-issuer with a client-id; set it to one of {known}")),
    }
}

/// Returns the arguments with which kubectl runs kubelogin.
fn arguments(registration: &Registration, scopes: &[String]) -> Vec<String> {
    let Registration { issuer, client_id, ca, .. } = registration;
    let mut arguments = vec![
        "oidc-login".to_owned(),
        "get-token".to_owned(),
        format!("--oidc-issuer-url={issuer}"),
        format!("--oidc-client-id={client_id}"),
        // By default, kubelogin uses PKCE only if the provider announces it. RFC 8252 §6: "Public native app clients MUST
        // implement the Proof Key for Code Exchange (PKCE [RFC7636]) extension to OAuth".
        "--oidc-pkce-method=S256".to_owned(),
    ];
    arguments.extend(scopes.iter().map(|scope| format!("--oidc-extra-scope={scope}")));
    let authority = |pem: &String| format!("--certificate-authority-data={}", BASE64.encode(pem.as_bytes()));
    arguments.extend(ca.as_ref().map(authority));
    arguments
}

fn without_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/')
}

/// Prints the kubeconfig, or writes it to the file of `--out`.
fn deliver(matches: &ArgMatches, contents: &Contents<'_>, what: &str) -> Result<(), String> {
    let text = kubeconfig::text(contents);
    match matches.get_one::<PathBuf>("out") {
        None => print(&text),
        Some(path) => {
            files::write_private(path, text.as_bytes()).map_err(|error| error.to_string())?;
            note(format_args!("kubeconfig {what} written to {}", path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(issuer: &str) -> Registration {
        Registration { issuer: issuer.to_owned(), client_id: "cli".to_owned(), scopes: Vec::new(), ca: None }
    }

    #[test]
    fn one_provider_is_selected() {
        let (a, b) = (registration("https://a.example"), registration("https://b.example"));
        let issuer = b.issuer.clone();
        assert_eq!(select(vec![a.clone()], None), Ok(a.clone()));
        assert_eq!(select(vec![a.clone(), b.clone()], Some(&issuer)), Ok(b.clone()));
        for (all, issuer, part) in [
            (vec![], None, "no provider has a client-id"),
            (vec![a.clone(), b], None, "https://a.example, https://b.example; set --issuer"),
            (vec![a], Some(&issuer), "set it to one of https://a.example"),
        ] {
            let error = select(all, issuer).expect_err("none is selected");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn kubelogin_gets_what_the_provider_needs() {
        let registration = Registration { ca: Some("PEM".to_owned()), ..registration("https://idp.example/realms/a") };
        let scopes = ["groups".to_owned(), "offline_access".to_owned()];
        let expected = "oidc-login get-token --oidc-issuer-url=https://idp.example/realms/a --oidc-client-id=cli \
                        --oidc-pkce-method=S256 --oidc-extra-scope=groups --oidc-extra-scope=offline_access \
                        --certificate-authority-data=UEVN";
        assert_eq!(arguments(&registration, &scopes).join(" "), expected);
        assert_eq!(without_scheme("https://idp.example/realms/a/"), "idp.example/realms/a");
    }
}
