//! Signed requests of other programs: the keys of the configuration's key files, the rights to transfer zones and to change challenges, the
//! notifications, and the zones from primary servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::config::Settings;
use crate::config::{secondary, settings};
use signpost_dns::nameserver::hand_off::{Answer, HandOff, HandOffKind, Handler};
use signpost_dns::notify::{self, Notifier};
use signpost_dns::secondary::Secondary;
use signpost_dns::secondary::client::{ALPN, Primary};
use signpost_dns::transfer::Transfers;
use signpost_dns::transfer::catalog::Catalog;
use signpost_dns::tsig::Keys;
use signpost_dns::tsig::keys;
use signpost_dns::update::{Job, Updates};
use signpost_dns::wire::Name;
use signpost_dns::zone::publish::Publisher;
use signpost_runtime::trust;

/// The directory of the copies of zones from primary servers, in the data directory.
const COPIES: &str = "secondary";

/// The largest key file in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The parts of a name server for its secondary servers.
pub struct Secondaries {
    pub transfers: Arc<Transfers>,
    pub notifier: Arc<Notifier>,
    pub catalog: Option<Arc<Catalog>>,
    /// The zones from primary servers.
    pub copied: Option<Arc<Secondary>>,
}

/// Answers the requests about transfers, and those to change challenges.
pub struct Requests {
    transfers: Arc<Transfers>,
    copied: Option<Arc<Secondary>>,
    pub updates: Arc<Updates>,
}

impl Handler for Requests {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        match request.kind {
            HandOffKind::Transfer => self.transfers.answer(request),
            HandOffKind::Notify => self.copied.as_ref()?.answer(request),
            HandOffKind::Update => self.updates.answer(request),
        }
    }
}

impl Secondaries {
    /// Reads the keys, and listens to the zones from now on.
    pub fn new(settings: &Settings, zones: &Arc<Publisher>) -> Result<(Self, Option<Arc<Keys>>), Error> {
        let keys = load_keys(settings)?;
        let settings::DnsCatalog { name, group } = settings.dns_catalog.clone();
        let rules = &settings.dns.transfer;
        let catalog = name.map(|name| Arc::new(Catalog::new(name, group, rules.clone())));
        let transfers = Arc::new(Transfers::new(rules.clone()).with_catalog(catalog.clone()));
        let of = |server: &secondary::Secondary| {
            let secondary::Secondary { address, key, zones, source, verify: _ } = server.clone();
            let key = key.and_then(|name| keys.as_ref()?.get(&name).cloned());
            notify::Secondary { address, key, zones, source }
        };
        let notifier = Arc::new(Notifier::new(settings.dns.secondary.iter().map(of).collect()));
        let copied = copied(settings, keys.as_deref(), zones)?.map(Arc::new);
        for zones in [&**zones].into_iter().chain(catalog.iter().map(|catalog| catalog.publisher())) {
            let (transfers, notifier) = (Arc::clone(&transfers), Arc::clone(&notifier));
            zones.listen(move |step| {
                transfers.record(step);
                notifier.change(step);
            });
        }
        if let Some(catalog) = catalog.clone() {
            zones.listen(move |step| catalog.record(step));
        }
        Ok((Secondaries { transfers, notifier, catalog, copied }, keys))
    }

    /// Returns the handler of requests, with the rights to change challenges, and the receiver of these changes.
    pub fn requests(&self, settings: &Settings) -> (Arc<Requests>, mpsc::Receiver<Job>) {
        let (updates, jobs) = Updates::new(settings.dns.update.clone());
        let (transfers, copied) = (self.transfers.clone(), self.copied.clone());
        (Arc::new(Requests { transfers, copied, updates }), jobs)
    }
}

