//! The dashboard: the platform in a browser, for operators and tenants, read-only.
//!
//! ```text
//!   browser ──cookie──► session ──the user's own token──► API        objects: what the API lets this user see
//!      ▲                   │
//!      │ events            ├──► feed      one compact informer of the routes of a scope, shared by its viewers
//!      └───────────────────┴──► samples   the numbers of /metrics, over the last quarter of an hour
//! ```
//!
//! | endpoint below `/dashboard/` | answers |
//! |---|---|
//! | ``, `callback`, `assets/…` | the page ([`assets`]) |
//! | `session` | `POST` signs in with a token, the code of a link, or the redirect of a provider, `GET` returns the user and the user's permissions, `DELETE` signs out |
//! | `login` | `POST` returns the address at which the user signs in at an identity provider ([`logins`]) |
//! | `session/link` | `POST` returns a code for a token ([`links`]) |
//! | `data/overview`, `data/routes` | counts, and pages of routes ([`facts`]) |
//! | `data/samples` | numbers ([`samples`]) |
//! | `data/events` | pages of Events ([`events`]) |
//! | `data/traffic` | requests, errors, times, and endpoints of Routes ([`traffic`]) |
//! | `data/zones`, `data/records`, `data/servers` | pages of zones and records, and the serials on name servers ([`zones`]) |
//! | `data/sources` | the shards and names of the source cluster, as the leader derives them |
//! | `data/process` | this process: its version, start time, and readiness checks |
//! | `data/live` | what changes, as server-sent events ([`live`]) |
//! | `api/…` | an object or list of the API itself, as this user may see it |
//!
//! It makes no authorization decisions: all data comes from the API with the user's own token, or from an informer of objects
//! that the API has just permitted this user to list. It changes nothing: no endpoint here writes to the API.

pub mod ask;
pub mod assets;
pub mod events;
pub mod facts;
pub mod feed;
pub mod links;
pub mod live;
pub mod logins;
pub mod places;
pub mod pool;
pub mod samples;
pub mod session;
pub mod traffic;
pub mod zones;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::ask::Failure;
use self::events::EventFeeds;
use self::facts::{Keyed, Wanted};
use self::feed::Feeds;
use self::links::Links;
use self::logins::Logins;
use self::places::StreamLimiter;
use self::samples::Samples;
use self::session::{Renewal, Rights, Session, Sessions};
use self::traffic::Agents;
use super::Admin;
use super::exposition::Format;
use super::host::exact_authority;
use signpost_runtime::httpd::Encrypted;

/// The maximum size of a browser's request: a token, and a few words.
const BODY_OCTETS_MAX: usize = 16 << 10;
/// The maximum number of answers of the API on their way to browsers at once: with their largest size some 256 MiB.
const ANSWERS_MAX: usize = 32;
const PIECE_OCTETS: usize = 64 << 10;
/// The maximum number of items in one page of a list.
const PAGE_MAX: usize = 500;
/// The number of items in one page of a list without `limit`.
const PAGE: usize = 100;
/// The policy of the page. It loads nothing from other origins and sends nothing to them; the markup contains no scripts and
/// styles, and text cannot become any (Trusted Types).
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";
/// The paths of the API that are served, with all paths below them: those that the page reads. The API decides about access.
const SHOWN: &[&str] = &["/apis/signpost.dev/v1alpha1", "/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1"];
/// The path that is served with only its direct children: Namespaces, but not the resources inside of them.
const NAMESPACES: &str = "/api/v1/namespaces";

/// The dashboard of a process; clones are handles to one.
#[derive(Clone)]
pub struct Dashboard(Arc<Shared>);

pub struct Shared {
    door: OnceLock<Option<kube::Client>>,
    logins: OnceLock<Logins>,
    sessions: Sessions,
    links: Links,
    feeds: Feeds,
    events: EventFeeds,
    samples: Samples,
    agents: Agents,
    /// The parts of this process that the page shows.
    admin: Admin,
    /// The permit to read zones: one request at a time.
    zone_reads: Arc<Semaphore>,
    streams: Arc<StreamLimiter>,
    /// The permits for API responses to browsers, which may read them slowly.
    answers: Arc<Semaphore>,
    started: SystemTime,
    stop: OnceLock<CancellationToken>,
}

