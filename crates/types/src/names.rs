//! The rules of names: from a Route to its label, its system name, its alias, and the claims on them.
//!
//! A Route's *label* is `<namespace>-<name>` (or its `subdomain`) in lower case with dots as dashes. Joining with a dash is not
//! injective (`foo` + `bar-baz` and `foo-bar` + `baz`), so a label is used only after it was claimed. The second Route to request
//! a label, or a Route whose label is over 63 octets, gets the *shortened* label: a prefix, a dash, and ten base32 characters of
//! a hash over namespace and name, 50 bits. The hash makes it distinct for different Routes with any prefix. A Route whose label
//! would begin with `xn--` without being an A-label also gets a shortened label: clients may reject such a name (RFC 5891 §5.4).
//!
//! Names are text without a trailing dot, as in Kubernetes objects.

use aws_lc_rs::digest;
use data_encoding::{BASE32HEX_NOPAD, Encoding, Specification};
use regex::Regex;
use std::sync::LazyLock;

/// The maximum length of a label in octets (RFC 1035 §2.3.4).
pub const LABEL_OCTETS_MAX: usize = 63;
/// The maximum length of a host name in octets, as text without a trailing dot (RFC 1035 §2.3.4: 255 on the wire).
pub const NAME_OCTETS_MAX: usize = 253;
/// The number of base32 characters of the hash at the end of a shortened label.
const HASH_CHARACTERS: usize = 10;
/// The label below the platform's domain for the aliases: `<label>.routes.<domain>`.
pub const ALIAS_LABEL: &str = "routes";
/// The label below the platform's domain for the proofs of custom hosts: `<label>.acme.<domain>`. The owner of a host leads
/// `_acme-challenge` below it there by a CNAME record.
pub const ACME_LABEL: &str = "acme";
/// The label below which a certification authority looks for the proof of a name (RFC 8555 §8.4).
pub const ACME_CHALLENGE_LABEL: &str = "_acme-challenge";

/// Lower-case base32 of RFC 4648 §6 without padding: letters and the digits 2 to 7, all of which are valid in host names.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 distinct symbols")
});

/// Returns the preferred label of a Route: its `subdomain`, or `<namespace>-<name>`; lower case, dots as dashes. It can be too
/// long.
pub fn wanted_label(namespace: &str, name: &str, subdomain: Option<&str>) -> String {
    let joined = match subdomain {
        Some(subdomain) => subdomain.to_owned(),
        None => format!("{namespace}-{name}"),
    };
    joined.to_ascii_lowercase().replace('.', "-")
}

/// Returns the label of a Route whose preferred label is too long, invalid ([`is_label_to_have`]), or claimed by another Route: a
/// prefix of it and ten characters of a hash over namespace and name. The prefix of an A-label is not an A-label, so its `xn--`
/// becomes `x-`.
pub fn shortened_label(namespace: &str, name: &str, wanted: &str) -> String {
    // The length of the namespace is first, so that no two pairs hash the same octets.
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&(namespace.len() as u64).to_be_bytes());
    context.update(namespace.as_bytes());
    context.update(name.as_bytes());
    let hash = BASE32.encode(context.finish().as_ref());
    let room = LABEL_OCTETS_MAX - HASH_CHARACTERS - 1;
    let plain = wanted.strip_prefix("xn--").map(|rest| format!("x-{}", rest.trim_start_matches('-')));
    let wanted = plain.as_deref().unwrap_or(wanted);
    let prefix = wanted.get(..room.min(wanted.len())).unwrap_or_default().trim_end_matches('-');
    format!("{prefix}-{}", &hash[..HASH_CHARACTERS])
}

