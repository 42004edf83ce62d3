//! Who gets into the API: certificates, tokens and the kubeconfigs that the process writes for others.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::data_dir::DataDir;
use crate::api::identity::{GROUP_MASTERS, USER_ADMIN, USER_NAME_SERVER, USER_SCHEDULER};
use crate::config::Settings;
use crate::tls::kubeconfig::{self, Client};
use crate::tls::{self, Authority, tokens};

/// The kubeconfigs, and whom each is for.
const KUBECONFIGS: &[(&str, Client<'static>)] = &[
    ("kubeconfig", Client { user: USER_ADMIN, groups: &[GROUP_MASTERS] }),
    ("scheduler.kubeconfig", Client { user: USER_SCHEDULER, groups: &[] }),
    ("name-server.kubeconfig", Client { user: USER_NAME_SERVER, groups: &[] }),
];

/// How often certificates are looked at. A certificate is renewed weeks before it ends.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// What lets clients into the API.
pub struct Access {
    authority: Arc<Authority>,
    folder: PathBuf,
    server_url: String,
}

impl Access {
    /// Makes or finds certificates for an API that listens on `addresses`.
    pub fn open(data_dir: &DataDir, settings: &Settings, addresses: &[SocketAddr]) -> Result<Self, tls::Error> {
        let listened = addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_unspecified());
        let names = tls::loopback_names()
            .into_iter()
            .chain(listened.map(|address| address.to_string()))
            .chain(settings.api_names.iter().cloned())
            .chain(host_name());
        let authority = Authority::open(&data_dir.join("pki"), names, SystemTime::now())?;
        let server_url = server_url(&settings.api_names, addresses);
        Ok(Access { authority: Arc::new(authority), folder: data_dir.join(""), server_url })
    }

    /// Writes the kubeconfigs, and returns the text of the file of tokens.
    pub fn kubeconfigs(&self) -> Result<String, tls::Error> {
        let path = self.folder.join("pki/tokens");
        let mut entries = tokens::load(&path)?;
        let authority_pem = self.authority.certificate_pem();
        let mut changed = false;
        for (file, client) in KUBECONFIGS {
            let path = self.folder.join(file);
            changed |= kubeconfig::ensure(&path, *client, &self.server_url, &authority_pem, &mut entries)?;
        }
        if changed {
            tokens::save(&path, &entries)?;
        }
        Ok(tls::files::read(&path)?.unwrap_or_default())
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Where clients find the API.
    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Renews certificates when they are due, until `stop` fires.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RENEWAL_INTERVAL) => {}
            }
            let access = self.clone();
            // Files are written and synced: not on a thread that others wait for.
            let renewed = tokio::task::spawn_blocking(move || {
                let renewed = access.authority.renew(SystemTime::now())?;
                if renewed.authority {
                    access.kubeconfigs()?;
                }
                Ok::<_, tls::Error>(renewed)
            });
            match renewed.await {
                Ok(Ok(renewed)) if renewed.server => tracing::info!("the API's certificate was renewed"),
                Ok(Err(error)) => tracing::error!(%error, "the API's certificates cannot be renewed"),
                _ => {}
            }
        }
    }
}

/// The URL that stands in kubeconfigs: the first given name, else the first address; for "all addresses", loopback.
fn server_url(names: &[String], addresses: &[SocketAddr]) -> String {
    let first = addresses.first().expect("the API listens on one address at least");
    let port = first.port();
    match names.first().map(|name| (name, name.parse::<IpAddr>())) {
        Some((name, Err(_))) => format!("https://{name}:{port}"),
        Some((_, Ok(address))) => format!("https://{}", SocketAddr::new(address, port)),
        None if first.ip().is_unspecified() && first.is_ipv6() => format!("https://[::1]:{port}"),
        None if first.ip().is_unspecified() => format!("https://127.0.0.1:{port}"),
        None => format!("https://{first}"),
    }
}

/// This machine's name, if it has one that a certificate can hold.
fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim().to_ascii_lowercase();
    crate::api::names::check_domain(&name).ok().map(|()| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (names, address, url) in [
            (&[][..], "127.0.0.1:6453", "https://127.0.0.1:6453"),
            (&[], "[::1]:1", "https://[::1]:1"),
            (&[], "0.0.0.0:2", "https://127.0.0.1:2"),
            (&[], "[::]:3", "https://[::1]:3"),
            (&["api.example"], "0.0.0.0:4", "https://api.example:4"),
            (&["2001:db8::1"], "[::]:5", "https://[2001:db8::1]:5"),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(server_url(&names, &[address.parse().expect("an address")]), url);
        }
    }
}
