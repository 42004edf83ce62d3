//! The rules of Routers that depend only on the object.

use crate::rules::expr::{Expr, Function, Quantity, item, old, this};
use crate::rules::{Rule, network, shape};
use signpost_types::names::{self, LABEL_OCTETS_MAX, NAME_OCTETS_MAX};

/// The maximum length of an item of `spec.records` in octets: more than any DNS record needs.
const RECORD_OCTETS_MAX: i64 = 8192;
/// The maximum length of `spec.dns`: it leaves space for a label and a dot in front.
const DNS_OCTETS_MAX: i64 = (NAME_OCTETS_MAX - LABEL_OCTETS_MAX - 1) as i64;

/// Returns the rules of Routers. Those about the platform's domain are there if it is given.
pub(crate) fn rules(domain: Option<&str>) -> Vec<Rule> {
    let mut rules = dns_rules(domain);
    rules.extend(address_rules());
    rules.extend(check_rules());
    for selector in ["spec.routeSelector", "spec.namespaceSelector", "spec.addressesFrom.serviceSelector"] {
        rules.extend(selector_rules(selector));
    }
    rules.push(network("spec.proxy.trustedProxies[]"));
    rules.extend([
        Rule::new("spec.ports", !this().field("http").is(this().field("https")), "must not be the port for plain HTTP")
            .about("https"),
        Rule::new(
            "spec.capacity",
            !this().has("soft") | !this().has("hard") | this().field("soft").at_most(this().field("hard")),
            "must not be greater than hard",
        )
        .about("soft"),
        Rule::new(
            "spec.proxy.accessLog",
            this().field("output").is("syslog") & this().has("server")
                | !this().field("output").is("syslog") & !this().has("server"),
            "is required with the output syslog, and must be absent with another output",
        )
        .about("server"),
        Rule::new(
            "spec.proxy.accessLog.server",
            this().matches(r"^([0-9]{1,3}([.][0-9]{1,3}){3}|\[[0-9a-fA-F:.]{2,39}\]):[0-9]{1,5}$"),
            "must be an IP address and a port, such as 192.0.2.1:514 or [2001:db8::1]:514",
        ),
        // These rules cover the checks that need no zone-file parser; the compiler parses the records and reports errors in the
        // conditions.
        Rule::new(
            "spec.records[]",
            this().matches(r"[^\p{Z}\p{Cc}]"),
            "a record in zone-file syntax, such as @ CAA 0 issue \"ca.example\"",
        )
        .required(),
        Rule::new(
            "spec.records[]",
            this().call(Function::Octets).at_most(RECORD_OCTETS_MAX),
            format!("must be no more than {RECORD_OCTETS_MAX} octets"),
        )
        .too_long(RECORD_OCTETS_MAX as u64),
        // In particular $INCLUDE, which would read files of the name server.
        Rule::new(
            "spec.records[]",
            !this().matches(r"^[\p{Z}\p{Cc}]*\$"),
            "must be a record, not a directive such as $INCLUDE",
        ),
        Rule::new(
            "spec.records[]",
            !this().matches(r"[^\t\P{Cc}]"),
            "must be one record on one line; add one item for each record",
        ),
    ]);
    rules
}

fn dns_rules(domain: Option<&str>) -> Vec<Rule> {
    let mut rules = vec![
        Rule::new(
            "spec",
            !old().has("dns") | this().has("dns") & this().field("dns").is(old().field("dns")),
            "field is immutable; create a Router with this zone and move the Routes to it",
        )
        .about("dns"),
    ];
    rules.extend(shape("spec.dns", None, None, names::DOMAIN));
    rules.extend(shape("spec.dns", None, None, names::NO_UNDERSCORE));
    rules.push(Rule::new("spec.dns", !this().matches("[A-Z]"), "must be in lower case"));
    rules.push(Rule::new(
        "spec.dns",
        this().call(Function::Size).at_most(DNS_OCTETS_MAX),
        format!("must be at most {DNS_OCTETS_MAX} octets, so that names of Routes fit below it"),
    ));
    if let Some(domain) = domain {
        let alias = names::alias_zone(domain);
        let dotted = |name: &str| Expr::from(format!(".{name}").as_str());
        rules.push(Rule::new(
            "spec.dns",
            !dotted(domain).ends_with(Expr::from(".") + this()),
            format!("must not contain the platform domain {domain}; use a name below it, such as shard1.{domain}"),
        ));
        rules.push(Rule::new(
            "spec.dns",
            !(Expr::from(".") + this()).ends_with(dotted(&alias)),
            format!("must not overlap {alias}, the zone of all aliases; use another name"),
        ));
        let acme = names::acme_zone(domain);
        rules.push(Rule::new(
            "spec.dns",
            !(Expr::from(".") + this()).ends_with(dotted(&acme)),
            format!("must not overlap {acme}, which has the proofs of custom hosts; use another name"),
        ));
    }
    rules
}

