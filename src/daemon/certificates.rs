//! The certificates of the admin endpoints and of encrypted DNS: their sources, and their renewal.
//!
//! Each source returns the current certificate at each handshake. The sources are: files of the operator, checked every second;
//! in the process with the API, a certificate that the platform's CA signs and [`Access`] renews; elsewhere, one that a CA of
//! this process signs, in a directory of the data directory. The listeners request no client certificates: access to the
//! dashboard depends on the API's tokens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::ServerConfig;

use super::access::{self, Access, Origin};
use super::data_dir::DataDir;
use super::maintenance::{self, Maintenance, MaintenanceTask};
use crate::config::{AdminTls, Settings};
use signpost_control::compiler;
use signpost_runtime::tls::{self, Authority};

/// The directories of a process's own authorities in its data directory. That of the API's is another, since it signs users, too.
const ADMIN_FOLDER: &str = "admin-pki";
const DNS_FOLDER: &str = "dns-pki";
/// The owner of the certificates, for the log.
const ADMIN: &str = "the admin endpoint";
const DNS: &str = "encrypted DNS";

/// The certificates of a process, except the API's.
#[derive(Clone, Default)]
pub struct Certificates {
    /// The certificate of the admin endpoints; `None`: they use plain HTTP.
    pub admin: Option<Arc<Source>>,
    /// The certificate of the encrypted transports of DNS; `None`: there are none.
    pub dns: Option<Arc<Source>>,
}

impl Certificates {
    pub fn each(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.admin.iter().chain(&self.dns)
    }

    /// Reloads replaced files, even if their stamps are unchanged.
    pub fn reload(&self) {
        self.each().for_each(|source| source.reload());
    }
}

/// A served certificate.
pub struct Source {
    whose: &'static str,
    origin: Origin,
    /// Whether it is renewed and read here; [`Access`] does so for the API's.
    is_own: bool,
}

impl Source {
    /// Returns the certificate of the admin endpoints that the settings configure. They listen on `addresses`.
    pub fn admin(
        settings: &Settings,
        data_dir: Option<&DataDir>,
        access: Option<&Arc<Access>>,
        addresses: &[SocketAddr],
    ) -> Result<Option<Arc<Source>>, tls::Error> {
        let (origin, is_own) = match (&settings.admin_tls(), access, data_dir) {
            _ if addresses.is_empty() => return Ok(None),
            (AdminTls::Off, _, _) => return Ok(None),
            (AdminTls::Files { certificate, key }, _, _) => (Origin::files(certificate, key)?, true),
            (AdminTls::On, Some(access), _) => (access.shown(), false),
            (AdminTls::On, None, data_dir) => {
                (of_own_authority(data_dir, ADMIN_FOLDER, access::names(addresses, &settings.admin.name))?, true)
            }
        };
        Ok(Some(Arc::new(Source { whose: ADMIN, origin, is_own })))
    }

    /// Returns the certificate of encrypted DNS that the settings configure. Without files, it is for `names`; the certificate of
    /// [`Access`] includes them already.
    pub fn dns(
        settings: &Settings,
        data_dir: Option<&DataDir>,
        access: Option<&Arc<Access>>,
        names: Vec<String>,
    ) -> Result<Option<Arc<Source>>, tls::Error> {
        if !settings.has_encrypted_dns() {
            return Ok(None);
        }
        let (origin, is_own) = match (&settings.dns.certificate, &settings.dns.key, access) {
            (Some(certificate), Some(key), _) => (Origin::files(certificate, key)?, true),
            (.., Some(access)) => (Origin::Authority(access.authority()), false),
            (.., None) => (of_own_authority(data_dir, DNS_FOLDER, names)?, true),
        };
        Ok(Some(Arc::new(Source { whose: DNS, origin, is_own })))
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the TLS settings for HTTP.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, tls::Error> {
        tls::server_config(self.origin.certificate())
    }

    fn reload(&self) {
        if let (Origin::Files(served), true) = (&self.origin, self.is_own) {
            maintenance::log_read(self.whose, served.reload());
        }
    }
}

fn of_own_authority(
    data_dir: Option<&DataDir>,
    folder: &str,
    names: impl IntoIterator<Item = String>,
) -> Result<Origin, tls::Error> {
    let data_dir = data_dir.expect("the configuration was checked: this needs a data directory");
    Ok(Origin::Authority(Arc::new(Authority::open(&data_dir.join(folder), names, SystemTime::now())?)))
}

impl Maintenance for Source {
    fn maintain(&self, due: MaintenanceTask) {
        match (&self.origin, due) {
            _ if !self.is_own => {}
            (Origin::Files(served), MaintenanceTask::Look) => maintenance::log_read(self.whose, served.follow()),
            (Origin::Files(served), MaintenanceTask::Renewal) => maintenance::warn_of_end(self.whose, served),
            (Origin::Authority(authority), due) => {
                if due == MaintenanceTask::Look && authority.is_valid(SystemTime::now()) {
                    return;
                }
                if let Err(error) = authority.renew(SystemTime::now()) {
                    tracing::error!(%error, "failed to renew the certificate of {}", self.whose);
                }
            }
        }
    }
}

/// Returns the names and addresses of the platform's name servers, and where this one listens, for its certificate.
pub fn dns_names(settings: &Settings, platform: Option<&compiler::Settings>) -> Vec<String> {
    let listened: Vec<SocketAddr> = settings.encrypted_dns_addresses().collect();
    let servers = platform.map(compiler::Settings::name_servers).unwrap_or_default();
    let servers = servers.iter().flat_map(|server| {
        let addresses = server.addresses.iter().map(ToString::to_string);
        [compiler::settings::text_of(&server.name)].into_iter().chain(addresses)
    });
    access::names(&listened, &servers.collect::<Vec<_>>()).collect()
}

/// Warns of the risk of plain HTTP on an address that other machines can reach.
pub fn warn_of_plain(addresses: &[SocketAddr]) {
    for address in addresses.iter().filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "the admin endpoint at {address} uses plain HTTP: others on the network can read its metrics, and users \
             cannot sign in to its dashboard from another machine; set --admin-tls true, or listen on loopback"
        );
    }
}
