//! Reviews: queries about permissions and identities, answered from the rule table and never stored.

use serde_json::{Value, json};

use super::auth::identity::Identity;
use super::auth::impersonate::Subject;
use super::auth::rules::{Access, Authorizer, Decision};
use super::cause::Cause;
use super::error::ApiError;
use super::json_scan::present;

/// A kind of review.
pub struct Review {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

/// All reviews.
pub static REVIEWS: &[Review] = &[
    review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
    review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"),
    Review {
        group: "authorization.k8s.io",
        version: "v1",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
    },
];

const fn review(group: &'static str, kind: &'static str, plural: &'static str) -> Review {
    Review { group, version: "v1", kind, plural, namespaced: false }
}

impl Review {
    /// Returns the review served at that path.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
        REVIEWS.iter().find(|review| review.plural == plural && review.group == group && review.version == version)
    }

    /// Answers a review; its body may leave out `apiVersion` and `kind`.
    pub fn answer(
        &self,
        authorizer: &dyn Authorizer,
        subject: &Subject,
        namespace: Option<&str>,
        mut asked: Value,
    ) -> Result<Value, ApiError> {
        if !asked.is_object() {
            return Err(ApiError::bad_request("the body of a review must be an object"));
        }
        let api_version = format!("{}/{}", self.group, self.version);
        for (key, expected) in [("apiVersion", api_version.as_str()), ("kind", self.kind)] {
            match asked.get(key).and_then(Value::as_str) {
                None | Some("") => asked[key] = expected.into(),
                Some(found) if found == expected => {}
                Some(found) => return Err(ApiError::bad_request(format!("{key} is {found:?}, expected {expected:?}"))),
            }
        }
        let identity = &subject.identity;
        asked["status"] = match self.kind {
            "SelfSubjectReview" => {
                let extra = Some(&subject.extra).filter(|extra| !extra.is_empty());
                json!({"userInfo": present(json!({
                    "username": identity.user, "groups": identity.groups, "uid": subject.uid, "extra": extra,
                }))})
            }
            "SelfSubjectRulesReview" => {
                let namespace = asked["spec"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
                authorizer.rules_of(
                    identity,
                    namespace
                        .ok_or_else(|| ApiError::bad_request("no namespace on request: spec.namespace must be set"))?,
                )
            }
            "SelfSubjectAccessReview" => self.decide(authorizer, identity, &asked["spec"])?,
            _ => {
                let subject = self.subject(namespace, &asked["spec"])?;
                self.decide(authorizer, &subject, &asked["spec"])?
            }
        };
        if !asked["metadata"].is_object() {
            asked["metadata"] = json!({});
        }
        Ok(asked)
    }

    /// Returns the subject of a SubjectAccessReview.
    fn subject(&self, namespace: Option<&str>, spec: &Value) -> Result<Identity, ApiError> {
        let user = spec["user"].as_str().unwrap_or_default().to_owned();
        let groups: Vec<String> = spec["groups"]
            .as_array()
            .map(|groups| groups.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        if user.is_empty() && groups.is_empty() {
            let cause = Cause::invalid("spec.user", &json!(""), "at least one of user or group must be specified");
            return Err(ApiError::invalid_of(self.kind, self.group, "", vec![cause]));
        }
        if let Some(namespace) = namespace
            && spec["resourceAttributes"]["namespace"] != namespace
        {
            let cause = Cause::invalid(
                "spec.resourceAttributes.namespace",
                &spec["resourceAttributes"]["namespace"],
                "must match metadata.namespace",
            );
            return Err(ApiError::invalid_of(self.kind, self.group, "", vec![cause]));
        }
        Ok(Identity { user, groups })
    }

    fn decide(&self, authorizer: &dyn Authorizer, identity: &Identity, spec: &Value) -> Result<Value, ApiError> {
        let text = |attributes: &Value, key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
        let decision = match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
            (Value::Object(_), Value::Object(_)) | (Value::Null, Value::Null) => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                let cause = Cause::invalid("spec.resourceAttributes", &spec["resourceAttributes"], why);
                return Err(ApiError::invalid_of(self.kind, self.group, "", vec![cause]));
            }
            (Value::Null, attributes) => {
                let (verb, path) = (text(attributes, "verb"), text(attributes, "path"));
                authorizer.decide(identity, &Access::Path { verb: &verb, path: &path })
            }
            (attributes, _) => {
                let resource = match (text(attributes, "resource"), text(attributes, "subresource")) {
                    (resource, subresource) if subresource.is_empty() => resource,
                    (resource, subresource) => format!("{resource}/{subresource}"),
                };
                let (verb, group) = (text(attributes, "verb"), text(attributes, "group"));
                let (namespace, name) = (text(attributes, "namespace"), text(attributes, "name"));
                let access = Access::resource(&verb, &group, &resource, Some(&namespace), Some(&name));
                authorizer.decide(identity, &access)
            }
        };
        Ok(match decision {
            Decision::Allowed { role } => json!({"allowed": true, "reason": format!("allowed by the role {role:?}")}),
            Decision::Denied { why: Some(why) } => json!({"allowed": false, "reason": why}),
            Decision::Denied { why: None } => json!({"allowed": false}),
        })
    }
}
