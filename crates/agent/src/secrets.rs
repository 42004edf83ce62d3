//! The certificates of Secrets: of each host, that of the Secret that its Route names in `spec.tls.secretName`, or that the platform got.
//!
//! The agent reads each Secret by itself, because its rights are for single Secrets: here by the Routes of its Router, in a cluster by a
//! Role of the namespace. A Secret is of the namespace of its Route, so that nothing that a tenant writes leads to one of another. It
//! is polled, because a right to watch one would need a further rule for each.
//!
//! A tenant's certificate reaches the proxy only if it is small, whole, strong enough, for the host, and valid now. Otherwise the last good
//! one of the host stays. It is also in a file, for an agent that starts while the API is unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, GetParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use signpost_runtime::tls::files;
use signpost_types::instance::{CertificateReport, SecretFault, SecretReport, ServedCertificate};
use signpost_types::text::cut;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use crate::pem::{KeyPair, PemError};
use crate::site::{Certificate, Host};

/// The interval at which a Secret is read again: one that is used, and one that is not.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));
/// The most Secrets that are read at the same time, and the pause after that: at most 320 per second.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(50);
/// The most Secrets that are read again in a second.
const PER_SECOND: u32 = 100;
/// The most bytes of a certificate with its chain and key: three times a chain of RSA-4096. The proxy keeps it for each host.
const PEM_BYTES_MAX: usize = 32 << 10;
/// The most bytes that are searched for it: there can be comments.
const TEXT_BYTES_MAX: usize = 128 << 10;
/// The most certificates of a chain.
const CHAIN_MAX: usize = 10;
/// The most hosts of a namespace with certificates of Secrets, so that one namespace cannot use up the memory of the proxy.
const HOSTS_MAX: usize = 1_000;
/// The most bytes of an error of the API in a report.
const ERROR_BYTES_MAX: usize = 150;

const TYPE: &str = "kubernetes.io/tls";
const ENDING: &str = ".pem";

/// A Secret by its namespace and name.
pub(crate) type SecretKey = (String, String);

/// A certificate of a Secret.
#[derive(Debug)]
struct Loaded {
    certificate: Certificate,
    served: ServedCertificate,
}

/// A reason why a Secret is not used, and the details.
type Fault = (SecretFault, String);

#[derive(Default)]
struct Object {
    /// `None`: it was not read yet.
    contents: Option<Result<Arc<Loaded>, Fault>>,
    /// The UID and resource version of the last contents.
    version: Option<(String, String)>,
    /// The time to read it again; `None`: at once.
    due: Option<Instant>,
}

/// The certificate that a host has, and the namespace of its Secret.
type Good = (String, Arc<Loaded>);

#[derive(Default)]
struct State {
    wanted: Arc<BTreeMap<Host, SecretKey>>,
    objects: BTreeMap<SecretKey, Object>,
    good: BTreeMap<Host, Good>,
    faults: BTreeMap<Host, Fault>,
    /// The time, in seconds since 1970, at which a certificate becomes valid.
    valid_from: Option<i64>,
    /// Whether the files differ from `good`.
    is_unsaved: bool,
}

/// The origin of Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Tenants: Routes name them.
    Routes,
    /// The platform, which gets them from a certificate authority, in its own time.
    Platform,
}

impl Origin {
    /// Returns the directory of the last good certificates, in that of the agent.
    fn directory(self) -> &'static str {
        match self {
            Origin::Routes => "secrets",
            Origin::Platform => "issued",
        }
    }

    /// Returns whether a fault is expected for a while.
    fn expects(self, fault: SecretFault) -> bool {
        self == Origin::Platform && matches!(fault, SecretFault::NotFound | SecretFault::Unread)
    }
}

/// The certificates of the hosts with a Secret.
pub(crate) struct Secrets {
    origin: Origin,
    directory: PathBuf,
    state: Mutex<State>,
    /// Other Secrets are wanted, or files differ.
    work: Notify,
}

impl Secrets {
    /// Reads the last good certificates in the directory of an agent.
    pub(crate) fn new(directory: &Path, origin: Origin) -> Secrets {
        let directory = directory.join(origin.directory());
        let good = restore(&directory);
        Secrets { origin, directory, state: Mutex::new(State { good, ..State::default() }), work: Notify::new() }
    }

    /// Sets the hosts and their Secrets. The certificates of other hosts are gone with the next [`Self::settle`]. Returns whether that is a
    /// change.
    pub(crate) fn want(&self, wanted: &Arc<BTreeMap<Host, SecretKey>>) -> bool {
        let mut state = self.state.lock();
        // The first call decides about the certificates in files.
        if state.wanted == *wanted && (!wanted.is_empty() || state.good.is_empty()) {
            return false;
        }
        state.wanted = wanted.clone();
        let keys: BTreeSet<&SecretKey> = wanted.values().collect();
        state.objects.retain(|key, _| keys.contains(key));
        for key in keys {
            state.objects.entry(key.clone()).or_default();
        }
        self.work.notify_one();
        true
    }

