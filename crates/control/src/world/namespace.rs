//! Namespaces.

use k8s_openapi::api::core::v1::Namespace;

use super::router::Labels;
use signpost_types::v1alpha1::route::QUOTA_ANNOTATION;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceInfo {
    pub labels: Labels,
    /// The number of its routes that may have a Router.
    pub quota: Quota,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// The limit on the placed routes of a Namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Quota {
    #[default]
    Unlimited,
    /// This many.
    AtMost(u32),
    /// The annotation has this value, which is not a number. As with an invalid selector, nothing is placed, because a typing
    /// error must not lift the quota.
    Unreadable(String),
}

impl Quota {
    fn parse(text: &str) -> Self {
        // `parse` would take a sign as well.
        let is_digits = text.bytes().all(|octet| octet.is_ascii_digit());
        let quota = text.parse().ok().filter(|_| is_digits);
        quota.map_or_else(|| Quota::Unreadable(text.to_owned()), Quota::AtMost)
    }
}

impl From<Namespace> for NamespaceInfo {
    fn from(namespace: Namespace) -> Self {
        let phase = namespace.status.and_then(|status| status.phase);
        let quota = namespace.metadata.annotations.as_ref().and_then(|annotations| annotations.get(QUOTA_ANNOTATION));
        NamespaceInfo {
            quota: quota.map_or(Quota::Unlimited, |text| Quota::parse(text)),
            terminating: namespace.metadata.deletion_timestamp.is_some() || phase.as_deref() == Some("Terminating"),
            labels: namespace.metadata.labels.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        for (annotations, quota) in [
            (serde_json::json!({}), Quota::Unlimited),
            (serde_json::json!({QUOTA_ANNOTATION: "0"}), Quota::AtMost(0)),
            (serde_json::json!({QUOTA_ANNOTATION: "100"}), Quota::AtMost(100)),
            (serde_json::json!({QUOTA_ANNOTATION: " 3"}), Quota::Unreadable(" 3".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: "+3"}), Quota::Unreadable("+3".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: ""}), Quota::Unreadable(String::new())),
            (serde_json::json!({QUOTA_ANNOTATION: "-1"}), Quota::Unreadable("-1".to_owned())),
            (serde_json::json!({QUOTA_ANNOTATION: "many"}), Quota::Unreadable("many".to_owned())),
        ] {
            let object = serde_json::json!({"metadata": {"name": "ns", "annotations": annotations}});
            let namespace: Namespace = serde_json::from_value(object).expect("a Namespace");
            assert_eq!(NamespaceInfo::from(namespace).quota, quota);
        }
    }
}
