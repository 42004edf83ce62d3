//! Limits on what clients store, and the count of requests that a limit refused.
//!
//! An object may have [`Limits::object_bytes`], and a namespace a number and a size of Routes and of Events. An annotation
//! of the Namespace, which only administrators can write, replaces the default of the configuration. The handlers check
//! both before the commit (`handlers::admit`); what a namespace has is counted by `watch_cache::usage`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use serde_json::Value;

use super::error::Cause;
use super::registry::{Kind, field};

/// The largest size of an object of a kind without namespaces. Tenants write none of these. A Router with 128 addresses that
/// are all unhealthy, 256 records of 1,024 bytes, and its field sets has 390 KiB; the largest Zone has less.
pub const CLUSTER_OBJECT_BYTES: usize = 512 << 10;

/// The limits of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of an object in a namespace: its stored JSON, with its field sets. At most [`CLUSTER_OBJECT_BYTES`].
    pub object_bytes: usize,
    /// The Routes of a namespace.
    pub routes: Amount,
    /// The Events of a namespace.
    pub events: Amount,
}

impl Default for Limits {
    /// 10,000 Routes with their status have about 30 MiB. A namespace at all of its limits costs the process 200 MiB.
    fn default() -> Self {
        Limits {
            object_bytes: 64 << 10,
            routes: Amount { objects: 10_000, bytes: 32 << 20 },
            events: Amount { objects: 5_000, bytes: 8 << 20 },
        }
    }
}

/// A number of objects, and their size in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of objects.
    pub objects: u64,
    /// The bytes of their JSON.
    pub bytes: u64,
}

