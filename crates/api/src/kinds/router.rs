//! Router: one shard. Its zone is unique, its addresses are good, and it is not deleted while routes are bound to it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kinds::{PlatformConfig, conflict_keys, former};
use crate::names::{self, LABEL_OCTETS_MAX, NAME_OCTETS_MAX, is_at_or_below};
use crate::statuses::Statuses;
use crate::v1alpha1::deletion_hold::DeletionHold;
use crate::v1alpha1::router::{ADDRESSES_HEALTHY, READY, Router, RouterKind};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::columns::{self, AGE, Cell, Column};
use signpost_apiserver::kind::{HookReads, Kind};
use signpost_apiserver::registry::labels::check_selector;
use signpost_apiserver::registry::{Context, Hooks, Operation, Reader, RelatedWrite};

/// How to delete a Router that has routes: this annotation on it with exactly the number of routes bound to it. A DELETE
/// whose query or body says `forceDeleteRoutes=<number>` does the same.
pub const FORCE_DELETE_ANNOTATION: &str = "signpost.dev/force-delete-routes";
/// The option of the DELETE request that does as the annotation.
pub const FORCE_DELETE_OPTION: &str = "forceDeleteRoutes";
/// Longest text of one of `spec.records`, in octets: more than any record of the DNS needs.
const RECORD_OCTETS_MAX: usize = 8192;
/// Longest `spec.dns`: it leaves room for a label and a dot in front.
const DNS_OCTETS_MAX: usize = NAME_OCTETS_MAX - LABEL_OCTETS_MAX - 1;

/// The kind.
pub static ROUTER: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<Router>()
        .with_columns(COLUMNS)
        .selectable_by(&["spec.dns", "spec.state", "spec.mode"])
        .read_by_hooks(HookReads::OftenTheSame)
        .formerly(former::ROUTER)
});

