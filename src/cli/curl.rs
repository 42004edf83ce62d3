//! `signpost curl`: queries DNS for a name, and sends an HTTP request to each address: the instances of a Router.
//!
//! The requests are traced ([`signpost_types::probe`]), so that the responses name the endpoint that answered. The API resolves
//! these identifiers to Services and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, Command, FromArgMatches as _, value_parser};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use reqwest::{Client, Method, Url};
use serde::Serialize;
use tower::util::MapFutureLayer;

use super::access::{self, API_TIMEOUT, Access, ApiLocation, ObjectName, cause};
use super::backends::Backends;
use super::output::{self, Format};
use super::style::{Painter, Style};
use super::table::{Cell, Properties, Table};
use super::{Error, Outcome, complain, dig, note, serve, success_if, traffic, zones};
use crate::daemon::demo;
use signpost_agent::traffic::view::RouteView;
use signpost_control::client::reflector::ObjectKey;
use signpost_control::compiler::settings::text_of;
use signpost_control::dns_client::{Data, Question};
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_runtime::trust;
use signpost_types::names::is_at_or_below;
use signpost_types::probe::{BACKEND_HEADER, PROBE_HEADER, ROUTE_HEADER, TRACE_HEADER, backend_id};
use signpost_types::v1alpha1::route::{NameKind, Route, Tls};
use signpost_types::v1alpha1::router::{Instance, Ports, Router};

/// The time for one request, with its connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The CNAMEs that are followed.
const CNAMES_MAX: usize = 8;
/// The requests at a time.
const CONCURRENCY: usize = 16;
/// The most Routes of a name whose traffic is shown. Routes with several paths can have the same host.
const ROUTES_MAX: usize = 8;

pub(super) fn command() -> Command {
    Request::augment_args(Command::new("curl"))
        .about("Query DNS for a name and send an HTTP request to each of its addresses: to each instance of a Router")
        .override_usage("signpost curl [OPTIONS] [@SERVER] <NAME>")
        .after_help(
            "NAME with a dot is a DNS name, unless it has a slash or --namespace is given. A Route is requested by its \
             custom host, or otherwise by its system name, at the addresses of its system name. The table shows the \
             status, the time until the connection was open (with TLS), until the first byte and until the end of the \
             response, and the endpoint that answered: its identifier if the API cannot be read. If no endpoint \
             answered, a second request finds whether the proxy of a Router did. Users who may read the Leases of agents \
             also see the traffic of the Route, as \"signpost explain route\" shows it. Exit codes: 0 a proxy at every address \
             returned a status below 500; 1 DNS returned no address, an address did not respond, returned 500 or above, \
             or has no proxy of a Router, or the API is unreachable for a Route; 2 invalid usage.",
        )
        .args([access::namespace_argument(), output::argument()])
        .args(serve::arguments_of(zones::KEYS))
        .arg(access::context_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let mut request = Request::from_arg_matches(matches).expect("clap has checked the arguments");
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let (server, target) = arguments(request.words.iter(), namespace).map_err(Error::Usage)?;
    request.authorities = request.authorities.or_else(|| {
        let example = place.settings.data_dir.join(demo::AUTHORITY);
        (!place.is_explicit() && example.is_file()).then_some(example)
    });
    if !request.path.starts_with('/') {
        return Err(Error::Usage(format!("--path {:?}: a path begins with \"/\"", request.path)));
    }
    let report = access::run(API_TIMEOUT, async {
        let found = Found::of(&target, &place).await?;
        let server = dig::server(server.as_deref(), &place).await?;
        let addresses = addresses(server, &found.name).await?;
        let ports = found.ports().await.unwrap_or_else(|error| {
            note(error);
            RouterPorts::default()
        });
        if let (Some(router), true, false) = (&ports.router, ports.of_instances.is_empty(), request.any) {
            return Err(format!(
                "no agent reports from Router {router}, so its addresses may be those of other servers: no request was sent; \
                 to send one, add --any-address"
            ));
        }
        let of_router = ports.of_router;
        let url = request.url(&found.host, request.port(of_router))?;
        let ends_at_proxy = found.ends_at_proxy(request.https);
        let send = |address: IpAddr| {
            let of_instance = ports.of_instances.get(&address).copied().or(of_router);
            let (request, host, port) = (&request, &found.host, request.port(of_instance));
            async move {
                let mut answer = request.send(&request.url(host, port)?, SocketAddr::new(address, port)).await;
                if answer.backend.is_none() && answer.status.is_some() && ends_at_proxy {
                    // A probe is a request over plain HTTP.
                    let port = if request.https { of_instance.map_or(80, |ports| ports.http) } else { port };
                    answer.proxy = Some(request.probe(host, SocketAddr::new(address, port)).await);
                }
                Ok::<_, String>(answer)
            }
        };
        let mut answers: Vec<Answer> = stream::iter(addresses).map(send).buffered(CONCURRENCY).try_collect().await?;
        if answers.iter().any(|answer| answer.backend.is_some()) {
            found.name_backends(&mut answers).await.unwrap_or_else(note);
        }
        let traffic = found.traffic().await;
        let (name, server, method) = (text_of(&found.name), server.to_string(), request.method.to_string());
        Ok(Report { name, server, method, url: url.to_string(), answers, traffic })
    })?;
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    report.faults().for_each(complain);
    Ok(success_if(report.faults().next().is_none()))
}

/// The subject of a command line.
#[derive(Debug, PartialEq)]
enum Target {
    Name(Name),
    Route(ObjectName),
}

/// Returns the name server and the target.
fn arguments<'a>(
    words: impl Iterator<Item = &'a String>,
    namespace: Option<&str>,
) -> Result<(Option<String>, Target), String> {
    let (mut server, mut target) = (None, None);
    for word in words {
        if let Some(given) = word.strip_prefix('@') {
            if given.is_empty() || server.replace(given.to_owned()).is_some() {
                return Err(format!("{word}: name one server, as @ADDRESS or @ADDRESS:PORT"));
            }
        } else if target.is_some() {
            return Err(format!("{word}: unexpected argument; name one DNS name or Route"));
        } else if word.contains('.') && !word.contains('/') && namespace.is_none() {
            let name = word.parse().map_err(|error| format!("{word} is not a domain name: {error}"))?;
            target = Some(Target::Name(name));
        } else {
            let route = access::object_name(word).map_err(|error| format!("{word}: {error}"))?;
            if route.0.is_some() && namespace.is_some() {
                return Err(format!("{word}: name the namespace once, as NAMESPACE/NAME or with --namespace"));
            }
            target = Some(Target::Route(route));
        }
    }
    Ok((server, target.ok_or("NAME is missing: signpost curl [@SERVER] NAME")?))
}

