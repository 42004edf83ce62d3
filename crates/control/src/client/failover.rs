//! Failover between several API servers of one platform.
//!
//! All requests of a process go to one server, the *current* one, as long as it answers. The first one is chosen at random, so
//! that processes spread over the servers. A server has *failed* when it does not answer a request (a refused or broken
//! connection, a TLS error, a timeout), or answers 503, as a server does that is starting or cannot reach its store. A failed
//! server is the last choice for a time that grows with each failure in a row. The next server that answers becomes the current
//! one.
//!
//! Within one request, each server is tried once, and only if the request cannot take effect twice:
//!
//! | request | refused connection | broken connection, 503 | timeout |
//! |---|---|---|---|
//! | safe (RFC 9110 §9.2.1): get, list, watch | next server | next server | next server after 3 seconds |
//! | other | next server | returned to the caller | the caller's own limit |
//!
//! For other requests, the caller decides whether to retry, and the retry goes to another server. Other responses pass unchanged:
//! 401, 409, 500, or 504, with which a server reports that a write may have happened.
//!
//! A watch stays on its server. When another server becomes current, the watches of the former one end normally, and their owners
//! resume them from their last resourceVersion, which is the same on all servers of one store. The probe that `rotation` sends
//! detects a server that hangs while no request is open.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as ResponseBody, Bytes};
use futures::StreamExt as _;
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, random};
use signpost_runtime::causes::causes;

/// The time in which a server must begin its response before a safe request goes to the next server. The last server has no such
/// limit: when all are slow, the request still succeeds. With a longer time, a leader with the default Lease could not change the
/// server within its term.
const PATIENCE: Duration = Duration::from_secs(3);
/// The age from which an unanswered request counts against the server when its caller cancels it. Callers have limits of their
/// own; the shortest is that of a leader whose Lease lasts for 3 seconds.
const GIVEN_UP: Duration = Duration::from_millis(500);
/// The time for which a failed server is the last choice: the first and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The path of the probe.
pub(super) const PROBE: &str = "/readyz";

/// The API servers of one platform; clones share which one is current.
#[derive(Clone, Debug, Default)]
pub struct Servers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The servers; empty: the server in the kubeconfig.
    urls: Vec<Uri>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: usize,
    servers: Vec<Server>,
    /// The time of the server's last response.
    heard: Option<Instant>,
}

#[derive(Debug)]
struct Server {
    failure: Option<Failure>,
    backoff: Backoff,
    /// Ends the watches on this server.
    watches: CancellationToken,
}

#[derive(Debug)]
struct Failure {
    until: Instant,
    reason: String,
}

impl Servers {
    /// Returns the set of these servers; if empty, the server in the kubeconfig.
    pub fn new(urls: Vec<Uri>) -> Servers {
        let choice = usize::try_from(random() >> 33).expect("31 bits");
        let server = |_: &Uri| Server {
            failure: None,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            watches: CancellationToken::new(),
        };
        let state = State {
            current: choice.checked_rem(urls.len()).unwrap_or(0),
            servers: urls.iter().map(server).collect(),
            heard: None,
        };
        Servers(Arc::new(Shared { urls, state: Mutex::new(state) }))
    }

    /// Returns a configuration for each server, derived from `config`, the kubeconfig's.
    pub(super) fn configurations(&self, config: kube::Config) -> Vec<kube::Config> {
        if self.0.urls.is_empty() {
            return vec![config];
        }
        let with = |url: &Uri| {
            let mut config = config.clone();
            config.cluster_url = url.clone();
            config
        };
        self.0.urls.iter().map(with).collect()
    }

