//! The DeletionHold kind: a loss of objects that name servers and schedulers hold back until an administrator decides.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition of a DeletionHold that is true while name servers keep serving the missing objects.
pub const HELD: &str = "Held";
/// The word in `keeps` of a holder that still serves the names of the missing objects.
pub const DNS: &str = "DNS";
/// The maximum number of names in `spec.names`.
pub const NAMES_MAX: usize = 20;

/// The maximum number of DeletionHolds. Beyond it, only administrators can create one. Name servers that hold the same objects
/// share one DeletionHold per kind.
pub const DELETION_HOLDS_MAX: usize = 256;

/// The interval at which a name server reports that it still holds objects.
pub const HEARD_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// The time without a report after which a name server counts as gone. The limit is long to allow for clock skew and for an
/// unavailable API.
pub const SILENCE_MAX: SignedDuration = SignedDuration::from_mins(10);

/// A DeletionHold records that many objects disappeared at once, which is probably an accident. The name servers keep
/// serving these objects, and the schedulers keep everything that depends on them, until an administrator approves the deletion.
/// The first of these processes that holds objects creates the DeletionHold; it is deleted when none holds any. Its name is derived
/// from the objects that were missing at the start. The status shows the current set, which can grow or shrink.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "signpost.dev",
    version = "v1alpha1",
    kind = "DeletionHold",
    plural = "deletionholds",
    singular = "deletionhold",
    shortname = "dh",
    category = "signpost",
    status = "DeletionHoldStatus",
    doc = "A DeletionHold records objects that disappeared at the same time, and the parts of them that are kept: their names, and the objects \
           that depend on them."
)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldSpec {
    /// The kind of the missing objects. `RouteBinding`: RouteBindings, or their Routes, are missing.
    #[serde(rename = "type")]
    pub kind: DeletionHoldKind,
    /// The number of objects held at the start of the hold. `status.objects` is the current number.
    pub objects: u32,
    /// The number of known objects of this kind at the start of the hold, including those held.
    pub known: u32,
    /// The cause of the hold. `list`: a full list from the API did not contain the objects, or contained a Router without an
    /// active address or with another zone, or a RouteBinding with another label. `burst`: too many objects were deleted within
    /// one minute.
    pub cause: DeletionHoldCause,
    /// The first held objects in order of name, at most 20: the name of a Router, or `<namespace>/<name>` of a RouteBinding
    /// and its Route.
    #[serde(default)]
    #[schemars(length(max = 20), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
    /// The decision of an administrator. `approve`: the objects may be deleted, with everything that depends on them. `reject`: all of
    /// it stays, and the hold raises no alarm until the set of missing objects changes. A decision applies to the processes that held
    /// objects at that time, and to the objects that they had reported before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The time of the decision. Set it to a new time to apply the decision to name servers that started to hold later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
}

/// The kinds of objects that can be held. A RouteBinding also represents its Route, which has the same namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum DeletionHoldKind {
    Router,
    RouteBinding,
}

impl DeletionHoldKind {
    /// All kinds.
    pub const ALL: [DeletionHoldKind; 2] = [DeletionHoldKind::Router, DeletionHoldKind::RouteBinding];

    /// Returns the name of the kind.
    pub fn word(self) -> &'static str {
        match self {
            DeletionHoldKind::Router => "Router",
            DeletionHoldKind::RouteBinding => "RouteBinding",
        }
    }
}

/// The cause of a hold: how the objects disappeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum DeletionHoldCause {
    List,
    Burst,
}

/// The decision on a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum Decision {
    Approve,
    Reject,
}

impl Decision {
    /// Returns the value in the API.
    pub fn word(self) -> &'static str {
        match self {
            Decision::Approve => "approve",
            Decision::Reject => "reject",
        }
    }
}

