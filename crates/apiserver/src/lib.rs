//! A Kubernetes-style API server as a library, over a [`crate::store::Store`].
//!
//! To serve a kind of your own, derive [`kube::CustomResource`], describe it with [`kind::Kind::of`], give it behavior with
//! [`registry::Hooks`], and pass both to [`ApiServer::new`] in [`registry::kinds::Kinds`]. Namespace, Lease and Event are
//! always served. `tests/own_kind.rs` is a complete example.
//!
//! A request passes these stages (`Shared::answer`): parse it ([`request`]), authenticate its sender ([`auth`]), authorize it
//! ([`auth::rules`]), run the [`handlers`], one file per verb, and write the [`audit`] log. Everything that is specific to a kind
//! is in its [`registry::Hooks`]. Reads come from the [`watch_cache`]. Writes go to the store as one transaction and are answered
//! when the cache contains them. Three loops run in parallel to the requests ([`ApiServer::run`]): the cache, the [`garbage`]
//! collector, and the deletion of [`namespaces`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![allow(
    clippy::result_large_err,
    reason = "an ApiError ends its request: its size in a result is small compared with the response"
)]

pub mod store;

pub mod cause;
pub mod json_scan;
pub mod schema;

pub mod kind;
pub mod limits;

pub mod error;

pub mod continue_token;
pub mod negotiate;
pub mod object;
pub mod protobuf;
pub mod representation;

pub mod apply;
pub mod patch;
pub mod strategic_merge;

pub mod auth;
pub mod review;

pub mod damaged;
pub mod registry;

pub mod request;
pub mod selector;
pub mod table;

pub mod respond;

pub mod trees;
pub mod watch_cache;
pub(crate) mod work;

pub mod audit;
pub mod handlers;
pub mod in_flight;

pub mod backup;
pub mod health;
pub mod openapi;

pub mod discovery;

pub mod garbage;
pub mod namespaces;

use std::hash::{BuildHasher as _, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::audit::{Audit, CreatedObject, RequestAttributes, RequestOutcome};
use self::auth::identity::Identity;
use self::auth::impersonate::Subject;
use self::auth::rules::{Access, Authorizer};
use self::auth::{AuthMethod, Authenticator};
use self::error::ApiError;
use self::handlers::Call;
use self::in_flight::{InFlightLimiter, InFlightPermit};
use self::limits::{Limit, OBJECT_BYTES, Refusals};
use self::registry::kinds::Kinds;
use self::request::{Query, Target, Verb};
use self::watch_cache::WatchCache;
use crate::store::Store;
use signpost_runtime::httpd;

/// The maximum size of a request body in octets, as in kube-apiserver.
pub const BODY_OCTETS_MAX: usize = 3 * 1024 * 1024;
/// The maximum time to receive a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The timeout of all requests except watches.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// The maximum number of requests in flight other than watches, from the header to the end of the response; one user gets 1/16 of
/// it ([`in_flight`]). Each holds at most a body while it arrives, so a higher limit means more memory for slow clients. kubectl
/// with a directory of manifests and a busy controller stay far below their users' 128.
const REQUESTS_MAX: usize = 2_048;
/// The maximum number of requests in execution, after their bodies are read; each holds a few copies of its body.
const WORKED_ON_MAX: usize = 1_024;
/// The maximum number of watches; one user gets 1/16 of it. Each is a cursor and its share of a connection.
const WATCHES_MAX: usize = 20_000;

/// The identity that a server presents to clients.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// The name of the server in lower case: the realm of the credentials, the field manager of the server's own writes, and the
    /// marker before the version at `/version`.
    pub name: &'static str,
    /// The display name of the server, in OpenAPI documents.
    pub title: &'static str,
    /// The version of the server.
    pub version: &'static str,
}

impl Default for Product {
    fn default() -> Self {
        Product { name: "apiserver", title: "API server", version: env!("CARGO_PKG_VERSION") }
    }
}

/// The settings of an [`ApiServer`].
pub struct Settings {
    /// The kinds that it serves.
    pub kinds: Kinds,
    /// The access rules.
    pub authorizer: Arc<dyn Authorizer>,
    /// The users. Keep a clone to replace the tokens later.
    pub authenticator: Arc<Authenticator>,
    /// The maximum size of an object in a namespace: its stored JSON, with its field sets. At most
    /// [`limits::CLUSTER_OBJECT_BYTES`].
    pub object_bytes: usize,
    /// The name of the server.
    pub product: Product,
}

impl Settings {
    /// Returns a server with the default maximum size of objects, and a generic name.
    pub fn new(kinds: Kinds, authorizer: Arc<dyn Authorizer>, authenticator: Arc<Authenticator>) -> Self {
        Settings { kinds, authorizer, authenticator, object_bytes: OBJECT_BYTES, product: Product::default() }
    }
}

