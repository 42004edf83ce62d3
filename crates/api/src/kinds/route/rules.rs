//! The rules of Routes that depend only on the object and its former state.

use crate::rules::expr::{Expr, Function, Quantity, item, old, this};
use crate::rules::{Rule, network, not_empty, shape};
use signpost_types::traffic::{COOKIE_NAME, UPGRADE};
use signpost_types::{names, paths};

const IMMUTABLE: &str = "field is immutable after the Route is scheduled; delete the Route and create it with the new \
                         value (it keeps its platform name, because namespace and name are the same)";

/// Returns the rules of Routes, none of which gets a `reserved` label. The one about the platform's domain is there if it is
/// given.
pub(crate) fn rules(domain: Option<&str>, reserved: &[String]) -> Vec<Rule> {
    let reserved: Vec<String> = reserved.iter().map(|label| label.to_ascii_lowercase()).collect();
    let spec = |object: Expr| object.field("spec");
    let host = |object: Expr| spec(object).text("host");
    let subdomain = |object: Expr| spec(object).text("subdomain");
    // A scheduled Route can only set its own system name as its host, or remove it.
    let is_own = |host: Expr| host.clone().is("") | old().field("status").has("names") & is_system_name(old(), host);
    let is_new = || {
        !(old().has("status")
            & old().field("status").has("phase")
            & old().field("status").field("phase").is("scheduled"))
    };
    let mut rules = vec![
        Rule::new("", is_new() | host(old()).is(host(this())) | is_own(host(old())) & is_own(host(this())), IMMUTABLE)
            .about("spec.host"),
        Rule::new("", is_new() | subdomain(old()).is(subdomain(this())), IMMUTABLE).about("spec.subdomain"),
    ];
    rules.extend(shape("spec.host", None, Some(this().is("")), &names::HOST[1..]));
    rules.extend(domain.map(platform_host));
    rules.extend([
        Rule::new(
            "spec",
            !this().has("adopted") | this().names("host"),
            "an adopted Route must have the host that was admitted",
        )
        .about("host")
        .required(),
        // The host's own first label can be that of Routes on other shards, so it is not a choice for the alias.
        Rule::new(
            "spec",
            !this().has("adopted") | !this().names("subdomain"),
            "must be absent with adopted: the label of an adopted Route is that of its namespace and name",
        )
        .about("subdomain")
        .forbidden(),
        Rule::new(
            "spec.subdomain",
            this().is("") | this().matches(names::LABEL),
            "must be one label of a host name: at most 63 letters, digits, and inner dashes, no dots",
        ),
        Rule::new(
            "spec.subdomain",
            !this().call(Function::Lower).one_of(&reserved),
            "the label is reserved; choose another one",
        )
        .forbidden(),
        Rule::new(
            "spec.port.targetPort",
            this().call(Function::IsText).choose(
                this().matches("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
                Expr::from(1).at_most(this()) & this().at_most(65_535),
            ),
            "must be a port from 1 to 65535, or a port's name: at most 63 lower-case letters, digits and inner dashes",
        ),
        Rule::new(
            "spec.tls.secretName",
            this().is("") | this().matches(OBJECT_NAME),
            "must be the name of a Secret in the Route's namespace: lower-case letters, digits, inner dashes, and inner dots",
        ),
    ]);
    rules.extend(shape("spec.path", None, Some(this().is("")), paths::PATH));
    rules.extend(not_empty(&["spec.to.kind", "spec.alternateBackends[].kind"], "such as Service"));
    rules.extend(passthrough());
    rules.extend(traffic());
    rules
}

/// The name of an object (RFC 1123 §2.1), without a namespace.
const OBJECT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Returns the rules of the settings for traffic.
fn traffic() -> [Rule; 4] {
    const YEAR_SECONDS: i64 = 31_536_000;
    let is_set = |name| this().has(name) & this().field(name);
    [
        network("spec.traffic.allowedNetworks[]"),
        Rule::new(
            "spec.traffic.stickySessions.cookieName",
            this().matches(COOKIE_NAME),
            "must consist of letters, digits, _, and -",
        ),
        Rule::new(
            "spec.traffic.upgrades[]",
            this().matches(UPGRADE) & !this().is("h2c"),
            "must be a protocol in lower case, such as websocket or spdy/3.1, but not h2c",
        ),
        // The conditions of the list that browsers have: hstspreload.org.
        Rule::new(
            "spec.traffic.hsts",
            !is_set("preload")
                | is_set("includeSubDomains") & Expr::from(YEAR_SECONDS).at_most(this().field("maxAgeSeconds")),
            "requires includeSubDomains, and a maxAgeSeconds of at least 31536000",
        )
        .about("preload"),
    ]
}

/// Returns the rules of `passthrough`: the router cannot read the request, so it cannot match a path or serve plain HTTP.
fn passthrough() -> [Rule; 2] {
    const POLICY: &str = "insecureEdgeTerminationPolicy";
    let is_other = |tls: Expr| !tls.field("termination").is("passthrough");
    [
        Rule::new(
            "spec",
            !this().names("path") | !this().has("tls") | is_other(this().field("tls")),
            "passthrough termination does not support paths",
        )
        .about("path"),
        Rule::new(
            "spec.tls",
            is_other(this()) | !this().has(POLICY) | !this().field(POLICY).is("Allow"),
            "passthrough termination supports only None and Redirect",
        )
        .about(POLICY),
    ]
}

/// Returns a test that `host` is the platform's name in an object's status.
fn is_system_name(object: Expr, host: Expr) -> Expr {
    let is_it = item("n").field("type").is("system")
        & item("n").field("name").call(Function::Lower).is(host.call(Function::Lower));
    object.field("status").field("names").items(Quantity::Some, "n", is_it)
}

/// Returns the rule for hosts below the platform's domain that a Route can request. The router of a source has admitted the host of an
/// adopted Route.
fn platform_host(domain: &str) -> Rule {
    let host = || this().field("spec").text("host").call(Function::Lower);
    let subdomain = || this().field("spec").text("subdomain");
    let below = format!(".{domain}");
    // Neither the namespace, with which the label of its own name begins, nor whether a Router has the zone is seen here: Signpost's server
    // and the scheduler admit no other host below the domain.
    let own_label = Expr::from("-") + this().field("metadata").field("name").call(Function::Replace('.', '-'));
    let is_own_name = (!subdomain().is("")).choose(
        host().starts_with(subdomain().call(Function::Lower) + "."),
        host().matches("^[^.]+[.]") & host().call(Function::Part('.', 0)).ends_with(own_label),
    );
    let has_names = this().has("status") & this().field("status").has("names");
    Rule::new(
        "",
        !(host().is(domain) | host().ends_with(below.as_str()))
            | is_own_name
            | this().field("spec").has("adopted")
            | has_names & is_system_name(this(), host()),
        of_the_platform(domain),
    )
    .about("spec.host")
    .forbidden()
}

pub(super) fn of_the_platform(domain: &str) -> String {
    format!(
        "the platform assigns the names below {domain}; remove host to get one, and set subdomain to choose its first \
         label"
    )
}
