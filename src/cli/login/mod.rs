//! `signpost login`: signs in at the identity provider of the API, and writes the user into the kubeconfig.
//!
//! The API names the provider to everyone (RFC 9728), so the kubeconfig needs only a server and its CA. The browser comes back to
//! a port of this machine (RFC 8252 §7.3); `--device` works without a browser (RFC 8628). The kubeconfig gets a credential plugin,
//! which is this command with `--print-credential`; the tokens are in a file of their own ([`credential`]).

mod credential;
mod user;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use clap::{ArgMatches, Command, value_parser};
use data_encoding::BASE64;
use kube::config::{
    AuthInfo, Cluster, Context, ExecConfig, ExecInteractiveMode, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::credential::SavedLogin;
use self::user::User;
use super::access::{self, API_TIMEOUT, Access};
use super::output::{self, Format};
use super::style::harmless;
use super::{Error, Outcome, dashboard, file, note, option, switch};
use crate::oidc::{self, Login, Tokens};
use signpost_apiserver::auth::resource_metadata::{self, PublicClient, ResourceMetadata};
use signpost_runtime::httpd::{self, Limits};
use signpost_runtime::tls::{self, files};

/// The time for the user to sign in with a browser of this machine.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(300);
/// The time limit of the sign-in, on another device, too: providers allow five to thirty minutes.
const SIGN_IN_LONGEST: Duration = Duration::from_secs(1_900);
/// The name of the context and of the cluster for `--server`.
const CONTEXT: &str = "signpost";

pub(super) fn command() -> Command {
    let kubeconfig = file(option("kubeconfig", "FILE"))
        .help("The kubeconfig to write [default: the first file of $KUBECONFIG, or ~/.kube/config]");
    let server = option("server", "URL")
        .value_parser(access::https_url)
        .help("The URL of the API, for a kubeconfig that does not have it yet");
    let ca = file(option("ca", "FILE"))
        .requires("server")
        .help("The CA certificates in PEM to trust for --server [default: those of the system]");
    let issuer =
        option("issuer", "URL").help("The URL of the identity provider [default: the provider that the API reports]");
    let client = option("client-id", "ID")
        .help("The client at the identity provider [default: the client that the API reports]");
    let issuer_ca = file(option("issuer-ca", "FILE")).help(
        "The CA certificates in PEM to trust for the identity provider [default: those that the API names, or those of \
         the system]",
    );
    let port = option("port", "N")
        .value_parser(value_parser!(u16))
        .default_value("0")
        .help("The port of 127.0.0.1 to which the identity provider sends the browser; 0 selects a free port");
    let device = switch("device")
        .conflicts_with_all(["no-browser", "port"])
        .help("Sign in on another device, for a machine without a browser");
    // For the credential plugin.
    let print_credential = file(option("print-credential", "FILE")).hide(true);
    Command::new("login")
        .about("Sign in at the identity provider of the API, and write the user into the kubeconfig")
        .after_help(
            "Afterwards, kubectl and signpost use the new user: the context runs \"signpost login\" as its credential \
             plugin, which renews the token. docs/sign-in.md describes the settings of the API and of the provider. Exit \
             codes: 0 signed in, 1 the API or the provider is unreachable or rejected the sign-in, 2 invalid usage.",
        )
        .args([kubeconfig, access::context_argument(), access::namespace_argument(), server, ca])
        .args([issuer, client, issuer_ca, port, switch("no-browser").help("Only print the address"), device])
        .args([output::argument(), print_credential])
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    if let Some(path) = matches.get_one::<PathBuf>("print-credential") {
        return credential::run(path);
    }
    let target = Target::of(matches)?;
    let registration = registration(matches, &target)?;
    let client = oidc::Client::new(registration.clone(), None).map_err(|error| error.to_string())?;
    let tokens = access::run(SIGN_IN_LONGEST, async {
        match matches.get_flag("device") {
            true => with_device(&client).await.map_err(|error| error.to_string()),
            false => with_browser(&client, matches).await,
        }
    })?;
    let user = access::run(API_TIMEOUT, async {
        let access = target.access().await?.with_token(&tokens.id_token)?;
        User::of(&access, target.path.display().to_string()).await.map_err(|error| {
            let PublicClient { issuer, client_id, .. } = &registration;
            format!("{error}; its setting jwt-issuer must accept tokens of {issuer} for the client {client_id}")
        })
    })?;
    if tokens.refresh_token.is_none() {
        note("The identity provider issued no refresh token: sign in again when the token has expired.");
    }
    let user = user.with_token(&tokens.id_token);
    // Other programs can have changed the kubeconfig during the sign-in.
    let target = Target { context: target.context, ..Target::of(matches)? };
    target.save(&SavedLogin::new(registration, tokens), matches.get_one::<String>("namespace"))?;
    user.show(Format::of(matches))
}

/// Returns the client at the identity provider: that of the arguments, or the client that the API reports.
fn registration(matches: &ArgMatches, target: &Target) -> Result<PublicClient, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let (issuer, client_id) = (text("issuer"), text("client-id"));
    let ca = matches.get_one::<PathBuf>("issuer-ca").map(|path| tls::authorities(path)).transpose();
    let ca = ca.map_err(|error| format!("{error} (--issuer-ca)"))?;
    if let (Some(issuer), Some(client_id)) = (&issuer, &client_id) {
        let (issuer, client_id) = (issuer.clone(), client_id.clone());
        return Ok(PublicClient { issuer, client_id, scopes: Vec::new(), ca });
    }
    let named = access::run(API_TIMEOUT, async { named_clients(&target.access().await?).await })?;
    let all = named.iter().map(|client| client.issuer.as_str()).collect::<Vec<_>>().join(", ");
    let fits = |client: &PublicClient| issuer.as_ref().is_none_or(|issuer| *issuer == client.issuer);
    let mut fitting = named.into_iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(client), None) => {
            let client_id = client_id.unwrap_or(client.client_id);
            Ok(PublicClient { client_id, ca: ca.or(client.ca), ..client })
        }
        (None, _) if all.is_empty() => {
            Err("the API names no identity provider: set client-id in its setting jwt-issuer, or give --issuer and \
                 --client-id"
                .to_owned())
        }
        (None, _) => Err(format!("the API names other identity providers: {all}; give one of them, or --client-id")),
        (Some(_), Some(_)) => Err(format!("the API names several identity providers: {all}; select one with --issuer")),
    }
}

