//! Names over hostile pairs of namespace and name.

use std::collections::HashMap;

use proptest::prelude::*;
use signpost_types::names::{is_label_to_have, shortened_label, system_name, wanted_label};

/// Returns namespaces and names as Kubernetes allows them, made to collide: few letters, many dashes and dots, up to full length,
/// and some that resemble A-labels.
fn dns_label() -> impl Strategy<Value = String> {
    prop_oneof!["[ab](-?[ab]){0,4}", "[ab][ab-]{0,61}[ab]", "a{63}", "(a-){20}b", "xn(--?[abz0](-?[abz0]){0,8})?"]
}

fn dns_subdomain() -> impl Strategy<Value = String> {
    prop_oneof![dns_label(), "[ab](-?[ab]){0,2}(\\.[ab](-?[ab]){0,2}){0,3}", "(a\\.){100}b"]
}

/// Returns the labels that routes get when they claim in sequence, by the rule of the scheduler.
fn assign(pairs: &[(String, String)]) -> HashMap<String, (String, String)> {
    let mut holders: HashMap<String, (String, String)> = HashMap::new();
    for (namespace, name) in pairs {
        let wanted = wanted_label(namespace, name, None);
        let shortened = shortened_label(namespace, name, &wanted);
        let label = if is_label_to_have(&wanted) && !holders.contains_key(&wanted) { wanted } else { shortened };
        let previous = holders.insert(label.clone(), (namespace.clone(), name.clone()));
        assert_eq!(previous, None, "{label} has two holders");
    }
    holders
}

proptest! {
    #[test]
    fn labels_are_injective_and_fit(
        pairs in proptest::collection::hash_set((dns_label(), dns_subdomain()), 1..60),
    ) {
        let pairs: Vec<(String, String)> = pairs.into_iter().collect();
        let holders = assign(&pairs);
        prop_assert_eq!(holders.len(), pairs.len());
        for label in holders.keys() {
            prop_assert!(is_label_to_have(label) && label.len() <= 63, "{}", label);
            let name = system_name(label, &"d.".repeat(94)[..187]);
            prop_assert!(name.is_some_and(|name| name.len() <= 253));
        }
    }

    /// Checks that the label of a second route never depends on the first.
    #[test]
    fn shortened_labels_are_stable(a in (dns_label(), dns_subdomain()), b in (dns_label(), dns_subdomain())) {
        prop_assume!(a != b);
        let shortened = |(namespace, name): &(String, String)| {
            shortened_label(namespace, name, &wanted_label(namespace, name, None))
        };
        prop_assert_ne!(shortened(&a), shortened(&b));
        prop_assert_eq!(shortened(&a), shortened(&a));
    }
}

#[test]
fn the_pair_that_collides() {
    let pair = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let holders = assign(&[pair("foo", "bar-baz"), pair("foo-bar", "baz")]);
    assert_eq!(holders["foo-bar-baz"], pair("foo", "bar-baz"));
    let other = holders.iter().find(|(_, pair)| pair.0 == "foo-bar").expect("it has a label").0;
    assert!(other.starts_with("foo-bar-baz-") && other.len() == "foo-bar-baz-".len() + 10, "{other}");
}
