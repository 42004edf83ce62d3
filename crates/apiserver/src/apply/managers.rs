//! `metadata.managedFields`: the ownership of fields, as stored in the object.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use crate::json_scan::present;

/// The maximum number of distinct managers that only update (PUT, patch), as in Kubernetes. Applying managers are not limited:
/// each needs its own set to find the fields that it has dropped.
pub(super) const UPDATERS_MAX: usize = 10;
/// The manager into which the oldest updaters are merged.
const ANCIENT: &str = "ancient-changes";
/// The maximum length of a manager's name in octets, as in Kubernetes.
const NAME_OCTETS_MAX: usize = 128;

/// The operation of a manager. The order is that of the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Server-side apply.
    Apply,
    /// All other writes.
    Update,
}

/// The identity of a manager: entries with the same key are merged. The API version is not part of the key of an applying
/// manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Manager {
    pub(super) operation: Operation,
    pub(super) name: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Manager {
    pub(super) fn applying(name: &str, subresource: Option<&str>) -> Self {
        Manager {
            operation: Operation::Apply,
            name: name.to_owned(),
            api_version: String::new(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn updating(name: &str, api_version: &str, subresource: Option<&str>) -> Self {
        Manager {
            operation: Operation::Update,
            name: name.to_owned(),
            api_version: api_version.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }
}

/// The form in a conflict: `"kubectl"`, or `"kubectl-edit" with subresource "status" using example.org/v1`.
impl std::fmt::Display for Manager {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(out, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(out, " using {}", self.api_version),
        }
    }
}

/// The fields that a manager owns, and the time of their last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: FieldSet,
    pub(super) time: Option<Timestamp>,
    /// The API version of the last write.
    pub(super) api_version: String,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers(pub(super) BTreeMap<Manager, Owned>);

impl Managers {
    /// Returns the managers of an object: none if `managedFields` is missing or invalid.
    pub(super) fn of(object: &Value) -> Self {
        Self::decode(&object["metadata"]["managedFields"]).unwrap_or_default()
    }

    /// Returns the managers of an object that a client sends to replace `live`: its own if they are valid, otherwise those of
    /// `live`. A list with one empty entry clears all.
    pub(super) fn of_replacement(live: Option<&Value>, sent: &Value) -> Self {
        let sent = &sent["metadata"]["managedFields"];
        if sent
            .as_array()
            .is_some_and(|entries| matches!(entries.as_slice(), [Value::Object(entry)] if entry.is_empty()))
        {
            return Managers::default();
        }
        match Self::decode(sent) {
            Some(managers) if !managers.0.is_empty() => managers,
            _ => live.map(Self::of).unwrap_or_default(),
        }
    }

    fn decode(entries: &Value) -> Option<Self> {
        if entries.is_null() {
            return Some(Managers::default());
        }
        let mut managers = BTreeMap::new();
        for entry in entries.as_array()? {
            let text = |name: &str| match entry.get(name) {
                None | Some(Value::Null) => Some(""),
                Some(value) => value.as_str(),
            };
            let (name, api_version) = (text("manager")?, text("apiVersion")?);
            if name.len() > NAME_OCTETS_MAX || !matches!(text("fieldsType")?, "FieldsV1" | "") {
                return None;
            }
            let subresource = Some(text("subresource")?);
            let manager = match text("operation")? {
                "Apply" => Manager::applying(name, subresource),
                "Update" => Manager::updating(name, api_version, subresource),
                _ => return None,
            };
            let time = match text("time")? {
                "" => None,
                time => Some(time.parse().ok()?),
            };
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(encoded) => FieldSet::decode(encoded)?,
            };
            managers.insert(manager, Owned { set, time, api_version: api_version.to_owned() });
        }
        Some(Managers(managers))
    }

    /// Writes the managers into the object, except those without fields.
    pub(super) fn encode_into(&self, object: &mut Value) {
        let mut owners: Vec<(&Manager, &Owned)> = self.0.iter().filter(|(_, owned)| !owned.set.is_empty()).collect();
        owners.sort_by_key(|(manager, owned)| {
            let seconds = owned.time.map_or(0, Timestamp::as_second);
            (manager.operation, seconds, &manager.name, &owned.api_version, &manager.subresource)
        });
        let entries: Vec<Value> = owners
            .into_iter()
            .map(|(manager, owned)| {
                let operation = match manager.operation {
                    Operation::Apply => "Apply",
                    Operation::Update => "Update",
                };
                present(json!({
                    "manager": manager.name,
                    "operation": operation,
                    "apiVersion": owned.api_version,
                    "time": owned.time.map(seconds_text),
                    "fieldsType": "FieldsV1",
                    "fieldsV1": owned.set.encode(),
                    "subresource": Some(&manager.subresource).filter(|subresource| !subresource.is_empty()),
                }))
            })
            .collect();
        set_entries(object, entries);
    }

    /// Removes these fields from every manager except `except`.
    pub(super) fn take(&mut self, fields: &FieldSet, except: Option<&Manager>) {
        for (_, owned) in self.0.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            owned.set.subtract(fields);
        }
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// Merges the oldest updating managers into one while there are too many, for each API version.
    pub(super) fn fold_oldest(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        // Oldest first, so that `pop` gives them in that order.
        updaters
            .sort_by_key(|manager| Reverse((self.0[manager].time.map_or(0, Timestamp::as_second), manager.clone())));
        let mut count = updaters.len();
        let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
        while count > UPDATERS_MAX
            && let Some(manager) = updaters.pop()
        {
            let Some(first) = first_of_version.get(&manager.api_version) else {
                first_of_version.insert(manager.api_version.clone(), manager);
                continue;
            };
            let ancient = Manager::updating(ANCIENT, &manager.api_version, None);
            if !self.0.contains_key(&ancient)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(ancient.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&manager) {
                let bucket = self.0.entry(ancient).or_insert_with(|| owned.clone());
                bucket.set.absorb(owned.set);
                // The later of the two: the fields of the bucket changed then.
                bucket.time = owned.time;
            }
            count -= 1;
        }
    }
}

/// Returns a time as an entry holds it: whole seconds.
pub(super) fn seconds_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Puts the field sets into an object.
pub(super) fn set_entries(object: &mut Value, entries: Vec<Value>) -> Option<()> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let metadata = metadata.as_object_mut()?;
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
    Some(())
}
