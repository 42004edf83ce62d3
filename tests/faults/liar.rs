//! An HTTP proxy before the API that can return all kinds of wrong responses. Its clients use plain HTTP, so that it can read
//! their requests; it uses TLS to the API.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A wrong response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Nothing: the API's own words.
    None,
    /// Lists are rejected with this code; open watches end.
    Lists(u16),
    /// Watches are rejected with this code; those that are open end.
    Watches(u16),
    /// Both.
    All(u16),
    /// Lists are 200 and no JSON; open watches end with a 410 inside, so that there are lists.
    GarbageLists,
    /// Lists are of another kind, with objects that do not decode.
    WrongObjects,
    /// Lists are empty. Open watches end with a 410 inside, so that clients list again; later watches are silent: an event, such as that of
    /// a late status, would show that an object is there.
    EmptyLists,
    /// Watches begin with a line that is not JSON.
    GarbageLines,
    /// Watches end in the middle of a line.
    CutLines,
    /// Watches end immediately, gracefully.
    ShortWatches,
    /// Watches have a 410 in their first line; lists are correct.
    Gone,
    /// Every event comes twice.
    Duplicates,
    /// The second of two events that arrive together is delivered first.
    Reordered,
    /// Only the last of several events of one object that arrive together is delivered.
    Coalesced,
}

/// A running proxy.
pub struct Liar {
    lie: watch::Sender<Lie>,
    /// The address for clients.
    pub address: SocketAddr,
    emptied: Arc<Mutex<BTreeSet<String>>>,
    _runtime: Runtime,
}

#[derive(Clone)]
struct ProxyState {
    api: kube::Client,
    lie: watch::Receiver<Lie>,
    /// The paths with an empty list since the lie began.
    emptied: Arc<Mutex<BTreeSet<String>>>,
}

/// The maximum silence of the API. An idle watch gets a bookmark per minute.
const SILENCE: Duration = Duration::from_secs(150);
/// The maximum number of available events that are combined, for reordering or omission.
const TOGETHER_MAX: usize = 16;

impl Liar {
    /// Returns an honest proxy to the API of this kubeconfig; its clients prove themselves.
    pub fn before(kubeconfig: &Path) -> Liar {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads");
        let client = runtime.block_on(signpost_control::client::unproven_from_kubeconfig(
            kubeconfig,
            SILENCE,
            &signpost_control::client::failover::Servers::default(),
        ));
        let (lie, receiver) = watch::channel(Lie::None);
        let emptied = Arc::default();
        let api = client.expect("the API's own kubeconfig");
        let before = ProxyState { api, lie: receiver, emptied: Arc::clone(&emptied) };
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let router = axum::Router::new().fallback(answer).with_state(before);
        runtime.spawn(async move { axum::serve(listener, router).await });
        Liar { lie, address, emptied, _runtime: runtime }
    }

    /// Sets the lie.
    pub fn set_lie(&self, lie: Lie) {
        self.emptied.lock().expect("no panic").clear();
        self.lie.send_replace(lie);
    }
}

async fn answer(State(before): State<ProxyState>, request: Request) -> Response {
    let lie = *before.lie.borrow();
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.contains("watch=");
    // What reads one object has its name in the path and no limit.
    let is_list = !is_watch && request.method() == http::Method::GET && query.contains("limit=");
    match lie {
        Lie::Lists(code) if is_list => return refusal(code),
        Lie::Watches(code) if is_watch => return refusal(code),
        Lie::All(code) => return refusal(code),
        Lie::GarbageLists if is_list => return text("{\"kind\": \"List\", \"items\": [{{{ what"),
        _ => {}
    }
    let path = request.uri().path().to_owned();
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return refusal(500) };
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_bytes()));
    let Ok(response) = before.api.send(request).await else { return refusal(502) };
    let (parts, body) = response.into_parts();
    // The only relevant header is the content type: the others concern the API and this proxy.
    let passed_on = |body: Body| {
        let mut answer = Response::new(body);
        *answer.status_mut() = parts.status;
        let kind = parts.headers.get(http::header::CONTENT_TYPE).cloned();
        answer.headers_mut().extend(kind.map(|kind| (http::header::CONTENT_TYPE, kind)));
        answer
    };
    if is_watch && parts.status == StatusCode::OK {
        let is_after_empty = before.emptied.lock().expect("no panic").contains(&path);
        let octets = body.into_data_stream().map(|piece| piece.map_err(drop)).boxed();
        return passed_on(Body::from_stream(relayed(octets, before.lie, is_after_empty)));
    }
    let Ok(body) = body.collect().await else { return refusal(502) };
    let mut octets = body.to_bytes();
    if is_list && matches!(lie, Lie::EmptyLists | Lie::WrongObjects) && parts.status == StatusCode::OK {
        let Ok(mut list) = serde_json::from_slice::<Value>(&octets) else { return refusal(502) };
        list["items"] = match lie {
            Lie::EmptyLists => {
                before.emptied.lock().expect("no panic").insert(path);
                json!([])
            }
            _ => json!([{"metadata": {"name": 7}, "spec": "none"}, 3]),
        };
        octets = list.to_string().into();
    }
    passed_on(Body::from(octets))
}

