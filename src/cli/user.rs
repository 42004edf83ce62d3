//! `signpost user`: manages the API users, other than the platform's own processes.
//!
//! It writes to the data directory, so it needs the machine and the permissions of the server's user. The server may be stopped;
//! a running server applies changes within a second. A command that creates a token ends when the running server's API accepts
//! it. Secrets go to standard output, once, and everything else to standard error.

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Arg, ArgAction, ArgMatches, Command};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde::Serialize;

use super::access::ApiLocation;
use super::output::{self, ListOptions, Listing};
use super::style::Style;
use super::table::{Cell, Table};
use super::{Error, Exit, Outcome, access, note, option, print, serve, switch};
use crate::config::{self, Settings, rule::parse_duration};
use crate::daemon::access::KUBECONFIGS;
use crate::daemon::data_dir::DataDir;
use signpost_api::access::{GROUP_ROUTER_AGENT_PREFIX, ROLES};
use signpost_api::identity::GROUP_TENANT_PREFIX;
use signpost_control::client;
use signpost_control::client::failover::Servers;
use signpost_runtime::tls::files;
use signpost_runtime::tls::kubeconfig::{self, CONTEXT, Contents, Secret};
use signpost_runtime::tls::tokens::TokenEntry;
use signpost_runtime::tls::users::{self, BookError, CredentialKind, UserStore};
use signpost_runtime::tls::{self, tokens};
use signpost_types::v1alpha1::router::Router;

/// The default lifetime of a client certificate.
const CERTIFICATE_TTL: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The longest lifetime of a credential: the lifetime of the CA.
const TTL_MAX: SignedDuration = SignedDuration::from_hours(3650 * 24);
/// The columns of the table.
const COLUMNS: [&str; 6] = ["name", "groups", "credential", "id", "created", "expires"];
/// The configuration keys for the data directory.
const KEYS: &[&str] = &["data-dir"];

pub(super) fn command() -> Command {
    let name = || Arg::new("name").value_name("NAME").required(true).help("The name of the user");
    let roles: Vec<&str> = ROLES.iter().map(|(role, _)| *role).collect();
    let role = option("role", "ROLE")
        .required_unless_present("group")
        .action(ArgAction::Append)
        .value_delimiter(',')
        .value_parser(roles)
        .help("The role of the user (repeats)");
    let namespace = access::namespace_argument()
        .action(ArgAction::Append)
        .value_delimiter(',')
        .help("The namespace of a tenant (repeats)");
    let router = option("router", "NAME")
        .action(ArgAction::Append)
        .value_delimiter(',')
        .help("The Router of an agent, the only one whose Leases it may write (repeats)");
    let group = option("group", "GROUP")
        .action(ArgAction::Append)
        .help("An additional group (repeats); docs/api.md lists the platform's own groups");
    let none = switch("no-credential")
        .conflicts_with_all(["certificate", "ttl"])
        .help("Create only the user; \"signpost kubeconfig --user NAME\" creates a credential later");
    let add = Command::new("add")
        .about("Add a user and print a bearer token, which is not stored, or a client certificate with its key")
        .arg(name())
        .args([role, namespace, router, group, none])
        .args(credential_arguments())
        .args(serve::arguments_of(KEYS));
    let list = Command::new("list")
        .about("List users and their credentials")
        .args(output::list_arguments(COLUMNS))
        .args(serve::arguments_of(KEYS));
    let credential = option("credential", "ID")
        .help("Revoke only the credential whose ID in \"signpost user list\" starts with this text");
    let revoke = Command::new("revoke")
        .about("Revoke a user's access: all tokens, and all client certificates issued so far")
        .after_help(
            "A running server applies the change within a second, and closes open watches. If the user is one of the \
             platform's own (signpost:admin, system:signpost:…), the next start creates a new token and kubeconfig.",
        )
        .arg(name())
        .arg(credential)
        .args(serve::arguments_of(KEYS));
    Command::new("user")
        .about("Manage API users and their credentials")
        .after_help(
            "Exit codes: 0 done, 1 the user already exists (add) or does not exist (revoke), or the data directory \
             cannot be used, 2 invalid usage.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([add, list, revoke])
}

/// Returns the arguments for the kind of the credential and its lifetime.
pub(super) fn credential_arguments() -> [Arg; 2] {
    let certificate = switch("certificate").help("Create a client certificate instead of a token");
    let ttl = option("ttl", "DURATION").value_parser(duration).help(
        "The lifetime of the credential, such as 12h or 30d [default: 90d for a certificate, unlimited for a token]",
    );
    [certificate, ttl]
}

fn duration(text: &str) -> Result<SignedDuration, &'static str> {
    let ttl = parse_duration(text).ok().and_then(|ttl| SignedDuration::try_from(ttl).ok());
    ttl.filter(|ttl| ttl.is_positive() && *ttl <= TTL_MAX)
        .ok_or("must be a whole number and s, m, h or d, such as 30d, at least 1s and at most 3650d")
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let Some((name, matches)) = matches.subcommand() else { return Ok(Exit::Usage) };
    let folder = settings(matches)?.data_dir.join("pki");
    match name {
        "add" => {
            let groups = groups(matches).map_err(Error::Usage)?;
            require_objects(matches, &folder)?;
            add(matches, &folder, &groups).map_err(|error| match error {
                BookError::Name { .. } => Error::Usage(error.to_string()),
                error => Error::Failed(error.to_string()),
            })?;
        }
        "list" => return ListOptions::of(matches).show(|| list(&folder), |rows| listing(rows, Timestamp::now())),
        "revoke" => revoke(matches, &folder)?,
        _ => return Ok(Exit::Usage),
    }
    Ok(Exit::Success)
}

