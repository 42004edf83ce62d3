//! The names of earlier versions: the current name of each kind, field, and annotation. The CHANGELOG lists them.

use signpost_apiserver::kind::former::FormerNames;

use signpost_types::v1alpha1::router::FORCE_DELETE_ANNOTATION;

/// The annotation that was `signpost.dev/force-delete-routes`.
pub(super) const LOSE_ROUTES_ANNOTATION: &str = "signpost.dev/lose-routes";
/// The option of a DELETE that was `forceDeleteRoutes`.
pub(super) const LOSE_ROUTES_OPTION: &str = "loseRoutes";

pub(super) const ROUTER: FormerNames = FormerNames {
    kind: None,
    fields: &[("trails", "formerNames"), ("trailsUntil", "formerNamesUntil")],
    annotations: &[(LOSE_ROUTES_ANNOTATION, FORCE_DELETE_ANNOTATION)],
};

pub(super) const ROUTE: FormerNames = FormerNames {
    kind: None,
    fields: &[("trails", "formerNames"), ("provenUntil", "verifiedUntil")],
    annotations: &[],
};

pub(super) const ROUTE_BINDING: FormerNames = FormerNames {
    kind: None,
    fields: &[("trails", "formerNames"), ("lastAsked", "lastQueriedTime")],
    annotations: &[],
};

pub(super) const ZONE: FormerNames = FormerNames {
    kind: None,
    fields: &[
        ("trailMinimumSeconds", "formerNameRetentionSeconds"),
        ("trailQuietSeconds", "formerNameIdleTimeoutSeconds"),
    ],
    annotations: &[],
};

pub(super) const DELETION_HOLD: FormerNames =
    FormerNames { kind: Some(("Brake", "brakes")), fields: &[("heardAt", "lastHeartbeatTime")], annotations: &[] };
