//! Former domains of the platform: after a change of the domain, the parent zone and the alias zone of the former one are served
//! until an administrator ends it, because custom hosts point to its aliases, and the zone above delegates it.
//!
//! Their records are made as before, from the same objects. They keep the name servers that the former domain had: the delegation
//! in the zone above names these. The Zone object of the former domain has them.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::settings::{NameServer, Settings, text_of};
use signpost_dns::wire::Name;
use signpost_dns::zone::Contents;
use signpost_types::v1alpha1::zone::ZonePlatform;

/// A domain, with the configuration of its zones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerDomain {
    /// The domain, without a trailing dot.
    pub domain: String,
    /// The name servers, each with its addresses; without any, they are those of the current domain.
    pub name_servers: Vec<(String, Vec<IpAddr>)>,
    /// The encrypted transports that these offer.
    pub transports: Vec<String>,
    /// The path of DNS over HTTPS.
    pub https_path: String,
}

impl FormerDomain {
    /// Returns a domain with the configuration in its Zone object.
    pub fn new(domain: &str, platform: Option<&ZonePlatform>) -> FormerDomain {
        let servers = platform.iter().flat_map(|platform| &platform.name_servers);
        let addresses = |addresses: &[String]| addresses.iter().filter_map(|address| address.parse().ok()).collect();
        FormerDomain {
            domain: domain.to_owned(),
            name_servers: servers.map(|server| (server.name.clone(), addresses(&server.addresses))).collect(),
            transports: platform.map(|platform| platform.transports.clone()).unwrap_or_default(),
            https_path: platform.and_then(|platform| platform.https_path.clone()).unwrap_or_default(),
        }
    }

    /// Returns the domain of `settings`, as it will be when it is a former one.
    pub fn of(settings: &Settings) -> FormerDomain {
        let servers = settings.name_servers().iter();
        FormerDomain {
            domain: settings.domain_text(),
            name_servers: servers.map(|server| (text_of(&server.name), server.addresses.clone())).collect(),
            transports: settings.transports().iter().map(ToString::to_string).collect(),
            https_path: settings.https_path().to_owned(),
        }
    }

    /// Returns the settings of the domain's zones; `None` if the domain is not usable. The name servers and times that are not
    /// known are those of the `current` domain.
    pub fn settings(&self, current: &Settings) -> Option<Settings> {
        let server = |(name, addresses): &(String, Vec<IpAddr>)| {
            Some(NameServer { name: name.parse().ok()?, addresses: addresses.clone() })
        };
        let servers: Option<Vec<NameServer>> = self.name_servers.iter().map(server).collect();
        let own = servers.filter(|servers| !servers.is_empty());
        let own = own.and_then(|servers| Settings::new(&self.domain, servers, &[]).ok()).map(|settings| {
            let transports: Vec<_> = self.transports.iter().filter_map(|transport| transport.parse().ok()).collect();
            settings.with_transports(&transports, &self.https_path)
        });
        let inherited = || {
            let settings = Settings::new(&self.domain, current.name_servers().to_vec(), &[]).ok()?;
            Some(settings.with_transports(current.transports(), current.https_path()))
        };
        let mut settings = own.or_else(inherited)?;
        settings.timers = current.timers;
        (settings.infrastructure_ttl, settings.alias_ttl) = (current.infrastructure_ttl, current.alias_ttl);
        Some(settings)
    }
}

impl Settings {
    /// Returns these settings with the platform's former domains, whose zones are served, too. `base` returns the base of a former
    /// domain's parent zone.
    #[must_use]
    pub fn with_former_domains(
        &self,
        former: &[FormerDomain],
        base: impl Fn(&Name) -> Option<Arc<Contents>>,
    ) -> Settings {
        let mut settings = self.clone();
        settings.former_domains = Vec::new();
        let of = |former: &FormerDomain| {
            let former = former.settings(&settings)?;
            Some(Arc::new(former.with_base(base(former.domain()))))
        };
        settings.former_domains = former.iter().filter_map(of).collect();
        settings
    }
}
