//! The settings of the query engine: the configuration, and the cookie secret if this process generates its own.
//!
//! Workers apply a change of either with their next batch. A generated secret is in use for a day: RFC 7873 §7.1 recommends that
//! a secret is not used for more than 26 hours. The previous secret is still accepted for verification, so that a change does not
//! affect clients.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::config::value::{CookieMode, LogFormat};
use signpost_dns::nameserver;
use signpost_dns::nameserver::cookie::{Cookies, Secret};
use signpost_dns::transport::LiveSettings;
use signpost_dns::tsig::Keys;

/// The time for which a generated secret makes cookies.
const SECRET_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The settings that workers follow, and their sources.
pub struct Engine {
    live: LiveSettings,
    origin: Mutex<Origin>,
}

struct Origin {
    settings: Settings,
    /// The current and the previous secret.
    drawn: [Secret; 2],
    /// Whether answers are marked as possibly stale.
    stale: bool,
    keys: Option<Arc<Keys>>,
}

impl Engine {
    /// Returns the engine of this configuration, with a fresh secret.
    pub fn new(settings: &Settings) -> Self {
        let origin = Origin { settings: settings.clone(), drawn: [draw(), draw()], stale: false, keys: None };
        Engine { live: Arc::new(ArcSwap::from_pointee(origin.compose())), origin: Mutex::new(origin) }
    }

    pub fn live(&self) -> &LiveSettings {
        &self.live
    }

    /// Applies another configuration.
    pub fn configure(&self, settings: &Settings) {
        self.change(|origin| origin.settings = settings.clone());
    }

    /// Starts or stops marking answers as possibly stale.
    pub fn set_stale(&self, stale: bool) {
        self.change(|origin| origin.stale = stale);
    }

    /// Replaces the keys of signed messages.
    pub fn set_keys(&self, keys: Option<Arc<Keys>>) {
        self.change(|origin| origin.keys = keys);
    }

    /// Generates a new secret; the current one is then only accepted for verification.
    fn roll(&self) {
        self.change(|origin| origin.drawn = [draw(), origin.drawn[0]]);
    }

    fn change(&self, change: impl FnOnce(&mut Origin)) {
        // Held during the store, so that the later of two changes takes effect last.
        let mut origin = self.origin.lock();
        change(&mut origin);
        self.live.store(Arc::new(origin.compose()));
    }
}

impl Origin {
    fn compose(&self) -> nameserver::Settings {
        let settings = &self.settings;
        let id = settings.server.id.as_deref();
        let limit = settings.rate_limit();
        nameserver::Settings {
            nsid: id.map(|id| id.as_bytes().into()),
            server_id: id.map(Into::into),
            version: settings.server.version.as_deref().map(Into::into),
            udp_payload_max: settings.dns.udp_payload,
            query_log: NonZeroU32::new(settings.query_log.sample),
            query_log_messages: settings.query_log.format == LogFormat::Dnstap,
            stale: self.stale,
            wildcard_hits: settings.metrics.unrouted_names > 0 && settings.dns_follows_api(),
            cookies: self.cookies(),
            rate_limit: (limit.per_second > 0).then_some(limit),
            keys: self.keys.clone(),
            catalog: settings.dns_catalog.name.clone(),
            updates: !settings.dns.update.is_empty(),
        }
    }

    fn cookies(&self) -> Option<Cookies> {
        let required = match self.settings.dns.cookies {
            CookieMode::Off => return None,
            CookieMode::On => false,
            CookieMode::Require => true,
        };
        let (first, others) = match self.settings.dns.cookie_secret.split_first() {
            Some((first, others)) => (*first, others.into()),
            None => (self.drawn[0], [self.drawn[1]].into()),
        };
        Some(Cookies { first, others, required })
    }
}

fn draw() -> Secret {
    let mut octets = [0; 16];
    aws_lc_rs::rand::fill(&mut octets).expect("the system's generator of random numbers never fails once it is up");
    Secret::new(octets)
}

/// Generates a new secret every day, until the process stops.
pub async fn roll(engine: Arc<Engine>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(SECRET_LIFETIME)).await.is_some() {
        engine.roll();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, ConfigSources};
    use signpost_dns::nameserver::rrl::RateLimit;

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = config::read(&ConfigSources::default()).expect("the defaults are valid");
        change(&mut settings);
        settings
    }

    #[test]
    fn a_drawn_secret_verifies_for_another_day() {
        let engine = Engine::new(&settings(|_| {}));
        let cookies = || engine.live().load().cookies.clone().expect("cookies are on by default");
        let before = cookies();
        assert_ne!(before.first, before.others[0], "drawn each for itself");
        engine.roll();
        let after = cookies();
        assert_ne!(after.first, before.first);
        assert_eq!(*after.others, [before.first]);
        // A reload changes none of these.
        engine.configure(&settings(|settings| settings.server.id = Some("ns1".to_owned())));
        assert_eq!(cookies(), after);
        assert_ne!(Engine::new(&settings(|_| {})).live().load().cookies, Some(after), "another process draws others");
    }

    #[test]
    fn configured_secrets_win() {
        let secrets: Vec<Secret> = (1..4).map(|octet| Secret::new([octet; 16])).collect();
        let engine = Engine::new(&settings(|settings| {
            settings.dns.cookies = CookieMode::Require;
            settings.dns.cookie_secret.clone_from(&secrets);
        }));
        for _ in 0..2 {
            let expected = Cookies { first: secrets[0], others: secrets[1..].into(), required: true };
            assert_eq!(engine.live().load().cookies, Some(expected));
            engine.roll();
        }
        engine.configure(&settings(|settings| settings.dns.cookies = CookieMode::Off));
        assert_eq!(engine.live().load().cookies, None);
    }

    #[test]
    fn what_the_server_says_of_itself() {
        let engine = Engine::new(&settings(|_| {}));
        let now = || nameserver::Settings { cookies: None, rate_limit: None, ..(**engine.live().load()).clone() };
        assert_eq!(
            now(),
            nameserver::Settings { wildcard_hits: now().wildcard_hits, ..nameserver::Settings::default() }
        );
        let changed = settings(|settings| {
            settings.server.id = Some("ns1".to_owned());
            settings.server.version = Some("one".to_owned());
            settings.dns.udp_payload = 4096;
        });
        let mut taken = settings(|_| {});
        taken.reload(&changed);
        engine.configure(&taken);
        assert_eq!((now().version.as_deref(), now().server_id.as_deref()), (Some("one"), Some("ns1")));
        assert_eq!((now().nsid.as_deref(), now().udp_payload_max), (Some(&b"ns1"[..]), 4096));
    }

    #[test]
    fn no_rate_is_no_limit() {
        let limit = |per_second| {
            let engine = Engine::new(&settings(|settings| settings.dns_rate_limit.per_second = per_second));
            engine.live().load().rate_limit.clone()
        };
        assert_eq!(limit(Some(0)), None);
        assert_eq!(limit(Some(9)).map(|limit| limit.per_second), Some(9));
        assert_eq!(limit(None), Some(RateLimit::of_amplified()));
    }
}
