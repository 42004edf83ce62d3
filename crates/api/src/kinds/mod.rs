//! Signpost's kinds, and the Kubernetes kinds that Routes lead to, as the API server serves them: columns, selectable fields, and
//! hooks, with one file per kind.
//!
//! The hooks share the settings of the platform ([`PlatformConfig`]), which the server itself does not depend on.

pub mod challenge_record;
pub mod deletion_hold;
pub mod name_claim;
pub mod route;
pub mod route_binding;
pub mod router;
pub mod zone;

pub mod endpoint_slice;
pub mod secret;
pub mod service;

mod conflict_keys;
pub mod quotas;
mod sources;

#[cfg(test)]
pub(crate) mod fixture;

use std::sync::Arc;

use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::damaged::DamageMarks;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::Hooks;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::{Product, Settings};

use self::quotas::Limits;
use crate::access::AccessRules;
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::names::LabelRules;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::{DAMAGED_ANNOTATION, DAMAGED_HEADER, SCHEDULER_LEASE_NAMESPACE};

/// A function that returns the faults of a Router that make a part of it unusable, one sentence for each.
pub type DiagnoseRouter = Box<dyn Fn(&Router) -> Vec<String> + Send + Sync>;

/// The function that returns the labels in a Router's zone that are occupied by other names, each with the reason as text that
/// follows the name.
pub type OccupiedLabels = Box<dyn Fn(&Router) -> Vec<(String, String)> + Send + Sync>;

/// The function that returns the names of a Router's further records, in lower case and without a trailing dot.
pub type RecordNames = Box<dyn Fn(&Router) -> Vec<String> + Send + Sync>;

/// The settings of the platform that the hooks of Signpost's kinds depend on.
pub struct PlatformConfig {
    /// The platform's domain, such as `v3.rhcloud.com`.
    pub domain: String,
    /// The names of the platform's name servers, without a trailing dot.
    pub name_servers: Vec<String>,
    /// The labels that Routes may have.
    pub label_rules: LabelRules,
    /// The quotas of namespaces.
    pub limits: Limits,
    /// The diagnosis of Routers: the client that writes a Router gets these faults as warnings.
    pub diagnose_router: DiagnoseRouter,
    /// The occupied labels of a Router: the client that writes the Router gets warnings about the Routes with these labels.
    pub occupied_labels: OccupiedLabels,
    /// The names of a Router's further records.
    pub record_names: RecordNames,
}

impl PlatformConfig {
    /// Returns a platform of which nothing is known but its domain.
    pub fn new(domain: impl Into<String>) -> Self {
        PlatformConfig {
            domain: domain.into(),
            name_servers: Vec::new(),
            label_rules: LabelRules::default(),
            limits: Limits::default(),
            diagnose_router: Box::new(|_| Vec::new()),
            occupied_labels: Box::new(|_| Vec::new()),
            record_names: Box::new(|_| Vec::new()),
        }
    }
}

/// Returns Signpost's kinds, and those of every API server, with the quotas of namespaces.
pub fn kinds(config: PlatformConfig) -> Kinds {
    let platform = Arc::new(config);
    let own: [(&'static Kind, Arc<dyn Hooks>); 10] = [
        (&router::ROUTER, Arc::new(router::Routers::new(platform.clone()))),
        (&route::ROUTE, Arc::new(route::Routes::new(platform.clone()))),
        (&route_binding::ROUTE_BINDING, Arc::new(route_binding::RouteBindings::new(&platform.domain))),
        (&name_claim::NAME_CLAIM, Arc::new(name_claim::NameClaims { quarantine: platform.limits.quarantine })),
        (&zone::ZONE, Arc::new(zone::Zones)),
        (&deletion_hold::DELETION_HOLD, Arc::new(deletion_hold::DeletionHolds)),
        (&challenge_record::CHALLENGE_RECORD, Arc::new(challenge_record::ChallengeRecords::new(&platform.domain))),
        (&service::SERVICE, Arc::new(service::Services)),
        (&secret::SECRET, Arc::new(secret::Secrets)),
        (&endpoint_slice::ENDPOINT_SLICE, Arc::new(endpoint_slice::EndpointSlices)),
    ];
    let damage_marks = DamageMarks { annotation: DAMAGED_ANNOTATION, header: DAMAGED_HEADER };
    let kinds = Kinds::new(own).with_damage_marks(damage_marks);
    let kinds = kinds.with_namespaces(&["default", "kube-system", SCHEDULER_LEASE_NAMESPACE, AGENT_NAMESPACE]);
    quotas::all(&platform.limits).into_iter().fold(kinds, |kinds, (kind, quota)| kinds.with_quota(kind, quota))
}

/// Returns the settings of an API server that serves a platform.
pub fn server_settings(config: PlatformConfig, authenticator: Arc<Authenticator>) -> Settings {
    let object_bytes = config.limits.object_bytes;
    let product = Product { name: "signpost", title: "Signpost", version: env!("CARGO_PKG_VERSION") };
    Settings { object_bytes, product, ..Settings::new(kinds(config), Arc::new(AccessRules), authenticator) }
}

#[cfg(test)]
mod tests;