/// Returns the reason why a Route does not have its preferred label, as a condition's reason and message; `None` if it has.
pub fn other_label(
    namespace: &str,
    name: &str,
    subdomain: Option<&str>,
    label: &str,
) -> Option<(&'static str, String)> {
    let wanted = wanted_label(namespace, name, subdomain);
    if wanted.eq_ignore_ascii_case(label) {
        return None;
    }
    Some(if wanted.len() > LABEL_OCTETS_MAX {
        let message =
            format!("the label {wanted} is longer than {LABEL_OCTETS_MAX} octets; the Route has {label} instead");
        ("LabelShortened", message)
    } else if !is_label_to_have(&wanted) {
        let message =
            format!("the label {wanted} begins with xn-- but is not an A-label; the Route has {label} instead");
        ("LabelNotIDNA", message)
    } else if subdomain.is_some() {
        let message = format!("the subdomain {wanted} is not available to this Route; it has {label} instead");
        ("SubdomainTaken", message)
    } else {
        let message = format!("the label {wanted} is not available to this Route; it has {label} instead");
        ("LabelTaken", message)
    })
}

/// Returns whether a Route can have this label: a label of a host name and, with the prefix `xn--`, a valid A-label
/// ([`is_valid_if_a_label`]).
pub fn is_label_to_have(label: &str) -> bool {
    is_host_label(label) && is_valid_if_a_label(label)
}

/// Returns whether `label` can be used as a label of a host name: 1 to 63 letters, digits and inner dashes (RFC 1123 §2.1).
pub fn is_host_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let inner = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'-';
    matches!(bytes, [first, .., last] if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.len() <= LABEL_OCTETS_MAX
        && bytes.iter().all(inner)
        || matches!(bytes, [only] if only.is_ascii_alphanumeric())
}

/// The labels that no Route gets by default: [`ALIAS_LABEL`]; `localhost` (RFC 6761 §6.3); names that machines look up in their
/// search domain or mail domain, and whose holder they trust; and names that users expect to be the platform itself.
pub const RESERVED_LABELS: [&str; 8] =
    [ALIAS_LABEL, "localhost", "wpad", "isatap", "autodiscover", "mta-sts", "login", "admin"];

/// The rules of the platform on the labels of Routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRules {
    /// The labels that no Route gets, in lower case. [`ALIAS_LABEL`] is one of them even if it is not listed.
    pub reserved: Vec<String>,
    /// Whether tenants may set `subdomain`.
    pub tenant_subdomains: bool,
}

impl Default for LabelRules {
    fn default() -> Self {
        LabelRules { reserved: RESERVED_LABELS.map(str::to_owned).into(), tenant_subdomains: true }
    }
}

impl LabelRules {
    /// Returns whether no Route gets `label`.
    pub fn is_reserved(&self, label: &str) -> bool {
        label.eq_ignore_ascii_case(ALIAS_LABEL) || self.reserved.iter().any(|one| one.eq_ignore_ascii_case(label))
    }
}

