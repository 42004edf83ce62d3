//! Route: a request for a name. Users write its spec. In its status, only a RouteBinding sets the phase and the names.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::access::{self, SECRET_NAME_FIELD};
use crate::kinds::{PlatformConfig, sources};
use crate::rules::{self as rule, Rule};
use signpost_apiserver::auth::rules::Access;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::columns::{self, AGE, Cell, Column};
use signpost_apiserver::kind::{HookReads, Kind};
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader, RelatedWrite, SideEffect};
use signpost_types::assignment::BOUND_FIELDS;
use signpost_types::names::{self, takes_names_of};
use signpost_types::v1alpha1::route::{
    ADMITTED, CONDITIONS, HOST_POINTS_HERE, MOVE_ANNOTATION, READY, RESOLVABLE, RESOLVED_REFS, ROUTER_GONE, Route,
    SCHEDULED,
};
use signpost_types::v1alpha1::{GROUP, SOURCE_LABEL, SOURCE_OBJECT_ANNOTATION};

pub static ROUTE: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<Route>()
        .with_columns(COLUMNS)
        .selectable_by(&[
            "spec.host",
            "spec.subdomain",
            SECRET_NAME_FIELD,
            "status.phase",
            "status.router",
            "status.dns",
        ])
        .read_by_hooks(HookReads::Whole)
});

const COLUMNS: &[Column] = &[
    Column::new("Host", &["spec.host"], "The custom host, if set."),
    Column::new("DNS", &["status.dns"], "The final DNS name."),
    Column::new("Router", &["status.router"], "The Router that serves it."),
    Column::new("Phase", &["status.phase"], "`new` until the scheduler binds the Route, then `scheduled`."),
    Column::new(
        "Live",
        &["status.conditions", "status.names"],
        "Whether every name server answers the Route's names correctly, and its custom host, if set, is verified and \
                      points here.",
    )
    .with_cell(|read, _| live(read[0], read[1])),
    Column::new(
        "Ready",
        &["status.conditions"],
        "Whether the Route's names resolve and every instance of its Router serves it.",
    )
    .with_cell(|read, _| Cell::As(columns::condition(read[0], READY, "status"))),
    AGE,
    Column::new("Canonical-Name", &["status.canonicalName"], "The stable name for a CNAME record of your own.").wide(),
    Column::new(
        "Source",
        &["metadata.annotations"],
        "The object from which a source derived the Route, such as `HTTPRoute shop/web`.",
    )
    .with_cell(|read, _| Cell::As(read[0].get([SOURCE_OBJECT_ANNOTATION])[0]))
    .wide(),
    Column::new("Target", &["spec.to.kind", "spec.to.name"], "The target of the traffic.")
        .with_cell(|read, _| match read[1].text() {
            Some(name) => {
                let kind = read[0].text().unwrap_or_default().to_ascii_lowercase();
                Cell::text(format!("{kind}/{name}"))
            }
            None => Cell::Blank,
        })
        .wide(),
    Column::new(
        "Endpoints",
        &["status.conditions"],
        "`Ready` if its targets have endpoints that can get requests, otherwise the reason why not.",
    )
    .with_cell(|read, _| {
        if columns::condition(read[0], RESOLVED_REFS, "status").is("True") {
            return Cell::text("Ready");
        }
        Cell::As(columns::condition(read[0], RESOLVED_REFS, "reason"))
    })
    .wide(),
    Column::new(
        "Reason",
        &["status.conditions"],
        "The reason of the first condition that is not met, otherwise of Scheduled.",
    )
    .with_cell(|read, _| {
        let is_wrong = |kind: &&str| {
            let status = columns::condition(read[0], kind, "status");
            !status.is_null() && !status.is("True")
        };
        let mut explaining = CONDITIONS.iter().filter(|known| known.is_explaining).map(|known| known.kind);
        let kind = explaining.find(is_wrong).unwrap_or(SCHEDULED);
        Cell::As(columns::condition(read[0], kind, "reason"))
    })
    .wide(),
];

/// Returns the LIVE cell. A Route with a custom host is live only if the host was seen to lead here, too.
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

/// Returns whether it must not have its host, or must not any more.
fn is_refused(conditions: Json<'_>) -> bool {
    columns::condition(conditions, ADMITTED, "status").is("False")
}

pub(super) struct Routes {
    platform: Arc<PlatformConfig>,
    rules: Vec<Rule>,
}

