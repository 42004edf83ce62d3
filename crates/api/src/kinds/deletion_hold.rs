//! DeletionHold: a loss of objects that name servers and schedulers hold back. They create it and report their objects; an
//! administrator decides.
//!
//! The rules limit the damage of a stolen name server credential. It cannot decide: a new DeletionHold has no decision, and only
//! administrators can update the main resource. It cannot change or remove another user's entry before that entry expires,
//! because the server writes the user's name into each entry. Name servers with the same user can change each other's entries.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access;
use crate::rules::{self, Rule};
use signpost_apiserver::auth::rules::{Access, Decision};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{self, AGE, Cell, Column};
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader};
use signpost_types::v1alpha1::GROUP;
use signpost_types::v1alpha1::deletion_hold::{DELETION_HOLDS_MAX, DeletionHold, DeletionHoldHolder, SILENCE_MAX};

pub static DELETION_HOLD: LazyLock<Kind> =
    LazyLock::new(|| Kind::of::<DeletionHold>().with_columns(COLUMNS).selectable_by(&["spec.type", "spec.decision"]));

/// The most kinds in the column: those of a Router with instances in a cluster.
const KEPT_SHOWN: usize = 8;

const COLUMNS: &[Column] = &[
    Column::new("Type", &["spec.type"], "Kind of the missing objects."),
    Column::new("Objects", &["status.objects", "status.objects", "spec.objects"], "Number of held objects.")
        .of_type("integer")
        .with_cell(|read, _| Cell::As(now(read))),
    Column::new(
        "Known",
        &["status.objects", "status.known", "spec.known"],
        "Number of objects of this kind before the deletion.",
    )
    .of_type("integer")
    .with_cell(|read, _| Cell::As(now(read))),
    Column::new("Cause", &["spec.cause"], "Cause of the hold: `list` or `burst`."),
    Column::new("Decision", &["spec.decision"], "Decision of an administrator: `approve` or `reject`."),
    Column::new("Holders", &["status.holders"], "Name servers and schedulers that hold the objects.").with_cell(
        |read, _| {
            let holders = read[0].items().map(|holder| holder.get(["host", "server"]));
            columns::list(holders.filter_map(|names| names.into_iter().find_map(Json::text)), 3)
        },
    ),
    AGE,
    Column::new("Keeps", &["status.holders"], "The kept parts: names in DNS, and kinds of objects.")
        .with_cell(|read, _| {
            let kept = read[0].items().flat_map(|holder| holder.get(["keeps"])[0].items()).filter_map(Json::text);
            columns::list(kept.collect::<BTreeSet<_>>().into_iter(), KEPT_SHOWN)
        })
        .wide(),
    Column::new("Names", &["status.objects", "status.names", "spec.names"], "First missing objects.")
        .with_cell(|read, _| columns::list(now(read).items().filter_map(Json::text), 3))
        .wide(),
];

/// Returns the current number of held objects from the status; before the first report there, the number at the start from the
/// spec.
fn now<'a>(read: &[Json<'a>]) -> Json<'a> {
    let [objects, now, then] = *read else { return Json::default() };
    if objects.is_null() { then } else { now }
}

pub(super) struct DeletionHolds;

