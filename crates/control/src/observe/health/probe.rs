//! One probe of one address: a TCP connection, or an HTTP or HTTPS request.
//!
//! A probe goes to the address itself, regardless of its host's DNS records. It follows no redirects, uses no proxy of the
//! environment, does not reuse connections, and reads no body: it verifies that a new client is served now.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::HOST;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use crate::client::transport_error::cause_text;
use crate::observe::network::simulated;
use signpost_runtime::trust;
use signpost_types::statuses::Statuses;
use signpost_types::v1alpha1::router::{CheckKind, HealthCheck};

/// The expected name in the certificate.
const TLS_NAME: &str = "healthCheck.host, or than the address where that is absent";

/// The probe for each address of a Router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    kind: CheckKind,
    port: u16,
    timeout: Duration,
    path: String,
    statuses: Statuses,
    host: Option<String>,
    insecure: bool,
}

impl Check {
    /// Returns the probe for a Router's spec. Values that the API server would reject are replaced by the nearest valid ones, for
    /// clusters without its rules.
    pub fn new(spec: &HealthCheck) -> Self {
        let path = if spec.path.starts_with('/') { spec.path.clone() } else { format!("/{}", spec.path) };
        let any_good = || Statuses::parse("200-399").expect("a constant that reads");
        Check {
            kind: spec.kind,
            port: spec.port,
            timeout: Duration::from_secs(u64::from(spec.timeout_seconds.max(1))),
            path,
            statuses: Statuses::parse(&spec.expected_statuses).unwrap_or_else(|_| any_good()),
            host: spec.host.clone().filter(|host| !host.is_empty()),
            insecure: spec.insecure,
        }
    }
}

/// The reason why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The probe cannot be sent, which is a fault of this machine.
    #[error("{0}")]
    Unusable(String),
    /// There is no connection, or it broke.
    #[error("{0}")]
    Unreachable(String),
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The response has an unexpected status.
    #[error("answered with HTTP status {0}")]
    Status(u16),
    /// The prober panicked.
    #[error("the probe failed because of a bug in the prober")]
    Broken,
}

/// The shared clients of probes, created on first use, because reading the system's authorities takes time.
#[derive(Default)]
pub struct Clients {
    plain: OnceLock<Result<reqwest::Client, ProbeError>>,
    /// The trust in the system's authorities; clones share it.
    trust: OnceLock<ClientConfig>,
}

impl Clients {
    fn trust(&self) -> ClientConfig {
        self.trust.get_or_init(trust::of_system).clone()
    }
}

/// Probes of one address.
#[derive(Clone)]
pub struct Probe {
    address: SocketAddr,
    check: Check,
    client: Option<reqwest::Client>,
}

impl Probe {
    /// Prepares a probe of `address`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Unusable`]: the client cannot be created.
    pub fn new(address: IpAddr, check: Check, clients: &Clients) -> Result<Self, ProbeError> {
        let address = SocketAddr::new(address, check.port);
        let client = match check.kind {
            CheckKind::Tcp => None,
            CheckKind::Http => Some(
                clients.plain.get_or_init(|| built(builder().tls_backend_preconfigured(clients.trust()))).clone()?,
            ),
            CheckKind::Https => {
                let builder = if check.insecure {
                    builder().tls_danger_accept_invalid_certs(true)
                } else {
                    builder().tls_backend_preconfigured(clients.trust())
                };
                let builder = match &check.host {
                    Some(host) => builder.resolve(host, address),
                    None => builder,
                };
                Some(built(builder)?)
            }
        };
        Ok(Probe { address, check, client })
    }

    /// Probes once.
    ///
    /// # Errors
    ///
    /// The reason why the address is not healthy.
    pub async fn run(self) -> Result<(), ProbeError> {
        let limit = self.check.timeout;
        let outcome = timeout(limit, async {
            if let Some(answer) = simulated(self.address, self.check.host.as_deref().unwrap_or_default()) {
                return answer.await.map(drop).map_err(ProbeError::Unreachable);
            }
            match &self.client {
                None => {
                    let connected = TcpStream::connect(self.address).await;
                    connected.map(drop).map_err(|error| ProbeError::Unreachable(error.to_string()))
                }
                Some(client) => self.request(client).await,
            }
        });
        outcome.await.unwrap_or(Err(ProbeError::Timeout(limit)))
    }

