//! The API, user, and namespace of a command: the kubeconfig that its user already has.
//!
//! The first existing one counts: `--kubeconfig` (or the setting), `<data-dir>/kubeconfig` if `--data-dir` is given,
//! the files of `$KUBECONFIG`, `<data-dir>/kubeconfig`, `~/.kube/config`.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::future::ready;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use http::header::AUTHORIZATION;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::{Error, option, serve};
use crate::config::{self, Settings};
use signpost_control::client;
use signpost_control::client::failover::{self, Servers};
use signpost_control::client::reflector::ObjectKey;
use signpost_runtime::causes::{causes, chain};

/// The URL of the API of this command, for the error after a timeout.
static ASKED: OnceLock<String> = OnceLock::new();
/// The configuration keys that select the API.
pub(super) const KEYS: &[&str] = &["kubeconfig", "api-server", "data-dir"];
/// The time limit for all API requests of one command.
pub(super) const API_TIMEOUT: Duration = Duration::from_secs(60);
/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// `--context`.
pub(super) fn context_argument() -> Arg {
    option("context", "NAME").help("The context of the kubeconfig [default: its current context]")
}

/// `--config`, `--kubeconfig`, `--api-server`, `--data-dir` and `--context`.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    serve::arguments_of(KEYS).chain([context_argument()])
}

/// `--namespace`.
pub(super) fn namespace_argument() -> Arg {
    Arg::new("namespace")
        .long("namespace")
        .short('n')
        .value_name("NAME")
        .help("The namespace [default: that of the kubeconfig's context, or \"default\"]")
}

/// The namespace of an object, if it is given, and its name.
pub(super) type ObjectName = (Option<String>, String);

/// `NAMESPACE/NAME`, or `NAME` in the namespace of the context.
pub(super) fn object_name(text: &str) -> Result<ObjectName, &'static str> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace.is_some_and(str::is_empty) {
        return Err("must be NAMESPACE/NAME or NAME");
    }
    Ok((namespace.map(str::to_owned), name.to_owned()))
}

pub(super) fn route_argument() -> Arg {
    Arg::new("route")
        .value_name("[NAMESPACE/]NAME")
        .required(true)
        .value_parser(object_name)
        .help("The Route; without NAMESPACE, it is in the namespace of --namespace or of the context")
}

/// Returns the Route that [`route_argument`] and `--namespace` name.
///
/// # Errors
///
/// If the two name different namespaces.
pub(super) fn route(matches: &ArgMatches) -> Result<ObjectName, Error> {
    let route = matches.get_one::<ObjectName>("route").cloned().expect("clap demands it");
    check_namespace(matches, route.0.as_ref())?;
    Ok(route)
}

/// Fails if `--namespace` is not the namespace with which an object was given.
pub(super) fn check_namespace(matches: &ArgMatches, own: Option<&String>) -> Result<(), Error> {
    match (own, matches.try_get_one::<String>("namespace").ok().flatten()) {
        (Some(own), Some(given)) if own != given => {
            Err(Error::Usage(format!("--namespace {given}: the object is in namespace {own}; give one namespace")))
        }
        _ => Ok(()),
    }
}

/// The API that the arguments and the configuration select.
#[derive(Debug)]
pub(super) struct ApiLocation {
    /// All settings of the keys that the command takes.
    pub(super) settings: Settings,
    /// The keys that are set: the others have their defaults.
    given: BTreeSet<&'static str>,
    source: Source,
    context: Option<String>,
    namespace: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// The files that `$KUBECONFIG` lists.
    Variable,
}

impl ApiLocation {
    /// Returns what the arguments and the configuration name.
    pub(super) fn of(matches: &ArgMatches) -> Result<ApiLocation, Error> {
        let places = serve::places(matches);
        let (settings, given) = config::read_given(&places)?;
        let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().cloned();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let source = source(
            &settings,
            places.flags.contains_key("data-dir"),
            set("KUBECONFIG").is_some(),
            set("HOME").map(|home| PathBuf::from(home).join(".kube/config")),
        );
        Ok(ApiLocation { settings, given, source, context: text("context"), namespace: text("namespace") })
    }

    /// Returns the API of the server that uses the data directory, with the administrator's kubeconfig.
    pub(super) fn of_data_dir(matches: &ArgMatches) -> Result<ApiLocation, Error> {
        let (settings, given) = config::read_given(&serve::places(matches))?;
        let source = Source::File(settings.data_dir.join("kubeconfig"));
        // Of the machine's own server, not of others in the configuration.
        let settings = Settings { api_server: Vec::new(), ..settings };
        Ok(ApiLocation { settings, given, source, context: None, namespace: None })
    }

