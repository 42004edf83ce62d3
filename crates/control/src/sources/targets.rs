//! The addresses of a shard, as its source reports them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::inventory::{Inventory, Labels};
use super::{Derived, Reason, Settings, Source, host};
use signpost_types::addresses::unusable;
use signpost_types::names::is_at_or_below;

/// The prefixes of the annotations of external-dns: the present one, and that of older versions.
pub(super) const PREFIXES: [&str; 2] = ["external-dns.kubernetes.io/", "external-dns.alpha.kubernetes.io/"];
/// The domain that resolves in its cluster only.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Addresses, and host names that resolve to addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    pub addresses: BTreeSet<IpAddr>,
    pub host_names: BTreeSet<String>,
}

/// Returns the value of an annotation of external-dns.
pub(super) fn annotation<'a>(annotations: &'a Labels, name: &str) -> Option<&'a str> {
    PREFIXES.iter().find_map(|prefix| annotations.get(&format!("{prefix}{name}"))).map(|text| text.trim())
}

/// Returns the targets in an annotation of external-dns, which replace those that a router reports.
pub(super) fn annotated(annotations: &Labels) -> Option<Vec<String>> {
    let text = annotation(annotations, "target").filter(|text| !text.is_empty())?;
    Some(text.split(',').map(|target| target.trim().to_owned()).collect())
}

/// Returns the usable targets of a shard, and adds notes about the others.
pub(super) fn usable(
    source: &Source,
    targets: impl IntoIterator<Item = String>,
    inventory: &Inventory,
    settings: &Settings,
    derived: &mut Derived,
) -> Targets {
    let mut found = Targets::default();
    for target in targets {
        let reason = match target.parse::<IpAddr>() {
            Ok(ip) => match refusal(ip, inventory, settings) {
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
        derived.note(source.clone(), Reason::AddressRefused, format!("{target:?} is not published: {reason}"));
    }
    if found == Targets::default() {
        derived.note(
            source.clone(),
            Reason::NoAddress,
            "the router reports no address that clients outside the cluster can use",
        );
    }
    found
}

/// Returns the reason why an address is useless outside the cluster.
fn refusal(ip: IpAddr, inventory: &Inventory, settings: &Settings) -> Option<&'static str> {
    let is_link_local = matches!(ip, IpAddr::V4(v4) if v4.is_link_local());
    let is_private = match ip {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    };
    if ip.is_loopback() || is_link_local {
        return Some("it is valid on one machine or link only");
    }
    if inventory.cluster_ips().any(|cluster_ip| cluster_ip == ip) {
        return Some("it is the ClusterIP of a Service");
    }
    if is_private && !settings.private_addresses {
        return Some("it is private, and private addresses are not allowed");
    }
    unusable(ip)
}
