//! `--manifests`: objects in files, applied to the API at every start, the way `kubectl apply --server-side` would.
//!
//! [`read`] splits the files into documents and does not depend on kinds. [`apply`] first requests a dry run of every object from
//! the API. Only if all are accepted does it apply them, Namespaces first, so an error anywhere changes nothing. If another
//! client has set fields of an object since, the object stays unchanged and is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use kube::api::{DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::Status;
use kube::discovery::{ApiResource, Scope};
use kube::{Api, Client};
use serde_json::Value;

use signpost_dns::zonefile::include::read_file;

/// The field manager of the applied objects.
const MANAGER: &str = "signpost-manifests";

/// One object in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub location: Location,
    pub object: Value,
}

/// The start of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    /// Which document of the file, from 1 on.
    pub document: usize,
    /// The line it begins at, from 1 on.
    pub line: usize,
    /// Kind and name, as far as known.
    pub what: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: document {}", self.path.display(), self.line, self.document)?;
        if self.what.is_empty() { Ok(()) } else { write!(f, " ({})", self.what) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{}: {fault}", path.display())]
    File { path: PathBuf, fault: String },
    #[error("{location}: {fault}")]
    Document {
        location: Location,
        /// The problem, after the field if it concerns one field.
        fault: String,
    },
}

impl ManifestError {
    fn file(path: &Path, fault: impl ToString) -> Self {
        ManifestError::File { path: path.to_owned(), fault: fault.to_string() }
    }

    fn document(location: &Location, fault: impl Into<String>) -> Self {
        ManifestError::Document { location: location.clone(), fault: fault.into() }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub created: usize,
    pub changed: usize,
    pub unchanged: usize,
    /// The objects that stay unchanged because other clients have set some of their fields, with these fields.
    pub kept: Vec<String>,
}

/// Reads the objects of all `paths`: files, and the YAML and JSON files of directories in the order of their names. Namespaces
/// come first. All faults are reported.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Document>, Vec<ManifestError>> {
    let mut errors = Vec::new();
    let mut documents = Vec::new();
    for path in paths {
        for file in files(path).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        }) {
            match read_text(&file) {
                Err(error) => errors.push(ManifestError::file(&file, error)),
                Ok(text) => split(&file, &text, &mut documents, &mut errors),
            }
        }
    }
    documents.sort_by_key(|document| !is_namespace(&document.object));
    if errors.is_empty() { Ok(documents) } else { Err(errors) }
}

/// Reads the text of a regular file: a FIFO would block the start until another process writes to it.
fn read_text(file: &Path) -> std::io::Result<String> {
    let mut text = Vec::new();
    read_file(file, &mut text)?;
    String::from_utf8(text).map_err(|_| std::io::Error::other("the file is not UTF-8"))
}

fn is_namespace(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Namespace"
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let unreadable = |error: std::io::Error| ManifestError::file(path, error);
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let none = || ManifestError::file(path, "no *.yaml, *.yml or *.json file in this directory");
    if files.is_empty() { Err(none()) } else { Ok(files) }
}

/// Splits one file into documents, at lines that begin with `---`.
pub(super) fn split(path: &Path, text: &str, documents: &mut Vec<Document>, errors: &mut Vec<ManifestError>) {
    let mut parts: Vec<(usize, String)> = vec![(1, String::new())];
    for (at, line) in text.lines().enumerate() {
        match line.strip_prefix("---") {
            Some(rest) if rest.is_empty() || rest.starts_with([' ', '\t']) => parts.push((at + 2, String::new())),
            _ => {
                let (_, part) = parts.last_mut().expect("there is always one");
                part.push_str(line);
                part.push('\n');
            }
        }
    }
    let has_content =
        |text: &str| text.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    for (at, (line, part)) in parts.into_iter().filter(|(_, part)| has_content(part)).enumerate() {
        let location = Location { path: path.to_owned(), document: at + 1, line, what: String::new() };
        match serde_saphyr::from_str::<Value>(&part) {
            Ok(object) => take(location, object, documents, errors),
            Err(error) => {
                let location = match error.location() {
                    Some(found) => Location { line: line + found.line() as usize - 1, ..location },
                    None => location,
                };
                errors.push(ManifestError::document(&location, error.to_string().lines().next().unwrap_or("not YAML")));
            }
        }
    }
}