/// Returns whether a tenant of the namespace `own` can request `label`: it has no dash, or it is the namespace, or begins with it
/// and a dash. Labels of other namespaces' Routes begin with their names and a dash.
pub fn is_for_namespace(label: &str, own: &str) -> bool {
    let label = label.to_ascii_lowercase();
    !label.contains('-') || label.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns whether another existing namespace than `own` has a claim to `label` by its name: the longest existing namespace whose
/// name is the label, or the label's beginning up to a dash, is not `own`. The labels of that namespace's Routes begin so.
pub fn is_of_another_namespace(label: &str, own: &str, exists: impl Fn(&str) -> bool) -> bool {
    let label = label.to_ascii_lowercase();
    let namespace = namespaces_of(&label).find(|prefix| *prefix == own || exists(prefix));
    namespace.is_some_and(|namespace| namespace != own)
}

/// Returns the names of namespaces with which `label`, in lower case, could begin, the longest first: itself, and the part before
/// each dash.
pub fn namespaces_of(label: &str) -> impl Iterator<Item = &str> {
    std::iter::once(label).chain(label.rmatch_indices('-').map(|(at, _)| &label[..at]))
}

/// Returns the Route's name on its shard: `<label>.<router dns>`; `None` over 253 octets.
pub fn system_name(label: &str, router_dns: &str) -> Option<String> {
    let name = format!("{label}.{router_dns}");
    (name.len() <= NAME_OCTETS_MAX).then_some(name)
}

/// Returns the apex of the zone of aliases: `routes.<platform domain>`.
pub fn alias_zone(domain: &str) -> String {
    format!("{ALIAS_LABEL}.{domain}")
}

/// Returns the Route's stable alias: `<label>.routes.<platform domain>`.
pub fn alias_name(label: &str, domain: &str) -> String {
    format!("{label}.{}", alias_zone(domain))
}

/// Returns the apex of the names for proofs of custom hosts: `acme.<platform domain>`.
pub fn acme_zone(domain: &str) -> String {
    format!("{ACME_LABEL}.{domain}")
}

/// Returns the name at which the platform proves the control of a Route's custom host: `<label>.acme.<platform domain>`.
pub fn acme_name(label: &str, domain: &str) -> String {
    format!("{label}.{}", acme_zone(domain))
}

/// Returns the name of the record that proves the control of a host to a certification authority: below the host or, for a wildcard,
/// below its base domain.
pub fn acme_challenge_name(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    format!("{ACME_CHALLENGE_LABEL}.{}", host.strip_prefix("*.").unwrap_or(&host))
}

/// Returns the platform's domain, by a Route's alias.
pub fn domain_of_alias(alias: &str) -> Option<&str> {
    let (_, zone) = alias.split_once('.')?;
    zone.strip_prefix(ALIAS_LABEL)?.strip_prefix('.')
}

/// Returns the record that leads `host` to the Route with that alias, as a line of a zone file.
pub fn record_for_host(host: &str, alias: &str) -> String {
    format!("{host}. IN CNAME {alias}.")
}

/// Returns the name of the record that verifies ownership of a host: below the host or, for a wildcard, below its base domain.
pub fn challenge_name(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    format!("_signpost-challenge.{}", host.strip_prefix("*.").unwrap_or(&host))
}

/// Returns the name of a ChallengeRecord: `challenge.` and 32 characters of a hash over these parts.
pub(crate) fn challenge_record_name(parts: [&str; 3]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    format!("challenge.{}", BASE32HEX_NOPAD.encode(&context.finish().as_ref()[..20]).to_ascii_lowercase())
}

/// Returns the name of the NameClaim on a label: the label.
pub fn label_claim_name(label: &str) -> String {
    label.to_owned()
}

/// Returns the name of the NameClaim on a custom host: `host.` and 32 characters of a hash, since a host may hold what an
/// object's name may not (`*`, `_`). No label holds a dot, so the two never meet.
pub fn host_claim_name(host: &str) -> String {
    format!("host.{}", host_hash(host))
}

/// Returns 32 characters of a hash of a host, as a part of an object's name.
pub(crate) fn host_hash(host: &str) -> String {
    let hash = digest::digest(&digest::SHA256, host.to_ascii_lowercase().as_bytes());
    BASE32HEX_NOPAD.encode(&hash.as_ref()[..20]).to_ascii_lowercase()
}

/// Returns whether `name` is `ancestor` or below it, by whole labels and without regard to case.
pub fn is_at_or_below(name: &str, ancestor: &str) -> bool {
    let Some(start) = name.len().checked_sub(ancestor.len()) else { return false };
    let bytes = name.as_bytes();
    bytes[start..].eq_ignore_ascii_case(ancestor.as_bytes()) && (start == 0 || bytes[start - 1] == b'.')
}

/// Returns whether `name` is below `ancestor`, by whole labels and without regard to case.
pub fn is_below(name: &str, ancestor: &str) -> bool {
    is_at_or_below(name, ancestor) && name.len() > ancestor.len()
}

/// Returns whether a host takes names of the zone `apex`: it is in the zone, or is a wildcard that covers all of it.
pub fn takes_names_of(host: &str, apex: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(covered) => is_at_or_below(covered, apex) || is_at_or_below(apex, covered),
        None => is_at_or_below(host, apex),
    }
}

/// Returns whether the wildcard host `wildcard` covers `host`: a name at any depth below the wildcard's base domain, or a
/// wildcard there; not itself.
pub fn covers(wildcard: &str, host: &str) -> bool {
    wildcard.strip_prefix("*.").is_some_and(|above| is_below(host, above)) && !host.eq_ignore_ascii_case(wildcard)
}

