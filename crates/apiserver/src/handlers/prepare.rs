//! The steps from the object that a client sent to the object to write: prune, complete, validate.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::difference::{content_differs, same, with_member};
use super::writer::{Part, Writer, metadata_of, name_of};
use crate::cause::Cause;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::registry::{self, bounds, metadata};
use crate::request::FieldValidation;
use crate::{apply, schema};

/// The maximum number of reported faults: an EndpointSlice can have 100,000 addresses with a fault each.
const CAUSES_MAX: usize = 64;

/// The outcome of an update.
pub(crate) enum Change {
    /// No change.
    None,
    /// The object after the update.
    Put(Value),
    /// The last finalizer was removed from an object that is being deleted, so the object is deleted. With its last state.
    Delete(Value),
}

impl Writer<'_> {
    /// Prunes unknown fields, with warnings, or rejects them with `code`.
    pub(crate) fn prune(
        &self,
        object: &mut Value,
        duplicates: &[String],
        code: u16,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let mut faults: Vec<String> = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
        let strict = self.options.validation == FieldValidation::Strict;
        let whole = (strict && code == 422).then(|| object.clone());
        let unknown = schema::prune(&self.kind.schema, object);
        faults.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        match self.options.validation {
            _ if faults.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(faults),
            FieldValidation::Strict => return Err(self.strict(whole, &faults)),
        }
        Ok(())
    }

    /// Validates the result of a patch. `patched` is that result: 422 contains it, because the patch may lack the field.
    fn strict(&self, patched: Option<Value>, faults: &[String]) -> ApiError {
        let reported = format!("strict decoding error: {}", faults.join(", "));
        let Kind { kind, version, .. } = self.kind;
        match patched {
            None => ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {reported}"
            )),
            Some(mut patched) => {
                patched["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
                // The whole value, of any length: kube-apiserver shows it, too.
                let shown = Value::from(patched.to_string());
                let cause = Cause::new("FieldValueInvalid", "patch", format!("Invalid value: {shown}: {reported}"));
                ApiError::invalid_of("", "", "", vec![cause])
            }
        }
    }

    /// Builds a new object from the client's object: all steps of a create except the commit. `managed`: its field sets are
    /// already computed.
    pub(crate) fn prepare_create(&self, mut object: Value, managed: bool) -> Result<Value, ApiError> {
        self.check_sizes(None, &object)?;
        let mut causes = Vec::new();
        if self.kind.has_status
            && let Some(sent) = object.as_object_mut().and_then(|object| object.remove("status"))
        {
            causes.extend(self.sent_status_fault(None, &sent));
        }
        let meta = metadata_of(&mut object)?;
        for server_set in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "resourceVersion"]
        {
            meta.remove(server_set);
        }
        drop_empty(meta);
        causes.extend(registry::complete(&self.context(), self.kind, &mut object, managed));
        self.verdict(&object, causes)?;
        Ok(object)
    }

    /// Returns the fault of the `status` that a client sent to the main resource, where only one writer sets it. `old` is the
    /// stored object; `None`: it is created.
    fn sent_status_fault(&self, old: Option<&Value>, sent: &Value) -> Option<Cause> {
        let status_writer = self.hooks().status_writer()?;
        if is_empty_status(sent) || old.and_then(|old| old.get("status")) == Some(sent) {
            return None;
        }
        let or = if old.is_some() { ", or send the stored status unchanged" } else { "" };
        Some(Cause::forbidden("status", &format!("only {status_writer} can set it; remove status from the object{or}")))
    }

    /// Rejects an apply whose `status` contains changes, for a kind with a single status writer.
    pub(crate) fn check_sent_status(&self, live: &Value, sent: &Value) -> Result<(), ApiError> {
        match self.sent_status_fault(Some(live), sent) {
            Some(cause) => Err(ApiError::invalid(self.kind, name_of(live), vec![cause])),
            None => Ok(()),
        }
    }

    /// Rejects an object with a list, map, or text above its maximum. Every other step can thus take all of them as short.
    pub(crate) fn check_sizes(&self, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
        let mut causes = bounds::check(old, new);
        causes.extend(schema::sizes(&self.kind.schema, old, new));
        self.verdict(old.unwrap_or(new), causes)
    }

    fn verdict(&self, object: &Value, mut causes: Vec<Cause>) -> Result<(), ApiError> {
        // The schema and the rules can find the same fault.
        let mut seen = HashSet::new();
        causes.retain(|cause| seen.insert(cause.clone()));
        causes.truncate(CAUSES_MAX);
        match causes.is_empty() {
            true => Ok(()),
            // kube-apiserver names the stored view of the two views of events.
            false => Err(ApiError::invalid(self.stored_kind(), name_of(object), causes)),
        }
    }

    /// Converts the object that the client wants to the object to write: all steps of an update except the commit.
    pub(crate) fn prepare_update(
        &self,
        old: &Value,
        wanted: Value,
        part: Part,
        managed: bool,
    ) -> Result<Change, ApiError> {
        self.check_sizes(Some(old), &wanted)?;
        let (mut new, mut causes) = match part {
            Part::Main => self.prepare_main(old, wanted)?,
            Part::Status => {
                let mut new = with_member(old, wanted, "status");
                self.hooks().prepare_status(&self.context(), old, &mut new);
                (new, Vec::new())
            }
            Part::Finalize => (with_member(old, wanted, "spec"), Vec::new()),
        };
        let subresource = if part == Part::Status { Some("status") } else { None };
        if !managed {
            apply::track_update(self.kind, Some(old), &mut new, &self.options.manager, subresource, self.now);
        }
        schema::apply_defaults(&self.kind.schema, &mut new);
        causes.extend(self.schema_faults(&new));
        match part {
            Part::Main => {
                causes.extend(metadata::validate(self.kind, Some(old), &new));
                causes.extend(self.hooks().validate(&self.context(), Some(old), &new));
            }
            Part::Status => causes.extend(self.hooks().validate_status_update(&self.context(), old, &new)),
            Part::Finalize => {}
        }
        self.verdict(&new, causes)?;
        if part == Part::Main && !self.kind.is_built_in && content_differs(self.kind, old, &new) {
            new["metadata"]["generation"] = next_generation(old);
        }
        Ok(match () {
            () if self.is_released(&new) => Change::Delete(new),
            () if same(old, &new) => Change::None,
            () => Change::Put(new),
        })
    }

    /// Returns the faults of a changed object against its schema, except sizes: [`Self::check_sizes`] has accepted values above a
    /// maximum that are stored.
    fn schema_faults(&self, new: &Value) -> Vec<Cause> {
        let mut causes = schema::validate(&self.kind.schema, new);
        causes.retain(|cause| !matches!(cause.reason, Cause::TOO_LONG | Cause::TOO_MANY));
        causes
    }

    fn prepare_main(&self, old: &Value, mut new: Value) -> Result<(Value, Vec<Cause>), ApiError> {
        let mut causes = Vec::new();
        let old_meta = &old["metadata"];
        let meta = metadata_of(&mut new)?;
        for server_set in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            match old_meta.get(server_set) {
                Some(value) => meta.insert(server_set.to_owned(), value.clone()),
                None => meta.remove(server_set),
            };
        }
        meta.remove("selfLink");
        drop_empty(meta);
        if meta.get("uid").is_none_or(|uid| uid.is_null() || uid == "") {
            meta.insert("uid".into(), old_meta.get("uid").cloned().unwrap_or_default());
        }
        if self.kind.has_status {
            let object = new.as_object_mut().expect("its metadata were found");
            if let Some(sent) = object.remove("status") {
                causes.extend(self.sent_status_fault(Some(old), &sent));
            }
            if let Some(status) = old.get("status") {
                object.insert("status".to_owned(), status.clone());
            }
        }
        self.hooks().prepare(&self.context(), Some(old), &mut new);
        Ok((new, causes))
    }
}

/// Empty members are not stored: removing the last label removes `labels`.
fn drop_empty(meta: &mut Map<String, Value>) {
    for name in ["labels", "annotations", "finalizers", "ownerReferences", "generateName"] {
        let is_empty = meta.get(name).is_some_and(|value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        });
        if is_empty {
            meta.remove(name);
        }
    }
}

/// Returns whether a `status` is empty.
pub(super) fn is_empty_status(status: &Value) -> bool {
    status.is_null() || status.as_object().is_some_and(Map::is_empty)
}

/// Returns the `generation` after a change.
pub(crate) fn next_generation(old: &Value) -> Value {
    (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into()
}