    /// Returns whether all wanted Secrets were read once.
    pub(crate) fn is_read(&self) -> bool {
        self.state.lock().objects.values().all(|object| object.contents.is_some())
    }

    /// Returns whether a certificate has become valid since the last [`Self::settle`].
    pub(crate) fn is_due(&self) -> bool {
        let now = Timestamp::now().as_second();
        self.state.lock().valid_from.is_some_and(|from| from <= now)
    }

    /// Gives each host the certificate of its Secret, if it can be used. Returns whether any certificate or fault has changed.
    pub(crate) fn settle(&self) -> bool {
        self.settle_at(Timestamp::now().as_second())
    }

    fn settle_at(&self, now: i64) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (mut good, mut faults) = (BTreeMap::new(), BTreeMap::new());
        let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
        state.valid_from = None;
        for (host, key) in &*state.wanted {
            // A host can have come from another namespace, whose certificate is not this one's.
            let last = state.good.get(host).filter(|(namespace, _)| *namespace == key.0);
            let count = hosts.entry(&key.0).or_default();
            *count += 1;
            let is_too_many = self.origin == Origin::Routes && *count > HOSTS_MAX;
            let found = match state.objects.get(key).and_then(|object| object.contents.as_ref()) {
                _ if is_too_many => {
                    let message =
                        format!("the namespace has certificates for more than {HOSTS_MAX} hosts of this Router");
                    Err((SecretFault::TooLarge, message))
                }
                None => Err((SecretFault::Unread, "it was not read yet".to_owned())),
                Some(contents) => contents.clone().and_then(|loaded| {
                    // One that expires in use is reported by its end.
                    let is_used = last.is_some_and(|(_, last)| last.served.sha256 == loaded.served.sha256);
                    usable(&loaded.served, host, (!is_used).then_some(now)).map(|()| loaded)
                }),
            };
            match found {
                Ok(loaded) => _ = good.insert(host.clone(), (key.0.clone(), loaded)),
                Err((fault, message)) => {
                    if fault == SecretFault::NotYetValid
                        && let Some(Ok(loaded)) = state.objects.get(key).and_then(|object| object.contents.as_ref())
                    {
                        let from = loaded.served.not_before;
                        state.valid_from = Some(state.valid_from.map_or(from, |earlier| earlier.min(from)));
                    }
                    good.extend(last.filter(|_| !is_too_many).map(|last| (host.clone(), last.clone())));
                    if !self.origin.expects(fault) {
                        faults.insert(host.clone(), (fault, message));
                    }
                }
            }
        }
        let of = |good: &BTreeMap<Host, Good>| -> Vec<(Host, Certificate)> {
            good.iter().map(|(host, (_, loaded))| (host.clone(), loaded.certificate.clone())).collect()
        };
        let has_new_certificates = of(&good) != of(&state.good);
        let has_changed = has_new_certificates || faults != state.faults;
        (state.good, state.faults) = (good, faults);
        if has_new_certificates {
            state.is_unsaved = true;
            self.work.notify_one();
        }
        has_changed
    }

    /// Returns the certificates.
    pub(crate) fn certificates(&self) -> BTreeMap<Host, Certificate> {
        let state = self.state.lock();
        state.good.iter().map(|(host, (_, loaded))| (host.clone(), loaded.certificate.clone())).collect()
    }

    /// Returns the number of hosts whose Secret cannot be used. The Secret of a custom host rarely has other names, and does not need those of the
    /// Router: these hosts do not count.
    pub(crate) fn faults(&self) -> usize {
        let state = self.state.lock();
        let used: BTreeSet<&SecretKey> =
            state.wanted.iter().filter(|(host, _)| !state.faults.contains_key(*host)).map(|(_, key)| key).collect();
        let is_used = |host: &Host| state.wanted.get(host).is_some_and(|key| used.contains(key));
        let is_fault = |(host, (fault, _)): &(&Host, &Fault)| *fault != SecretFault::NameMismatch || !is_used(host);
        state.faults.iter().filter(is_fault).count()
    }

    /// Returns the report of the wanted hosts, without those whose certificate the platform does not have yet.
    pub(crate) fn report(&self) -> BTreeMap<Host, CertificateReport> {
        let state = self.state.lock();
        let report = |(host, (_, name)): (&Host, &SecretKey)| {
            let fault = state.faults.get(host);
            let served = state.good.get(host).map(|(_, loaded)| loaded.served.clone());
            if self.origin == Origin::Platform && served.is_none() && fault.is_none() {
                return None;
            }
            let secret = SecretReport { name: name.clone(), reason: fault.map(|(reason, _)| *reason) };
            let secret = Some(secret).filter(|_| self.origin == Origin::Routes);
            let fault = fault.map(|(_, message)| message.clone());
            Some((host.clone(), CertificateReport { host: host.to_string(), served, fault, secret }))
        };
        state.wanted.iter().filter_map(report).collect()
    }

    /// Reads the wanted Secrets without end. Each change notifies `changed`.
    pub(crate) async fn follow(self: Arc<Self>, client: Client, changed: Arc<Notify>) {
        loop {
            self.save().await;
            let (due, next) = self.due();
            if due.is_empty() {
                tokio::select! {
                    () = self.work.notified() => {}
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                }
                continue;
            }
            let read = due.into_iter().map(async |key| {
                let api: Api<Secret> = Api::namespaced(client.clone(), &key.0);
                // Any state of a cache will do: the next read is soon.
                (api.get_with(&key.1, &GetParams::at("0")).await, key)
            });
            let mut has_changed = false;
            for (read, key) in join_all(read).await {
                has_changed |= self.take(key, read);
            }
            if has_changed {
                changed.notify_one();
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns some Secrets to read now, or otherwise the time of the next.
    fn due(&self) -> (Vec<SecretKey>, Option<Instant>) {
        let (now, state) = (Instant::now(), self.state.lock());
        let due = state.objects.iter().filter(|(_, object)| object.due.is_none_or(|due| due <= now));
        let due: Vec<SecretKey> = due.take(AT_ONCE).map(|(key, _)| key.clone()).collect();
        let next = state.objects.values().filter_map(|object| object.due).min();
        (due, next)
    }

    /// Takes the outcome of a read; returns whether it is another one than the last.
    fn take(&self, key: SecretKey, read: Result<Secret, Error>) -> bool {
        let mut state = self.state.lock();
        let number = u32::try_from(state.objects.len()).unwrap_or(u32::MAX);
        // It may not be wanted any more.
        let Some(object) = state.objects.get_mut(&key) else { return false };
        let contents = match read {
            Ok(secret) => {
                let version = (secret.metadata.uid.clone(), secret.metadata.resource_version.clone());
                let version = version.0.zip(version.1);
                if version.is_some() && version == object.version && object.contents.is_some() {
                    None
                } else {
                    object.version = version;
                    Some(load(&secret))
                }
            }
            Err(Error::Api(status)) if matches!(status.code, 403 | 404) => {
                object.version = None;
                let fault = if status.code == 404 { SecretFault::NotFound } else { SecretFault::Forbidden };
                Some(Err((fault, if status.code == 404 { String::new() } else { user_of(&status.message) })))
            }
            Err(error) => {
                let (namespace, name) = &key;
                tracing::warn!(namespace, name, %error, "failed to read a Secret; retrying");
                let unread = (SecretFault::Unread, cut(&error.to_string(), ERROR_BYTES_MAX).to_owned());
                object.contents.is_none().then_some(Err(unread))
            }
        };
        let is_used = contents.as_ref().or(object.contents.as_ref()).is_some_and(Result::is_ok);
        let interval = if is_used { INTERVAL.0 } else { INTERVAL.1 };
        object.due = Some(Instant::now() + interval.max(Duration::from_secs(1) * number / PER_SECOND));
        let Some(contents) = contents else { return false };
        let is_same = match (&object.contents, &contents) {
            (Some(Ok(before)), Ok(now)) => before.certificate == now.certificate,
            (Some(Err(before)), Err(now)) => before == now,
            _ => false,
        };
        if let (Err((reason, message)), false) = (&contents, is_same)
            && !self.origin.expects(*reason)
        {
            let (namespace, name) = &key;
            tracing::warn!(namespace, name, ?reason, message, "cannot use a Secret; the last good certificates stay");
        }
        object.contents = Some(contents);
        !is_same
    }

    /// Makes the files those of the current certificates, if they differ.
    async fn save(&self) {
        let files: BTreeMap<String, Certificate> = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.is_unsaved) {
                return;
            }
            state.good.iter().map(|(host, (of, loaded))| (file_name(of, host), loaded.certificate.clone())).collect()
        };
        let directory = self.directory.clone();
        let saved = spawn_blocking(move || write(&directory, &files)).await;
        let saved = saved.unwrap_or_else(|error| Err(error.to_string()));
        if let Err(error) = saved {
            tracing::error!(directory = %self.directory.display(), error, "failed to write certificates; retrying");
            self.state.lock().is_unsaved = true;
            sleep(INTERVAL.1).await;
            self.work.notify_one();
        }
    }
}

