//! The quotas of namespaces, and the limits that set them. An annotation of the Namespace, which only administrators can write,
//! replaces the default of the configuration. And the quotas of what the platform's own processes can create: they are far above
//! what a platform has, and bound what a stolen credential can store.

use signpost_apiserver::kind::Kind;
use signpost_apiserver::limits::{Amount, Bound, OBJECT_BYTES, Quota, by_namespace};
use signpost_apiserver::registry::event::EVENT;
use signpost_apiserver::registry::lease::LEASE;
use signpost_types::instance;

use super::challenge_record::CHALLENGE_RECORD;
use super::deletion_hold::DELETION_HOLD;
use super::endpoint_slice::ENDPOINT_SLICE;
use super::name_claim::NAME_CLAIM;
use super::route::ROUTE;
use super::route_binding::ROUTE_BINDING;
use super::secret::SECRET;
use super::service::SERVICE;
use super::zone::ZONE;

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
}

/// Returns a bound that no annotation replaces.
const fn fixed(name: &'static str) -> Bound {
    Bound { limit: name, resource: name, annotation: None }
}

/// Returns the quotas of the kinds, in each namespace.
pub(super) fn all(limits: &Limits) -> [(&'static Kind, Quota); 11] {
    let amount = |objects, bytes| Amount { objects, bytes };
    let quota = |default, beyond_limits, [objects, bytes]: [Bound; 2]| Quota {
        objects,
        bytes,
        default,
        beyond_limits,
        account: by_namespace,
    };
    let as_routes = Bound { annotation: bound!("route-bytes").annotation, ..fixed("route-binding-bytes") };
    [
        // The platform itself is not refused.
        (&ROUTE, quota(limits.routes, None, [bound!("routes"), bound!("route-bytes")])),
        // Only the platform writes Events about a tenant's Routes, so it has some room that others cannot take from it.
        (&EVENT, quota(limits.events, Some(2), [bound!("events"), bound!("event-bytes")])),
        // Each has about 1 KiB.
        (&SERVICE, quota(amount(5_000, 8 << 20), None, [bound!("services"), bound!("service-bytes")])),
        // A certificate with its chain and key has about 10 KiB, and a Secret at most 1.4 MiB.
        (&SECRET, quota(amount(1_000, 16 << 20), None, [bound!("secrets"), bound!("secret-bytes")])),
        // One for each Service, and about 100,000 endpoints in all.
        (
            &ENDPOINT_SLICE,
            quota(amount(5_000, 8 << 20), None, [bound!("endpoint-slices"), bound!("endpoint-slice-bytes")]),
        ),
        // For each Router, and for all others of a namespace. A Router has at most 128 instances, and their successors while they
        // are replaced. The largest Lease has the certificates of an instance.
        (
            &LEASE,
            Quota {
                account: lease_account,
                ..quota(amount(256, 16 << 20), Some(1), [fixed("leases"), fixed("lease-bytes")])
            },
        ),
        // Twice the bytes that the Routes of the namespace can have. Their number is that of Routes at most.
        (&ROUTE_BINDING, quota(amount(u64::MAX, limits.routes.bytes), Some(2), [fixed("route-bindings"), as_routes])),
        // No limits: this counts the bytes of NameClaims, which the kind's own hook limits by the number of Routes.
        (&NAME_CLAIM, quota(amount(u64::MAX, u64::MAX), None, [fixed("name-claims"), fixed("name-claim-bytes")])),
        // One for each Router, with up to a few KiB, and those of the platform's domain.
        (&ZONE, quota(amount(20_000, 128 << 20), Some(1), [fixed("zones"), fixed("zone-bytes")])),
        // The kind's own hook limits their number.
        (
            &DELETION_HOLD,
            quota(amount(u64::MAX, 16 << 20), Some(1), [fixed("deletion-holds"), fixed("deletion-hold-bytes")]),
        ),
        // Each has less than 1 KiB. They live for a day at most, and a certificate needs one for each of its names.
        (
            &CHALLENGE_RECORD,
            quota(amount(500, 1 << 20), Some(1), [bound!("challenge-records"), fixed("challenge-record-bytes")]),
        ),
    ]
}

/// Returns the namespace and, of an instance's Lease, the Router in a key.
fn lease_account(key: &str) -> &str {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    match instance::router_of(name) {
        Some(_) if namespace == instance::AGENT_NAMESPACE => key.rsplit_once('.').map_or(key, |(account, _)| account),
        _ => namespace,
    }
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
