//! A client that follows a changing kubeconfig: other credentials, another authority, or another server, without a restart.
//!
//! Each request checks the stamps of the kubeconfig and of the files that it names, at most once per second, and immediately
//! after a 401. If one has changed, new clients are created, and the next request uses them. After a 401, the request is sent
//! again if the credentials changed; the server did not execute it. Open watches are unaffected. A kubeconfig that cannot be used
//! changes nothing: it is logged once, and read again until it is valid.
//!
//! With several API servers, this client sends a small request to the current one when none has responded for a while, so that
//! [`failover`](super::failover) also detects a server that hangs while all callers wait for events.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Body as ResponseBody;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use signpost_runtime::tls::served::{FileStamp, stamp_of};

use super::failover::{PROBE, Servers};
use super::{ClientError, backoff, connect, read};

/// The time between two checks of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The time without a response after which the current server is probed. A shorter one detects a server that hangs sooner, at the
/// price of one small request of each process.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) with_credentials: bool,
    /// The longest silence: see [`from_kubeconfig`](super::from_kubeconfig).
    pub(super) silence: Duration,
    pub(super) servers: Servers,
}

/// The clients, created from the files with these stamps.
struct LoadedClients {
    clients: Arc<[Client]>,
    files: Vec<(PathBuf, FileStamp)>,
}

struct Rotating {
    source: Source,
    made: Mutex<LoadedClients>,
    /// The time of the last check of the files, and its error.
    looked: Mutex<(Instant, Option<String>)>,
    _probe: AbortOnDropHandle<()>,
}

impl Source {
    /// Returns a client that follows the files.
    pub(super) async fn open(self) -> Result<Client, ClientError> {
        let made = self.make().await?;
        let namespace = made.clients[0].default_namespace().to_owned();
        let rotating = Arc::new_cyclic(|this: &Weak<Rotating>| Rotating {
            source: self,
            made: Mutex::new(made),
            looked: Mutex::new((Instant::now(), None)),
            _probe: AbortOnDropHandle::new(tokio::spawn(probe(this.clone()))),
        });
        let service = tower::service_fn(move |request| {
            let rotating = Arc::clone(&rotating);
            async move { rotating.send(request).await }
        });
        Ok(Client::new(service, namespace))
    }

    async fn make(&self) -> Result<LoadedClients, ClientError> {
        let (mut config, files) = read(&self.path).await?;
        if !self.with_credentials {
            config.auth_info = Default::default();
        }
        // A connection ends when nothing arrives for this time, counted again from each request that is sent on it.
        (config.read_timeout, config.write_timeout) = (Some(self.silence), Some(self.silence));
        config.reset_reader_on_write = true;
        let clients = self.servers.configurations(config).into_iter().map(connect).collect::<kube::Result<_>>();
        let clients = clients.map_err(|error| ClientError::built_from(&self.path.display(), error))?;
        Ok(LoadedClients { clients, files })
    }
}

impl Rotating {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<ResponseBody>> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        self.follow_files(LOOK_INTERVAL).await;
        let clients = self.clients();
        let response = self.source.servers.send(&clients, &head, &body).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.follow_files(Duration::ZERO).await;
        match self.clients() {
            same if Arc::ptr_eq(&same, &clients) => Ok(response),
            others => self.source.servers.send(&others, &head, &body).await,
        }
    }

    fn clients(&self) -> Arc<[Client]> {
        Arc::clone(&self.made.lock().clients)
    }

    /// Creates new clients if a file has changed, unless the last check was within `interval`.
    async fn follow_files(&self, interval: Duration) {
        let known_fault = {
            let mut looked = self.looked.lock();
            if looked.0.elapsed() < interval {
                return;
            }
            looked.0 = Instant::now();
            looked.1.clone()
        };
        let is_as_made = |(path, stamp): &(PathBuf, FileStamp)| stamp_of(path) == *stamp;
        if known_fault.is_none() && self.made.lock().files.iter().all(is_as_made) {
            return;
        }
        let fault = match self.source.make().await {
            Ok(made) => {
                tracing::info!(kubeconfig = %self.source.path.display(), "the kubeconfig changed; using its new \
                                                                          credentials");
                *self.made.lock() = made;
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = fault.as_ref().filter(|_| fault != known_fault) {
            tracing::warn!("{error}; still using the previous credentials");
        }
        self.looked.lock().1 = fault;
    }
}

async fn probe(this: Weak<Rotating>) {
    loop {
        sleep(backoff::delay(PROBE_INTERVAL, PROBE_INTERVAL, 0, backoff::random())).await;
        let Some(this) = this.upgrade() else { return };
        if this.source.servers.are_silent_for(PROBE_INTERVAL / 2) {
            let request = Request::get(PROBE).body(Body::empty()).expect("the path is valid");
            // The servers record the result.
            let _ = this.send(request).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::State;
    use http::HeaderMap;
    use http::header::AUTHORIZATION;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn other_credentials_are_used_without_a_restart() {
        let accepted = Arc::new(Mutex::new("one"));
        let answer = |State(accepted): State<Arc<Mutex<&'static str>>>, headers: HeaderMap| async move {
            let wanted = format!("Bearer {}", accepted.lock());
            if headers[AUTHORIZATION] == wanted { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        };
        let service = Router::new().fallback(answer).with_state(Arc::clone(&accepted));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
            axum::serve(listener, service).await.expect("it serves");
        }));

        let directory = tempfile::tempdir().expect("a directory");
        let (path, token_file) = (directory.path().join("kubeconfig"), directory.path().join("token"));
        let write = |user: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: a, user: u}}}}]\n\
                 clusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            );
            std::fs::write(&path, text).expect("written");
        };
        write("{token: one}");
        let (silence, servers) = (Duration::from_secs(60), Servers::default());
        let source = Source { path: path.clone(), with_credentials: true, silence, servers };
        let client = source.open().await.expect("a client");
        let status = async || {
            let request = Request::post("/x").body(Body::from(b"a body".to_vec())).expect("a request");
            client.send(request).await.expect("an answer").status().as_u16()
        };
        assert_eq!(status().await, 200);
        *accepted.lock() = "second";
        assert_eq!(status().await, 401, "nothing has changed");
        write("{token: second}");
        assert_eq!(status().await, 200, "the refused request was sent again");
        std::fs::write(&path, "apiVersion: v1\nkind: Config\nclusters: 7\n").expect("written");
        sleep(LOOK_INTERVAL).await;
        for _ in 0..2 {
            assert_eq!(status().await, 200, "with the former token");
        }
        *accepted.lock() = "of a file";
        std::fs::write(&token_file, "of a file").expect("written");
        write("{tokenFile: token}");
        assert_eq!(status().await, 200);
        *accepted.lock() = "another of the file";
        std::fs::write(&token_file, "another of the file").expect("written");
        assert_eq!(status().await, 200);
    }
}