/// Returns the settings.
///
/// # Errors
///
/// If the configuration cannot be read, or no API server has used the data directory.
pub(super) fn settings(matches: &ArgMatches) -> Result<Settings, Error> {
    let settings = config::read(&serve::places(matches))?;
    if settings.data_dir.join("pki/ca.key").is_file() {
        return Ok(settings);
    }
    let folder = settings.data_dir.display();
    Err(format!(
        "{folder}: not the data directory of a server with the role api; set --data-dir, or start the server once"
    )
    .into())
}

/// A new credential in clear, to be shown once.
pub(super) enum NewCredential {
    Token(String),
    Certificate(tls::ClientIdentity),
}

/// Makes a credential as the arguments want it, and enters it.
pub(super) fn make(matches: &ArgMatches, folder: &std::path::Path, name: &str) -> Result<NewCredential, BookError> {
    let now = Timestamp::now();
    let ttl = matches.get_one::<SignedDuration>("ttl").copied();
    if !matches.get_flag("certificate") {
        let token = tokens::generate()?;
        let expires = ttl.map(|ttl| now + ttl);
        users::change(folder, |book| book.enter(name, CredentialKind::Token, tokens::sha256(&token), now, expires))?;
        return Ok(NewCredential::Token(token));
    }
    let expires = now + ttl.unwrap_or(CERTIFICATE_TTL);
    users::change(folder, |book| {
        let groups = book.user(name)?.groups.clone();
        let earliest = book.earliest(name).map(SystemTime::from);
        let made = tls::sign_client(folder, name, &groups, now.into(), earliest, expires.into())?;
        book.enter(name, CredentialKind::Certificate, made.serial.clone(), now, Some(expires))?;
        Ok(NewCredential::Certificate(made))
    })
}

/// Returns the namespace of a tenant with only one.
pub(super) fn only_namespace(pki: &Path, name: &str) -> Option<String> {
    let users = UserStore::load(pki).ok()?;
    let mut namespaces =
        users.user(name).ok()?.groups.iter().filter_map(|group| group.strip_prefix(GROUP_TENANT_PREFIX));
    let first = namespaces.next()?;
    namespaces.next().is_none().then(|| first.to_owned())
}

/// The time limit for the API to accept a new token: it checks the file every second.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(10);
/// The polling interval.
const ASK_INTERVAL: Duration = Duration::from_millis(25);