#[async_trait]
impl Hooks for DeletionHolds {
    fn prepare_status(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        let Some(entries) = new["status"]["holders"].as_array_mut() else { return };
        for entry in entries.iter_mut().filter(|entry| entry.is_object()) {
            let before = find(old, &entry["server"]).cloned().unwrap_or_default();
            entry["user"] = before["user"].clone();
            if *entry != before {
                entry["user"] = json!(context.identity.user);
                bound_times(entry, context.now);
            }
        }
    }

    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let Some(old) = old else { return creation_faults(context, new) };
        let mut causes = rules::check(&RULES, Some(old), new);
        if old["spec"]["decision"] != new["spec"]["decision"] && !old["metadata"]["deletionTimestamp"].is_null() {
            causes.push(Cause::forbidden("spec.decision", "the DeletionHold is being deleted"));
        }
        causes
    }

    fn validate_status_update(&self, context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = |entry: &&Value| find(new, &entry["server"]) != Some(*entry);
        let refused = entries(old).filter(changed).filter(|entry| !may_change(context, entry));
        refused.map(|entry| Cause::forbidden("status.holders", &not_yours(entry))).collect()
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        match operation {
            Operation::Create(new) if !may_decide(context) => within_number(new, reader),
            Operation::Delete { old, .. } => match entries(old).find(|entry| !may_change(context, entry)) {
                Some(theirs) => {
                    let name = old["metadata"]["name"].as_str().unwrap_or_default();
                    Err(ApiError::forbidden(&DELETION_HOLD, name, &not_yours(theirs)))
                }
                None => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }
}

fn creation_faults(context: &Context<'_>, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["decision", "decidedAt"].into_iter().filter(|name| !object["spec"][*name].is_null()) {
        let what = "cannot be set at creation; an administrator sets it later with an update";
        causes.push(Cause::forbidden(format!("spec.{name}"), what));
    }
    // A finalizer would keep a DeletionHold after the end of its hold and block the next DeletionHold of that name.
    if !object["metadata"]["finalizers"].is_null() && !may_decide(context) {
        let what = "only administrators can set finalizers on a DeletionHold";
        causes.push(Cause::forbidden("metadata.finalizers", what));
    }
    causes
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(rules);

/// Returns the rules of DeletionHolds: the description of the start is immutable. Name servers report changes in the status and
/// cannot decide.
pub(crate) fn rules() -> Vec<Rule> {
    let fields = ["type", "objects", "known", "cause", "names"];
    rules::immutable(&fields, "field is immutable; only decision and decidedAt can change")
}

/// Rejects a DeletionHold beyond [`DELETION_HOLDS_MAX`]. Otherwise, a client with a name server's credential could fill the store
/// with them.
fn within_number(new: &Value, reader: &dyn Reader) -> HookResult {
    if reader.list("DeletionHold", None)?.len() < DELETION_HOLDS_MAX {
        return Ok(Vec::new());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let message =
        format!("the limit of {DELETION_HOLDS_MAX} DeletionHolds is reached; an administrator must delete some");
    Err(ApiError::forbidden(&DELETION_HOLD, name, &message))
}

/// Limits times in the future to [`SILENCE_MAX`] from now. An entry thus expires regardless of its times, and clocks may differ
/// by the same amount.
fn bound_times(entry: &mut Value, now: Timestamp) {
    let latest = now.saturating_add(SILENCE_MAX).unwrap_or(now);
    for name in ["since", "changedAt", "lastHeartbeatTime"] {
        let time = entry[name].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        if time.is_some_and(|time| time > latest) {
            entry[name] = json!(latest.to_string());
        }
    }
}

fn entries(hold: &Value) -> impl Iterator<Item = &Value> {
    hold["status"]["holders"].as_array().into_iter().flatten()
}

fn find<'a>(hold: &'a Value, server: &Value) -> Option<&'a Value> {
    entries(hold).find(|entry| entry["server"] == *server)
}

/// Returns whether the sender may decide: an administrator.
fn may_decide(context: &Context<'_>) -> bool {
    let wanted = Access::resource("update", GROUP, "deletionholds", None, None);
    matches!(access::decide(context.identity, &wanted), Decision::Allowed { .. })
}

/// Returns whether the sender may change an entry: it is the sender's, it lapsed, or the sender is an administrator.
fn may_change(context: &Context<'_>, entry: &Value) -> bool {
    let is_own = entry["user"].as_str() == Some(context.identity.user.as_str());
    is_own || has_lapsed(entry, context.now) || may_decide(context)
}

fn has_lapsed(entry: &Value, now: Timestamp) -> bool {
    let holder = serde_json::from_value::<DeletionHoldHolder>(entry.clone());
    holder.is_ok_and(|holder| now.duration_since(holder.last_contact()) >= SILENCE_MAX)
}

