//! The rules of our kinds once more, as CEL (`x-kubernetes-validations`), for a cluster that serves them as custom resources.
//!
//! Each rule says what a line of the kind's own file says in Rust; a test puts the same objects to both and compares the
//! verdicts and the fields (`verdicts`). Why there are both: `README.md` of this crate. What CEL cannot see is left to our server, and to the controllers in a cluster: other objects, the
//! namespace of the object itself, the clock, a hash, what an A-label encodes. A cluster estimates
//! the cost of a rule from `maxLength`, `maxItems` and `maxProperties`, which every text, list and map of our schemas has, and
//! refuses a definition with too high a one. Only the operators of selectors are listed here alone: the Rust rule words that fault.
//!
//! The functions on addresses need Kubernetes 1.31.

use serde_json::{Value, json};

use crate::names;
use signpost_apiserver::schema::structural::{self, at};

/// A label of a host name, at most 63 octets (RFC 1123 §2.1).
const LABEL: &str = "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?";
/// The same after an underscore.
const LABEL_BELOW: &str = "_[A-Za-z0-9]([-A-Za-z0-9]{0,60}[A-Za-z0-9])?";
/// The key of a label: an optional DNS subdomain and a slash, then a name.
const KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
/// The value of a label.
const VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$";

/// Puts the rules and bounds of a kind into the schema of its definition. `domain` is the platform's; without one, what
/// depends on it is left out.
pub(super) fn add(kind: &str, schema: &mut Value, domain: Option<&str>) {
    for (place, more) in bounds(kind) {
        structural::extend(schema, place, more);
    }
    for Rule { place, rule, message, field } in rules(kind, domain) {
        let Some(Value::Object(node)) = at(schema, &place) else { continue };
        let mut validation = json!({"rule": rule, "message": message});
        if let Some(field) = field {
            validation["fieldPath"] = field.into();
        }
        let list = node.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        list.as_array_mut().map(|list| list.push(validation)).unwrap_or_default();
    }
}

struct Rule {
    place: String,
    rule: String,
    message: String,
    /// Which field below `place` the fault is at.
    field: Option<&'static str>,
}

fn rule(place: impl Into<String>, rule: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule { place: place.into(), rule: rule.into(), message: message.into(), field: None }
}

/// A rule that looks at more than the field it is about.
fn about(place: impl Into<String>, field: &'static str, text: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule { field: Some(field), ..rule(place, text, message) }
}

fn rules(kind: &str, domain: Option<&str>) -> Vec<Rule> {
    match kind {
        "Router" => router(domain),
        "Route" => route(domain),
        "RouteBinding" => route_binding(domain),
        "NameClaim" => name_claim(),
        "Zone" => zone(),
        "DeletionHold" => deletion_hold(),
        _ => Vec::new(),
    }
}

fn bounds(kind: &str) -> Vec<(&'static str, Value)> {
    match kind {
        "Router" => vec![
            ("spec.routeSelector.matchExpressions[].operator", OPERATORS.clone()),
            ("spec.namespaceSelector.matchExpressions[].operator", OPERATORS.clone()),
            ("spec.addressesFrom.serviceSelector.matchExpressions[].operator", OPERATORS.clone()),
        ],
        _ => Vec::new(),
    }
}