/// The name to query and the host to request.
struct Found {
    name: Name,
    host: String,
    /// The API, if it can be read.
    access: Option<Access>,
    routes: Vec<Route>,
}

/// The ports at which a Router's instances accept requests.
#[derive(Debug, Default)]
struct RouterPorts {
    /// The name of the Router, if it is known.
    router: Option<String>,
    of_router: Option<Ports>,
    of_instances: BTreeMap<IpAddr, Ports>,
}

impl Found {
    async fn of(target: &Target, place: &ApiLocation) -> Result<Found, String> {
        let route = match target {
            Target::Name(name) => {
                let mut found = Found { name: name.clone(), host: text_of(name), access: None, routes: Vec::new() };
                if place.is_there() {
                    found.find_routes(place).await.unwrap_or_else(note);
                }
                return Ok(found);
            }
            Target::Route(route) => route,
        };
        let access = place.connect().await?;
        let key = access.key(route);
        let route = get_route(&access, &key).await?.ok_or_else(|| format!("NotFound: there is no Route {key}"))?;
        let status = route.status.clone().unwrap_or_default();
        let system = status.names.into_iter().find(|name| name.kind == NameKind::System).map(|name| name.name);
        let (Some(dns), Some(system)) = (status.dns, system) else {
            return Err(format!("Route {key} has no DNS name yet; run \"signpost explain route {key}\""));
        };
        let name = system.parse().map_err(|error| format!("Route {key}: {system:?} is not a domain name: {error}"))?;
        // A wildcard cannot be requested.
        let host = if dns.starts_with('*') { system } else { dns };
        Ok(Found { name, host, access: Some(access), routes: vec![route] })
    }

    /// Adds the Routes of the name.
    async fn find_routes(&mut self, place: &ApiLocation) -> Result<(), String> {
        let access = place.connect().await?;
        for key in dig::routes_of(place, &self.name).await? {
            let Some((namespace, name)) = key.split_once('/') else { continue };
            self.routes.extend(get_route(&access, &ObjectKey::namespaced(namespace, name)).await?);
        }
        self.access = Some(access);
        Ok(())
    }

