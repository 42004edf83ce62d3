//! Parses the target and the verb of a request from its method, path, and query: the first stage of a request.

use std::borrow::Cow;

use http::{HeaderMap, Method, Uri, header};
use percent_encoding::percent_decode_str;

use super::cause::Cause;
use super::error::ApiError;
use super::kind::Kind;
use super::registry::kinds::Kinds;
use super::review::Review;

/// The maximum length of the path and of the query in octets.
const URI_OCTETS_MAX: usize = 128 * 1024;

/// The target of the path.
#[derive(Clone)]
pub enum Target {
    /// A collection or an object of a kind.
    Resource(Resource),
    /// A review, which is answered and not stored.
    Review {
        /// The kind of review.
        review: &'static Review,
        /// The namespace, if the path has one.
        namespace: Option<String>,
    },
    /// Any other path.
    Path(String),
}

/// A collection or an object.
#[derive(Clone)]
pub struct Resource {
    /// The kind of the resource.
    pub kind: &'static Kind,
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// The object, if the path has one.
    pub name: Option<String>,
    /// The part of the path after the object.
    pub subresource: Option<Subresource>,
}

/// The part of an object after its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`.
    Status,
    /// `/finalize` of a namespace.
    Finalize,
}

/// The operation on a [`Resource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read an object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection or an object.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns the verb's name in authorization and discovery.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

impl Subresource {
    /// Returns the last path segment.
    pub fn as_str(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Finalize => "finalize",
        }
    }
}

impl Resource {
    /// Returns the object's key behind the kind's prefix.
    pub fn key(&self) -> String {
        object_key(self.namespace.as_deref(), self.name.as_deref().unwrap_or_default())
    }

    /// Returns the common prefix of all keys of the collection, after the kind's prefix.
    pub fn prefix(&self) -> String {
        match (&self.namespace, self.kind.namespaced) {
            (Some(namespace), true) => format!("{namespace}/"),
            _ => String::new(),
        }
    }

    /// `leases`, or `leases/status`.
    pub fn path(&self) -> String {
        match self.subresource {
            Some(subresource) => format!("{}/{}", self.kind.plural, subresource.as_str()),
            None => self.kind.plural.to_owned(),
        }
    }
}

/// `namespace/name`, or `name` of an object without a namespace.
pub fn object_key(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

impl Target {
    /// Parses the path. A path that is not a resource is a [`Target::Path`].
    pub fn parse(kinds: &Kinds, uri: &Uri) -> Result<Target, ApiError> {
        let path = uri.path();
        if path.len() > URI_OCTETS_MAX || uri.query().is_some_and(|query| query.len() > URI_OCTETS_MAX) {
            return Err(ApiError::new(414, "RequestURITooLong", "the path or the query is too long"));
        }
        let decoded = |segment| percent_decode_str(segment).decode_utf8_lossy();
        let segments: Vec<Cow<'_, str>> = path.trim_matches('/').split('/').map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
        let found = match segments.as_slice() {
            ["api", version, rest @ ..] => Self::in_group(kinds, "", version, rest),
            ["apis", group, version, rest @ ..] if !group.is_empty() => Self::in_group(kinds, group, version, rest),
            _ => None,
        };
        Ok(found.unwrap_or_else(|| Target::Path(path.to_owned())))
    }

    fn in_group(kinds: &Kinds, group: &str, version: &str, rest: &[&str]) -> Option<Target> {
        let in_core = group.is_empty() && version == "v1";
        // `/api/v1/namespaces/x` is a namespace, as are its subresources; every other path below it is inside the namespace.
        match rest {
            ["namespaces", name, subresource @ ("status" | "finalize")] if in_core => {
                return Self::resource(kinds, group, version, "namespaces", None, &[name, subresource]);
            }
            ["namespaces", namespace, plural, rest @ ..] => {
                return Self::resource(kinds, group, version, plural, Some(namespace), rest);
            }
            _ => {}
        }
        let (plural, rest) = rest.split_first()?;
        Self::resource(kinds, group, version, plural, None, rest)
    }

    fn resource(
        kinds: &Kinds,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
        rest: &[&str],
    ) -> Option<Target> {
        if let Some(review) = Review::find(group, version, plural) {
            let matches = rest.is_empty() && review.namespaced == namespace.is_some();
            return matches.then(|| Target::Review { review, namespace: namespace.map(str::to_owned) });
        }
        let kind = kinds.find(group, version, plural)?;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some(*name), None),
            [name, "status"] if kind.has_status => (Some(*name), Some(Subresource::Status)),
            [name, "finalize"] if kind.is_namespace() => (Some(*name), Some(Subresource::Finalize)),
            _ => return None,
        };
        // A namespaced kind without a namespace can only be listed, over all namespaces.
        let misplaced = kind.namespaced != namespace.is_some() && !(namespace.is_none() && name.is_none());
        // An encoded slash must not turn one object's path into another's.
        let odd = |segment: Option<&str>| segment.is_some_and(|segment| segment.is_empty() || segment.contains('/'));
        if misplaced || odd(name) || odd(namespace) {
            return None;
        }
        Some(Target::Resource(Resource {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource,
        }))
    }
}

