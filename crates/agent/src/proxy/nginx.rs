//! nginx: every change is a new configuration, which the master process reloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Signal, geteuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Applied, CHECK_TIMEOUT, Check, PAUSE, Proxy, ProxyError, Rejected, Running, kill_remains, prepare, read, run_check,
    write_files,
};
use crate::render::nginx::{CONFIG, GENERATION_SOCKET, SOCKETS, files};
use crate::render::{AUTHORITIES, DEFAULT_CERTIFICATE, Settings};
use crate::site::{Changes, Site};

/// The name of its processes.
const NAME: &str = "nginx";
/// The file in which nginx writes its process id.
const PID_FILE: &str = "nginx.pid";
/// The time for the response with the generation.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The responses in a row that must have the new generation. Workers that are replaced accept connections for some milliseconds.
const RESPONSES: usize = 3;

/// nginx 1.22 or later with its stream module.
pub struct Nginx {
    program: PathBuf,
    directory: PathBuf,
    settings: Settings,
    running: Option<Running>,
    /// The Site that nginx serves; `None` if it is unknown.
    served: Option<Site>,
    generation: u64,
    rejected: Rejected,
}

impl Nginx {
    /// Creates a proxy that keeps its files in a directory, which one agent at a time uses. The directory has or gets `default.pem`,
    /// the certificate for unknown hosts.
    pub fn new(program: PathBuf, directory: &Path, settings: Settings) -> Result<Nginx, ProxyError> {
        let directory = prepare(directory)?;
        let rejected = Rejected::default();
        Ok(Nginx { program, directory, settings, running: None, served: None, generation: 0, rejected })
    }

    fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(Running::is_alive)
    }

    async fn reload(&mut self, site: &Site) -> Result<(), ProxyError> {
        let mut rejected = std::mem::take(&mut self.rejected);
        let accepted = rejected.search(site, self).await;
        self.rejected = rejected;
        let accepted = accepted?;
        self.generation += 1;
        write_files(&self.directory, &self.files(&accepted)?)?;
        if self.is_running() {
            self.running.as_ref().inspect(|running| running.signal(Signal::HUP));
        } else {
            // A killed master leaves workers, which keep the listeners open, and sockets.
            kill_remains(NAME, &self.directory).await;
            for socket in SOCKETS {
                let _ = std::fs::remove_file(self.directory.join(socket));
            }
            let child = self.command(&self.directory).process_group(0).spawn();
            self.running = Running::started(child.map_err(ProxyError::io(self.program.display().to_string()))?);
        }
        self.wait_for_generation().await?;
        self.served = Some(accepted);
        Ok(())
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        // The sockets' paths are relative to the working directory, all others to the prefix.
        command.current_dir(directory).stdin(Stdio::null()).arg("-p").arg(directory);
        command.args(["-e", "stderr", "-c", CONFIG]);
        if geteuid().is_root() {
            // Otherwise workers could not enter the directory, which holds keys.
            command.args(["-g", "user root;"]);
        }
        command
    }

    /// Returns all files, with those that come from elsewhere.
    fn files(&self, site: &Site) -> Result<BTreeMap<String, String>, ProxyError> {
        let mut files = files(site, &self.settings, self.generation);
        files.insert(DEFAULT_CERTIFICATE.to_owned(), read(&self.directory.join(DEFAULT_CERTIFICATE))?);
        files.insert("temporary/readme".to_owned(), "nginx buffers requests and responses here.\n".to_owned());
        if let Some(path) = &self.settings.upstream_authorities {
            files.insert(AUTHORITIES.to_owned(), read(path)?);
        }
        Ok(files)
    }

    /// Queries nginx for the generation of its configuration.
    async fn running_generation(&self) -> Option<u64> {
        let exchange = async {
            let mut stream = UnixStream::connect(self.directory.join(GENERATION_SOCKET)).await?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
            let mut response = String::new();
            stream.take(4_096).read_to_string(&mut response).await?;
            std::io::Result::Ok(response)
        };
        let response = timeout(RESPONSE_TIMEOUT, exchange).await.ok()?.ok()?;
        response.rsplit_once("\r\n\r\n")?.1.parse().ok()
    }

    async fn wait_for_generation(&mut self) -> Result<(), ProxyError> {
        let deadline = Instant::now() + CHECK_TIMEOUT;
        let mut seen = 0;
        while seen < RESPONSES {
            seen = if self.running_generation().await == Some(self.generation) { seen + 1 } else { 0 };
            if !self.is_running() {
                return Err(ProxyError::Rejected("nginx ended while it started".to_owned()));
            }
            if Instant::now() > deadline {
                return Err(ProxyError::Timeout("the start of nginx's workers"));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Check for Nginx {
    async fn check(&self, site: &Site) -> Result<(), ProxyError> {
        let directory = self.directory.join("check");
        write_files(&directory, &self.files(site)?)?;
        let mut command = self.command(&directory);
        command.args(["-t", "-q"]).kill_on_drop(true);
        run_check(command).await
    }
}

#[async_trait]
impl Proxy for Nginx {
    async fn adopt(&mut self) -> bool {
        if self.running.is_none() {
            self.running = Running::adopt(NAME, &self.directory, PID_FILE);
            self.generation = self.running_generation().await.unwrap_or_default();
        }
        self.is_running()
    }

    async fn apply(&mut self, site: &Site, _: Option<&Changes>) -> Result<Applied, ProxyError> {
        let runs = self.adopt().await;
        let wanted = self.rejected.filter(site);
        let served = self.served.take();
        let reloaded = !runs || served.as_ref() != Some(&*wanted);
        if reloaded {
            self.reload(&wanted).await?;
        } else {
            self.served = served;
        }
        Ok(Applied { reloaded, faults: self.rejected.faults() })
    }

    async fn stop(&mut self, drain: Duration) {
        self.served = None;
        if let Some(running) = self.running.take() {
            running.stop(Signal::QUIT, drain).await;
        }
    }
}
