//! Router: one shard. Its zone is unique, and takes no name that another shard has; its addresses are valid; and it cannot be deleted
//! while Routes are bound to it.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kinds::{PlatformConfig, conflict_keys, sources};
use crate::rules::{self as rule, Rule};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::columns::{self, AGE, Cell, Column};
use signpost_apiserver::kind::{HookReads, Kind};
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader};
use signpost_types::names::{self, is_at_or_below};
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::router::{
    ADDRESSES_HEALTHY, FORCE_DELETE_ANNOTATION, FORCE_DELETE_OPTION, READY, Router, RouterKind,
};

pub static ROUTER: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<Router>()
        .with_columns(COLUMNS)
        .selectable_by(&["spec.dns", "spec.state", "spec.mode"])
        .read_by_hooks(HookReads::OftenTheSame)
});

const COLUMNS: &[Column] = &[
    Column::new("DNS", &["spec.dns"], "The shard's zone."),
    Column::new("State", &["spec.state"], "`active`, `cordoned` (no new Routes), or `draining`."),
    Column::new(
        "Addresses",
        &["spec.addresses", "status.currentAddresses", "spec.addressesFrom"],
        "The addresses in answers for its names.",
    )
    .with_cell(|read, _| {
        // With `addressesFrom`, `addresses` are not in answers themselves.
        let addresses = if read[1].is_null() && read[2].is_null() { read[0] } else { read[1] };
        columns::list(addresses.items().filter_map(|address| address.get(["ip"])[0].text()), 3)
    }),
    Column::new(
        "Instances",
        &["status.readyInstances", "spec.instances", "spec.type", "status.instances"],
        "Number of serving instances and of expected instances.",
    )
    .with_cell(|read, _| instances(read[0], read[1], read[2], read[3].items().count())),
    Column::new("Routes", &["status.routes"], "Number of Routes that are bound to it.").of_type("integer"),
    Column::new("Ready", &["status.conditions"], "Whether it can accept and serve Routes.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], READY, "status"))),
    AGE,
    Column::new("Mode", &["spec.mode"], "Policy for the use of its addresses.").wide(),
    Column::new("Weight", &["spec.weight"], "Its share of new Routes under the strategy `weighted`.")
        .of_type("integer")
        .wide(),
    Column::new("Capacity", &["spec.capacity.soft", "spec.capacity.hard"], "Capacity in Routes: soft/hard.")
        .with_cell(|read, _| capacity(read[0], read[1]))
        .wide(),
    Column::new("TTL", &["spec.ttl"], "Time to live of its addresses, in seconds.").of_type("integer").wide(),
    Column::new("Healthy", &["status.conditions"], "Whether probes find all its addresses healthy; the reason if not.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], ADDRESSES_HEALTHY, "reason")))
        .wide(),
    Column::new(
        "Faults",
        &["status.instances"],
        "Number of Routes and certificates that an instance does not serve, or only in part: that of the instance with the most.",
    )
    .with_cell(|read, _| most(read[0], "faults", Some(0)))
    .wide(),
    Column::new(
        "Endpoints",
        &["status.instances"],
        "Number of endpoints that can get requests, of all its Routes together: that of the instance with the most.",
    )
    .with_cell(|read, _| most(read[0], "endpoints", None))
    .wide(),
    Column::new("Reason", &["status.conditions"], "The reason of condition Ready.")
        .with_cell(|read, _| Cell::As(columns::condition(read[0], READY, "reason")))
        .wide(),
];

/// Returns the highest value of a field of the instances; blank if none has it. An absent field has the value `absent`.
fn most<'a>(instances: Json<'a>, field: &str, absent: Option<u64>) -> Cell<'a> {
    let value = |instance: Json<'_>| String::from_utf8_lossy(instance.get([field])[0].octets()).parse().ok().or(absent);
    let most = instances.items().filter_map(value).max();
    most.map_or(Cell::Blank, |most| Cell::text(most.to_string()))
}

/// Returns the instances that serve and those that are wanted, otherwise those that have reported, as `2/2`; blank where there are
/// none of either.
fn instances<'a>(ready: Json<'a>, wanted: Json<'a>, kind: Json<'a>, reported: usize) -> Cell<'a> {
    let is_external = kind.text().is_none_or(|kind| kind == RouterKind::External.word());
    let wanted = match (wanted.is_null(), is_external) {
        (false, _) => String::from_utf8_lossy(wanted.octets()),
        (true, false) => "1".into(),
        (true, true) => reported.to_string().into(),
    };
    match ready.is_null() {
        true if is_external => Cell::Blank,
        true => Cell::text(format!("0/{wanted}")),
        false => Cell::text(format!("{}/{wanted}", String::from_utf8_lossy(ready.octets()))),
    }
}

