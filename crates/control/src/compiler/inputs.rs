//! The compiler's inputs from each object: Routers and RouteBindings, reduced to the fields that become records.
//!
//! An object is read once, on arrival. Unusable values are omitted with a diagnostic, so that the rest of the compiler gets only
//! valid names and valid addresses. The last-known-good state on disk also contains these reduced objects.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::diagnostic::Diagnostic;
use super::health::{AddressInput, AddressSelection, Health, choose};
use super::wire_form;
use signpost_dns::wire::Name;
use signpost_dns::zone::Ttl;
use signpost_types::names;
use signpost_types::v1alpha1::route::{ADOPTED, NameKind};
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::{AddressHealthState, AddressState, InstanceState, Mode, Router, RouterStatus};

/// A Router, reduced. The last-known-good state on disk contains it in this form: a change of the fields needs another version of its format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterInput {
    /// `metadata.name`.
    #[serde(skip)]
    pub name: Box<str>,
    /// The creation time, in seconds since 1970; of two Routers with one `dns`, the older one serves it.
    pub created: i64,
    /// The shard's zone.
    #[serde(with = "wire_form::name")]
    pub apex: Name,
    /// The TTL of the wildcard, and the default TTL of `records`.
    #[serde(with = "wire_form::ttl")]
    pub ttl: Ttl,
    /// The mode in which the addresses are used together.
    pub mode: Mode,
    /// The usable addresses, each once, in numeric order.
    pub addresses: Box<[AddressInput]>,
    /// The unchanged `spec.records`.
    pub records: Box<[Box<str>]>,
    /// The percentage of addresses that must be healthy for health to count; 0 for a Router without a health check and without
    /// instances at its addresses.
    pub panic_percent: u8,
}

impl RouterInput {
    /// Reads a Router; `domain` is the platform's, without a trailing dot. Returns `None` if no zone is possible, with a
    /// diagnostic of the reason; other diagnostics list the omitted values.
    pub fn read(router: &Router, domain: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<RouterInput> {
        let name = router.metadata.name.as_deref().unwrap_or_default();
        let spec = &router.spec;
        let dns = spec.dns.clone().unwrap_or_else(|| format!("{name}.{domain}"));
        let apex = match dns.parse::<Name>() {
            Ok(apex) if !apex.is_root() && !apex.is_wildcard() && apex.as_wire().len() <= 255 - 2 => Ok(apex),
            Ok(_) => Err(format!("{dns:?} cannot be the name of a shard's zone")),
            Err(error) => Err(format!("{dns:?} is not a domain name: {error}")),
        };
        let apex = apex.map_err(|message| diagnostics.push(Diagnostic::router(name, "spec.dns", message))).ok()?;
        let field = router.addresses_field();
        let mut addresses = Vec::with_capacity(router.addresses().len());
        for (at, address) in router.addresses().iter().enumerate() {
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                let message =
                    format!("{:?} is neither an IPv4 nor an IPv6 address; the address is ignored", address.ip);
                diagnostics.push(Diagnostic::router(name, format!("{field}[{at}].ip"), message));
                continue;
            };
            addresses.push(AddressInput {
                ip: ip.to_canonical(),
                active: address.state == AddressState::Active,
                priority: address.priority,
                weight: u16::try_from(address.weight).unwrap_or(u16::MAX).max(1),
                health: health(router, ip),
            });
        }
        addresses.sort_unstable();
        addresses.dedup_by_key(|address| address.ip);
        omit_leaving(router, &mut addresses);
        Some(RouterInput {
            name: name.into(),
            created: created(&router.metadata),
            apex,
            ttl: Ttl::new(spec.ttl).unwrap_or(Ttl::MAX),
            mode: spec.mode,
            addresses: addresses.into_boxed_slice(),
            records: spec.records.iter().map(|record| record.as_str().into()).collect(),
            panic_percent: panic_percent(router),
        })
    }

    /// Returns the addresses to answer with, by state, mode and health (see [`health`](super::health)).
    pub fn answering(&self) -> impl Iterator<Item = &AddressInput> {
        self.choice().addresses.into_iter()
    }

    /// Returns these addresses, and whether health counts.
    pub fn choice(&self) -> AddressSelection<'_> {
        choose(&self.addresses, self.mode, self.panic_percent)
    }
}