/// Takes an object, or the items of a `List`.
fn take(mut location: Location, mut object: Value, documents: &mut Vec<Document>, errors: &mut Vec<ManifestError>) {
    let is_list = object["kind"] == "List";
    if let (true, Some(items)) = (is_list, object.get_mut("items").and_then(Value::as_array_mut)) {
        for item in std::mem::take(items) {
            take(location.clone(), item, documents, errors);
        }
        return;
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let missing = [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")];
    let missing: Vec<_> = missing.into_iter().filter(|(pointer, _)| text(pointer).is_empty()).collect();
    let namespace = text("/metadata/namespace");
    let separator = if namespace.is_empty() { "" } else { "/" };
    location.what = format!("{} {namespace}{separator}{}", text("/kind"), text("/metadata/name")).trim().to_owned();
    match missing.first() {
        None => documents.push(Document { location, object }),
        Some((_, field)) => {
            errors.push(ManifestError::document(&location, format!("{field}: Required value")));
        }
    }
}

/// Applies all `documents`, or none if one of them would be rejected.
pub async fn apply(client: &Client, documents: &[Document]) -> Result<Report, Vec<ManifestError>> {
    let kinds = kinds(client, documents).await?;
    let mut report = Report::default();
    let mut errors = Vec::new();
    let mut accepted = Vec::new();
    for document in documents {
        let target = Target::new(client, document, &kinds);
        match target.try_out(documents).await {
            Ok(None) => accepted.push(target),
            Ok(Some(text)) => report.kept.push(format!("{}: {text}", document.location)),
            Err(status) => errors.extend(refused(&document.location, &status)),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for target in accepted {
        let before = target.resource_version().await.map_err(|status| refused(&target.document.location, &status))?;
        let after = target.patch(false).await.map_err(|status| refused(&target.document.location, &status))?;
        match before {
            None => report.created += 1,
            Some(before) if Some(&before) == after.metadata.resource_version.as_ref() => report.unchanged += 1,
            Some(_) => report.changed += 1,
        }
    }
    Ok(report)
}

type Kinds = BTreeMap<(String, String), (ApiResource, Scope)>;

fn kind_of(object: &Value) -> (String, String) {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

/// Queries the API for the kinds of the documents.
async fn kinds(client: &Client, documents: &[Document]) -> Result<Kinds, Vec<ManifestError>> {
    let mut kinds = Kinds::new();
    let mut errors = Vec::new();
    for document in documents {
        let (api_version, kind) = kind_of(&document.object);
        if kinds.contains_key(&(api_version.clone(), kind.clone())) {
            continue;
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, &kind);
        match kube::discovery::pinned_kind(client, &gvk).await {
            Ok((resource, capabilities)) => {
                kinds.insert((api_version, kind), (resource, capabilities.scope));
            }
            Err(error) => {
                let fault = format!("the API does not serve kind \"{kind}\" of \"{api_version}\" ({error})");
                errors.push(ManifestError::document(&document.location, fault));
            }
        }
    }
    if errors.is_empty() { Ok(kinds) } else { Err(errors) }
}

/// A document with its target in the API.
struct Target<'a> {
    document: &'a Document,
    name: &'a str,
    namespace: Option<&'a str>,
    resource: &'a ApiResource,
    client: &'a Client,
    api: Api<DynamicObject>,
}

impl<'a> Target<'a> {
    fn new(client: &'a Client, document: &'a Document, kinds: &'a Kinds) -> Self {
        let (resource, scope) = &kinds[&kind_of(&document.object)];
        let metadata = &document.object["metadata"];
        let namespace = match scope {
            Scope::Cluster => None,
            Scope::Namespaced => Some(metadata["namespace"].as_str().unwrap_or("default")),
        };
        let name = metadata["name"].as_str().unwrap_or_default();
        let api = api(client, namespace, resource);
        Target { document, name, namespace, resource, client, api }
    }

    /// Runs a dry run of the object. A text in the result explains why the object stays unchanged: other clients have set some of
    /// its fields.
    async fn try_out(&self, documents: &[Document]) -> Result<Option<String>, Status> {
        match self.patch(true).await {
            Ok(_) => Ok(None),
            Err(status) if is_set_by_others(&status) => Ok(Some(status.message)),
            Err(mut status) if status.reason == "Conflict" && self.has_version() => {
                status.message = format!(
                    "metadata.resourceVersion: {}; remove the field from the manifest",
                    status.message.trim_end_matches('.')
                );
                Err(status)
            }
            Err(status) if status.reason == "NotFound" && self.namespace_comes(documents) => self.try_elsewhere().await,
            Err(status) => Err(status),
        }
    }

    /// Returns whether the document names a version of the object, as one that was read from the API does.
    fn has_version(&self) -> bool {
        !self.document.object["metadata"]["resourceVersion"].is_null()
    }

    /// Returns whether the object's namespace is one of the documents.
    fn namespace_comes(&self, documents: &[Document]) -> bool {
        let mut namespaces = documents.iter().filter(|document| is_namespace(&document.object));
        namespaces.any(|document| document.object["metadata"]["name"].as_str() == self.namespace)
    }

    /// Returns a dry run where the object's namespace is not there yet: as a new object in `default`, which always is. What is
    /// checked of an object does not depend on its namespace, and an object of that name there does not matter.
    async fn try_elsewhere(&self) -> Result<Option<String>, Status> {
        let mut object = self.document.object.clone();
        object["metadata"]["namespace"] = Value::from("default");
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|error| Status::failure(&error.to_string(), "BadRequest"))?;
        let parameters = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
        match api(self.client, Some("default"), self.resource).create(&parameters, &object).await.map_err(status) {
            Err(status) if status.reason != "AlreadyExists" => Err(status),
            _ => Ok(None),
        }
    }

    async fn patch(&self, dry_run: bool) -> Result<DynamicObject, Status> {
        let parameters = PatchParams {
            dry_run,
            force: false,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        };
        self.api.patch(self.name, &parameters, &Patch::Apply(&self.document.object)).await.map_err(status)
    }

    async fn resource_version(&self) -> Result<Option<String>, Status> {
        let found = self.api.get_metadata_opt(self.name).await.map_err(status)?;
        Ok(found.and_then(|object| object.metadata.resource_version))
    }
}

fn api(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

fn status(error: kube::Error) -> Status {
    match error {
        kube::Error::Api(status) => *status,
        other => Status::failure(&other.to_string(), "Unknown"),
    }
}

/// Returns whether fields that the document has are others' to set.
fn is_set_by_others(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    status.reason == "Conflict" && causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// Returns a refusal as one error a cause, each with its field.
fn refused(location: &Location, status: &Status) -> Vec<ManifestError> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let of_cause = |field: &str, message: &str| match field {
        "" => ManifestError::document(location, message),
        field => ManifestError::document(location, format!("{field}: {message}")),
    };
    let mut seen = BTreeSet::new();
    let each = causes.iter().filter(|cause| seen.insert((&cause.field, &cause.message)));
    let errors: Vec<_> = each.map(|cause| of_cause(&cause.field, &cause.message)).collect();
    if errors.is_empty() { vec![of_cause("", &status.message)] } else { errors }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(text: &str) -> (Vec<Document>, Vec<String>) {
        let (mut documents, mut errors) = (Vec::new(), Vec::new());
        split(Path::new("m.yaml"), text, &mut documents, &mut errors);
        (documents, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn documents_know_their_place() {
        let text = "# about\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\n---\napiVersion: signpost.dev/v1alpha1\n\
                    kind: Route\nmetadata:\n  name: r\n  namespace: a\n";
        let (documents, errors) = documents(text);
        assert!(errors.is_empty(), "{errors:?}");
        let places: Vec<_> = documents.iter().map(|document| document.location.to_string()).collect();
        assert_eq!(places, ["m.yaml:3: document 1 (Namespace a)", "m.yaml:9: document 2 (Route a/r)"]);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("m.yaml");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
        for path in [fifo, "/dev/zero".into()] {
            let errors = read(&[path]).expect_err("it is not a manifest");
            assert!(errors[0].to_string().ends_with("it is not a regular file"), "{}", errors[0]);
        }
    }

    #[test]
    fn faults_are_located() {
        for (text, part) in [
            ("a: b\n---\na: [1\n", "m.yaml:"),
            (
                "apiVersion: v1\nkind: Namespace\nmetadata: {}\n",
                "m.yaml:1: document 1 (Namespace): metadata.name: Required",
            ),
            ("apiVersion: v1\nkind: Namespace\nkind: Route\nmetadata: {name: a}\n", "m.yaml:3: document 1"),
            ("- 1\n", "apiVersion: Required"),
        ] {
            let (_, errors) = documents(text);
            assert!(errors.iter().any(|error| error.contains(part)), "{text}: {errors:?}");
        }
    }

    #[test]
    fn lists_are_taken_apart() {
        let text = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}]}"#;
        let (documents, errors) = documents(text);
        assert!(errors.is_empty() && documents.len() == 1, "{errors:?}");
    }
}