/// Returns the wildcard hosts that cover `host`, the closest first, in lower case.
pub fn wildcards_above(host: &str) -> impl Iterator<Item = String> {
    let below = host.strip_prefix("*.").unwrap_or(host);
    below.match_indices('.').map(|(dot, _)| format!("*{}", below[dot..].to_ascii_lowercase()))
}

/// The error of an invalid host name or domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The name is empty.
    #[error("must not be empty")]
    Empty,
    /// The name ends in a dot.
    #[error("must not end with a dot")]
    TrailingDot,
    /// The name is over 253 octets.
    #[error("must be no more than 253 octets")]
    TooLong,
    /// A label is empty or over 63 octets.
    #[error("each label must have 1 to 63 octets")]
    LabelLength,
    /// A label holds something other than letters, digits, dashes, and an underscore at its start, or a dash at an end.
    #[error("labels must be letters, digits, and inner dashes, with at most one leading underscore")]
    LabelCharacters,
    /// An underscore in the name of a zone.
    #[error(
        "must not contain an underscore: each zone is an object with that name, and Kubernetes rejects underscores in names"
    )]
    Underscore,
    /// A character outside ASCII.
    #[error("must be ASCII; write an internationalized name as its A-label, such as xn--bcher-kva.example")]
    NotAscii,
    /// An asterisk that is not the whole first label of a host.
    #[error("an asterisk must be the whole first label")]
    Asterisk,
    /// A wildcard with less than two labels behind its asterisk.
    #[error("a wildcard must have at least two labels after the asterisk, such as *.shop.example")]
    ShortWildcard,
    /// An asterisk in a name that is not a host.
    #[error("must not contain an asterisk")]
    NoWildcard,
    /// Only one label.
    #[error("must have at least two labels")]
    SingleLabel,
    /// The name is an IP address.
    #[error("must be a name, not an IP address")]
    Address,
    /// A label with the prefix `xn--` that is not an A-label.
    #[error("a label that starts with xn-- must be a valid A-label (RFC 5890), such as xn--bcher-kva")]
    BadALabel,
}

/// One condition on the text of a name: a pattern that it matches, or does not match. The rules of Signpost's kinds are made of the same
/// tables (`rules::shape`).
pub struct Shape<E = HostError> {
    /// A regular expression.
    pub pattern: &'static str,
    /// Whether the name matches it.
    pub must_match: bool,
    /// The error of a name that does not meet the condition.
    pub error: E,
}