const COLUMNS: &[Column] = &[
    Column::new("DNS", &["spec.dns"], "The shard's zone."),
    Column::new("State", &["spec.state"], "`active`, `cordoned` (no new routes) or `draining`."),
    Column::new(
        "Addresses",
        &["spec.addresses", "status.currentAddresses", "spec.addressesFrom"],
        "The addresses that its names are answered with.",
    )
    .with_cell(|read, _| {
        // `addresses` beside `addressesFrom` are not answered by themselves.
        let addresses = if read[1].is_null() && read[2].is_null() { read[0] } else { read[1] };
        columns::list(addresses.items().filter_map(|address| address.get(["ip"])[0].text()), 3)
    }),
    Column::new(
        "Instances",
        &["status.readyInstances", "spec.instances", "spec.type"],
        "How many instances serve, and how many there are to be.",
    )
    .with_cell(|read, _| instances(read[0], read[1], read[2])),
    Column::new("Routes", &["status.routes"], "How many routes are bound to it.").of_type("integer"),
    Column::new("Ready", &["status.conditions"], "Whether it can take and serve routes.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], READY, "status"))),
    AGE,
    Column::new("Mode", &["spec.mode"], "How its addresses are used together.").wide(),
    Column::new("Weight", &["spec.weight"], "Its share of new routes under the strategy `weighted`.")
        .of_type("integer")
        .wide(),
    Column::new(
        "Capacity",
        &["spec.capacity.soft", "spec.capacity.hard"],
        "How many routes it is meant for: soft/hard.",
    )
    .with_cell(|read, _| capacity(read[0], read[1]))
    .wide(),
    Column::new("TTL", &["spec.ttl"], "Time to live of its addresses, in seconds.").of_type("integer").wide(),
    Column::new("Healthy", &["status.conditions"], "Whether probes find all its addresses healthy; the reason if not.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], ADDRESSES_HEALTHY, "reason")))
        .wide(),
    Column::new("Reason", &["status.conditions"], "Why it is ready or not.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], READY, "reason")))
        .wide(),
];

/// The instances that serve and those that are wanted, as `2/2`; blank where there are none of either.
fn instances<'a>(ready: Json<'a>, wanted: Json<'a>, kind: Json<'a>) -> Cell<'a> {
    let is_external = kind.text().is_none_or(|kind| kind == RouterKind::External.word());
    let wanted = match (wanted.is_null(), is_external) {
        (false, _) => String::from_utf8_lossy(wanted.octets()),
        (true, false) => "1".into(),
        (true, true) => String::from_utf8_lossy(ready.octets()),
    };
    match ready.is_null() {
        true if is_external => Cell::Blank,
        true => Cell::text(format!("0/{wanted}")),
        false => Cell::text(format!("{}/{wanted}", String::from_utf8_lossy(ready.octets()))),
    }
}

/// The two limits as `soft/hard`, with a dash for one that is not set; blank without any.
fn capacity<'a>(soft: Json<'a>, hard: Json<'a>) -> Cell<'a> {
    if soft.is_null() && hard.is_null() {
        return Cell::Blank;
    }
    let shown = |limit: Json<'a>| if limit.is_null() { "-".into() } else { String::from_utf8_lossy(limit.octets()) };
    Cell::text(format!("{}/{}", shown(soft), shown(hard)))
}

pub(super) struct Routers(pub(super) Arc<PlatformConfig>);

impl Hooks for Routers {
    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        let default = format!("{}.{}", object["metadata"]["name"].as_str().unwrap_or_default(), self.0.domain);
        set_dns_if_absent(object, Value::from(default));
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        // A file that leaves `dns` to the default can be applied with `kubectl replace` as well.
        set_dns_if_absent(new, old["spec"]["dns"].clone());
        keep_ttl_horizon(context, old, new);
    }

    fn prepare_status(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        // Nobody else knows it, and names of routes that leave would end before caches forget their addresses.
        let horizon = |router: &Value| horizon(router).filter(|horizon| *horizon > context.now);
        if let Some(kept) = horizon(old).filter(|kept| horizon(new).is_none_or(|sent| sent < *kept)) {
            set_horizon(new, kept);
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> Vec<Cause> {
        let spec = &object["spec"];
        let mut causes: Vec<Cause> = dns_fault(&self.0, &spec["dns"]).into_iter().collect();
        causes.extend(faults(spec));
        causes
    }

    fn validate_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if old["spec"]["dns"] != new["spec"]["dns"] {
            causes.push(Cause::invalid(
                "spec.dns",
                &new["spec"]["dns"],
                "field is immutable: make a new Router with this zone and move the routes to it",
            ));
        }
        causes.extend(faults(&new["spec"]));
        causes
    }

    fn has_warnings(&self) -> bool {
        true
    }

    fn warnings<'a>(&'a self, is_new: bool, written: &'a Value, reader: &'a dyn Reader) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut warnings = check_warnings(&written["spec"]["healthCheck"]);
            let router: Option<Router> = serde_json::from_value(written.clone()).ok();
            warnings.extend(router.iter().flat_map(|router| (self.0.diagnose_router)(router)));
            // It was written, whatever comes of these.
            if is_new {
                warnings.extend(taken_hosts(written, &self.0.domain, reader).await.ok().flatten());
            } else if let Some(router) = &router {
                let occupied = (self.0.occupied_labels)(router);
                warnings.extend(taken_names(written, &occupied, reader).await.ok().flatten());
            }
            warnings
        })
    }

    fn before_commit<'a>(
        &'a self,
        _context: &'a Context<'a>,
        operation: Operation<'a>,
        reader: &'a dyn Reader,
    ) -> BoxFuture<'a, Result<Vec<RelatedWrite>, ApiError>> {
        Box::pin(async move {
            let name = |router: &'a Value| router["metadata"]["name"].as_str().unwrap_or_default();
            Ok(match operation {
                Operation::Create(object) => {
                    let zones = conflict_keys::zones();
                    let touched = reader.touched(&zones).await?;
                    overlap(object, reader).await?;
                    vec![zones.touch_next(touched)]
                }
                Operation::Update { .. } => Vec::new(),
                Operation::Delete { old, options } => {
                    let key = conflict_keys::router(name(old));
                    let touched = reader.touched(&key).await?;
                    guard_delete(old, options, reader).await?;
                    vec![key.remove(touched)]
                }
                // Since the deletion began nobody can bind a Route to it, so what was agreed to then is still agreed to.
                Operation::Release { old } => {
                    let key = conflict_keys::router(name(old));
                    vec![key.remove(reader.touched(&key).await?)]
                }
            })
        })
    }
}

