//! TLS of the admin endpoints: which certificate they show, and how it is kept fresh.
//!
//! Three sources, each of which gives the newest certificate at each handshake: files of the operator's, looked at every
//! second; in the process with the API the certificate that the API shows, which is kept by [`Access`]; elsewhere one that
//! an authority of this process's own signs, in the folder `admin-pki` of the data directory. No client is asked for a
//! certificate: who may see what in the dashboard, the API's tokens say.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::ResolvesServerCert;

use super::access::{self, Access};
use super::data_dir::DataDir;
use super::maintenance::{self, Maintenance, MaintenanceTask};
use crate::config::{AdminTls, Settings};
use signpost_runtime::tls::served::Served;
use signpost_runtime::tls::{self, Authority};

/// The folder of a process's own authority in its data directory. That of the API's is another, since it signs users, too.
const FOLDER: &str = "admin-pki";
/// Whose certificate it is, for the log.
const WHOSE: &str = "the admin endpoint";

/// Where the certificate comes from.
pub enum Source {
    Api(Arc<Access>),
    Files(Arc<Served>),
    Own(Box<Authority>),
}

impl Source {
    /// What the settings say; `None` if the endpoints speak plain HTTP. `addresses` are listened on.
    pub fn open(
        settings: &Settings,
        data_dir: Option<&DataDir>,
        access: Option<&Arc<Access>>,
        addresses: &[SocketAddr],
    ) -> Result<Option<Arc<Source>>, tls::Error> {
        let source = match (&settings.admin_tls(), access, data_dir) {
            _ if addresses.is_empty() => return Ok(None),
            (AdminTls::Off, _, _) => return Ok(None),
            (AdminTls::Files { certificate, key }, _, _) => Source::Files(Arc::new(Served::open(certificate, key)?)),
            (AdminTls::On, Some(access), _) => Source::Api(access.clone()),
            (AdminTls::On, None, Some(data_dir)) => {
                let names = access::names(addresses, &settings.admin.name);
                Source::Own(Box::new(Authority::open(&data_dir.join(FOLDER), names, SystemTime::now())?))
            }
            (AdminTls::On, None, None) => unreachable!("the configuration was checked: this needs a data directory"),
        };
        Ok(Some(Arc::new(source)))
    }

    pub fn server_config(&self) -> Result<Arc<ServerConfig>, tls::Error> {
        tls::server_config(match self {
            Source::Api(access) => access.certificate(),
            Source::Files(served) => served.clone() as Arc<dyn ResolvesServerCert>,
            Source::Own(authority) => authority.certificate(),
        })
    }

    /// Whether the certificate is valid for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        match self {
            Source::Api(access) => access.is_for(name),
            Source::Files(served) => served.is_for(name),
            Source::Own(authority) => authority.is_for(name),
        }
    }

    /// The validity period of the admin endpoint's certificate, in seconds since 1970.
    pub fn period(&self) -> Option<Range<i64>> {
        match self {
            Source::Api(access) => access.periods()[0].clone(),
            Source::Files(served) => served.period(),
            Source::Own(authority) => authority.server_period(),
        }
    }

    /// Takes up files that were replaced, whether they look so or not.
    pub fn reload(&self) {
        if let Source::Files(served) = self {
            maintenance::log_read(WHOSE, served.reload());
        }
    }
}

impl Maintenance for Source {
    fn maintain(&self, due: MaintenanceTask) {
        match (self, due) {
            (Source::Files(served), MaintenanceTask::Look) => maintenance::log_read(WHOSE, served.follow()),
            (Source::Files(served), MaintenanceTask::Renewal) => maintenance::warn_of_end(WHOSE, served),
            (Source::Own(authority), due) => {
                if due == MaintenanceTask::Look && authority.is_valid(SystemTime::now()) {
                    return;
                }
                if let Err(error) = authority.renew(SystemTime::now()) {
                    tracing::error!(%error, "the admin endpoint's certificate cannot be renewed");
                }
            }
            // The API looks after its own.
            (Source::Api(_), _) => {}
        }
    }
}

/// Says what it means that an address which others reach speaks plain HTTP.
pub fn warn_of_plain(addresses: &[SocketAddr]) {
    for address in addresses.iter().filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "the admin endpoint at {address} speaks plain HTTP: whoever is on the way can read its numbers, and nobody \
             can sign in to its dashboard from another machine; give --admin-tls true, or listen on loopback"
        );
    }
}
