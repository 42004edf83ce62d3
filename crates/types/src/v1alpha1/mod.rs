//! Group `signpost.dev`, version `v1alpha1`: the kinds, field by field.
//!
//! These types are the only source of the API's schemas. The server's validation, defaults, OpenAPI documents, `kubectl explain`,
//! and the CRDs derive from them, so the documentation of each field is written for users. The types have no behavior.

pub mod challenge_record;
pub mod deletion_hold;
pub mod name_claim;
pub mod route;
pub mod route_binding;
pub mod router;
pub mod traffic;
pub mod zone;

/// The API group of all kinds in this module.
pub const GROUP: &str = "signpost.dev";
/// The API version of all kinds in this module.
pub const VERSION: &str = "v1alpha1";
/// The marker before the version in the `gitVersion` that Signpost's API server returns at `/version`. No other server has it.
pub const SERVER_MARK: &str = "+signpost.";
/// The annotation of a placeholder for an object whose stored value is damaged. The object exists; its contents are unknown.
pub const DAMAGED_ANNOTATION: &str = "signpost.dev/damaged";
/// The header, and its value, with which a client accepts such placeholders. Without it, a list that includes a placeholder
/// fails.
pub const DAMAGED_HEADER: &str = "signpost-damaged-objects";
/// The value of [`DAMAGED_HEADER`].
pub const DAMAGED_PLACEHOLDERS: &str = "placeholders";
/// The Lease that the schedulers of a platform compete for. Its `leaseTransitions` is the leader's fencing number.
pub const SCHEDULER_LEASE: &str = "signpost-scheduler";
/// The namespace of the schedulers' Lease, the platform's own.
pub const SCHEDULER_LEASE_NAMESPACE: &str = "signpost-system";
/// The label of a Router or Route that a source wrote: the UID of the object that it was derived from.
pub const SOURCE_LABEL: &str = "signpost.dev/source";
/// The annotation of such a Router or Route: the kind, namespace, and name of that object, such as `HTTPRoute shop/web`.
pub const SOURCE_OBJECT_ANNOTATION: &str = "signpost.dev/source-object";
/// The field manager with which sources write.
pub const SOURCES_FIELD_MANAGER: &str = "signpost-sources";
