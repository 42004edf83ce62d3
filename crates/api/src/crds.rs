//! CustomResourceDefinitions of Signpost's kinds, for a Kubernetes cluster that serves them itself.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::crd::{self, AGE, PrinterColumn};

use crate::kinds;
use crate::rules::{self, Rule};
use signpost_types::names::RESERVED_LABELS;
use signpost_types::v1alpha1;

const ROUTE_COLUMNS: [PrinterColumn; 10] = [
    ("Host", "string", ".spec.host", 0),
    ("DNS", "string", ".status.dns", 0),
    ("Router", "string", ".status.router", 0),
    ("Phase", "string", ".status.phase", 0),
    // Not "Live": for a custom host, that depends on two conditions, which a path cannot join.
    ("Points Here", "string", ".status.conditions[?(@.type==\"HostPointsHere\")].status", 0),
    ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
    ("Reason", "string", ".status.conditions[?(@.type==\"Scheduled\")].reason", 1),
    ("Canonical-Name", "string", ".status.canonicalName", 1),
    ("Source", "string", ".metadata.annotations.signpost\\.dev/source-object", 1),
    AGE,
];

/// Returns the definitions of Signpost's kinds for a real cluster, with rules in CEL, printer columns and selectable fields. Rules about
/// the platform's domain are there if it is given.
pub fn crds(domain: Option<&str>) -> Vec<CustomResourceDefinition> {
    vec![
        crd::<v1alpha1::router::Router>(
            &kinds::router::ROUTER,
            domain,
            &[
                ("DNS", "string", ".spec.dns", 0),
                ("State", "string", ".spec.state", 0),
                // A cluster shows only the first value that a path finds.
                ("Addresses", "string", ".spec.addresses[*].ip", 0),
                // Not "2/2", which takes two fields.
                ("Instances", "integer", ".status.readyInstances", 0),
                ("Routes", "integer", ".status.routes", 0),
                ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
                ("Mode", "string", ".spec.mode", 1),
                ("Endpoints", "integer", ".status.instances[*].endpoints", 1),
                ("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason", 1),
                AGE,
            ],
        ),
        crd::<v1alpha1::route::Route>(&kinds::route::ROUTE, domain, &ROUTE_COLUMNS),
        crd::<v1alpha1::route_binding::RouteBinding>(
            &kinds::route_binding::ROUTE_BINDING,
            domain,
            &[
                ("Router", "string", ".spec.router", 0),
                ("DNS", "string", ".spec.dns", 0),
                ("Strategy", "string", ".spec.strategy", 0),
                AGE,
            ],
        ),
        crd::<v1alpha1::name_claim::NameClaim>(
            &kinds::name_claim::NAME_CLAIM,
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
        crd::<v1alpha1::zone::Zone>(
            &kinds::zone::ZONE,
            domain,
            &[
                ("Type", "string", ".spec.type", 0),
                ("Serial", "integer", ".spec.versions[0].serial", 0),
                ("Digest", "string", ".spec.versions[0].digest", 1),
                AGE,
            ],
        ),
        crd::<v1alpha1::deletion_hold::DeletionHold>(
            &kinds::deletion_hold::DELETION_HOLD,
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
        crd::<v1alpha1::challenge_record::ChallengeRecord>(
            &kinds::challenge_record::CHALLENGE_RECORD,
            domain,
            &[
                ("Name", "string", ".spec.name", 0),
                ("Key", "string", ".spec.key", 0),
                ("Expires", "string", ".spec.expiresAt", 0),
                AGE,
                ("Value", "string", ".spec.value", 1),
            ],
        ),
    ]
}

fn crd<T: CustomResourceExt>(kind: &Kind, domain: Option<&str>, columns: &[PrinterColumn]) -> CustomResourceDefinition {
    crd::definition::<T>(kind, columns, |schema| rules::declare(&rules_of(kind.kind, domain), schema))
}

pub(crate) fn rules_of(kind: &str, domain: Option<&str>) -> Vec<Rule> {
    match kind {
        "Router" => kinds::router::rules::rules(domain),
        "Route" => kinds::route::rules::rules(domain, &RESERVED_LABELS.map(str::to_owned)),
        "RouteBinding" => kinds::route_binding::rules(domain),
        "NameClaim" => kinds::name_claim::rules(),
        "Zone" => kinds::zone::rules(),
        "DeletionHold" => kinds::deletion_hold::rules(),
        "ChallengeRecord" => kinds::challenge_record::rules(domain),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::fixture::known;
    use serde_json::Value;
    use signpost_apiserver::kind::schemas::declared_schema;

    /// Returns the paths in `declared` that `served` lacks. Panics where they differ in a common path.
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
        assert_eq!(definitions.len(), 7);
        for definition in definitions {
            let text = serde_json::to_string(&definition).unwrap();
            assert!(!text.contains("nullable"), "{text}");
            assert!(!text.contains("uint"), "{text}");
            assert!(text.contains("additionalPrinterColumns"));
            let kind = known(&definition.spec.names.kind);
            let served = &kind.schema.document()["properties"]["spec"];
            let added = added_beyond(served, &declared_schema(&definition)["properties"]["spec"], "spec");
            let allowed = ["x-kubernetes-validations", "maxLength", "enum"];
            assert!(
                added.iter().all(|path| allowed.iter().any(|name| path.ends_with(name))),
                "{} {added:?}",
                kind.kind
            );
            assert_eq!(definition.spec.names.plural, kind.plural);
            assert_eq!(definition.spec.names.singular.as_deref(), Some(kind.aliases.singular));
            assert_eq!(definition.spec.names.short_names.unwrap_or_default(), kind.aliases.short_names);
            assert_eq!(definition.spec.names.categories.unwrap_or_default(), kind.aliases.categories);
            assert_eq!(definition.spec.scope == "Namespaced", kind.namespaced);
            assert_eq!(definition.spec.versions[0].subresources.is_some(), kind.has_status);
        }
    }
}
