//! RouteBindings.

use std::sync::Arc;

use jiff::Timestamp;

use super::route::NamesDigest;
use super::router::RouterTarget;
use crate::client::uid::Uid;
use crate::compiler::Diagnostic;
use crate::compiler::inputs::BindingInput;
use signpost_types::names::{alias_name, record_for_host};
use signpost_types::v1alpha1::route::{AssignedName, FormerName, NameKind};
use signpost_types::v1alpha1::route_binding::RouteBinding;

/// A RouteBinding.
#[derive(Debug, Clone, Default)]
pub struct BindingInfo {
    pub route_uid: Uid,
    pub router: Arc<str>,
    /// The zone when the Route was bound; empty: unknown.
    pub dns: Arc<str>,
    pub label: Box<str>,
    /// Whether the Route has a host that it claims: a custom or an adopted one, not its system name.
    pub has_host: bool,
    /// Whether it is being deleted, and kept by finalizers.
    pub deleting: bool,
    /// A number that grows with each commit, to order bindings by.
    pub turn: u64,
    /// Whether its alias is in another domain than the platform's, which has changed.
    pub alias_differs: bool,
    /// Digest of its names and former names.
    pub names: NamesDigest,
    pub former_names: Box<[FormerNameInfo]>,
    /// The input for zones, if the binding has an alias.
    pub input: Option<Arc<BindingInput>>,
    /// The problems of the binding.
    pub diagnostics: Box<[Diagnostic]>,
}

/// A former name of a Route.
#[derive(Debug, Clone, PartialEq)]
pub struct FormerNameInfo {
    /// The Router that it was on.
    pub router: Arc<str>,
    /// The zone of that Router, in which the name is.
    pub zone: Arc<str>,
    /// The time from which the name resolves to the Route, if it does not yet.
    pub from: Option<Timestamp>,
    /// The time until which the name resolves to the Route.
    pub until: Timestamp,
}

impl BindingInfo {
    /// Reads a RouteBinding of the platform with this domain.
    pub fn of_platform(binding: &RouteBinding, domain: &str) -> Self {
        BindingInfo { alias_differs: alias_to_change(binding, domain).is_some(), ..BindingInfo::new(binding) }
    }

    /// Reads a RouteBinding.
    pub fn new(binding: &RouteBinding) -> Self {
        let mut diagnostics = Vec::new();
        let input = BindingInput::read(binding, &mut diagnostics).map(Arc::new);
        // Versions are opaque by the API's conventions, but numbers on every known server; otherwise, the time must suffice.
        let version = binding.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let created = binding.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        BindingInfo {
            route_uid: Uid::from(&*binding.spec.route_uid),
            router: binding.spec.router.as_str().into(),
            dns: binding.spec.dns.as_str().into(),
            label: binding.spec.label.as_str().into(),
            has_host: binding.spec.names.iter().any(|name| matches!(name.kind, NameKind::Custom | NameKind::Adopted)),
            deleting: binding.metadata.deletion_timestamp.is_some(),
            turn: version.unwrap_or_else(|| u64::try_from(created).unwrap_or(0)),
            alias_differs: false,
            names: NamesDigest::new(&binding.spec.names, &binding.spec.former_names),
            former_names: former_names(binding),
            input,
            diagnostics: diagnostics.into(),
        }
    }

    /// Returns the time at which the names are due to change: the first of the former names begins or ends, or immediately if the
    /// alias is in another domain.
    pub fn former_name_turn(&self) -> Option<Timestamp> {
        let times = self.former_names.iter().map(|former| former.from.unwrap_or(former.until));
        if self.alias_differs { Some(Timestamp::UNIX_EPOCH) } else { times.min() }
    }

    /// Returns whether the Router has another zone than the route's name: it was deleted and re-created.
    pub fn is_zone_gone(&self, router: &RouterTarget) -> bool {
        !self.dns.is_empty() && !self.dns.eq_ignore_ascii_case(&router.dns)
    }
}

fn former_names(binding: &RouteBinding) -> Box<[FormerNameInfo]> {
    let of = |former_name: &FormerName| FormerNameInfo {
        router: former_name.router.as_str().into(),
        zone: former_name.name.split_once('.').unwrap_or_default().1.into(),
        from: former_name.from.as_ref().map(|from| from.0),
        until: former_name.until.0,
    };
    binding.spec.former_names.iter().map(of).collect()
}

/// Returns the alias that a binding must have below `domain`, if it has another one, or a record of its host that leads to another
/// one.
pub fn alias_to_change(binding: &RouteBinding, domain: &str) -> Option<String> {
    let alias = alias_name(&binding.spec.label, domain);
    let differs = |name: &AssignedName| match (name.kind, &name.record) {
        (NameKind::Alias, _) => !name.name.eq_ignore_ascii_case(&alias),
        (NameKind::Custom, Some(record)) => !record.eq_ignore_ascii_case(&record_for_host(&name.name, &alias)),
        _ => false,
    };
    binding.spec.names.iter().any(differs).then_some(alias)
}