/// A label of a host name, at most 63 octets (RFC 1123 §2.1).
macro_rules! label {
    () => {
        "[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    };
}

/// The same, or one after an underscore.
macro_rules! any_label {
    () => {
        concat!("(_[A-Za-z0-9]([-A-Za-z0-9]{0,60}[A-Za-z0-9])?|", label!(), ")")
    };
}

/// A whole text that is a label of a host name.
pub const LABEL: &str = concat!("^", label!(), "$");

pub(crate) const fn matches<E: Copy>(pattern: &'static str, error: E) -> Shape<E> {
    Shape { pattern, must_match: true, error }
}

pub(crate) const fn excludes<E: Copy>(pattern: &'static str, error: E) -> Shape<E> {
    Shape { pattern, must_match: false, error }
}

const NOT_ASCII: Shape = matches("^[[:ascii:]]*$", HostError::NotAscii);
const TRAILING_DOT: Shape = excludes("[.]$", HostError::TrailingDot);
const LABEL_LENGTH: Shape = excludes("(^|[.])([.]|$)|[^.]{64}", HostError::LabelLength);

/// A domain: labels of letters, digits, and inner dashes, with at most one leading underscore.
pub const DOMAIN: &[Shape] = &[
    excludes("^$", HostError::Empty),
    NOT_ASCII,
    excludes("[*]", HostError::NoWildcard),
    TRAILING_DOT,
    LABEL_LENGTH,
    matches(concat!("^", any_label!(), "([.]", any_label!(), ")*$"), HostError::LabelCharacters),
];

/// A custom host: a domain of at least two labels, with an optional whole `*` in front.
pub const HOST: &[Shape] = &[
    excludes("^$", HostError::Empty),
    matches("^([*]|([*][.])?[^*]*)$", HostError::Asterisk),
    excludes("^[*]([.][^.]*)?$", HostError::ShortWildcard),
    NOT_ASCII,
    TRAILING_DOT,
    LABEL_LENGTH,
    matches(concat!("^([*][.])?", any_label!(), "([.]", any_label!(), ")*$"), HostError::LabelCharacters),
    matches("[.]", HostError::SingleLabel),
    excludes("[.][0-9]+$", HostError::Address),
];

/// The additional rules for the name of a zone of the platform.
pub const NO_UNDERSCORE: &[Shape] = &[excludes("_", HostError::Underscore)];

/// Returns the error of the first line of a table that a text does not meet.
pub(crate) fn broken<E: Copy>(shapes: &'static [Shape<E>], patterns: &[Regex], text: &str) -> Option<E> {
    let broken = shapes.iter().zip(patterns).find(|(shape, pattern)| pattern.is_match(text) != shape.must_match);
    broken.map(|(shape, _)| shape.error)
}

fn check(shapes: &'static [Shape], patterns: &[Regex], name: &str) -> Result<(), HostError> {
    match broken(shapes, patterns, name) {
        Some(error) => Err(error),
        None if name.len() > NAME_OCTETS_MAX => Err(HostError::TooLong),
        None => Ok(()),
    }
}

pub(crate) fn patterns<E>(shapes: &[Shape<E>]) -> Vec<Regex> {
    shapes.iter().map(|shape| Regex::new(shape.pattern).expect("a constant")).collect()
}

/// Checks a custom host: the shape of `HOST`, at most 253 octets; labels with the prefix `xn--` are valid A-labels.
pub fn check_host(host: &str) -> Result<(), HostError> {
    static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| patterns(HOST));
    check(HOST, &PATTERNS, host)?;
    check_a_labels(host)
}

/// Checks the name of a zone of the platform, such as its domain or a Router's `dns`: a domain without underscores. Each zone has
/// an object with its name, and names of objects contain no underscores.
pub fn check_zone(domain: &str) -> Result<(), HostError> {
    check_domain(domain)?;
    if domain.contains('_') { Err(HostError::Underscore) } else { Ok(()) }
}

/// Checks a domain: the shape of `DOMAIN`, at most 253 octets.
pub fn check_domain(domain: &str) -> Result<(), HostError> {
    static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| patterns(DOMAIN));
    check(DOMAIN, &PATTERNS, domain)
}

/// Checks that every label of a domain with the prefix `xn--` is an A-label; see [`is_valid_if_a_label`].
pub fn check_a_labels(domain: &str) -> Result<(), HostError> {
    domain.split('.').all(is_valid_if_a_label).then_some(()).ok_or(HostError::BadALabel)
}

