//! Access to the API: certificates, tokens, users, and the kubeconfigs that the process writes for others.
//!
//! Changes that operators make while the process runs take effect without a restart: `maintenance` checks every second whether a
//! file was replaced, and SIGHUP makes it check immediately ([`Access::reload`]). An invalid file changes nothing and is logged.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::ResolvesServerCert;

use super::data_dir::DataDir;
use super::maintenance::{self, Maintenance, MaintenanceTask};
use crate::config::{Engine, Settings};
use signpost_api::access::GROUP_ROUTER_AGENTS;
use signpost_api::identity::{GROUP_MASTERS, USER_ADMIN, USER_NAME_SERVER, USER_ROUTER_AGENT, USER_SCHEDULER};
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::certificate::Revocations;
use signpost_apiserver::auth::jwks::RefreshPolicy;
use signpost_apiserver::auth::jwt::Issuer;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_runtime::tls::kubeconfig::{self, Client, Trust};
use signpost_runtime::tls::served::{FileStamp, Served, stamp_of};
use signpost_runtime::tls::users::{self, CredentialKind, UserStore};
use signpost_runtime::tls::{self, Authority, tokens};

pub const NAME_SERVER_KUBECONFIG: &str = "name-server.kubeconfig";

/// The kubeconfig of the agents of instances.
pub const ROUTER_AGENT_KUBECONFIG: &str = "router-agent.kubeconfig";

pub const KUBECONFIGS: &[(&str, Client<'static>)] = &[
    ("kubeconfig", Client { user: USER_ADMIN, groups: &[GROUP_MASTERS] }),
    ("scheduler.kubeconfig", Client { user: USER_SCHEDULER, groups: &[] }),
    (NAME_SERVER_KUBECONFIG, Client { user: USER_NAME_SERVER, groups: &[] }),
    (ROUTER_AGENT_KUBECONFIG, Client { user: USER_ROUTER_AGENT, groups: &[GROUP_ROUTER_AGENTS] }),
];

/// The owner of the certificate, for the log.
const WHOSE: &str = "the API";

/// The origin of a certificate that clients see.
#[derive(Clone)]
pub enum Origin {
    /// Files of the operator.
    Files(Arc<Served>),
    /// A CA of the platform or of this process.
    Authority(Arc<Authority>),
}

impl Origin {
    pub fn files(certificate: &Path, key: &Path) -> Result<Origin, tls::Error> {
        Ok(Origin::Files(Arc::new(Served::open(certificate, key)?)))
    }

    /// Returns the certificate, the newest one at each handshake.
    pub fn certificate(&self) -> Arc<dyn ResolvesServerCert> {
        match self {
            Origin::Files(served) => served.clone(),
            Origin::Authority(authority) => authority.certificate(),
        }
    }

    /// Returns whether the certificate is valid for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        match self {
            Origin::Files(served) => served.is_for(name),
            Origin::Authority(authority) => authority.is_for(name),
        }
    }

    /// Returns the validity period of the certificate, in seconds since 1970.
    pub fn period(&self) -> Option<Range<i64>> {
        match self {
            Origin::Files(served) => served.period(),
            Origin::Authority(authority) => authority.server_period(),
        }
    }
}

pub struct Access {
    authority: Arc<Authority>,
    authenticator: Arc<Authenticator>,
    /// The certificate that the API shows.
    shown: Origin,
    trusted: Option<PathBuf>,
    folder: PathBuf,
    server_url: String,
    /// The name of this machine, where several API servers share tokens.
    machine: Option<String>,
    /// The stamps of the files of users and tokens at the last read.
    seen: Mutex<[FileStamp; 2]>,
}

impl Access {
    /// Creates or loads certificates for an API that listens on `addresses`, writes the kubeconfigs, and reads the users. The
    /// certificate is valid for `further` names as well.
    pub fn open(
        data_dir: &DataDir,
        settings: &Settings,
        addresses: &[SocketAddr],
        further: Vec<String>,
    ) -> Result<Self, tls::Error> {
        let names = names(addresses, &settings.api.name).chain(further);
        let authority = Arc::new(Authority::open(&data_dir.join("pki"), names, SystemTime::now())?);
        let shown = match (&settings.api.tls_certificate, &settings.api.tls_key) {
            (Some(certificate), Some(key)) => Origin::files(certificate, key)?,
            _ => Origin::Authority(authority.clone()),
        };
        let issuers =
            settings.jwt_issuer.iter().map(|issuer| Issuer::new(issuer.clone(), RefreshPolicy::default())).collect();
        let access = Access {
            authority,
            authenticator: Arc::new(Authenticator::default().with_issuers(issuers)),
            shown,
            trusted: settings.api.tls_ca.clone(),
            folder: data_dir.join(""),
            server_url: server_url(&settings.api.name, addresses),
            machine: (settings.store == Engine::Etcd).then(|| data_dir.instance()).transpose()?,
            seen: Mutex::default(),
        };
        access.write_kubeconfigs()?;
        let seen = access.file_states();
        access.read_users()?;
        *access.seen.lock() = seen;
        Ok(access)
    }

    pub fn authenticator(&self) -> Arc<Authenticator> {
        self.authenticator.clone()
    }

    pub fn server_config(&self) -> Result<Arc<ServerConfig>, tls::Error> {
        let served = if let Origin::Files(served) = &self.shown { Some(served.clone()) } else { None };
        self.authority.server_config(served)
    }

