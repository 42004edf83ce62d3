//! The roles of a platform, for the API server's [`Authorizer`].
//!
//! One restriction overrides all roles: only the scheduler can create and change RouteBindings, because they set the status of
//! Routes. An administrator who must do it by hand impersonates the scheduler, so the audit log records the administrator's name.

use signpost_apiserver::auth::rules::{ADMIN, ANY, Access, Authorizer, Decision, Grant, Role, on};
use signpost_apiserver::error::ApiError;
use signpost_apiserver::registry::Reader;

use serde_json::Value;

use crate::identity::{GROUP_TENANT_PREFIX, Identity, USER_CONTROLLER, USER_NAME_SERVER, USER_SCHEDULER};
use signpost_types::instance::{self, AGENT_NAMESPACE};
use signpost_types::v1alpha1::{GROUP, SCHEDULER_LEASE_NAMESPACE};

/// The group whose members may do everything, like those of `system:masters`. It is for human users and for groups of an identity
/// provider, which can never name a group that begins with `system:`.
pub const GROUP_ADMINS: &str = "signpost:admins";
/// The group whose members may read everything.
pub const GROUP_VIEWERS: &str = "signpost:viewers";
/// The group of schedulers: they write RouteBindings.
pub const GROUP_SCHEDULERS: &str = "signpost:schedulers";
/// The group of name servers: they list and watch objects, and report deletion holds.
pub const GROUP_NAME_SERVERS: &str = "signpost:name-servers";
/// The group of the platform's own router agents, which run next to the proxies: they read Routes and keep the Leases of all
/// Routers.
pub const GROUP_ROUTER_AGENTS: &str = "signpost:router-agents";
/// The groups of the agents of one Router, whose name follows: the same rights, but only its Leases.
pub const GROUP_ROUTER_AGENT_PREFIX: &str = "signpost:router-agent:";

/// The field with the Secret of a Route's certificate.
pub(crate) const SECRET_NAME_FIELD: &str = "spec.tls.secretName";

/// The roles that administrators assign to users, each with its group. The group of a tenant ends in its namespace, the group of
/// an agent in its Router.
pub const ROLES: &[(&str, &str)] = &[
    ("admin", GROUP_ADMINS),
    ("viewer", GROUP_VIEWERS),
    ("tenant", GROUP_TENANT_PREFIX),
    ("scheduler", GROUP_SCHEDULERS),
    ("name-server", GROUP_NAME_SERVERS),
    ("router-agent", GROUP_ROUTER_AGENT_PREFIX),
];

/// The prefix of the platform's own users, such as the scheduler.
const OWN_PREFIX: &str = "system:signpost:";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete"];
const CHANGE: &[&str] = &["update", "patch"];
const CORE: &[&str] = &[""];
const OURS: &[&str] = &[GROUP];
const EVENTS: &[&str] = &["", "events.k8s.io"];
const LEASES: &[&str] = &["coordination.k8s.io"];
const BACKEND_GROUPS: &[&str] = &["", "discovery.k8s.io"];
/// The targets of Routes.
const BACKENDS: &[&str] = &["services", "endpointslices"];

/// The permissions that schedulers and controllers share.
const CONTROL_PLANE: Role = Role {
    name: "control-plane",
    rules: &[
        on(READ, OURS, ANY),
        on(READ, CORE, &["namespaces"]),
        on(READ, BACKEND_GROUPS, BACKENDS),
        on(WRITE, OURS, &["nameclaims", "zones"]),
        on(CHANGE, OURS, &["routes/status", "routers/status"]),
        // Like name servers, they report holds; only administrators decide on them.
        on(&["create", "delete"], OURS, &["deletionholds", "challengerecords"]),
        on(CHANGE, OURS, &["deletionholds/status"]),
        on(READ, EVENTS, &["events"]),
        on(WRITE, EVENTS, &["events"]),
        on(READ, LEASES, &["leases"]),
    ],
};

const SCHEDULER: Role = Role { name: "scheduler", rules: &[on(WRITE, OURS, &["routebindings"])] };

