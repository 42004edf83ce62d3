//! The connections of processes to the simulated API, and their faults.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{Stream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use signpost_api::identity::Identity;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::api::{Api, client};
use super::system::elapsed;

pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The frequency of each fault, per thousand requests or watch events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Writes that are refused as conflicts.
    pub conflicts: u64,
    /// Requests that fail, and are not done.
    pub failures: u64,
    /// Writes that succeed, but whose responses are lost.
    pub lost_answers: u64,
    /// Watches that end after an event.
    pub ended_watches: u64,
    /// Watches that return 410 after an event.
    pub expired_watches: u64,
    /// Watches that send nothing after an event.
    pub hung_watches: u64,
    /// Events that arrive together and twice, and in reverse order.
    pub disorder: u64,
    /// The longest delay of a request, of its response, and of an event, in milliseconds.
    pub lag_longest: u64,
}

/// The simulated network between one process and the API.
#[derive(Clone)]
pub struct Connection {
    api: Api,
    of: Arc<str>,
    state: Arc<Mutex<ConnectionState>>,
}

#[derive(Default)]
struct ConnectionState {
    /// Whether the process has ended: it neither receives nor sends anything.
    dead: bool,
    /// There is no connection.
    cut: bool,
    /// Whether Events are stored. Otherwise they are rejected: they are informational, and cost a third of all writes.
    keeps_events: bool,
    /// The number of requests of each kind, such as `POST routebindings`.
    requests: BTreeMap<String, u64>,
    /// The kind of request that is blocked, and the kind that is rejected.
    held: Option<&'static str>,
    forbidden: Option<&'static str>,
    /// The kinds, by their plurals, of which the API has lost all objects.
    lost: &'static [&'static str],
}

impl Connection {
    pub fn new(api: Api, of: &str) -> Connection {
        Connection { api, of: of.into(), state: Arc::default() }
    }

    pub fn client(&self, user: &str) -> kube::Client {
        self.client_of(Identity::user(user))
    }

    pub fn client_of(&self, identity: Identity) -> kube::Client {
        let connection = self.clone();
        client(identity, move |request| {
            let connection = connection.clone();
            async move { connection.carry(request).await }
        })
    }

    pub fn kill(&self) {
        self.state.lock().dead = true;
    }

    pub fn cut(&self, cut: bool) {
        self.state.lock().cut = cut;
    }

    pub fn keep_events(&self) {
        self.state.lock().keeps_events = true;
    }

    /// Blocks requests of this kind, such as `POST routebindings`, until another kind, or none, is blocked.
    pub fn hold(&self, what: Option<&'static str>) {
        self.state.lock().held = what;
    }

    /// Rejects requests of this kind from now on.
    pub fn forbid(&self, what: Option<&'static str>) {
        self.state.lock().forbidden = what;
    }

    /// Answers from now on as if there were no objects of these kinds. Watches of them are silent.
    pub fn lose(&self, lost: &'static [&'static str]) {
        self.state.lock().lost = lost;
    }

    /// Returns the number of requests of a kind, such as `POST routebindings`.
    pub fn requests(&self, what: &str) -> u64 {
        self.state.lock().requests.get(what).copied().unwrap_or(0)
    }

    async fn carry(&self, request: Request<Body>) -> std::result::Result<Response<Body>, Failed> {
        let weather = *self.api.weather.lock();
        let writes = request.method() != Method::GET;
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        let kind = format!("{} {}", if watches { "WATCH" } else { request.method().as_str() }, plural(&request));
        if let Some(refused) = self.begin(&kind) {
            return Ok(refused);
        }
        while self.state.lock().held == Some(&*kind) {
            sleep(Duration::from_millis(5)).await;
        }
        self.lag(weather).await?;
        if writes {
            // Otherwise, two leaders with different states would write against each other endlessly, without virtual time
            // passing.
            sleep(Duration::from_millis(1)).await;
        }
        if self.chance(weather.failures) {
            return Err("the connection was refused".into());
        }
        if writes && self.chance(weather.conflicts) {
            return Ok(status(StatusCode::CONFLICT, "Conflict", "a simulated conflict"));
        }
        let what = format!("{} {} {}", self.of, request.method(), request.uri().path());
        let is_lost = !writes && self.state.lock().lost.contains(&&*plural(&request));
        let (server, gone) = self.api.serving();
        let before = self.api.revision().await;
        let response = tokio::select! {
            biased;
            () = gone.cancelled() => return Err("the connection was reset".into()),
            response = server.oneshot(request) => response.unwrap_or_else(|never| match never {}),
        };
        if writes {
            let is_futile = response.status().is_success() && self.api.revision().await == before;
            let mut truth = self.api.truth.lock();
            truth.note(format!("{what}: {}", response.status().as_u16()));
            if is_futile {
                truth.last_write = (elapsed(), format!("{what}, without effect,"));
            }
            // Every process reports its own holds.
            let is_of_leader = what.ends_with("/status") && !what.contains("/deletionholds/");
            if is_of_leader && response.status().is_success() {
                truth.wrote_status(&self.of);
            }
        }
        let response = if is_lost { without_objects(response, watches).await? } else { response };
        self.lag(weather).await?;
        if writes && self.chance(weather.lost_answers) {
            self.api.truth.lock().note(format!("{what}: its answer is lost"));
            return Err("the connection was reset".into());
        }
        if !watches {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let watch = Watch { connection: self.clone(), events: Box::pin(body.into_data_stream()), end: None, gone };
        let events = futures::stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) });
        Ok(Response::from_parts(parts, Body::from_stream(events)))
    }

    /// Counts a request of this kind, or rejects it.
    fn begin(&self, kind: &str) -> Option<Response<Body>> {
        let mut state = self.state.lock();
        if !state.keeps_events && kind.ends_with(" events") {
            return Some(status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "events are not kept"));
        }
        if state.forbidden == Some(kind) {
            return Some(status(StatusCode::FORBIDDEN, "Forbidden", "it is forbidden here"));
        }
        *state.requests.entry(kind.to_owned()).or_default() += 1;
        None
    }

    /// Delays or drops a request or response.
    async fn lag(&self, weather: Weather) -> std::result::Result<(), Failed> {
        if weather.lag_longest > 0 {
            sleep(Duration::from_millis(self.api.chance.below(weather.lag_longest))).await;
        }
        let (is_dead, is_cut) = {
            let state = self.state.lock();
            (state.dead, state.cut)
        };
        if is_dead {
            std::future::pending::<()>().await;
        }
        if is_cut {
            // As long as a client waits for a connection.
            sleep(Duration::from_secs(5)).await;
            return Err("no route to the API".into());
        }
        Ok(())
    }

    fn chance(&self, of_a_thousand: u64) -> bool {
        self.api.chance.below(1000) < of_a_thousand
    }
}

