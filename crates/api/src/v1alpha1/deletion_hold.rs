//! A DeletionHold: a loss of objects that the name servers hold back until someone says what is meant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition of a DeletionHold: the name servers go on serving what is missing.
pub const HELD: &str = "Held";
/// Most names in `spec.names`.
pub const NAMES_MAX: usize = 20;

/// Most DeletionHolds that there may be; beyond, only administrators create one. Name servers that hold the same share one for each kind.
pub const DELETION_HOLDS_MAX: usize = 256;

/// How often a name server says that it still holds.
pub const HEARD_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// After so long a silence a name server counts as gone. It is long for clocks that differ, and for an API that is away.
pub const SILENCE_MAX: SignedDuration = SignedDuration::from_mins(10);

/// A DeletionHold stands for objects that are missing all at once, in a way that looks like an accident, and that the name servers
/// go on serving. They create it when they begin to hold, and it goes when none of them holds any more. Its name is made
/// from the objects that were missing then. While more go missing, or some come back, the status tells what is held now.
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
    doc = "A DeletionHold stands for objects that are missing all at once, and that the name servers go on serving."
)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldSpec {
    /// Kind of the missing objects.
    #[serde(rename = "type")]
    pub kind: DeletionHoldKind,
    /// How many were held when it began; `status.objects` tells how many are now.
    pub objects: u32,
    /// How many of this kind were known when it began, those that were held included.
    pub known: u32,
    /// How they came to be missing: `list`, a full list of the API did not hold them (or held a Router without an active
    /// address or with another zone, or a RouteBinding with another label); `burst`, too many were deleted one after another within a minute.
    pub cause: DeletionHoldCause,
    /// The first of these by name, at most 20: a Router's name, or `<namespace>/<name>` of a RouteBinding.
    #[serde(default)]
    #[schemars(length(max = 20), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
    /// What an administrator says: `approve`, they may go; `reject`, they stay served, and the deletion hold rings no alarm until
    /// the set of missing objects changes. It counts for the name servers that held when it was said, and for what they told
    /// by then that they hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// When that was said. Setting it anew says it again, to name servers that began to hold later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
}

/// Kinds of objects that can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum DeletionHoldKind {
    Router,
    RouteBinding,
}

impl DeletionHoldKind {
    /// All of them.
    pub const ALL: [DeletionHoldKind; 2] = [DeletionHoldKind::Router, DeletionHoldKind::RouteBinding];

    /// The kind's name.
    pub fn word(self) -> &'static str {
        match self {
            DeletionHoldKind::Router => "Router",
            DeletionHoldKind::RouteBinding => "RouteBinding",
        }
    }
}

/// How objects came to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum DeletionHoldCause {
    List,
    Burst,
}

/// What is said of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "documented variants would turn the schema's enum into a oneOf")]
pub enum Decision {
    Approve,
    Reject,
}

impl Decision {
    /// Its word in the API.
    pub fn word(self) -> &'static str {
        match self {
            Decision::Approve => "approve",
            Decision::Reject => "reject",
        }
    }
}

/// Who holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldStatus {
    /// The name servers that hold, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["server"]))]
    pub holders: Vec<DeletionHoldHolder>,
    /// How many objects are held now, by the name server that holds most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// How many of this kind were known at once, at most, since the hold began; those that are held are among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<u32>,
    /// The first of what is held now by name, at most 20, as the name server tells that wrote last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
    /// What is true of the hold at the moment: `Held`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A name server that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionHoldHolder {
    /// The name server's process, as it names itself.
    #[schemars(length(min = 1, max = 253))]
    pub server: String,
    /// Where that process is, for people: its host's name, and the addresses that it answers at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub host: Option<String>,
    /// Since when it holds.
    pub since: Time,
    /// The `metadata.generation` of the DeletionHold when it told what it holds: what is decided later counts for it.
    pub generation: i64,
    /// The UID of the DeletionHold that it entered. A decision on another DeletionHold of the same name does not count for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
    /// The user that wrote this entry. The API server sets it: other name servers cannot change the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub user: Option<String>,
    /// How many objects it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// Which objects these are, in a word that differs when they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub set: Option<String>,
    /// When they came to be these: later than `since` if the hold has grown or shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
    /// When it was last heard to hold, which it says every minute. One that has said nothing for ten minutes is taken off by
    /// the others, and holds no more in the eyes of anyone; should it come back, it enters anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
}

impl DeletionHoldHolder {
    /// When it was last heard.
    pub fn last_contact(&self) -> Timestamp {
        let reported = [&self.last_heartbeat_time, &self.changed_at].into_iter().flatten().map(|time| time.0);
        reported.fold(self.since.0, Timestamp::max)
    }

    /// For how long it has been silent. One that was heard far in the future counts as silent for the longest: the API server
    /// accepts no such time, and on the API of a cluster it would make an entry that nobody can remove.
    pub fn silence(&self, now: Timestamp) -> SignedDuration {
        let silence = now.duration_since(self.last_contact());
        if silence < -(SILENCE_MAX * 2) { SILENCE_MAX } else { silence.max(SignedDuration::ZERO) }
    }
}

impl DeletionHold {
    /// Whether any name server holds by it. One that nobody holds stands for nothing: a hold that has ended, or that begins.
    pub fn is_held(&self) -> bool {
        self.status.as_ref().is_some_and(|status| !status.holders.is_empty())
    }

    /// How many objects are held, as far as is told.
    pub fn objects(&self) -> u32 {
        self.status.as_ref().and_then(|status| status.objects).unwrap_or(self.spec.objects)
    }

    /// How many were known at once, at most, since the hold began.
    pub fn known(&self) -> u32 {
        self.status.as_ref().and_then(|status| status.known).unwrap_or(self.spec.known)
    }

    /// The first of what is held, by name.
    pub fn names(&self) -> &[String] {
        match &self.status {
            Some(status) if status.objects.is_some() => &status.names,
            _ => &self.spec.names,
        }
    }

    /// Whether what was decided counts for `holder`: it told what it holds before that, to this very object. The decision on a
    /// DeletionHold that is being deleted never counts.
    pub fn is_decided_for(&self, holder: &DeletionHoldHolder) -> bool {
        let is_entered_here = holder.uid.is_none() || holder.uid == self.metadata.uid;
        let was_entered_before = self.metadata.generation.is_some_and(|now| now > holder.generation);
        self.spec.decision.is_some()
            && self.metadata.deletion_timestamp.is_none()
            && is_entered_here
            && was_entered_before
    }

    /// How many RouteBindings name servers serve on by it, whatever else is in the API: what they lead to must stay, until it is
    /// decided that they may go.
    pub fn bindings_served_on(&self) -> u32 {
        let stays = self.is_undecided() || self.spec.decision == Some(Decision::Reject);
        if self.spec.kind == DeletionHoldKind::RouteBinding && self.is_held() && stays { self.objects() } else { 0 }
    }

    /// Whether a name server waits for a decision.
    pub fn is_undecided(&self) -> bool {
        let mut holders = self.status.iter().flat_map(|status| &status.holders);
        self.spec.decision.is_none() || holders.any(|holder| !self.is_decided_for(holder))
    }
}