impl Dashboard {
    /// Returns the dashboard of a process that is starting. Until [`Self::open`], users cannot sign in.
    pub fn new(admin: &Admin) -> Self {
        Dashboard(Arc::new(Shared {
            door: OnceLock::new(),
            logins: OnceLock::new(),
            sessions: Sessions::default(),
            links: Links::default(),
            feeds: Feeds::default(),
            events: EventFeeds::default(),
            samples: Samples::default(),
            agents: Agents::default(),
            admin: admin.clone(),
            zone_reads: Arc::new(Semaphore::new(1)),
            streams: StreamLimiter::new(live::STREAMS_MAX, live::STREAMS_OF_USER_MAX),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            started: SystemTime::now(),
            stop: OnceLock::new(),
        }))
    }

    /// Enables sign-in with a client of the API without credentials; `None` if this process has no API. `logins` are the
    /// identity providers.
    ///
    /// `own` is a client with the rights of this process, which reads where the agents of instances are.
    pub fn open(&self, door: Option<kube::Client>, own: Option<kube::Client>, logins: Logins) {
        self.0.agents.open(own);
        // Opened once; a second API would be another platform.
        let _ = self.0.logins.set(logins);
        let _ = self.0.door.set(door);
    }

    /// Samples the process's metrics and removes expired state, until `stop` fires; then streams end.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.0;
        let _ = shared.stop.set(stop.clone());
        let mut ticks = tokio::time::interval(samples::INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            if let Ok(page) = shared.admin.metrics.encode(Format::OpenMetrics) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                shared.samples.take(&page, u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
            }
            shared.sessions.sweep();
            shared.sessions.renew();
            shared.feeds.sweep();
            shared.events.sweep();
        }
    }

    /// Returns whether the API lets the user with this token see the whole platform.
    pub async fn sees_all(&self, token: &str) -> Result<bool, Failure> {
        session::may_list_zones(self.0.door()?, token).await
    }

    pub fn router(self) -> Router {
        Router::new()
            .route("/dashboard", get(|| async { Redirect::permanent("/dashboard/") }))
            .route("/dashboard/", get(assets::index))
            .route(logins::CALLBACK, get(assets::index))
            .route("/dashboard/assets/{name}", get(assets::asset))
            .route("/dashboard/login", post(login))
            .route("/dashboard/session", get(who).post(sign_in).delete(sign_out))
            .route("/dashboard/session/link", post(link))
            .route("/dashboard/data/overview", get(overview))
            .route("/dashboard/data/routes", get(routes))
            .route("/dashboard/data/samples", get(all_samples))
            .route("/dashboard/data/events", get(events::events))
            .route("/dashboard/data/traffic", get(traffic::traffic))
            .route("/dashboard/data/zones", get(zones::zones))
            .route("/dashboard/data/records", get(zones::records))
            .route("/dashboard/data/servers", get(zones::servers))
            .route("/dashboard/data/process", get(process))
            .route("/dashboard/data/sources", get(sources))
            .route("/dashboard/data/live", get(live))
            .route("/dashboard/api/{*path}", get(object))
            .layer(DefaultBodyLimit::max(BODY_OCTETS_MAX))
            .layer(middleware::from_fn(guarded))
            .with_state(self.0)
    }
}

impl Shared {
    fn door(&self) -> Result<&kube::Client, Failure> {
        let starting = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", "the process is starting");
        let none = || {
            let message = "this process has no API to sign in to; set --kubeconfig, or add the role api";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "NoApi", message)
        };
        self.door.get().ok_or_else(starting)?.as_ref().ok_or_else(none)
    }

    /// Returns the identity providers, which are known when the API is.
    fn logins(&self) -> Result<&Logins, Failure> {
        self.door()?;
        Ok(self.logins.get().expect("they are set before the API"))
    }

    fn stopping(&self) -> CancellationToken {
        self.stop.get().cloned().unwrap_or_default()
    }

    /// Returns `answer`, and ends the session if the API rejects its token.
    fn settle<T>(&self, session: &Arc<Session>, answer: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &answer
            && failure.status == StatusCode::UNAUTHORIZED
        {
            self.sessions.forget(session);
        }
        answer
    }

    /// Returns the session of a request, and the permissions of its user.
    async fn signed_in(&self, headers: &HeaderMap) -> Result<(Arc<Session>, Rights), Failure> {
        let session = self.sessions.of(headers)?;
        let rights = self.settle(&session, session.rights().await)?;
        Ok((session, rights))
    }

    /// Returns the session of a request by a user that may list Zones.
    async fn admitted(&self, headers: &HeaderMap) -> Result<Arc<Session>, Failure> {
        let (session, rights) = self.signed_in(headers).await?;
        let message = "the page requires the permission to list Zones";
        rights.zones.then_some(session).ok_or_else(|| Failure::new(StatusCode::FORBIDDEN, "Forbidden", message))
    }

    /// Returns the routes that the user of a request may see.
    async fn routes_of(&self, headers: &HeaderMap) -> Result<(u64, Vec<Keyed>), Failure> {
        let (session, rights) = self.signed_in(headers).await?;
        let feeds = self.feeds.permitted(&session, &rights).await?;
        let version = feeds.iter().map(|feed| feed.version()).sum();
        Ok((version, feeds.iter().flat_map(|feed| feed.objects.all()).collect()))
    }
}

