//! Route: the wish for a name. Users write its spec; of its status, phase and names come from a RouteBinding alone.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{self, AGE, Cell, Column, Columns};
use super::selectable::Selectable;
use super::{Context, Effect, Kind, Operation, Reader, Rules, SideWrite, crd, field};
use crate::auth::rules::{self, Access};
use crate::error::{ApiError, Cause};
use crate::schema::Schema;
use crate::skim::Json;
use signpost_api::names::{self, HostError, takes_names_of};
use signpost_api::v1alpha1::route::{
    ADMITTED, HOST_POINTS_HERE, MOVE_ANNOTATION, RESOLVABLE, ROUTER_GONE, Route, SCHEDULED,
};
use signpost_api::v1alpha1::{CATEGORY, GROUP, VERSION};

/// The members of `status` that only a RouteBinding sets.
pub(super) const BOUND_FIELDS: [&str; 6] = ["phase", "dns", "router", "canonicalName", "names", "trails"];
/// What a refused status says.
const STATUS_REASON: &str = "only a RouteBinding sets it; leave status out of the object";

pub(super) fn kind() -> Kind {
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "Route",
        plural: "routes",
        singular: "route",
        short_names: &["rt"],
        categories: &[CATEGORY],
        namespaced: true,
        has_status: true,
        key_prefix: "/signpost.dev/routes/",
        schema: Schema::new(crd::schema_of::<Route>()),
        columns: Columns::new(COLUMNS),
        selectable_fields: Selectable::new(&[
            "spec.host",
            "spec.subdomain",
            "status.phase",
            "status.router",
            "status.dns",
        ]),
        time_to_live: None,
        view: None,
        rules: &Routes,
    }
}

const COLUMNS: &[Column] = &[
    Column {
        name: "Host",
        kind: "string",
        priority: 0,
        description: "The name of your own, if there is one.",
        reads: &["spec.host"],
        cell: columns::shown,
    },
    Column {
        name: "DNS",
        kind: "string",
        priority: 0,
        description: "The final DNS name.",
        reads: &["status.dns"],
        cell: columns::shown,
    },
    Column {
        name: "Router",
        kind: "string",
        priority: 0,
        description: "The Router that serves it.",
        reads: &["status.router"],
        cell: columns::shown,
    },
    Column {
        name: "Phase",
        kind: "string",
        priority: 0,
        description: "`new` until a Router was chosen, then `scheduled`.",
        reads: &["status.phase"],
        cell: columns::shown,
    },
    Column {
        name: "Live",
        kind: "string",
        priority: 0,
        description: "Whether every name server was asked for its name and answered right, and it may have its host, which points \
                      here.",
        reads: &["status.conditions", "status.names"],
        cell: |read, _| live(read[0], read[1]),
    },
    AGE,
    Column {
        name: "Canonical Name",
        kind: "string",
        priority: 1,
        description: "The stable name to point a CNAME of your own at.",
        reads: &["status.canonicalName"],
        cell: columns::shown,
    },
    Column {
        name: "Target",
        kind: "string",
        priority: 1,
        description: "What the traffic is sent to.",
        reads: &["spec.to.kind", "spec.to.name"],
        cell: |read, _| match read[1].text() {
            Some(name) => {
                let kind = read[0].text().unwrap_or_default().to_ascii_lowercase();
                Cell::text(format!("{kind}/{name}"))
            }
            None => Cell::Blank,
        },
    },
    Column {
        name: "Reason",
        kind: "string",
        priority: 1,
        description: "Why it is scheduled or not, or must not have its host, in one word.",
        reads: &["status.conditions"],
        cell: |read, _| {
            let kind = if is_refused(read[0]) { ADMITTED } else { SCHEDULED };
            Cell::As(columns::condition(read[0], kind, "reason"))
        },
    },
];

/// Whether it is live: its host, if it has one of its own, has to be seen to point here as well.
fn live<'a>(conditions: Json<'a>, names: Json<'a>) -> Cell<'a> {
    if is_refused(conditions) {
        return Cell::text("False");
    }
    let resolvable = columns::condition(conditions, RESOLVABLE, "status");
    let is_custom = names.items().any(|name| name.get(["type", "name"])[0].is("custom"));
    if !is_custom || !resolvable.is("True") {
        return Cell::As(resolvable);
    }
    match columns::condition(conditions, HOST_POINTS_HERE, "status") {
        points if points.is_null() => Cell::text("Unknown"),
        points => Cell::As(points),
    }
}