fn not_yours(entry: &Value) -> String {
    let [server, user] = ["server", "user"].map(|name| entry[name].as_str().unwrap_or_default());
    format!("the entry of {server:?} belongs to the user {user:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{GROUP_MASTERS, Identity};
    use crate::kinds::fixture::{Objects, check_create, context};

    fn hold(holders: Value) -> Value {
        json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold", "metadata": {"name": "b", "uid": "u1"},
            "spec": {"type": "Router", "objects": 3, "known": 3, "cause": "list", "names": []},
            "status": {"holders": holders},
        })
    }

    fn entry(server: &str, user: &str, heard: &str) -> Value {
        json!({"server": server, "since": "2026-01-01T10:00:00Z", "generation": 1, "set": "s", "lastHeartbeatTime": heard, "user": user})
    }

    #[test]
    fn nobody_decides_at_creation() {
        let mut new = hold(json!([]));
        assert_eq!(check_create("DeletionHold", new.clone()), Vec::<String>::new());
        new["spec"]["decision"] = json!("approve");
        new["metadata"]["finalizers"] = json!(["example.org/x"]);
        let found = check_create("DeletionHold", new);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("spec.decision: Forbidden") && found[1].starts_with("metadata.finalizers"));
    }

    #[test]
    fn a_deletion_hold_that_is_being_deleted_is_not_decided() {
        let old = hold(json!([]));
        let mut new = old.clone();
        new["spec"]["decision"] = json!("approve");
        assert!(DeletionHolds.validate(&context(), Some(&old), &new).is_empty());
        let mut going = old;
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
        assert_eq!(DeletionHolds.validate(&context(), Some(&going), &new).len(), 1);
    }

    #[tokio::test]
    async fn entries_belong_to_the_user_that_wrote_them() {
        let recent = "2026-01-01T11:59:00Z";
        let old = hold(json!([entry("ns1", "one", recent), entry("ns2", "two", recent)]));
        let lapsed = hold(json!([entry("ns1", "one", recent), entry("ns2", "two", "2026-01-01T11:50:00Z")]));
        let one = Identity::user("one");
        let admin = Identity { user: "root".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
        let forged = |old: &Value| {
            let mut new = old.clone();
            new["status"]["holders"][1]["set"] = json!("forged");
            new
        };
        let without = |at: usize, old: &Value| {
            let mut new = old.clone();
            new["status"]["holders"].as_array_mut().expect("a list").remove(at);
            new
        };
        for (identity, old, new, is_allowed) in [
            (&one, &old, old.clone(), true),
            (&one, &old, without(0, &old), true),
            (&one, &old, without(1, &old), false),
            (&one, &old, forged(&old), false),
            (&one, &lapsed, without(1, &lapsed), true),
            (&one, &lapsed, forged(&lapsed), true),
            (&admin, &old, forged(&old), true),
            (&admin, &old, hold(json!([])), true),
        ] {
            let (context, mut new) = (Context { identity, ..context() }, new);
            DeletionHolds.prepare_status(&context, old, &mut new);
            let found = DeletionHolds.validate_status_update(&context, old, &new);
            assert_eq!(found.is_empty(), is_allowed, "{identity:?} {new} {found:?}");
        }
        // The server writes the user and ignores the client's value; an unchanged entry keeps its user.
        let context = Context { identity: &one, ..context() };
        let mut new = old.clone();
        new["status"]["holders"][0]["set"] = json!("more");
        new["status"]["holders"][0]["user"] = json!("two");
        new["status"]["holders"][1]["user"] = json!("one");
        DeletionHolds.prepare_status(&context, &old, &mut new);
        assert_eq!(new["status"]["holders"][0]["user"], "one");
        assert_eq!(new["status"]["holders"][1], old["status"]["holders"][1]);
        // Times in the future are limited, so that an entry expires regardless of its times.
        new["status"]["holders"][0]["lastHeartbeatTime"] = json!("2099-01-01T00:00:00Z");
        DeletionHolds.prepare_status(&context, &old, &mut new);
        assert_eq!(new["status"]["holders"][0]["lastHeartbeatTime"], "2026-01-01T12:10:00Z");
        // A deletion would remove the entries of others, too.
        let (options, objects) = (Value::Null, Objects::new(Vec::new()));
        for (old, is_allowed) in [(&old, false), (&lapsed, true), (&without(1, &old), true)] {
            let delete = Operation::Delete { old, options: &options };
            assert_eq!(DeletionHolds.before_commit(&context, delete, &objects).await.is_ok(), is_allowed, "{old}");
        }
    }

    #[tokio::test]
    async fn the_number_of_deletion_holds_is_bounded() {
        let stored = |count: usize| {
            let named = |number: usize| {
                let mut hold = hold(json!([]));
                hold["metadata"]["name"] = json!(format!("b{number}"));
                hold
            };
            Objects::new((0..count).map(named).collect())
        };
        let new = hold(json!([]));
        let one = Identity::user("one");
        let admin = Identity { user: "root".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
        for (identity, count, is_allowed) in [
            (&one, DELETION_HOLDS_MAX - 1, true),
            (&one, DELETION_HOLDS_MAX, false),
            (&admin, DELETION_HOLDS_MAX, true),
        ] {
            let context = Context { identity, ..context() };
            let done = DeletionHolds.before_commit(&context, Operation::Create(&new), &stored(count)).await;
            assert_eq!(done.is_ok(), is_allowed, "{identity:?} {count}");
        }
    }
}