/// Returns the clients that the API names to command lines.
async fn named_clients(access: &Access) -> Result<Vec<PublicClient>, String> {
    let request = Request::get(resource_metadata::PATH).body(Vec::new()).expect("the path is valid");
    match access.client.request::<ResourceMetadata>(request).await {
        Ok(metadata) => Ok(metadata.clients),
        // Other APIs, and one without such a provider, do not have the document.
        Err(kube::Error::Api(_) | kube::Error::SerdeError(_)) => Ok(Vec::new()),
        Err(error) => Err(access.unanswered(error)),
    }
}

/// Signs in with the browser of this machine.
async fn with_browser(client: &oidc::Client, matches: &ArgMatches) -> Result<Tokens, String> {
    let port = *matches.get_one::<u16>("port").expect("it has a default");
    let at = |error: std::io::Error| format!("127.0.0.1:{port}: {error} (--port)");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(at)?;
    let port = listener.local_addr().map_err(at)?.port();
    let redirect_uri = format!("http://127.0.0.1:{port}/callback");
    let said = |error: oidc::Error| error.to_string();
    let login = Login::of(&Login::key().map_err(said)?, &redirect_uri);
    let address = client.authorization_url(&login, &redirect_uri).await.map_err(said)?;
    note(format_args!(
        "Sign in at {} within five minutes:\n\n  {address}\n\nIf the browser runs on another machine, use --device, or \
         forward the port with \"ssh -L {port}:127.0.0.1:{port}\".",
        client.name()
    ));
    if !matches.get_flag("no-browser") {
        dashboard::open(&address);
    }
    let code = tokio::time::timeout(SIGN_IN_TIMEOUT, redirected(listener, client, &login)).await;
    let code =
        code.map_err(|_| "the sign-in was not completed within five minutes; run the command again".to_owned())?;
    client.exchange(&code.map_err(said)?, &login, &redirect_uri).await.map_err(said)
}

/// Serves the address of the redirect until the provider's response to this sign-in comes, and returns the code in it.
async fn redirected(listener: TcpListener, client: &oidc::Client, login: &Login) -> Result<String, oidc::Error> {
    let (sender, mut queries) = mpsc::channel::<String>(1);
    let receive = move |RawQuery(query): RawQuery| async move {
        // The channel is full only if requests come faster than they are read.
        match sender.try_send(query.unwrap_or_default()) {
            Ok(()) => (StatusCode::OK, "Signpost has the response of the identity provider. Return to the terminal.\n"),
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "Reload this page.\n"),
        }
    };
    let router = Router::new().route("/callback", get(receive));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(httpd::serve(listener, None, router, Limits::default(), stop.clone()));
    let _stop = stop.clone().drop_guard();
    loop {
        let query = queries.recv().await.expect("the listener has the sender");
        // Every web page that the user has open can send requests to this port.
        match client.code(&query, login) {
            Err(oidc::Error::Foreign(_)) => {}
            response => {
                stop.cancel();
                // The browser gets its page. A task that panicked has nothing to send.
                let _ = serving.await;
                return response;
            }
        }
    }
}

