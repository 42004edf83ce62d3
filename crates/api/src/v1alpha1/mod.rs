//! Group `signpost.dev`, version `v1alpha1`: the kinds, field by field.
//!
//! These types are the one source of the API: the server's validation, defaults, OpenAPI documents, `kubectl explain` and
//! the CRDs are made from their schemas, so each field's documentation is written for users. They hold no behaviour.

pub mod deletion_hold;
pub mod name_claim;
pub mod route;
pub mod route_binding;
pub mod router;
pub mod zone;

/// API group of all kinds here.
pub const GROUP: &str = "signpost.dev";
/// API version of all kinds here.
pub const VERSION: &str = "v1alpha1";
/// Stands in the `gitVersion` that our own API server tells at `/version`, before its version, and in no other server's.
pub const SERVER_MARK: &str = "+signpost.";
/// Annotation of what stands for an object whose stored value is damaged: it exists, and nothing else is known of it.
pub const DAMAGED_ANNOTATION: &str = "signpost.dev/damaged";
/// The header by which a client says that it takes such placeholders, and its value. Without it, a list that one belongs to
/// fails.
pub const DAMAGED_HEADER: &str = "signpost-damaged-objects";
/// See [`DAMAGED_HEADER`].
pub const DAMAGED_PLACEHOLDERS: &str = signpost_apiserver::damaged::PLACEHOLDERS;
/// The Lease that the schedulers of a platform compete for; its `leaseTransitions` is the leader's fencing number.
pub const SCHEDULER_LEASE: &str = "signpost-scheduler";
/// The namespace of that Lease.
pub const SCHEDULER_LEASE_NAMESPACE: &str = "kube-system";
