//! The table of the conditions of a Route that follow findings: which Routes have them, and which ones `Ready` requires.

use crate::world::{RouteInfo, RouterInfo};
use signpost_types::v1alpha1::route::{
    CERTIFICATE_EXPIRING, CERTIFICATE_READY, HOST_POINTS_HERE, HOST_VERIFIED, PROGRAMMED, PUBLISHED, RESOLVABLE,
    RESOLVED_REFS,
};

/// The facts that decide which conditions a Route has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConditionInputs {
    /// Whether it has a Router and a host of its own.
    pub has_host: bool,
    /// Whether its TLS ends at the router.
    pub has_tls: bool,
    /// Whether instances of its Router report their Routes; `None`: the Router is unknown.
    pub instances: Option<bool>,
    /// Whether Services can be listed.
    pub services: bool,
    /// Whether name servers are queried.
    pub verifies_names: bool,
    /// Whether hosts must be verified.
    pub verifies_hosts: bool,
}

impl ConditionInputs {
    /// Returns the facts of a Route, and of the Router in its status: a watch of RouteBindings can lag.
    pub fn of(route: &RouteInfo, router: Option<&RouterInfo>) -> Self {
        ConditionInputs {
            has_host: route.bound && route.custom_name.is_some(),
            has_tls: route.tls_name.is_some(),
            instances: router.map(|router| router.target.active.has_instances),
            ..ConditionInputs::default()
        }
    }
}

/// A condition of Routes.
pub struct Row {
    pub kind: &'static str,
    /// Whether a Route has the condition, which is withdrawn otherwise; `None`: it does not change.
    pub has: fn(&ConditionInputs) -> Option<bool>,
    /// The part of `Ready`; `None`: `Ready` does not depend on the condition.
    pub required: Option<Required>,
}

/// The part of `Ready` that a condition decides.
pub struct Required {
    /// Whether it counts, in a Route that has the condition.
    pub counts: fn(&ConditionInputs) -> bool,
    /// The meaning of a missing condition.
    pub missing: Missing,
    /// The reason of `Ready` if the condition is not met.
    pub reason: &'static str,
    pub unmet: &'static str,
    pub met: &'static str,
}

/// The meaning of a missing condition that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing is known.
    Undecided,
    /// The Route is not ready.
    Unmet,
    /// The condition is about to be known: until then, only another one can decide that the Route is not ready.
    Pending,
}

/// The rows, in the order in which they decide `Ready`.
pub const TABLE: [Row; 8] = [
    Row {
        kind: RESOLVABLE,
        has: |_| Some(true),
        required: Some(Required {
            counts: |facts| facts.verifies_names,
            missing: Missing::Undecided,
            reason: "NotResolvable",
            unmet: "not all names resolve",
            met: "all names resolve",
        }),
    },
    Row {
        kind: PUBLISHED,
        has: |_| Some(true),
        required: Some(Required {
            counts: |facts| !facts.verifies_names,
            missing: Missing::Undecided,
            reason: "NotPublished",
            unmet: "not all names are published",
            // A name server can have another answer.
            met: "all names are published; name servers are not queried, because verify.names is false",
        }),
    },
    Row {
        kind: PROGRAMMED,
        has: |facts| facts.instances,
        required: Some(Required {
            counts: |_| true,
            missing: Missing::Unmet,
            reason: "NotProgrammed",
            unmet: "not every instance of its Router serves the Route",
            met: "every instance of its Router serves the Route",
        }),
    },
    Row {
        kind: RESOLVED_REFS,
        has: |facts| if facts.services { facts.instances } else { Some(false) },
        required: Some(Required {
            counts: |_| true,
            missing: Missing::Pending,
            reason: "BackendsNotReady",
            unmet: "its backends are not ready",
            met: "its backends are ready",
        }),
    },
    Row {
        kind: CERTIFICATE_READY,
        has: has_certificate,
        required: Some(Required {
            counts: |_| true,
            missing: Missing::Pending,
            reason: "CertificateNotReady",
            unmet: "not every instance of its Router has a valid certificate for the Route",
            met: "every instance has a valid certificate for it",
        }),
    },
    Row { kind: CERTIFICATE_EXPIRING, has: has_certificate, required: None },
    Row { kind: HOST_POINTS_HERE, has: |facts| Some(facts.has_host), required: None },
    Row { kind: HOST_VERIFIED, has: |facts| Some(facts.verifies_hosts), required: None },
];

fn has_certificate(facts: &ConditionInputs) -> Option<bool> {
    facts.instances.map(|has_instances| has_instances && facts.has_tls)
}
