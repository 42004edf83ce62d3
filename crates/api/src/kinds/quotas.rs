//! The quotas of namespaces, and the limits that set them. An annotation of the Namespace, which only administrators can write,
//! replaces the default of the configuration.

use signpost_apiserver::limits::{Amount, Bound, OBJECT_BYTES, Quota};

/// The limits on what clients store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of an object in a namespace: its stored JSON, with its field sets.
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
            object_bytes: OBJECT_BYTES,
            routes: Amount { objects: 10_000, bytes: 32 << 20 },
            events: Amount { objects: 5_000, bytes: 8 << 20 },
        }
    }
}

/// The quota of Routes. The platform itself is not refused.
pub(super) fn routes(limits: &Limits) -> Quota {
    Quota {
        objects: Bound { limit: "namespace-routes", resource: "routes", annotation: "signpost.dev/max-routes" },
        bytes: Bound {
            limit: "namespace-route-bytes",
            resource: "route-bytes",
            annotation: "signpost.dev/max-route-bytes",
        },
        default: limits.routes,
        beyond_limits: None,
    }
}

/// The quota of Events. Only the platform writes Events about a tenant's Routes, so it has some room that others cannot take
/// from it.
pub(super) fn events(limits: &Limits) -> Quota {
    Quota {
        objects: Bound { limit: "namespace-events", resource: "events", annotation: "signpost.dev/max-events" },
        bytes: Bound {
            limit: "namespace-event-bytes",
            resource: "event-bytes",
            annotation: "signpost.dev/max-event-bytes",
        },
        default: limits.events,
        beyond_limits: Some(2),
    }
}
