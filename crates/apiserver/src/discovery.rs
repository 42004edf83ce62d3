//! Discovery: the groups, versions, and resources, in the aggregated format and in the older one.

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::error::ApiError;
use super::json_scan::present;
use super::kind::Kind;
use super::negotiate::accepted;
use super::registry::kinds::Kinds;
use super::respond;
use super::review::REVIEWS;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource of either sort in discovery.
struct Served {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    verbs: &'static [&'static str],
    subresources: &'static [(&'static str, &'static [&'static str])],
}

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS: &[(&str, &[&str])] = &[("status", &["get", "patch", "update"])];
const NAMESPACE_SUBRESOURCES: &[(&str, &[&str])] =
    &[("finalize", &["update"]), ("status", &["get", "patch", "update"])];

/// Answers discovery's paths; `None` for others.
pub fn answer(kinds: &Kinds, path: &str, headers: &HeaderMap) -> Option<Result<Response, ApiError>> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let document = match segments.as_slice() {
        ["api"] | ["apis"] if wants_aggregated(headers) => {
            return Some(Ok(aggregated(kinds, path.contains("apis"), headers)));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups(kinds).into_iter().filter(|(group, _)| !group.is_empty()).map(group).collect::<Value>(),
        }),
        ["apis", name] => {
            let found = groups(kinds).into_iter().find(|(group, _)| group == name && !group.is_empty())?;
            let mut document = group(found);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }
        ["api", version] => resource_list(kinds, "", version)?,
        ["apis", group, version] if !group.is_empty() => resource_list(kinds, group, version)?,
        _ => return None,
    };
    Some(Ok(respond::json(StatusCode::OK, document.to_string())))
}

/// Returns whether the path is in a served API group of Kubernetes. As in kube-apiserver, an unknown resource there gets a
/// Status, while an unknown resource among custom resources gets plain text.
pub fn is_in_built_in_group(kinds: &Kinds, path: &str) -> bool {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["api", _, ..] => true,
        ["apis", name, _, ..] => {
            kinds.iter().any(|kind| kind.group == *name && kind.is_built_in)
                || REVIEWS.iter().any(|review| review.group == *name)
        }
        _ => false,
    }
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    let aggregated = ["apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"];
    accepted(headers)
        .iter()
        .filter(|range| range.media_type == "application/json")
        .map(|range| ["g", "v", "as"].map(|name| range.parameter(name)))
        .take_while(|[.., form]| !form.is_empty())
        .any(|parameters| parameters == aggregated)
}

fn aggregated(kinds: &Kinds, named: bool, headers: &HeaderMap) -> Response {
    let items: Vec<Value> = groups(kinds)
        .into_iter()
        .filter(|(group, _)| group.is_empty() != named)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = served(kinds, group, version).iter().map(Served::aggregated).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let body = document.to_string();
    let etag = format!("\"{}\"", super::openapi::digest(body.as_bytes()));
    let unchanged = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = match unchanged {
        true => respond::typed(StatusCode::NOT_MODIFIED, AGGREGATED, ""),
        false => respond::typed(StatusCode::OK, AGGREGATED, body),
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Returns every group with its versions, in the order of the registry.
fn groups(kinds: &Kinds) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    let kinds = kinds.iter().map(|kind| (kind.group, kind.version));
    for (group, version) in kinds.chain(REVIEWS.iter().map(|review| (review.group, review.version))) {
        match groups.iter_mut().find(|(found, _)| *found == group) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => groups.push((group, vec![version])),
        }
    }
    groups
}

fn group((name, versions): (&str, Vec<&str>)) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in served(kinds, group, version) {
        resources.push(resource.listed());
        for (subresource, verbs) in resource.subresources {
            resources.push(json!({
                "name": format!("{}/{subresource}", resource.plural), "singularName": "", "kind": resource.kind,
                "namespaced": resource.namespaced, "verbs": verbs,
            }));
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    })
}

/// Returns the resources of a version of a group, sorted by name as kube-apiserver lists them.
fn served(kinds: &Kinds, group: &str, version: &str) -> Vec<Served> {
    let stored = kinds.iter().map(Served::from);
    let reviews = REVIEWS.iter().map(|review| Served {
        group: review.group,
        version: review.version,
        kind: review.kind,
        plural: review.plural,
        singular: review.plural.strip_suffix('s').unwrap_or(review.plural),
        namespaced: review.namespaced,
        short_names: &[],
        categories: &[],
        verbs: &["create"],
        subresources: &[],
    });
    let all = stored.chain(reviews);
    let mut found: Vec<Served> = all.filter(|served| served.group == group && served.version == version).collect();
    found.sort_by_key(|served| served.plural);
    found
}

impl From<&'static Kind> for Served {
    fn from(kind: &'static Kind) -> Self {
        Served {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            plural: kind.plural,
            singular: kind.aliases.singular,
            namespaced: kind.namespaced,
            short_names: kind.aliases.short_names,
            categories: kind.aliases.categories,
            verbs: if kind.is_namespace() { NAMESPACE_VERBS } else { ALL_VERBS },
            subresources: match kind.has_status {
                _ if kind.is_namespace() => NAMESPACE_SUBRESOURCES,
                true => STATUS,
                false => &[],
            },
        }
    }
}

impl Served {
    fn aggregated(&self) -> Value {
        let response_kind = json!({"group": self.group, "version": self.version, "kind": self.kind});
        let one = |(name, verbs): &(&str, &[&str])| json!({"subresource": name, "responseKind": response_kind, "verbs": verbs});
        present(json!({
            "resource": self.plural, "responseKind": response_kind, "singularResource": self.singular,
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" }, "verbs": self.verbs,
            "shortNames": not_empty(self.short_names), "categories": not_empty(self.categories),
            "subresources": not_empty(&self.subresources.iter().map(one).collect::<Vec<_>>()),
        }))
    }

    fn listed(&self) -> Value {
        present(json!({
            "name": self.plural, "singularName": self.singular, "namespaced": self.namespaced, "kind": self.kind,
            "verbs": self.verbs, "shortNames": not_empty(self.short_names), "categories": not_empty(self.categories),
        }))
    }
}

fn not_empty<T>(list: &[T]) -> Option<&[T]> {
    Some(list).filter(|list| !list.is_empty())
}
