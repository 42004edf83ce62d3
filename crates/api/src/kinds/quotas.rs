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
    /// Returns the default limits: 10,000 Routes with their status have about 30 MiB. A namespace at these limits costs the
    /// process 200 MiB.
    fn default() -> Self {
        Limits {
            object_bytes: OBJECT_BYTES,
            routes: Amount { objects: 10_000, bytes: 32 << 20 },
            events: Amount { objects: 5_000, bytes: 8 << 20 },
        }
    }
}

/// Defines a bound by its name, which the limit, the resource, and the annotation share.
macro_rules! bound {
    ($name:literal) => {
        Bound { limit: concat!("namespace-", $name), resource: $name, annotation: concat!("signpost.dev/max-", $name) }
    };
}

/// Returns the quota of Routes. The platform itself is not refused.
pub(super) fn routes(limits: &Limits) -> Quota {
    Quota { objects: bound!("routes"), bytes: bound!("route-bytes"), default: limits.routes, beyond_limits: None }
}

/// Returns the quota of Events. Only the platform writes Events about a tenant's Routes, so it has some room that others cannot
/// take from it.
pub(super) fn events(limits: &Limits) -> Quota {
    Quota { objects: bound!("events"), bytes: bound!("event-bytes"), default: limits.events, beyond_limits: Some(2) }
}

/// Returns the quota of Services, of which each has about 1 KiB.
pub(super) fn services() -> Quota {
    let default = Amount { objects: 5_000, bytes: 8 << 20 };
    Quota { objects: bound!("services"), bytes: bound!("service-bytes"), default, beyond_limits: None }
}

/// Returns the quota of EndpointSlices: one for each Service, and about 100,000 endpoints in all.
pub(super) fn endpoint_slices() -> Quota {
    let default = Amount { objects: 5_000, bytes: 8 << 20 };
    Quota { objects: bound!("endpoint-slices"), bytes: bound!("endpoint-slice-bytes"), default, beyond_limits: None }
}