impl Amount {
    /// Both together.
    pub fn plus(self, other: Amount) -> Amount {
        Amount { objects: self.objects.saturating_add(other.objects), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// What is left without `other`.
    pub fn minus(self, other: Amount) -> Amount {
        Amount { objects: self.objects.saturating_sub(other.objects), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

/// The quota that every namespace has of one kind.
pub struct Quota {
    kind: &'static str,
    /// The number of objects.
    pub objects: Bound,
    /// Their size.
    pub bytes: Bound,
    default: fn(&Limits) -> Amount,
    /// How many times the quota the platform's own users may fill; `None`: they are not refused. Only they write Events
    /// about a tenant's Routes, so they have some room that others cannot take from them.
    pub of_platform: Option<u64>,
}

/// One bound of a [`Quota`].
pub struct Bound {
    /// The limit that a refusal counts for.
    pub limit: Limit,
    /// The resource, as refusals name it.
    pub resource: &'static str,
    /// The annotation of a Namespace that sets it.
    pub annotation: &'static str,
}

/// The quotas.
const QUOTAS: [Quota; 2] = [
    Quota {
        kind: "Route",
        objects: Bound { limit: Limit::NamespaceRoutes, resource: "routes", annotation: "signpost.dev/max-routes" },
        bytes: Bound {
            limit: Limit::NamespaceRouteBytes,
            resource: "route-bytes",
            annotation: "signpost.dev/max-route-bytes",
        },
        default: |limits| limits.routes,
        of_platform: None,
    },
    Quota {
        kind: "Event",
        objects: Bound { limit: Limit::NamespaceEvents, resource: "events", annotation: "signpost.dev/max-events" },
        bytes: Bound {
            limit: Limit::NamespaceEventBytes,
            resource: "event-bytes",
            annotation: "signpost.dev/max-event-bytes",
        },
        default: |limits| limits.events,
        of_platform: Some(2),
    },
];

impl Quota {
    /// The quota of a kind, if it has one.
    pub fn of(kind: &Kind) -> Option<&'static Quota> {
        QUOTAS.iter().find(|quota| quota.kind == kind.kind)
    }

    /// What a namespace may have: the defaults, and what the annotations of the Namespace say instead.
    pub fn amount(&self, limits: &Limits, namespace: Option<&Value>) -> Amount {
        let default = (self.default)(limits);
        let set = |bound: &Bound| parse_size(namespace?["metadata"]["annotations"][bound.annotation].as_str()?);
        Amount {
            objects: set(&self.objects).unwrap_or(default.objects),
            bytes: set(&self.bytes).unwrap_or(default.bytes),
        }
    }
}

/// The faults of the annotations of a Namespace that set quotas.
pub fn annotation_faults(namespace: &Value) -> Vec<Cause> {
    let annotations = &namespace["metadata"]["annotations"];
    let bounds = QUOTAS.iter().flat_map(|quota| [&quota.objects, &quota.bytes]);
    let faulty =
        bounds.filter(|bound| annotations[bound.annotation].as_str().is_some_and(|text| parse_size(text).is_none()));
    faulty
        .map(|bound| {
            let path = format!("metadata.annotations[{}]", bound.annotation);
            field::invalid(&path, &annotations[bound.annotation], "must be a whole number, such as 500, 64Ki or 32Mi")
        })
        .collect()
}

/// A whole number, with `Ki`, `Mi` or `Gi` after it or without.
pub fn parse_size(text: &str) -> Option<u64> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let number: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    number.checked_mul(1 << shift)
}

/// A limit that refuses requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The size of a request's body.
    RequestBody,
    /// Requests in flight and watches.
    RequestsInFlight,
    /// The size of an object.
    ObjectSize,
    /// The length of a text, or the number of items of a list or map, in an object.
    ObjectFields,
    /// The requirements of a selector.
    Selector,
    /// The operations of a JSON patch, and their work.
    Patch,
    /// The number of Routes of a namespace.
    NamespaceRoutes,
    /// The bytes of the Routes of a namespace.
    NamespaceRouteBytes,
    /// The number of Events of a namespace.
    NamespaceEvents,
    /// The bytes of the Events of a namespace.
    NamespaceEventBytes,
}

impl Limit {
    const ALL: [Limit; 10] = [
        Limit::RequestBody,
        Limit::RequestsInFlight,
        Limit::ObjectSize,
        Limit::ObjectFields,
        Limit::Selector,
        Limit::Patch,
        Limit::NamespaceRoutes,
        Limit::NamespaceRouteBytes,
        Limit::NamespaceEvents,
        Limit::NamespaceEventBytes,
    ];

    /// The name of the limit: of a quota, the configuration key that sets its default.
    pub fn name(self) -> &'static str {
        match self {
            Limit::RequestBody => "request-body",
            Limit::RequestsInFlight => "requests-in-flight",
            Limit::ObjectSize => "object-size",
            Limit::ObjectFields => "object-fields",
            Limit::Selector => "selector",
            Limit::Patch => "patch",
            Limit::NamespaceRoutes => "namespace-routes",
            Limit::NamespaceRouteBytes => "namespace-route-bytes",
            Limit::NamespaceEvents => "namespace-events",
            Limit::NamespaceEventBytes => "namespace-event-bytes",
        }
    }
}

/// How many requests each limit refused.
#[derive(Default)]
pub struct Refusals([AtomicU64; Limit::ALL.len()]);

impl Refusals {
    /// Counts one.
    pub fn count(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Exposes [`Refusals`], by the label `limit`.
pub struct LimitMetrics(pub Arc<Refusals>);

impl fmt::Debug for LimitMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitMetrics")
    }
}

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "API requests that a limit refused, by limit; docs/limits.md describes each.";
        let mut metric = encoder.encode_descriptor("api_limited_requests", help, None, MetricType::Counter)?;
        for limit in Limit::ALL {
            let count = self.0.0[limit as usize].load(Ordering::Relaxed);
            ConstCounter::new(count).encode(metric.encode_family(&[("limit", limit.name())])?)?;
        }
        Ok(())
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
        let quota = &QUOTAS[0];
        let limits = Limits::default();
        let namespace = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let set = namespace(json!({"signpost.dev/max-routes": "3", "signpost.dev/max-events": "x"}));
        assert_eq!(quota.amount(&limits, Some(&set)), Amount { objects: 3, ..limits.routes });
        let set = namespace(json!({"signpost.dev/max-route-bytes": "1Mi"}));
        assert_eq!(quota.amount(&limits, Some(&set)), Amount { bytes: 1 << 20, ..limits.routes });
        assert_eq!(quota.amount(&limits, None), limits.routes);
        let faults =
            annotation_faults(&namespace(json!({"signpost.dev/max-events": "many", "signpost.dev/max-routes": "1"})));
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["metadata.annotations[signpost.dev/max-events]"]);
    }

    #[test]
    fn each_limit_has_a_counter_of_its_own() {
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, index);
        }
    }
}