fn set_dns_if_absent(object: &mut Value, dns: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("dns").is_none_or(|dns| dns.is_null() || dns == "")
    {
        spec.insert("dns".to_owned(), dns);
    }
}

/// Notes until when caches may hold addresses for longer than the new TTL says: those of before are in them.
fn keep_ttl_horizon(context: &Context<'_>, old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (old["spec"]["ttl"].as_i64(), new["spec"]["ttl"].as_i64()) else { return };
    let horizon = context.now.checked_add(SignedDuration::from_secs(before)).ok().filter(|_| after < before);
    let Some(horizon) = horizon else { return };
    if self::horizon(new).is_none_or(|noted| noted < horizon) {
        set_horizon(new, horizon);
    }
}

/// The time of `status.ttlHorizon`.
fn horizon(router: &Value) -> Option<Timestamp> {
    router["status"]["ttlHorizon"].as_str()?.parse().ok()
}

fn set_horizon(router: &mut Value, horizon: Timestamp) {
    if !router["status"].is_object() {
        router["status"] = json!({});
    }
    router["status"]["ttlHorizon"] = Value::from(horizon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
}

/// What is wrong with the zone's name by itself and against the platform's own zones.
fn dns_fault(platform: &PlatformConfig, value: &Value) -> Option<Cause> {
    let (dns, domain) = (value.as_str()?, platform.domain.as_str());
    let alias_zone = names::alias_zone(domain);
    let what = if let Err(error) = names::check_zone(dns).and_then(|()| names::check_a_labels(dns)) {
        error.to_string()
    } else if dns.bytes().any(|octet| octet.is_ascii_uppercase()) {
        format!("must be in lower case, {:?}", dns.to_ascii_lowercase())
    } else if dns.len() > DNS_OCTETS_MAX {
        format!("must be no more than {DNS_OCTETS_MAX} octets, so that the names of routes have room below it")
    } else if is_at_or_below(domain, dns) {
        format!("must not hold the platform's own domain {domain}; use a name below it, such as shard1.{domain}")
    } else if is_at_or_below(dns, &alias_zone) || is_at_or_below(&alias_zone, dns) {
        format!("must not overlap {alias_zone}, where the aliases of all routes are; use another name")
    } else if platform.name_servers.iter().any(|server| server.eq_ignore_ascii_case(dns)) {
        "must not be the name of one of the platform's name servers; use another name".to_owned()
    } else {
        return None;
    };
    Some(Cause::invalid("spec.dns", value, &what))
}

/// The faults of a spec that do not depend on other objects.
fn faults(spec: &Value) -> Vec<Cause> {
    let mut causes = check_selector("spec.routeSelector", spec.get("routeSelector"));
    causes.extend(check_selector("spec.namespaceSelector", spec.get("namespaceSelector")));
    causes.extend(address_faults(&spec["addresses"]));
    causes.extend(source_faults(&spec["addressesFrom"]));
    let ports = &spec["ports"];
    if !ports["http"].is_null() && ports["http"] == ports["https"] {
        causes.push(Cause::invalid("spec.ports.https", &ports["https"], "must not be the port for plain HTTP"));
    }
    causes.extend(check_faults(&spec["healthCheck"]));
    let (soft, hard) = (&spec["capacity"]["soft"], &spec["capacity"]["hard"]);
    if let (Some(soft_limit), Some(hard_limit)) = (soft.as_u64(), hard.as_u64())
        && soft_limit > hard_limit
    {
        let what = format!("must not be greater than spec.capacity.hard, which is {hard_limit}");
        causes.push(Cause::invalid("spec.capacity.soft", soft, &what));
    }
    for (index, record) in spec["records"].as_array().into_iter().flatten().enumerate() {
        causes.extend(record_fault(&format!("spec.records[{index}]"), record));
    }
    causes
}

/// The faults of `addressesFrom`.
fn source_faults(from: &Value) -> Vec<Cause> {
    let path = "spec.addressesFrom";
    if from.is_null() {
        return Vec::new();
    }
    let mut causes = check_selector("spec.addressesFrom.serviceSelector", from.get("serviceSelector"));
    let (instances, selects) = (from["instances"] == true, !from["serviceSelector"].is_null());
    if instances == selects {
        causes.push(Cause::invalid(path, from, "must have either instances: true or serviceSelector"));
    }
    if selects && from["namespace"].is_null() {
        causes.push(Cause::required("spec.addressesFrom.namespace", "the namespace of the Services"));
    } else if !selects && !from["namespace"].is_null() {
        let what = "must be absent without serviceSelector";
        causes.push(Cause::invalid("spec.addressesFrom.namespace", &from["namespace"], what));
    }
    causes
}

/// The faults of a health check.
fn check_faults(check: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut fault = |name: &str, what: Option<String>| {
        causes.extend(what.map(|what| Cause::invalid(format!("spec.healthCheck.{name}"), &check[name], &what)));
    };
    let is_path = |path: &str| path.starts_with('/') && path.bytes().all(|octet| octet.is_ascii_graphic());
    let path = check["path"].as_str().filter(|path| !is_path(path));
    fault("path", path.map(|_| "must begin with / and hold no spaces and nothing but ASCII".to_owned()));
    let statuses = check["expectedStatuses"].as_str().and_then(|text| Statuses::parse(text).err());
    fault("expectedStatuses", statuses.map(str::to_owned));
    let host = check["host"].as_str().and_then(|host| names::check_domain(host).err());
    fault("host", host.map(|error| error.to_string()));
    causes
}

/// What of a health check has no effect, or hardly the one that is meant.
fn check_warnings(check: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(timeout), Some(interval)) = (check["timeoutSeconds"].as_u64(), check["intervalSeconds"].as_u64())
        && timeout > interval
    {
        warnings.push(format!(
            "spec.healthCheck.timeoutSeconds: {timeout} is more than intervalSeconds, {interval}: of an address that does \
             not answer the next probe waits for the one before"
        ));
    }
    let kind = check["type"].as_str().unwrap_or_default();
    let is_set = |name: &str, default: Value| !check[name].is_null() && check[name] != default;
    let of_http = [
        ("path", json!("/")),
        ("expectedStatuses", json!("200-399")),
        ("host", Value::Null),
        ("insecure", json!(false)),
    ];
    for (name, default) in of_http {
        let has_no_effect = kind == "tcp" || kind == "http" && name == "insecure";
        if has_no_effect && is_set(name, default) {
            warnings.push(format!("spec.healthCheck.{name}: has no effect on a check of type {kind}"));
        }
    }
    warnings
}

