//! OpenShift: an IngressController is a shard, and an admitted Route has the hosts that its routers report.
//!
//! A controller publishes by its strategy. DNS of OpenShift itself knows only that with a load balancer of a cloud; the other ones are those
//! of clusters whose operators write wildcard records by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::inventory::{EndpointSlice, Infrastructure, IngressController, Inventory, Kind, OpenShiftRoute, is_true};
use super::targets::{Targets, listed, usable};
use super::{Family, Found, Frame, Name, Note, Origin, Reason, Settings, Shard, Source, host, shard_name};
use signpost_types::backends::SERVICE_LABEL;

/// The namespace of the routers' Services.
pub const NAMESPACE: &str = "openshift-ingress";
/// The namespace of IngressControllers.
pub const OPERATOR_NAMESPACE: &str = "openshift-ingress-operator";
/// The name of the one Infrastructure.
pub const INFRASTRUCTURE: &str = "cluster";
/// The controller that a cluster has from its installation.
const DEFAULT: &str = "default";
/// The annotation of an IngressController with its addresses, where its strategy publishes none: separated by commas.
pub const ADDRESSES_ANNOTATION: &str = "signpost.dev/addresses";

/// The name of the shard of each controller, by the name that routers report: what the names of Routes depend on.
#[derive(Debug, Default, PartialEq)]
pub struct Controllers {
    shards: BTreeMap<String, String>,
    is_known: bool,
}

/// Derives shards from IngressControllers.
pub(super) fn frame(inventory: &Inventory, settings: &Settings, cluster_ips: &BTreeSet<IpAddr>, frame: &mut Frame) {
    frame.controllers.is_known = inventory.is_known(Kind::IngressController);
    for controller in inventory.all::<IngressController>(Kind::IngressController) {
        let source = Source::new(Kind::IngressController, &controller.metadata);
        let dns = controller.status.domain.to_ascii_lowercase();
        if dns.is_empty() {
            frame.note(source, Reason::NotProgrammed, "status.domain is not set yet");
            continue;
        }
        let targets = match targets(controller, inventory) {
            Ok(targets) => usable(&source, targets, cluster_ips, settings, frame),
            Err((reason, message)) => {
                frame.note(source.clone(), reason, message);
                Targets::default()
            }
        };
        // Its namespace is the same for all controllers.
        let short = Source { namespace: String::new(), ..source.clone() };
        let name = shard_name("ic", &short, &dns);
        frame.controllers.shards.insert(controller.metadata.name.clone(), name.clone());
        let (mode, origin) = (settings.mode(Family::OpenShift), Origin::of(&controller.metadata));
        frame.shards.push(Shard {
            route_selector: controller.status.route_selector.clone(),
            namespace_selector: controller.status.namespace_selector.clone(),
            ..Shard::new(name, dns, &targets, &source, mode, origin)
        });
    }
}

/// Derives the names of one Route.
pub(super) fn names(route: &OpenShiftRoute, controllers: &Controllers) -> Found {
    let source = Source::new(Kind::Route, &route.metadata);
    let mut found = Found::default();
    let mut note = |reason, message: String| found.notes.push(Note { source: source.clone(), reason, message });
    let admitted: Vec<_> =
        route.status.ingress.iter().filter(|ingress| is_true(&ingress.conditions, "Admitted")).collect();
    if admitted.is_empty() {
        note(Reason::NotAdmitted, "no router has admitted it".to_owned());
    }
    for ingress in admitted {
        let Some(host) = host(&ingress.host) else {
            note(Reason::Invalid, format!("{:?} is not a host", ingress.host));
            continue;
        };
        let Some(shard) = controllers.shards.get(&*ingress.router_name) else {
            let router = &ingress.router_name;
            note(
                Reason::Unknown,
                format!("{host} is on the router {router:?}, which is not a known IngressController"),
            );
            found.is_unknown |= !controllers.is_known;
            continue;
        };
        let by = format!("the router {}", ingress.router_name);
        found.names.push(Name::new(&source, &route.metadata, shard, host, by));
    }
    found
}

/// Returns the targets of a controller, by the strategy that is in use.
fn targets(controller: &IngressController, inventory: &Inventory) -> Result<Vec<String>, (Reason, String)> {
    let name = &controller.metadata.name;
    if let Some(addresses) = controller.metadata.annotations.get(ADDRESSES_ANNOTATION) {
        return Ok(listed(addresses));
    }
    let strategy = controller.status.endpoint_publishing_strategy.as_ref().map_or("", |strategy| &strategy.kind);
    match strategy {
        "LoadBalancerService" => {
            let Some(service) = inventory.service(NAMESPACE, &format!("router-{name}")) else {
                return Err((Reason::Unknown, format!("Service {NAMESPACE}/router-{name} is not known")));
            };
            Ok(service.status.targets().collect())
        }
        "HostNetwork" => {
            let ips = if name == DEFAULT { ingress_ips(inventory) } else { Vec::new() };
            if !ips.is_empty() {
                return Ok(ips);
            }
            if !inventory.is_known(Kind::EndpointSlice) {
                return Err((Reason::Unknown, "EndpointSlices cannot be listed".to_owned()));
            }
            let service = format!("router-internal-{name}");
            let slices = inventory.all::<EndpointSlice>(Kind::EndpointSlice);
            let endpoints = slices.filter(|slice| is_of_service(slice, &service)).flat_map(|slice| &slice.endpoints);
            let ready = endpoints.filter(|endpoint| endpoint.conditions.ready.unwrap_or(true));
            Ok(ready.flat_map(|endpoint| endpoint.addresses.clone()).collect())
        }
        other => Err((
            Reason::NoAddress,
            format!("the strategy {other:?} publishes no address; set the annotation {ADDRESSES_ANNOTATION}"),
        )),
    }
}

fn is_of_service(slice: &EndpointSlice, service: &str) -> bool {
    slice.metadata.namespace == NAMESPACE
        && slice.metadata.labels.get(SERVICE_LABEL).is_some_and(|name| name == service)
}

/// Returns the virtual addresses that a cluster without a cloud keeps for its default controller.
fn ingress_ips(inventory: &Inventory) -> Vec<String> {
    let infrastructures = inventory.all::<Infrastructure>(Kind::Infrastructure);
    let platforms = infrastructures.flat_map(|found| found.status.platform_status.values());
    let ips = platforms.filter_map(|platform| platform["ingressIPs"].as_array()).flatten();
    ips.filter_map(Value::as_str).map(str::to_owned).collect()
}
