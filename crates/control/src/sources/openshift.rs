//! OpenShift: an IngressController is a shard, and an admitted Route has the hosts that its routers report.
//!
//! A controller publishes by its strategy. DNS of OpenShift itself knows only that with a load balancer of a cloud; the other ones are those
//! of clusters whose operators write wildcard records by hand.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use super::inventory::{IngressController, Inventory, is_true};
use super::targets::usable;
use super::{Derived, Name, Reason, Settings, Shard, Source, host, route_name, shard_name};
use signpost_types::backends::SERVICE_LABEL;
use signpost_types::names::is_at_or_below;

/// The namespace of the routers' Services.
const NAMESPACE: &str = "openshift-ingress";
/// The controller that a cluster has from its installation.
const DEFAULT: &str = "default";
/// The annotation of an IngressController with its addresses, where its strategy publishes none: separated by commas.
pub const ADDRESSES_ANNOTATION: &str = "signpost.dev/addresses";

/// Derives shards from IngressControllers, and names from the Routes of OpenShift.
pub fn derive(inventory: &Inventory, settings: &Settings, derived: &mut Derived) {
    // By the name of the controller, which routers report: the name of the shard and its zone.
    let mut shards: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for controller in inventory.ingress_controllers.iter().flatten() {
        let source = Source::new("IngressController", &controller.metadata);
        let dns = controller.status.domain.to_ascii_lowercase();
        if dns.is_empty() {
            derived.note(source, Reason::NotProgrammed, "status.domain is not set yet");
            continue;
        }
        let targets = match targets(controller, inventory) {
            Ok(targets) => targets,
            Err((reason, message)) => {
                derived.note(source.clone(), reason, message);
                Vec::new()
            }
        };
        let targets = usable(&source, targets, inventory, settings, derived);
        // Its namespace is the same for all controllers.
        let short = Source { namespace: String::new(), ..source.clone() };
        let name = shard_name("ic", &short, &dns);
        shards.insert(&controller.metadata.name, (name.clone(), dns.clone()));
        derived.shards.push(Shard {
            name,
            dns,
            addresses: targets.addresses,
            host_names: targets.host_names,
            route_selector: controller.status.route_selector.clone(),
            namespace_selector: controller.status.namespace_selector.clone(),
            source,
        });
    }
    for route in inventory.openshift_routes.iter().flatten() {
        let source = Source::new("Route", &route.metadata);
        let admitted: Vec<_> =
            route.status.ingress.iter().filter(|ingress| is_true(&ingress.conditions, "Admitted")).collect();
        if admitted.is_empty() {
            derived.note(source.clone(), Reason::NotAdmitted, "no router has admitted it");
        }
        for ingress in admitted {
            let Some(host) = host(&ingress.host) else {
                derived.note(source.clone(), Reason::Invalid, format!("{:?} is not a host", ingress.host));
                continue;
            };
            let Some((shard, dns)) = shards.get(&*ingress.router_name) else {
                let message = format!(
                    "{host} is on the router {:?}, which is not a known IngressController",
                    ingress.router_name
                );
                derived.note(source.clone(), Reason::Unknown, message);
                continue;
            };
            derived.names.push(Name {
                in_zone: is_at_or_below(&host, dns),
                route: route_name(&source, &host),
                shard: shard.clone(),
                since: route.metadata.creation_timestamp,
                admitted_by: format!("the router {}", ingress.router_name),
                source: source.clone(),
                host,
            });
        }
    }
}

/// Returns the targets of a controller, by the strategy that is in use.
fn targets(controller: &IngressController, inventory: &Inventory) -> Result<Vec<String>, (Reason, String)> {
    let name = &controller.metadata.name;
    if let Some(addresses) = controller.metadata.annotations.get(ADDRESSES_ANNOTATION) {
        return Ok(addresses.split(',').map(|address| address.trim().to_owned()).collect());
    }
    let strategy = controller.status.endpoint_publishing_strategy.as_ref().map_or("", |strategy| &strategy.kind);
    match strategy {
        "LoadBalancerService" => {
            let service = inventory.service(NAMESPACE, &format!("router-{name}"));
            let Some(service) = service else {
                return Err((Reason::Unknown, format!("Service {NAMESPACE}/router-{name} is not known")));
            };
            let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
            let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
            Ok(ingress.filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone())).collect())
        }
        "HostNetwork" => {
            let ips = if name == DEFAULT { ingress_ips(inventory) } else { Vec::new() };
            if !ips.is_empty() {
                return Ok(ips);
            }
            let Some(slices) = &inventory.endpoint_slices else {
                return Err((Reason::Unknown, "EndpointSlices cannot be listed".to_owned()));
            };
            let service = format!("router-internal-{name}");
            let slices = slices.iter().filter(|slice| is_of_service(slice, &service));
            let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
            let ready = endpoints.filter(|endpoint| {
                let conditions = endpoint.conditions.as_ref();
                conditions.is_none_or(|conditions| conditions.ready.unwrap_or(true))
            });
            Ok(ready.flat_map(|endpoint| endpoint.addresses.clone()).collect())
        }
        other => Err((
            Reason::NoAddress,
            format!("the strategy {other:?} publishes no address; set the annotation {ADDRESSES_ANNOTATION}"),
        )),
    }
}

fn is_of_service(slice: &EndpointSlice, service: &str) -> bool {
    let labels = slice.metadata.labels.as_ref();
    slice.metadata.namespace.as_deref() == Some(NAMESPACE)
        && labels.and_then(|labels| labels.get(SERVICE_LABEL)).is_some_and(|name| name == service)
}

/// Returns the virtual addresses that a cluster without a cloud keeps for its default controller.
fn ingress_ips(inventory: &Inventory) -> Vec<String> {
    let platforms = inventory.infrastructures.iter().flatten().flat_map(|found| found.status.platform_status.values());
    let ips = platforms.filter_map(|platform| platform["ingressIPs"].as_array()).flatten();
    ips.filter_map(Value::as_str).map(str::to_owned).collect()
}
