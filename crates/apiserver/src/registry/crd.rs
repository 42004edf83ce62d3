//! Our own kinds: schemas and CustomResourceDefinitions from the Rust types of [`signpost_api`].
//!
//! The same schema serves the server's validation, the OpenAPI documents, and the definitions for a real cluster, so the
//! three cannot disagree.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, SelectableField,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::{cel, metadata};
use crate::schema::structural;
use signpost_api::v1alpha1::{brake, name_claim, route, route_binding, router, zone};

/// The schema of a whole object of the kind `T`, metadata included.
pub(super) fn schema_of<T: CustomResourceExt>() -> Value {
    metadata::complete(declared_schema(&T::crd()))
}

/// The schema that a definition holds, made structural.
fn declared_schema(definition: &CustomResourceDefinition) -> Value {
    let schema =
        definition.spec.versions.first().and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let schema = schema.expect("kube derives one version with a schema");
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    structural::make_structural(&mut schema);
    schema
}

/// The definitions of our kinds for a real cluster, with rules in CEL, printer columns and selectable fields. Rules about
/// the platform's domain are there if it is given.
///
/// A real cluster computes columns from JSON paths, which cannot join or count, so there are fewer than our server has.
pub fn crds(domain: Option<&str>) -> Vec<CustomResourceDefinition> {
    vec![
        crd::<router::Router>(
            domain,
            &[
                ("DNS", "string", ".spec.dns", 0),
                ("State", "string", ".spec.state", 0),
                // A cluster shows the first thing that a path finds.
                ("Addresses", "string", ".spec.addresses[*].ip", 0),
                ("Routes", "integer", ".status.routes", 0),
                ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
                ("Mode", "string", ".spec.mode", 1),
                AGE,
            ],
        ),
        crd::<route::Route>(
            domain,
            &[
                ("Host", "string", ".spec.host", 0),
                ("DNS", "string", ".status.dns", 0),
                ("Router", "string", ".status.router", 0),
                ("Phase", "string", ".status.phase", 0),
                // Not "Live": of a custom host that takes both, which a path cannot join.
                ("Resolvable", "string", ".status.conditions[?(@.type==\"Resolvable\")].status", 0),
                ("Points Here", "string", ".status.conditions[?(@.type==\"HostPointsHere\")].status", 0),
                ("Reason", "string", ".status.conditions[?(@.type==\"Scheduled\")].reason", 1),
                AGE,
            ],
        ),
        crd::<route_binding::RouteBinding>(
            domain,
            &[
                ("Router", "string", ".spec.router", 0),
                ("DNS", "string", ".spec.dns", 0),
                ("Strategy", "string", ".spec.strategy", 0),
                AGE,
            ],
        ),
        crd::<name_claim::NameClaim>(
            domain,
            &[
                ("Type", "string", ".spec.type", 0),
                ("Value", "string", ".spec.value", 0),
                ("Namespace", "string", ".spec.holder.namespace", 0),
                ("Holder", "string", ".spec.holder.name", 0),
                ("Released", "date", ".spec.releasedAt", 0),
                AGE,
            ],
        ),
        crd::<zone::Zone>(
            domain,
            &[
                ("Type", "string", ".spec.type", 0),
                ("Serial", "integer", ".spec.versions[0].serial", 0),
                ("Digest", "string", ".spec.versions[0].digest", 1),
                AGE,
            ],
        ),
        crd::<brake::Brake>(
            domain,
            &[
                ("Type", "string", ".spec.type", 0),
                ("Objects", "integer", ".status.objects", 0),
                ("Known", "integer", ".status.known", 0),
                ("Cause", "string", ".spec.cause", 0),
                ("Decision", "string", ".spec.decision", 0),
                AGE,
            ],
        ),
    ]
}

const AGE: (&str, &str, &str, i32) = ("Age", "date", ".metadata.creationTimestamp", 0);

fn crd<T: CustomResourceExt>(domain: Option<&str>, columns: &[(&str, &str, &str, i32)]) -> CustomResourceDefinition {
    let mut definition = T::crd();
    let mut schema = declared_schema(&definition);
    cel::add(&definition.spec.names.kind, &mut schema, domain);
    let kind = super::known(&definition.spec.names.kind);
    let version = definition.spec.versions.first_mut().expect("kube derives one version");
    if let Some(validation) = &mut version.schema {
        let schema: JSONSchemaProps = serde_json::from_value(schema).expect("it was one before it was made structural");
        validation.open_api_v3_schema = Some(schema);
    }
    let columns = columns.iter().map(|(name, kind, path, priority)| CustomResourceColumnDefinition {
        name: (*name).to_owned(),
        type_: (*kind).to_owned(),
        json_path: (*path).to_owned(),
        priority: Some(*priority),
        ..Default::default()
    });
    version.additional_printer_columns = Some(columns.collect());
    let fields = kind.selectable_fields.iter().map(|path| SelectableField { json_path: format!(".{path}") });
    version.selectable_fields = Some(fields.collect::<Vec<_>>()).filter(|fields| !fields.is_empty());
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of what `declared` says beyond `served`; panics where they disagree.
    fn added_beyond(served: &Value, declared: &Value, path: &str) -> Vec<String> {
        match (served, declared) {
            (Value::Object(served), Value::Object(declared)) => {
                assert!(served.keys().all(|name| declared.contains_key(name)), "{path} lacks something");
                let inner = declared.iter().flat_map(|(name, value)| {
                    let path = format!("{path}.{name}");
                    match served.get(name) {
                        Some(served) => added_beyond(served, value, &path),
                        None => vec![path],
                    }
                });
                inner.collect()
            }
            _ => {
                assert_eq!(served, declared, "{path}");
                Vec::new()
            }
        }
    }

    #[test]
    fn the_definitions_hold_the_servers_schemas() {
        let definitions = crds(None);
        assert_eq!(definitions.len(), 6);
        for definition in definitions {
            let text = serde_json::to_string(&definition).unwrap();
            assert!(!text.contains("nullable"), "{text}");
            assert!(!text.contains("uint"), "{text}");
            assert!(text.contains("additionalPrinterColumns"));
            let kind = super::super::known(&definition.spec.names.kind);
            let served = &kind.schema.document()["properties"]["spec"];
            let added = added_beyond(served, &declared_schema(&definition)["properties"]["spec"], "spec");
            let allowed = ["x-kubernetes-validations", "maxLength", "enum"];
            assert!(
                added.iter().all(|path| allowed.iter().any(|name| path.ends_with(name))),
                "{} {added:?}",
                kind.kind
            );
            assert_eq!(definition.spec.names.plural, kind.plural);
            assert_eq!(definition.spec.names.singular.as_deref(), Some(kind.singular));
            assert_eq!(definition.spec.names.short_names.unwrap_or_default(), kind.short_names);
            assert_eq!(definition.spec.names.categories.unwrap_or_default(), kind.categories);
            assert_eq!(definition.spec.scope == "Namespaced", kind.namespaced);
            assert_eq!(definition.spec.versions[0].subresources.is_some(), kind.has_status);
        }
    }
}