/// Waits until the server that uses the data directory accepts a new token, and prints a note if none does. `pki` is
/// the directory of keys in the data directory.
pub(super) fn until_it_works(pki: &Path, user: &str, token: &str) {
    let data_dir = pki.parent().unwrap_or(Path::new("."));
    if !DataDir::is_in_use(data_dir) {
        note(format_args!("no server uses {}; the token becomes valid when one starts", data_dir.display()));
        return;
    }
    if let Err(why) = access::run(ACCEPTED_WITHIN, accepted(data_dir, user, token)) {
        note(format_args!(
            "the API has not accepted the token yet ({why}); it reloads {} every second; if the token stays invalid, \
             see the log of the server",
            pki.join(users::FILE).display()
        ));
    }
}

/// Queries the API for the identity of the token until the API accepts the token.
async fn accepted(data_dir: &Path, user: &str, token: &str) -> Result<(), String> {
    let admin = data_dir.join("kubeconfig");
    let text = files::read(&admin).map_err(|error| error.to_string())?;
    let (server, trust) = text.as_deref().and_then(kubeconfig::server_of).ok_or("no kubeconfig of the server found")?;
    let secret = Secret::Token(token);
    let contents = Contents { context: CONTEXT, user, server: &server, trust: &trust, secret, namespace: None };
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig::text(&contents)).map_err(|error| error.to_string())?;
    let client = client::from_context(kubeconfig, None, &server, Servers::default()).await;
    let client = client.map_err(|error| error.to_string())?;
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    loop {
        match reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Err(kube::Error::Api(status)) if status.code == 401 => {}
            // Every other response shows that the API accepts the token.
            Ok(_) | Err(kube::Error::Api(_)) => return Ok(()),
            Err(error) => return Err(access::cause(&error)),
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}

fn add(matches: &ArgMatches, folder: &std::path::Path, groups: &[String]) -> Result<(), BookError> {
    let name = matches.get_one::<String>("name").expect("clap demands it");
    users::change(folder, |book| book.add(name, groups.to_vec(), Timestamp::now()))?;
    note(format_args!("user {name} added with the groups {}", groups.join(", ")));
    if matches.get_flag("no-credential") {
        return Ok(());
    }
    match make(matches, folder, name)? {
        NewCredential::Token(token) => {
            note("the token below is shown only once");
            print(&format!("{token}\n"));
            until_it_works(folder, name, &token);
        }
        NewCredential::Certificate(made) => {
            note("the key below is shown only once");
            print(&format!("{}{}", made.certificate_pem, made.key_pem));
        }
    }
    Ok(())
}

/// Fails if a namespace of the new user does not exist, and prints a note for a missing Router, which an operator may create after
/// its agents. Without a running server, nothing is checked.
fn require_objects(matches: &ArgMatches, folder: &Path) -> Result<(), Error> {
    let many = |id: &str| matches.get_many::<String>(id).into_iter().flatten();
    let data_dir = folder.parent().unwrap_or(Path::new("."));
    if many("namespace").chain(many("router")).next().is_none() || !DataDir::is_in_use(data_dir) {
        return Ok(());
    }
    let place = ApiLocation::of_data_dir(matches)?;
    let checked = access::run(ACCEPTED_WITHIN, async {
        let access = place.connect().await?;
        for name in many("router") {
            let router = Api::<Router>::all(access.client.clone()).get_opt(name).await;
            if router.map_err(|error| access.unanswered(error))?.is_none() {
                note(format_args!("Router {name} does not exist yet"));
            }
        }
        for name in many("namespace") {
            let found = Api::<Namespace>::all(access.client.clone()).get_opt(name).await;
            if found.map_err(|error| access.unanswered(error))?.is_none() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    });
    match checked {
        Ok(None) => Ok(()),
        Ok(Some(name)) => {
            Err(format!("NotFound: there is no namespace {name}; run \"kubectl create namespace {name}\" first").into())
        }
        Err(why) => {
            note(format_args!("the namespaces and Routers of the user were not checked: {why}"));
            Ok(())
        }
    }
}

/// Returns the groups for these roles, namespaces, and additional groups.
fn groups(matches: &ArgMatches) -> Result<Vec<String>, String> {
    let many = |id: &str| matches.get_many::<String>(id).into_iter().flatten().cloned().collect::<Vec<_>>();
    let (roles, namespaces, routers) = (many("role"), many("namespace"), many("router"));
    for (role, flag, given) in [("tenant", "--namespace", &namespaces), ("router-agent", "--router", &routers)] {
        match (roles.iter().any(|one| one == role), given.is_empty()) {
            (true, true) => return Err(format!("role {role} requires {flag}")),
            (false, false) => return Err(format!("{flag} requires --role {role}")),
            _ => {}
        }
    }
    let mut groups = Vec::new();
    for role in roles {
        let (_, group) = ROLES.iter().find(|(name, _)| *name == role).expect("clap knows only these");
        match *group {
            GROUP_TENANT_PREFIX => groups.extend(namespaces.iter().map(|name| format!("{group}{name}"))),
            GROUP_ROUTER_AGENT_PREFIX => groups.extend(routers.iter().map(|name| format!("{group}{name}"))),
            group => groups.push(group.to_owned()),
        }
    }
    groups.extend(many("group"));
    groups.sort();
    groups.dedup();
    Ok(groups)
}

/// A user's credential, or a user without any. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    groups: Vec<String>,
    /// `token`, `certificate` or `none`.
    credential: &'static str,
    id: Option<String>,
    created: Option<Timestamp>,
    /// Absent: never.
    expires: Option<Timestamp>,
}

