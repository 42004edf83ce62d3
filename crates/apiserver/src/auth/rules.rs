//! Access rules: roles as tables of rules, and the [`Authorizer`] that assigns roles.
//!
//! A [`Role`] is a list of [`Rule`]s. Every server grants three: everything to `system:masters`, discovery and self-reviews to
//! authenticated users, health and version to all. An [`Authorizer`] grants more, over the whole server or in one namespace.
//! Access without a matching rule is denied. The same tables answer requests and `kubectl auth can-i`.

use serde_json::{Value, json};

use super::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_SERVER};
use crate::error::ApiError;

/// A named set of rules.
pub struct Role {
    /// The name of the role, which `kubectl auth can-i` shows.
    pub name: &'static str,
    /// The rules.
    pub rules: &'static [Rule],
}

/// Permits these verbs on these resources of these groups (`*` is any; `leases/status` is the subresource), or on these paths
/// (`/openapi/*` includes all paths below).
pub struct Rule {
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    paths: &'static [&'static str],
}

/// Any verb, group, resource or path.
pub const ANY: &[&str] = &["*"];

/// Returns the rule for verbs on resources of API groups.
pub const fn on(
    verbs: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
) -> Rule {
    Rule { verbs, groups, resources, paths: &[] }
}

const fn path(paths: &'static [&'static str]) -> Rule {
    Rule { verbs: &["get"], groups: &[], resources: &[], paths }
}

/// The role that may do everything.
pub const ADMIN: Role =
    Role { name: "admin", rules: &[on(ANY, ANY, ANY), Rule { verbs: ANY, groups: &[], resources: &[], paths: ANY }] };

const PUBLIC: Role = Role { name: "public", rules: &[path(&["/healthz", "/livez", "/readyz", "/version"])] };

const AUTHENTICATED: Role = Role {
    name: "authenticated",
    rules: &[
        on(&["create"], &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
        on(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
        path(&["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]),
    ],
};

/// A role, everywhere (`None`) or in one namespace.
pub type Grant<'a> = (&'static Role, Option<&'a str>);

/// The additional access rules of a server. Each method has a default that adds nothing.
pub trait Authorizer: Send + Sync + 'static {
    /// Adds the roles of an identity.
    fn grant<'a>(&self, _identity: &'a Identity, _grants: &mut Vec<Grant<'a>>) {}

    /// Returns a reason to deny an access regardless of the roles.
    fn denies(&self, _identity: &Identity, _access: &Access<'_>) -> Option<&'static str> {
        None
    }

    /// Returns whether a part of the requests and watches in flight is reserved for this user and others like it.
    fn is_reserved_for(&self, _user: &str) -> bool {
        false
    }

    /// Returns whether an identity writes about the objects of others, beyond the limits that hold for these.
    fn writes_beyond_limits(&self, identity: &Identity) -> bool {
        self.is_reserved_for(&identity.user)
    }
}

/// No additional rules.
pub struct MastersOnly;

impl Authorizer for MastersOnly {}

fn grants<'a>(authorizer: &dyn Authorizer, identity: &'a Identity) -> Vec<Grant<'a>> {
    let mut grants: Vec<Grant<'a>> = vec![(&PUBLIC, None)];
    for group in &identity.groups {
        match group.as_str() {
            GROUP_MASTERS => grants.push((&ADMIN, None)),
            GROUP_AUTHENTICATED => grants.push((&AUTHENTICATED, None)),
            _ => {}
        }
    }
    authorizer.grant(identity, &mut grants);
    grants
}

/// A requested access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access<'a> {
    /// Access to objects.
    Resource {
        /// Such as `list`.
        verb: &'a str,
        /// API group.
        group: &'a str,
        /// Plural, with the subresource as in `leases/status`.
        resource: &'a str,
        /// Namespace, if it is about one.
        namespace: Option<&'a str>,
        /// Object, if it is about one.
        name: Option<&'a str>,
    },
    /// Access to a path that is not an object.
    Path {
        /// Such as `get`.
        verb: &'a str,
        /// Such as `/version`.
        path: &'a str,
    },
}

/// The result of an authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allowed {
        /// The role that allows it.
        role: &'static str,
    },
    /// No.
    Denied {
        /// A reason other than the absence of a rule.
        why: Option<&'static str>,
    },
}

impl dyn Authorizer {
    /// Returns the decision on an access.
    pub fn decide(&self, identity: &Identity, access: &Access<'_>) -> Decision {
        if let Some(why) = self.denies(identity, access) {
            return Decision::Denied { why: Some(why) };
        }
        let allows = |(role, scope): &Grant<'_>| role.rules.iter().any(|rule| rule.allows(access, *scope));
        match grants(self, identity).iter().find(|grant| allows(grant)) {
            Some((role, _)) => Decision::Allowed { role: role.name },
            None => Decision::Denied { why: None },
        }
    }

    /// Permits the access, or returns 403.
    pub fn authorize(&self, identity: &Identity, access: &Access<'_>) -> Result<(), ApiError> {
        match self.decide(identity, access) {
            Decision::Allowed { .. } => Ok(()),
            Decision::Denied { why } => Err(access.forbidden(identity, why)),
        }
    }

