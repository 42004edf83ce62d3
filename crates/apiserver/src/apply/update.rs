//! Field tracking for writes that are not applies: creates, replacements, and patches.
//!
//! `metadata.managedFields` are decoded and encoded again only if necessary: when a client sends its own, or when there are too
//! many managers. The common cases need less work. A new object has one manager, which owns the sent fields. A changed object has
//! the entries that this server wrote; in their encoded sets, only the changed fields are removed and inserted.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::compare::{Changes, compare};
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owned, UPDATERS_MAX, seconds_text, set_entries};
use super::structure::{Shape, field, identity, items, shape};
use super::{SERVERS_METADATA, tracked, without_managed_fields};
use crate::json_scan::present;
use crate::kind::Kind;
use crate::schema::{self, Node};

/// Sets `new.metadata.managedFields` for a write that is not an apply (`old` is `None`: a create): `manager` owns the fields that
/// it changed. `new` can carry the `managedFields` that the client sent. Fills in the schema's defaults, which belong to the sent
/// fields.
pub fn track_update(
    kind: &Kind,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    now: Timestamp,
) {
    let update = Update { kind, manager, subresource, now };
    let done = match old {
        None => update.create(new),
        Some(old) => update.change(old, new),
    };
    if done.is_none() {
        update.anew(old, new);
    }
}

/// The fields that every object of a built-in kind has in Kubernetes, even if they are empty, so that no write adds them.
const STRUCTS: [&str; 4] = ["spec", "status", "source", "deprecatedSource"];

/// A write that is not an apply.
struct Update<'a> {
    kind: &'a Kind,
    manager: &'a str,
    subresource: Option<&'a str>,
    now: Timestamp,
}

/// The changes of a write.
struct Changed {
    removed: FieldSet,
    written: FieldSet,
}

impl Changed {
    /// Returns the fields that other managers lose.
    fn touched(&self) -> impl Iterator<Item = &FieldSet> {
        [&self.removed, &self.written].into_iter()
    }
}

impl Update<'_> {
    /// Tracks a create without field sets from the client. `None`: the write is of another type, and nothing was done.
    fn create(&self, new: &mut Value) -> Option<()> {
        if self.subresource.is_some() || !is_nothing(&new["metadata"]["managedFields"]) {
            return None;
        }
        schema::apply_defaults(&self.kind.schema, new);
        let sent = self.sent_fields(new)?;
        let entries = if sent.is_empty() { Vec::new() } else { vec![self.entry(sent)] };
        set_entries(new, entries)
    }

    /// Returns the fields of the new object, encoded, without those that the server sets.
    fn sent_fields(&self, new: &Value) -> Option<Map<String, Value>> {
        let schema: &Node = &self.kind.schema;
        let mut set = Map::new();
        for (name, value) in new.as_object()? {
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "status" if self.kind.has_status => {}
                "metadata" => {
                    let inner = encoded_fields(field(Some(schema), name).0, value, &SERVERS_METADATA)?;
                    if !inner.is_empty() {
                        set.insert("f:metadata".to_owned(), Value::Object(inner));
                    }
                }
                _ => encode_field(Some(schema), name, value, &mut set)?,
            }
        }
        if self.kind.is_built_in {
            for name in STRUCTS.map(|name| format!("f:{name}")) {
                if let Some(Value::Object(inner)) = set.get_mut(&name) {
                    inner.remove(".");
                    if inner.is_empty() {
                        set.remove(&name);
                    }
                }
            }
        }
        Some(set)
    }

    /// Tracks a change of an object whose field sets the client has not modified. `None`: the write is of another type, and
    /// nothing was done.
    fn change(&self, old: &Value, new: &mut Value) -> Option<()> {
        let stored = &old["metadata"]["managedFields"];
        let sent = &new["metadata"]["managedFields"];
        if self.subresource.is_none() && !is_nothing(sent) && sent != stored {
            return None;
        }
        if stored.is_null() {
            // An object without managers (they were cleared) is not tracked again before the first apply.
            schema::apply_defaults(&self.kind.schema, new);
            return set_entries(new, Vec::new());
        }
        let sets = |entry: &Value| entry["fieldsV1"].as_object().is_some_and(|set| !set.is_empty());
        let stored = stored.as_array().filter(|entries| !entries.is_empty() && entries.iter().all(sets))?;
        if stored.iter().filter(|entry| entry["operation"] == "Update").count() >= UPDATERS_MAX {
            return None;
        }
        let changed = self.changed_fields(old, new);
        // The new version is usually derived from the old one and contains its entries.
        let sent = new.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields")).map(Value::take);
        let mut entries = match sent {
            Some(Value::Array(sent)) if sent == *stored => sent,
            _ => stored.clone(),
        };
        for set in changed.touched().filter(|set| !set.is_empty()) {
            for entry in &mut entries {
                set.take_from(entry["fieldsV1"].as_object_mut()?)?;
            }
            entries.retain(sets);
        }
        let taken = self.taken(changed);
        if !taken.is_empty() {
            let api_version = self.kind.api_version();
            let is_mine = |entry: &&mut Value| {
                entry["operation"] == "Update"
                    && entry["manager"] == self.manager
                    && entry["apiVersion"] == api_version
                    && entry["subresource"].as_str().unwrap_or_default() == self.subresource.unwrap_or_default()
            };
            match entries.iter_mut().find(is_mine) {
                Some(entry) => {
                    taken.add_to(entry["fieldsV1"].as_object_mut()?)?;
                    entry["time"] = seconds_text(self.now).into();
                }
                None => {
                    let Value::Object(set) = taken.encode() else { return None };
                    entries.push(self.entry(set));
                }
            }
            sort(&mut entries);
        }
        set_entries(new, entries)
    }

    /// Returns the entry of this write's manager.
    fn entry(&self, set: Map<String, Value>) -> Value {
        present(json!({
            "manager": self.manager,
            "operation": "Update",
            "apiVersion": self.kind.api_version(),
            "time": seconds_text(self.now),
            "fieldsType": "FieldsV1",
            "fieldsV1": set,
            "subresource": self.subresource,
        }))
    }

    /// Returns the changes of the write. Fills in the defaults.
    fn changed_fields(&self, old: &Value, new: &mut Value) -> Changed {
        let schema: &Node = &self.kind.schema;
        schema::apply_defaults(schema, new);
        let Changes { added, modified: mut written, removed } = compare(schema, old, new);
        written.absorb(added);
        Changed { removed, written }
    }

    /// Returns the fields that the manager gains.
    fn taken(&self, Changed { mut written, .. }: Changed) -> FieldSet {
        if self.kind.is_built_in {
            written.subtract(&FieldSet::of_fields(&STRUCTS.each_ref().map(std::slice::from_ref)));
        }
        tracked(self.kind, written, self.subresource)
    }

    /// Decodes all field sets, and encodes all.
    fn anew(&self, old: Option<&Value>, new: &mut Value) {
        let mut managers = match (old, self.subresource) {
            // Managers cannot be changed through a subresource.
            (Some(old), Some(_)) => Managers::of(old),
            (old, _) => Managers::of_replacement(old, new),
        };
        // An object without managers (they were cleared) is not tracked again before the first apply.
        if old.is_some() && managers.0.is_empty() {
            schema::apply_defaults(&self.kind.schema, new);
            managers.encode_into(new);
            return;
        }
        let nothing = Value::Object(Map::new());
        // Defaults that complete a client's own field sets do not count.
        let mut plain = without_managed_fields(new);
        let changed = self.changed_fields(old.unwrap_or(&nothing), &mut plain);
        *new = plain;
        changed.touched().for_each(|set| managers.take(set, None));
        let taken = self.taken(changed);
        if !taken.is_empty() {
            let api_version = self.kind.api_version();
            let manager = Manager::updating(self.manager, &api_version, self.subresource);
            let fresh = || Owned { set: FieldSet::default(), time: None, api_version };
            let owned = managers.0.entry(manager).or_insert_with(fresh);
            owned.set.absorb(taken);
            owned.time = Some(self.now);
        }
        managers.fold_oldest();
        managers.encode_into(new);
    }
}