    /// Returns one client that sends through the clients of the servers, in the order of [`Self::configurations`].
    pub(super) fn client(self, clients: Arc<[Client]>) -> Client {
        let namespace = clients[0].default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (servers, clients) = (self.clone(), Arc::clone(&clients));
            async move {
                let (head, body) = request.into_parts();
                servers.send(&clients, &head, &body.collect_bytes().await?).await
            }
        });
        Client::new(service, namespace)
    }

    /// Sends a request through the clients of the servers, in the order of [`Self::configurations`].
    pub(super) async fn send(
        &self,
        clients: &[Client],
        head: &Parts,
        body: &Bytes,
    ) -> kube::Result<Response<ResponseBody>> {
        let request = || Request::from_parts(head.clone(), Body::from(body.clone()));
        if let [only] = clients {
            return Ok(only.send(request()).await?.map(ResponseBody::new));
        }
        let is_safe = head.method.is_safe();
        let mut order = self.order().into_iter().peekable();
        while let Some(index) = order.next() {
            let is_last = order.peek().is_none();
            let attempt = Attempt { servers: self, index, since: Instant::now(), is_open: true };
            let answer = clients[index].send(request());
            let answer = match is_safe && !is_last {
                true => timeout(PATIENCE, answer).await,
                false => Ok(answer.await),
            };
            match answer {
                Ok(Ok(response)) if !is_unavailable(head, response.status()) => {
                    let watches = attempt.answered();
                    return Ok(response
                        .map(|body| if is_watch(head) { ended_by(watches, body) } else { ResponseBody::new(body) }));
                }
                Ok(Ok(unavailable)) => {
                    attempt.failed(unavailable.status().to_string());
                    if is_last || !is_safe {
                        return Ok(unavailable.map(ResponseBody::new));
                    }
                }
                Ok(Err(error)) => {
                    let is_unsent = match connection_fault(&error) {
                        Some(fault) => {
                            attempt.failed(innermost(fault));
                            fault.is_connect()
                        }
                        // The fault is in this process, such as a token that cannot be read.
                        None => return Err(attempt.void(error)),
                    };
                    if is_last || !(is_safe || is_unsent) {
                        return Err(error);
                    }
                }
                Err(_) => attempt.failed(format!("no answer within {} s", PATIENCE.as_secs())),
            }
        }
        unreachable!("the outcome of the last server is returned")
    }

    /// Returns whether there are several servers, and none has responded for `time`.
    pub(super) fn are_silent_for(&self, time: Duration) -> bool {
        self.0.urls.len() > 1 && self.0.state.lock().heard.is_none_or(|heard| heard.elapsed() >= time)
    }

    /// Returns the servers in the order in which a request tries them: the current one and its successors, then the failed ones.
    fn order(&self) -> Vec<usize> {
        let (state, now) = (self.0.state.lock(), Instant::now());
        let count = state.servers.len();
        let mut order: Vec<usize> = (0..count).map(|step| (state.current + step) % count).collect();
        // `None` sorts before any time, and the sort is stable.
        order.sort_by_key(|index| {
            state.servers[*index].failure.as_ref().map(|failure| failure.until).filter(|until| *until > now)
        });
        order
    }

    /// Records a response, and returns the token that ends the watches on that server.
    fn answered(&self, index: usize) -> CancellationToken {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.heard = Some(Instant::now());
        state.servers[index].failure = None;
        state.servers[index].backoff.reset();
        let watches = state.servers[index].watches.clone();
        let former = &mut state.servers[state.current];
        if let Some(failure) = former.failure.as_ref().filter(|_| state.current != index) {
            let (from, to) = (self.url(state.current), self.url(index));
            tracing::warn!("API server {from} does not answer ({}); using {to}", failure.reason);
            std::mem::take(&mut former.watches).cancel();
            state.current = index;
        }
        watches
    }

    fn failed(&self, index: usize, reason: String) {
        let mut state = self.0.state.lock();
        let server = &mut state.servers[index];
        let now = Instant::now();
        tracing::debug!(server = self.url(index), reason, "API server does not answer");
        // Many requests that fail together count as one failure.
        if server.failure.as_ref().is_none_or(|failure| failure.until <= now) {
            server.failure = Some(Failure { until: now + server.backoff.next_wait(), reason });
        }
    }

    fn url(&self, index: usize) -> String {
        text_of(&self.0.urls[index])
    }
}

/// Returns the URL of a server in the form that users write.
pub fn text_of(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

/// A request that a server has not answered yet.
struct Attempt<'a> {
    servers: &'a Servers,
    index: usize,
    since: Instant,
    is_open: bool,
}

impl Attempt<'_> {
    fn answered(mut self) -> CancellationToken {
        self.is_open = false;
        self.servers.answered(self.index)
    }

    fn failed(mut self, reason: String) {
        self.is_open = false;
        self.servers.failed(self.index, reason);
    }

    /// Ends the attempt without a result for the server.
    fn void<T>(mut self, outcome: T) -> T {
        self.is_open = false;
        outcome
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if self.is_open && waited >= GIVEN_UP {
            self.servers.failed(self.index, format!("no answer within {:.1} s", waited.as_secs_f64()));
        }
    }
}

fn is_unavailable(head: &Parts, status: StatusCode) -> bool {
    // A server that is not ready, or that shuts down, answers a probe with 500.
    status == StatusCode::SERVICE_UNAVAILABLE || head.uri.path() == PROBE && status.is_server_error()
}

fn is_watch(head: &Parts) -> bool {
    head.uri.query().unwrap_or_default().split('&').any(|pair| pair == "watch=true")
}

