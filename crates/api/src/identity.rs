//! The users and groups that the platform uses.

pub use signpost_apiserver::auth::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_UNAUTHENTICATED, Identity};

/// The prefix of tenant groups; a namespace follows. Members manage the Routes of that namespace.
pub const GROUP_TENANT_PREFIX: &str = "signpost:tenant:";
/// The administrator of the first start's kubeconfig.
pub const USER_ADMIN: &str = "signpost:admin";
/// The scheduler: the only user that creates RouteBindings.
pub const USER_SCHEDULER: &str = "system:signpost:scheduler";
/// The user of the control loops other than the scheduler.
pub const USER_CONTROLLER: &str = "system:signpost:controller";
/// A name server: it lists and watches.
pub const USER_NAME_SERVER: &str = "system:signpost:name-server";

/// The agents of instances that the platform runs on this machine.
pub const USER_ROUTER_AGENT: &str = "system:signpost:router-agent";

/// Returns whether it is one of the platform's own loops.
pub fn is_of_the_platform(identity: &Identity) -> bool {
    [USER_SCHEDULER, USER_CONTROLLER, USER_NAME_SERVER].contains(&identity.user.as_str())
}
