//! The settings of each part, made from the settings of the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use data_encoding::BASE64URL_NOPAD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::settings::Settings;
use super::value::{Role, Strategy};
use signpost_api::kinds::quotas::Limits;
use signpost_apiserver::audit;
use signpost_apiserver::limits::Amount;
use signpost_control::certificates::ca;
use signpost_control::instances::objects;
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::webhook;
use signpost_control::sources::{self, Family};
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_types::names::LabelRules;

/// The transport of the admin endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminTls {
    /// Plain HTTP.
    Off,
    /// HTTPS, with the certificate of the API or a self-signed one.
    On,
    /// HTTPS, with a certificate of the operator.
    Files {
        /// `admin.tls-certificate`.
        certificate: PathBuf,
        /// `admin.tls-key`.
        key: PathBuf,
    },
}

impl Settings {
    /// Returns whether this process has the role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Returns whether the DNS server follows the API's objects, not only zone files.
    pub fn dns_follows_api(&self) -> bool {
        self.has(Role::Dns) && (self.has(Role::Api) || self.kubeconfig.is_some())
    }

    /// Returns whether the process is part of a platform. One that only serves zone files, or zones from primary servers, is not.
    pub fn has_platform(&self) -> bool {
        self.has(Role::Api) || self.has(Role::Scheduler) || self.dns_follows_api()
    }

    /// Returns whether the process stores anything on disk. A process that only serves zone files does not.
    pub fn needs_data_dir(&self) -> bool {
        self.has_platform() || self.has_primaries()
    }

    /// Returns whether the name server copies zones from primary servers.
    pub fn has_primaries(&self) -> bool {
        self.has(Role::Dns) && !self.dns.primary.is_empty()
    }

    /// Returns whether the DNS server listens for an encrypted transport, and needs a certificate.
    pub fn has_encrypted_dns(&self) -> bool {
        self.has(Role::Dns) && self.encrypted_dns_addresses().next().is_some()
    }

