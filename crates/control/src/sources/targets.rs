//! The addresses of a shard, as its source reports them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::derivation::Frame;
use super::inventory::{Labels, Meta};
use super::{Reason, Settings, Source, host};
use signpost_types::addresses::unusable;
use signpost_types::names::is_at_or_below;

/// The domain that resolves in its cluster only.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// The value of the annotation `controller` of an object that is not left to another controller.
const CONTROLLER: &str = "dns-controller";

/// Addresses, and host names that resolve to addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Targets {
    pub addresses: BTreeSet<IpAddr>,
    pub host_names: BTreeSet<String>,
}

/// Returns the value of an annotation of external-dns.
pub fn annotation<'a>(annotations: &'a Labels, name: &str, settings: &Settings) -> Option<&'a str> {
    let prefixes = settings.annotation_prefixes.iter();
    prefixes.filter_map(|prefix| annotations.get(&format!("{prefix}{name}"))).map(|text| text.trim()).next()
}

/// Returns whether an object is left to another controller of DNS.
pub fn is_others(meta: &Meta, settings: &Settings) -> bool {
    !meta.annotations.is_empty()
        && annotation(&meta.annotations, "controller", settings).is_some_and(|controller| controller != CONTROLLER)
}

/// Returns the targets in an annotation of external-dns, which replace those that a router reports.
pub fn annotated(annotations: &Labels, settings: &Settings) -> Option<Vec<String>> {
    let text = annotation(annotations, "target", settings).filter(|text| !text.is_empty())?;
    Some(listed(text))
}

/// Returns the parts of a list with commas.
pub fn listed(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Returns the usable targets of a shard, and adds notes about the others.
pub fn usable(
    source: &Source,
    targets: impl IntoIterator<Item = String>,
    cluster_ips: &BTreeSet<IpAddr>,
    settings: &Settings,
    frame: &mut Frame,
) -> Targets {
    let mut found = Targets::default();
    for target in targets {
        let reason = match target.parse::<IpAddr>() {
            Ok(ip) => match refusal(ip, cluster_ips, settings) {
                None => {
                    found.addresses.insert(ip);
                    continue;
                }
                Some(reason) => reason,
            },
            Err(_) => match host(&target) {
                Some(name) if is_at_or_below(&name, CLUSTER_DOMAIN) => "it is a name of the cluster",
                Some(name) if name.ends_with(".svc") => "it is a name of the cluster",
                Some(name) if !name.starts_with("*.") => {
                    found.host_names.insert(name);
                    continue;
                }
                _ => "it is neither an address nor a host name",
            },
        };
        frame.note(source.clone(), Reason::AddressRefused, format!("{target:?} is not published: {reason}"));
    }
    if found == Targets::default() {
        frame.note(
            source.clone(),
            Reason::NoAddress,
            "the router reports no address that clients outside the cluster can use",
        );
    }
    found
}

/// Returns the reason why an address is useless outside the cluster.
fn refusal(ip: IpAddr, cluster_ips: &BTreeSet<IpAddr>, settings: &Settings) -> Option<&'static str> {
    let is_link_local = matches!(ip, IpAddr::V4(v4) if v4.is_link_local());
    let is_private = match ip {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    if ip.is_loopback() || is_link_local {
        return Some("it is valid on one machine or link only");
    }
    if cluster_ips.contains(&ip) {
        return Some("it is the ClusterIP of a Service");
    }
    if is_private && !settings.private_addresses {
        return Some("it is private, and private addresses are not allowed");
    }
    unusable(ip)
}