type Answer = Result<Response, Failure>;

/// The body of a sign-in request: a token, the code of a link, or the query of the redirect of an identity provider.
#[derive(Deserialize)]
struct SignIn {
    token: Option<String>,
    namespace: Option<String>,
    code: Option<String>,
    redirect: Option<String>,
}

/// The body of a request to sign in at an identity provider: its position in the list.
#[derive(Deserialize)]
struct Begin {
    provider: usize,
}

/// Begins a sign-in at an identity provider, and returns its address.
async fn login(
    State(shared): State<Arc<Shared>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let secure = private(&headers, encrypted.is_some())?;
    let wanted: Begin = serde_json::from_slice(&body).map_err(|_| {
        Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "provider is missing; send {\"provider\": 0}")
    })?;
    let (address, cookie) = shared.logins()?.begin(wanted.provider, origin(&headers)?).await?;
    let cookie = session::set_cookie(logins::COOKIE, &cookie, logins::VALID, secure);
    Ok(([(header::SET_COOKIE, cookie)], json_of(&json!({"address": address}))).into_response())
}

/// Returns the scheme, host, and port of the page, which the browser states.
fn origin(headers: &HeaderMap) -> Result<&str, Failure> {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin.filter(|origin| Origin::parse(origin).is_some());
    let missing = "the request has no header Origin; sign in on the dashboard's own page";
    origin.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "BadRequest", missing))
}

async fn sign_in(
    State(shared): State<Arc<Shared>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let secure = private(&headers, encrypted.is_some())?;
    let wanted = SignIn::of(&body)?;
    let mut cookies = Vec::new();
    let (identifier, session) = match (&wanted.code, &wanted.redirect) {
        (Some(code), _) => {
            let identifier = shared.links.redeem(code)?;
            let session = shared.sessions.with(&identifier)?;
            (identifier, session)
        }
        (None, Some(query)) => {
            let (provider, tokens) = shared.logins()?.complete(&headers, origin(&headers)?, query).await?;
            let opened = shared.sessions.open(shared.door()?, &tokens.id_token, None).await;
            let (identifier, session) = opened.map_err(rejected_by_api)?;
            session.renew_with(Renewal::of(provider, tokens));
            cookies.push(session::set_cookie(logins::COOKIE, "", Duration::ZERO, secure));
            (identifier, session)
        }
        (None, None) => shared.sessions.open(shared.door()?, wanted.token(), wanted.namespace.as_deref()).await?,
    };
    let rights = shared.settle(&session, session.rights().await)?;
    // A new sign-in replaces the former session of the browser.
    shared.sessions.close(&headers);
    cookies.push(session::cookie(&identifier, secure));
    let cookies = AppendHeaders(cookies.into_iter().map(|cookie| (header::SET_COOKIE, cookie)));
    Ok((cookies, json_of(&described(&session, &rights))).into_response())
}

/// Explains that the API does not accept a token that the identity provider issued.
fn rejected_by_api(failure: Failure) -> Failure {
    match failure.status {
        StatusCode::UNAUTHORIZED => {
            let message = "the API rejected the token of the identity provider; its setting jwt-issuer must have the issuer \
                           and the client";
            Failure::new(StatusCode::FORBIDDEN, "LoginRejected", message)
        }
        _ => failure,
    }
}

/// Opens a session, and returns the code with which a browser can use it.
async fn link(
    State(shared): State<Arc<Shared>>,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    private(&headers, encrypted.is_some())?;
    let wanted = SignIn::of(&body)?;
    let (identifier, session) =
        shared.sessions.open(shared.door()?, wanted.token(), wanted.namespace.as_deref()).await?;
    let code = shared.links.create(&session.user, identifier)?;
    Ok(json_of(&json!({"code": code, "user": session.user, "secondsLeft": links::VALID.as_secs()})))
}