static OPERATORS: std::sync::LazyLock<Value> =
    std::sync::LazyLock::new(|| json!({"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}));

/// A domain of whole labels, in either case; `repeat` says how many labels may follow the first.
fn domain_pattern(prefix: &str, repeat: char) -> String {
    let label = format!("({LABEL_BELOW}|{LABEL})");
    format!(r"^{prefix}{label}(\.{label}){repeat}$")
}

fn router(domain: Option<&str>) -> Vec<Rule> {
    let mut rules = router_dns(domain);
    rules.extend(router_addresses());
    rules.extend(router_records());
    rules.extend(selector("spec.routeSelector"));
    rules.extend(selector("spec.namespaceSelector"));
    rules.extend(selector("spec.addressesFrom.serviceSelector"));
    rules
}

fn router_dns(domain: Option<&str>) -> Vec<Rule> {
    // Without underscores: see `names::check_zone`.
    let lower = format!(r"^{LABEL}(\.{LABEL})*$").replace("A-Za-z", "a-z");
    let mut rules = vec![
        rule(
            "spec.dns",
            format!("self.matches(r'{lower}')"),
            "must be a domain in lower case: labels of letters, digits and inner dashes, without a dot at the end",
        ),
        rule(
            "spec.dns",
            "size(self) <= 189",
            "must be no more than 189 octets, so that the names of routes have room below it",
        ),
        about(
            "spec",
            ".dns",
            "!has(oldSelf.dns) || has(self.dns) && self.dns == oldSelf.dns",
            "field is immutable: make a new Router with this zone and move the routes to it",
        ),
    ];
    if let Some(domain) = domain {
        let alias = names::alias_zone(domain);
        rules.push(rule(
            "spec.dns",
            format!("self != '{domain}' && !'{domain}'.endsWith('.' + self)"),
            format!("must not hold the platform's own domain {domain}; use a name below it, such as shard1.{domain}"),
        ));
        rules.push(rule(
            "spec.dns",
            format!("self != '{alias}' && !self.endsWith('.{alias}')"),
            format!("must not overlap {alias}, where the aliases of all routes are; use another name"),
        ));
    }
    rules
}

fn router_addresses() -> Vec<Rule> {
    vec![
        rule(
            "spec.addresses[].ip",
            "isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).family() == 4 && \
             ip(self).isLinkLocalUnicast())",
            "must be an IPv4 or IPv6 address that an application can be reached at: not unspecified, multicast, broadcast, \
             IPv4-mapped or IPv6 link-local",
        ),
        rule(
            "spec.addresses",
            "self.all(a, !isIP(a.ip) || self.exists_one(b, isIP(b.ip) && ip(b.ip) == ip(a.ip)))",
            "no address may be there twice, in whatever way it is written",
        ),
        rule(
            "spec.healthCheck.path",
            "self.matches(r'^/[!-~]*$')",
            "must begin with / and hold no spaces and nothing but ASCII",
        ),
        rule(
            "spec.healthCheck.expectedStatuses",
            "self.matches(r'^[1-5][0-9]{2}(-[1-5][0-9]{2})?(,[1-5][0-9]{2}(-[1-5][0-9]{2})?){0,15}$')",
            "must be HTTP status codes from 100 to 599, or ranges of them, parted by commas, such as 200-399",
        ),
        rule(
            "spec.healthCheck.expectedStatuses",
            "self.split(',').all(part, !part.contains('-') || part.split('-')[0] <= part.split('-')[1])",
            "must have the lower code of a range first, such as 200-399",
        ),
        rule(
            "spec.healthCheck.host",
            format!("self.matches(r'{}')", domain_pattern("", '*')),
            "must be a host name: labels of letters, digits and inner dashes, without a dot at the end",
        ),
        rule(
            "spec.addressesFrom",
            "(has(self.instances) && self.instances) != has(self.serviceSelector)",
            "must have either instances: true or serviceSelector",
        ),
        about(
            "spec.addressesFrom",
            ".namespace",
            "has(self.__namespace__) == has(self.serviceSelector)",
            "must be there with serviceSelector, and only then",
        ),
        about("spec.ports", ".https", "self.http != self.https", "must not be the port for plain HTTP"),
        about(
            "spec.capacity",
            ".soft",
            "!has(self.soft) || !has(self.hard) || self.soft <= self.hard",
            "must not be greater than hard",
        ),
    ]
}

fn router_records() -> Vec<Rule> {
    vec![
        rule(
            "spec.records[]",
            r"self.matches(r'[^\p{Z}\p{Cc}]')",
            "must be a record in zone-file syntax, such as @ CAA 0 issue \"ca.example\"",
        ),
        rule("spec.records[]", "size(bytes(self)) <= 8192", "must be no more than 8192 octets"),
        rule(
            "spec.records[]",
            r"!self.matches(r'^[\p{Z}\p{Cc}]*\$')",
            "must be a record, not a directive such as $INCLUDE",
        ),
        rule(
            "spec.records[]",
            r"!self.matches(r'[^\t\P{Cc}]')",
            "must be one record on one line; add one item for each record",
        ),
    ]
}

fn selector(place: &str) -> Vec<Rule> {
    let expression = format!("{place}.matchExpressions[]");
    vec![
        rule(
            format!("{place}.matchLabels"),
            format!("self.all(key, key.matches(r'{KEY}') && key.indexOf('/') <= 253 && self[key].matches(r'{VALUE}'))"),
            "keys and values must be those of labels",
        ),
        rule(
            format!("{expression}.key"),
            format!("self.matches(r'{KEY}') && self.indexOf('/') <= 253"),
            "must be the key of a label",
        ),
        rule(format!("{expression}.values[]"), format!("self.matches(r'{VALUE}')"), "must be the value of a label"),
        about(
            expression,
            ".values",
            "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || \
             size(self.values) == 0",
            "must be specified when operator is In or NotIn, and only then",
        ),
    ]
}

/// What a custom host looks like. The last label cannot be a number, which would make the name an address.
fn host_rule(value: &str) -> String {
    let pattern = domain_pattern(r"(\*\.)?", '+');
    format!(r"{value}.matches(r'{pattern}') && !{value}.matches(r'\.[0-9]+$')")
}

fn route(domain: Option<&str>) -> Vec<Rule> {
    const SCHEDULED: &str = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'scheduled'";
    let (old_host, new_host) = (text("oldSelf", "host"), text("self", "host"));
    let is_own = |host: &str| {
        format!(
            "({host} == '' || has(oldSelf.status.names) && oldSelf.status.names.exists(n, n.type == 'system' && \
             n.name.lowerAscii() == {host}.lowerAscii()))"
        )
    };
    let immutable = "field is immutable once the Route is scheduled: delete the Route and create it with the new value";
    let mut rules = vec![
        rule(
            "spec.host",
            format!("self == '' || {}", host_rule("self")),
            "must be a host name of two labels or more, of letters, digits and inner dashes, with an optional *. in front \
             of these and no dot at the end",
        ),
        about(
            "",
            ".spec.host",
            format!("!({SCHEDULED}) || {old_host} == {new_host} || {} && {}", is_own(&old_host), is_own(&new_host)),
            immutable,
        ),
        rule(
            "spec.subdomain",
            format!("self.matches(r'^{LABEL}$')"),
            "must be one label of a host name: at most 63 letters, digits and inner dashes, no dots",
        ),
        rule(
            "spec.subdomain",
            format!("!(self.lowerAscii() in {})", list(&names::RESERVED_LABELS)),
            "this label is reserved; choose another one",
        ),
        about(
            "",
            ".spec.subdomain",
            format!("!({SCHEDULED}) || {} == {}", text("oldSelf", "subdomain"), text("self", "subdomain")),
            immutable,
        ),
        rule("spec.path", "self == '' || self.startsWith('/')", "must start with /"),
        rule(
            "spec.path",
            r"!self.matches(r'[\p{Z}\p{Cc}?#]')",
            "must not hold white space, control characters, a query or a fragment",
        ),
        about(
            "spec",
            ".path",
            "!has(self.path) || self.path == '' || !has(self.tls) || self.tls.termination != 'passthrough'",
            "passthrough termination does not support paths",
        ),
        about(
            "spec.tls",
            ".insecureEdgeTerminationPolicy",
            "self.termination != 'passthrough' || !has(self.insecureEdgeTerminationPolicy) || \
             self.insecureEdgeTerminationPolicy != 'Allow'",
            "passthrough termination supports only None and Redirect",
        ),
        rule("spec.to.kind", "self != ''", "must not be empty, such as Service"),
        rule("spec.alternateBackends[].kind", "self != ''", "must not be empty, such as Service"),
        // Only a text equals itself as text.
        rule(
            "spec.port.targetPort",
            "string(self) == self ? self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$') : self >= 1 && self <= 65535",
            "must be a port from 1 to 65535, or a port's name: at most 63 lower-case letters, digits and inner dashes",
        ),
    ];
    rules.extend(domain.map(platform_host));
    rules
}

/// A text of the spec, in which empty and absent mean the same.
fn text(object: &str, field: &str) -> String {
    format!("(has({object}.spec.{field}) ? {object}.spec.{field} : '')")
}

/// The hosts below the platform's domain that a Route may ask for.
fn platform_host(domain: &str) -> Rule {
    let host = format!("{}.lowerAscii()", text("self", "host"));
    let subdomain = text("self", "subdomain");
    // A definition does not see the namespace, with which the label of its own name begins, nor whether a Router has the
    // zone: the scheduler does, and admits no other host below the domain.
    let is_own_wish = format!(
        "({subdomain} != '' ? {host}.startsWith({subdomain}.lowerAscii() + '.') : {host}.indexOf('.') > 0 && \
         {host}.substring(0, {host}.indexOf('.')).endsWith('-' + self.metadata.name.replace('.', '-')))"
    );
    about(
        "",
        ".spec.host",
        format!(
            "!({host} == '{domain}' || {host}.endsWith('.{domain}')) || {is_own_wish} || has(self.status) && \
             has(self.status.names) && self.status.names.exists(n, n.type == 'system' && n.name.lowerAscii() == {host})"
        ),
        format!(
            "names below {domain} are given by the platform; leave host empty to get one, and set subdomain to choose \
             its first label"
        ),
    )
}

fn route_binding(domain: Option<&str>) -> Vec<Rule> {
    let mut rules = vec![
        about(
            "",
            ".spec.routeName",
            "self.spec.routeName == self.metadata.name",
            "must be the binding's own metadata.name",
        ),
        rule("spec.routeUID", "self != ''", "must not be empty"),
        rule("spec.router", "self != ''", "must not be empty"),
        rule("spec.strategy", "self != ''", "must not be empty"),
        rule("spec.label", format!("self.matches(r'^{LABEL}$')"), "must be one label of a host name"),
        about(
            "spec",
            ".dns",
            "size(self.label) + 1 + size(self.dns) <= 253",
            "with the label in front the name is over 253 octets",
        ),
        about(
            "spec",
            ".names",
            "self.names.exists_one(n, n.type == 'system') && self.names.all(n, n.type != 'system' || n.name == self.label + \
             '.' + self.dns)",
            "the system name, <label>.<dns>, must be among the names, once",
        ),
        about(
            "spec",
            ".names",
            "size(self.names.filter(n, n.type == 'custom')) <= 1",
            "at most one custom name may be among the names",
        ),
        about(
            "spec",
            ".formerNames",
            "!has(self.formerNames) || self.formerNames.all(t, t.name.startsWith(self.label + '.') && size(t.name) > size(self.label) + 1 \
             && t.name != self.label + '.' + self.dns)",
            "former names must be names of the label in other zones than dns",
        ),
        about(
            "spec",
            ".formerNames",
            "!has(self.formerNames) || size(self.formerNames.filter(t, has(t.from))) <= 1",
            "only one former name can be yet to begin",
        ),
        about(
            "spec",
            ".routeUID",
            "self.routeUID == oldSelf.routeUID",
            "field is immutable: delete the RouteBinding and create another",
        ),
        about(
            "spec",
            ".label",
            "self.label == oldSelf.label",
            "field is immutable: delete the RouteBinding and create another",
        ),
    ];
    let alias = match domain {
        Some(domain) => format!(
            " && self.names.all(n, n.type != 'alias' || n.name == self.label + '.{}')",
            names::alias_zone(domain)
        ),
        None => String::new(),
    };
    rules.push(about(
        "spec",
        ".names",
        format!("self.names.exists_one(n, n.type == 'alias'){alias}"),
        "the alias, <label>.routes.<platform domain>, must be among the names, once",
    ));
    rules
}

fn name_claim() -> Vec<Rule> {
    vec![
        rule(
            "",
            r"self.spec.type == 'label' ? self.metadata.name == self.spec.value : self.metadata.name.matches(r'^host\.[0-9a-v]{32}$')",
            "metadata.name must be the label, or host. and a hash of the host",
        ),
        about(
            "spec",
            ".value",
            format!("self.type != 'label' || self.value.matches(r'^{}$')", LABEL.replace("A-Za-z", "a-z")),
            "must be one label of a host name in lower case, at most 63 octets",
        ),
        about("spec", ".value", format!("self.type != 'host' || {}", host_rule("self.value")), "must be a host name"),
        about("spec", ".type", "self.type == oldSelf.type", "field is immutable: create another NameClaim"),
        about("spec", ".value", "self.value == oldSelf.value", "field is immutable: create another NameClaim"),
        rule("spec.holder.namespace", "self != ''", "must not be empty"),
        rule("spec.holder.name", "self != ''", "must not be empty"),
        rule("spec.holder.uid", "self != ''", "must not be empty"),
        about(
            "spec",
            ".quarantineUntil",
            "!has(self.quarantineUntil) || has(self.releasedAt)",
            "a name that is held is in no quarantine; set releasedAt too",
        ),
        // Our server compares with its clock; a definition has none, so with when the new holder says to have the name.
        about(
            "spec",
            ".holder",
            "self.holder.__namespace__ == oldSelf.holder.__namespace__ && self.holder.name == oldSelf.holder.name || \
             has(oldSelf.releasedAt) && (!has(oldSelf.quarantineUntil) || self.since >= oldSelf.quarantineUntil)",
            "the name is held by another Route, or kept for the one that held it last",
        ),
    ]
}

fn zone() -> Vec<Rule> {
    vec![
        // A cluster takes no other names than domains in lower case, but their labels may be too long. It does not know how long a
        // name can be, so that a rule with more in it would cost too much.
        rule(
            "",
            "!self.metadata.name.matches('[^.]{64}')",
            "metadata.name must be the zone's apex, with labels of at most 63 octets",
        ),
        about(
            "spec",
            ".router",
            "(self.type == 'shard') == (has(self.router) && self.router != '')",
            "a zone of type shard belongs to a Router, and no other does",
        ),
        about("spec", ".type", "self.type == oldSelf.type", "field is immutable: delete the Zone and create it anew"),
        rule("spec.versions[].digest", "self.matches('^[0-9A-Fa-f]+$')", "must be hexadecimal"),
    ]
}

fn deletion_hold() -> Vec<Rule> {
    vec![rule(
        "spec",
        "self.type == oldSelf.type && self.objects == oldSelf.objects && self.known == oldSelf.known && self.cause == \
         oldSelf.cause && self.names == oldSelf.names",
        "what a DeletionHold stands for is immutable; only decision and decidedAt may change",
    )]
}

/// A list of texts without quotes in them, as CEL.
fn list(texts: &[&str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod cost;
#[cfg(test)]
mod verdicts;