    /// Returns the origin of the certificate that the API shows.
    pub fn shown(&self) -> Origin {
        self.shown.clone()
    }

    /// Returns the platform's certificate authority, which this keeps.
    pub fn authority(&self) -> Arc<Authority> {
        self.authority.clone()
    }

    /// Returns the validity periods of the API's certificate and of the authority's, in seconds since 1970.
    pub fn periods(&self) -> [Option<Range<i64>>; 2] {
        [self.shown.period(), self.authority.period()]
    }

    /// Returns the administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Returns the URL of the API for clients.
    pub fn server_url(&self) -> &str {
        &self.server_url
    }

    /// Reloads replaced files, even if their stamps are unchanged.
    pub fn reload(&self) {
        let seen = self.file_states();
        self.take_users();
        if let Origin::Files(served) = &self.shown {
            maintenance::log_read(WHOSE, served.reload());
        }
        *self.seen.lock() = seen;
    }

    fn follow_files(&self) {
        let now = self.file_states();
        if now != *self.seen.lock() {
            self.take_users();
        }
        if let Origin::Files(served) = &self.shown {
            maintenance::log_read(WHOSE, served.follow());
        }
        *self.seen.lock() = now;
    }

    fn renew(&self) {
        let renewed = self.authority.renew(SystemTime::now()).and_then(|renewed| {
            if renewed.authority {
                self.write_kubeconfigs()?;
            }
            Ok(renewed)
        });
        match renewed {
            Ok(renewed) if renewed.server => tracing::info!("certificate of the API renewed"),
            Err(error) => tracing::error!(%error, "failed to renew the API's certificates"),
            Ok(_) => {}
        }
        if let Origin::Files(served) = &self.shown {
            maintenance::warn_of_end(WHOSE, served);
        }
    }

    fn file_states(&self) -> [FileStamp; 2] {
        ["tokens", users::FILE].map(|file| stamp_of(&self.folder.join("pki").join(file)))
    }

    fn take_users(&self) {
        match self.read_users() {
            Ok(()) => tracing::info!("users and tokens reloaded"),
            Err(error) => tracing::error!(%error, "failed to read users and tokens; the previous ones stay in use"),
        }
    }

    /// Passes the tokens, users, and revocations in the files to the authenticator.
    fn read_users(&self) -> Result<(), tls::Error> {
        let pki = self.folder.join("pki");
        let own = tokens::load(&pki.join("tokens"))?;
        let book = UserStore::load(&pki)?;
        let (mut tokens, mut revocations) = (Tokens::default(), Revocations::default());
        for entry in &own {
            tokens.add(&entry.sha256, &entry.user, &entry.groups, None);
        }
        for user in &book.users {
            for credential in user.credentials.iter().filter(|one| one.kind == CredentialKind::Token) {
                let expires = credential.expires.map(|time| time.as_second());
                tokens.add(&credential.id, &user.name, &user.groups, expires);
            }
        }
        for revoked in &book.revoked {
            if let Some(user) = &revoked.user {
                revocations.refuse_user(user, revoked.at.as_second());
            }
            if let Some(serial) = &revoked.serial {
                revocations.refuse_serial(serial);
            }
        }
        self.authenticator.replace_revocations(revocations);
        self.authenticator.replace_tokens(tokens);
        Ok(())
    }

    fn write_kubeconfigs(&self) -> Result<(), tls::Error> {
        let path = self.folder.join("pki/tokens");
        let _lock = users::lock(&self.folder.join("pki"))?;
        let mut entries = tokens::load(&path)?;
        let trust = self.trust()?;
        let mut changed = false;
        for (file, client) in KUBECONFIGS {
            let path = self.folder.join(file);
            let (server, machine) = ((self.server_url.as_str(), &trust), self.machine.as_deref());
            changed |= kubeconfig::ensure(&path, *client, server, machine, &mut entries)?;
        }
        if changed {
            tokens::save(&path, &entries)?;
        }
        Ok(())
    }

    fn trust(&self) -> Result<Trust, tls::Error> {
        match (&self.shown, &self.trusted) {
            (Origin::Authority(authority), _) => Ok(Trust::Authority(authority.certificate_pem().to_string())),
            (Origin::Files(_), None) => Ok(Trust::System),
            (Origin::Files(_), Some(path)) => tls::authorities(path).map(Trust::Authority),
        }
    }
}

impl Maintenance for Access {
    fn maintain(&self, due: MaintenanceTask) {
        match due {
            MaintenanceTask::Look => {
                self.follow_files();
                // The clock was changed.
                if !self.authority.is_valid(SystemTime::now()) {
                    self.renew();
                }
            }
            MaintenanceTask::Renewal => self.renew(),
        }
    }
}

/// Returns the URL for kubeconfigs: the first configured name, otherwise the first address; for "all addresses", loopback.
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

/// Returns the names that a certificate for listeners on `addresses` must be valid for: loopback, these addresses, the names
/// `given`, and this machine's own.
pub(super) fn names(addresses: &[SocketAddr], given: &[String]) -> impl Iterator<Item = String> {
    let listened = addresses.iter().map(SocketAddr::ip).filter(|address| !address.is_unspecified());
    let listened: Vec<String> = listened.map(|address| address.to_string()).collect();
    tls::loopback_names().into_iter().chain(listened).chain(given.to_vec()).chain(host_name())
}

/// Returns this machine's name, if it is valid in a certificate.
pub fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = text.trim().to_ascii_lowercase();
    signpost_types::names::check_domain(&name).ok().map(|()| name)
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
