//! The credentials for etcd, in files that may be replaced while the process runs.

use std::path::{Path, PathBuf};

use super::Error;
use crate::config::settings::Etcd as Section;
use signpost_apiserver::store::etcd::{Etcd, Settings, Tls};

/// Reads the files that the settings name.
///
/// # Errors
///
/// A file that cannot be read.
pub fn read(section: &Section) -> Result<Settings, Error> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| Error::Etcd(format!("{}: {error}", path.display())));
    let read_some = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let (ca, certificate, key) = (read_some(&section.ca)?, read_some(&section.certificate)?, read_some(&section.key)?);
    let is_encrypted = section.endpoints.iter().any(|url| url.starts_with("https:"));
    let password = read_some(&section.password_file)?;
    let password = password.map(|octets| String::from_utf8_lossy(&octets).trim_end_matches(['\r', '\n']).to_owned());
    Ok(Settings {
        endpoints: section.endpoints.clone(),
        prefix: section.prefix.clone(),
        user: section.user.clone().zip(password),
        tls: is_encrypted.then(|| Tls { ca, client: certificate.zip(key) }),
    })
}

/// The credentials of a running process.
pub struct Credentials {
    section: Section,
    /// The contents of the files at the last connection, or at the last attempt to connect.
    last: Option<Settings>,
    /// The error of that attempt, if it failed.
    failed: Option<String>,
}

impl Credentials {
    /// Returns the credentials with which the process has connected.
    pub fn new(section: Section) -> Self {
        let last = read(&section).ok();
        Credentials { section, last, failed: None }
    }

    /// Reconnects if a file has changed. The former connection stays in use while the new credentials are invalid, for example
    /// when a certificate is replaced before its key.
    pub async fn refresh(&mut self, etcd: &Etcd) {
        let result = match read(&self.section) {
            Ok(settings) if self.last.as_ref() == Some(&settings) && self.failed.is_none() => return,
            Ok(settings) => {
                let connected = Etcd::connect(&settings).await;
                self.last = Some(settings);
                connected.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let result = result.and_then(|with_new| match etcd.use_connections_of(&with_new) {
            true => Ok(()),
            false => Err("they belong to another cluster".to_owned()),
        });
        match result {
            Ok(()) => {
                tracing::info!("new credentials for etcd are in use");
                self.failed = None;
            }
            Err(error) if self.failed.as_ref() != Some(&error) => {
                tracing::error!("failed to use the new credentials for etcd; the previous ones stay in use: {error}");
                self.failed = Some(error);
            }
            Err(_) => {}
        }
    }
}