/// Reads and checks the certificate of a Secret.
fn load(secret: &Secret) -> Result<Arc<Loaded>, Fault> {
    let invalid = |message: &str| (SecretFault::Invalid, message.to_owned());
    if secret.type_.as_deref() != Some(TYPE) {
        return Err((SecretFault::WrongType, format!("its type is not {TYPE}")));
    }
    let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice());
    let (Some(chain), Some(key)) = (value("tls.crt"), value("tls.key")) else {
        return Err(invalid("it does not have tls.crt and tls.key"));
    };
    if chain.len() + key.len() > TEXT_BYTES_MAX {
        let message = format!("tls.crt and tls.key have more than {TEXT_BYTES_MAX} bytes");
        return Err((SecretFault::TooLarge, message));
    }
    let text = |value| std::str::from_utf8(value).map_err(|_| invalid("tls.crt or tls.key is not text"));
    let fault = |error: PemError| match error {
        PemError::Mismatch => (SecretFault::KeyMismatch, error.to_string()),
        PemError::NoCertificate => (SecretFault::Invalid, "tls.crt has no certificate in PEM".to_owned()),
        PemError::NoKey => (SecretFault::Invalid, "tls.key has no private key in PEM, or an encrypted one".to_owned()),
        _ => (SecretFault::Invalid, error.to_string()),
    };
    let pair = KeyPair::of(text(chain)?, text(key)?).map_err(fault)?;
    let certificates = pair.chain.matches("-----BEGIN").count();
    if certificates > CHAIN_MAX || pair.chain.len() + pair.key.len() > PEM_BYTES_MAX {
        let message = format!("it has more than {CHAIN_MAX} certificates or {PEM_BYTES_MAX} bytes");
        return Err((SecretFault::TooLarge, message));
    }
    let served = pair.check().map_err(fault)?;
    pair.check_strength().map_err(fault)?;
    Ok(Arc::new(Loaded { certificate: Certificate { pem: (pair.chain + &pair.key).into() }, served }))
}

