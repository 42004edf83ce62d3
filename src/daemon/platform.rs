//! What the configuration says of the platform's zones, in the compiler's words.

use std::net::IpAddr;
use std::sync::Arc;

use crate::compiler::{self, settings::NameServer, settings::SettingsError};
use crate::config::Settings;
use crate::zone::Contents;

/// The compiler's settings. Without name servers in the configuration there is one, at `listened`; `base` is what the
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
    let name_servers = settings.nameservers.iter().map(name_server).collect();
    let mut platform = compiler::Settings::new(&settings.domain, name_servers, listened)?;
    platform.base = base.map(Arc::new);
    Ok(platform)
}
