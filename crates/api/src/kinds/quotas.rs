//! The quotas of namespaces, and the limits that set them. An annotation of the Namespace, which only administrators can write,
//! replaces the default of the configuration. And the quotas of what the platform's own processes can create: they are far above
//! what a platform has, and bound what a stolen credential can store.

use signpost_apiserver::limits::{Amount, Bound, OBJECT_BYTES, Quota, by_namespace};
use signpost_types::instance;

/// The limits on what clients store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of an object in a namespace: its stored JSON, with its field sets.
    pub object_bytes: usize,
    /// The Routes of a namespace.
    pub routes: Amount,
    /// The Events of a namespace.
    pub events: Amount,
    /// The released labels of a namespace, and its released hosts, that are in quarantine.
    pub quarantine: usize,
}

impl Default for Limits {
    /// Returns the default limits: 10,000 Routes with their status have about 30 MiB. A namespace at these limits costs the
    /// process 200 MiB.
    fn default() -> Self {
        Limits {
            object_bytes: OBJECT_BYTES,
            routes: Amount { objects: 10_000, bytes: 32 << 20 },
            events: Amount { objects: 5_000, bytes: 8 << 20 },
            quarantine: 10_000,
        }
    }
}

/// Defines a bound by its name, which the limit, the resource, and the annotation share.
macro_rules! bound {
    ($name:literal) => {
        Bound {
            limit: concat!("namespace-", $name),
            resource: $name,
            annotation: Some(concat!("signpost.dev/max-", $name)),
        }
    };
    ($limit:literal, $resource:literal) => {
        Bound { limit: $limit, resource: $resource, annotation: None }
    };
}

/// Returns the quota of Routes. The platform itself is not refused.
pub(super) fn routes(limits: &Limits) -> Quota {
    Quota {
        objects: bound!("routes"),
        bytes: bound!("route-bytes"),
        default: limits.routes,
        beyond_limits: None,
        account: by_namespace,
    }
}

/// Returns the quota of Events. Only the platform writes Events about a tenant's Routes, so it has some room that others cannot
/// take from it.
pub(super) fn events(limits: &Limits) -> Quota {
    Quota {
        objects: bound!("events"),
        bytes: bound!("event-bytes"),
        default: limits.events,
        beyond_limits: Some(2),
        account: by_namespace,
    }
}

/// Returns the quota of Services, of which each has about 1 KiB.
pub(super) fn services() -> Quota {
    let default = Amount { objects: 5_000, bytes: 8 << 20 };
    Quota {
        objects: bound!("services"),
        bytes: bound!("service-bytes"),
        default,
        beyond_limits: None,
        account: by_namespace,
    }
}

/// Returns the quota of Secrets: a certificate with its chain and key has about 10 KiB, and a Secret at most 1.4 MiB.
pub(super) fn secrets() -> Quota {
    let default = Amount { objects: 1_000, bytes: 16 << 20 };
    Quota {
        objects: bound!("secrets"),
        bytes: bound!("secret-bytes"),
        default,
        beyond_limits: None,
        account: by_namespace,
    }
}

/// Returns the quota of EndpointSlices: one for each Service, and about 100,000 endpoints in all.
pub(super) fn endpoint_slices() -> Quota {
    let default = Amount { objects: 5_000, bytes: 8 << 20 };
    Quota {
        objects: bound!("endpoint-slices"),
        bytes: bound!("endpoint-slice-bytes"),
        default,
        beyond_limits: None,
        account: by_namespace,
    }
}

/// Returns the quota of Leases: for each Router, and for all others of a namespace. A Router has at most 128 instances, and
/// their successors while they are replaced. The largest Lease has the certificates of an instance.
pub(super) fn leases() -> Quota {
    let default = Amount { objects: 256, bytes: 16 << 20 };
    let (objects, bytes) = (bound!("leases", "leases"), bound!("lease-bytes", "lease-bytes"));
    Quota { account: lease_account, objects, bytes, default, beyond_limits: Some(1) }
}

/// Returns the namespace and, of an instance's Lease, the Router in a key.
fn lease_account(key: &str) -> &str {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    match instance::router_of(name) {
        Some(_) if namespace == instance::AGENT_NAMESPACE => key.rsplit_once('.').map_or(key, |(account, _)| account),
        _ => namespace,
    }
}

/// Returns the quota of the bytes of RouteBindings, with twice the bytes that the Routes of the namespace can have. Their number is
/// that of Routes at most.
pub(super) fn route_bindings(limits: &Limits) -> Quota {
    let bytes =
        Bound { annotation: bound!("route-bytes").annotation, ..bound!("route-binding-bytes", "route-binding-bytes") };
    let default = Amount { objects: u64::MAX, bytes: limits.routes.bytes };
    let objects = bound!("route-bindings", "route-bindings");
    Quota { account: by_namespace, objects, bytes, default, beyond_limits: Some(2) }
}

/// Returns the quota of Zones: one for each Router, with up to a few KiB, and those of the platform's domain.
pub(super) fn zones() -> Quota {
    let default = Amount { objects: 20_000, bytes: 128 << 20 };
    let (objects, bytes) = (bound!("zones", "zones"), bound!("zone-bytes", "zone-bytes"));
    Quota { account: by_namespace, objects, bytes, default, beyond_limits: Some(1) }
}

/// Returns a quota without limits: it counts the bytes of NameClaims, which the kind's own hook limits by the number of Routes.
pub(super) fn name_claims() -> Quota {
    let default = Amount { objects: u64::MAX, bytes: u64::MAX };
    let (objects, bytes) = (bound!("name-claims", "name-claims"), bound!("name-claim-bytes", "name-claim-bytes"));
    Quota { account: by_namespace, objects, bytes, default, beyond_limits: None }
}

/// Returns the quota of the bytes of DeletionHolds, whose number the kind's own hook limits.
pub(super) fn deletion_holds() -> Quota {
    let default = Amount { objects: u64::MAX, bytes: 16 << 20 };
    let (objects, bytes) =
        (bound!("deletion-holds", "deletion-holds"), bound!("deletion-hold-bytes", "deletion-hold-bytes"));
    Quota { account: by_namespace, objects, bytes, default, beyond_limits: Some(1) }
}

/// Returns the quota of ChallengeRecords, of which each has less than 1 KiB. They live for a day at most, and a certificate needs one for
/// each of its names.
pub(super) fn challenge_records() -> Quota {
    let default = Amount { objects: 500, bytes: 1 << 20 };
    let (objects, bytes) = (bound!("challenge-records"), bound!("challenge-record-bytes", "challenge-record-bytes"));
    Quota { account: by_namespace, objects, bytes, default, beyond_limits: Some(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_count_for_their_router() {
        for (key, account) in [
            ("signpost-machines/router-shard1.192-0-2-1-80", "signpost-machines/router-shard1"),
            ("signpost-machines/router-a.b.192-0-2-1-80", "signpost-machines/router-a.b"),
            ("signpost-machines/router-none", "signpost-machines"),
            ("signpost-system/router-shard1.192-0-2-1-80", "signpost-system"),
            ("kube-system/signpost-scheduler", "kube-system"),
        ] {
            assert_eq!(lease_account(key), account, "{key}");
        }
    }
}