const CONTROLLER: Role = Role { name: "controller", rules: &[on(&["delete"], OURS, &["routebindings"])] };

/// The permissions of schedulers and controllers, one of which leads and writes the Routers and Routes of sources, and no others
/// ([`is_confined_to_sources`]). The verb `adopt` is for `spec.adopted` and the label of a source.
const SOURCES: Role = Role {
    name: "sources",
    rules: &[
        on(WRITE, OURS, &["routers", "routes"]),
        on(&["adopt"], OURS, &["routes"]),
        // A Route is in the namespace of its source, which can be in another cluster.
        on(&["create"], CORE, &["namespaces"]),
    ],
};

/// The permissions of schedulers and controllers in [`SCHEDULER_LEASE_NAMESPACE`]: they elect their leader.
const ELECTION: Role = Role { name: "election", rules: &[on(WRITE, LEASES, &["leases"])] };

/// The permissions of schedulers and controllers in [`AGENT_NAMESPACE`]: they delete the Leases of dead instances. They create none,
/// because a Lease there puts an address into DNS, and the names of Routers that do not exist are unlimited.
const DEAD_INSTANCES: Role = Role { name: "dead-instances", rules: &[on(&["delete"], LEASES, &["leases"])] };

/// The permissions of schedulers and controllers in [`SCHEDULER_LEASE_NAMESPACE`] and [`AGENT_NAMESPACE`]: the leader keeps the account and
/// the orders of certificates in the one, which no agent reads, and the certificates in the other.
const CERTIFICATES: Role =
    Role { name: "certificates", rules: &[on(&["get", "list", "create", "patch", "delete"], CORE, &["secrets"])] };

const NAME_SERVER: Role = Role {
    name: "name-server",
    rules: &[
        on(
            READ,
            OURS,
            &["routers", "routes", "routebindings", "nameclaims", "zones", "deletionholds", "challengerecords"],
        ),
        // Name servers report holds; only administrators decide on them.
        on(&["create", "delete"], OURS, &["deletionholds", "challengerecords"]),
        on(CHANGE, OURS, &["deletionholds/status"]),
        on(READ, CORE, &["namespaces"]),
        on(READ, BACKEND_GROUPS, BACKENDS),
    ],
};

const ROUTER_AGENT: Role = Role {
    name: "router-agent",
    rules: &[
        on(READ, OURS, &["routers", "routes", "routebindings"]),
        on(READ, BACKEND_GROUPS, BACKENDS),
        // Only those that Routes of its Router name, and the platform's for its Router: `denies_secret`, which lists and watches do not
        // pass.
        on(&["get"], CORE, &["secrets"]),
    ],
};

/// The permissions of a router agent in [`AGENT_NAMESPACE`].
const ROUTER_AGENT_LEASES: Role =
    Role { name: "router-agent-leases", rules: &[on(&["get"], LEASES, &["leases"]), on(WRITE, LEASES, &["leases"])] };

const VIEWER: Role = Role {
    name: "viewer",
    rules: &[
        on(READ, OURS, ANY),
        on(READ, CORE, &["namespaces"]),
        on(READ, BACKEND_GROUPS, BACKENDS),
        on(READ, EVENTS, &["events"]),
        on(READ, LEASES, &["leases"]),
    ],
};

/// The permissions of a tenant in its namespaces. They do not include `move` (the verb for the annotation
/// `signpost.dev/move-to`): the operator assigns Routes to shards with selectors. Nor do they include `adopt`, which is for sources.
const TENANT: Role = Role {
    name: "tenant",
    rules: &[
        on(READ, OURS, &["routes", "routes/status", "routebindings", "challengerecords"]),
        on(WRITE, OURS, &["routes"]),
        on(&["deletecollection"], OURS, &["routes"]),
        on(READ, BACKEND_GROUPS, BACKENDS),
        on(WRITE, BACKEND_GROUPS, BACKENDS),
        on(&["deletecollection"], BACKEND_GROUPS, BACKENDS),
        on(READ, CORE, &["secrets"]),
        on(WRITE, CORE, &["secrets"]),
        on(&["deletecollection"], CORE, &["secrets"]),
        on(READ, EVENTS, &["events"]),
        on(&["get"], CORE, &["namespaces"]),
    ],
};