    /// Returns the ports at which the Router of the name accepts requests; the error is the reason why they are not known.
    async fn ports(&self) -> Result<RouterPorts, String> {
        let Some(access) = &self.access else { return Ok(RouterPorts::default()) };
        let router = match self.routes.iter().find_map(|route| route.status.as_ref()?.router.as_deref()) {
            Some(name) => {
                Api::all(access.client.clone()).get_opt(name).await.map_err(|error| access.unanswered(error))?
            }
            // The wildcard of a shard answers for names without a Route.
            None => {
                let (routers, name): (Vec<Router>, _) = (access.all().await?, text_of(&self.name));
                let has = |router: &Router| router.spec.dns.as_deref().is_some_and(|dns| is_at_or_below(&name, dns));
                routers.into_iter().find(has)
            }
        };
        let Some(router) = router else { return Ok(RouterPorts::default()) };
        let (name, of_router) = (router.metadata.name.clone(), Some(router.ports()));
        let instances = router.status.map(|status| status.instances).unwrap_or_default();
        let of_instance = |instance: &Instance| {
            let ports = Ports { http: instance.http_port, https: instance.https_port };
            Some((instance.ip.parse().ok()?, ports))
        };
        let of_instances = instances.iter().filter_map(of_instance).collect();
        Ok(RouterPorts { router: name, of_router, of_instances })
    }

    /// Returns whether the proxy reads the requests: over TLS, it forwards those of a Route with the termination `passthrough`
    /// unread, and without the API the Route is not known.
    fn ends_at_proxy(&self, https: bool) -> bool {
        let ends_there = |route: &Route| route.spec.tls.as_ref().is_none_or(Tls::ends_at_router);
        !https || !self.routes.is_empty() && self.routes.iter().all(ends_there)
    }

    /// Returns the traffic of the Routes, as far as the user may read it.
    async fn traffic(&self) -> Vec<RouteView> {
        let mut found = Vec::new();
        let Some(access) = &self.access else { return found };
        for route in self.routes.iter().take(ROUTES_MAX) {
            let (metadata, status) = (&route.metadata, route.status.as_ref());
            let (Some(router), Some(namespace), Some(name)) =
                (status.and_then(|status| status.router.as_deref()), &metadata.namespace, &metadata.name)
            else {
                continue;
            };
            found.extend(traffic::of(access.client.clone(), router, &format!("{namespace}/{name}")).await);
        }
        found
    }

    /// Adds Service and address to the backends that the API knows; the error is the reason why it does not.
    async fn name_backends(&self, answers: &mut [Answer]) -> Result<(), String> {
        let (Some(access), mut known) = (&self.access, BTreeMap::new()) else { return Ok(()) };
        for route in &self.routes {
            add_endpoints(access, route, &mut known).await?;
        }
        for backend in answers.iter_mut().filter_map(|answer| answer.backend.as_mut()) {
            if let Some((service, address)) = known.get(&backend.id) {
                (backend.service, backend.address) = (Some(service.clone()), Some(*address));
            }
        }
        Ok(())
    }
}

async fn get_route(access: &Access, key: &ObjectKey) -> Result<Option<Route>, String> {
    let routes: Api<Route> = Api::namespaced(access.client.clone(), key.namespace.as_deref().unwrap_or_default());
    routes.get_opt(&key.name).await.map_err(|error| access.unanswered(error))
}

/// Adds the endpoints of a Route by identifier, each with its Service.
async fn add_endpoints(
    access: &Access,
    route: &Route,
    known: &mut BTreeMap<String, (String, SocketAddr)>,
) -> Result<(), String> {
    let uid = route.metadata.uid.as_deref().unwrap_or_default();
    for target in Backends::find(access, route).await?.unwrap_or_default().targets {
        let entry = |address| (backend_id(uid, address), (target.service.clone(), address));
        known.extend(target.endpoints.iter().copied().map(entry));
    }
    Ok(())
}