/// Returns the two limits as `soft/hard`, with a dash for one that is not set; blank without any.
fn capacity<'a>(soft: Json<'a>, hard: Json<'a>) -> Cell<'a> {
    if soft.is_null() && hard.is_null() {
        return Cell::Blank;
    }
    let shown = |limit: Json<'a>| if limit.is_null() { "-".into() } else { String::from_utf8_lossy(limit.octets()) };
    Cell::text(format!("{}/{}", shown(soft), shown(hard)))
}

pub(super) struct Routers {
    platform: Arc<PlatformConfig>,
    rules: Vec<Rule>,
}

impl Routers {
    pub(super) fn new(platform: Arc<PlatformConfig>) -> Self {
        Routers { rules: rules::rules(Some(&platform.domain)), platform }
    }
}

#[async_trait]
impl Hooks for Routers {
    fn prepare(&self, context: &Context<'_>, old: Option<&Value>, new: &mut Value) {
        match old {
            None => {
                let default = format!("{}.{}", name_of(new), self.platform.domain);
                set_dns_if_absent(new, Value::from(default));
            }
            Some(old) => {
                // A file that leaves `dns` to the default can be applied with `kubectl replace` as well.
                set_dns_if_absent(new, old["spec"]["dns"].clone());
                keep_ttl_horizon(context, old, new);
            }
        }
    }

    fn prepare_status(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        // The horizon is stored only here. Without it, former names of Routes would end before caches drop their addresses.
        let horizon = |router: &Value| horizon(router).filter(|horizon| *horizon > context.now);
        if let Some(kept) = horizon(old).filter(|kept| horizon(new).is_none_or(|sent| sent < *kept)) {
            set_horizon(new, kept);
        }
    }

    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = rule::check(&self.rules, old, new);
        if old.is_none() {
            rule::add(&mut causes, dns_fault(&self.platform, &new["spec"]["dns"]));
        }
        causes.extend(sources::leader_fault(context.identity, old, new));
        causes
    }

    fn has_warnings(&self) -> bool {
        true
    }

    fn warnings(&self, is_new: bool, written: &Value, reader: &dyn Reader) -> Vec<String> {
        let mut warnings = check_warnings(&written["spec"]["healthCheck"]);
        let router: Option<Router> = serde_json::from_value(written.clone()).ok();
        warnings.extend(router.iter().flat_map(|router| (self.platform.diagnose_router)(router)));
        // The warnings do not affect the write.
        if is_new {
            warnings.extend(taken_hosts(written, &self.platform.domain, reader).ok().flatten());
        } else if let Some(router) = &router {
            let occupied = (self.platform.occupied_labels)(router);
            warnings.extend(taken_names(written, &occupied, reader).ok().flatten());
        }
        warnings
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        sources::guard_deletion(context.identity, &ROUTER, operation)?;
        Ok(match operation {
            Operation::Create(object) => {
                let zones = conflict_keys::zones();
                let touched = reader.touched(&zones).await?;
                let mut writes = guard_zone(&self.platform, object, reader).await?;
                writes.push(zones.touch_next(touched));
                writes
            }
            Operation::Update { old, new } => {
                if old["spec"]["records"] != new["spec"]["records"] {
                    guard_records(&self.platform, old, new, reader)?;
                }
                Vec::new()
            }
            Operation::Delete { old, options } => {
                let key = conflict_keys::router(name_of(old));
                let touched = reader.touched(&key).await?;
                guard_delete(old, options, reader)?;
                vec![key.remove(touched)]
            }
            // Since the deletion began, no Route can be bound to the Router, so the agreed number is still valid.
            Operation::Release { old } => {
                let key = conflict_keys::router(name_of(old));
                vec![key.remove(reader.touched(&key).await?)]
            }
        })
    }
}

fn name_of(router: &Value) -> &str {
    router["metadata"]["name"].as_str().unwrap_or_default()
}

fn set_dns_if_absent(object: &mut Value, dns: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("dns").is_none_or(|dns| dns.is_null() || dns == "")
    {
        spec.insert("dns".to_owned(), dns);
    }
}