/// Rejects a sign-in from another site, or one that exposes the token to the network. Returns whether the browser came over
/// HTTPS: of Signpost, or of a proxy in front of it.
fn private(headers: &HeaderMap, is_encrypted: bool) -> Result<bool, Failure> {
    let refuse = |reason, message: &str| Err(Failure::new(StatusCode::FORBIDDEN, reason, message));
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Another site cannot send this content type, nor the browser's header for a same-site request.
    if !text("content-type").starts_with("application/json") || !matches!(text("sec-fetch-site"), "" | "same-origin") {
        return refuse("OtherSite", "sign in on the dashboard's own page");
    }
    let origin = text("origin");
    let parsed = Origin::parse(origin);
    let secure = is_encrypted || parsed.as_ref().is_some_and(|origin| origin.is_https);
    if !secure && !origin.is_empty() && !parsed.is_some_and(|origin| origin.is_loopback()) {
        return refuse(
            "PlainHttp",
            "plain HTTP exposes the token to the network; set admin.tls, or use an SSH tunnel (ssh -L)",
        );
    }
    Ok(secure)
}

impl SignIn {
    fn of(body: &[u8]) -> Result<SignIn, Failure> {
        let wanted: Option<SignIn> = serde_json::from_slice(body).ok();
        let is_complete =
            |wanted: &SignIn| wanted.token.is_some() || wanted.code.is_some() || wanted.redirect.is_some();
        wanted.filter(is_complete).ok_or_else(|| {
            Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "token is missing; send {\"token\": \"…\"}")
        })
    }

    /// Returns the token, which users copy from a kubeconfig with its quotes.
    fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default().trim().trim_matches('"')
    }
}

async fn who(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    let providers = shared.logins()?.names();
    match shared.signed_in(&headers).await {
        Ok((session, rights)) => {
            let mut answer = described(&session, &rights);
            answer["providers"] = json!(providers);
            Ok(json_of(&answer))
        }
        // No session is a valid answer, not a failure.
        Err(failure) if failure.status == StatusCode::UNAUTHORIZED => {
            Ok(json_of(&json!({"user": null, "providers": providers})))
        }
        Err(failure) => Err(failure),
    }
}

async fn sign_out(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.sessions.close(&headers);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, session::no_cookie())]).into_response()
}

fn described(session: &Session, rights: &Rights) -> Value {
    json!({
        "user": session.user,
        "groups": session.groups,
        "rights": rights,
        "secondsLeft": session.left().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

async fn overview(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    let (version, routes) = shared.routes_of(&headers).await?;
    let mut answer = facts::overview(&routes);
    answer["version"] = json!(version);
    Ok(json_of(&answer))
}

async fn routes(State(shared): State<Arc<Shared>>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Answer {
    let (version, routes) = shared.routes_of(&headers).await?;
    let mut answer = facts::page(&routes, &wanted);
    answer["version"] = json!(version);
    Ok(json_of(&answer))
}

async fn all_samples(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.admitted(&headers).await?;
    Ok(json_of(&shared.samples.all()))
}

/// The parameters of the report about the sources.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WantedSources {
    /// Text that an item must contain.
    q: String,
}

/// Returns the report about the sources, or the reason why this process has none.
async fn sources(State(shared): State<Arc<Shared>>, headers: HeaderMap, Query(wanted): Query<WantedSources>) -> Answer {
    shared.admitted(&headers).await?;
    Ok(json_of(&shared.admin.sources.page(&wanted.q)))
}

/// Returns the state of this process, for users that may see its metrics.
async fn process(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.admitted(&headers).await?;
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let report = shared.admin.health.report();
    Ok(json_of(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "startedMs": u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        "dns": shared.admin.dns_listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "ready": report.is_ready(),
        "checks": report.to_string().lines().filter(|line| line.starts_with('[')).collect::<Vec<_>>(),
    })))
}

async fn live(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    let session = shared.sessions.of(&headers)?;
    let answer = live::stream(shared.clone(), session.clone()).await;
    shared.settle(&session, answer)
}

/// Returns an object or a list of the API, as the API gives it to this user.
async fn object(State(shared): State<Arc<Shared>>, request: Request) -> Answer {
    let session = shared.sessions.of(request.headers())?;
    let path = request.uri().path().strip_prefix("/dashboard/api").unwrap_or_default();
    let query = request.uri().query().unwrap_or_default();
    if watches(query) || !is_shown(path) {
        let message = "the dashboard does not show this path of the API";
        return Err(Failure::new(StatusCode::NOT_FOUND, "NotShown", message));
    }
    let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let room = |room: &Arc<Semaphore>| room.clone().try_acquire_owned().map_err(|_| too_many());
    let held = (room(&session.answers)?, room(&shared.answers)?);
    let mut rest = Bytes::from(shared.settle(&session, ask::get(&session.client, &whole).await)?);
    let length = rest.len();
    // In pieces: a slow reader is disconnected like any slow client, and holds the permit until then.
    let pieces = std::iter::from_fn(move || {
        let _held = &held;
        (!rest.is_empty()).then(|| Ok::<_, Infallible>(rest.split_to(rest.len().min(PIECE_OCTETS))))
    });
    let body = Body::from_stream(futures::stream::iter(pieces));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
    ];
    Ok((headers, body).into_response())
}