    /// Returns all that an identity may do in a namespace, as `status` of a SelfSubjectRulesReview.
    pub(crate) fn rules_of(&self, identity: &Identity, namespace: &str) -> Value {
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for (role, scope) in grants(self, identity) {
            if scope.is_some_and(|scope| scope != namespace) {
                continue;
            }
            for rule in role.rules {
                if rule.paths.is_empty() {
                    resources.push(json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}));
                } else {
                    paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}));
                }
            }
        }
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
    }

    /// Returns whether the limits of clients do not hold for an identity's writes.
    pub(crate) fn is_beyond_limits(&self, identity: &Identity) -> bool {
        identity.user == USER_SERVER || self.writes_beyond_limits(identity)
    }
}

impl Rule {
    fn allows(&self, access: &Access<'_>, scope: Option<&str>) -> bool {
        let has = |list: &[&str], one: &str| list.iter().any(|item| *item == "*" || *item == one);
        match access {
            Access::Resource { verb, group, resource, namespace, name } => {
                // A namespace counts as being inside itself.
                let within = if *resource == "namespaces" { namespace.or(*name) } else { *namespace };
                has(self.verbs, verb)
                    && has(self.groups, group)
                    && has(self.resources, resource)
                    && (scope.is_none() || scope == within)
            }
            Access::Path { verb, path } => {
                let matches = |pattern: &&str| match pattern.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => pattern == path || path.strip_prefix(*pattern).is_some_and(|rest| rest == "/"),
                };
                has(self.verbs, verb) && self.paths.iter().any(matches)
            }
        }
    }
}

impl<'a> Access<'a> {
    /// Access to objects.
    pub fn resource(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    ) -> Self {
        let some = |text: Option<&'a str>| text.filter(|text| !text.is_empty());
        Access::Resource { verb, group, resource, namespace: some(namespace), name: some(name) }
    }

    /// Returns the 403 that Kubernetes would give.
    pub fn forbidden(&self, identity: &Identity, why: Option<&str>) -> ApiError {
        let user = &identity.user;
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        match self {
            Access::Path { verb, path } => {
                let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}{why}");
                ApiError::new(403, "Forbidden", message)
            }
            Access::Resource { verb, group, resource, namespace, name } => {
                let plural = resource.split('/').next().unwrap_or_default();
                let what = crate::error::qualified(plural, group);
                let what = name.map_or(what.clone(), |name| format!("{what} {name:?}"));
                let place = match namespace {
                    Some(namespace) => format!("in the namespace {namespace:?}"),
                    None => "at the cluster scope".to_owned(),
                };
                let mut error = ApiError::new(
                    403,
                    "Forbidden",
                    format!(
                        "{what} is forbidden: User {user:?} cannot {verb} resource {resource:?} in API group {group:?} \
                         {place}{why}"
                    ),
                );
                error.kind = Some(plural.to_owned());
                error.group = Some((*group).to_owned());
                error.name = name.map(str::to_owned);
                error
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_knows_masters_authenticated_users_and_strangers() {
        const LEASES: &str = "coordination.k8s.io";
        let authorizer: &dyn Authorizer = &MastersOnly;
        let masters = Identity { user: "root".into(), groups: vec![GROUP_MASTERS.into()] };
        let (user, anonymous) = (Identity::user("u"), Identity { user: "system:anonymous".into(), groups: vec![] });
        for (identity, access, allowed) in [
            (&masters, Access::resource("delete", LEASES, "leases", Some("a"), Some("x")), true),
            (&masters, Access::resource("impersonate", "", "users", None, Some("x")), true),
            (&masters, Access::resource("*", "*", "*", None, None), true),
            (&user, Access::resource("get", LEASES, "leases", Some("a"), Some("x")), false),
            (&user, Access::resource("create", "authorization.k8s.io", "selfsubjectaccessreviews", None, None), true),
            (&user, Access::Path { verb: "get", path: "/apis/example.org" }, true),
            (&user, Access::Path { verb: "get", path: "/openapi/v3" }, true),
            (&user, Access::Path { verb: "get", path: "/apisx" }, false),
            (&anonymous, Access::Path { verb: "get", path: "/version" }, true),
            (&anonymous, Access::Path { verb: "get", path: "/livez" }, true),
            (&anonymous, Access::Path { verb: "get", path: "/api" }, false),
            (&anonymous, Access::Path { verb: "get", path: "/nothing" }, false),
        ] {
            let decision = authorizer.decide(identity, &access);
            assert_eq!(matches!(decision, Decision::Allowed { .. }), allowed, "{} {access:?}", identity.user);
        }
    }

    #[test]
    fn refusals_read_as_in_kubernetes() {
        let authorizer: &dyn Authorizer = &MastersOnly;
        let access = Access::resource("list", "coordination.k8s.io", "leases", Some("n"), None);
        let message = authorizer.authorize(&Identity::user("u"), &access).expect_err("refused").message;
        assert_eq!(
            message,
            "leases.coordination.k8s.io is forbidden: User \"u\" cannot list resource \"leases\" in API group \
             \"coordination.k8s.io\" in the namespace \"n\""
        );
    }
}
