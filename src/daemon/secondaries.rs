//! Signed requests of other programs: the keys of the configuration's key files, the rights to transfer zones and to change challenges, and
//! the notifications of secondary servers.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::config::secondary;
use signpost_dns::nameserver::hand_off::{Answer, HandOff, HandOffKind, Handler};
use signpost_dns::notify::{Notifier, Secondary};
use signpost_dns::transfer::Transfers;
use signpost_dns::tsig::Keys;
use signpost_dns::tsig::keys;
use signpost_dns::update::{Job, Updates};
use signpost_dns::wire::Name;
use signpost_dns::zone::publish::Publisher;

/// The largest key file in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The reason why keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysError(String);

/// The parts of a name server for its secondary servers.
pub struct Secondaries {
    pub transfers: Arc<Transfers>,
    pub notifier: Arc<Notifier>,
}

impl Secondaries {
    /// Reads the keys, and listens to the zones from now on.
    pub fn new(settings: &Settings, zones: &Publisher) -> Result<(Self, Option<Arc<Keys>>), KeysError> {
        let keys = load_keys(settings)?;
        let transfers = Arc::new(Transfers::new(settings.dns.transfer.clone()));
        let of = |server: &secondary::Secondary| {
            let secondary::Secondary { address, key, zones, source } = server.clone();
            let key = key.and_then(|name| keys.as_ref()?.get(&name).cloned());
            Secondary { address, key, zones, source }
        };
        let notifier = Arc::new(Notifier::new(settings.dns.secondary.iter().map(of).collect()));
        let (of_transfers, of_notifier) = (Arc::clone(&transfers), Arc::clone(&notifier));
        zones.listen(move |step| {
            of_transfers.record(step);
            of_notifier.change(step);
        });
        Ok((Secondaries { transfers, notifier }, keys))
    }
}

/// The handler of the requests that a handler answers.
pub struct Requests {
    pub transfers: Arc<Transfers>,
    pub updates: Arc<Updates>,
}

impl Requests {
    /// Returns the handler with the rights to change challenges, and the receiver of the changes.
    pub fn new(settings: &Settings, transfers: &Arc<Transfers>) -> (Arc<Self>, mpsc::Receiver<Job>) {
        let (updates, jobs) = Updates::new(settings.dns.update.clone());
        (Arc::new(Requests { transfers: Arc::clone(transfers), updates }), jobs)
    }
}

impl Handler for Requests {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        match request.kind {
            HandOffKind::Update => self.updates.answer(request),
            HandOffKind::Transfer | HandOffKind::Notify => self.transfers.answer(request),
        }
    }
}

/// Sends notifications until `stop`.
pub async fn notify(notifier: Arc<Notifier>, stop: CancellationToken) {
    if let Err((address, error)) = notifier.run(stop.clone()).await {
        tracing::error!(%address, %error, "failed to open a socket for NOTIFY; secondary servers are not notified");
    }
    // Without secondary servers, or a socket, there is nothing to send, and the process continues.
    stop.cancelled().await;
}

/// Reads the key files, and checks that the keys that the settings name exist; `None` without key files.
pub fn load_keys(settings: &Settings) -> Result<Option<Arc<Keys>>, KeysError> {
    let mut all = Vec::new();
    for path in &settings.dns.tsig_keys {
        all.extend(read_file(path)?);
    }
    let keys = Keys::new(all).map_err(|error| KeysError(format!("{error} (dns.tsig-keys)")))?;
    let missing = |name: &&Name| keys.get(name).is_none();
    let of_rules = settings.dns.transfer.iter().flat_map(|rule| &rule.keys);
    let of_servers = settings.dns.secondary.iter().filter_map(|server| server.key.as_ref());
    let of_updates = settings.dns.update.iter().map(|right| &right.key);
    if let Some(name) = of_rules.chain(of_servers).chain(of_updates).find(missing) {
        return Err(KeysError(format!("key {name} is in no key file; add it, or correct the name (dns.tsig-keys)")));
    }
    Ok((!keys.is_empty()).then(|| Arc::new(keys)))
}

/// Reads a key file, which only its owner may read.
///
/// # Errors
///
/// The problem with its location, and what to do.
pub fn read_file(path: &Path) -> Result<Vec<keys::Key>, KeysError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error: std::io::Error| KeysError(format!("{}: {error}", path.display()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let shown = path.display();
        return Err(KeysError(format!(
            "{shown}: mode {mode:04o} lets other users read the keys; run \"chmod 600 {shown}\""
        )));
    }
    if metadata.len() > FILE_MAX {
        return Err(KeysError(format!("{}: {} bytes are too many for a key file", path.display(), metadata.len())));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    keys::read(&text).map_err(|error| KeysError(format!("{}:{}: {}", path.display(), error.line, error.problem)))
}