/// Returns the fields of a value that was sent as a part of a new object, encoded, except those with the given names. `None`:
/// this fast path does not support the value.
fn encoded_fields(schema: Option<&Node>, value: &Value, without: &[&str]) -> Option<Map<String, Value>> {
    let mut set = Map::new();
    match shape(schema, value) {
        Shape::Leaf => {}
        Shape::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !without.contains(&name.as_str())) {
                encode_field(schema, name, value, &mut set)?;
            }
        }
        Shape::List(list) => {
            for item in list {
                if let Some(element) = identity(schema, item) {
                    set.insert(element.encode(), member(encoded_fields(items(schema), item, &[])?));
                }
            }
        }
    }
    Some(set)
}

fn encode_field(schema: Option<&Node>, name: &str, value: &Value, set: &mut Map<String, Value>) -> Option<()> {
    let inner = encoded_fields(field(schema, name).0, value, &[])?;
    set.insert(format!("f:{name}"), member(inner));
    Some(())
}

/// Marks a field as owned itself, in addition to its contents.
fn member(mut inner: Map<String, Value>) -> Value {
    if !inner.is_empty() {
        inner.insert(".".to_owned(), Value::Object(Map::new()));
    }
    Value::Object(inner)
}

/// Returns whether there are no field sets.
fn is_nothing(entries: &Value) -> bool {
    entries.is_null() || entries.as_array().is_some_and(Vec::is_empty)
}

/// Sorts entries like [`Managers::encode_into`]; the format of times makes their texts sort correctly.
fn sort(entries: &mut [Value]) {
    fn key(entry: &Value) -> [&str; 5] {
        ["operation", "time", "manager", "apiVersion", "subresource"]
            .map(|name| entry[name].as_str().unwrap_or_default())
    }
    entries.sort_by(|a, b| key(a).cmp(&key(b)));
}

/// Tracks like [`track_update`], but always decodes and encodes everything. Tests compare the fast paths with it.
#[cfg(test)]
pub(super) fn track_anew(
    kind: &Kind,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    now: Timestamp,
) {
    Update { kind, manager, subresource, now }.anew(old, new);
}