fn address_faults(addresses: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen: HashMap<IpAddr, usize> = HashMap::new();
    for (index, address) in addresses.as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.addresses[{index}].ip");
        let Some(text) = address["ip"].as_str() else { continue };
        let Ok(ip) = text.parse::<IpAddr>() else {
            let what = "must be an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1";
            causes.push(Cause::invalid(&path, &address["ip"], what));
            continue;
        };
        if let Some(what) = unusable(ip) {
            causes.push(Cause::invalid(&path, &address["ip"], what));
        }
        // The schema compares the texts; `2001:db8::1` and `2001:DB8:0::1` are one address.
        if let Some(first) = seen.insert(ip, index)
            && addresses[first]["ip"] != address["ip"]
        {
            causes.push(Cause::duplicate(&path, &address["ip"]));
        }
    }
    causes
}

/// Why nobody could reach an application at this address.
pub fn unusable(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("must not be the unspecified address"),
        _ if ip.is_multicast() => Some("must not be a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("must not be the broadcast address"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped address; write the IPv4 address itself, such as 192.0.2.1")
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Some("must not be a link-local address, which means something else on each machine")
        }
        _ => None,
    }
}

/// What is wrong with a record's text, as far as can be seen without reading it as a zone file; the compiler does that, and
/// says what it found in the Router's conditions.
fn record_fault(path: &str, record: &Value) -> Option<Cause> {
    let text = record.as_str()?;
    if text.trim().is_empty() {
        Some(Cause::required(path, "a record in zone-file syntax, such as @ CAA 0 issue \"ca.example\""))
    } else if text.len() > RECORD_OCTETS_MAX {
        Some(Cause::too_long(path, RECORD_OCTETS_MAX as u64))
    } else if text.trim_start().starts_with('$') {
        // Above all $INCLUDE, which would read files of the name server.
        Some(Cause::invalid(path, record, "must be a record, not a directive such as $INCLUDE"))
    } else if text.chars().any(|character| character.is_control() && character != '\t') {
        Some(Cause::invalid(path, record, "must be one record on one line; add one item for each record"))
    } else {
        None
    }
}