fn too_many() -> Failure {
    let message = "too many responses are in flight; retry later";
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
}

/// Returns the number of items in the answer to a request with this `limit`; 0: the request has none.
fn page_size(limit: usize) -> usize {
    if limit == 0 { PAGE } else { limit.min(PAGE_MAX) }
}

/// Returns the words of a search, in lower case. An item matches if it contains each of them.
fn search_words(text: &str) -> Vec<String> {
    text.split_whitespace().take(8).map(str::to_ascii_lowercase).collect()
}

/// Returns whether a query requests a watch, which would hold a permit for as long as it lasts. The API decodes names, too.
fn watches(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "watch")
}

/// Returns whether the page reads this path. No name in it needs a percent-encoding, which the API would decode after this check.
fn is_shown(path: &str) -> bool {
    let below = |root: &str| path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let namespace = below(NAMESPACES).is_some_and(|rest| rest.matches('/').count() <= 1);
    !path.contains("..") && !path.contains('%') && (namespace || SHOWN.iter().any(|shown| below(shown).is_some()))
}

fn json_of(value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, value.to_string()).into_response()
}

/// The origin of a page (RFC 6454 §6.2): scheme, host, and port.
struct Origin {
    is_https: bool,
    host: Authority,
}

impl Origin {
    /// Parses the header `Origin`, which contains nothing else: no user, path, or other character.
    fn parse(text: &str) -> Option<Origin> {
        let (scheme, host) = text.split_once("://")?;
        let is_https = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        exact_authority(host).map(|host| Origin { is_https, host })
    }

    /// Returns whether it is this machine, as `http://127.0.0.1:9453` is.
    fn is_loopback(&self) -> bool {
        let host = self.host.host().to_ascii_lowercase();
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        let address = literal.parse::<std::net::IpAddr>();
        host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Adds the headers of every response.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_the_api() {
        for (path, shown) in [
            ("/apis/signpost.dev/v1alpha1", true),
            ("/apis/signpost.dev/v1alpha1/namespaces/shop/routes/front", true),
            ("/apis/signpost.dev/v1alpha1x/routes", false),
            ("/apis/events.k8s.io/v1/namespaces/shop/events", true),
            ("/apis/signpost.dev/v1alpha1/../../../metrics", false),
            ("/apis/signpost.dev/v1alpha1/%2e%2e/%2e%2e/v1/secrets", false),
            ("/api/v1/namespaces/shop%2Fsecrets", false),
            ("/api/v1/namespaces", true),
            ("/api/v1/namespaces/shop", true),
            ("/api/v1/namespaces/shop/secrets", false),
            ("/api/v1/secrets", false),
            ("/metrics", false),
            ("", false),
        ] {
            assert_eq!(is_shown(path), shown, "{path}");
        }
    }

    #[test]
    fn a_watch_is_found_in_any_encoding() {
        for (query, expected) in [
            ("watch=true", true),
            ("watch", true),
            ("limit=5&watch=0", true),
            ("w%61tch=true", true),
            ("limit=5&%77%61%74%63%68", true),
            ("", false),
            ("limit=5&labelSelector=watch%3Dtrue", false),
            ("watcher=1", false),
        ] {
            assert_eq!(watches(query), expected, "{query}");
        }
    }

    #[test]
    fn which_origins_are_this_machine() {
        for (origin, is) in [
            ("http://127.0.0.1:9453", true),
            ("http://[::1]:9453", true),
            ("http://localhost", true),
            ("http://signpost.localhost:80", true),
            ("https://localhost:9453", true),
            ("http://192.0.2.1:9453", false),
            ("http://127.0.0.1:9453@evil.example", false),
            ("http://127.0.0.1@evil.example", false),
            ("http://evil.example@127.0.0.1:9453", false),
            ("http://[::1]evil.example", false),
            ("http://[::1].evil.example:9453", false),
            ("http://127.0.0.1:9453/evil", false),
            ("http://127.0.0.1:evil", false),
            ("http://localhost evil.example", false),
            ("ftp://127.0.0.1", false),
            ("127.0.0.1", false),
            ("http://127.0.0.1.example.org", false),
            ("http://localhost.example.org", false),
            ("null", false),
        ] {
            assert_eq!(Origin::parse(origin).is_some_and(|origin| origin.is_loopback()), is, "{origin}");
        }
    }
}
