//! CustomResourceDefinitions of kinds, for a real cluster.
//!
//! The same schema serves the server's validation, the OpenAPI documents, and the definitions, so the three cannot differ.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, SelectableField,
};
use kube::CustomResourceExt;
use serde_json::Value;

use super::Kind;
use super::schemas::declared_schema;

/// A printer column of a definition: name, type, JSON path, priority.
pub type PrinterColumn = (&'static str, &'static str, &'static str, i32);

/// The printer column AGE.
pub const AGE: PrinterColumn = ("Age", "date", ".metadata.creationTimestamp", 0);

/// Returns the definition of the kind `T`, served here as `kind`, with its selectable fields and these printer columns. `add` may
/// add to the schema, such as rules in CEL.
///
/// A real cluster computes columns from JSON paths, which cannot join or count, so there may be fewer than the kind has here.
pub fn definition<T: CustomResourceExt>(
    kind: &Kind,
    columns: &[PrinterColumn],
    add: impl FnOnce(&mut Value),
) -> CustomResourceDefinition {
    let mut definition = T::crd();
    let mut schema = declared_schema(&definition);
    add(&mut schema);
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
