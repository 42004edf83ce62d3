//! Converts the configuration of the platform's zones to the types of the compiler.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Settings, Strategy};
use signpost_control::compiler::{self, settings::NameServer, settings::SettingsError, settings::text_of};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::webhook;
use signpost_dns::zone::Contents;
use signpost_types::v1alpha1::zone::{ZoneNameServer, ZonePlatform};

/// Returns the compiler's settings. Without name servers in the configuration there is one, at `listened`; `base` is what the
/// zone file of the platform's domain adds to the parent zone.
pub fn settings(
    settings: &Settings,
    listened: &[IpAddr],
    base: Option<Contents>,
) -> Result<compiler::Settings, SettingsError> {
    let name_server = |server: &crate::config::NameServer| NameServer {
        name: server.name.parse().expect("the configuration checked it"),
        addresses: server.addresses.clone(),
    };
    let name_servers = settings.nameserver.iter().map(name_server).collect();
    let mut platform = compiler::Settings::new(&settings.domain, name_servers, listened)?;
    platform.base = base.map(Arc::new);
    let platform = platform.with_transports(&settings.nameserver_transport, settings.dns_https.path.as_ref());
    Ok(platform)
}

/// Returns the settings in the parent's Zone object. The last argument lists the name servers that are queried to verify names.
pub fn published(settings: &Settings, platform: &compiler::Settings, asked: &[SocketAddr]) -> ZonePlatform {
    let name_server = |server: &NameServer| ZoneNameServer {
        name: text_of(&server.name),
        addresses: server.addresses.iter().map(ToString::to_string).collect(),
    };
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let (strategy, webhook_fallback) = chosen_by(settings);
    ZonePlatform {
        name_servers: platform.name_servers().iter().map(name_server).collect(),
        transports: settings.nameserver_transport.iter().map(ToString::to_string).collect(),
        https_path: (!settings.nameserver_transport.is_empty()).then(|| settings.dns_https.path.as_ref().to_owned()),
        asked: asked.iter().map(ToString::to_string).collect(),
        strategy,
        webhook_fallback,
        drain_rate: settings.scheduler.drain_rate,
        former_name_retention_seconds: seconds(settings.former_name.retention),
        name_quarantine_max: Some(settings.name.quarantine_max),
        reserved_labels: Some(settings.name.reserved_labels.clone()),
    }
}

/// Checks whether the webhook is usable, so that an error is logged at the start and not only in the explanation of each Route.
pub async fn check_chooser(chooser: &StrategyConfig) {
    if let StrategyConfig::Webhook(settings) = chooser
        && let Err(error) = webhook::check(settings).await
    {
        tracing::error!("{error}; until it is fixed, the strategy {} places Routes", settings.fallback);
    }
}

/// Returns the strategy and, for a webhook, the fallback strategy.
pub fn chosen_by(settings: &Settings) -> (String, Option<String>) {
    match settings.scheduler.strategy {
        Strategy::Own(name) => (name.to_string(), None),
        Strategy::Webhook => (webhook::NAME.to_owned(), Some(settings.webhook.fallback.to_string())),
    }
}