/// No shard's zone is inside another's: the wildcard of the outer one would claim the names of the inner one.
async fn overlap(object: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let dns = object["spec"]["dns"].as_str().unwrap_or_default();
    for other in reader.list("Router", None).await? {
        let (name, theirs) = (&other["metadata"]["name"], other["spec"]["dns"].as_str().unwrap_or_default());
        let cause = if theirs.eq_ignore_ascii_case(dns) {
            format!("is the zone of Router {name} already; give each Router a zone of its own")
        } else if is_at_or_below(dns, theirs) || is_at_or_below(theirs, dns) {
            format!("overlaps {theirs}, the zone of Router {name}; no shard's zone may be inside another's")
        } else {
            continue;
        };
        let cause = Cause::invalid("spec.dns", &object["spec"]["dns"], &cause);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::invalid(&ROUTER, name, vec![cause]));
    }
    Ok(())
}

/// Warns of custom hosts of Routes that lie in the zone of a new Router. None is below the platform's `domain`, where most zones
/// are.
async fn taken_hosts(router: &Value, domain: &str, reader: &dyn Reader) -> Result<Option<String>, ApiError> {
    const TOLD_MAX: usize = 4;
    let dns = router["spec"]["dns"].as_str().unwrap_or_default();
    if dns.is_empty() || is_at_or_below(dns, domain) {
        return Ok(None);
    }
    let lies = |host: &str| is_at_or_below(host.strip_prefix("*.").unwrap_or(host), dns);
    let claims = reader.matching("NameClaim", "spec.value", &lies).await?;
    let held = claims.iter().map(|claim| &claim["spec"]);
    let held = held.filter(|spec| spec["type"] == "host" && spec["releasedAt"].is_null());
    let mut hosts: Vec<&str> = held.filter_map(|spec| spec["value"].as_str()).collect();
    hosts.sort_unstable();
    let more = hosts.len().saturating_sub(TOLD_MAX);
    let told = hosts[..hosts.len() - more].join(", ");
    Ok((!hosts.is_empty()).then(|| {
        let and = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "spec.dns: the zone {dns} takes custom hosts of routes: {told}{and}; their own DNS is not asked any more, and the \
             routes say HostInZone"
        )
    }))
}

/// Warns of routes on a Router whose names in its zone are `taken`: labels, each with why.
async fn taken_names(
    router: &Value,
    taken: &[(String, String)],
    reader: &dyn Reader,
) -> Result<Option<String>, ApiError> {
    const TOLD_MAX: usize = 4;
    const LOOKED_AT_MAX: usize = 256;
    let name = &router["metadata"]["name"];
    let mut told = Vec::new();
    for (label, why) in taken.iter().take(LOOKED_AT_MAX) {
        let Some(claim) = reader.get("NameClaim", None, &names::label_claim_name(label)).await? else { continue };
        let holder = &claim["spec"]["holder"];
        let (namespace, route) = (holder["namespace"].as_str(), holder["name"].as_str().unwrap_or_default());
        let binding = reader.get("RouteBinding", namespace, route).await?;
        if binding
            .is_some_and(|binding| binding["spec"]["router"] == *name && binding["spec"]["label"] == label.as_str())
        {
            let namespace = namespace.unwrap_or_default();
            told.push(format!("{label}, the name of the route {namespace}/{route}, {why}"));
        }
        if told.len() > TOLD_MAX {
            break;
        }
    }
    let and = if told.len() > TOLD_MAX { ", and more" } else { "" };
    told.truncate(TOLD_MAX);
    Ok((!told.is_empty()).then(|| {
        format!(
            "spec.records: names of routes on this Router lead elsewhere by now, and the routes say NameTaken: {}{and}",
            told.join(", ")
        )
    }))
}

