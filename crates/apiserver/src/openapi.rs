//! OpenAPI v3: an index and a document for each group version, made from the kinds' schemas.
//!
//! kubectl uses these documents to validate, explain, and edit. A document's URL contains the digest of its content, so clients
//! cache it indefinitely.
//!
//! Of version 2, there is a document without paths and definitions. kubectl requires it before it sends a `List`, and before it
//! reports a kind as unknown. In both cases, it ignores version 3, and accepts an object that version 2 does not describe.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest as hash};
use axum::response::Response;
use bytes::Bytes;
use data_encoding::HEXUPPER;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use prost::Message;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::kind::Kind;
use super::negotiate::accepted;
use super::registry::kinds::Kinds;
use super::request::Query;
use super::{Product, Shared, respond, strategic_merge};

struct Document {
    body: Bytes,
    digest: String,
}

/// The documents of a server, by their paths below `/openapi/v3/`, and their index.
pub struct Documents {
    by_path: BTreeMap<String, Document>,
    index: String,
}

impl Documents {
    fn of(product: &Product, kinds: &Kinds) -> Documents {
        let mut groups: BTreeMap<String, Vec<&'static Kind>> = BTreeMap::new();
        for kind in kinds.iter() {
            groups.entry(root(kind)).or_default().push(kind);
        }
        let documents = groups.into_iter().map(|(path, kinds)| {
            let body = Bytes::from(document(product, &kinds).to_string());
            let digest = digest(&body);
            (path, Document { body, digest })
        });
        let by_path: BTreeMap<String, Document> = documents.collect();
        let paths = by_path.iter().map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.digest);
            (path.clone(), json!({"serverRelativeURL": url}))
        });
        let index = json!({"paths": paths.collect::<Map<_, _>>()}).to_string();
        Documents { by_path, index }
    }
}

/// Returns a digest of some content, as in a document's URL.
pub fn digest(content: &[u8]) -> String {
    HEXUPPER.encode(hash(&SHA256, content).as_ref())
}

/// The media type of version 2 in protobuf.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name under which kubectl requests it. It is not a valid media type, so the response must not use it.
const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// A document of version 2: the required fields, with their numbers in gnostic's `OpenAPIv2.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct V2 {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<V2Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<V2Paths>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct V2Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct V2Paths {}

fn v2(product: &Product, headers: &HeaderMap) -> Response {
    let (title, version) = (product.title.to_owned(), product.version.to_owned());
    let in_protobuf = |name: &str| name == V2_PROTOBUF || name == V2_PROTOBUF_ASKED;
    match accepted(headers).iter().any(|range| in_protobuf(&range.media_type)) {
        true => {
            let info = Some(V2Info { title, version });
            let document = V2 { swagger: "2.0".to_owned(), info, paths: Some(V2Paths {}) };
            respond::typed(StatusCode::OK, V2_PROTOBUF, document.encode_to_vec())
        }
        false => {
            let document = json!({"swagger": "2.0", "info": {"title": title, "version": version}, "paths": {}});
            respond::json(StatusCode::OK, document.to_string())
        }
    }
}

/// Answers `/openapi/v3…` and `/openapi/v2`; `None` for others.
pub(crate) fn answer(
    server: &Shared,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Option<Result<Response, ApiError>> {
    if path == "/openapi/v2" {
        return Some(Ok(v2(&server.product, headers)));
    }
    let below = path.strip_prefix("/openapi/v3")?.trim_matches('/');
    let documents = server.openapi.get_or_init(|| Documents::of(&server.product, &server.kinds));
    if below.is_empty() {
        return Some(Ok(respond::json(StatusCode::OK, documents.index.clone())));
    }
    let document = documents.by_path.get(below)?;
    let etag = format!("\"{}\"", document.digest);
    let wanted = query.get("hash");
    let mut response = match wanted {
        Some(hash) if hash != document.digest => respond::typed(StatusCode::MOVED_PERMANENTLY, "application/json", ""),
        _ if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) => {
            respond::typed(StatusCode::NOT_MODIFIED, "application/json", "")
        }
        _ => respond::json(StatusCode::OK, document.body.clone()),
    };
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    match wanted {
        Some(hash) if hash != document.digest => {
            set(header::LOCATION, &format!("/openapi/v3/{below}?hash={}", document.digest));
        }
        Some(_) => set(header::CACHE_CONTROL, "public, immutable"),
        None => {}
    }
    set(header::ETAG, &etag);
    set(header::VARY, "Accept");
    Some(Ok(response))
}