    /// Returns the kubeconfig, as a message names it.
    pub(super) fn origin(&self) -> String {
        match &self.source {
            Source::File(path) => path.display().to_string(),
            Source::Variable => "$KUBECONFIG".to_owned(),
        }
    }

    /// Returns whether a key is set, instead of having its default.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Returns whether the arguments or settings name an API.
    pub(super) fn is_explicit(&self) -> bool {
        self.settings.kubeconfig.is_some() || !self.settings.api_server.is_empty() || self.context.is_some()
    }

    /// Returns whether there is a kubeconfig.
    pub(super) fn is_there(&self) -> bool {
        match &self.source {
            Source::File(path) => path.is_file(),
            Source::Variable => true,
        }
    }

    fn kubeconfig(&self) -> Result<Kubeconfig, String> {
        let origin = self.origin();
        let read = match &self.source {
            Source::File(path) => Kubeconfig::read_from(path).map(Some),
            Source::Variable => Kubeconfig::from_env(),
        };
        let kubeconfig = read.map_err(|error| format!("cannot use the kubeconfig {origin}: {error} (--kubeconfig)"))?;
        kubeconfig.ok_or_else(|| format!("no kubeconfig found in {origin}; set --kubeconfig"))
    }

    /// Returns the bearer token that requests of the kubeconfig's user carry; `None` if the user has another credential.
    pub(super) async fn token(&self) -> Result<Option<String>, String> {
        let unusable = |error: &dyn Display| format!("cannot use the user in {}: {error}", self.origin());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(self.kubeconfig()?, &options).await;
        let layer = config.map_err(|error| unusable(&error))?.auth_layer().map_err(|error| unusable(&error))?;
        let Some(layer) = layer else { return Ok(None) };
        let header = service_fn(|request: Request<Body>| {
            ready(Ok::<_, BoxError>(Response::new(request.headers().get(AUTHORIZATION).cloned())))
        });
        let answer =
            layer.layer(header).oneshot(Request::new(Body::empty())).await.map_err(|error| unusable(&error))?;
        let header = answer.into_body();
        let token = header.as_ref().and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        Ok(token.map(str::to_owned))
    }

    /// Returns a client of the API. Nothing is sent yet.
    pub(super) async fn connect(&self) -> Result<Access, String> {
        let (origin, kubeconfig) = (self.origin(), self.kubeconfig()?);
        let url = match self.settings.api_server.as_slice() {
            [] => server_of(&kubeconfig, self.context.as_deref()).unwrap_or_else(|| origin.clone()),
            servers => servers.iter().map(failover::text_of).collect::<Vec<_>>().join(", "),
        };
        ASKED.get_or_init(|| url.clone());
        let servers = Servers::new(self.settings.api_server.clone());
        let client = client::from_context(kubeconfig, self.context.as_deref(), &origin, servers).await;
        let client = client.map_err(|error| error.to_string())?;
        let namespace = self.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Access { client, origin, url, namespace })
    }
}

/// Selects the kubeconfig. `data_dir_given`: the command line has `--data-dir`; `variable`: `$KUBECONFIG` is set.
fn source(settings: &Settings, data_dir_given: bool, variable: bool, home: Option<PathBuf>) -> Source {
    let of_data_dir = settings.data_dir.join("kubeconfig");
    match (&settings.kubeconfig, home) {
        (Some(path), _) => Source::File(path.clone()),
        _ if data_dir_given => Source::File(of_data_dir),
        _ if variable => Source::Variable,
        (None, Some(home)) if !of_data_dir.is_file() && home.is_file() => Source::File(home),
        _ => Source::File(of_data_dir),
    }
}

/// A way into the API.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) client: Client,
    /// The namespace of objects that are named without one.
    pub(super) namespace: String,
    origin: String,
    url: String,
}

/// Returns the address of the API that a context of the kubeconfig names, by default its current one.
fn server_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.clone()
}

/// Reads the URL of an API for a kubeconfig: kubectl sends no token over plain HTTP.
pub(super) fn https_url(text: &str) -> Result<String, &'static str> {
    let is_good = text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty());
    if is_good { Ok(text.to_owned()) } else { Err("must be an https URL") }
}

impl Access {
    pub(super) fn key(&self, (namespace, name): &ObjectName) -> ObjectKey {
        ObjectKey::namespaced(namespace.as_ref().unwrap_or(&self.namespace), name)
    }

    /// Returns the message for a failed request: the API's address, and the cause.
    pub(super) fn unanswered(&self, error: kube::Error) -> String {
        match error {
            kube::Error::Api(status) => self.refused(status.code, &status.message),
            error => {
                format!("the API at {} cannot be reached: {} (kubeconfig {})", self.url, cause(&error), self.origin)
            }
        }
    }

