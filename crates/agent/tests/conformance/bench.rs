//! A proxy with its directory and addresses, applications, and Sites.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use signpost_agent::proxy::haproxy::Haproxy;
use signpost_agent::proxy::isolation::Isolation;
use signpost_agent::proxy::nginx::{Nginx, ReloadPacing};
use signpost_agent::proxy::{Applied, Proxy};
use signpost_agent::render::Settings;
use signpost_agent::site::{Insecure, Server, Site, Upstream};
use signpost_types::v1alpha1::route::Termination;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A proxy under test; it ends with the value.
pub struct Bench {
    pub proxy: Box<dyn Proxy>,
    pub http: SocketAddr,
    pub https: SocketAddr,
    directory: TempDir,
    /// The name of the proxy.
    pub kind: &'static str,
    program: PathBuf,
    settings: Settings,
}

impl Bench {
    pub fn new(kind: &'static str) -> Bench {
        // The default directory of temporary files may have a long path.
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let (http, https) = (signpost_testing::free_address(), signpost_testing::free_address());
        let program = PathBuf::from(kind);
        let settings =
            Settings { http: vec![http], https: vec![https], public_https_port: https.port(), ..Settings::default() };
        let proxy = make(kind, &directory, &program, &settings);
        Bench { proxy, http, https, directory, kind, program, settings }
    }

    /// Changes the settings, before the first Site.
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Bench {
        change(&mut self.settings);
        self.restart_agent();
        self
    }

    /// Returns the files of the proxy that have a text.
    pub fn files_with(&self, text: &str) -> Vec<PathBuf> {
        let (mut directories, mut found) = (vec![self.directory.path().to_owned()], Vec::new());
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
                let path = entry.path();
                match std::fs::read_to_string(&path) {
                    _ if path.is_dir() => directories.push(path),
                    Ok(contents) if contents.contains(text) => found.push(path),
                    _ => {}
                }
            }
        }
        found
    }

    /// Replaces the agent by another one, which adopts the proxy.
    pub fn restart_agent(&mut self) {
        self.proxy = make(self.kind, &self.directory, &self.program, &self.settings);
    }

    /// Changes the limits of nginx's replaced workers, before the first Site.
    pub fn with_pace(mut self, pace: ReloadPacing) -> Bench {
        let directory = self.directory.path().join("proxy");
        let nginx =
            Nginx::with_pace(self.program.clone(), &directory, self.settings.clone(), &Isolation::default(), pace);
        self.proxy = Box::new(nginx.expect("a directory"));
        self
    }

    /// Makes the proxy's check fail whenever its configuration contains a text.
    pub fn reject(&mut self, text: &str) {
        let kind = self.kind;
        self.replace_program(&format!(
            "#!/bin/sh\nfor word; do case $word in -c|-t) if grep -rqF '{text}' *.c*f*; then echo 'refused by the test' >&2; exit 1; fi;; esac; done\nexec {kind} \"$@\"\n"
        ));
    }

    /// Runs a script instead of the proxy.
    pub fn replace_program(&mut self, script: &str) {
        let path = self.directory.path().join("program");
        std::fs::write(&path, script).expect("it is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
        self.program = path;
        self.restart_agent();
    }

    pub async fn apply(&mut self, site: &Site) -> Applied {
        self.proxy.apply(site, None).await.expect("the proxy follows")
    }

    /// Returns the path of a file in the directory of the test, in which the proxy has the directory `proxy`.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Sends a signal to the proxy's master; returns whether that runs.
    pub fn signal(&self, signal: &str) -> bool {
        let pid = std::fs::read_to_string(self.directory.path().join(format!("proxy/{}.pid", self.kind)));
        let kill =
            |pid: String| std::process::Command::new("kill").args([signal, pid.trim()]).stderr(Stdio::null()).status();
        pid.is_ok_and(|pid| kill(pid).is_ok_and(|status| status.success()))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It ends before its directory is removed.
        self.signal("-TERM");
        for _ in 0..200 {
            if !self.signal("-0") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn make(kind: &str, directory: &TempDir, program: &Path, settings: &Settings) -> Box<dyn Proxy> {
    let directory = directory.path().join("proxy");
    let (program, settings, isolation) = (program.to_owned(), settings.clone(), Isolation::default());
    match kind {
        "haproxy" => Box::new(Haproxy::new(program, &directory, settings, &isolation).expect("a directory")),
        _ => Box::new(Nginx::new(program, &directory, settings, &isolation).expect("a directory")),
    }
}

/// Starts an application that answers every request with its name; over TLS if it has a certificate. `/echo` is answered with the
/// request instead. The application claims to be a backend of its own.
pub async fn application(name: &'static str, tls: Option<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => serve(stream, name).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, name).await;
                        }
                    }
                }
            });
        }
    });
    address
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: &str) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8_lossy(&request).into_owned();
        request.clear();
        let body = if head.starts_with("GET /echo ") { head.as_str() } else { name };
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\nSignpost-Backend: forged\r\nContent-Length: {length}\r\n\r\n{body}");
        if stream.write_all(response.as_bytes()).await.is_err()
            || head.to_ascii_lowercase().contains("connection: close")
        {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// Starts an application that answers one request with `slow`, a second after it has reported the request.
pub async fn slow_application() -> (SocketAddr, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let (report, reported) = oneshot::channel();
    tokio::spawn(async move {
        let mut request = [0; 4096];
        let mut stream = loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            // A connection without a request is a check.
            if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                break stream;
            }
        };
        report.send(()).expect("the test waits");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nslow";
        stream.write_all(response).await.expect("the proxy reads");
    });
    (address, reported)
}

/// Adds a Route, for a host and a path, to a Site.
pub fn route(site: &mut Site, name: &str, host: &str, path: &str, upstream: Upstream) {
    let key = format!("test/{name}").parse().expect("a Route");
    let paths = site.hosts.entry(host.parse().expect("a host")).or_default();
    paths.insert(path.parse().expect("a path"), key);
    let upstream = Upstream { uid: uid(name), ..upstream };
    site.routes.insert(format!("test/{name}").parse().expect("a Route"), upstream);
}

/// Returns the UID of a Route.
pub fn uid(name: &str) -> String {
    format!("uid of {name}")
}

/// Returns an upstream without TLS.
pub fn plain(servers: &[(SocketAddr, u16)]) -> Upstream {
    let server = |&(address, weight): &(SocketAddr, u16)| Server { address, weight, tls_name: None };
    let mut servers: Vec<Server> = servers.iter().map(server).collect();
    servers.sort();
    Upstream { servers, ..Upstream::default() }
}

pub fn with_tls(address: SocketAddr, termination: Termination, insecure: Insecure) -> Upstream {
    let tls_name = (termination == Termination::Reencrypt).then(|| "web.test.svc".parse().expect("a host"));
    let servers = vec![Server { address, tls_name, weight: 1 }];
    Upstream { termination: Some(termination), insecure, servers, ..Upstream::default() }
}