/// `api/v1`, or `apis/<group>/<version>`.
fn root(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

/// Returns the name of a kind's schema: `io.k8s.coordination.v1.Lease`.
fn component(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { kind.group };
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
}

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

fn document(product: &Product, kinds: &[&Kind]) -> Value {
    let mut paths = Map::new();
    let mut schemas = shared_schemas();
    for kind in kinds {
        let mut schema = kind.schema.document().clone();
        if kind.is_built_in {
            strategic_merge::describe_lists(&mut schema);
        }
        schema["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
        schemas.insert(component(kind), schema);
        schemas.insert(format!("{}List", component(kind)), list_schema(kind));
        add_paths(&mut paths, kind);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": product.title, "version": product.version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {"type": "apiKey", "in": "header", "name": "authorization",
                "description": "Bearer Token authentication"}},
        },
    })
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list_schema(kind: &Kind) -> Value {
    json!({
        "type": "object",
        "description": format!("{}List is a list of {}.", kind.kind, kind.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this representation of the list."},
            "kind": {"type": "string", "description": format!("{}List.", kind.kind)},
            "metadata": {"allOf": [reference(LIST_META)], "description": "Metadata of the list."},
            "items": {"type": "array", "description": "The objects.", "items": reference(&component(kind))},
        },
        "x-kubernetes-group-version-kind":
            [{"group": kind.group, "version": kind.version, "kind": format!("{}List", kind.kind)}],
    })
}

fn add_paths(paths: &mut Map<String, Value>, kind: &Kind) {
    let all = format!("/{}/{}", root(kind), kind.plural);
    let collection = match kind.namespaced {
        true => format!("/{}/namespaces/{{namespace}}/{}", root(kind), kind.plural),
        false => all.clone(),
    };
    let object = format!("{collection}/{{name}}");
    let schema = component(kind);
    let list = format!("{schema}List");
    let mut collection_item = json!({
        "get": operation(kind, "list", "list", kind.kind, &list_parameters(), None, &[("200", &list)]),
        "post": operation(
            kind, "post", "create", kind.kind, &write_parameters(), Some(&body(&schema)),
            &[("200", &schema), ("201", &schema), ("202", &schema)],
        ),
    });
    if !kind.is_namespace() {
        let delete = body(DELETE_OPTIONS);
        collection_item["delete"] = operation(
            kind,
            "deletecollection",
            "deleteCollection",
            kind.kind,
            &list_parameters(),
            Some(&delete),
            &[("200", STATUS)],
        );
    }
    with_parameters(&mut collection_item, kind.namespaced, false);
    if kind.namespaced {
        let mut everywhere = json!({
            "get": operation(kind, "list", "listForAllNamespaces", kind.kind, &list_parameters(), None, &[("200", &list)]),
        });
        with_parameters(&mut everywhere, false, false);
        paths.insert(all, everywhere);
    }
    paths.insert(collection, collection_item);
    let mut object_item = object_operations(kind, "", &schema);
    object_item["delete"] = operation(
        kind,
        "delete",
        "delete",
        kind.kind,
        &delete_parameters(),
        Some(&body(DELETE_OPTIONS)),
        &[("200", STATUS), ("202", STATUS)],
    );
    with_parameters(&mut object_item, kind.namespaced, true);
    paths.insert(object.clone(), object_item);
    if kind.has_status {
        let mut status = object_operations(kind, "Status", &schema);
        with_parameters(&mut status, kind.namespaced, true);
        paths.insert(format!("{object}/status"), status);
    }
}

fn object_operations(kind: &Kind, suffix: &str, schema: &str) -> Value {
    let name = format!("{}{suffix}", kind.kind);
    let mut patch_parameters = write_parameters();
    patch_parameters.push(parameter(
        "force",
        "boolean",
        "Whether an apply takes ownership of fields of other managers.",
    ));
    json!({
        "get": operation(kind, "get", "read", &name, &[], None, &[("200", schema)]),
        "put": operation(
            kind, "put", "replace", &name, &write_parameters(), Some(&body(schema)), &[("200", schema), ("201", schema)],
        ),
        "patch": operation(
            kind, "patch", "patch", &name, &patch_parameters, Some(&patch_body(kind)), &[("200", schema), ("201", schema)],
        ),
    })
}

fn operation(
    kind: &Kind,
    action: &str,
    verb: &str,
    name: &str,
    parameters: &[Value],
    body: Option<&Value>,
    answers: &[(&str, &str)],
) -> Value {
    let group: String = match kind.group {
        "" => "Core".to_owned(),
        group => group.split(['.', '-']).map(capitalized).collect(),
    };
    let scope = if kind.namespaced && !verb.ends_with("Namespaces") { "Namespaced" } else { "" };
    let answers: Map<String, Value> = answers
        .iter()
        .map(|(code, schema)| {
            let content = json!({"application/json": {"schema": reference(schema)}});
            ((*code).to_owned(), json!({"description": "OK", "content": content}))
        })
        .collect();
    let mut operation = json!({
        "operationId": format!("{verb}{group}{}{scope}{name}", capitalized(kind.version)),
        "description": format!("{verb} {name}"),
        "tags": [format!("{}_{}", if kind.group.is_empty() { "core" } else { kind.group }, kind.version)],
        "responses": answers,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(kind),
    });
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = body {
        operation["requestBody"] = body.clone();
    }
    operation
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + characters.as_str())
}