impl Routes {
    pub(super) fn new(platform: Arc<PlatformConfig>) -> Self {
        let mut reserved = platform.label_rules.reserved.clone();
        reserved.push(names::ALIAS_LABEL.to_owned());
        Routes { rules: rules::rules(Some(&platform.domain), &reserved), platform }
    }
}

#[async_trait]
impl Hooks for Routes {
    fn prepare(&self, _context: &Context<'_>, old: Option<&Value>, new: &mut Value) {
        let Some(old) = old else {
            new["status"] = json!({"phase": "new"});
            return;
        };
        // A move to the current Router is dropped: if it were kept, the Route would move back later. The exception is a Router
        // that was re-created with another zone: there, the move gives the Route a name.
        if move_to(new).is_some_and(|router| new["status"]["router"] == router) && !is_router_gone(old) {
            forget_move(new);
        }
    }

    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = rule::check(&self.rules, old, new);
        if old.is_none_or(|old| !is_scheduled(old) && requests_another_name(old, new)) {
            rule::add(&mut causes, host_fault(&self.platform.domain, context, new));
            rule::add(&mut causes, subdomain_fault(&new["spec"]["subdomain"]));
        }
        causes.extend(sources::leader_fault(context.identity, old, new));
        causes
    }

    fn status_writer(&self) -> Option<&'static str> {
        Some("a RouteBinding")
    }

    fn validate_status_update(&self, _context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = BOUND_FIELDS.iter().filter(|name| old["status"][**name] != new["status"][**name]);
        changed.map(|name| Cause::forbidden(format!("status.{name}"), "only a RouteBinding can set it")).collect()
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        sources::guard_deletion(context.identity, &ROUTE, operation)?;
        match operation {
            Operation::Create(object) => {
                guard_adoption(context, None, object)?;
                guard_move(context, None, object, reader)?;
            }
            Operation::Update { old, new } => {
                guard_adoption(context, Some(old), new)?;
                guard_move(context, Some(old), new, reader)?;
            }
            Operation::Delete { .. } | Operation::Release { .. } => {}
        }
        match operation {
            Operation::Create(object) => {
                guard_subdomain(&self.platform, context, None, object, reader)?;
                guard_host(&self.platform, context, object, reader)?;
            }
            Operation::Update { old, new } if !is_scheduled(old) => {
                guard_subdomain(&self.platform, context, Some(old), new, reader)?;
                if requests_another_name(old, new) {
                    guard_host(&self.platform, context, new, reader)?;
                }
            }
            Operation::Update { old, new } if text(&old["spec"]["host"]) != text(&new["spec"]["host"]) => {
                // The Route's own system name is in a zone of the platform; the validation has rejected all others.
                if own_system_name(old) != text(&new["spec"]["host"]) && !is_adopted(new) {
                    host_in_zone(&new["spec"]["host"], new, reader)?;
                }
            }
            Operation::Update { .. } => {}
            Operation::Delete { old, .. } | Operation::Release { old } => return binding_of(context, old, reader),
        }
        Ok(Vec::new())
    }
}

/// Returns the Router that a Route is requested to move to.
pub(super) fn move_to(route: &Value) -> Option<&str> {
    text(&route["metadata"]["annotations"][MOVE_ANNOTATION])
}

/// Returns whether the status reports that the Route's Router was deleted or replaced.
fn is_router_gone(route: &Value) -> bool {
    let conditions = route["status"]["conditions"].as_array();
    let scheduled = conditions.into_iter().flatten().find(|condition| condition["type"] == SCHEDULED);
    scheduled.is_some_and(|condition| condition["status"] == "False" && condition["reason"] == ROUTER_GONE)
}

