//! The platform settings of a command: domain, name servers, and the rules for moves of Routes.
//!
//! The configuration of the servers is on the servers. Settings that are not in the command's own flags, variables or
//! `--config` come from the parent's Zone object in the API. Settings that are in neither are unknown, and never taken
//! from defaults.

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;

use super::access::{Access, ApiLocation};
use crate::config::{self, NameServer};
use signpost_control::compiler::discovery::OfferedTransport;
use signpost_control::compiler::former_domains::FormerDomain;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::scheduler::webhook;
use signpost_dns::transport::https::request::TemplatePath;
use signpost_types::v1alpha1::zone::{Zone, ZonePlatform, current_parent};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlatformSettings {
    /// The domain, without a dot at the end.
    pub(super) domain: String,
    /// The former domains whose zones are served.
    pub(super) former_domains: Vec<FormerDomain>,
    /// The name servers of its zones; `None`: not known.
    pub(super) name_servers: Option<Vec<NameServer>>,
    /// The encrypted transports that the name servers offer.
    pub(super) transports: Vec<OfferedTransport>,
    /// The path of DNS over HTTPS; `None`: not known.
    pub(super) https_path: Option<TemplatePath>,
    /// The addresses at which the platform verifies names, as `ADDRESS:PORT`.
    pub(super) asked: Vec<String>,
    /// The lifetime of former names; `None`: not known.
    pub(super) former_name_retention: Option<Duration>,
    /// The Routes per second that leave draining Routers; `None`: not known.
    pub(super) drain_rate: Option<u32>,
    /// The maximum number of labels in quarantine for a namespace that can still get new ones; `None`: not known.
    pub(super) quarantined_max: Option<u32>,
    /// The labels that no Route gets; `None`: not known.
    pub(super) reserved_labels: Option<Vec<String>>,
    pub(super) strategy: StrategyName,
    /// The reason why the platform may select another Router than that strategy.
    pub(super) caveat: Option<&'static str>,
}

/// The key that bounds what is in quarantine.
pub(super) const QUARANTINE_MAX: &str = "name.quarantine-max";
/// The key of the labels that no Route gets.
pub(super) const RESERVED_LABELS: &str = "name.reserved-labels";
const WEBHOOK: &str =
    "this prediction uses the fallback strategy of the webhook; the webhook itself may select another Router";
const NO_STRATEGY: &str = "the platform's strategy is unknown, so this prediction uses the default strategy; set \
                           --scheduler-strategy, or the --config of the server";

impl PlatformSettings {
    /// Reads the settings from the API that the command line does not contain.
    pub(super) async fn find(place: &ApiLocation, access: &Access) -> Result<PlatformSettings, String> {
        let api: Api<Zone> = Api::all(access.client.clone());
        let parents = match api.list(&ListParams::default().fields("spec.type=parent")).await {
            Ok(zones) => Some(zones.items),
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            Err(error) => return Err(access.unanswered(error)),
        };
        PlatformSettings::of(place, parents.as_deref()).map_err(|error| format!("{}: {error}", place.origin()))
    }

    /// Returns the platform by `place`, and by the Zones of the API; `None`: they may not be read.
    fn of(place: &ApiLocation, zones: Option<&[Zone]>) -> Result<PlatformSettings, String> {
        let settings = &place.settings;
        let zone = current_parent(zones.unwrap_or_default());
        let published = zone.and_then(|zone| zone.metadata.name.as_deref());
        let domain = match (place.is_given("domain"), published) {
            (true, Some(published)) if published != settings.domain => {
                return Err(format!(
                    "domain mismatch: the platform of this API is {published}, not {}; omit --domain, or use another \
                     kubeconfig",
                    settings.domain
                ));
            }
            (true, _) => settings.domain.clone(),
            (false, Some(published)) => published.to_owned(),
            (false, None) if zones.is_none() => {
                return Err(
                    "the platform's domain is unknown: you are not allowed to read Zones; set --domain".to_owned()
                );
            }
            (false, None) => {
                return Err(
                    "the platform's domain is unknown: the scheduler has not created a Zone of type parent yet; set \
                     --domain"
                        .to_owned(),
                );
            }
        };
        let known = PlatformSettings::with(place, domain, zone.and_then(|zone| zone.spec.platform.as_ref()));
        Ok(PlatformSettings { former_domains: former_domains(zone, zones.unwrap_or_default()), ..known })
    }