/// Whether it must not have its host, or must not any more.
fn is_refused(conditions: Json<'_>) -> bool {
    columns::condition(conditions, ADMITTED, "status").is("False")
}

struct Routes;

impl Rules for Routes {
    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        object["status"] = json!({"phase": "new"});
    }

    fn prepare_update(&self, _context: &Context<'_>, old: &Value, new: &mut Value) {
        // Asked to move to where it is: were that kept, it would move back there some day.
        // But where its Router was made again with another zone, that is what gives it a name.
        if move_to(new).is_some_and(|router| new["status"]["router"] == router) && !is_router_gone(old) {
            forget_move(new);
        }
    }

    fn validate_create(&self, context: &Context<'_>, object: &Value) -> Vec<Cause> {
        let spec = &object["spec"];
        let mut causes: Vec<Cause> = wished_host_fault(context, object).into_iter().collect();
        causes.extend(subdomain_fault(context, &spec["subdomain"]));
        causes.extend(faults(spec));
        causes
    }

    fn validate_update(&self, context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let (before, after) = (&old["spec"], &new["spec"]);
        let mut causes = Vec::new();
        if is_scheduled(old) {
            if text(&before["host"]) != text(&after["host"]) {
                causes.extend(host_change_fault(old, after));
            }
        } else if wishes_another_name(old, new) {
            causes.extend(wished_host_fault(context, new));
        }
        if text(&before["subdomain"]) != text(&after["subdomain"]) {
            causes.extend(match is_scheduled(old) {
                true => Some(field::invalid("spec.subdomain", &after["subdomain"], IMMUTABLE)),
                false => subdomain_fault(context, &after["subdomain"]),
            });
        }
        causes.extend(faults(after));
        causes
    }

    fn validate_sent_status(&self, old: Option<&Value>, sent: &Value) -> Vec<Cause> {
        let empty = sent.is_null() || sent.as_object().is_some_and(serde_json::Map::is_empty);
        let stored = old.and_then(|old| old.get("status"));
        if empty || stored == Some(sent) {
            return Vec::new();
        }
        let what = match old {
            None => STATUS_REASON.to_owned(),
            Some(_) => format!("{STATUS_REASON}, or send back the stored one unchanged"),
        };
        vec![field::forbidden("status", &what)]
    }

    fn validate_status_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = BOUND_FIELDS.iter().filter(|name| old["status"][**name] != new["status"][**name]);
        changed.map(|name| field::forbidden(&format!("status.{name}"), "only a RouteBinding sets it")).collect()
    }

    fn before_commit<'a>(
        &'a self,
        context: &'a Context<'a>,
        operation: Operation<'a>,
        reader: &'a dyn Reader,
    ) -> BoxFuture<'a, Result<Vec<SideWrite>, ApiError>> {
        Box::pin(async move {
            match operation {
                Operation::Create(object) => guard_move(context, None, object, reader).await?,
                Operation::Update { old, new } => guard_move(context, Some(old), new, reader).await?,
                Operation::Delete { .. } | Operation::Release { .. } => {}
            }
            match operation {
                Operation::Create(object) => {
                    guard_subdomain(context, None, object, reader).await?;
                    guard_host(context, object, reader).await?;
                }
                Operation::Update { old, new } if !is_scheduled(old) => {
                    guard_subdomain(context, Some(old), new, reader).await?;
                    if wishes_another_name(old, new) {
                        guard_host(context, new, reader).await?;
                    }
                }
                Operation::Update { old, new } if text(&old["spec"]["host"]) != text(&new["spec"]["host"]) => {
                    // Its own system name is in a zone of ours, of course; the validation has let nothing else pass.
                    if own_system_name(old) != text(&new["spec"]["host"]) {
                        host_in_zone(&new["spec"]["host"], new, reader).await?;
                    }
                }
                Operation::Update { .. } => {}
                Operation::Delete { old, .. } | Operation::Release { old } => {
                    return binding_of(context, old, reader).await;
                }
            }
            Ok(Vec::new())
        })
    }
}