/// Returns the body of a watch, which also ends normally when `watches` is cancelled.
fn ended_by(watches: CancellationToken, body: Body) -> ResponseBody {
    let events = ResponseBody::new(body).into_data_stream();
    ResponseBody::from_stream(events.take_until(watches.cancelled_owned()))
}

/// Returns the fault of the connection, or of connecting.
fn connection_fault(error: &kube::Error) -> Option<&legacy::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn innermost(error: &legacy::Error) -> String {
    causes(error).last().expect("it begins with the error itself").to_string()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

    use axum::Router;
    use axum::extract::State as Shared;
    use http::Method;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::client::connect;

    const UNREACHABLE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    /// A server that answers with a fixed status, and counts the requests.
    struct TestServer {
        address: SocketAddr,
        status: Arc<AtomicU16>,
        requests: Arc<AtomicUsize>,
        task: AbortOnDropHandle<()>,
    }

    impl TestServer {
        async fn start(at: Option<SocketAddr>) -> TestServer {
            let listener = TcpListener::bind(at.unwrap_or(([127, 0, 0, 1], 0).into())).await.expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let (status, requests) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicUsize::new(0)));
            let answer = |Shared((status, requests)): Shared<(Arc<AtomicU16>, Arc<AtomicUsize>)>| async move {
                requests.fetch_add(1, Ordering::Relaxed);
                StatusCode::from_u16(status.load(Ordering::Relaxed)).expect("a status")
            };
            let service = Router::new().fallback(answer).with_state((Arc::clone(&status), Arc::clone(&requests)));
            let serve = async move { axum::serve(listener, service).await.expect("it serves") };
            TestServer { address, status, requests, task: AbortOnDropHandle::new(tokio::spawn(serve)) }
        }

        fn count(&self) -> usize {
            self.requests.load(Ordering::Relaxed)
        }
    }

    /// Returns the servers at these addresses, the first of which is current, with their clients.
    fn servers(addresses: &[SocketAddr]) -> (Servers, Vec<Client>) {
        let url = |address: &SocketAddr| format!("http://{address}").parse::<Uri>().expect("a URL");
        let servers = Servers::new(addresses.iter().map(url).collect());
        servers.0.state.lock().current = 0;
        let configs = servers.configurations(kube::Config::new(url(&addresses[0])));
        let clients = configs.into_iter().map(|config| connect(config).expect("a client")).collect();
        (servers, clients)
    }

    async fn send(servers: &Servers, clients: &[Client], method: Method, path: &str) -> Option<u16> {
        let (head, ()) = Request::builder().method(method).uri(path).body(()).expect("a request").into_parts();
        servers.send(clients, &head, &Bytes::new()).await.ok().map(|response| response.status().as_u16())
    }

    fn answers_after(time: Duration) -> Client {
        let answer = move |_| async move {
            tokio::time::sleep(time).await;
            Ok::<_, Infallible>(Response::new(ResponseBody::from("{}")))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn a_refused_connection_goes_to_the_next_server_which_stays() {
        let good = TestServer::start(None).await;
        for method in [Method::GET, Method::POST] {
            let (servers, clients) = servers(&[UNREACHABLE, good.address]);
            for _ in 0..3 {
                assert_eq!(send(&servers, &clients, method.clone(), "/x").await, Some(200), "{method}");
                assert_eq!(servers.order(), [1, 0], "{method}");
            }
        }
        assert_eq!(good.count(), 6);
    }

    #[tokio::test]
    async fn what_may_have_been_carried_out_is_not_repeated() {
        let good = TestServer::start(None).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let breaks = listener.local_addr().expect("it is bound");
        let _breaking = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.expect("a connection");
                let _ = connection.read(&mut [0; 1024]).await;
            }
        }));
        let (other_servers, clients) = servers(&[breaks, good.address]);
        assert_eq!(send(&other_servers, &clients, Method::POST, "/x").await, None);
        assert_eq!(good.count(), 0);
        assert_eq!(send(&other_servers, &clients, Method::POST, "/x").await, Some(200), "by the other server");
        let (servers, clients) = servers(&[breaks, good.address]);
        assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(200), "at once");
    }

    #[tokio::test]
    async fn a_server_that_is_not_available() {
        let (one, two) = (TestServer::start(None).await, TestServer::start(None).await);
        for (status, path, method, answer, order) in [
            (503, "/x", Method::GET, 200, [1, 0]),
            (503, "/x", Method::POST, 503, [1, 0]),
            (500, "/x", Method::GET, 500, [0, 1]),
            (504, "/x", Method::GET, 504, [0, 1]),
            (401, "/x", Method::GET, 401, [0, 1]),
            (500, PROBE, Method::GET, 200, [1, 0]),
        ] {
            one.status.store(status, Ordering::Relaxed);
            let (servers, clients) = servers(&[one.address, two.address]);
            assert_eq!(send(&servers, &clients, method.clone(), path).await, Some(answer), "{status} {method}");
            assert_eq!(servers.order(), order, "{status} {method}");
        }
        // All servers failed: the caller gets the response.
        two.status.store(503, Ordering::Relaxed);
        one.status.store(503, Ordering::Relaxed);
        let (servers, clients) = servers(&[one.address, two.address]);
        assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(503));
    }

    #[tokio::test]
    async fn all_are_down_until_one_returns() {
        let (one, two) = (TestServer::start(None).await, TestServer::start(None).await);
        let (servers, clients) = servers(&[one.address, two.address]);
        assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(200));
        let address = two.address;
        for server in [one, two] {
            server.task.abort();
            let _ = server.task.await;
        }
        for _ in 0..3 {
            assert_eq!(send(&servers, &clients, Method::GET, "/x").await, None);
        }
        let _two = TestServer::start(Some(address)).await;
        assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(200), "backoff delays no request");
        assert_eq!(servers.order(), [1, 0]);
    }

    #[tokio::test]
    async fn a_server_that_hangs() {
        let clients = [answers_after(Duration::from_secs(3600)), answers_after(Duration::ZERO)];
        let get = async {
            let (servers, _) = servers(&[UNREACHABLE, UNREACHABLE]);
            let began = Instant::now();
            assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(200));
            assert!(began.elapsed() >= PATIENCE, "{:?}", began.elapsed());
        };
        // A request that cannot be repeated waits as long as its caller does, and then counts as a failure.
        let put = async {
            let (servers, _) = servers(&[UNREACHABLE, UNREACHABLE]);
            let put = || timeout(GIVEN_UP * 11 / 10, send(&servers, &clients, Method::PUT, "/x"));
            assert!(put().await.is_err());
            assert_eq!(put().await, Ok(Some(200)));
        };
        // When both servers are slow, the last one has no time limit.
        let slow = async {
            let slow = [clients[0].clone(), answers_after(PATIENCE * 11 / 10)];
            let (servers, _) = servers(&[UNREACHABLE, UNREACHABLE]);
            assert_eq!(send(&servers, &slow, Method::GET, "/x").await, Some(200));
        };
        futures::join!(get, put, slow);
    }

    #[tokio::test]
    async fn watches_follow_to_the_next_server() {
        let watched = |_| async {
            let events = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{}\n"))]);
            let events = events.chain(futures::stream::pending());
            Ok::<_, Infallible>(Response::new(ResponseBody::from_stream(events)))
        };
        let clients = [Client::new(tower::service_fn(watched), "default"), answers_after(Duration::ZERO)];
        let (servers, _) = servers(&[UNREACHABLE, UNREACHABLE]);
        let (head, ()) = Request::get("/x?watch=true").body(()).expect("a request").into_parts();
        let response = servers.send(&clients, &head, &Bytes::new()).await.expect("a watch");
        let mut events = response.into_body().into_data_stream();
        assert!(events.next().await.is_some_and(|event| event.is_ok()));
        assert!(timeout(PATIENCE / 10, events.next()).await.is_err(), "it is open");
        servers.failed(0, "a test".to_owned());
        assert!(timeout(PATIENCE / 10, events.next()).await.is_err(), "no other server has answered yet");
        assert_eq!(send(&servers, &clients, Method::GET, "/x").await, Some(200));
        assert!(events.next().await.is_none(), "no event while all servers answer");
    }

    #[test]
    fn the_server_of_a_kubeconfig_is_replaced() {
        let url = |text: &str| text.parse::<Uri>().expect("a URL");
        let servers = Servers::new(vec![url("https://a.example:6443"), url("https://b.example/k8s")]);
        assert_eq!([servers.url(0), servers.url(1)], ["https://a.example:6443", "https://b.example/k8s"]);
        let config = kube::Config::new("https://c.example".parse().expect("a URL"));
        let of = |servers: &Servers| -> Vec<String> {
            let configurations = servers.configurations(config.clone());
            configurations.iter().map(|config| config.cluster_url.to_string()).collect()
        };
        assert_eq!(of(&servers), ["https://a.example:6443/", "https://b.example/k8s"]);
        assert_eq!(of(&Servers::default()), ["https://c.example/"]);
        assert!(!Servers::default().are_silent_for(Duration::ZERO));
    }
}