    fn with(place: &ApiLocation, domain: String, published: Option<&ZonePlatform>) -> PlatformSettings {
        let settings = &place.settings;
        let name_servers = match published {
            _ if place.is_given("nameserver") => Some(settings.nameserver.clone()),
            published => published.map(|published| published.name_servers.iter().map(name_server).collect()),
        };
        let (strategy, caveat) = match published {
            _ if place.is_given("scheduler.strategy") => own_strategy(settings),
            None => (own_strategy(settings).0, Some(NO_STRATEGY)),
            Some(published) => {
                let is_webhook = published.strategy == webhook::NAME;
                let name = published.webhook_fallback.as_deref().filter(|_| is_webhook).unwrap_or(&published.strategy);
                match name.parse() {
                    Ok(name) => (name, is_webhook.then_some(WEBHOOK)),
                    // A strategy of a newer server.
                    Err(_) => (own_strategy(settings).0, Some(NO_STRATEGY)),
                }
            }
        };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let retention = published.map(|published| seconds(published.former_name_retention_seconds));
        PlatformSettings {
            domain,
            former_domains: Vec::new(),
            name_servers,
            transports: published.map_or_else(
                || settings.nameserver_transport.clone(),
                |published| published.transports.iter().filter_map(|text| text.parse().ok()).collect(),
            ),
            https_path: published.and_then(|published| published.https_path.as_deref()?.parse().ok()),
            asked: published.map(|published| published.asked.clone()).unwrap_or_default(),
            former_name_retention: own(place, "former-name.retention", &settings.former_name.retention).or(retention),
            drain_rate: own(place, "scheduler.drain-rate", &settings.scheduler.drain_rate)
                .or(published.map(|published| published.drain_rate)),
            quarantined_max: own(place, QUARANTINE_MAX, &settings.name.quarantine_max)
                .or(published.and_then(|published| published.name_quarantine_max)),
            reserved_labels: own(place, RESERVED_LABELS, &settings.name.reserved_labels)
                .or(published.and_then(|published| published.reserved_labels.clone())),
            strategy,
            caveat,
        }
    }
}

/// Returns a setting, if the flags or the configuration set it.
fn own<T: Clone>(place: &ApiLocation, key: &str, value: &T) -> Option<T> {
    place.is_given(key).then(|| value.clone())
}

/// Returns the former domains that the parent Zone lists, with the settings in their own Zones.
fn former_domains(parent: Option<&Zone>, zones: &[Zone]) -> Vec<FormerDomain> {
    let of = |domain: &String| {
        let zone = zones.iter().find(|zone| zone.metadata.name.as_ref() == Some(domain));
        FormerDomain::new(domain, zone.and_then(|zone| zone.spec.platform.as_ref()))
    };
    parent.map(|parent| parent.spec.former_domains.iter().map(of).collect()).unwrap_or_default()
}

fn name_server(published: &signpost_types::v1alpha1::zone::ZoneNameServer) -> NameServer {
    NameServer {
        name: published.name.clone(),
        addresses: published.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
    }
}