/// The status of a DeletionHold: the name servers that hold objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldStatus {
    /// The name servers and schedulers that hold objects, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["server"]))]
    pub holders: Vec<DeletionHoldHolder>,
    /// The current number of held objects: the maximum over all name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// The maximum number of objects of this kind that were known simultaneously since the hold began, including those held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<u32>,
    /// The first objects that are currently held, in order of name, at most 20, from the most recent report of a name server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
    /// The current conditions of the hold: `Held`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A process that holds objects: a name server or a scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldHolder {
    /// The identity of the name server's process.
    #[schemars(length(min = 1, max = 253))]
    pub server: String,
    /// The host name of the process and the addresses that it listens on, for information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub host: Option<String>,
    /// The time when this name server started to hold objects.
    pub since: Time,
    /// The `metadata.generation` of the DeletionHold when the name server reported its objects. Later decisions apply to them.
    pub generation: i64,
    /// The UID of the DeletionHold to which this entry was added. A decision on another DeletionHold of the same name does not
    /// apply to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
    /// The user that wrote this entry. The API server sets it. Other users cannot change the entry until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub user: Option<String>,
    /// The kinds of objects that this process keeps because they depend on the missing ones, such as `Deployment` and
    /// `NameClaim`, or `DNS` for their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub keeps: Vec<String>,
    /// The number of objects that this name server holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// The identifier of the set of held objects. It changes when the set changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub set: Option<String>,
    /// The time of the last change of the set. It is later than `since` if the set has grown or shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
    /// The time of the last report. A name server reports every minute. After ten minutes without a report, its hold no longer
    /// counts, and the other name servers remove its entry. If it returns, it adds a new entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
}

impl DeletionHoldHolder {
    /// Returns the time of the last report.
    pub fn last_contact(&self) -> Timestamp {
        let reported = [&self.last_heartbeat_time, &self.changed_at].into_iter().flatten().map(|time| time.0);
        reported.fold(self.since.0, Timestamp::max)
    }
}

impl DeletionHold {
    /// Returns whether any name server holds objects under this DeletionHold. If none does, the hold has ended or is about to
    /// begin.
    pub fn is_held(&self) -> bool {
        self.status.as_ref().is_some_and(|status| !status.holders.is_empty())
    }

    /// Returns whether a name server still serves names under this DeletionHold. One of an earlier version does not state what it
    /// keeps.
    pub fn is_held_in_dns(&self) -> bool {
        let mut holders = self.status.iter().flat_map(|status| &status.holders);
        holders.any(|holder| holder.keeps.is_empty() || holder.keeps.iter().any(|kept| kept == DNS))
    }

    /// Returns the current number of held objects; until it is reported, the number at the start.
    pub fn objects(&self) -> u32 {
        self.status.as_ref().and_then(|status| status.objects).unwrap_or(self.spec.objects)
    }

    /// Returns the maximum number of objects known simultaneously since the hold began; until it is reported, the number at the
    /// start.
    pub fn known(&self) -> u32 {
        self.status.as_ref().and_then(|status| status.known).unwrap_or(self.spec.known)
    }

    /// Returns the first held objects in order of name.
    pub fn names(&self) -> &[String] {
        match &self.status {
            Some(status) if status.objects.is_some() => &status.names,
            _ => &self.spec.names,
        }
    }

    /// Returns the parts that are kept because of the hold, by any holder: `DNS`, and kinds of objects.
    pub fn keeps(&self) -> BTreeSet<&str> {
        let holders = self.status.iter().flat_map(|status| &status.holders);
        holders.flat_map(|holder| &holder.keeps).map(String::as_str).collect()
    }

    /// Returns whether the decision applies to `holder`: it reported its objects before the decision, and to this object. A
    /// decision on a DeletionHold that is being deleted never applies.
    pub fn is_decided_for(&self, holder: &DeletionHoldHolder) -> bool {
        let is_entered_here = holder.uid == self.metadata.uid;
        let was_entered_before = self.metadata.generation.is_some_and(|now| now > holder.generation);
        self.spec.decision.is_some()
            && self.metadata.deletion_timestamp.is_none()
            && is_entered_here
            && was_entered_before
    }

    /// Returns the number of RouteBindings that name servers still serve under this hold, regardless of the API's current
    /// contents. The targets of these RouteBindings must stay until an administrator approves the deletion.
    pub fn bindings_served_on(&self) -> u32 {
        let stays = self.is_undecided() || self.spec.decision == Some(Decision::Reject);
        if self.spec.kind == DeletionHoldKind::RouteBinding && self.is_held_in_dns() && stays {
            self.objects()
        } else {
            0
        }
    }

    /// Returns whether a name server waits for a decision.
    pub fn is_undecided(&self) -> bool {
        let mut holders = self.status.iter().flat_map(|status| &status.holders);
        self.spec.decision.is_none() || holders.any(|holder| !self.is_decided_for(holder))
    }
}