fn text(body: &'static str) -> Response {
    let answer = Response::builder().header(http::header::CONTENT_TYPE, "application/json").body(Body::from(body));
    answer.expect("a response")
}

/// Returns a `Status` error of an API or, for 502, an HTML page like that of other proxies.
fn refusal(code: u16) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Lie", "message": "a lie",
    });
    let body = if code == 502 { "<html>bad gateway</html>".to_owned() } else { status.to_string() };
    Response::builder().status(code).body(Body::from(body)).expect("a response")
}

/// A watch's stream on its way to the client.
struct Telling {
    octets: BoxStream<'static, Result<Bytes, ()>>,
    /// The received part of a line.
    begun: Vec<u8>,
    /// Whole lines that wait.
    lines: Vec<Bytes>,
    lie: watch::Receiver<Lie>,
    /// Whether the client's last list was empty.
    is_after_empty: bool,
    is_over: bool,
}

fn relayed(
    octets: BoxStream<'static, Result<Bytes, ()>>,
    lie: watch::Receiver<Lie>,
    is_after_empty: bool,
) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    let telling = Telling { octets, begun: Vec::new(), lines: Vec::new(), lie, is_after_empty, is_over: false };
    stream::unfold(telling, |mut telling| async move { Some((telling.next().await?, telling)) })
}

impl Telling {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if self.is_over {
                return None;
            }
            let lie = *self.lie.borrow_and_update();
            let last = match lie {
                Lie::Lists(_) | Lie::Watches(_) | Lie::All(_) | Lie::ShortWatches => return None,
                Lie::EmptyLists if self.is_after_empty => None,
                Lie::GarbageLists | Lie::WrongObjects | Lie::EmptyLists | Lie::Gone => Some(gone()),
                Lie::GarbageLines => Some(Bytes::from_static(b"}{ no line of a watch\n")),
                Lie::CutLines => Some(Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{\"kin")),
                Lie::None | Lie::Duplicates | Lie::Reordered | Lie::Coalesced => None,
            };
            if let Some(last) = last {
                self.is_over = true;
                return Some(Ok(last));
            }
            if !self.lines.is_empty() {
                return Some(Ok(self.as_relayed(lie)));
            }
            let is_silent = lie == Lie::EmptyLists;
            tokio::select! {
                piece = self.octets.next(), if !is_silent => match piece {
                    Some(Ok(piece)) => self.take(&piece),
                    Some(Err(())) => return Some(Err(std::io::ErrorKind::ConnectionReset.into())),
                    None => return None,
                },
                changed = self.lie.changed() => changed.ok()?,
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|octet| *octet == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.lines.push(std::mem::take(&mut self.begun).into());
            }
        }
    }

    /// Returns the pending lines as the client receives them.
    fn as_relayed(&mut self, lie: Lie) -> Bytes {
        let mut lines: Vec<Bytes> = self.lines.drain(..self.lines.len().min(TOGETHER_MAX)).collect();
        match lie {
            Lie::Duplicates => lines = lines.into_iter().flat_map(|line| [line.clone(), line]).collect(),
            Lie::Reordered => lines.reverse(),
            Lie::Coalesced => {
                let names: Vec<Option<Value>> = lines.iter().map(|line| object_of(line)).collect();
                let is_last = |at: usize| names[at].is_none() || !names[at + 1..].contains(&names[at]);
                lines = (0..lines.len()).filter(|at| is_last(*at)).map(|at| lines[at].clone()).collect();
            }
            _ => {}
        }
        lines.concat().into()
    }
}

/// Which object an event is about; `None` for a bookmark.
fn object_of(line: &[u8]) -> Option<Value> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let metadata = &event["object"]["metadata"];
    metadata.get("name").map(|name| json!([name, metadata["namespace"]]))
}

/// Returns the line of a watch whose version is too old.
fn gone() -> Bytes {
    let line = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version",
    }});
    format!("{line}\n").into()
}