/// The API server. Clones are handles to one server.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

/// The state that handlers share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: WatchCache,
    pub(crate) kinds: Kinds,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) object_bytes: usize,
    pub(crate) product: Product,
    pub(crate) openapi: OnceLock<openapi::Documents>,
    audit: OnceLock<Arc<Audit>>,
    pub(crate) backup: backup::BackupSlot,
    refusals: Arc<Refusals>,
    /// Fires when the server stops; ends watches.
    pub(crate) stopping: CancellationToken,
    in_flight: InFlight,
    pub(crate) retries: Retries,
    pub(crate) large_work: Arc<work::LargeWork>,
}

/// Lets creates that lost a race retry one after another, by kind and namespace: their objects touch common conflict keys, so that only one
/// of several concurrent attempts succeeds.
#[derive(Default)]
pub(crate) struct Retries {
    locks: [tokio::sync::Mutex<()>; 32],
    hasher: RandomState,
}

impl Retries {
    /// Waits for the turn of a create of this kind and namespace. Some kinds and namespaces share a turn.
    pub(crate) async fn turn(&self, kind: &kind::Kind, namespace: Option<&str>) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one((kind.plural, namespace));
        self.locks[hash as usize % self.locks.len()].lock().await
    }
}

/// The limits of requests and watches in flight.
struct InFlight {
    requests: Arc<InFlightLimiter>,
    watches: Arc<InFlightLimiter>,
    worked_on: Semaphore,
}

impl ApiServer {
    /// Returns a server over `store`. It answers 503 until [`Self::run`] has filled its cache.
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Self {
        let shared = Shared {
            store,
            cache: WatchCache::new(&settings.kinds),
            refusals: Arc::new(Refusals::new(settings.kinds.quotas())),
            kinds: settings.kinds,
            authorizer: settings.authorizer,
            authenticator: settings.authenticator,
            object_bytes: settings.object_bytes,
            product: settings.product,
            openapi: OnceLock::new(),
            audit: OnceLock::new(),
            backup: backup::BackupSlot::default(),
            stopping: CancellationToken::new(),
            retries: Retries::default(),
            in_flight: InFlight {
                requests: InFlightLimiter::new(REQUESTS_MAX),
                watches: InFlightLimiter::new(WATCHES_MAX),
                worked_on: Semaphore::new(WORKED_ON_MAX),
            },
            large_work: work::LargeWork::new(),
        };
        ApiServer { shared: Arc::new(shared) }
    }

    /// Records requests in `audit` from now on. Call it once, before the first request.
    pub fn audit_to(&self, audit: Arc<Audit>) {
        // A second log would split the records; the first one keeps them.
        let _ = self.shared.audit.set(audit);
    }

    /// Serves backups that `source` writes. Call it once, before the first request.
    pub fn back_up_with(&self, source: backup::Source) {
        // The first one counts.
        let _ = self.shared.backup.source.set(source);
    }

    /// Returns the number of requests that each limit rejected.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.shared.refusals
    }

    /// Keeps the cache up to date, collects garbage, and deletes terminating namespaces until `cancel` fires; then watches end,
    /// too.
    pub async fn run(&self, cancel: CancellationToken) {
        let shared = &self.shared;
        let _stop = shared.stopping.clone().drop_guard();
        // A task of its own: many objects in a terminating namespace do not delay the cache, for which writes wait.
        let (of_namespaces, stop) = (shared.clone(), cancel.clone());
        let of_namespaces = tokio::spawn(async move { namespaces::run(&of_namespaces, &stop).await });
        let of_namespaces = AbortOnDropHandle::new(of_namespaces);
        tokio::join!(
            shared.cache.run(&*shared.store, &cancel),
            garbage::run(shared, &cancel),
            async { of_namespaces.await.expect("it does not panic") },
            async {
                cancel.cancelled().await;
                shared.stopping.cancel();
            }
        );
    }

    /// Returns whether requests can be answered: the cache is filled and the first namespaces are there.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Waits until [`Self::is_ready`].
    pub async fn ready(&self) {
        while !self.is_ready() {
            self.shared.cache.reaches(self.shared.cache.applied() + 1, Duration::from_millis(50)).await;
        }
    }

    /// Returns the server as a service, behind the TLS listener or as the service of a [`kube::Client`] in this process. The
    /// credentials of each request determine its user.
    pub fn router(&self) -> axum::Router {
        axum::Router::new().fallback(serve).with_state(self.shared.clone())
    }

    /// Returns the server as a service in this process, all of whose requests are from `identity`. No request from a network can
    /// carry an identity, because it is not part of HTTP.
    pub fn router_as(&self, identity: Identity) -> axum::Router {
        self.router().layer(axum::Extension(identity))
    }
}