/// The Router that a Route is to move to.
pub(super) fn move_to(route: &Value) -> Option<&str> {
    text(&route["metadata"]["annotations"][MOVE_ANNOTATION])
}

/// Whether it says that its Router is gone, or is another one by now.
fn is_router_gone(route: &Value) -> bool {
    let conditions = route["status"]["conditions"].as_array();
    let scheduled = conditions.into_iter().flatten().find(|condition| condition["type"] == SCHEDULED);
    scheduled.is_some_and(|condition| condition["status"] == "False" && condition["reason"] == ROUTER_GONE)
}

/// Takes the wish to move off a Route.
pub(super) fn forget_move(route: &mut Value) {
    let Some(metadata) = route["metadata"].as_object_mut() else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(MOVE_ANNOTATION);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// A wish to move is checked when it is made: by someone who may `move` routes, to a Router that exists. Whether the Router
/// can take the Route is the scheduler's to say. To take the wish back, it is enough to be allowed to change the Route.
async fn guard_move(
    context: &Context<'_>,
    old: Option<&Value>,
    new: &Value,
    reader: &dyn Reader,
) -> Result<(), ApiError> {
    let Some(router) = move_to(new).filter(|router| old.and_then(move_to) != Some(*router)) else { return Ok(()) };
    let name = new["metadata"]["name"].as_str();
    rules::authorize(context.identity, &Access::resource("move", GROUP, "routes", context.namespace, name))?;
    if reader.get("Router", None, router).await?.is_some() {
        return Ok(());
    }
    let path = format!("metadata.annotations[{MOVE_ANNOTATION}]");
    let causes = vec![field::not_found(&path, &Value::from(router))];
    Err(ApiError::invalid(super::known("Route"), name.unwrap_or_default(), causes))
}

const IMMUTABLE: &str = "field is immutable once the Route is scheduled: delete the Route and create it with the new value \
                         (a name of the platform then comes back to it, since namespace and name are the same)";

/// The value of a field where empty and absent mean the same.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn is_scheduled(route: &Value) -> bool {
    route["status"]["phase"] == "scheduled"
}

/// The platform's name of a scheduled Route.
fn own_system_name(route: &Value) -> Option<&str> {
    let names = route["status"]["names"].as_array()?;
    names.iter().find(|name| name["type"] == "system").and_then(|name| name["name"].as_str())
}

/// What is wrong with a custom host by itself and against the platform's domain.
fn host_fault(domain: &str, value: &Value) -> Option<Cause> {
    let host = text(value)?;
    if let Err(error) = names::check_host(host) {
        // The schema says that.
        if error == HostError::TooLong {
            return None;
        }
        return Some(field::invalid("spec.host", value, &error.to_string()));
    }
    takes_names_of(host, domain).then(|| {
        let what = format!(
            "names below {domain} are given by the platform; leave host empty to get one, and set subdomain to choose its \
             first label"
        );
        field::forbidden("spec.host", &what)
    })
}

/// Whether a Route that is not scheduled asks for another name than before: its own name depends on its subdomain.
fn wishes_another_name(old: &Value, new: &Value) -> bool {
    ["host", "subdomain"].iter().any(|name| text(&old["spec"][*name]) != text(&new["spec"][*name]))
}

/// What is wrong with the host of a Route that is not scheduled. Whether a Router has the zone of its own name is looked up before
/// the commit.
fn wished_host_fault(context: &Context<'_>, route: &Value) -> Option<Cause> {
    match wanted_zone(context, route) {
        Some(_) => None,
        None => host_fault(context.domain, &route["spec"]["host"]),
    }
}

/// A Route that is scheduled may only say its own system name as its host, or stop saying it.
fn host_change_fault(old: &Value, after: &Value) -> Option<Cause> {
    let own = own_system_name(old);
    let is_own = |host: Option<&str>| match (own, host) {
        (_, None) => true,
        (Some(own), Some(host)) => own.eq_ignore_ascii_case(host),
        (None, Some(_)) => false,
    };
    let allowed = is_own(text(&old["spec"]["host"])) && is_own(text(&after["host"]));
    (!allowed).then(|| field::invalid("spec.host", &after["host"], IMMUTABLE))
}

