//! Limits on the data that clients store, and counts of requests that a limit rejected.
//!
//! An object can have `Settings::object_bytes`, and a namespace a number and a total size of objects of a kind ([`Quota`]). An
//! annotation of the Namespace overrides the default of the configuration. The handlers check both before the commit
//! (`handlers::admit`); `watch_cache::usage` counts the usage of a namespace.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::cause::Cause;

/// The maximum size of a cluster-scoped object. Tenants cannot write them, and they contain lists of hundreds of items.
pub const CLUSTER_OBJECT_BYTES: usize = 512 << 10;

/// The default maximum size of an object in a namespace.
pub const OBJECT_BYTES: usize = 64 << 10;

/// A number of objects, and their size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of objects.
    pub objects: u64,
    /// The bytes of their JSON.
    pub bytes: u64,
}

impl Amount {
    /// Returns the sum of both.
    pub fn plus(self, other: Amount) -> Amount {
        Amount { objects: self.objects.saturating_add(other.objects), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// Returns the remainder without `other`.
    pub fn minus(self, other: Amount) -> Amount {
        Amount { objects: self.objects.saturating_sub(other.objects), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// The quota of one kind, for each account: a namespace, a part of one, or all objects of a kind without namespaces.
#[derive(Debug, Clone)]
pub struct Quota {
    /// Returns the account of an object by its key, `namespace/name` or `name`.
    pub account: fn(&str) -> &str,
    /// The number of objects.
    pub objects: Bound,
    /// The limit of the total size.
    pub bytes: Bound,
    /// The amount for Namespaces without an annotation.
    pub default: Amount,
    /// The multiple of the quota for users that write beyond limits ([`Authorizer::writes_beyond_limits`]); `None`: they are not
    /// limited.
    ///
    /// [`Authorizer::writes_beyond_limits`]: crate::auth::rules::Authorizer::writes_beyond_limits
    pub beyond_limits: Option<u64>,
}

/// One bound of a [`Quota`].
#[derive(Debug, Clone)]
pub struct Bound {
    /// The name of the limit, in metrics and errors.
    pub limit: &'static str,
    /// The resource, as errors name it.
    pub resource: &'static str,
    /// The annotation of a Namespace that sets it, if there is one.
    pub annotation: Option<&'static str>,
}

/// Returns the namespace in a key; of a kind without namespaces, all keys have the account "".
pub fn by_namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl Quota {
    /// Returns the quota of a namespace: the defaults, overridden by the annotations of the Namespace.
    pub fn amount(&self, namespace: Option<&Value>) -> Amount {
        let set = |bound: &Bound| parse_size(namespace?["metadata"]["annotations"][bound.annotation?].as_str()?);
        Amount {
            objects: set(&self.objects).unwrap_or(self.default.objects),
            bytes: set(&self.bytes).unwrap_or(self.default.bytes),
        }
    }
}

/// Returns the faults of the annotations of a Namespace that set quotas.
pub fn annotation_faults<'a>(quotas: impl Iterator<Item = &'a Quota>, namespace: &Value) -> Vec<Cause> {
    let annotations = &namespace["metadata"]["annotations"];
    let bounds = quotas.flat_map(|quota| [&quota.objects, &quota.bytes]);
    let set = bounds.filter_map(|bound| bound.annotation);
    let faulty: BTreeSet<&str> =
        set.filter(|name| annotations[*name].as_str().is_some_and(|text| parse_size(text).is_none())).collect();
    faulty
        .into_iter()
        .map(|name| {
            let path = format!("metadata.annotations[{name}]");
            Cause::invalid(&path, &annotations[name], "must be a whole number, such as 500, 64Ki or 32Mi")
        })
        .collect()
}

/// Returns a whole number, with `Ki`, `Mi` or `Gi` after it or without.
pub fn parse_size(text: &str) -> Option<u64> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let number: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    number.checked_mul(1 << shift)
}

/// A limit that rejects requests, by its name: one of these, or a bound of a [`Quota`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub &'static str);

impl Limit {
    /// The size of a request's body.
    pub const REQUEST_BODY: Limit = Limit("request-body");
    /// Requests in flight and watches.
    pub const REQUESTS_IN_FLIGHT: Limit = Limit("requests-in-flight");
    /// The size of an object.
    pub const OBJECT_SIZE: Limit = Limit("object-size");
    /// The length of a text, or the number of items of a list or map, in an object.
    pub const OBJECT_FIELDS: Limit = Limit("object-fields");
    /// The requirements of a selector.
    pub const SELECTOR: Limit = Limit("selector");
    /// The operations of a JSON patch, and their work.
    pub const PATCH: Limit = Limit("patch");

    const OF_EVERY_SERVER: [Limit; 6] = [
        Limit::REQUEST_BODY,
        Limit::REQUESTS_IN_FLIGHT,
        Limit::OBJECT_SIZE,
        Limit::OBJECT_FIELDS,
        Limit::SELECTOR,
        Limit::PATCH,
    ];
}

/// The number of requests that each limit rejected.
pub struct Refusals(Vec<(Limit, AtomicU64)>);

impl Refusals {
    /// Returns counters for a server with these quotas, each of which is two limits.
    pub fn new<'a>(quotas: impl Iterator<Item = &'a Quota>) -> Refusals {
        let quotas = quotas.flat_map(|quota| [Limit(quota.objects.limit), Limit(quota.bytes.limit)]);
        Refusals(Limit::OF_EVERY_SERVER.into_iter().chain(quotas).map(|limit| (limit, AtomicU64::new(0))).collect())
    }

    /// Counts one rejected request.
    pub fn count(&self, limit: Limit) {
        if let Some((_, count)) = self.0.iter().find(|(counted, _)| *counted == limit) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the limits by name, each with how many requests it refused.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(limit, count)| (limit.0, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_whole_numbers_with_binary_units() {
        for (text, size) in [
            ("0", Some(0)),
            ("500", Some(500)),
            ("64Ki", Some(65_536)),
            ("32Mi", Some(32 << 20)),
            ("1Gi", Some(1 << 30)),
            ("", None),
            ("Ki", None),
            ("+5", None),
            ("-5", None),
            ("5M", None),
            (" 5", None),
            ("17179869184Gi", None),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
    }

    #[test]
    fn annotations_of_a_namespace_replace_the_defaults() {
        let bound = |limit, annotation| Bound { limit, resource: limit, annotation: Some(annotation) };
        let default = Amount { objects: 10, bytes: 1_000 };
        let objects = bound("leases", "example.org/max-leases");
        let bytes = bound("bytes", "example.org/max-bytes");
        let quota = Quota { account: by_namespace, objects, bytes, default, beyond_limits: None };
        let namespace = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let set = namespace(json!({"example.org/max-leases": "3", "example.org/max-bytes": "x"}));
        assert_eq!(quota.amount(Some(&set)), Amount { objects: 3, ..default });
        let fields: Vec<String> =
            annotation_faults([&quota].into_iter(), &set).into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["metadata.annotations[example.org/max-bytes]"]);
        let set = namespace(json!({"example.org/max-bytes": "1Mi"}));
        assert_eq!(quota.amount(Some(&set)), Amount { bytes: 1 << 20, ..default });
        assert_eq!(quota.amount(None), default);
        let refusals = Refusals::new([&quota].into_iter());
        refusals.count(Limit("bytes"));
        assert_eq!(refusals.counts().last(), Some(("bytes", 1)));
    }
}