/// The objects that every tenant may read outside its namespaces: the shards and their addresses.
const TENANT_AT_LARGE: Role = Role { name: "tenant-at-large", rules: &[on(READ, OURS, &["routers"])] };

const LEASES_ARE_OF_ONE_ROUTER: &str =
    "an agent can access only the Leases of its own Router, named router-NAME.ADDRESS-PORT";

const BINDINGS_ARE_THE_SCHEDULERS: &str = "only the scheduler can create or change RouteBindings, because they set the \
     status of the Route; to move a Route, run \"signpost move route\" or set its annotation signpost.dev/move-to";

const SECRETS_ARE_OF_ROUTES: &str = "an agent can read only Secrets that Routes of its own Router name in spec.tls.secretName, and certificates of its own Router";

/// Returns the Routers of which an identity is an agent.
fn routers_of(identity: &Identity) -> impl Iterator<Item = &str> {
    identity.groups.iter().filter_map(|group| group.strip_prefix(GROUP_ROUTER_AGENT_PREFIX))
}

/// Returns whether an identity has a right for another reason than these groups.
fn has_right_without(identity: &Identity, access: &Access<'_>, groups: impl Fn(&str) -> bool) -> bool {
    let mut others = Identity::user(&identity.user);
    others.groups = identity.groups.iter().filter(|group| !groups(group)).cloned().collect();
    matches!(decide(&others, access), Decision::Allowed { .. })
}

/// Returns whether an identity has rights on Leases only as an agent, and of other Routers than that of the Lease.
fn is_lease_of_another(identity: &Identity, lease: Option<&str>) -> bool {
    if routers_of(identity).next().is_none() {
        return false;
    }
    let access = Access::resource("update", LEASES[0], "leases", Some(AGENT_NAMESPACE), lease);
    let has_other_rights = has_right_without(identity, &access, |group| group.starts_with(GROUP_ROUTER_AGENT_PREFIX));
    let is_own = |of: &str| routers_of(identity).any(|router| router == of);
    !has_other_rights && !lease.and_then(instance::router_of).is_some_and(is_own)
}

/// Returns why an identity must not read a Secret, if it may read Secrets only as an agent: then it has to be a certificate that the platform
/// got for one of the agent's Routers, or a Route of the same namespace has to name it that one of them serves or has served.
pub(crate) fn denies_secret(
    identity: &Identity,
    namespace: &str,
    name: &str,
    reader: &dyn Reader,
) -> Result<Option<&'static str>, ApiError> {
    let is_agent = |group: &str| group == GROUP_ROUTER_AGENTS || group.starts_with(GROUP_ROUTER_AGENT_PREFIX);
    let access = Access::resource("get", CORE[0], "secrets", Some(namespace), Some(name));
    if !identity.groups.iter().any(|group| is_agent(group)) || has_right_without(identity, &access, is_agent) {
        return Ok(None);
    }
    let is_of_all = identity.groups.iter().any(|group| group == GROUP_ROUTER_AGENTS);
    let is_of = |router: &str| is_of_all || routers_of(identity).any(|own| own == router);
    if namespace == AGENT_NAMESPACE {
        return Ok((!instance::router_of(name).is_some_and(is_of)).then_some(SECRETS_ARE_OF_ROUTES));
    }
    let is_own = |router: &Value| router.as_str().filter(|router| !router.is_empty()).is_some_and(is_of);
    let routes = reader.selected("Route", namespace, SECRET_NAME_FIELD, name)?;
    let names_it = routes.iter().map(|route| &route["status"]).any(|status| {
        let former = status["formerNames"].as_array().into_iter().flatten();
        is_own(&status["router"]) || former.map(|former| &former["router"]).any(is_own)
    });
    Ok((!names_it).then_some(SECRETS_ARE_OF_ROUTES))
}

fn is_scheduler(identity: &Identity) -> bool {
    identity.user == USER_SCHEDULER || identity.groups.iter().any(|group| group == GROUP_SCHEDULERS)
}