/// Omits the addresses whose instances are about to stop, if another address serves: an orderly stop does not depend on the panic
/// threshold, and the last instance serves until it stops.
fn omit_leaving(router: &Router, addresses: &mut [AddressInput]) {
    let is_leaving = |address: &AddressInput| router.listed_instance(address.ip) == Some(InstanceState::Leaving);
    let serves = |address: &AddressInput| {
        address.active && matches!(address.health, Health::Unknown | Health::Up) && !is_leaving(address)
    };
    if addresses.iter().any(serves) {
        addresses.iter_mut().filter(|address| is_leaving(address)).for_each(|address| address.active = false);
    }
}

/// Returns the known health of a Router's address. The instance there decides first, because without its agent, the proxy has old
/// Routes, even if it answers probes.
fn health(router: &Router, ip: IpAddr) -> Health {
    if router.listed_instance(ip) == Some(InstanceState::Expired) {
        return Health::Down;
    }
    if router.spec.health_check.is_none() {
        return Health::Unknown;
    }
    let diagnostics = router.status.iter().flat_map(|status: &RouterStatus| &status.addresses);
    let diagnostic = diagnostics.into_iter().find(|found| found.ip.parse() == Ok(ip)).map(|found| found.health);
    match diagnostic {
        None => Health::Pending,
        Some(AddressHealthState::Unknown) => Health::Unknown,
        Some(AddressHealthState::Healthy) => Health::Up,
        Some(AddressHealthState::Unhealthy) => Health::Down,
    }
}

/// Returns the panic threshold in the status, or, before it is there, the Router's own.
fn panic_percent(router: &Router) -> u8 {
    let reported = router.status.as_ref().and_then(|status| status.panic_threshold);
    let own = router.spec.health_check.as_ref().map(|check| check.panic_threshold.unwrap_or(50));
    reported.or(own).map_or(0, |percent| u8::try_from(percent.min(100)).unwrap_or(100))
}

/// A RouteBinding, reduced. The last-known-good state on disk contains it in this form: a change of the fields needs another version of its format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingInput {
    /// `<namespace>/<name>` of the binding.
    #[serde(skip)]
    pub key: Box<str>,
    /// The creation time, in seconds since 1970; of two bindings with one label, the older one has it.
    pub created: i64,
    /// The label of the Route, in lower case.
    pub label: Box<str>,
    /// The Router's zone, in lower case and without a trailing dot.
    pub shard: Arc<str>,
    /// The zones that the Route has left, in which it has former names; `shard` is excluded.
    #[serde(with = "wire_form::names")]
    pub former_names: Box<[Name]>,
    /// The zone to which these and the alias point, if that is not `shard` yet, in lower case and without a trailing dot:
    /// resolvers can still cache that the Route's current name points elsewhere, or the instances do not serve it yet.
    pub leads_to: Option<Box<str>>,
    /// The Route's host below `shard`, if the router of a source admitted it: the wildcard answers for it.
    #[serde(with = "wire_form::optional_name")]
    pub adopted: Option<Name>,
    /// The Route's host elsewhere, if the router of a source admitted it. Inside a domain of the platform, its parent zone has the record.
    #[serde(with = "wire_form::optional_name")]
    pub custom: Option<Name>,
}

impl BindingInput {
    /// Returns the zone to which alias and former names point.
    pub fn target(&self) -> &str {
        self.leads_to.as_deref().unwrap_or(&self.shard)
    }

    /// Returns the name of the Route in its Router's zone: its adopted host, otherwise its system name.
    pub fn name(&self) -> Name {
        self.adopted.clone().unwrap_or_else(|| {
            let shard: Name = self.shard.parse().expect("BindingInput::read has checked it");
            shard.prepend(self.label.as_bytes()).expect("BindingInput::read has checked the length")
        })
    }