fn own_strategy(settings: &config::Settings) -> (StrategyName, Option<&'static str>) {
    match settings.scheduler.strategy {
        config::Strategy::Own(name) => (name, None),
        config::Strategy::Webhook => (settings.webhook.fallback, Some(WEBHOOK)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::{Value, json};

    fn place(arguments: &[&str]) -> ApiLocation {
        let command = clap::Command::new("x").args(crate::cli::serve::arguments());
        let matches = command.try_get_matches_from([&["x"], arguments].concat()).expect("is understood");
        ApiLocation::of(&matches).expect("good settings")
    }

    fn zone(name: &str, at: &str, platform: &Value) -> Zone {
        let versions = json!([{"serial": 1, "digest": "00", "at": at}]);
        let spec = json!({"type": "parent", "versions": versions, "platform": platform});
        object("Zone", json!({"name": name}), spec, Value::Null)
    }

    fn published(strategy: &str) -> Value {
        json!({"nameServers": [{"name": "ns.plat.example", "addresses": ["192.0.2.53"]}], "strategy": strategy,
            "webhookFallback": "round-robin", "drainRate": 3, "formerNameRetentionSeconds": 60, "nameQuarantineMax": 5,
            "reservedLabels": ["billing"], "asked": ["192.0.2.53:53"]}) // words:ok: a field
    }

    #[test]
    fn the_api_publishes_what_no_flag_sets() {
        let zones = [
            zone("old.example", "2026-01-01T00:00:00Z", &Value::Null),
            zone("plat.example", "2026-02-01T00:00:00Z", &published("least-routes")),
        ];
        let found = PlatformSettings::of(&place(&[]), Some(&zones)).expect("the Zone is readable");
        assert_eq!((found.domain.as_str(), found.drain_rate), ("plat.example", Some(3)));
        assert_eq!(found.former_name_retention, Some(Duration::from_secs(60)));
        assert_eq!((found.strategy, found.caveat), (StrategyName::LeastRoutes, None));
        assert_eq!(found.quarantined_max, Some(5));
        assert_eq!(found.reserved_labels, Some(vec!["billing".to_owned()]));
        assert_eq!(found.name_servers.expect("the Zone lists them")[0].name, "ns.plat.example");
        let flags = "--domain plat.example --scheduler-drain-rate 7 --name-quarantine-max 6 --scheduler-strategy weighted \
                     --name-reserved-labels pay,login --nameserver ns.example.net";
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let found = PlatformSettings::of(&place(&flags), Some(&zones)).expect("both agree");
        assert_eq!((found.drain_rate, found.strategy), (Some(7), StrategyName::Weighted));
        assert_eq!(found.quarantined_max, Some(6));
        assert_eq!(found.reserved_labels, Some(vec!["pay".to_owned(), "login".to_owned()]));
        assert_eq!(found.name_servers.expect("they are given")[0].name, "ns.example.net");
        let error = PlatformSettings::of(&place(&["--domain", "v3.example"]), Some(&zones)).expect_err("it is another");
        assert!(error.contains("is plat.example, not v3.example"), "{error}");
        let webhook = [zone("plat.example", "2026-02-01T00:00:00Z", &published("webhook"))];
        let found = PlatformSettings::of(&place(&[]), Some(&webhook)).expect("the Zone is readable");
        assert_eq!((found.strategy, found.caveat), (StrategyName::RoundRobin, Some(WEBHOOK)));
    }

    #[test]
    fn nothing_is_invented() {
        let silent = [zone("plat.example", "2026-02-01T00:00:00Z", &Value::Null)];
        let found = PlatformSettings::of(&place(&[]), Some(&silent)).expect("the Zone has the domain");
        assert_eq!((found.former_name_retention, found.drain_rate, found.caveat), (None, None, Some(NO_STRATEGY)));
        assert_eq!((found.name_servers, found.quarantined_max, found.reserved_labels), (None, None, None));
        assert!(PlatformSettings::of(&place(&[]), Some(&[])).expect_err("no Zone").contains("--domain"));
        assert!(PlatformSettings::of(&place(&[]), None).expect_err("a tenant").contains("not allowed to read Zones"));
        let given = PlatformSettings::of(&place(&["--domain", "v3.example"]), None).expect("it is given");
        assert_eq!(given.domain, "v3.example");
    }
}