/// The access rules of a platform.
pub struct AccessRules;

/// Returns the grants of a scheduler or controller with this role.
fn leading(role: &'static Role) -> [Grant<'static>; 7] {
    let (own, of_agents) = (Some(SCHEDULER_LEASE_NAMESPACE), Some(AGENT_NAMESPACE));
    [
        (&CONTROL_PLANE, None),
        (role, None),
        (&SOURCES, None),
        (&ELECTION, own),
        (&DEAD_INSTANCES, of_agents),
        (&CERTIFICATES, own),
        (&CERTIFICATES, of_agents),
    ]
}

impl Authorizer for AccessRules {
    fn grant<'a>(&self, identity: &'a Identity, grants: &mut Vec<Grant<'a>>) {
        for group in &identity.groups {
            match group.as_str() {
                GROUP_ADMINS => grants.push((&ADMIN, None)),
                GROUP_VIEWERS => grants.push((&VIEWER, None)),
                GROUP_SCHEDULERS => grants.extend(leading(&SCHEDULER)),
                GROUP_NAME_SERVERS => grants.push((&NAME_SERVER, None)),
                GROUP_ROUTER_AGENTS => {
                    grants.push((&ROUTER_AGENT, None));
                    grants.push((&ROUTER_AGENT_LEASES, Some(AGENT_NAMESPACE)));
                }
                other => {
                    if let Some(namespace) = other.strip_prefix(GROUP_TENANT_PREFIX) {
                        grants.push((&TENANT, Some(namespace)));
                        grants.push((&TENANT_AT_LARGE, None));
                    } else if other.starts_with(GROUP_ROUTER_AGENT_PREFIX) {
                        grants.push((&ROUTER_AGENT, None));
                        grants.push((&ROUTER_AGENT_LEASES, Some(AGENT_NAMESPACE)));
                    }
                }
            }
        }
        match identity.user.as_str() {
            USER_SCHEDULER => grants.extend(leading(&SCHEDULER)),
            USER_CONTROLLER => grants.extend(leading(&CONTROLLER)),
            USER_NAME_SERVER => grants.push((&NAME_SERVER, None)),
            _ => {}
        }
    }

    fn denies(&self, identity: &Identity, access: &Access<'_>) -> Option<&'static str> {
        // An access review of all verbs (`*`) is denied as well. The roles alone decide about deletion.
        let is_binding = matches!(
            access,
            Access::Resource {
                verb: "create" | "update" | "patch" | "*",
                group: GROUP | "*",
                resource: "routebindings",
                ..
            }
        );
        if is_binding && !is_scheduler(identity) {
            return Some(BINDINGS_ARE_THE_SCHEDULERS);
        }
        match access {
            Access::Resource {
                verb: "get" | "create" | "update" | "patch" | "delete",
                group,
                resource: "leases",
                name,
                ..
            } if *group == LEASES[0] && is_lease_of_another(identity, *name) => Some(LEASES_ARE_OF_ONE_ROUTER),
            _ => None,
        }
    }

    fn is_reserved_for(&self, user: &str) -> bool {
        user.starts_with(OWN_PREFIX)
    }

    fn writes_beyond_limits(&self, identity: &Identity) -> bool {
        let is_own = |group: &String| [GROUP_SCHEDULERS, GROUP_NAME_SERVERS].contains(&group.as_str());
        self.is_reserved_for(&identity.user) || identity.groups.iter().any(is_own)
    }
}

/// Returns whether an identity may write only those Routers and Routes that a source derived: it writes them as the platform's leader.
pub fn is_confined_to_sources(identity: &Identity) -> bool {
    if !is_scheduler(identity) && identity.user != USER_CONTROLLER {
        return false;
    }
    let groups = identity.groups.iter().filter(|group| *group != GROUP_SCHEDULERS).cloned().collect();
    let others = Identity { user: String::new(), groups };
    !matches!(decide(&others, &Access::resource("update", GROUP, "routers", None, None)), Decision::Allowed { .. })
}

/// Returns whether an identity may perform an access.
pub fn decide(identity: &Identity, access: &Access<'_>) -> Decision {
    (&AccessRules as &dyn Authorizer).decide(identity, access)
}

