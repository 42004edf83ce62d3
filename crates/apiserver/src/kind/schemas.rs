//! The structural schemas of whole objects, derived from Rust types.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::schema::structural;

/// Returns the schema of a whole object of a kind that derives [`kube::CustomResource`], metadata included.
pub(super) fn of_custom<T: CustomResourceExt>() -> Value {
    complete(declared_schema(&T::crd()))
}

/// Returns the schema of a complete object of a built-in kind: the schema of its Rust type, with the metadata of all kinds.
pub(crate) fn of_built_in<T: schemars::JsonSchema>() -> Value {
    let mut schema = of_type::<T>();
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.iter_mut().filter(|(name, _)| *name != "metadata").for_each(|(_, field)| structural::bound(field));
    }
    complete(schema)
}

/// Returns the schema that a definition holds, made structural.
pub fn declared_schema(definition: &CustomResourceDefinition) -> Value {
    let schema =
        definition.spec.versions.first().and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let schema = schema.expect("kube derives one version with a schema");
    let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
    structural::make_structural(&mut schema);
    schema
}

/// Returns a kind's schema with `apiVersion`, `kind` and `metadata`.
fn complete(mut schema: Value) -> Value {
    schema["properties"]["apiVersion"] = json!({"type": "string", "maxLength": 317, "description":
        "Version of this representation of the object, such as `coordination.k8s.io/v1`: API group and version."});
    schema["properties"]["kind"] = json!({"type": "string", "maxLength": 63, "description": "The kind of the object, in CamelCase, such as `Lease`."});
    schema["properties"]["metadata"] = metadata();
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != "metadata");
    }
    schema
}

/// Returns the schema of `metadata`, with a description for each field.
pub(crate) fn metadata() -> Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = of_type::<ObjectMeta>();
        schema["description"] = json!("Standard metadata of the object: its name, namespace, labels and annotations.");
        schema
    });
    SCHEMA.clone()
}

/// Returns the structural schema of a Rust type.
fn of_type<T: schemars::JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    structural::make_structural(&mut schema);
    schema
}