/// Queries a server for all addresses of a name. A name server that is an authority for both follows no CNAME to another zone.
async fn addresses(server: SocketAddr, name: &Name) -> Result<BTreeSet<IpAddr>, String> {
    let mut found = BTreeSet::new();
    for rtype in [RecordType::A, RecordType::AAAA] {
        let mut question = Question { name: name.clone(), rtype };
        for _ in 0..=CNAMES_MAX {
            let shown = text_of(&question.name);
            let response = question.ask_resolver(server, dig::TIMEOUT).await;
            let response = response.map_err(|error| format!("DNS query for {shown} to {server} failed: {error}"))?;
            if response.rcode != Rcode::NOERROR {
                let rcode = response.rcode;
                return Err(format!(
                    "{shown}: {server} returned {rcode}; run \"signpost dig @{server} {shown}\", or query a resolver with @SERVER"
                ));
            }
            let (mut target, before) = (None, found.len());
            for record in response.answers {
                match record.data {
                    Data::Address(address) => _ = found.insert(address),
                    Data::Cname(name) => target = Some(name),
                    _ => {}
                }
            }
            match target.filter(|_| found.len() == before) {
                Some(target) => question.name = target,
                None => break,
            }
        }
    }
    if found.is_empty() {
        let shown = text_of(name);
        return Err(format!("{shown}: {server} returned no address; run \"signpost dig @{server} {shown}\""));
    }
    Ok(found)
}

/// The request to each address, as the arguments describe it. Their texts are the help.
#[derive(Debug, Args)]
#[group(skip)]
struct Request {
    /// A DNS name, or a Route as NAME or NAMESPACE/NAME; and the name server or resolver to query, as @ADDRESS,
    /// @ADDRESS:PORT or @HOST [default: as for "signpost dig"]
    #[arg(value_name = "NAME", num_args = 1.., required = true)]
    words: Vec<String>,
    /// The path, with the query string
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
    /// The method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: Method,
    /// Use HTTPS
    #[arg(long)]
    https: bool,
    /// Do not verify certificates
    #[arg(long, short = 'k', requires = "https")]
    insecure: bool,
    /// The CA certificates in PEM to trust instead of the system's [default: those of the example platform in the data
    /// directory, if it is there]
    #[arg(long = "cacert", value_name = "FILE", requires = "https")]
    authorities: Option<PathBuf>,
    /// Also send requests if no agent reports from the Router, so that another server can be at its addresses
    #[arg(long = "any-address")]
    any: bool,
    /// The port of the instances [default: the Router's port, or 80 (443 with --https)]
    #[arg(long, value_name = "PORT", value_parser = value_parser!(u16).range(1..))]
    port: Option<u16>,
}

impl Request {
    /// Returns the port for the request, of these ports if there are any.
    fn port(&self, ports: Option<Ports>) -> u16 {
        let Ports { http, https } = ports.unwrap_or(Ports { http: 80, https: 443 });
        self.port.unwrap_or(if self.https { https } else { http })
    }

    fn url(&self, host: &str, port: u16) -> Result<Url, String> {
        let scheme = if self.https { "https" } else { "http" };
        let text = format!("{scheme}://{host}:{port}{}", self.path);
        Url::parse(&text).map_err(|error| format!("{text} is not a URL: {error}"))
    }

    async fn send(&self, url: &Url, address: SocketAddr) -> Answer {
        let started = Instant::now();
        let connected = Arc::new(OnceLock::new());
        let exchange = async {
            let client = self.client(url, address, &connected)?;
            let request = client.request(self.method.clone(), url.clone()).header(TRACE_HEADER, "1");
            let mut response = request.send().await.map_err(|error| cause(&error))?;
            let first_byte = started.elapsed();
            let id = response.headers().get(BACKEND_HEADER).and_then(|value| value.to_str().ok());
            let backend = id.map(|id| Backend { id: id.to_owned(), service: None, address: None });
            let status = response.status().as_u16();
            while response.chunk().await.map_err(|error| cause(&error))?.is_some() {}
            Ok((status, first_byte, backend))
        };
        let (response, error) = match exchange.await {
            Ok(response) => (Some(response), None),
            Err(error) => (None, Some(error)),
        };
        Answer {
            address,
            status: response.as_ref().map(|(status, ..)| *status),
            connect_milliseconds: connected.get().map(|at: &Instant| milliseconds(at.duration_since(started))),
            first_byte_milliseconds: response.as_ref().map(|(_, first_byte, _)| milliseconds(*first_byte)),
            total_milliseconds: response.as_ref().map(|_| milliseconds(started.elapsed())),
            backend: response.and_then(|(.., backend)| backend),
            proxy: None,
            error,
        }
    }