/// An open watch on a connection.
struct Watch {
    connection: Connection,
    events: Pin<Box<dyn Stream<Item = std::result::Result<Bytes, axum::Error>> + Send>>,
    /// The end after the last event: silence, an error, or a normal end.
    end: Option<End>,
    /// Fires when the server ends.
    gone: CancellationToken,
}

#[derive(Clone, Copy)]
enum End {
    Silence,
    Expired,
    Closed,
}

impl Watch {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, Failed>> {
        match self.end {
            Some(End::Silence) => {
                self.gone.cancelled().await;
                return None;
            }
            Some(End::Expired) => {
                self.end = Some(End::Closed);
                let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "Expired", "message": "too old resource version", "code": 410});
                return Some(Ok(format!("{}\n", json!({"type": "ERROR", "object": gone})).into()));
            }
            Some(End::Closed) => return None,
            None => {}
        }
        let event = self.events.next().await?;
        let weather = *self.connection.api.weather.lock();
        if let Err(lost) = self.connection.lag(weather).await {
            self.end = Some(End::Closed);
            return Some(Err(lost));
        }
        let ends = [
            (weather.hung_watches, End::Silence),
            (weather.expired_watches, End::Expired),
            (weather.ended_watches, End::Closed),
        ];
        self.end = ends.into_iter().find(|(share, _)| self.connection.chance(*share)).map(|(_, end)| end);
        match event {
            Ok(events) if self.connection.chance(weather.disorder) => Some(Ok(self.disorder(events))),
            event => Some(event.map_err(Into::into)),
        }
    }

    /// Returns these events and those that have arrived, each twice, the last one first.
    fn disorder(&mut self, first: Bytes) -> Bytes {
        let mut events = first.to_vec();
        while let Some(next) = self.events.next().now_or_never() {
            match next {
                Some(Ok(more)) => events.extend_from_slice(&more),
                // The end follows these events, and is not requested again.
                Some(Err(_)) | None => {
                    self.end = Some(End::Closed);
                    break;
                }
            }
        }
        let lines = events.split_inclusive(|octet| *octet == b'\n').rev();
        lines.flat_map(|line| [line, line]).flatten().copied().collect()
    }
}

/// Returns the response of an API that has no object of a kind, given that of one that has.
async fn without_objects(response: Response<Body>, watches: bool) -> std::result::Result<Response<Body>, Failed> {
    let (parts, body) = response.into_parts();
    if watches {
        // It is silent until it ends, possibly because it has expired.
        let is_error = |chunk: &Bytes| chunk.windows(7).any(|octets| octets == br#""ERROR""#);
        let events = body.into_data_stream();
        let events = events.filter(move |event| std::future::ready(event.as_ref().map_or(true, is_error)));
        return Ok(Response::from_parts(parts, Body::from_stream(events)));
    }
    if !parts.status.is_success() {
        return Ok(Response::from_parts(parts, body));
    }
    let mut list: serde_json::Value = serde_json::from_slice(&axum::body::to_bytes(body, usize::MAX).await?)?;
    if list["items"].is_null() {
        return Ok(status(StatusCode::NOT_FOUND, "NotFound", "it is lost"));
    }
    list["items"] = json!([]);
    list["metadata"]["continue"] = json!(null);
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Body::from(list.to_string())).expect("it is whole"))
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": message, "code": code.as_u16()});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string())).expect("it is whole")
}

/// Returns the plural of the kind in a request.
fn plural(request: &Request<Body>) -> String {
    let mut segments = request.uri().path().trim_matches('/').split('/');
    // `api/v1` or `apis/<group>/<version>`.
    let skipped = if segments.next() == Some("api") { 1 } else { 2 };
    let rest: Vec<&str> = segments.skip(skipped).collect();
    let at = if rest.len() >= 3 && rest[0] == "namespaces" { 2 } else { 0 };
    rest.get(at).copied().unwrap_or_default().to_owned()
}