impl Resource {
    /// Returns the verb of `method` on this resource; 405 if there is none.
    pub fn verb(&self, method: &Method, query: &Query) -> Result<Verb, ApiError> {
        let watch = query.flag("watch");
        let collection = self.name.is_none() && (self.namespace.is_some() || !self.kind.namespaced);
        Ok(match (method.as_str(), self.name.is_some(), self.subresource) {
            ("GET" | "HEAD", _, None) if watch => Verb::Watch,
            ("GET" | "HEAD", false, None) => Verb::List,
            ("GET" | "HEAD", true, None | Some(Subresource::Status)) => Verb::Get,
            ("POST", false, None) if collection => Verb::Create,
            ("PUT", true, _) => Verb::Update,
            ("PATCH", true, None | Some(Subresource::Status)) => Verb::Patch,
            ("DELETE", true, None) => Verb::Delete,
            ("DELETE", false, None) if collection && !self.kind.is_namespace() => Verb::DeleteCollection,
            _ => return Err(ApiError::method_not_allowed()),
        })
    }
}

/// The query's parameters.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query; empty pairs, as in `?&limit=500`, are skipped.
    pub fn parse(uri: &Uri) -> Query {
        let query = uri.query().unwrap_or_default().as_bytes();
        Query(form_urlencoded::parse(query).into_owned().collect())
    }

    /// Returns the first value of a parameter; `None` if it is absent or empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(found, value)| found == key && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns the value, or empty text.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// Returns whether a parameter is `true`, `1` or there without a value.
    pub fn flag(&self, key: &str) -> bool {
        let value = self.0.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
        matches!(value, Some("" | "true" | "True" | "TRUE" | "t" | "T" | "1"))
    }

    /// Returns a number; 400 if it is none.
    pub fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let broken = |_| ApiError::bad_request(format!("{key}: {text:?} is not a whole number of 0 or more"));
        text.parse().map(Some).map_err(broken)
    }

    /// Returns all parameters, as a JSON object of texts.
    pub fn to_map(&self) -> serde_json::Map<String, serde_json::Value> {
        self.0.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect()
    }
}

/// The client's options of a write.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Run all steps except the write.
    pub dry_run: bool,
    /// The treatment of unknown fields.
    pub validation: FieldValidation,
    /// The manager of the fields.
    pub manager: String,
    /// Whether a manager was named.
    pub manager_named: bool,
    /// Whether an apply takes over fields of other managers.
    pub force: Option<bool>,
}

/// The treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Reject the object.
    Strict,
    /// Drop them, with a warning.
    Warn,
    /// Drop them.
    Ignore,
}

/// The maximum length of a field manager's name in octets.
const MANAGER_OCTETS_MAX: usize = 128;

impl WriteOptions {
    /// Parses the options of `options_kind`, such as `CreateOptions`; 422 if one is invalid.
    pub fn parse(query: &Query, headers: &HeaderMap, options_kind: &str) -> Result<WriteOptions, ApiError> {
        let mut causes = Vec::new();
        let mut not_supported = |field: &str, value: &str, supported: &str| {
            let message = format!("Unsupported value: {value:?}: supported values: {supported}");
            causes.push(Cause::new("FieldValueNotSupported", field, message));
        };
        for value in query.all("dryRun").filter(|value| !value.is_empty() && *value != "All") {
            not_supported("dryRun", value, "\"All\"");
        }
        let validation = match query.text("fieldValidation") {
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            other => {
                not_supported("fieldValidation", other, "\"Ignore\", \"Strict\", \"Warn\"");
                FieldValidation::Strict
            }
        };
        let named = query.get("fieldManager");
        if named.is_some_and(|name| name.len() > MANAGER_OCTETS_MAX) {
            let message = format!("Too long: may not be more than {MANAGER_OCTETS_MAX} bytes");
            causes.push(Cause::new("FieldValueTooLong", "fieldManager", message));
        }
        if named.is_some_and(|name| name.chars().any(char::is_control)) {
            let message = "Invalid value: should only contain printable characters";
            causes.push(Cause::new("FieldValueInvalid", "fieldManager", message));
        }
        if !causes.is_empty() {
            return Err(ApiError::invalid_of(options_kind, "meta.k8s.io", "", causes));
        }
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let agent = agent.split('/').next().unwrap_or_default();
        let agent: String = agent.chars().take(MANAGER_OCTETS_MAX).collect();
        let manager = named.map_or(agent, str::to_owned);
        Ok(WriteOptions {
            dry_run: query.get("dryRun").is_some(),
            validation,
            manager: if manager.is_empty() { "unknown".to_owned() } else { manager },
            manager_named: named.is_some(),
            force: query.get("force").map(|_| query.flag("force")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let uri: Uri = "/x?&limit=500&labelSelector=a%3Db%2Cc+in+%28d%29&watch&empty=&bad=%zz".parse().expect("a URI");
        let query = Query::parse(&uri);
        assert_eq!(query.number("limit"), Ok(Some(500)));
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch"));
        assert_eq!(query.get("empty"), None);
        assert_eq!(query.text("bad"), "%zz");
        assert_eq!(query.number("bad").map_err(|error| error.code), Err(400));
    }
}