/// Removes the requested move from a Route.
pub(super) fn forget_move(route: &mut Value) {
    let Some(metadata) = route["metadata"].as_object_mut() else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(MOVE_ANNOTATION);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// The verb on Routes that a user needs to adopt a host, and to mark a Route as that of a source.
const ADOPT_VERB: &str = "adopt";

/// Returns whether the router of a source admitted the Route's host.
pub(super) fn is_adopted(route: &Value) -> bool {
    !route["spec"]["adopted"].is_null()
}

/// Rejects the adoption of a host, another host of an adopted Route, and the label and the annotation of a source, by a user without the verb `adopt`:
/// an adopted host is exempt from the rules that protect the names of others.
fn guard_adoption(context: &Context<'_>, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let before = |at: fn(&Value) -> &Value| old.map_or(&Value::Null, at);
    let adopts = before(|route| &route["spec"]["adopted"]) != &new["spec"]["adopted"];
    let is_of_adopted = old.is_some_and(is_adopted) || is_adopted(new);
    let renames = is_of_adopted && text(before(|route| &route["spec"]["host"])) != text(&new["spec"]["host"]);
    let field = if adopts {
        "spec.adopted".to_owned()
    } else if renames {
        "spec.host".to_owned()
    } else if before(sources::label) != sources::label(new) {
        format!("metadata.labels[{SOURCE_LABEL}]")
    } else if before(sources::object) != sources::object(new) {
        format!("metadata.annotations[{SOURCE_OBJECT_ANNOTATION}]")
    } else {
        return Ok(());
    };
    let name = new["metadata"]["name"].as_str();
    let access = Access::resource(ADOPT_VERB, GROUP, "routes", context.namespace, name);
    access::authorize(context.identity, &access).map_err(|_| {
        let why =
            format!("{field}: only the platform's sources set it; it requires the verb \"{ADOPT_VERB}\" on routes");
        ApiError::forbidden(&ROUTE, name.unwrap_or_default(), &why)
    })
}

/// Checks a new request to move: the user must have the verb `move`, and the Router must exist. The scheduler decides whether the
/// Router can take the Route. To cancel a move, permission to change the Route is sufficient.
fn guard_move(context: &Context<'_>, old: Option<&Value>, new: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let Some(router) = move_to(new).filter(|router| old.and_then(move_to) != Some(*router)) else { return Ok(()) };
    let name = new["metadata"]["name"].as_str();
    access::authorize(context.identity, &Access::resource("move", GROUP, "routes", context.namespace, name))?;
    if reader.get("Router", None, router)?.is_some() {
        return Ok(());
    }
    let path = format!("metadata.annotations[{MOVE_ANNOTATION}]");
    let causes = vec![Cause::not_found(&path, &Value::from(router))];
    Err(ApiError::invalid(&ROUTE, name.unwrap_or_default(), causes))
}

/// Returns the value of a field where empty and absent mean the same.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn is_scheduled(route: &Value) -> bool {
    route["status"]["phase"] == "scheduled"
}

/// Returns the platform's name of a scheduled Route.
fn own_system_name(route: &Value) -> Option<&str> {
    let names = route["status"]["names"].as_array()?;
    names.iter().find(|name| name["type"] == "system").and_then(|name| name["name"].as_str())
}

/// Returns whether an unscheduled Route changes its requested name: its system name depends on its subdomain.
fn requests_another_name(old: &Value, new: &Value) -> bool {
    ["host", "subdomain"].iter().any(|name| text(&old["spec"][*name]) != text(&new["spec"][*name]))
}

/// Returns the fault of an unscheduled Route's host that the rules cannot detect: they do not know the namespace, and accept any
/// name with the suffix of the Route's own. The lookup of the Router with that zone is made before the commit.
fn host_fault(domain: &str, context: &Context<'_>, route: &Value) -> Option<Cause> {
    let value = &route["spec"]["host"];
    let host = text(value).filter(|_| wanted_zone(context, route).is_none())?;
    match names::check_a_labels(host) {
        Err(error) => Some(Cause::invalid("spec.host", value, &error.to_string())),
        Ok(()) => (takes_names_of(host, domain) && !is_adopted(route)).then(|| platform_fault(domain)),
    }
}

fn platform_fault(domain: &str) -> Cause {
    Cause::forbidden("spec.host", &rules::of_the_platform(domain))
}

/// Returns the zone of the Router whose system name for this Route is the host, if the host has that form: the label that the
/// Route would get, in front of a domain.
fn wanted_zone<'a>(context: &Context<'_>, route: &'a Value) -> Option<&'a str> {
    let (label, zone) = text(&route["spec"]["host"]).filter(|host| names::check_host(host).is_ok())?.split_once('.')?;
    let name = route["metadata"]["name"].as_str().unwrap_or_default();
    let wanted = names::wanted_label(context.namespace.unwrap_or_default(), name, text(&route["spec"]["subdomain"]));
    (names::is_label_to_have(&wanted) && wanted.eq_ignore_ascii_case(label)).then_some(zone)
}

