//! The public keys of an identity provider (RFC 7517): read from a file or fetched from a URL, and kept.
//!
//! ```text
//!   a token with a key id ── known, fresh ──▶ the key
//!                         ── known, old ────▶ the key, and the set is fetched meanwhile
//!                         ── unknown ───────▶ the set is fetched, at most once in a pause, then the key or nothing
//! ```
//!
//! A provider can thus change its keys at any time. Tokens with unknown keys cause at most one request per pause, regardless of
//! their number. If a provider is unreachable, its users keep their access, because the last set stays in use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;

use signpost_runtime::trust;

/// The maximum size of a key set in octets: a hundred RSA keys with their certificates.
const SET_OCTETS_MAX: usize = 512 * 1024;
/// The maximum number of keys of a set that are considered. Providers have two or three.
const KEYS_MAX: usize = 100;
/// The total timeout of a fetch.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);

/// The source of a key set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// A URL: `https`, or `http` on this machine.
    Url {
        /// The URL.
        url: String,
        /// The certificate authorities in PEM to trust instead of the system's.
        authorities: Option<PathBuf>,
    },
}

/// The refresh policy of a key set.
#[derive(Debug, Clone, Copy)]
pub struct RefreshPolicy {
    /// The age after which a set is fetched again when it is used.
    pub fresh: Duration,
    /// The minimum time between the end of a fetch, successful or not, and the next one.
    pub pause: Duration,
}

impl Default for RefreshPolicy {
    fn default() -> Self {
        // A withdrawn key is accepted for up to ten more minutes; a new key is available ten seconds after the last fetch.
        RefreshPolicy { fresh: Duration::from_secs(600), pause: Duration::from_secs(10) }
    }
}

/// A key set that is kept up to date.
pub struct KeySet {
    source: Source,
    pace: RefreshPolicy,
    loaded: ArcSwapOption<Loaded>,
    /// The time of the last fetch, and its client; locked during a fetch.
    fetching: Arc<Mutex<Fetcher>>,
}

#[derive(Default)]
struct Fetcher {
    /// The time when the last fetch ended.
    ended: Option<Instant>,
    client: Option<reqwest::Client>,
}

struct Loaded {
    keys: Vec<Key>,
    at: Instant,
}

/// A key that signatures can be checked with.
#[derive(Clone)]
struct Key {
    id: Option<String>,
    algorithms: &'static [Algorithm],
    key: DecodingKey,
}

impl KeySet {
    /// Returns the set at that place. It is fetched when it is first needed.
    pub fn new(source: Source, pace: RefreshPolicy) -> Arc<Self> {
        Arc::new(KeySet { source, pace, loaded: ArcSwapOption::empty(), fetching: Arc::default() })
    }

    /// Returns the keys that can have made a signature with this key id and algorithm: normally one; for a token without a key
    /// id, all keys of the algorithm; none if the key is unknown.
    pub async fn find(self: &Arc<Self>, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
        if let Some(loaded) = self.loaded.load_full() {
            let found = matching(&loaded, id, algorithm);
            if !found.is_empty() {
                if loaded.at.elapsed() > self.pace.fresh
                    && let Ok(fetcher) = self.fetching.clone().try_lock_owned()
                {
                    self.fetch_unless_too_soon(fetcher);
                }
                return found;
            }
        }
        let asked = Instant::now();
        let fetcher = self.fetching.clone().lock_owned().await;
        // A fetch that ended during the wait counts, whether it succeeded or not.
        if fetcher.ended.is_none_or(|ended| ended < asked)
            && let Some(fetch) = self.fetch_unless_too_soon(fetcher)
        {
            // A fetch that panicked brought nothing.
            let _ = fetch.await;
        }
        self.loaded.load().as_deref().map(|loaded| matching(loaded, id, algorithm)).unwrap_or_default()
    }

    /// Fetches in a separate task, which ends within [`FETCH_TIME_MAX`]: a client that disconnects does not cancel the fetch for
    /// others.
    fn fetch_unless_too_soon(self: &Arc<Self>, fetcher: OwnedMutexGuard<Fetcher>) -> Option<JoinHandle<()>> {
        if fetcher.ended.is_some_and(|ended| ended.elapsed() < self.pace.pause) {
            return None;
        }
        let set = self.clone();
        Some(tokio::spawn(async move { set.fetch(fetcher).await }))
    }