/// Signs in with the browser of another device.
async fn with_device(client: &oidc::Client) -> Result<Tokens, oidc::Error> {
    let device = client.device_code().await?;
    let address = harmless(device.verification_uri_complete.as_ref().unwrap_or(&device.verification_uri));
    note(format_args!(
        "Sign in at {} on any device, with the code {}:\n\n  {address}\n",
        client.name(),
        harmless(&device.user_code)
    ));
    client.poll(&device).await
}

/// The kubeconfig to write, and its context.
struct Target {
    path: PathBuf,
    kubeconfig: Kubeconfig,
    context: String,
}

impl Target {
    fn of(matches: &ArgMatches) -> Result<Target, Error> {
        let given = matches.get_one::<PathBuf>("kubeconfig").cloned();
        let path = given.or_else(default_path).ok_or_else(|| {
            Error::Usage("no kubeconfig to write: give --kubeconfig, or set KUBECONFIG or HOME".to_owned())
        })?;
        // A symbolic link stays one, and the file is independent of the working directory.
        let path = std::fs::canonicalize(&path).or_else(|_| std::path::absolute(&path)).unwrap_or(path);
        let shown = path.display();
        let text = files::read(&path).map_err(|error| error.to_string())?.unwrap_or_default();
        let mut kubeconfig = match text.trim() {
            "" => empty(),
            _ => Kubeconfig::from_yaml(&text).map_err(|error| format!("{shown}: not a kubeconfig: {error}"))?,
        };
        let context = matches.get_one::<String>("context").cloned();
        let context = match matches.get_one::<String>("server") {
            Some(server) => {
                let ca = matches.get_one::<PathBuf>("ca").map(|path| tls::authorities(path)).transpose();
                let ca = ca.map_err(|error| format!("{error} (--ca)"))?;
                add_server(&mut kubeconfig, context.unwrap_or_else(|| CONTEXT.to_owned()), server, ca)?
            }
            None => context.or_else(|| kubeconfig.current_context.clone()).ok_or_else(|| {
                format!("{shown}: no current context; give the URL of the API with --server and --ca, or --context")
            })?,
        };
        Ok(Target { path, kubeconfig, context })
    }

    /// Returns the way into the API, without a credential.
    async fn access(&self) -> Result<Access, String> {
        let mut kubeconfig = self.kubeconfig.clone();
        let folder = self.path.parent().unwrap_or(Path::new("."));
        for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            if let Some(file) = &mut cluster.certificate_authority {
                *file = folder.join(&*file).to_string_lossy().into_owned();
            }
        }
        Access::without_credentials(kubeconfig, &self.context, self.path.display().to_string()).await
    }

    /// Writes the tokens, and the user of the context, who gets them from the credential plugin.
    fn save(mut self, saved: &SavedLogin, namespace: Option<&String>) -> Result<(), String> {
        let user = format!("{}-login", self.context);
        let tokens = credential::path(&self.path, &user);
        saved.write(&tokens)?;
        let tokens = tokens.to_string_lossy().into_owned();
        let plugin = ExecConfig {
            api_version: Some(credential::API_VERSION.to_owned()),
            command: Some(program(std::env::args_os().next())),
            args: Some(vec!["login".to_owned(), "--print-credential".to_owned(), tokens]),
            install_hint: Some("install signpost on this machine (docs/installing.md)".to_owned()),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        let info = AuthInfo { exec: Some(plugin), ..AuthInfo::default() };
        let named = NamedAuthInfo { name: user.clone(), auth_info: Some(info), ..NamedAuthInfo::default() };
        self.kubeconfig.auth_infos.retain(|named| named.name != user);
        self.kubeconfig.auth_infos.push(named);
        let context = self.kubeconfig.contexts.iter_mut().find(|named| named.name == self.context);
        if let Some(context) = context.and_then(|named| named.context.as_mut()) {
            context.user = Some(user);
            context.namespace = namespace.cloned().or(context.namespace.take());
        }
        let text = Format::Yaml.render(&self.kubeconfig, String::new);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let written = files::private_folder(folder).and_then(|()| files::write_private(&self.path, text.as_bytes()));
        written.map_err(|error| error.to_string())
    }
}

/// Returns the file that kubectl would write.
fn default_path() -> Option<PathBuf> {
    let variable = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let first = std::env::split_paths(&variable).find(|path| !path.as_os_str().is_empty());
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty());
    first.or_else(|| Some(PathBuf::from(home()?).join(".kube/config")))
}

fn empty() -> Kubeconfig {
    let (api_version, kind) = (Some("v1".to_owned()), Some("Config".to_owned()));
    Kubeconfig { api_version, kind, ..Kubeconfig::default() }
}