/// Rejects names of the platform as the host of an unscheduled Route, except its own system name on an existing Router. The
/// exception lets a client re-create a Route from an object that it read.
fn guard_host(
    platform: &PlatformConfig,
    context: &Context<'_>,
    route: &Value,
    reader: &dyn Reader,
) -> Result<(), ApiError> {
    let host = &route["spec"]["host"];
    if is_adopted(route) {
        return Ok(());
    }
    if let Some(zone) = wanted_zone(context, route) {
        if !reader.matching("Router", "spec.dns", &|dns| dns.eq_ignore_ascii_case(zone))?.is_empty() {
            return Ok(());
        }
        if takes_names_of(text(host).unwrap_or_default(), &platform.domain) {
            let cause = platform_fault(&platform.domain);
            let name = route["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::invalid(&ROUTE, name, vec![cause]));
        }
    }
    host_in_zone(host, route, reader)
}

fn subdomain_fault(value: &Value) -> Option<Cause> {
    let error = names::check_a_labels(text(value)?).err()?;
    Some(Cause::invalid("spec.subdomain", value, &error.to_string()))
}

/// The verb on Routes that a user needs to set any `subdomain`. Only administrators have it.
const SUBDOMAIN_VERB: &str = "set-subdomain";

/// Rejects a new `subdomain` of a tenant if the platform permits only administrators to set it, and one with a dash that does not
/// begin with the tenant's namespace: another namespace may need the label. Whether that namespace exists makes no difference,
/// because the answer would reveal it. Administrators can read all namespaces; for them, only names of existing ones are
/// reserved. Each lookup is in the cache, and a label has at most 63 octets.
fn guard_subdomain(
    platform: &PlatformConfig,
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
    let refused = |what: &str| {
        let causes = vec![Cause::forbidden("spec.subdomain", what)];
        Err(ApiError::invalid(&ROUTE, name, causes))
    };
    let wanted = Access::resource(SUBDOMAIN_VERB, GROUP, "routes", context.namespace, Some(name));
    if access::authorize(context.identity, &wanted).is_err() {
        if !platform.label_rules.tenant_subdomains {
            let why = "spec.subdomain: only administrators of this platform can set it; remove it to get the label \
                       <namespace>-<name>";
            return Err(ApiError::forbidden(&ROUTE, name, why));
        }
        return match names::is_for_namespace(subdomain, own) {
            true => Ok(()),
            false => refused(&format!("a label with a dash must begin with the name of the namespace, \"{own}-\"")),
        };
    }
    let mut namespaces = BTreeSet::new();
    for prefix in names::namespaces_of(&subdomain.to_ascii_lowercase()) {
        if reader.get("Namespace", None, prefix)?.is_some() {
            namespaces.insert(prefix.to_owned());
        }
    }
    if !names::is_of_another_namespace(subdomain, own, |name| namespaces.contains(name)) {
        return Ok(());
    }
    refused(&format!(
        "the label {subdomain:?} begins with the name of another namespace and is reserved for it; choose another label"
    ))
}

/// Rejects a host in a zone of the platform that is outside the platform's domain: a Router's `dns` can be anywhere. It looks up
/// the Zone of each ancestor, so the cost does not grow with the number of shards.
fn host_in_zone(host: &Value, route: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let Some(host) = text(host) else { return Ok(()) };
    let plain = host.strip_prefix("*.").unwrap_or(host).to_ascii_lowercase();
    let mut ancestor = plain.as_str();
    loop {
        if reader.get("Zone", None, ancestor)?.is_some() {
            let what = format!("the platform assigns the names below {ancestor}; remove host to get one");
            let name = route["metadata"]["name"].as_str().unwrap_or_default();
            let causes = vec![Cause::forbidden("spec.host", &what)];
            return Err(ApiError::invalid(&ROUTE, name, causes));
        }
        match ancestor.split_once('.') {
            Some((_, parent)) => ancestor = parent,
            None => return Ok(()),
        }
    }
}

/// Returns the write that deletes the RouteBinding of a deleted Route, unless a finalizer holds the binding.
fn binding_of(context: &Context<'_>, route: &Value, reader: &dyn Reader) -> HookResult {
    let name = route["metadata"]["name"].as_str().unwrap_or_default();
    let binding = reader.get("RouteBinding", context.namespace, name)?;
    let is_held = |binding: &Value| binding["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let write = binding.map(|binding| RelatedWrite {
        kind: "RouteBinding",
        namespace: context.namespace.map(str::to_owned),
        name: name.to_owned(),
        expect: binding["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        // Another controller has set a finalizer and still needs the object. The reconciler marks it for deletion, like
        // Kubernetes does with the dependents of a deleted object.
        effect: if is_held(&binding) { SideEffect::Keep } else { SideEffect::Delete },
    });
    Ok(write.into_iter().collect())
}

pub(crate) mod rules;
#[cfg(test)]
mod tests;