    /// Returns the message for a response with this HTTP status.
    pub(super) fn refused(&self, code: u16, why: &str) -> String {
        let Access { url, origin, .. } = self;
        match code {
            401 => format!("the API at {url} rejected the credential in {origin}: unauthorized: {why}"),
            403 => format!("the API at {url} denied the request: forbidden: {why}"),
            _ => format!("the API at {url} rejected the request: {why}"),
        }
    }

    /// Fails if there is no such namespace. A user who may not read it gets no error.
    pub(super) async fn require_namespace(&self, name: &str) -> Result<(), String> {
        match Api::<Namespace>::all(self.client.clone()).get_opt(name).await {
            Ok(None) => Err(format!("NotFound: there is no namespace {name}")),
            Ok(Some(_)) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            Err(error) => Err(self.unanswered(error)),
        }
    }

    /// Returns all objects of `api` that `parameters` select.
    pub(super) async fn list<K>(&self, api: &Api<K>, parameters: ListParams) -> Result<Vec<K>, String>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        pages(api, parameters).await.map_err(|error| self.unanswered(error))
    }

    /// Returns all objects of a kind, of all namespaces.
    pub(super) async fn all<K>(&self) -> Result<Vec<K>, String>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.list(&Api::all(self.client.clone()), ListParams::default()).await
    }

    /// Returns the same, or `None` if the user may not list them.
    pub(super) async fn all_permitted<K>(&self) -> Result<Option<Vec<K>>, String>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        match pages(&Api::all(self.client.clone()), ListParams::default()).await {
            Ok(objects) => Ok(Some(objects)),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            Err(error) => Err(self.unanswered(error)),
        }
    }
}

async fn pages<K>(api: &Api<K>, parameters: ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut objects = Vec::new();
    each(api, parameters, |object| objects.push(object)).await?;
    Ok(objects)
}

/// Lists objects page by page, so that memory holds only what `take` keeps of each.
pub(super) async fn each<K>(api: &Api<K>, parameters: ListParams, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut parameters = parameters.limit(PAGE_SIZE);
    // A page holds an object at least, or is the last.
    loop {
        let page = api.list(&parameters).await?;
        let is_empty = page.items.is_empty();
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty() && !is_empty) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Returns the cause of a failed request; replaces unclear messages of the system.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    for error in causes(error).filter_map(|error| error.downcast_ref::<std::io::Error>()) {
        match error.kind() {
            ErrorKind::ConnectionRefused => {
                return "connection refused; check the address, and that the server is running".to_owned();
            }
            ErrorKind::TimedOut => return "timed out".to_owned(),
            _ => {}
        }
    }
    chain(error)
}

/// Runs what a command does, for at most `limit`.
pub(super) fn run<T>(limit: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let late = || {
        let whom = ASKED.get().map_or_else(String::new, |url| format!("the API at {url} cannot be reached: "));
        format!("{whom}timed out: no response within {} seconds", limit.as_secs())
    };
    runtime.block_on(async { tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects() {
        let named = |namespace: Option<&str>, name: &str| Ok((namespace.map(str::to_owned), name.to_owned()));
        assert_eq!(object_name("shop/front"), named(Some("shop"), "front"));
        assert_eq!(object_name("front"), named(None, "front"));
        for bad in ["", "/", "a/", "/b", "a/b/c"] {
            assert!(object_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn waiting_in_vain_ends_with_the_cause() {
        let waited = run(Duration::from_millis(5), std::future::pending::<Result<(), String>>());
        assert!(waited.expect_err("nothing comes").contains("timed out"));
        let error = std::io::Error::from(ErrorKind::ConnectionRefused);
        assert!(cause(&std::io::Error::other(error)).starts_with("connection refused"));
    }

    #[test]
    fn which_kubeconfig_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("made");
        let of_data_dir = data.join("kubeconfig");
        let mut settings = config::read(&config::ConfigSources::default()).expect("defaults are valid");
        settings.data_dir = data;
        let source = |settings: &Settings, given, variable| source(settings, given, variable, Some(home.clone()));
        let file = |path: &PathBuf| Source::File(path.clone());
        // No file exists: the error names the file that a server creates.
        assert_eq!(source(&settings, false, false), file(&of_data_dir));
        std::fs::write(&home, "").expect("written");
        assert_eq!(source(&settings, false, false), file(&home));
        std::fs::write(&of_data_dir, "").expect("written");
        assert_eq!(source(&settings, false, false), file(&of_data_dir));
        assert_eq!(source(&settings, false, true), Source::Variable);
        assert_eq!(source(&settings, true, true), file(&of_data_dir));
        settings.kubeconfig = Some("given".into());
        assert_eq!(source(&settings, true, true), Source::File("given".into()));
    }
}