/// Adds a context and a cluster with that name, and makes it the current one. Returns the name.
fn add_server(kubeconfig: &mut Kubeconfig, name: String, url: &str, ca: Option<String>) -> Result<String, String> {
    let known = kubeconfig.clusters.iter().find(|named| named.name == name);
    let known = known.and_then(|named| named.cluster.as_ref()?.server.as_deref());
    if let Some(known) = known.filter(|known| *known != url) {
        return Err(format!(
            "cluster {name} in the kubeconfig has the server {known}; give another name with --context"
        ));
    }
    let cluster = Cluster {
        server: Some(url.to_owned()),
        certificate_authority_data: ca.map(|pem| BASE64.encode(pem.as_bytes())),
        ..Cluster::default()
    };
    kubeconfig.clusters.retain(|named| named.name != name);
    let cluster = NamedCluster { name: name.clone(), cluster: Some(cluster), ..NamedCluster::default() };
    kubeconfig.clusters.push(cluster);
    if !kubeconfig.contexts.iter().any(|named| named.name == name) {
        let context = Context { cluster: name.clone(), ..Context::default() };
        let context = NamedContext { name: name.clone(), context: Some(context), ..NamedContext::default() };
        kubeconfig.contexts.push(context);
    }
    kubeconfig.current_context = Some(name.clone());
    Ok(name)
}

/// Returns the program for the credential plugin: a name that the shell found in the PATH stays one, so that an update can replace
/// the program; a path becomes absolute.
fn program(called: Option<OsString>) -> String {
    let called = PathBuf::from(called.unwrap_or_else(|| "signpost".into()));
    let program = match called.components().count() {
        1 => called,
        _ => std::path::absolute(&called).unwrap_or(called),
    };
    program.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_added_once() {
        let mut kubeconfig = empty();
        for _ in 0..2 {
            let added =
                add_server(&mut kubeconfig, "signpost".to_owned(), "https://api.example", Some("PEM".to_owned()));
            assert_eq!(added.as_deref(), Ok("signpost"));
        }
        assert_eq!((kubeconfig.clusters.len(), kubeconfig.contexts.len()), (1, 1));
        let refused = add_server(&mut kubeconfig, "signpost".to_owned(), "https://other.example", None);
        assert!(refused.expect_err("it has another server").contains("--context"));
        assert!(add_server(&mut kubeconfig, "other".to_owned(), "https://other.example", None).is_ok());
        assert_eq!(kubeconfig.current_context.as_deref(), Some("other"));
    }

    #[test]
    fn the_user_gets_tokens_from_the_plugin_and_the_rest_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: one\nclusters:\n- name: c\n  cluster: {server: \
                    'https://api.example', certificate-authority: ca.crt}\nusers:\n- name: old\n  user: {token: \
                    s3cret}\ncontexts:\n- name: one\n  context: {cluster: c, user: old, namespace: shop}\n- name: \
                    two\n  context: {cluster: c, user: old}\n";
        let client = PublicClient {
            issuer: "https://idp.example".to_owned(),
            client_id: "cli".to_owned(),
            scopes: Vec::new(),
            ca: None,
        };
        let saved: SavedLogin =
            serde_json::from_value(serde_json::json!({"client": client, "id_token": "t", "refresh_token": null}))
                .expect("valid");
        let kubeconfig = Kubeconfig::from_yaml(text).expect("valid");
        let target = Target { path: path.clone(), kubeconfig, context: "one".to_owned() };
        target.save(&saved, None).expect("it is written");
        let found = Kubeconfig::from_yaml(&std::fs::read_to_string(&path).expect("reads")).expect("valid");
        let context = |name: &str| {
            let named = found.contexts.iter().find(|named| named.name == name);
            named.and_then(|named| named.context.clone()).expect("it is there")
        };
        assert_eq!(context("one").user.as_deref(), Some("one-login"));
        assert_eq!(context("one").namespace.as_deref(), Some("shop"));
        assert_eq!(context("two").user.as_deref(), Some("old"));
        let cluster = found.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.certificate_authority.as_deref(), Some("ca.crt"));
        assert_eq!(found.auth_infos.len(), 2);
        let user = found.auth_infos[1].auth_info.as_ref().expect("a user");
        let arguments = user.exec.as_ref().and_then(|plugin| plugin.args.clone()).expect("arguments");
        assert_eq!(arguments[..2], ["login", "--print-credential"]);
        assert!(Path::new(&arguments[2]).is_file(), "{arguments:?}");
    }

    #[test]
    fn the_plugin_is_found_as_this_program_was() {
        assert_eq!(program(Some("signpost".into())), "signpost");
        assert_eq!(program(Some("/opt/signpost/bin/signpost".into())), "/opt/signpost/bin/signpost");
        let relative = program(Some("target/debug/signpost".into()));
        assert!(relative.starts_with('/') && relative.ends_with("/target/debug/signpost"), "{relative}");
    }
}
