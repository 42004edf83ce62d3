//! The ownership of fields: server-side apply, and the tracking of all other writes.
//!
//! Each manager has a set of fields, stored in `metadata.managedFields`. An *apply* sends the fields that its manager wants to
//! own, and they are merged into the object. A field that the manager named before and does not name now is removed, unless
//! another manager owns it too. A changed field that another manager owns is a conflict, unless forced. Every other write (an
//! *update*) owns the fields that it changed and never conflicts. The kind's schema defines which values are atomic and which
//! have parts (`structure`).
//!
//! This follows Kubernetes' structured-merge-diff and its field manager step by step, for one version of each kind: [`field_set`]
//! holds the sets, `compare` finds the changes, `merge` merges and removes fields, `managers` reads and writes `managedFields`,
//! `update` tracks all other writes, and `last_applied` serves users who migrate from client-side apply.
//!
//! Fields that the schema's defaults fill in belong to the manager of the create or the update that added them. After an apply,
//! they have no owner.

mod compare;
pub mod field_set;
mod last_applied;
mod managers;
mod merge;
mod structure;
mod update;
#[cfg(test)]
pub(crate) mod vectors;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::field_set::FieldSet;
use self::managers::{Manager, Managers, Owned};
use super::cause::Cause;
use super::error::ApiError;
use super::kind::Kind;
use super::schema::{self, Node};

pub use update::track_update;

/// The manager that the server adds for the existing fields at the first apply to an object without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Runs a server-side apply: merges `config` into `live` (`None`: the object does not exist) and returns the resulting object,
/// including `metadata.managedFields`, without new defaults. If nothing changes, the result equals `live`. A conflict is 409 with
/// a cause for each field and owner.
///
/// `config` must be pruned already. With `subresource` `status`, only its status applies; without it, everything except the
/// status. `metadata` that the server sets is ignored; the caller must check a precondition in it.
pub fn server_side_apply(
    kind: &Kind,
    live: Option<&Value>,
    config: Value,
    manager: &str,
    force: bool,
    subresource: Option<&str>,
    now: Timestamp,
) -> Result<Value, ApiError> {
    if !config["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let config = own_part(kind, config, subresource);
    let mut faults = schema::validate::item_faults(&kind.schema, &config);
    // A value of the wrong type is invalid for every owner, so this error precedes a conflict.
    faults.extend(
        schema::validate::type_faults(&kind.schema, &config)
            .into_iter()
            .filter(|fault| !faults.contains(fault))
            .collect::<Vec<_>>(),
    );
    if !faults.is_empty() {
        let named = if config["metadata"]["name"].is_string() { &config } else { live.unwrap_or(&Value::Null) };
        return Err(ApiError::invalid(kind, named["metadata"]["name"].as_str().unwrap_or_default(), faults));
    }
    let request = Request { kind, config: &config, name: manager, subresource, now };

    let empty = json!({});
    let object = live.unwrap_or(&empty);
    let mut managers = Managers::of(object);
    let unmanaged = managers.0.is_empty();
    if live.is_some() && unmanaged {
        managers.0.extend(request.owner_of_what_was_there(object));
    }
    let applied = match request.apply(object, &managers, force) {
        Err(conflicts) if manager == last_applied::MANAGER => {
            let remaining = last_applied::not_allowed(&kind.schema, object, conflicts);
            if !remaining.is_empty() {
                return Err(conflict_error(&remaining));
            }
            request.apply(object, &managers, true)
        }
        outcome => outcome,
    };
    let (mut result, managers) = applied.map_err(|conflicts| conflict_error(&conflicts))?;
    if manager == last_applied::MANAGER && subresource.is_none() {
        last_applied::keep_up(&mut result, &config);
    }
    // A manager that names no fields owns none. An object without managers, such as a Namespace of which only the name is
    // applied, stays without them, and nothing is written.
    let applying =
        |(found, owned): (&Manager, &Owned)| found.operation == managers::Operation::Apply && !owned.set.is_empty();
    let applies = managers.0.iter().any(applying);
    if unmanaged && !applies && live.is_some() && without_managed_fields(&result) == without_managed_fields(object) {
        return Ok(object.clone());
    }
    managers.encode_into(&mut result);
    Ok(result)
}

/// A request to apply.
struct Request<'a> {
    kind: &'a Kind,
    config: &'a Value,
    name: &'a str,
    subresource: Option<&'a str>,
    now: Timestamp,
}

/// Fields of others that an apply would change, by owner.
type Conflicts = Vec<(Manager, FieldSet)>;