/// Records the time until which caches can hold addresses for longer than the new TTL: they still have records with the former
/// TTL.
fn keep_ttl_horizon(context: &Context<'_>, old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) = (old["spec"]["ttl"].as_i64(), new["spec"]["ttl"].as_i64()) else { return };
    let horizon = context.now.checked_add(SignedDuration::from_secs(before)).ok().filter(|_| after < before);
    let Some(horizon) = horizon else { return };
    if self::horizon(new).is_none_or(|noted| noted < horizon) {
        set_horizon(new, horizon);
    }
}

/// Returns the time of `status.ttlHorizon`.
fn horizon(router: &Value) -> Option<Timestamp> {
    router["status"]["ttlHorizon"].as_str()?.parse().ok()
}

fn set_horizon(router: &mut Value, horizon: Timestamp) {
    if !router["status"].is_object() {
        router["status"] = json!({});
    }
    router["status"]["ttlHorizon"] = Value::from(horizon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
}

/// Returns the fault of a zone's name that the rules do not see.
fn dns_fault(platform: &PlatformConfig, value: &Value) -> Option<Cause> {
    let dns = value.as_str()?;
    let what = if let Err(error) = names::check_a_labels(dns) {
        error.to_string()
    } else if platform.name_servers.iter().any(|server| server.eq_ignore_ascii_case(dns)) {
        "must not be the name of one of the platform's name servers; use another name".to_owned()
    } else {
        return None;
    };
    Some(Cause::invalid("spec.dns", value, &what))
}

/// Returns warnings about health check settings without an effect, or with an effect that is probably not intended.
fn check_warnings(check: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(timeout), Some(interval)) = (check["timeoutSeconds"].as_u64(), check["intervalSeconds"].as_u64())
        && timeout > interval
    {
        warnings.push(format!(
            "spec.healthCheck.timeoutSeconds: {timeout} is greater than intervalSeconds, {interval}: for an address \
             that does not answer, the next probe waits until the previous one ends"
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

/// The most names that an error lists.
const NAMES_TOLD_MAX: usize = 4;

/// Rejects a new zone that another Router has, and one whose names another shard has now: the names of an outer zone at or below the
/// apex of an inner one end when the inner one begins. Returns the writes that let no such name come at the same time.
async fn guard_zone(platform: &PlatformConfig, object: &Value, reader: &dyn Reader) -> HookResult {
    let dns = zone_of(platform, object);
    let refused = |cause: &str| {
        let cause = Cause::invalid("spec.dns", &object["spec"]["dns"], cause);
        let name = name_of(object);
        Err(ApiError::invalid(&ROUTER, name, vec![cause]))
    };
    let routers = reader.list("Router", None)?;
    let zones: Vec<(String, &Value)> = routers.iter().map(|other| (zone_of(platform, other), other)).collect();
    if let Some((_, other)) = zones.iter().find(|(zone, _)| *zone == dns) {
        let name = &other["metadata"]["name"];
        return refused(&format!("is already the zone of Router {name}; give each Router its own zone"));
    }
    for (zone, other) in zones.iter().filter(|(zone, _)| names::is_below(zone, &dns)) {
        let records = records_below(platform, object, zone);
        if !records.is_empty() {
            let name = &other["metadata"]["name"];
            return refused(&format!(
                "is around {zone}, the zone of Router {name}, to which these names in spec.records belong: {}; add the records \
                 to that Router",
                listed(&records)
            ));
        }
    }
    let around = zones.iter().filter(|(zone, _)| names::is_below(&dns, zone));
    let Some((zone, outer)) = around.max_by_key(|(zone, _)| zone.len()) else { return Ok(Vec::new()) };
    let outer_name = name_of(outer);
    let key = conflict_keys::router(outer_name);
    let touched = reader.touched(&key).await?;
    let mut taken = records_below(platform, outer, &dns);
    taken.extend(names_below((outer_name, zone), &dns, reader)?);
    if !taken.is_empty() {
        return refused(&format!(
            "is inside {zone}, the zone of Router {outer_name:?}, which has names at or below it: {}; move or delete these \
             first, or use another zone",
            listed(&taken)
        ));
    }
    Ok(vec![key.touch_next(touched)])
}

/// Returns the zone of a Router, which is its name below the platform's domain by default.
pub(super) fn zone_of(platform: &PlatformConfig, router: &Value) -> String {
    match router["spec"]["dns"].as_str().filter(|dns| !dns.is_empty()) {
        Some(dns) => dns.to_ascii_lowercase(),
        None => format!("{}.{}", name_of(router), platform.domain),
    }
}

/// Returns the first names of a list, and the number of the others.
fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_TOLD_MAX);
    let and = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{and}", names[..names.len() - more].join(", "))
}

/// Returns the names of a Router's further records at and below `apex`.
fn records_below(platform: &PlatformConfig, router: &Value, apex: &str) -> Vec<String> {
    let has_records = router["spec"]["records"].as_array().is_some_and(|records| !records.is_empty());
    let router: Option<Router> = serde_json::from_value(router.clone()).ok().filter(|_| has_records);
    let names = router.iter().flat_map(|router| (platform.record_names)(router));
    names.filter(|name| is_at_or_below(name, apex)).collect()
}

/// Returns the names of Routes in a Router's zone at and below `apex`: system names, former names, and adopted hosts.
fn names_below((router, zone): (&str, &str), apex: &str, reader: &dyn Reader) -> Result<Vec<String>, ApiError> {
    let mut found = Vec::new();
    let base = |host: &str| host.strip_prefix("*.").unwrap_or(host).to_owned();
    let is_there = |value: &str| is_at_or_below(&base(value), apex);
    let mut claims = reader.matching("NameClaim", "spec.value", &is_there)?;
    // A label is directly below the zone.
    if let Some((label, _)) = apex.split_once('.').filter(|(_, rest)| *rest == zone) {
        claims.extend(reader.get("NameClaim", None, &names::label_claim_name(label))?.map(|claim| (*claim).clone()));
    }
    for claim in &claims {
        let spec = &claim["spec"];
        let (kind, value) = (spec["type"].as_str(), spec["value"].as_str().unwrap_or_default());
        let (namespace, route) =
            (spec["holder"]["namespace"].as_str(), spec["holder"]["name"].as_str().unwrap_or_default());
        if !spec["releasedAt"].is_null() {
            continue;
        }
        let Some(binding) = reader.get("RouteBinding", namespace, route)? else { continue };
        let of_route = format!("of Route {}/{route}", namespace.unwrap_or_default());
        let mut former = binding["spec"]["formerNames"].as_array().into_iter().flatten();
        if binding["spec"]["router"] == router {
            found.push(match kind {
                Some("host") => format!("{value} {of_route}"),
                _ => format!("{apex} {of_route}"),
            });
        } else if kind == Some("label") && former.any(|former| former["name"] == apex) {
            found.push(format!("{apex}, a former name {of_route}"));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Rejects new records at and below the zones of shards inside this one.
fn guard_records(platform: &PlatformConfig, old: &Value, new: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let dns = zone_of(platform, new);
    for other in reader.list("Router", None)? {
        let zone = zone_of(platform, &other);
        if !names::is_below(&zone, &dns) {
            continue;
        }
        let known = records_below(platform, old, &zone);
        let mut taken = records_below(platform, new, &zone);
        taken.retain(|name| !known.contains(name));
        if !taken.is_empty() {
            let what = format!(
                "{} belong to {zone}, the zone of Router {}; add the records to that Router",
                listed(&taken),
                other["metadata"]["name"]
            );
            let cause = Cause::forbidden("spec.records", &what);
            let name = name_of(new);
            return Err(ApiError::invalid(&ROUTER, name, vec![cause]));
        }
    }
    Ok(())
}

/// Warns of custom hosts of Routes in the zone of a new Router. No custom host is below the platform's `domain`, where most zones
/// are.
fn taken_hosts(router: &Value, domain: &str, reader: &dyn Reader) -> Result<Option<String>, ApiError> {
    const TOLD_MAX: usize = 4;
    let dns = router["spec"]["dns"].as_str().unwrap_or_default();
    if dns.is_empty() || is_at_or_below(dns, domain) {
        return Ok(None);
    }
    let lies = |host: &str| is_at_or_below(host.strip_prefix("*.").unwrap_or(host), dns);
    let claims = reader.matching("NameClaim", "spec.value", &lies)?;
    let held = claims.iter().map(|claim| &claim["spec"]);
    let held = held.filter(|spec| spec["type"] == "host" && spec["releasedAt"].is_null());
    let mut hosts: Vec<&str> = held.filter_map(|spec| spec["value"].as_str()).collect();
    hosts.sort_unstable();
    let more = hosts.len().saturating_sub(TOLD_MAX);
    let reported = hosts[..hosts.len() - more].join(", ");
    Ok((!hosts.is_empty()).then(|| {
        let and = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "spec.dns: the zone {dns} contains custom hosts of Routes: {reported}{and}; their own DNS is no longer \
             queried, and these Routes get the reason HostInZone"
        )
    }))
}

/// Warns of Routes on a Router whose names in its zone are `taken`: labels, each with the reason.
fn taken_names(router: &Value, taken: &[(String, String)], reader: &dyn Reader) -> Result<Option<String>, ApiError> {
    const TOLD_MAX: usize = 4;
    const LOOKED_AT_MAX: usize = 256;
    let name = &router["metadata"]["name"];
    let mut reported = Vec::new();
    for (label, why) in taken.iter().take(LOOKED_AT_MAX) {
        let Some(claim) = reader.get("NameClaim", None, &names::label_claim_name(label))? else { continue };
        let holder = &claim["spec"]["holder"];
        let (namespace, route) = (holder["namespace"].as_str(), holder["name"].as_str().unwrap_or_default());
        let binding = reader.get("RouteBinding", namespace, route)?;
        if binding
            .is_some_and(|binding| binding["spec"]["router"] == *name && binding["spec"]["label"] == label.as_str())
        {
            let namespace = namespace.unwrap_or_default();
            reported.push(format!("{label}, the name of Route {namespace}/{route}, {why}"));
        }
        if reported.len() > TOLD_MAX {
            break;
        }
    }
    let and = if reported.len() > TOLD_MAX { ", and more" } else { "" };
    reported.truncate(TOLD_MAX);
    Ok((!reported.is_empty()).then(|| {
        format!(
            "spec.records: these records replace names of Routes on this Router, and the Routes get the reason \
             NameTaken: {}{and}",
            reported.join(", ")
        )
    }))
}

/// Rejects the deletion of a Router with Routes, unless the request has the number of lost Routes.
fn guard_delete(router: &Value, options: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let name = name_of(router);
    let bound = reader.count("RouteBinding", "spec.router", name)?;
    let former_names = former_names_through(name, &router["spec"]["dns"], reader)?;
    let held = held_back(reader)?;
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
    let mut reported = match bound {
        0 => String::new(),
        1 => "1 Route is bound to it".to_owned(),
        _ => format!("{bound} Routes are bound to it"),
    };
    if let Some(last) = former_names.iter().max() {
        let and = if reported.is_empty() { "" } else { ", and " };
        reported += &format!(
            "{and}its zone serves former names of {} that moved away, the last until {last}",
            routes(former_names.len())
        );
    }
    if held > 0 {
        let and = if reported.is_empty() { "" } else { ", and " };
        reported += &format!(
            "{and}name servers hold the deletion of {held} RouteBindings (signpost hold list), whose aliases may point \
             to it"
        );
    }
    if let Some(agreed) = agreed {
        reported += &format!("; the number of lost Routes is {count}, not {agreed}");
    }
    let instead = match bound {
        0 if held > 0 => "Approve the hold (signpost hold approve), or restore the missing objects".to_owned(),
        0 => "Wait until then".to_owned(),
        _ => format!(
            "Run \"signpost drain router {name}\", or set spec.state to draining, and wait for condition Drained"
        ),
    };
    Err(ApiError::conflict(
        &ROUTER,
        name,
        &format!(
            "{reported}. {instead}; or, to lose these names, run \"kubectl annotate router {name} \
             {FORCE_DELETE_ANNOTATION}={count} --overwrite\" and delete it again"
        ),
    ))
}

/// Returns the number of RouteBindings that are deleted here but that name servers still serve, on any Router.
fn held_back(reader: &dyn Reader) -> Result<usize, ApiError> {
    let holds = reader.list("DeletionHold", None)?;
    let holds = holds.into_iter().filter_map(|hold| serde_json::from_value::<DeletionHold>(hold).ok());
    Ok(holds.map(|hold| hold.bindings_served_on() as usize).sum())
}

/// Returns, for each former name in the Router's zone, the time until which it leads to a Route that left the Router. This scans
/// all bindings: deletions of Routers are rare.
fn former_names_through(router: &str, dns: &Value, reader: &dyn Reader) -> Result<Vec<String>, ApiError> {
    let bindings = reader.list("RouteBinding", None)?;
    let former_names =
        bindings.iter().flat_map(|binding| binding["spec"]["formerNames"].as_array().into_iter().flatten());
    // Former names of an earlier Router with this name and another zone were deleted with that zone.
    let zone =
        |former: &Value| former["name"].as_str().and_then(|name| name.split_once('.')).map(|(_, zone)| zone.to_owned());
    let is_its = |former: &&Value| zone(former).is_none_or(|zone| dns.as_str().is_none_or(|dns| zone == dns));
    let through = former_names.filter(|former| former["router"] == router).filter(is_its);
    Ok(through.map(|former| former["until"].as_str().unwrap_or_default().to_owned()).collect())
}

pub(crate) mod rules;
#[cfg(test)]
mod tests;