/// Returns why a certificate cannot be used for a host, at a time in seconds since 1970; `None`: at any time.
fn usable(served: &ServedCertificate, host: &Host, now: Option<i64>) -> Result<(), Fault> {
    let moment =
        |second| Timestamp::from_second(second).map_or_else(|_| "another time".to_owned(), |time| time.to_string());
    if !served.covers(host.as_str()) {
        return Err((SecretFault::NameMismatch, format!("its certificate is not for {host}")));
    }
    match now {
        Some(now) if now > served.not_after => {
            Err((SecretFault::Expired, format!("its certificate expired at {}", moment(served.not_after))))
        }
        Some(now) if now < served.not_before => Err((
            SecretFault::NotYetValid,
            format!("its certificate is not valid before {}", moment(served.not_before)),
        )),
        _ => Ok(()),
    }
}

/// Returns the user in the message of a rejection: `… is forbidden: User "NAME" cannot …`.
fn user_of(message: &str) -> String {
    let user = message.split_once("User \"").and_then(|(_, rest)| rest.split_once('"'));
    cut(user.map_or("", |(user, _)| user), ERROR_BYTES_MAX).to_owned()
}

/// Returns the name of a file. A namespace has no `_`, and a host no `+`.
fn file_name(namespace: &str, host: &Host) -> String {
    format!("{namespace}_{}{ENDING}", host.as_str().replace('*', "+"))
}

/// Returns the certificates in a directory. Files that are damaged are left out.
fn restore(directory: &Path) -> BTreeMap<Host, Good> {
    let certificate = |path: PathBuf| -> Option<(Host, Good)> {
        let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
        let (namespace, host) = name.split_once('_')?;
        let host = host.replace('+', "*").parse().ok()?;
        let pem = files::read(&path).ok().flatten()?;
        let served = KeyPair::split(&pem).and_then(|pair| pair.check()).ok()?;
        Some((host, (namespace.to_owned(), Arc::new(Loaded { certificate: Certificate { pem: pem.into() }, served }))))
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| certificate(entry.path())).collect()
}

/// Makes the files of a directory these, with mode 0600.
fn write(directory: &Path, wanted: &BTreeMap<String, Certificate>) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(text)?;
    for entry in std::fs::read_dir(directory).map_err(text)?.flatten() {
        if entry.file_name().to_str().is_none_or(|name| !wanted.contains_key(name)) {
            std::fs::remove_file(entry.path()).map_err(text)?;
        }
    }
    for (name, certificate) in wanted {
        let path = directory.join(name);
        if files::read(&path).ok().flatten().as_deref() != Some(&certificate.pem) {
            files::write_private(&path, certificate.pem.as_bytes()).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