fn body(schema: &str) -> Value {
    json!({"required": schema != DELETE_OPTIONS, "content": {"application/json": {"schema": reference(schema)}}})
}

/// Returns the patch types that the kind accepts. kubectl sends a strategic merge patch if one is listed here.
fn patch_body(kind: &Kind) -> Value {
    let mut types = vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    if kind.is_built_in {
        types.push("application/strategic-merge-patch+json");
    }
    let content: Map<String, Value> =
        types.into_iter().map(|name| (name.to_owned(), json!({"schema": reference(PATCH)}))).collect();
    json!({"required": true, "content": content})
}

fn parameter(name: &str, r#type: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": r#type, "uniqueItems": true}})
}

fn write_parameters() -> Vec<Value> {
    vec![
        parameter("dryRun", "string", "`All`: process the request, but do not write."),
        parameter("fieldManager", "string", "Name of the manager that owns the written fields."),
        parameter("fieldValidation", "string", "Handling of unknown fields: `Strict`, `Warn`, or `Ignore`."),
    ]
}

fn delete_parameters() -> Vec<Value> {
    vec![
        parameter("dryRun", "string", "`All`: process the request, but do not write."),
        parameter("gracePeriodSeconds", "integer", "Accepted and ignored."),
        parameter("propagationPolicy", "string", "Handling of dependents: `Orphan`, `Background`, or `Foreground`."),
    ]
}

fn list_parameters() -> Vec<Value> {
    vec![
        parameter("allowWatchBookmarks", "boolean", "Whether a watch sends bookmarks."),
        parameter("continue", "string", "The token from the previous page."),
        parameter("fieldSelector", "string", "Restricts the result to objects with these fields."),
        parameter("labelSelector", "string", "Restricts the result to objects with these labels."),
        parameter("limit", "integer", "Maximum number of objects on a page."),
        parameter("resourceVersion", "string", "The version from which a watch starts, or at which a read is made."),
        parameter("resourceVersionMatch", "string", "Interpretation of `resourceVersion`: `Exact` or `NotOlderThan`."),
        parameter("sendInitialEvents", "boolean", "Whether a watch starts with the existing objects."),
        parameter("timeoutSeconds", "integer", "Maximum duration of a watch."),
        parameter("watch", "boolean", "Whether to watch for changes."),
    ]
}

fn with_parameters(item: &mut Value, namespaced: bool, named: bool) {
    let in_path = |name: &str, description: &str| {
        json!({"name": name, "in": "path", "required": true, "description": description,
            "schema": {"type": "string", "uniqueItems": true}})
    };
    let mut parameters = vec![parameter("pretty", "string", "Accepted and ignored.")];
    if named {
        parameters.push(in_path("name", "Name of the object."));
    }
    if namespaced {
        parameters.push(in_path("namespace", "Namespace of the object."));
    }
    item["parameters"] = json!(parameters);
}

fn shared_schemas() -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "description": description});
    let object = |description: &str, properties: Value| json!({"type": "object", "description": description, "properties": properties});
    let mut schemas = Map::new();
    schemas.insert(PATCH.into(), object("A patch of an object.", json!({})));
    schemas.insert(
        LIST_META.into(),
        object(
            "Metadata of a list.",
            json!({
                "continue": text("The token of the next page, if there is one."),
                "remainingItemCount": number("Number of objects on the remaining pages."),
                "resourceVersion": text("The version of the list; a watch can start from it."),
                "selfLink": text("Not used."),
            }),
        ),
    );
    schemas.insert(
        DELETE_OPTIONS.into(),
        object("Options of a deletion.", json!({
            "apiVersion": text("Version of this representation."),
            "kind": text("DeleteOptions."),
            "dryRun": {"type": "array", "items": {"type": "string"}, "description": "`All`: process the request, but do not delete."},
            "gracePeriodSeconds": number("Accepted and ignored."),
            "orphanDependents": {"type": "boolean", "description": "The older form of `propagationPolicy: Orphan`."},
            "preconditions": object("Preconditions of the deletion.", json!({
                "resourceVersion": text("The required version of the object."),
                "uid": text("The required UID of the object."),
            })),
            "propagationPolicy": text("Handling of dependents: `Orphan`, `Background`, or `Foreground`."),
        })),
    );
    schemas.insert(
        STATUS.into(),
        object(
            "The outcome of a request.",
            json!({
                "apiVersion": text("Version of this representation."),
                "kind": text("Status."),
                "metadata": {"allOf": [reference(LIST_META)], "description": "Metadata."},
                "status": text("`Success` or `Failure`."),
                "code": number("The HTTP status."),
                "message": text("A human-readable description of the outcome."),
                "reason": text("A machine-readable reason in CamelCase."),
                "details": object("The object of a failed request, and the causes.", json!({})),
            }),
        ),
    );
    schemas
}