/// Permits the access, or returns 403.
pub fn authorize(identity: &Identity, access: &Access<'_>) -> Result<(), ApiError> {
    (&AccessRules as &dyn Authorizer).authorize(identity, access)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS};

    type Row = (Identity, &'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>, bool);

    fn user(name: &str) -> Identity {
        Identity::user(name)
    }

    fn member(group: &str) -> Identity {
        Identity { user: "u".into(), groups: vec![group.into(), GROUP_AUTHENTICATED.into()] }
    }

    fn check(rows: impl IntoIterator<Item = Row>) {
        for (identity, verb, group, resource, namespace, name, allowed) in rows {
            let access = Access::resource(verb, group, resource, namespace, name);
            let decision = decide(&identity, &access);
            let is_allowed = matches!(decision, Decision::Allowed { .. });
            assert_eq!(is_allowed, allowed, "{} {access:?}", identity.user);
        }
    }

    #[test]
    fn rights_of_people() {
        let masters = || member(GROUP_MASTERS);
        let tenant = || member("signpost:tenant:shop");
        check([
            (masters(), "delete", GROUP, "routers", None, Some("x"), true),
            (masters(), "impersonate", "", "users", None, Some("x"), true),
            (masters(), "create", GROUP, "routebindings", Some("a"), None, false),
            (masters(), "update", GROUP, "routebindings", Some("a"), Some("b"), false),
            (masters(), "patch", GROUP, "routebindings", Some("a"), Some("b"), false),
            (masters(), "*", GROUP, "routebindings", Some("a"), None, false),
            (masters(), "*", "*", "routebindings", None, None, false),
            (masters(), "delete", GROUP, "routebindings", Some("a"), Some("b"), true),
            (masters(), "deletecollection", GROUP, "routebindings", Some("a"), None, true),
            (masters(), "*", GROUP, "routes", Some("a"), None, true),
            (masters(), "*", "*", "*", None, None, true),
            (member(GROUP_VIEWERS), "patch", GROUP, "deletionholds", None, Some("b"), false),
            (member(GROUP_ADMINS), "patch", GROUP, "deletionholds", None, Some("b"), true),
            (tenant(), "get", GROUP, "deletionholds", None, Some("b"), false),
            (member(GROUP_VIEWERS), "list", GROUP, "nameclaims", None, None, true),
            (member(GROUP_VIEWERS), "delete", GROUP, "routes", Some("a"), Some("r"), false),
            (member(GROUP_ADMINS), "delete", GROUP, "routers", None, Some("x"), true),
            (member(GROUP_ADMINS), "create", GROUP, "routebindings", Some("a"), None, false),
            (masters(), "move", GROUP, "routes", Some("a"), Some("r"), true),
            (member(GROUP_ADMINS), "move", GROUP, "routes", None, None, true),
            (tenant(), "move", GROUP, "routes", Some("shop"), Some("r"), false),
            (tenant(), "adopt", GROUP, "routes", Some("shop"), Some("r"), false),
            (member(GROUP_VIEWERS), "adopt", GROUP, "routes", Some("shop"), Some("r"), false),
            (member(GROUP_ADMINS), "adopt", GROUP, "routes", Some("shop"), Some("r"), true),
            (tenant(), "create", GROUP, "routes", Some("shop"), None, true),
            (tenant(), "create", GROUP, "routes", Some("other"), None, false),
            (tenant(), "list", GROUP, "routes", None, None, false),
            (tenant(), "create", "", "services", Some("shop"), None, true),
            (tenant(), "create", "", "services", Some("other"), None, false),
            (tenant(), "patch", "", "services/status", Some("shop"), Some("web"), false),
            (tenant(), "deletecollection", "discovery.k8s.io", "endpointslices", Some("shop"), None, true),
            (tenant(), "set-local-addresses", "discovery.k8s.io", "endpointslices", Some("shop"), None, false),
            (masters(), "set-local-addresses", "discovery.k8s.io", "endpointslices", Some("shop"), None, true),
            (tenant(), "get", "", "namespaces", None, Some("shop"), true),
            (tenant(), "get", "", "namespaces", None, Some("other"), false),
            (tenant(), "delete", "", "namespaces", None, Some("shop"), false),
            (tenant(), "patch", GROUP, "routes/status", Some("shop"), Some("r"), false),
            (tenant(), "create", "", "secrets", Some("shop"), None, true),
            (tenant(), "list", "", "secrets", Some("shop"), None, true),
            (tenant(), "get", "", "secrets", Some("other"), Some("s"), false),
            (tenant(), "list", "", "secrets", None, None, false),
            (member(GROUP_ADMINS), "list", "", "secrets", None, None, true),
            (member(GROUP_VIEWERS), "get", "", "secrets", Some("shop"), Some("s"), false),
            (member(GROUP_VIEWERS), "list", "", "secrets", None, None, false),
            (user("guest"), "get", GROUP, "routes", Some("a"), Some("r"), false),
            (user("guest"), "create", "authorization.k8s.io", "selfsubjectaccessreviews", None, None, true),
        ]);
    }

    #[test]
    fn rights_of_the_platforms_own() {
        let agent = || member("signpost:router-agent:a");
        let leases = "coordination.k8s.io";
        let both = || Identity { groups: vec!["signpost:router-agent:a".into(), GROUP_ADMINS.into()], ..user("u") };
        check([
            (user(USER_SCHEDULER), "patch", GROUP, "routebindings", Some("a"), Some("b"), true),
            (user(USER_CONTROLLER), "delete", GROUP, "routebindings", Some("a"), Some("b"), true),
            (user(USER_CONTROLLER), "patch", GROUP, "routebindings", Some("a"), Some("b"), false),
            (user(USER_SCHEDULER), "create", GROUP, "routebindings", Some("a"), None, true),
            (user(USER_SCHEDULER), "patch", GROUP, "routes/status", Some("a"), Some("r"), true),
            (user(USER_SCHEDULER), "patch", GROUP, "routes", Some("a"), Some("r"), true),
            (user(USER_CONTROLLER), "create", GROUP, "routers", None, None, true),
            (user(USER_CONTROLLER), "adopt", GROUP, "routes", Some("a"), Some("r"), true),
            (user(USER_CONTROLLER), "move", GROUP, "routes", Some("a"), Some("r"), false),
            (user(USER_NAME_SERVER), "adopt", GROUP, "routes", Some("a"), Some("r"), false),
            (user(USER_NAME_SERVER), "create", GROUP, "routes", Some("a"), None, false),
            (user(USER_SCHEDULER), "impersonate", "", "users", None, Some("x"), false),
            (user(USER_CONTROLLER), "create", GROUP, "routebindings", Some("a"), None, false),
            (user(USER_CONTROLLER), "update", GROUP, "zones", None, Some("z"), true),
            (user(USER_NAME_SERVER), "watch", GROUP, "routes", None, None, true),
            (user(USER_NAME_SERVER), "list", "", "events", None, None, false),
            (user(USER_NAME_SERVER), "create", GROUP, "zones", None, None, false),
            (user(USER_NAME_SERVER), "create", GROUP, "deletionholds", None, None, true),
            (user(USER_NAME_SERVER), "patch", GROUP, "deletionholds/status", None, Some("b"), true),
            (user(USER_NAME_SERVER), "patch", GROUP, "routebindings", Some("a"), Some("b"), false),
            (user(USER_NAME_SERVER), "patch", GROUP, "deletionholds", None, Some("b"), false),
            (user(USER_NAME_SERVER), "update", GROUP, "deletionholds", None, Some("b"), false),
            (user(USER_CONTROLLER), "patch", GROUP, "deletionholds", None, Some("b"), false),
            (user(USER_CONTROLLER), "create", GROUP, "deletionholds", None, None, true),
            (member(GROUP_SCHEDULERS), "patch", GROUP, "deletionholds/status", None, Some("b"), true),
            (member(GROUP_SCHEDULERS), "update", GROUP, "deletionholds", None, Some("b"), false),
            (user(USER_SCHEDULER), "patch", GROUP, "deletionholds", None, Some("b"), false),
            (member(GROUP_SCHEDULERS), "create", GROUP, "routebindings", Some("a"), None, true),
            (member(GROUP_SCHEDULERS), "adopt", GROUP, "routes", Some("a"), Some("r"), true),
            (member(GROUP_ROUTER_AGENTS), "adopt", GROUP, "routes", Some("a"), Some("r"), false),
            (member(GROUP_NAME_SERVERS), "watch", GROUP, "zones", None, None, true),
            (member(GROUP_NAME_SERVERS), "update", GROUP, "zones", None, Some("z"), false),
            (member(GROUP_ROUTER_AGENTS), "watch", GROUP, "routes", None, None, true),
            (member(GROUP_ROUTER_AGENTS), "watch", "discovery.k8s.io", "endpointslices", None, None, true),
            (member(GROUP_ROUTER_AGENTS), "update", "", "services", Some("a"), Some("s"), false),
            (user(USER_NAME_SERVER), "watch", "", "services", None, None, true),
            (member(GROUP_ROUTER_AGENTS), "patch", GROUP, "routes", Some("a"), Some("r"), false),
            (member(GROUP_ROUTER_AGENTS), "update", leases, "leases", Some(AGENT_NAMESPACE), Some("l"), true),
            (member(GROUP_ROUTER_AGENTS), "update", leases, "leases", Some("signpost-system"), Some("l"), false),
            (member(GROUP_SCHEDULERS), "create", leases, "leases", Some("signpost-system"), None, true),
            (member(GROUP_SCHEDULERS), "create", leases, "leases", Some(AGENT_NAMESPACE), None, false),
            (member(GROUP_SCHEDULERS), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.1-80"), false),
            (member(GROUP_SCHEDULERS), "delete", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.1-80"), true),
            (user(USER_CONTROLLER), "delete", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.1-80"), true),
            (user(USER_SCHEDULER), "update", leases, "leases", Some("signpost-system"), Some("l"), true),
            (user(USER_SCHEDULER), "create", leases, "leases", Some("default"), None, false),
            (user(USER_SCHEDULER), "list", leases, "leases", Some("default"), None, true),
            (agent(), "patch", leases, "leases", Some("default"), Some("router-a.192-0-2-1-80"), false),
            (agent(), "watch", GROUP, "routes", None, None, true),
            (agent(), "list", leases, "leases", Some(AGENT_NAMESPACE), None, false),
            (agent(), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.192-0-2-1-80"), true),
            (agent(), "create", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.192-0-2-1-80"), true),
            (agent(), "delete", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.192-0-2-1-80"), true),
            (agent(), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("router-b.192-0-2-1-80"), false),
            (agent(), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("router-a.b.192-0-2-1-80"), false),
            (agent(), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("other"), false),
            // The name of a new object is in the body, which is not parsed yet.
            (agent(), "create", leases, "leases", Some(AGENT_NAMESPACE), None, false),
            (agent(), "create", "", "events", Some("default"), None, false),
            (agent(), "get", "", "secrets", Some("shop"), Some("s"), true),
            (agent(), "list", "", "secrets", Some("shop"), None, false),
            (agent(), "watch", "", "secrets", Some("shop"), Some("s"), false),
            (agent(), "patch", "", "secrets", Some("shop"), Some("s"), false),
            (user(USER_SCHEDULER), "get", "", "secrets", Some("shop"), Some("s"), false),
            (member(GROUP_SCHEDULERS), "get", "", "secrets", Some("shop"), Some("s"), false),
            (user(USER_CONTROLLER), "list", "", "secrets", None, None, false),
            (user(USER_NAME_SERVER), "get", "", "secrets", Some("shop"), Some("s"), false),
            (member(GROUP_NAME_SERVERS), "list", "", "secrets", None, None, false),
            (both(), "patch", leases, "leases", Some(AGENT_NAMESPACE), Some("router-b.192-0-2-1-80"), true),
            (member(GROUP_SCHEDULERS), "move", GROUP, "routes", Some("shop"), Some("r"), false),
        ]);
    }
}