    /// Returns the addresses of all encrypted transports.
    pub fn encrypted_dns_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let transports = [&self.dns_tls.listen, &self.dns_https.listen, &self.dns_quic.listen];
        transports.into_iter().flatten().copied()
    }

    /// Returns the options of the agents of Routers that differ from the defaults of `signpost agent`.
    pub fn agent_options(&self) -> Vec<String> {
        let routers = &self.routers;
        let mut options = Vec::new();
        let mut add = |flag: &str, value: String| options.extend([flag.to_owned(), value]);
        routers.trusted_proxies.iter().for_each(|prefix| add("--trusted-proxies", prefix.to_string()));
        routers.refused_endpoint_networks.iter().for_each(|one| add("--refused-endpoint-networks", one.clone()));
        routers.refused_endpoints.iter().for_each(|endpoint| add("--refused-endpoints", endpoint.to_string()));
        for (flag, value) in [
            ("--client-connections", routers.client_connections),
            ("--route-servers", routers.route_servers),
            ("--namespace-servers", routers.namespace_servers),
            ("--router-servers", routers.router_servers),
        ] {
            value.iter().for_each(|value| add(flag, value.to_string()));
        }
        options
    }

    /// Returns the same for agents on this machine. The listeners of this process get no requests of tenants.
    pub fn local_agent_options(&self) -> Vec<String> {
        let own = self.api.listen.iter().chain(&self.admin.listen).chain(&self.dns.listen).copied();
        let own = own.chain(self.encrypted_dns_addresses()).filter(|address| address.port() != 0);
        let mut options = self.agent_options();
        options.extend(own.flat_map(|address| ["--refused-endpoints".to_owned(), address.to_string()]));
        if let Some(user) = &self.routers.proxy_user {
            options.extend(["--proxy-user".to_owned(), user.clone()]);
        }
        for path in &self.routers.proxy_files {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            options.extend(["--proxy-files".to_owned(), path.to_string_lossy().into_owned()]);
        }
        options
    }

    /// Returns the pods of Routers, for the runtime `kubernetes`.
    pub fn pods(&self, name_servers: Vec<SocketAddr>) -> objects::Settings {
        let options = self.agent_options();
        let routers = self.routers.clone();
        objects::Settings {
            namespace: routers.namespace,
            // Without an image the settings are rejected.
            image: routers.image.unwrap_or_default(),
            service_type: routers.service_type,
            host_network: routers.host_network,
            cpu: routers.cpu,
            memory: routers.memory,
            certificates: routers.certificates_secret,
            upstream_authorities: routers.upstream_ca_config_map,
            access: routers.access_secret,
            api_servers: self.api_server.clone(),
            admin: self.admin.listen.clone(),
            name_servers,
            options,
        }
    }

    /// Returns the settings of sources.
    pub fn sources(&self) -> sources::Settings {
        let own = &self.sources;
        let modes = [
            (Family::Gateway, own.gateway),
            (Family::OpenShift, own.openshift),
            (Family::Ingress, own.ingress),
            (Family::Service, own.service),
        ];
        let labels: BTreeMap<String, String> = own.namespace_selector.iter().cloned().collect();
        let selector = || LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() };
        sources::Settings {
            modes: modes.into(),
            domain: self.domain.clone(),
            domains: own.domains.clone(),
            gateway_controllers: own.gateway_controllers.clone(),
            ingress_classes: own.ingress_classes.iter().cloned().collect(),
            namespace_selector: (!labels.is_empty()).then(selector),
            annotation_prefixes: own.annotation_prefixes.clone(),
            private_addresses: own.private_addresses,
        }
    }

    /// Returns the certificate authority, if there is one.
    ///
    /// # Errors
    ///
    /// The file with the key of an external account cannot be read.
    pub(crate) fn certificate_authority(&self) -> Result<Option<ca::Settings>, String> {
        let own = &self.acme;
        let Some(directory) = own.directory.clone() else { return Ok(None) };
        let key = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            let key = text.and_then(|text| {
                let text = text.trim().trim_end_matches('=');
                BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| "not a key in Base64 for URLs".to_owned())
            });
            key.map_err(|problem| format!("\"acme.external-account-key-file\" {}: {problem}", path.display()))
        };
        let key = own.external_account_key_file.as_ref().map(key).transpose()?;
        Ok(Some(ca::Settings {
            directory,
            contact: own.contact.clone(),
            profile: own.profile.clone(),
            external_account: own.external_account.clone().zip(key),
            authorities: own.ca_file.clone(),
        }))
    }

    /// Returns the strategy or the webhook that chooses Routers.
    pub fn chooser(&self) -> StrategyConfig {
        match (self.scheduler.strategy, &self.webhook.url) {
            (Strategy::Webhook, Some(url)) => StrategyConfig::Webhook(webhook::Settings {
                url: url.clone(),
                timeout: self.webhook.timeout,
                authorities: self.webhook.ca.clone(),
                token: self.webhook.token_file.clone(),
                fallback: self.webhook.fallback,
            }),
            // Without a URL the settings are rejected.
            (Strategy::Webhook, None) => StrategyConfig::Strategy(self.webhook.fallback),
            (Strategy::Own(name), _) => StrategyConfig::Strategy(name),
        }
    }

    /// Returns the transport of the admin endpoints. A certificate turns TLS on.
    pub fn admin_tls(&self) -> AdminTls {
        match (self.admin.tls, &self.admin.tls_certificate, &self.admin.tls_key) {
            (None | Some(true), Some(certificate), Some(key)) => {
                AdminTls::Files { certificate: certificate.clone(), key: key.clone() }
            }
            (Some(true), ..) => AdminTls::On,
            _ => AdminTls::Off,
        }
    }

    /// Returns the limits of the API server.
    pub fn limits(&self) -> Limits {
        let namespace = &self.namespace;
        Limits {
            object_bytes: usize::try_from(self.api.object_size).expect("it is at most 512Ki"),
            routes: Amount { objects: namespace.routes, bytes: namespace.route_bytes },
            events: Amount { objects: namespace.events, bytes: namespace.event_bytes },
            quarantine: self.name.quarantine_max as usize,
        }
    }

    /// Returns the rules on the labels of Routes.
    pub fn label_rules(&self) -> LabelRules {
        LabelRules { reserved: self.name.reserved_labels.clone(), tenant_subdomains: self.name.tenant_subdomains }
    }

    /// Returns the size and the number of the audit log files.
    pub fn audit_bounds(&self) -> audit::log::Bounds {
        audit::log::Bounds { octets: self.audit.log_size, files: self.audit.log_files }
    }

    /// Returns the response rate limit; 0 responses per second mean none.
    pub fn rate_limit(&self) -> RateLimit {
        let limit = &self.dns_rate_limit;
        let base = match limit.per_second {
            Some(per_second) => RateLimit { per_second, ..RateLimit::default() },
            None => RateLimit::of_amplified(),
        };
        RateLimit {
            enforced: limit.mode,
            window: u16::try_from(limit.window.as_secs()).expect("it is at most an hour"),
            slip: limit.slip,
            ipv4_prefix: limit.ipv4_prefix,
            ipv6_prefix: limit.ipv6_prefix,
            exempt: base.exempt.iter().chain(&limit.exempt).copied().collect(),
            ..base
        }
    }
}