fn list(folder: &Path) -> Result<Vec<Row>, Error> {
    let book = UserStore::load(folder).map_err(|error| error.to_string())?;
    let own = tokens::load(&folder.join("tokens")).map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for TokenEntry { sha256, user, groups, machine: _ } in own {
        let id = Some(sha256[..12].to_owned());
        rows.push(Row { name: user, groups, credential: "token", id, created: None, expires: None });
    }
    for user in &book.users {
        let row = |credential, id: Option<&str>, created, expires| Row {
            name: user.name.clone(),
            groups: user.groups.clone(),
            credential,
            id: id.map(|id| id.get(..12).unwrap_or(id).to_owned()),
            created: Some(created),
            expires,
        };
        if user.credentials.is_empty() {
            rows.push(row("none", None, user.created, None));
        }
        for credential in &user.credentials {
            let kind = match credential.kind {
                CredentialKind::Token => "token",
                CredentialKind::Certificate => "certificate",
            };
            rows.push(row(kind, Some(&credential.id), credential.created, credential.expires));
        }
    }
    Ok(rows)
}

fn listing(rows: &[Row], now: Timestamp) -> Listing {
    let mut table = Table::new(COLUMNS);
    for row in rows {
        let expires = match row.expires {
            Some(time) if time <= now => Cell::styled(Style::Bad, format!("{time} (expired)")),
            Some(time) => Cell::from(time.to_string()),
            None if row.id.is_none() => Cell::or_dash(None::<String>),
            None => Cell::from("never"),
        };
        table.row([
            Cell::from(row.name.as_str()),
            Cell::or_dash((!row.groups.is_empty()).then(|| row.groups.join(","))),
            Cell::from(row.credential),
            Cell::or_dash(row.id.as_deref()),
            Cell::or_dash(row.created.map(|time| time.to_string())),
            expires,
        ]);
    }
    Listing { tables: vec![table], note: None }
}

fn revoke(matches: &ArgMatches, folder: &std::path::Path) -> Result<(), String> {
    let name = matches.get_one::<String>("name").expect("clap demands it");
    let now = Timestamp::now();
    if let Some(id) = matches.get_one::<String>("credential") {
        let revoked = users::change(folder, |book| book.revoke_credential(name, id, now));
        let revoked = revoked.map_err(|error| error.to_string())?;
        note(format_args!("credential {} of user {name} revoked", revoked.id));
        return Ok(());
    }
    if KUBECONFIGS.iter().any(|(_, client)| client.user == name) {
        let path = folder.join("tokens");
        let strike_out = || {
            let _lock = users::lock(folder)?;
            let mut entries = tokens::load(&path)?;
            entries.retain(|entry| entry.user != *name);
            tokens::save(&path, &entries)
        };
        strike_out().map_err(|error: tls::Error| error.to_string())?;
        note(format_args!("token of {name} revoked; the next start creates a new token and kubeconfig"));
        return Ok(());
    }
    users::change(folder, |book| book.revoke(name, now)).map_err(|error| error.to_string())?;
    note(format_args!("user {name} revoked"));
    Ok(())
}