/// Refuses to delete a Router with routes, unless the sender knows how many are lost.
async fn guard_delete(router: &Value, options: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let name = router["metadata"]["name"].as_str().unwrap_or_default();
    let bound = reader.count("RouteBinding", "spec.router", name).await?;
    let former_names = former_names_through(name, &router["spec"]["dns"], reader).await?;
    let held = held_back(reader).await?;
    let count = bound + former_names.len() + held;
    if count == 0 {
        return Ok(());
    }
    let of_option = match &options[FORCE_DELETE_OPTION] {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    let of_annotation = router["metadata"]["annotations"][FORCE_DELETE_ANNOTATION].as_str();
    let agreed = of_option.or_else(|| of_annotation.and_then(|text| text.trim().parse::<u64>().ok()));
    if agreed == Some(count as u64) {
        return Ok(());
    }
    let routes = |count: usize| if count == 1 { "1 route".to_owned() } else { format!("{count} routes") };
    let mut told = match bound {
        0 => String::new(),
        1 => "1 route is bound to it".to_owned(),
        _ => format!("{bound} routes are bound to it"),
    };
    if let Some(last) = former_names.iter().max() {
        let and = if told.is_empty() { "" } else { ", and " };
        told += &format!(
            "{and}former names of {} that moved away lead through its zone, the last until {last}",
            routes(former_names.len())
        );
    }
    if held > 0 {
        let and = if told.is_empty() { "" } else { ", and " };
        told += &format!(
            "{and}name servers hold back the loss of {held} RouteBindings (signpost hold list), whose aliases may lead to it"
        );
    }
    let of_before =
        [&options[former::LOSE_ROUTES_OPTION], &router["metadata"]["annotations"][former::LOSE_ROUTES_ANNOTATION]];
    if of_before.into_iter().any(|given| !given.is_null()) {
        told += &format!(
            "; {} is now {FORCE_DELETE_OPTION}, {} is now {FORCE_DELETE_ANNOTATION}",
            former::LOSE_ROUTES_OPTION,
            former::LOSE_ROUTES_ANNOTATION
        );
    }
    if let Some(agreed) = agreed {
        told += &format!("; that makes {count} to lose, not {agreed}");
    }
    let instead = match bound {
        0 if held > 0 => "Have it decided (signpost hold approve), or restore what is missing".to_owned(),
        0 => "Wait for that".to_owned(),
        _ => format!(
            "Run \"signpost drain router {name}\", or set spec.state to draining, and wait for condition Drained"
        ),
    };
    Err(ApiError::conflict(
        &ROUTER,
        name,
        &format!(
            "{told}. {instead}; or, to lose these names, run \"kubectl annotate router {name} \
             {FORCE_DELETE_ANNOTATION}={count} --overwrite\" and delete it again"
        ),
    ))
}

/// How many RouteBindings are gone here that name servers still serve, on whatever Router they were.
async fn held_back(reader: &dyn Reader) -> Result<usize, ApiError> {
    let holds = reader.list("DeletionHold", None).await?;
    let holds = holds.into_iter().filter_map(|hold| serde_json::from_value::<DeletionHold>(hold).ok());
    Ok(holds.map(|hold| hold.bindings_served_on() as usize).sum())
}

/// Until when each former name in the Router's zone leads to a route that has left it. Looked for in all bindings: a Router is
/// not deleted often.
async fn former_names_through(router: &str, dns: &Value, reader: &dyn Reader) -> Result<Vec<String>, ApiError> {
    let bindings = reader.list("RouteBinding", None).await?;
    let former_names =
        bindings.iter().flat_map(|binding| binding["spec"]["formerNames"].as_array().into_iter().flatten());
    // Those of a former Router of this name, which had another zone, went with that.
    let zone =
        |former: &Value| former["name"].as_str().and_then(|name| name.split_once('.')).map(|(_, zone)| zone.to_owned());
    let is_its = |former: &&Value| zone(former).is_none_or(|zone| dns.as_str().is_none_or(|dns| zone == dns));
    let through = former_names.filter(|former| former["router"] == router).filter(is_its);
    Ok(through.map(|former| former["until"].as_str().unwrap_or_default().to_owned()).collect())
}

#[cfg(test)]
mod tests;