    async fn request(&self, client: &reqwest::Client) -> Result<(), ProbeError> {
        let Check { kind, path, statuses, host, port, .. } = &self.check;
        // The host in an HTTPS URL is the name in TLS SNI and the expected name in the certificate.
        let url = match (kind, host) {
            (CheckKind::Https, Some(host)) => format!("https://{host}:{port}{path}"),
            (CheckKind::Https, None) => format!("https://{}{path}", self.address),
            _ => format!("http://{}{path}", self.address),
        };
        let mut request = client.get(url);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        let response = request.send().await.map_err(|error| ProbeError::Unreachable(cause_text(error, TLS_NAME)))?;
        match response.status().as_u16() {
            code if statuses.contains(code) => Ok(()),
            code => Err(ProbeError::Status(code)),
        }
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(0)
        .user_agent(concat!("signpost-health/", env!("CARGO_PKG_VERSION")))
}

fn built(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, ProbeError> {
    builder.build().map_err(|error| ProbeError::Unusable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        (listener, port)
    }

    /// Reads a request and responds with 200 if path and host are correct, otherwise with another status.
    async fn answer(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut octets = [0; 512];
            match stream.read(&mut octets).await {
                Ok(count) if count > 0 => request.extend_from_slice(&octets[..count]),
                _ => return,
            }
        }
        let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let status = match () {
            () if request.starts_with("get /moved ") => "301 Moved\r\nLocation: /ok",
            () if !request.starts_with("get /ok ") => "404 Not Found",
            () if request.contains("\r\nhost: app.example\r\n") => "200 OK",
            () => "421 Misdirected Request",
        };
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.write_all(response.as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    async fn serve_http() -> u16 {
        let (listener, port) = listener().await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        port
    }

    async fn serve_https() -> u16 {
        let (listener, port) = listener().await;
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["app.example".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("they belong together");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream).await;
                    }
                });
            }
        });
        port
    }

    async fn probe(check: Value) -> Result<(), ProbeError> {
        // The daemon does this at its start; another test may have done it first.
        let _ = aws_lc_rs::default_provider().install_default();
        let check = Check::new(&serde_json::from_value(check).expect("a check"));
        let address = "127.0.0.1".parse().expect("an address");
        Probe::new(address, check, &Clients::default())?.run().await
    }

    #[tokio::test]
    async fn over_tcp() {
        let (_listener, port) = listener().await;
        assert_eq!(probe(json!({"port": port, "timeoutSeconds": 60})).await, Ok(()));
        // No other process gets the port, and it has no listener.
        let deaf = tokio::net::TcpSocket::new_v4().expect("a socket");
        deaf.bind("127.0.0.1:0".parse().expect("an address")).expect("loopback has a free port");
        let port = deaf.local_addr().expect("it is bound").port();
        let refused = probe(json!({"port": port})).await.expect_err("no process listens");
        assert!(refused.to_string().contains("refused"), "{refused}");
    }

    #[tokio::test]
    async fn over_http() {
        let port = serve_http().await;
        for (more, error) in [
            (json!({"path": "/ok", "host": "app.example"}), None),
            (json!({"path": "/ok"}), Some("HTTP status 421")),
            (json!({"path": "/other", "host": "app.example"}), Some("HTTP status 404")),
            (json!({"path": "/other", "expectedStatuses": "404"}), None),
            // A redirect is an answer, and not followed.
            (json!({"path": "/moved", "host": "app.example"}), None),
            (json!({"path": "/moved", "host": "app.example", "expectedStatuses": "200"}), Some("HTTP status 301")),
        ] {
            let mut check = json!({"type": "http", "port": port, "timeoutSeconds": 60});
            check.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let outcome = probe(check).await;
            match error {
                None => assert_eq!(outcome, Ok(()), "{more}"),
                Some(error) => {
                    assert!(
                        outcome.as_ref().is_err_and(|cause_text| cause_text.to_string().contains(error)),
                        "{more} {outcome:?}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn over_https() {
        let port = serve_https().await;
        let check = |insecure| {
            json!({"type": "https", "port": port, "path": "/ok", "host": "app.example", "insecure": insecure,
                   "timeoutSeconds": 20})
        };
        assert_eq!(probe(check(true)).await, Ok(()), "the probe connects to the address and does not resolve the name");
        let refused = probe(check(false)).await.expect_err("no authority signed the certificate");
        assert_eq!(refused.to_string(), "the certificate is not signed by an authority that this machine trusts");
    }

    #[tokio::test]
    async fn who_accepts_and_says_nothing_is_not_healthy() {
        let (listener, port) = listener().await;
        let silent = probe(json!({"type": "http", "port": port, "timeoutSeconds": 1})).await;
        assert_eq!(silent.expect_err("it sends no response").to_string(), "no answer within 1 s");
        drop(listener);
    }
}
