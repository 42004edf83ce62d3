//! Explains the response for a name: its zone, its owner or wildcard, and the objects behind them. The zones are
//! compiled from the objects as in a name server, and searched with the name server's own lookup.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::cli::zones::{Source, ZoneEntry, Zones};
use signpost_control::compiler::apex;
use signpost_control::compiler::settings::text_of;
use signpost_control::dns_client::Response;
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::lookup::{Lookup, lookup};
use signpost_dns::zone::qname::Qname;
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Rrset, Zone};
use signpost_dns::zonefile::rdata_out;
use signpost_types::v1alpha1::route::NameKind;
use signpost_types::v1alpha1::route_binding::{RouteBinding, RouteBindingSpec};
use signpost_types::v1alpha1::router::Router;

/// Aliases that are followed, as the server does at most.
pub(super) const ALIASES_MAX: usize = 8;

/// Why. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Why {
    /// The name, then each alias's target that is in a zone here.
    pub(super) steps: Vec<Step>,
    /// The differences between the response and the objects.
    pub(super) differences: Vec<String>,
}

/// One look-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) found: Found,
    pub(super) zone: Option<ZoneFact>,
    /// The owner that speaks for the name: itself, a wildcard, a zone cut, or the closest name that exists.
    pub(super) owner: Option<String>,
    pub(super) wildcard: bool,
    /// The sources of the records there.
    pub(super) from: Vec<String>,
    pub(super) routes: Vec<RouteFact>,
    #[serde(skip)]
    expected: Expected,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Found {
    Answer,
    Alias,
    Referral,
    NoData,
    NoSuchName,
    #[default]
    NotOurs,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ZoneFact {
    pub(super) apex: String,
    pub(super) kind: &'static str,
    pub(super) made_of: String,
    pub(super) serial: Option<u32>,
    /// The serial on the server; absent without a query or a response.
    pub(super) served_serial: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteFact {
    /// `namespace/name`, of the Route and of its RouteBinding.
    pub(super) route: String,
    pub(super) router: String,
    /// Whether it is its system name, its alias, or its own.
    #[serde(rename = "type")]
    pub(super) kind: NameKind,
    /// The path that the Route has on a custom host, if Routes share the host or it is not `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Expected {
    rcode: Option<Rcode>,
    rrset: Option<Rrset>,
}

impl Why {
    /// Explains the response for `name` and `rtype`.
    pub(super) fn explain(zones: &Zones, name: &Name, rtype: RecordType) -> Why {
        let mut why = Why::default();
        let mut name = name.clone();
        for _ in 0..=ALIASES_MAX {
            let step = step(zones, &name, rtype);
            let target = match (&step.found, &step.expected.rrset) {
                (Found::Alias, Some(rrset)) => rrset.rdata.first().and_then(|rdata| Name::from_wire(rdata).ok()),
                _ => None,
            };
            why.steps.push(step);
            match target.filter(|target| zones.of(target).is_some()) {
                Some(target) if why.steps.iter().all(|step| step.name != target.to_string()) => name = target,
                _ => break,
            }
        }
        why
    }

    /// Records the differences between the response for `name` and the objects. `serial`: the server's serial for the
    /// zone of the first step, if it was queried.
    pub(super) fn compare(&mut self, zones: &Zones, name: &Name, response: &Response, serial: Option<u32>) {
        let Some(step) = self.steps.first_mut() else { return };
        if let Some(fact) = &mut step.zone {
            fact.served_serial = serial;
            let sure = zones.of(name).is_some_and(|zone| zone.serial_is_sure);
            if let (Some(own), Some(served), true) = (fact.serial, serial, sure)
                && own != served
            {
                self.differences.push(format!("serial: expected {own}, got {served}"));
            }
        }
        let Expected { rcode, rrset } = &step.expected;
        if let Some(rcode) = rcode.filter(|rcode| *rcode != response.rcode) {
            let found = response.rcode;
            self.differences.push(format!("response code: expected {rcode}, got {found}"));
            return;
        }
        let Some(rrset) = rrset.as_ref().filter(|rrset| rrset.rtype != RecordType::SOA) else { return };
        let answered: Vec<&Rdata> = response
            .answers
            .iter()
            .filter(|record| record.owner == *name && record.rtype == rrset.rtype)
            .map(|record| &record.rdata)
            .collect();
        if answered.is_empty() && !rrset.rdata.is_empty() {
            let many = rrset.rdata.len();
            self.differences.push(format!("answer: expected {many} {} records, got none", rrset.rtype));
        }
        for rdata in answered.into_iter().filter(|rdata| !rrset.rdata.contains(rdata)) {
            let text = rdata_out::text(rrset.rtype, rdata);
            self.differences.push(format!("answer: unexpected record {} {text}", rrset.rtype));
        }
    }
}

fn step(zones: &Zones, name: &Name, rtype: RecordType) -> Step {
    let expected = Expected { rcode: Some(Rcode::REFUSED), rrset: None };
    let mut step = Step { name: name.to_string(), routes: routes(zones, name), expected, ..Step::default() };
    // DS belongs to the parent's side of a cut (RFC 4035 §3.1.4.1).
    let above = name.parent().filter(|_| rtype == RecordType::DS && zones.at(name).is_some());
    let Some(known) = above.and_then(|above| zones.of(&above)).or_else(|| zones.of(name)) else { return step };
    let contents = &known.contents;
    step.zone = Some(ZoneFact {
        apex: contents.apex().to_string(),
        kind: known.source.kind(),
        made_of: made_of(&known.source, zones),
        serial: apex::serial_of(contents),
        served_serial: None,
    });
    let zone = match Zone::build(contents.clone()) {
        Ok(zone) => zone,
        Err(error) => {
            step.from.push(format!("the zone cannot be served: {error}"));
            step.expected.rcode = Some(Rcode::SERVFAIL);
            return step;
        }
    };
    let qname = Qname::of(name.as_wire());
    let Some(found) = lookup(&zone, &qname, rtype) else { return step };
    let by = |kind, synthesised| (kind, owner(name, synthesised), synthesised > 0, Rcode::NOERROR);
    let (kind, owner, wildcard, rcode) = match found {
        Lookup::Answer(found, _) => by(Found::Answer, found.synthesised),
        Lookup::Cname(found, _) => by(Found::Alias, found.synthesised),
        Lookup::Dname(at, _) => (Found::Alias, ancestor(name, at.above), false, Rcode::NOERROR),
        Lookup::Referral(at, _) => (Found::Referral, ancestor(name, at.above), false, Rcode::NOERROR),
        Lookup::NoData(found) => by(Found::NoData, found.synthesised),
        Lookup::NxDomain(at) => (Found::NoSuchName, ancestor(name, at.above), false, Rcode::NXDOMAIN),
    };
    let of_type = match kind {
        Found::Answer => Some(rtype),
        Found::Alias if contents.get(&owner, RecordType::CNAME).is_some() => Some(RecordType::CNAME),
        _ => None,
    };
    // After an alias the code is that of the last name, which may be elsewhere.
    let rcode = if kind == Found::Alias { None } else { Some(rcode) };
    step.expected = Expected { rcode, rrset: of_type.and_then(|rtype| contents.get(&owner, rtype)).cloned() };
    step.from = origins(zones, known, &owner, rtype, kind);
    (step.found, step.owner, step.wildcard) = (kind, Some(owner.to_string()), wildcard);
    step
}

/// Returns the owner whose records answer for `name`: the name itself, or the wildcard below its closest encloser.
fn owner(name: &Name, synthesised: usize) -> Name {
    if synthesised == 0 {
        return name.clone();
    }
    let encloser = ancestor(name, synthesised);
    encloser.wildcard().unwrap_or(encloser)
}

/// Returns the name `above` labels above `name`.
fn ancestor(name: &Name, above: usize) -> Name {
    let mut at = name.clone();
    for _ in 0..above {
        at = at.parent().unwrap_or(at);
    }
    at
}

fn made_of(source: &Source, zones: &Zones) -> String {
    match source {
        Source::Parent if zones.platform.as_ref().is_some_and(|platform| platform.base.is_some()) => {
            "the Routers, the configuration, and the domain's zone file".to_owned()
        }
        Source::Parent => "the Routers and the configuration".to_owned(),
        Source::Alias => "the RouteBindings".to_owned(),
        Source::Shard(router) => format!("Router {router}"),
        Source::File(path) => format!("the file {}", path.display()),
    }
}

/// Returns the routes whose RouteBinding assigns them this name.
fn routes(zones: &Zones, name: &Name) -> Vec<RouteFact> {
    let text = text_of(name);
    let has = |assigned: &str| assigned.eq_ignore_ascii_case(&text);
    let mut routes = Vec::new();
    for binding in &zones.bindings {
        for assigned in binding.spec.names.iter().filter(|assigned| has(&assigned.name)) {
            let route = format!("{}/{}", binding.spec.route_namespace, binding.spec.route_name);
            let is_host = matches!(assigned.kind, NameKind::Custom | NameKind::Adopted);
            let path = zones.paths.get(&route).filter(|_| is_host).cloned();
            routes.push(RouteFact { route, router: binding.spec.router.clone(), kind: assigned.kind, path });
        }
    }
    routes
}

/// Returns the sources of the records at `owner`.
fn origins(zones: &Zones, known: &ZoneEntry, owner: &Name, rtype: RecordType, found: Found) -> Vec<String> {
    let is_apex = owner == known.contents.apex();
    match &known.source {
        Source::File(path) => vec![format!("the file {}", path.display())],
        Source::Alias | Source::Shard(_) | Source::Parent if is_apex && rtype == RecordType::SOA => {
            vec![format!("the configuration; the serial is that of Zone {}", text_of(owner))]
        }
        Source::Alias | Source::Shard(_) if is_apex && rtype == RecordType::NS => {
            vec!["the name servers of the configuration (--nameserver)".to_owned()]
        }
        Source::Alias if found == Found::NoSuchName => vec!["no Route has this alias".to_owned()],
        Source::Alias => bindings_of_alias(zones, owner),
        Source::Shard(router) => {
            let former_names = former_names(zones, owner);
            if found == Found::Alias && !former_names.is_empty() {
                return former_names;
            }
            let router = zones.routers.iter().find(|known| known.metadata.name.as_ref() == Some(router));
            router.map(|router| of_router(router, known, owner, rtype, found)).unwrap_or_default()
        }
        Source::Parent => of_parent(zones, known, owner, found),
    }
}

fn bindings_of_alias(zones: &Zones, owner: &Name) -> Vec<String> {
    let label = owner.labels().next().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase());
    let has =
        |binding: &&RouteBinding| label.as_deref().is_some_and(|label| binding.spec.label.eq_ignore_ascii_case(label));
    let named =
        |binding: &RouteBinding| format!("RouteBinding {}/{}", binding.spec.route_namespace, binding.spec.route_name);
    zones.bindings.iter().filter(has).map(named).collect()
}

/// Returns the bindings of routes that had this name on a Router that they have left; or the names below it, for a wildcard.
fn former_names(zones: &Zones, owner: &Name) -> Vec<String> {
    let former = if owner.is_wildcard() { owner.parent() } else { Some(owner.clone()) };
    let Some(former) = former.as_ref().map(text_of) else { return Vec::new() };
    let has = |binding: &&RouteBinding| {
        binding.spec.former_names.iter().any(|former_name| former_name.name.eq_ignore_ascii_case(&former))
    };
    let named = |binding: &RouteBinding| {
        let RouteBindingSpec { route_namespace, route_name, router, .. } = &binding.spec;
        format!("RouteBinding {route_namespace}/{route_name}: a former name of its Route, which moved to {router}")
    };
    zones.bindings.iter().filter(has).map(named).collect()
}

fn of_router(router: &Router, known: &ZoneEntry, owner: &Name, rtype: RecordType, found: Found) -> Vec<String> {
    let name = router.metadata.name.as_deref().unwrap_or_default();
    let called: Arc<Path> = Arc::from(Path::new("spec.records"));
    let apex = known.contents.apex();
    let mut from = Vec::new();
    for (at, text) in router.spec.records.iter().enumerate() {
        let (records, _) = signpost_dns::zonefile::read_records(text.as_bytes(), &called, apex);
        // Records of other types are listed only if the name has no record of the queried type.
        if records.iter().any(|record| record.owner == *owner && (found != Found::Answer || record.rtype == rtype)) {
            from.push(format!("Router {name}, spec.records[{at}]: {text}"));
        }
    }
    let field = router.addresses_field();
    let addresses = || {
        let family = if rtype == RecordType::AAAA { "IPv6" } else { "IPv4" };
        match (found, rtype) {
            (Found::Answer, _) => format!("Router {name}, {field}"),
            (_, RecordType::A | RecordType::AAAA) => format!("Router {name} has no active {family} address"),
            _ => format!("Router {name}, {field} and spec.records, none of type {rtype}"),
        }
    };
    match from.is_empty() {
        true if owner.is_wildcard() && owner.parent().as_ref() == Some(apex) => from.push(addresses()),
        true if found == Found::Answer => {
            from.push(format!("Router {name}, {field}: copied from the wildcard, which this name blocks"));
        }
        true => from.push(format!("Router {name}")),
        false => {}
    }
    from
}

fn of_parent(zones: &Zones, known: &ZoneEntry, owner: &Name, found: Found) -> Vec<String> {
    let platform = zones.platform.as_ref();
    let mut from = Vec::new();
    if let Some(ZoneEntry { source, .. }) = zones.at(owner).filter(|zone| zone.contents.apex() != known.contents.apex())
    {
        from.push(match source {
            Source::Shard(router) => format!("the delegation to the shard of Router {router}"),
            Source::Alias => "the delegation to the alias zone".to_owned(),
            other => format!("the delegation to the zone of {}", made_of(other, zones)),
        });
    }
    if platform.is_some_and(|platform| platform.name_servers().iter().any(|server| server.name == *owner)) {
        from.push("a name server of the configuration (--nameserver)".to_owned());
    }
    let base = platform.and_then(|platform| platform.base.as_ref());
    if base.is_some_and(|base| !base.owner(owner).is_empty()) {
        from.push("the domain's zone file".to_owned());
    }
    if from.is_empty() {
        from.push(match found {
            Found::NoSuchName => "no Router, setting, or zone file defines this name".to_owned(),
            _ => "the configuration".to_owned(),
        });
    }
    from
}