    async fn fetch(&self, mut fetcher: OwnedMutexGuard<Fetcher>) {
        let read = async {
            match &self.source {
                Source::File(path) => tokio::fs::read(path).await.map_err(|error| error.to_string()),
                Source::Url { url, authorities } => {
                    let client = match &fetcher.client {
                        Some(client) => client.clone(),
                        None => client(authorities.as_ref())?,
                    };
                    fetcher.client = Some(client.clone());
                    get(&client, url).await
                }
            }
        };
        let loaded = match tokio::time::timeout(FETCH_TIME_MAX, read).await {
            Ok(read) => read.and_then(|octets| parse(&octets)),
            Err(_) => Err("timed out".to_owned()),
        };
        let loaded = loaded.map_err(|reason| format!("{}: {reason}", self.source));
        // A fetch can take as long as the pause, which begins when it ends.
        fetcher.ended = Some(Instant::now());
        match loaded {
            Ok(keys) => self.loaded.store(Some(Arc::new(Loaded { keys, at: Instant::now() }))),
            Err(error) if self.loaded.load().is_some() => {
                tracing::warn!(%error, "failed to fetch the keys of an identity provider; using the previous keys");
            }
            Err(error) => {
                tracing::error!(%error, "failed to fetch the keys of an identity provider; its tokens are rejected");
            }
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::Url { url, .. } => f.write_str(url),
        }
    }
}

fn matching(loaded: &Loaded, id: Option<&str>, algorithm: Algorithm) -> Vec<DecodingKey> {
    let fits = |key: &&Key| key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id);
    loaded.keys.iter().filter(fits).map(|key| key.key.clone()).collect()
}

fn client(authorities: Option<&PathBuf>) -> Result<reqwest::Client, String> {
    let builder = trust::client(authorities.map(PathBuf::as_path)).map_err(|error| error.to_string())?;
    builder.connect_timeout(FETCH_TIME_MAX).build().map_err(|error| error.to_string())
}

async fn get(client: &reqwest::Client, url: &str) -> Result<Vec<u8>, String> {
    let request = client.get(url).header("accept", "application/json");
    let (status, octets) = trust::exchange(request, SET_OCTETS_MAX).await.map_err(|error| error.to_string())?;
    if status.is_success() { Ok(octets) } else { Err(format!("it answers {status}")) }
}

/// Returns the keys of a set that signatures can be checked with. Others are left out: sets may hold keys of kinds to come.
fn parse(octets: &[u8]) -> Result<Vec<Key>, String> {
    if octets.len() > SET_OCTETS_MAX {
        return Err(format!("is larger than {SET_OCTETS_MAX} bytes"));
    }
    let set: Value = serde_json::from_slice(octets).map_err(|error| format!("is not JSON: {error}"))?;
    let list = set["keys"].as_array().ok_or("is not a key set: it has no list \"keys\"")?;
    let keys: Vec<Key> = list.iter().take(KEYS_MAX).filter_map(key).collect();
    if keys.is_empty() { Err("contains no public key for the verification of signatures".to_owned()) } else { Ok(keys) }
}

fn key(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature) {
        return None;
    }
    // The type of a key determines its algorithms. A secret key has none: every reader of the set could sign with it.
    let by_kind: &'static [Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
        _ => return None,
    };
    let algorithms = match value["alg"].as_str() {
        None => by_kind,
        Some(name) => {
            let algorithm: Algorithm = name.parse().ok()?;
            let at = by_kind.iter().position(|one| *one == algorithm)?;
            &by_kind[at..=at]
        }
    };
    Some(Key { id: jwk.common.key_id.clone(), algorithms, key: DecodingKey::from_jwk(&jwk).ok()? })
}

const RSA: [Algorithm; 6] =
    [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_public_keys_for_signatures_are_taken() {
        let x = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";
        let y = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM";
        let set = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "kid": "a", "x": x, "y": y},
            {"kty": "EC", "crv": "P-256", "kid": "b", "x": x, "y": y, "alg": "ES384"},
            {"kty": "EC", "crv": "P-256", "kid": "c", "x": x, "y": y, "use": "enc"},
            {"kty": "oct", "kid": "d", "k": "c2VjcmV0", "alg": "HS256"},
            {"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": x},
            {"kty": "RSA", "kid": "f", "n": "AQAB", "e": "AQAB", "alg": "PS256"},
            {"kty": "from-the-future", "kid": "g"},
            7
        ]});
        let keys = parse(set.to_string().as_bytes()).expect("a key set");
        let reported: Vec<_> = keys.iter().map(|key| (key.id.as_deref().unwrap_or("-"), key.algorithms)).collect();
        let expected: [(&str, &[Algorithm]); 3] =
            [("a", &[Algorithm::ES256]), ("e", &[Algorithm::EdDSA]), ("f", &[Algorithm::PS256])];
        assert_eq!(reported, expected);
    }

    #[test]
    fn what_is_no_key_set_is_reported() {
        for (text, part) in [
            ("", "is not JSON"),
            ("[]", "has no list"),
            (r#"{"keys":[]}"#, "no public key"),
            (r#"{"keys":[{"kty":"oct","k":"YQ"}]}"#, "no public key"),
        ] {
            let error = parse(text.as_bytes()).map(|_| ()).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