/// Answers any request.
async fn serve(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response {
    let received = Timestamp::now();
    let (parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let id = uuid::Uuid::new_v4().to_string();
    let mut facts = RequestAttributes::default();
    // A bug that panics in one request must not close the connection and thus fail other requests.
    let answer = AssertUnwindSafe(shared.answer(&parts, body, &mut facts)).catch_unwind().await;
    let answer = answer.unwrap_or_else(|_| {
        tracing::error!(method = %parts.method, path = parts.uri.path(), "the handler of a request panicked");
        Err(ApiError::internal("internal error in the handler of the request"))
    });
    if let Some(audit) = shared.audit.get() {
        let ending = match &answer {
            Ok(response) => {
                let made = response.extensions().get::<CreatedObject>();
                RequestOutcome { code: response.status().as_u16(), failure: None, made }
            }
            Err(error) => {
                RequestOutcome { code: error.code, failure: Some((error.reason, &error.message)), made: None }
            }
        };
        audit.record(&id, &parts, received, &facts, &ending);
    }
    if let Err(ApiError { limit: Some(limit), .. }) = &answer {
        shared.refusals.count(*limit);
    }
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    if response.status() == http::StatusCode::UNAUTHORIZED {
        let challenge = format!("Bearer realm=\"{}\"", shared.product.name);
        let challenge = HeaderValue::from_str(&challenge).expect("the name of a product is plain ASCII");
        response.headers_mut().insert(http::header::WWW_AUTHENTICATE, challenge);
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("audit-id", id);
    }
    if head { response.map(|_| Body::empty()) } else { response }
}

impl Shared {
    /// Runs the handler chain.
    async fn answer(
        self: &Arc<Self>,
        parts: &Parts,
        body: Body,
        facts: &mut RequestAttributes,
    ) -> Result<Response, ApiError> {
        let target = Target::parse(&self.kinds, &parts.uri)?;
        facts.target = Some(target.clone());
        let query = Query::parse(&parts.uri);
        let sender = self.authenticator.authenticate(parts).await?;
        let proof = sender.proof.clone();
        facts.sender = Some(sender.clone());
        facts.subject = auth::impersonate::impersonate(&*self.authorizer, parts, &sender.identity)?;
        let himself = || Subject { identity: sender.identity.clone(), uid: None, extra: Default::default() };
        let subject = facts.subject.clone().unwrap_or_else(himself);
        let verb = match &target {
            Target::Resource(resource) => Some(resource.verb(&parts.method, &query)?),
            Target::Review { .. } if parts.method != Method::POST => return Err(ApiError::method_not_allowed()),
            Target::Review { .. } => Some(Verb::Create),
            Target::Path(_) => None,
        };
        facts.verb = verb;
        self.authorize(&subject.identity, &target, verb, &parts.method)?;
        let share = self.share(verb, &subject.identity, &proof)?;
        let mut response = self.dispatch(target, verb, query, &subject, parts, body).await?;
        if self.authorizer.is_reserved_for(&sender.identity.user) {
            response.extensions_mut().insert(httpd::OfPlatform);
        }
        Ok(self.held(response, share, proof, verb == Some(Verb::Watch)))
    }

    /// Returns a place among the requests or watches; none for what is answered from nothing but its path, and for Signpost's own loops.
    fn share(
        &self,
        verb: Option<Verb>,
        identity: &Identity,
        proof: &AuthMethod,
    ) -> Result<Option<InFlightPermit>, ApiError> {
        let in_flight = match verb {
            None => return Ok(None),
            Some(_) if *proof == AuthMethod::InProcess => return Ok(None),
            Some(Verb::Watch) => &self.in_flight.watches,
            Some(_) => &self.in_flight.requests,
        };
        let has_reserve = self.authorizer.is_reserved_for(&identity.user);
        in_flight.take(&identity.user, has_reserve).map(Some).ok_or_else(ApiError::too_many_requests)
    }

    /// Returns `response`, which keeps its permit until the client has consumed it. A watch can outlast its credentials, so it
    /// ends with them. A list does not: clients would treat a truncated list as complete.
    fn held(&self, response: Response, share: Option<InFlightPermit>, proof: AuthMethod, is_watch: bool) -> Response {
        let Some(share) = share else { return response };
        let is_stream = response.body().size_hint().exact().is_none();
        response.map(|body| match is_watch && is_stream {
            true => {
                let refused = self.authenticator.clone().until_refused(proof);
                httpd::holding(Body::from_stream(body.into_data_stream().take_until(refused.boxed())), share)
            }
            false => httpd::holding(body, share),
        })
    }

    async fn dispatch(
        self: &Arc<Self>,
        target: Target,
        verb: Option<Verb>,
        query: Query,
        subject: &Subject,
        parts: &Parts,
        body: Body,
    ) -> Result<Response, ApiError> {
        let identity = &subject.identity;
        let resource = match target {
            Target::Path(path) => return self.path(&path, &query, parts),
            Target::Review { review, namespace } => {
                let asked = handlers::body::read_review(&parts.headers, &read(body).await?)?;
                let answer = review.answer(&*self.authorizer, subject, namespace.as_deref(), asked)?;
                return Ok(respond::json(http::StatusCode::CREATED, answer.to_string()));
            }
            Target::Resource(resource) => resource,
        };
        if !self.is_ready() {
            return Err(match self.store.full() {
                Some(needed) => store::Error::Full { needed }.into(),
                None => ApiError::unavailable("the server is starting, please try again"),
            });
        }
        let verb = verb.ok_or_else(ApiError::method_not_allowed)?;
        let work = self.large_work.of(&identity.user, self.authorizer.is_reserved_for(&identity.user));
        let call = Call { server: self, resource, query, identity, headers: &parts.headers, work };
        if verb == Verb::Watch {
            return handlers::watch::watch(&call).await;
        }
        // Waits that the client causes come first, on its own permit; then the work.
        let body = match verb {
            Verb::Get | Verb::List | Verb::Watch => {
                handlers::get::wait_for_wanted(&call).await?;
                Bytes::new()
            }
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => read(body).await?,
        };
        let answer = async {
            let _permit = match parts.extensions.get::<Identity>() {
                Some(_) => None,
                None => Some(self.in_flight.worked_on.acquire().await.expect("the semaphore is never closed")),
            };
            let is_large = body.len() >= work::BODY_LARGE && matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
            let _permit = call.work.permit(is_large).await;
            let handling = async {
                match verb {
                    Verb::Get => handlers::get::get(&call).await,
                    Verb::List => handlers::list::list(&call).await,
                    Verb::Create => handlers::create::create(&call, &body).await,
                    Verb::Update => handlers::update::update(&call, &body).await,
                    Verb::Patch => handlers::patch::patch(&call, &body).await,
                    Verb::Delete => handlers::delete::delete(&call, &body).await,
                    Verb::DeleteCollection => handlers::delete::delete_collection(&call, &body).await,
                    Verb::Watch => Err(ApiError::method_not_allowed()),
                }
            };
            work::wait_beside(is_large, handling).await
        };
        tokio::time::timeout(REQUEST_TIME_MAX, answer)
            .await
            .unwrap_or_else(|_| Err(ApiError::timeout("the request took longer than a minute")))
    }

    /// Answers requests for paths that are not objects.
    fn path(&self, path: &str, query: &Query, parts: &Parts) -> Result<Response, ApiError> {
        let found = health::answer(self, path, query)
            .or_else(|| backup::answer(&self.backup, path, &parts.method))
            .or_else(|| discovery::answer(&self.kinds, path, &parts.headers))
            .or_else(|| openapi::answer(self, path, query, &parts.headers));
        match found {
            Some(_) if parts.method != Method::GET && parts.method != Method::HEAD => {
                Err(ApiError::method_not_allowed())
            }
            Some(response) => response,
            None if discovery::is_in_built_in_group(&self.kinds, path) => Err(ApiError::no_such_resource()),
            None => Ok(respond::not_found()),
        }
    }

    fn authorize(
        &self,
        identity: &Identity,
        target: &Target,
        verb: Option<Verb>,
        method: &Method,
    ) -> Result<(), ApiError> {
        let verb = verb.map(Verb::as_str);
        match target {
            Target::Resource(resource) => {
                let path = resource.path();
                let (namespace, name) = (resource.namespace.as_deref(), resource.name.as_deref());
                let access = Access::resource(verb.unwrap_or_default(), resource.kind.group, &path, namespace, name);
                self.authorizer.authorize(identity, &access)
            }
            Target::Review { review, namespace } => {
                let access = Access::resource("create", review.group, review.plural, namespace.as_deref(), None);
                self.authorizer.authorize(identity, &access)
            }
            Target::Path(path) => {
                let verb = method.as_str().to_ascii_lowercase();
                let verb = if verb == "head" { "get" } else { verb.as_str() };
                // Health names its checks below its path: `/readyz/cache`.
                self.authorizer.authorize(identity, &Access::Path { verb, path: health::root_of(path) })
            }
        }
    }

    /// Returns whether requests can be answered.
    pub(crate) fn is_ready(&self) -> bool {
        self.cache.applied() > 0 && namespaces::are_there(self)
    }
}

/// Reads a whole body within its limits.
async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, BODY_OCTETS_MAX).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("Request entity is too large: limit is {BODY_OCTETS_MAX}");
            Err(ApiError::too_large(message).limited(Limit::REQUEST_BODY))
        }
        Ok(Err(error)) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
        Err(_) => Err(ApiError::new(408, "Timeout", "the body did not arrive in time")),
    }
}