/// The zone of the Router whose system name for this very Route its host is, if it looks like one: the label that the Route
/// would get, in front of a domain.
fn wanted_zone<'a>(context: &Context<'_>, route: &'a Value) -> Option<&'a str> {
    let (label, zone) = text(&route["spec"]["host"]).filter(|host| names::check_host(host).is_ok())?.split_once('.')?;
    let name = route["metadata"]["name"].as_str().unwrap_or_default();
    let wanted = names::wanted_label(context.namespace.unwrap_or_default(), name, text(&route["spec"]["subdomain"]));
    (names::is_label_to_have(&wanted) && wanted.eq_ignore_ascii_case(label)).then_some(zone)
}

/// Refuses a Route that is not scheduled the names of the platform, but for its own on a Router that is there: so what was read of a Route can be
/// made again.
async fn guard_host(context: &Context<'_>, route: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let host = &route["spec"]["host"];
    if let Some(zone) = wanted_zone(context, route) {
        let is_zone = |router: &Value| match text(&router["spec"]["dns"]) {
            Some(dns) => dns.eq_ignore_ascii_case(zone),
            None => {
                let name = router["metadata"]["name"].as_str().unwrap_or_default();
                format!("{name}.{}", context.domain).eq_ignore_ascii_case(zone)
            }
        };
        if reader.list("Router", None).await?.iter().any(is_zone) {
            return Ok(());
        }
        if let Some(cause) = host_fault(context.domain, host) {
            let name = route["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(super::known("Route"), name, vec![cause]));
        }
    }
    host_in_zone(host, route, reader).await
}

fn subdomain_fault(context: &Context<'_>, value: &Value) -> Option<Cause> {
    let subdomain = text(value)?;
    if !names::is_host_label(subdomain) {
        let what = "must be one label of a host name: at most 63 letters, digits and inner dashes, no dots";
        return Some(field::invalid("spec.subdomain", value, what));
    }
    if !names::is_valid_if_a_label(subdomain) {
        return Some(field::invalid("spec.subdomain", value, &names::HostError::BadALabel.to_string()));
    }
    context.label_rules.is_reserved(subdomain).then(|| {
        let what = format!("the label {subdomain:?} is reserved; choose another one");
        field::forbidden("spec.subdomain", &what)
    })
}

/// The verb on Routes that a user needs to set `subdomain` where tenants may not. No role but that of administrators has it.
const SUBDOMAIN_VERB: &str = "set-subdomain";

/// Refuses a new `subdomain` of a tenant where the platform lets only administrators set it, and one that begins with the name of another existing namespace and a dash: it is a label that a Route of
/// that namespace may need later. Each lookup is one in the cache, and a label has at most 63 octets.
async fn guard_subdomain(
    context: &Context<'_>,
    old: Option<&Value>,
    new: &Value,
    reader: &dyn Reader,
) -> Result<(), ApiError> {
    let Some(subdomain) = text(&new["spec"]["subdomain"]) else { return Ok(()) };
    if old.and_then(|old| text(&old["spec"]["subdomain"])) == Some(subdomain) {
        return Ok(());
    }
    let own = context.namespace.unwrap_or_default();
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if !context.label_rules.tenant_subdomains {
        let access = Access::resource(SUBDOMAIN_VERB, GROUP, "routes", context.namespace, Some(name));
        if rules::authorize(context.identity, &access).is_err() {
            let why = "spec.subdomain: only administrators of this platform may set it; leave it out to get the label \
                       <namespace>-<name>";
            return Err(ApiError::forbidden(super::known("Route"), name, why));
        }
    }
    let mut namespaces = BTreeSet::new();
    for prefix in names::namespaces_of(&subdomain.to_ascii_lowercase()) {
        if reader.get("Namespace", None, prefix).await?.is_some() {
            namespaces.insert(prefix.to_owned());
        }
    }
    if !names::is_of_another_namespace(subdomain, own, |name| namespaces.contains(name)) {
        return Ok(());
    }
    let what = format!(
        "the label {subdomain:?} is reserved for another namespace, whose name it begins with; choose another label"
    );
    let causes = vec![field::forbidden("spec.subdomain", &what)];
    Err(ApiError::invalid(super::known("Route"), name, causes))
}

fn faults(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(path) = text(&spec["path"]) {
        let what = if !path.starts_with('/') {
            Some("must start with /")
        } else if path.chars().any(|character| character.is_whitespace() || character.is_control()) {
            Some("must not hold white space or control characters; write them percent-encoded, such as %20")
        } else if path.contains(['?', '#']) {
            Some("must not hold a query or a fragment")
        } else {
            None
        };
        causes.extend(what.map(|what| field::invalid("spec.path", &spec["path"], what)));
    }
    if let Some("") = spec["to"]["kind"].as_str() {
        causes.push(field::required("spec.to.kind", "such as Service"));
    }
    let port = &spec["port"]["targetPort"];
    let port_fault = match port {
        Value::Number(number) if !number.as_u64().is_some_and(|port| (1..=65535).contains(&port)) => {
            Some("must be between 1 and 65535, inclusive")
        }
        Value::String(name) if !is_port_name(name) => Some(
            "must be a port's name: at most 15 lower-case letters, digits and inner dashes, with at least one letter",
        ),
        _ => None,
    };
    causes.extend(port_fault.map(|what| field::invalid("spec.port.targetPort", port, what)));
    causes
}

/// RFC 6335 §5.1, in lower case as Kubernetes has it.
fn is_port_name(name: &str) -> bool {
    let good = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
    (1..=15).contains(&name.len())
        && name.bytes().all(good)
        && name.bytes().any(|octet| octet.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Refuses a host inside one of our zones outside the platform's domain: a Router's `dns` may be anywhere. The Zone of each
/// ancestor is looked up, so the cost does not grow with the number of shards.
async fn host_in_zone(host: &Value, route: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let Some(host) = text(host) else { return Ok(()) };
    let plain = host.strip_prefix("*.").unwrap_or(host).to_ascii_lowercase();
    let mut ancestor = plain.as_str();
    loop {
        if reader.get("Zone", None, ancestor).await?.is_some() {
            let what = format!("names below {ancestor} are given by the platform; leave host empty to get one");
            let name = route["metadata"]["name"].as_str().unwrap_or_default();
            let causes = vec![field::forbidden("spec.host", &what)];
            return Err(ApiError::invalid(super::known("Route"), name, causes));
        }
        match ancestor.split_once('.') {
            Some((_, parent)) => ancestor = parent,
            None => return Ok(()),
        }
    }
}

/// A Route takes its RouteBinding with it, unless a finalizer holds that.
async fn binding_of(context: &Context<'_>, route: &Value, reader: &dyn Reader) -> Result<Vec<SideWrite>, ApiError> {
    let name = route["metadata"]["name"].as_str().unwrap_or_default();
    let binding = reader.get("RouteBinding", context.namespace, name).await?;
    let is_held = |binding: &Value| binding["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let write = binding.map(|binding| SideWrite {
        kind: "RouteBinding",
        namespace: context.namespace.map(str::to_owned),
        name: name.to_owned(),
        expect: binding["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        // Whoever put a finalizer there is not done with it. The keeper of placement marks it for deletion, as
        // Kubernetes does with what an object that has gone leaves behind.
        effect: if is_held(&binding) { Effect::Keep } else { Effect::Delete },
    });
    Ok(write.into_iter().collect())
}

/// Sets a condition in a `status`; `lastTransitionTime` moves only when the condition's status changes.
pub(super) fn set_condition(
    status: &mut Value,
    kind: &str,
    holds: bool,
    (reason, message): (&str, &str),
    generation: &Value,
    now: Timestamp,
) {
    let value = if holds { "True" } else { "False" };
    let mut condition = json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    if generation.is_number() {
        condition["observedGeneration"] = generation.clone();
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(found) => {
            if found["status"] == value {
                condition["lastTransitionTime"] = found["lastTransitionTime"].clone();
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Objects, check_create, check_update, context};
    use super::*;
    use signpost_api::identity::Identity;
    use signpost_api::names::LabelRules;

    fn route(spec: Value) -> Value {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "r", "namespace": "n"}, "spec": spec})
    }

    fn scheduled(spec: Value) -> Value {
        let mut route = route(spec);
        route["status"] = json!({"phase": "scheduled", "router": "s1", "dns": "n-r.s1.v3.example", "names": [
            {"name": "n-r.s1.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]});
        route
    }

    #[test]
    fn each_fault_has_its_path() {
        for (spec, expected) in [
            (json!({}), vec![]),
            (json!({"host": "", "path": ""}), vec![]),
            (
                json!({"host": "*.shop.test", "path": "/a", "port": {"targetPort": "https"}, "to": {"name": "x"}}),
                vec![],
            ),
            (
                json!({"host": "www.shop.test."}),
                vec!["spec.host: Invalid value: \"www.shop.test.\": must not end with a dot"],
            ),
            (
                json!({"host": "a.V3.example"}),
                vec![
                    "spec.host: Forbidden: names below v3.example are given by the platform; leave host empty to get one, and set subdomain to choose its first label",
                ],
            ),
            (
                json!({"host": "*.v3.example"}),
                vec![
                    "spec.host: Forbidden: names below v3.example are given by the platform; leave host empty to get one, and set subdomain to choose its first label",
                ],
            ),
            (
                json!({"subdomain": "a.b"}),
                vec![
                    "spec.subdomain: Invalid value: \"a.b\": must be one label of a host name: at most 63 letters, digits and inner dashes, no dots",
                ],
            ),
            (
                json!({"subdomain": "Routes"}),
                vec!["spec.subdomain: Forbidden: the label \"Routes\" is reserved; choose another one"],
            ),
            (json!({"path": "shop"}), vec!["spec.path: Invalid value: \"shop\": must start with /"]),
            (
                json!({"path": "/a b"}),
                vec![
                    "spec.path: Invalid value: \"/a b\": must not hold white space or control characters; write them percent-encoded, such as %20",
                ],
            ),
            (
                json!({"port": {"targetPort": 0}, "to": {"kind": ""}, "tls": {"termination": "none"}}),
                vec![
                    "spec.tls.termination: Unsupported value: \"none\": supported values: \"edge\", \"passthrough\", \"reencrypt\"",
                    "spec.to.name: Required value",
                    "spec.to.kind: Required value: such as Service",
                    "spec.port.targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                json!({"port": {"targetPort": "80"}}),
                vec![
                    "spec.port.targetPort: Invalid value: \"80\": must be a port's name: at most 15 lower-case letters, digits and inner dashes, with at least one letter",
                ],
            ),
            (
                json!({"host": 7}),
                vec!["spec.host: Invalid value: \"integer\": spec.host in body must be of type string: \"integer\""],
            ),
        ] {
            assert_eq!(check_create("Route", route(spec.clone())), expected, "{spec}");
        }
    }

    #[test]
    fn host_and_subdomain_stay_once_scheduled() {
        let own = "n-r.s1.v3.example";
        for (old, spec, good) in [
            (route(json!({})), json!({"host": "a.shop.test", "subdomain": "b"}), true),
            (route(json!({})), json!({"host": own}), true),
            (route(json!({"host": own})), json!({"host": own, "path": "/x"}), true),
            (route(json!({"host": own})), json!({"host": own, "subdomain": "b"}), false),
            (route(json!({})), json!({"host": "n-x.s1.v3.example"}), false),
            (scheduled(json!({})), json!({"path": "/x", "host": ""}), true),
            (scheduled(json!({})), json!({"host": "a.shop.test"}), false),
            (scheduled(json!({})), json!({"host": own}), true),
            (scheduled(json!({"host": own})), json!({}), true),
            (scheduled(json!({"host": "a.shop.test"})), json!({}), false),
            (scheduled(json!({"host": "a.shop.test"})), json!({"host": "b.shop.test"}), false),
            (scheduled(json!({"host": "a.shop.test"})), json!({"host": own}), false),
            (scheduled(json!({})), json!({"subdomain": "b"}), false),
        ] {
            let mut new = route(spec.clone());
            new["status"] = old["status"].clone();
            if new["status"].is_null() {
                new.as_object_mut().unwrap().remove("status");
            }
            let found = check_update("Route", &old, new);
            assert_eq!(found.is_empty(), good, "{spec} {found:?}");
        }
    }

    #[test]
    fn one_that_must_not_have_its_host_does_not_look_healthy() {
        let cell = |object: &Value, name: &str| Columns::new(COLUMNS).cell_of(name, object, 0);
        let mut route = scheduled(json!({"host": "www.shop.test"}));
        for (admitted, live, reason) in
            [(("True", "Admitted"), "True", "Bound"), (("False", "OwnershipUnproven"), "False", "OwnershipUnproven")]
        {
            route["status"]["conditions"] = json!([
                {"type": "Scheduled", "status": "True", "reason": "Bound"},
                {"type": "Admitted", "status": admitted.0, "reason": admitted.1},
                {"type": "Resolvable", "status": "True", "reason": "Resolvable"},
            ]);
            assert_eq!((cell(&route, "Live"), cell(&route, "Reason")), (json!(live), json!(reason)));
        }
        route["status"]["names"] =
            json!([{"name": "n-r.s1.v3.example", "type": "system"}, {"name": "www.shop.test", "type": "custom"}]);
        for (points, live) in
            [(None, "Unknown"), (Some("Unknown"), "Unknown"), (Some("False"), "False"), (Some("True"), "True")]
        {
            let mut conditions = vec![json!({"type": "Resolvable", "status": "True", "reason": "Resolvable"})];
            conditions.extend(points.map(|points| json!({"type": "HostPointsHere", "status": points, "reason": "X"})));
            route["status"]["conditions"] = json!(conditions);
            assert_eq!(cell(&route, "Live"), json!(live));
        }
    }

    #[test]
    fn only_a_binding_sets_the_status() {
        let stored = scheduled(json!({}));
        for (old, sent, good) in [
            (None, Value::Null, true),
            (None, json!({}), true),
            (None, json!({"phase": "scheduled"}), false),
            (None, json!({"phase": "new"}), false),
            (Some(&stored), Value::Null, true),
            (Some(&stored), stored["status"].clone(), true),
            (Some(&stored), json!({"phase": "new"}), false),
        ] {
            let found = Routes.validate_sent_status(old, &sent);
            assert_eq!(found.is_empty(), good, "{sent}");
            assert!(found.iter().all(|cause| cause.field == "status" && cause.message.contains("RouteBinding")));
        }
        let mut new = stored.clone();
        new["status"]["conditions"] = json!([{"type": "Resolvable"}]);
        assert!(Routes.validate_status_update(&context(), &stored, &new).is_empty());
        new["status"]["dns"] = json!("evil.test");
        new["status"].as_object_mut().unwrap().remove("names");
        let found: Vec<String> =
            Routes.validate_status_update(&context(), &stored, &new).into_iter().map(|cause| cause.field).collect();
        assert_eq!(found, ["status.dns", "status.names"]);
    }

    #[tokio::test]
    async fn a_host_inside_a_zone_of_ours_is_refused() {
        let objects = Objects::new(vec![json!({"kind": "Zone", "metadata": {"name": "shards.elsewhere.test"}})]);
        for (host, good) in [
            ("www.shop.test", true),
            ("elsewhere.test", true),
            ("x.Shards.elsewhere.test", false),
            ("*.shards.elsewhere.test", false),
        ] {
            let object = route(json!({"host": host}));
            let context = context();
            let found = Routes.before_commit(&context, Operation::Create(&object), &objects).await;
            assert_eq!(found.is_ok(), good, "{host}");
        }
    }

    #[tokio::test]
    async fn its_own_name_is_that_on_a_router_that_is_there() {
        let objects = Objects::new(vec![json!({"kind": "Router", "metadata": {"name": "s1"}})]);
        let context = context();
        for (spec, good) in [
            (json!({"host": "n-r.s1.v3.example"}), true),
            (json!({"host": "n-r.s2.v3.example"}), false),
            (json!({"host": "b.s1.v3.example", "subdomain": "b"}), true),
        ] {
            let (old, new) = (route(json!({})), route(spec.clone()));
            for operation in [Operation::Create(&new), Operation::Update { old: &old, new: &new }] {
                let found = Routes.before_commit(&context, operation, &objects).await;
                assert_eq!(found.is_ok(), good, "{spec}");
            }
        }
    }

    #[tokio::test]
    async fn a_subdomain_is_chosen_by_who_may_and_is_no_label_of_another_namespace() {
        let member = |group: &str| Identity { user: "u".to_owned(), groups: vec![group.to_owned()] };
        let (admin, tenant) = (member(rules::GROUP_ADMINS), member("signpost:tenant:n"));
        let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}});
        let objects = Objects::new(vec![namespace("n"), namespace("shop"), namespace("n-eu")]);
        let (open, closed) = (LabelRules::default(), LabelRules { tenant_subdomains: false, ..LabelRules::default() });
        for (identity, label_rules, old, new, expected) in [
            (&tenant, &open, None, "pay", Ok(())),
            (&tenant, &open, None, "shop-pr-124", Err(422)),
            (&tenant, &open, Some("pay"), "Shop-x", Err(422)),
            (&admin, &open, None, "shop", Err(422)),
            (&tenant, &open, None, "n-x", Ok(())),
            (&tenant, &open, None, "n-eu-x", Err(422)),
            // It was granted before the namespace was there.
            (&tenant, &open, Some("shop-x"), "shop-x", Ok(())),
            (&tenant, &closed, None, "pay", Err(403)),
            (&tenant, &closed, Some("pay"), "other", Err(403)),
            (&tenant, &closed, Some("pay"), "pay", Ok(())),
            (&tenant, &closed, Some("pay"), "", Ok(())),
            (&admin, &closed, None, "pay", Ok(())),
        ] {
            let context = Context { identity, label_rules, ..context() };
            let (before, after) = (old.map(|old| route(json!({"subdomain": old}))), route(json!({"subdomain": new})));
            let operation = match &before {
                Some(before) => Operation::Update { old: before, new: &after },
                None => Operation::Create(&after),
            };
            let found = Routes.before_commit(&context, operation, &objects).await;
            assert_eq!(found.map(drop).map_err(|error| error.code), expected, "{old:?} {new}");
        }
    }

    #[tokio::test]
    async fn a_move_is_asked_for_by_who_may_and_to_what_there_is() {
        let asked = |to: &str| {
            let mut route = scheduled(json!({}));
            route["metadata"]["annotations"] = json!({MOVE_ANNOTATION: to, "other": "x"});
            route
        };
        let member = |group: &str| Identity { user: "u".to_owned(), groups: vec![group.to_owned()] };
        let (admin, tenant) = (member(rules::GROUP_ADMINS), member("signpost:tenant:n"));
        let objects = Objects::new(vec![json!({"kind": "Router", "metadata": {"name": "s2"}})]);
        for (identity, old, new, expected) in [
            (&admin, scheduled(json!({})), asked("s2"), Ok(())),
            (&admin, scheduled(json!({})), asked("s3"), Err(422)),
            (&tenant, scheduled(json!({})), asked("s2"), Err(403)),
            (&tenant, asked("s2"), asked("s2"), Ok(())),
            (&tenant, asked("s2"), scheduled(json!({})), Ok(())),
        ] {
            let context = Context { identity, ..context() };
            let update = Operation::Update { old: &old, new: &new };
            let found = Routes.before_commit(&context, update, &objects).await;
            assert_eq!(found.map(drop).map_err(|error| error.code), expected, "{} {new}", identity.groups[0]);
            let created = Routes.before_commit(&context, Operation::Create(&new), &objects).await;
            let may = move_to(&new).is_none() || expected.is_ok() && *identity == admin;
            assert_eq!(created.is_ok(), may, "{} {new}", identity.groups[0]);
        }
        for (to, left) in [("s1", None), ("s2", Some("s2"))] {
            let mut new = asked(to);
            Routes.prepare_update(&context(), &scheduled(json!({})), &mut new);
            assert_eq!(move_to(&new), left);
            assert_eq!(new["metadata"]["annotations"]["other"], "x");
        }
    }

    #[tokio::test]
    async fn a_route_takes_its_binding_with_it() {
        let (old, options) = (route(json!({})), json!({}));
        let context = context();
        let delete = || Operation::Delete { old: &old, options: &options };
        for (finalizers, effect) in
            [(Value::Null, Effect::Delete), (json!([]), Effect::Delete), (json!(["example.com/hold"]), Effect::Keep)]
        {
            let metadata = json!({"name": "r", "namespace": "n", "resourceVersion": "7", "finalizers": finalizers});
            let objects = Objects::new(vec![json!({"kind": "RouteBinding", "metadata": metadata})]);
            let writes = Routes.before_commit(&context, delete(), &objects).await.unwrap();
            assert_eq!(writes.len(), 1);
            let write = (writes[0].kind, writes[0].expect.as_deref(), &writes[0].effect);
            assert_eq!(write, ("RouteBinding", Some("7"), &effect), "{finalizers}");
        }
        assert!(Routes.before_commit(&context, delete(), &Objects::new(vec![])).await.unwrap().is_empty());
    }
}