fn address_rules() -> Vec<Rule> {
    let has_selector = || this().has("serviceSelector");
    let is_ip = || this().call(Function::IsIp);
    let ip_of = |name| item(name).field("ip");
    vec![
        Rule::new(
            "spec.addresses[].ip",
            is_ip(),
            "must be an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1; not an IPv4-mapped one",
        ),
        Rule::new(
            "spec.addresses[].ip",
            !is_ip() | !this().call(Function::IsUnspecified),
            "must not be the unspecified address",
        ),
        Rule::new(
            "spec.addresses[].ip",
            !is_ip() | !this().call(Function::IsLocalIpv6),
            "must not be a link-local address, because it is valid on one link only",
        ),
        Rule::new(
            "spec.addresses[].ip",
            !is_ip()
                | this().call(Function::IsUnspecified)
                | this().call(Function::IsLocalIpv6)
                | this().call(Function::IsHostIp),
            "must not be a multicast or broadcast address",
        ),
        // The schema compares the texts; `2001:db8::1` and `2001:DB8:0::1` are one address.
        Rule::new(
            "spec.addresses",
            !ip_of("a").call(Function::IsIp)
                | !this().items(
                    Quantity::Some,
                    "b",
                    !ip_of("b").is(ip_of("a"))
                        & ip_of("b").call(Function::IsIp)
                        & ip_of("b").call(Function::Ip).is(ip_of("a").call(Function::Ip)),
                ),
            "duplicate address; list each address once, in any notation",
        )
        .each("", "a", "ip")
        .duplicate(),
        Rule::new(
            "spec.addressesFrom",
            !(this().has("instances") & this().field("instances")).is(has_selector()),
            "must have either instances: true or serviceSelector",
        ),
        Rule::new("spec.addressesFrom", !has_selector() | this().has("namespace"), "the namespace of the Services")
            .about("namespace")
            .required(),
        Rule::new(
            "spec.addressesFrom",
            has_selector() | !this().has("namespace"),
            "must be absent without serviceSelector",
        )
        .about("namespace"),
    ]
}

/// Returns the rules of health checks.
fn check_rules() -> Vec<Rule> {
    const STATUSES: &str = "spec.healthCheck.expectedStatuses";
    let is_ordered = !item("part").matches("-")
        | item("part").call(Function::Part('-', 0)).at_most(item("part").call(Function::Part('-', 1)));
    let mut rules = vec![
        Rule::new(
            "spec.healthCheck.path",
            this().matches("^/[!-~]*$"),
            "must begin with / and contain only ASCII without spaces",
        ),
        Rule::new(
            STATUSES,
            this().matches("^[1-5][0-9]{2}(-[1-5][0-9]{2})?(,[1-5][0-9]{2}(-[1-5][0-9]{2})?){0,15}$"),
            "must be HTTP status codes from 100 to 599, or ranges of them, separated by commas, such as 200-399",
        ),
        Rule::new(
            STATUSES,
            this().call(Function::Split(',')).items(Quantity::All, "part", is_ordered),
            "must have the lower code of a range first, such as 200-399",
        ),
    ];
    rules.extend(shape("spec.healthCheck.host", None, None, names::DOMAIN));
    rules
}

/// Returns the rules of a label selector.
fn selector_rules(place: &str) -> Vec<Rule> {
    const KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                       ([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
    const PREFIX: &str = "^[^/]{254}";
    const VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$";
    let is_key = |key: Expr| key.clone().matches(KEY) & !key.matches(PREFIX);
    let expression = format!("{place}.matchExpressions[]");
    let has_values = || this().has("values") & !this().field("values").call(Function::Size).at_most(0);
    let takes_values = || this().field("operator").one_of(&["In", "NotIn"]);
    vec![
        Rule::new(
            format!("{place}.matchLabels"),
            this().items(Quantity::All, "key", is_key(item("key")) & this().entry(item("key")).matches(VALUE)),
            "keys and values must be valid label keys and values",
        ),
        Rule::new(format!("{expression}.key"), is_key(this()), "must be a valid label key"),
        Rule::new(format!("{expression}.values[]"), this().matches(VALUE), "must be a valid label value"),
        Rule::new(
            expression.clone(),
            !takes_values() | has_values(),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )
        .about("values")
        .required(),
        Rule::new(
            expression,
            takes_values() | !has_values(),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )
        .about("values")
        .forbidden(),
    ]
}
