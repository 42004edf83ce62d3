//! The addresses of a shard, as its source reports them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::SignedDuration;

use super::inventory::{Kind, Labels, Meta};
use super::{Frame, Reason, Settings, Source};
use signpost_types::addresses::{unusable_name, unusable_outside};

/// The longest TTL of a Router.
const TTL_MAX: u32 = 86_400;
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

/// Returns the message about annotations of external-dns that have no effect on a kind, if an object has one. Users of external-dns rely on
/// them.
pub(super) fn ignored(kind: Kind, meta: &Meta, settings: &Settings) -> Option<String> {
    let names: &[&str] = match kind {
        _ if meta.annotations.is_empty() => return None,
        Kind::Service => return None,
        Kind::Gateway => &["hostname", "ttl"],
        _ => &["hostname", "target", "ttl"],
    };
    let names: Vec<&str> =
        names.iter().copied().filter(|name| annotation(&meta.annotations, name, settings).is_some()).collect();
    let [annotation, has] = if names.len() == 1 { ["annotation", "has"] } else { ["annotations", "have"] };
    let hint = match kind {
        _ if !names.contains(&"target") => "",
        Kind::Ingress => "; set \"target\" on its IngressClass",
        _ if kind.is_gateway_route() => "; set \"target\" on its Gateway",
        _ => "",
    };
    let quoted = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" and ");
    (!names.is_empty()).then(|| format!("the {annotation} {quoted} {has} no effect on kind {}{hint}", kind.name()))
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

/// Returns the TTL in an annotation of external-dns: seconds, or a duration such as `1h30m`.
pub(super) fn ttl(annotations: &Labels, settings: &Settings) -> Result<Option<u32>, String> {
    let Some(text) = annotation(annotations, "ttl", settings) else { return Ok(None) };
    let seconds = text.parse::<i64>().ok();
    let seconds = seconds.or_else(|| Some(text.parse::<SignedDuration>().ok()?.as_secs()));
    let ttl = seconds.and_then(|seconds| u32::try_from(seconds).ok()).filter(|ttl| (1..=TTL_MAX).contains(ttl));
    let fault = || format!("the TTL {text:?} is neither a number of seconds nor a duration, from 1 second to 24 hours");
    ttl.map(Some).ok_or_else(fault)
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
            Err(_) => {
                let name = target.trim_end_matches('.').to_ascii_lowercase();
                match unusable_name(&name) {
                    None => {
                        found.host_names.insert(name);
                        continue;
                    }
                    Some(reason) => reason,
                }
            }
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

/// Returns whether an address is one of a private network.
pub fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// Returns the reason why an address is useless outside the cluster.
fn refusal(ip: IpAddr, cluster_ips: &BTreeSet<IpAddr>, settings: &Settings) -> Option<&'static str> {
    if cluster_ips.contains(&ip) {
        return Some("it is the ClusterIP of a Service");
    }
    if is_private(ip) && !settings.private_addresses {
        return Some("it is private, and private addresses are not allowed");
    }
    unusable_outside(ip)
}
