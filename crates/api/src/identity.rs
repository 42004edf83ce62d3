//! Who sends a request: a user name and groups, as Kubernetes knows them.

/// The group whose members may do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// The group of all who proved who they are.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// The group of all others.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Groups of this prefix and a namespace: their members manage the routes of that namespace.
pub const GROUP_TENANT_PREFIX: &str = "signpost:tenant:";
/// The administrator of the first start's kubeconfig.
pub const USER_ADMIN: &str = "signpost:admin";
/// The scheduler: the only one that creates RouteBindings.
pub const USER_SCHEDULER: &str = "system:signpost:scheduler";
/// The control loops beside the scheduler.
pub const USER_CONTROLLER: &str = "system:signpost:controller";
/// A name server: it lists and watches.
pub const USER_NAME_SERVER: &str = "system:signpost:name-server";

/// An authenticated sender. In-process requests carry one as an extension of the HTTP request; no request from a network
/// can, since extensions are not part of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
}

impl Identity {
    /// An authenticated user of no further group.
    pub fn user(name: &str) -> Self {
        Identity { user: name.to_owned(), groups: vec![GROUP_AUTHENTICATED.to_owned()] }
    }

    /// Whether it is one of the platform's own loops.
    pub fn is_of_the_platform(&self) -> bool {
        [USER_SCHEDULER, USER_CONTROLLER, USER_NAME_SERVER].contains(&self.user.as_str())
    }
}