    /// Returns whether the proxy of a Router serves a Route with this host and the path at the address.
    async fn probe(&self, host: &str, address: SocketAddr) -> bool {
        let exchange = async {
            let url = Url::parse(&format!("http://{host}:{}{}", address.port(), self.path)).ok()?;
            let client = self.client(&url, address, &Arc::default()).ok()?;
            let response = client.get(url).header(PROBE_HEADER, "1").send().await.ok()?;
            response.headers().get(ROUTE_HEADER).cloned()
        };
        exchange.await.is_some()
    }

    /// Returns a client that connects to one address only, and records when.
    fn client(&self, url: &Url, address: SocketAddr, connected: &Arc<OnceLock<Instant>>) -> Result<Client, String> {
        let builder = trust::client(self.authorities.as_deref()).map_err(|error| error.to_string())?;
        let builder = match self.insecure {
            true => builder.tls_backend_rustls().tls_danger_accept_invalid_certs(true),
            false => builder,
        };
        let connected = Arc::clone(connected);
        let client = builder
            .timeout(REQUEST_TIMEOUT)
            .resolve(url.host_str().unwrap_or_default(), address)
            .connector_layer(MapFutureLayer::new(move |connection| recorded(connection, Arc::clone(&connected))))
            .build();
        client.map_err(|error| cause(&error))
    }
}

/// Waits for a connection and records when it is open.
async fn recorded<C, E>(
    connection: impl Future<Output = Result<C, E>>,
    connected: Arc<OnceLock<Instant>>,
) -> Result<C, E> {
    let connection = connection.await?;
    connected.get_or_init(Instant::now);
    Ok(connection)
}

/// Returns a time, rounded to hundredths.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}

/// The report. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    name: String,
    server: String,
    method: String,
    url: String,
    answers: Vec<Answer>,
    /// The traffic of the Routes with the name; empty if it is not known.
    traffic: Vec<RouteView>,
}

/// The answer of one address.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    address: SocketAddr,
    /// Absent if there is no response.
    status: Option<u16>,
    connect_milliseconds: Option<f64>,
    first_byte_milliseconds: Option<f64>,
    total_milliseconds: Option<f64>,
    /// The endpoint that answered; absent if the router itself did.
    backend: Option<Backend>,
    /// Whether the proxy of a Router answered itself; absent if an endpoint answered, or if that is not known.
    proxy: Option<bool>,
    error: Option<String>,
}

/// An endpoint.
#[derive(Debug, Serialize)]
struct Backend {
    id: String,
    /// Absent if the API does not know the identifier.
    service: Option<String>,
    address: Option<SocketAddr>,
}

impl Report {
    /// Returns the addresses that did not answer as they should, a line each.
    fn faults(&self) -> impl Iterator<Item = String> {
        self.answers.iter().filter_map(|Answer { address, status, error, proxy, .. }| match (error, status) {
            (Some(error), _) => Some(format!("{address}: {} {}: {error}", self.method, self.url)),
            (None, Some(status @ 500..)) => Some(format!(
                "{address}: {} {} returned {status}; run \"signpost explain route\" for the Route",
                self.method, self.url
            )),
            (None, Some(status)) if *proxy == Some(false) => Some(format!(
                "{address}: {} {} returned {status}, but not from a proxy that serves a Route with this host and path",
                self.method, self.url
            )),
            _ => None,
        })
    }

    fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add("name", self.name.as_str());
        facts.add("server", self.server.as_str());
        facts.add("request", format!("{} {}", self.method, self.url));
        for view in &self.traffic {
            if self.traffic.len() > 1 {
                facts.add("route", view.route.as_str());
            }
            traffic::lines(view).into_iter().for_each(|(name, line)| facts.add(name, line));
        }
        let mut table = Table::new(["ADDRESS", "STATUS", "CONNECT", "FIRST BYTE", "TOTAL", "BACKEND"]);
        for answer in &self.answers {
            let status = match answer.status {
                Some(status) if status < 500 && answer.proxy != Some(false) => {
                    Cell::styled(Style::Good, status.to_string())
                }
                Some(status) => Cell::styled(Style::Bad, status.to_string()),
                None => Cell::styled(Style::Bad, "failed"),
            };
            let time = |time: Option<f64>| Cell::or_dash(time.map(|time| format!("{time} ms")));
            let backend = answer.backend.as_ref().map(|backend| match (&backend.service, backend.address) {
                (Some(service), Some(address)) => format!("{address} (Service {service})"),
                _ => backend.id.clone(),
            });
            table.row([
                Cell::from(answer.address.to_string()),
                status,
                time(answer.connect_milliseconds),
                time(answer.first_byte_milliseconds),
                time(answer.total_milliseconds),
                Cell::or_dash(backend),
            ]);
        }
        format!("{}\n{}", facts.text(painter), table.text(painter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let read = |line: &str, namespace| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            arguments(words.iter(), namespace).ok()
        };
        let route =
            |namespace: Option<&str>, name: &str| Target::Route((namespace.map(str::to_owned), name.to_owned()));
        let name = |text: &str| Target::Name(text.parse().expect("a name"));
        for (line, namespace, expected) in [
            ("web", None, Some((None, route(None, "web")))),
            ("shop/web", None, Some((None, route(Some("shop"), "web")))),
            ("@127.0.0.1:53 a.example", None, Some((Some("127.0.0.1:53"), name("a.example")))),
            ("web.v2 @ns1", Some("shop"), Some((Some("ns1"), route(None, "web.v2")))),
            ("shop/web.v2", None, Some((None, route(Some("shop"), "web.v2")))),
            ("@127.0.0.1", None, None),
            ("@a @b web", None, None),
            ("a b", None, None),
            ("a/b/c", None, None),
            ("a..b", None, None),
            ("shop/web", Some("shop"), None),
        ] {
            let expected = expected.map(|(server, target)| (server.map(str::to_owned), target));
            assert_eq!(read(line, namespace), expected, "{line}");
        }
    }

    #[test]
    fn text() {
        let [one, two] = ["192.0.2.1:80", "192.0.2.2:80"].map(|text| text.parse::<SocketAddr>().expect("an address"));
        let backend =
            Backend { id: "0123456789abcdef".to_owned(), service: Some("web".to_owned()), address: Some(one) };
        let empty = || Answer {
            address: two,
            status: None,
            connect_milliseconds: None,
            first_byte_milliseconds: None,
            total_milliseconds: None,
            backend: None,
            proxy: None,
            error: None,
        };
        let answered = Answer {
            address: one,
            status: Some(503),
            connect_milliseconds: Some(0.5),
            first_byte_milliseconds: Some(1.25),
            total_milliseconds: Some(2.0),
            backend: Some(backend),
            proxy: None,
            error: None,
        };
        let failed = Answer { error: Some("timed out".to_owned()), ..empty() };
        let strange = Answer { status: Some(403), proxy: Some(false), ..empty() };
        let mut report = Report {
            name: "a.example".to_owned(),
            server: "127.0.0.1:53".to_owned(),
            method: "GET".to_owned(),
            url: "http://a.example/".to_owned(),
            answers: vec![answered, failed, strange],
            traffic: Vec::new(),
        };
        let expected = "\
name      a.example
server    127.0.0.1:53
request   GET http://a.example/

ADDRESS        STATUS   CONNECT   FIRST BYTE   TOTAL   BACKEND
192.0.2.1:80   503      0.5 ms    1.25 ms      2 ms    192.0.2.1:80 (Service web)
192.0.2.2:80   failed   -         -            -       -
192.0.2.2:80   403      -         -            -       -
";
        assert_eq!(report.text(Painter::PLAIN), expected);
        report.traffic =
            ["shop/web", "shop/api"].map(|route| RouteView { route: route.to_owned(), ..RouteView::default() }).into();
        let line = "traffic   0.00 requests per second, 0.0 % with status 5xx, 0.0 % without an answer";
        let with = format!("route     shop/web\n{line}\nroute     shop/api\n{line}\n\nADDRESS");
        assert_eq!(report.text(Painter::PLAIN), expected.replace("\nADDRESS", &with));
        let faults: Vec<String> = report.faults().collect();
        assert_eq!(
            faults,
            [
                "192.0.2.1:80: GET http://a.example/ returned 503; run \"signpost explain route\" for the Route",
                "192.0.2.2:80: GET http://a.example/: timed out",
                "192.0.2.2:80: GET http://a.example/ returned 403, but not from a proxy that serves a Route with this host and path",
            ]
        );
    }
}