/// Returns whether a label with the prefix `xn--` is an A-label: encoding its decoded text must yield the same label (RFC 5890
/// §2.3.2.1), without regard to case. Every other label passes.
pub fn is_valid_if_a_label(label: &str) -> bool {
    if !label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--")) {
        return true;
    }
    // Strict: with a check of hyphens, and only the characters of host names, as registries require.
    let (decoded, good) = idna::domain_to_unicode(label);
    let encoded = idna::domain_to_ascii_strict(&decoded);
    good.is_ok() && !decoded.is_ascii() && encoded.is_ok_and(|encoded| encoded.eq_ignore_ascii_case(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_routes() {
        assert_eq!(wanted_label("myapp", "test", None), "myapp-test");
        assert_eq!(wanted_label("ns", "My.App", None), "ns-my-app");
        assert_eq!(wanted_label("ns", "x", Some("Shop")), "shop");
        assert_eq!(
            system_name("myapp-test", "shard1.v3.rhcloud.com").as_deref(),
            Some("myapp-test.shard1.v3.rhcloud.com")
        );
        assert_eq!(system_name("x", &"a".repeat(252)), None);
    }

    #[test]
    fn why_a_route_has_another_label() {
        let long = "n".repeat(63);
        for (namespace, name, subdomain, label, reason) in [
            ("n", "r", None, "n-r", None),
            ("n", "r", Some("Shop"), "shop", None),
            ("n", "r", Some("shop"), "shop-abcdefghij", Some("SubdomainTaken")),
            ("n", "r", None, "n-r-abcdefghij", Some("LabelTaken")),
            (long.as_str(), "r", None, "nnn-abcdefghij", Some("LabelShortened")),
            ("xn--a", "b", None, "x-a-b-abcdefghij", Some("LabelNotIDNA")),
            ("n", "r", Some("xn--bcher-kva"), "x-bcher-kva-abcdefghij", Some("SubdomainTaken")),
        ] {
            let found = other_label(namespace, name, subdomain, label);
            assert_eq!(found.as_ref().map(|(reason, _)| *reason), reason, "{label}");
            assert!(found.is_none_or(|(_, message)| message.contains(label)));
        }
    }

    #[test]
    fn labels_that_a_tenant_can_request() {
        for (own, label, verdict) in [
            ("shop", "pay", true),
            ("shop", "other", true),
            ("shop", "shop-x", true),
            ("shop", "Shop-X", true),
            ("shop", "shopping-cart", false),
            ("shop", "my-shop-x", false),
            ("shop-eu", "shop-eu", true),
            ("shop-eu", "shop-eu-x", true),
            ("shop-eu", "shop-x", false),
        ] {
            assert_eq!(is_for_namespace(label, own), verdict, "{own} {label}");
        }
    }

    #[test]
    fn labels_that_begin_with_the_name_of_another_namespace() {
        let exists = |name: &str| ["shop", "shop-eu", "eu"].contains(&name);
        for (own, label, verdict) in [
            ("other", "shop-pr-124", true),
            ("other", "Shop-PR-124", true),
            ("other", "shop", true),
            ("other", "shopping-cart", false),
            ("other", "my-shop-x", false),
            ("other", "shop-eu-x", true),
            ("shop", "shop-pr-124", false),
            ("shop", "shop-eu-x", true),
            ("shop", "shop-eu", true),
            ("shop", "shop-eux", false),
            ("shop-eu", "shop-eu-x", false),
            ("shop-eu", "shop-x", true),
            // The deleted namespace is being removed from the cache.
            ("gone", "gone-x", false),
        ] {
            assert_eq!(is_of_another_namespace(label, own, exists), verdict, "{own} {label}");
        }
    }

    #[test]
    fn shortened_labels_are_labels_and_differ() {
        let long = "n".repeat(63);
        for (namespace, name) in [
            ("foo", "bar-baz"),
            ("foo-bar", "baz"),
            (long.as_str(), long.as_str()),
            ("a", "b"),
            ("xn--bcher", "kva"),
            ("xn--", "0"),
            ("xn", "-0"),
            ("xn-", "x"),
        ] {
            let label = shortened_label(namespace, name, &wanted_label(namespace, name, None));
            assert!(is_label_to_have(&label), "{label}");
            assert_eq!(label, shortened_label(namespace, name, &wanted_label(namespace, name, None)));
        }
        assert_ne!(shortened_label("foo", "bar-baz", "foo-bar-baz"), shortened_label("foo-bar", "baz", "foo-bar-baz"));
    }

    #[test]
    fn hosts() {
        let long = format!("{}.example", "a".repeat(64));
        for (host, verdict) in [
            ("www.example.com", Ok(())),
            ("*.shop.example", Ok(())),
            ("_service.example.com", Ok(())),
            ("xn--bcher-kva.example", Ok(())),
            ("WWW.Example.COM", Ok(())),
            ("", Err(HostError::Empty)),
            ("localhost", Err(HostError::SingleLabel)),
            ("www.example.com.", Err(HostError::TrailingDot)),
            ("www..example.com", Err(HostError::LabelLength)),
            (long.as_str(), Err(HostError::LabelLength)),
            ("-a.example", Err(HostError::LabelCharacters)),
            ("a_b.example", Err(HostError::LabelCharacters)),
            ("a.*.example", Err(HostError::Asterisk)),
            ("*.*.example", Err(HostError::Asterisk)),
            ("*a.shop.example", Err(HostError::Asterisk)),
            ("**", Err(HostError::Asterisk)),
            ("*", Err(HostError::ShortWildcard)),
            ("*.", Err(HostError::ShortWildcard)),
            ("*.example", Err(HostError::ShortWildcard)),
            ("*.shop.example.", Err(HostError::TrailingDot)),
            ("bücher.example", Err(HostError::NotAscii)),
            ("192.0.2.1", Err(HostError::Address)),
            ("xn--.example", Err(HostError::LabelCharacters)),
            ("XN--BCHER-KVA.example", Ok(())),
            ("*.xn--fiqs8s.xn--wgv71a", Ok(())),
            ("xn--a.example", Err(HostError::BadALabel)),
            // A valid A-label by coincidence, for U+456D; the next one contains two control characters.
            ("xn--foo.example", Ok(())),
            ("xn--bar.example", Err(HostError::BadALabel)),
            ("xn--zzzzz99999.example", Err(HostError::BadALabel)),
            ("xn--abc-.example", Err(HostError::LabelCharacters)),
            ("www.xn--example-.example", Err(HostError::LabelCharacters)),
        ] {
            assert_eq!(check_host(host), verdict, "{host}");
        }
    }

    #[test]
    fn zones_have_no_underscore() {
        for (domain, verdict) in [
            ("shard1.v3.example", Ok(())),
            ("test", Ok(())),
            ("_s.v3.example", Err(HostError::Underscore)),
            ("s.under_score.example", Err(HostError::LabelCharacters)),
            ("*.v3.example", Err(HostError::NoWildcard)),
        ] {
            assert_eq!(check_zone(domain), verdict, "{domain}");
        }
    }

    #[test]
    fn suffixes_are_whole_labels() {
        for (name, ancestor, verdict) in [
            ("a.v3.example", "v3.example", true),
            ("V3.example", "v3.EXAMPLE", true),
            ("av3.example", "v3.example", false),
            ("example", "v3.example", false),
        ] {
            assert_eq!(is_at_or_below(name, ancestor), verdict, "{name} {ancestor}");
        }
    }

    #[test]
    fn a_wildcard_takes_what_is_below_it() {
        for (host, apex, verdict) in [
            ("a.v3.example.com", "v3.example.com", true),
            ("*.a.v3.example.com", "v3.example.com", true),
            ("*.v3.example.com", "v3.example.com", true),
            ("*.example.com", "v3.example.com", true),
            ("*.com", "v3.example.com", true),
            ("example.com", "v3.example.com", false),
            ("*.shop.example.com", "v3.example.com", false),
            ("*.3.example.com", "v3.example.com", false),
        ] {
            assert_eq!(takes_names_of(host, apex), verdict, "{host} {apex}");
        }
    }

    #[test]
    fn what_wildcards_cover() {
        for (wildcard, host, covered) in [
            ("*.shop.example", "www.shop.example", true),
            ("*.shop.example", "a.b.SHOP.example", true),
            ("*.shop.example", "*.b.shop.example", true),
            ("*.shop.example", "*.Shop.example", false),
            ("*.shop.example", "shop.example", false),
            ("*.shop.example", "notshop.example", false),
            ("shop.example", "www.shop.example", false),
        ] {
            assert_eq!(covers(wildcard, host), covered, "{wildcard} {host}");
            let above: Vec<String> = wildcards_above(host).collect();
            assert_eq!(above.contains(&wildcard.to_owned()), covered, "{host} {above:?}");
        }
        assert_eq!(wildcards_above("*.A.b.c").collect::<Vec<_>>(), ["*.b.c", "*.c"]);
        assert_eq!(wildcards_above("localhost").count(), 0);
    }
}