/// Returns the zones from the primary servers of the settings; `None` without any.
fn copied(settings: &Settings, keys: Option<&Keys>, publisher: &Arc<Publisher>) -> Result<Option<Secondary>, Error> {
    let mut zones: BTreeMap<Name, Vec<Primary>> = BTreeMap::new();
    for server in &settings.dns.primary {
        let tls = match &server.tls {
            Some(name) => {
                let mut client = match &server.ca {
                    Some(file) => trust::only_file(file)
                        .map_err(|error| Error::Configuration(format!("{error} (dns.primary)")))?,
                    None => trust::of_system(),
                };
                client.alpn_protocols = vec![ALPN.to_vec()];
                Some((Arc::new(client), name.clone()))
            }
            None => None,
        };
        let key = server.key.as_ref().and_then(|name| keys?.get(name).cloned());
        for zone in &server.zones {
            let primary = Primary { address: server.address, key: key.clone(), tls: tls.clone() };
            zones.entry(zone.clone()).or_default().push(primary);
        }
    }
    if zones.is_empty() {
        return Ok(None);
    }
    let directory = settings.data_dir.join(COPIES);
    let copies = Secondary::new(zones, &directory, publisher.clone()).map_err(|error| {
        let shown = directory.display();
        Error::Configuration(format!(
            "{shown}: {error}; the copies of zones from primary servers are there (--data-dir)"
        ))
    })?;
    Ok(Some(copies))
}

/// Serves the copies of zones from primary servers.
pub async fn restore(copied: &Arc<Secondary>, zones: &Publisher) {
    for (zone, _) in copied.statuses().filter(|(zone, _)| zones.reservation(zone).is_some()) {
        tracing::error!(
            "zone {zone} is the platform's own, and is not served from a primary server; remove it from dns.primary"
        );
    }
    let restoring = copied.clone();
    let problems = tokio::task::spawn_blocking(move || restoring.restore()).await;
    for problem in problems.expect("reading copies does not panic") {
        tracing::error!("copy of a zone: {problem}; the zone is transferred again");
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

/// Checks that the catalog is not at or below a zone that was read.
pub fn check_catalog(catalog: Option<&Arc<Catalog>>) -> Result<(), Error> {
    match catalog.and_then(|catalog| Some((catalog.name(), catalog.zone_above()?))) {
        Some((name, zone)) => Err(Error::Configuration(format!(
            "dns.catalog.name: {name} is at or below the served zone {zone}; set a name outside all zones, such as \
             catalog.invalid"
        ))),
        None => Ok(()),
    }
}

/// Reads the key files, and checks that the keys that the settings name exist; `None` without key files.
pub fn load_keys(settings: &Settings) -> Result<Option<Arc<Keys>>, Error> {
    let mut all = Vec::new();
    for path in &settings.dns.tsig_keys {
        all.extend(read_file(path)?);
    }
    let keys = Keys::new(all).map_err(|error| Error::Configuration(format!("{error} (dns.tsig-keys)")))?;
    let missing = |name: &&Name| keys.get(name).is_none();
    let of_rules = settings.dns.transfer.iter().flat_map(|rule| &rule.keys);
    let of_secondaries = settings.dns.secondary.iter().filter_map(|server| server.key.as_ref());
    let of_primaries = settings.dns.primary.iter().filter_map(|server| server.key.as_ref());
    let of_updates = settings.dns.update.iter().map(|right| &right.key);
    if let Some(name) = of_rules.chain(of_secondaries).chain(of_primaries).chain(of_updates).find(missing) {
        let problem = format!("key {name} is in no key file; add it, or correct the name (dns.tsig-keys)");
        return Err(Error::Configuration(problem));
    }
    Ok((!keys.is_empty()).then(|| Arc::new(keys)))
}

/// Reads a key file, which only its owner may read.
///
/// # Errors
///
/// The problem with its location, and what to do.
pub fn read_file(path: &Path) -> Result<Vec<keys::Key>, Error> {
    use std::os::unix::fs::PermissionsExt;
    let shown = path.display();
    let failed = |error: std::io::Error| Error::Configuration(format!("{shown}: {error}"));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Configuration(format!(
            "{shown}: mode {mode:04o} lets other users read the keys; run \"chmod 600 {shown}\""
        )));
    }
    if metadata.len() > FILE_MAX {
        return Err(Error::Configuration(format!("{shown}: {} bytes are too many for a key file", metadata.len())));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    keys::read(&text).map_err(|error| Error::Configuration(format!("{shown}:{}: {}", error.line, error.problem)))
}