impl Request<'_> {
    /// Returns the object and its managers after the apply.
    fn apply(&self, live: &Value, managers: &Managers, force: bool) -> Result<(Value, Managers), Conflicts> {
        let schema: Option<&Node> = Some(&self.kind.schema);
        let live = without_managed_fields(live);
        let mut managers = managers.clone();
        let me = Manager::applying(self.name, self.subresource);
        let api_version = self.kind.api_version();

        let merged = merge::merge(schema, &live, self.config);
        let mine = Owned { set: structure::applied_fields(schema, self.config), time: None, api_version };
        let before = managers.0.insert(me.clone(), mine);
        let result = match &before {
            Some(before) => prune(schema, &merged, &before.set, &managers),
            None => merged,
        };

        let changes = compare::compare(&self.kind.schema, &live, &result);
        let changed = changes.modified.union(&changes.added);
        let conflicts: Conflicts = managers
            .0
            .iter()
            .filter(|(manager, _)| **manager != me)
            .map(|(manager, owned)| (manager.clone(), owned.set.intersection(&changed)))
            .filter(|(_, set)| !set.is_empty())
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        managers.take(&changed.union(&changes.removed), Some(&me));

        if let Some(mine) = managers.0.get_mut(&me) {
            mine.set = tracked(self.kind, std::mem::take(&mut mine.set), self.subresource);
            // As in Kubernetes, only a change of the object updates the time, so a repeated apply does not.
            mine.time = match result == live {
                true => before.and_then(|before| before.time),
                false => Some(self.now),
            };
        }
        Ok((result, managers))
    }

    /// Returns the invented owner of all that is in an object without managers.
    fn owner_of_what_was_there(&self, live: &Value) -> Option<(Manager, Owned)> {
        let api_version = self.kind.api_version();
        let changes = compare::compare(&self.kind.schema, &json!({}), &without_managed_fields(live));
        let set = tracked(self.kind, changes.added, None);
        let manager = Manager::updating(BEFORE_FIRST_APPLY, &api_version, None);
        (!set.is_empty()).then_some((manager, Owned { set, time: Some(self.now), api_version }))
    }
}

/// Removes from `merged` the fields that its manager named before (`before`) and that now neither it nor another manager owns.
///
/// Containers count as named if something in them was named. An object or a list item is therefore removed as a whole when none
/// of its fields has an owner. Fields that never had an owner (defaults) stay with their container.
fn prune(schema: Option<&Node>, merged: &Value, before: &FieldSet, managers: &Managers) -> Value {
    let complete = |set: &FieldSet| set.with_containers(schema, structure::step);
    let fields_of = |value: &Value| complete(&structure::applied_fields(schema, value));
    // The fields that remain after a set is removed. A container that loses everything still exists at this stage.
    let left = |set: &FieldSet| fields_of(&merge::remove(schema, merged, set, Some(&Value::Null)).unwrap_or_default());

    // The metadata itself is never removed, even if the configuration does not name the object again.
    let before = complete(before).difference(&SERVERS_OWN);
    let all = fields_of(merged);
    let owned = managers.0.values().fold(FieldSet::default(), |mut all, owned| {
        all.absorb(owned.set.clone());
        all
    });
    let owned = complete(&owned);
    let kept = left(&all.difference(&left(&before).union(&owned)));
    let gone = all.difference(&kept).difference(&owned).intersection(&before);
    merge::remove(schema, merged, &gone, None).unwrap_or_else(|| Value::Object(Map::new()))
}

/// Returns the part of a configuration that an apply is about.
fn own_part(kind: &Kind, mut config: Value, subresource: Option<&str>) -> Value {
    // A null has no meaning here: to give up a field, leave it out.
    drop_nulls(&kind.schema, &mut config);
    let Some(fields) = config.as_object_mut() else { return config };
    match subresource {
        Some(subresource) => fields.retain(|name, _| name == subresource),
        None if kind.has_status => {
            fields.remove("status");
        }
        None => {}
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        const SERVERS_OWN: [&str; 8] = [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ];
        metadata.retain(|name, _| !SERVERS_OWN.contains(&name.as_str()));
    }
    config
}

fn drop_nulls(schema: &Node, value: &mut Value) {
    if schema.preserves_unknown {
        return;
    }
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            for (name, field) in fields {
                if let Some(inner) = schema.field(name) {
                    drop_nulls(inner, field);
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                schema.items.iter().for_each(|inner| drop_nulls(inner, item));
            }
        }
        _ => {}
    }
}

/// Returns the tracked part of a set: no fields that the server sets, and only fields that the request can write.
fn tracked(kind: &Kind, mut set: FieldSet, subresource: Option<&str>) -> FieldSet {
    static MAIN: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["metadata"], &["spec"]]));
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
    set.subtract(&SERVERS_OWN);
    match subresource {
        Some(_) => set.cut(&MAIN),
        None if kind.has_status => set.cut(&STATUS),
        None => {}
    }
    set
}

/// The fields without an owner, because the server sets them.
static SERVERS_OWN: LazyLock<FieldSet> = LazyLock::new(|| {
    let of_metadata = SERVERS_METADATA.iter().map(|name| ["metadata", *name]);
    let of_metadata: Vec<_> = of_metadata.collect();
    let mut set = FieldSet::of_fields(&[&["apiVersion"], &["kind"], &["metadata"]]);
    of_metadata.iter().for_each(|path| set.absorb(FieldSet::of_fields(&[path])));
    set
});
/// The fields of the metadata among them.
const SERVERS_METADATA: [&str; 8] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// 409 with a cause for each field and owner, which kubectl prints.
fn conflict_error(conflicts: &[(Manager, FieldSet)]) -> ApiError {
    let causes: Vec<Cause> = conflicts
        .iter()
        .flat_map(|(manager, set)| {
            let paths = set.paths().into_iter();
            paths.map(move |path| Cause::new("FieldManagerConflict", path, format!("conflict with {manager}")))
        })
        .collect();
    let message = match (causes.as_slice(), conflicts) {
        ([only], [(manager, _)]) => format!("Apply failed with 1 conflict: conflict with {manager}: {}", only.field),
        _ => {
            let mut lines = Vec::new();
            for (manager, set) in conflicts {
                lines.push(format!("conflicts with {manager}:"));
                lines.extend(set.paths().into_iter().map(|path| format!("- {path}")));
            }
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.causes = causes;
    error
}