    /// Reads a RouteBinding. Returns `None` if it has no alias, which a diagnostic explains.
    pub fn read(binding: &RouteBinding, diagnostics: &mut Vec<Diagnostic>) -> Option<BindingInput> {
        let metadata = &binding.metadata;
        let key = binding_key(
            metadata.namespace.as_deref().unwrap_or(&binding.spec.route_namespace),
            metadata.name.as_deref().unwrap_or(&binding.spec.route_name),
        );
        let (label, shard) = (binding.spec.label.to_ascii_lowercase(), binding.spec.dns.to_ascii_lowercase());
        if !names::is_host_label(&label) {
            let message = format!("{:?} is not a label of letters, digits, and inner hyphens", binding.spec.label);
            diagnostics.push(Diagnostic::binding(&key, "spec.label", message));
            return None;
        }
        let apex = shard.parse::<Name>().and_then(|shard| shard.prepend(label.as_bytes()).map(|_| shard));
        let apex = match apex {
            Ok(apex) => apex,
            Err(error) => {
                let message = format!(
                    "the label {label:?} and the zone {:?} do not form a valid name: {error}",
                    binding.spec.dns
                );
                diagnostics.push(Diagnostic::binding(&key, "spec.dns", message));
                return None;
            }
        };
        let (former_names, leads_to) = left_zones(binding, &label, &apex, &key, diagnostics);
        let host = |kind: NameKind| {
            let name = binding.spec.names.iter().find(|name| name.kind == kind)?;
            Some(name.name.parse::<Name>().ok()?.to_lowercase().into_owned())
        };
        let custom = host(NameKind::Custom).filter(|name| binding.spec.strategy == ADOPTED && !name.is_wildcard());
        Some(BindingInput {
            key,
            created: created(metadata),
            label: label.into(),
            shard: shard.trim_end_matches('.').into(),
            former_names,
            adopted: host(NameKind::Adopted).filter(|name| name.is_below(&apex)),
            custom,
            leads_to,
        })
    }
}

/// Returns the zones in which a binding has former names, each once, in canonical order, and the zone whose former name has not
/// begun, to which the others and the alias point until then.
fn left_zones(
    binding: &RouteBinding,
    label: &str,
    shard: &Name,
    key: &str,
    diagnostics: &mut Vec<Diagnostic>,
) -> (Box<[Name]>, Option<Box<str>>) {
    let mut zones = Vec::with_capacity(binding.spec.former_names.len());
    let mut last_left = None;
    for (at, former_name) in binding.spec.former_names.iter().enumerate() {
        let former = former_name.name.to_ascii_lowercase().parse::<Name>().ok();
        let zone = former.as_ref().and_then(|former| former.parent().filter(|zone| !zone.is_root()));
        let own = zone.as_ref().and_then(|zone| zone.prepend(label.as_bytes()).ok());
        match zone {
            Some(zone) if own == former && zone != *shard => match &former_name.from {
                None => zones.push(zone),
                Some(_) => last_left = Some(zone),
            },
            _ => {
                let message = format!(
                    "{:?} is not a former name of the label {label}; the former name is ignored",
                    former_name.name
                );
                diagnostics.push(Diagnostic::binding(key, format!("spec.formerNames[{at}].name"), message));
            }
        }
    }
    zones.sort_unstable();
    zones.dedup();
    zones.retain(|zone| Some(zone) != last_left.as_ref());
    let text = |zone: Name| zone.to_lowercase().to_string().strip_suffix('.').map(Box::from);
    let leads_to = last_left.and_then(text);
    (zones.into_boxed_slice(), leads_to)
}

/// Returns the key of a binding: `<namespace>/<name>`.
pub fn binding_key(namespace: &str, name: &str) -> Box<str> {
    format!("{namespace}/{name}").into_boxed_str()
}

fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn router(spec: serde_json::Value) -> Router {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
        serde_json::from_value(object).expect("a Router of a test")
    }

    #[test]
    fn addresses_are_chosen_by_mode_and_state() {
        let addresses = json!([
            {"ip": "192.0.2.9", "priority": 1}, {"ip": "192.0.2.1"}, {"ip": "::ffff:192.0.2.2"},
            {"ip": "2001:db8::1", "priority": 1}, {"ip": "192.0.2.3", "state": "drained"}, {"ip": "nonsense"},
        ]);
        for (mode, chosen) in
            [("active-active", "192.0.2.1 192.0.2.2 192.0.2.9 2001:db8::1"), ("active-passive", "192.0.2.1 192.0.2.2")]
        {
            let mut diagnostics = Vec::new();
            let router = router(json!({"addresses": addresses, "mode": mode}));
            let input = RouterInput::read(&router, "v3.example", &mut diagnostics).expect("a zone");
            let answering: Vec<String> = input.answering().map(|address| address.ip.to_string()).collect();
            assert_eq!(answering.join(" "), chosen, "{mode}");
            assert_eq!(diagnostics.len(), 1);
            assert_eq!(diagnostics[0].path, "spec.addresses[5].ip");
            assert_eq!(input.apex.to_string(), "shard1.v3.example.");
        }
    }

    #[test]
    fn a_zone_needs_a_name() {
        for dns in ["a..b", ".", "*.example", ""] {
            let mut diagnostics = Vec::new();
            assert_eq!(RouterInput::read(&router(json!({"dns": dns})), "v3.example", &mut diagnostics), None, "{dns}");
            assert_eq!(diagnostics[0].path, "spec.dns");
        }
    }
}
