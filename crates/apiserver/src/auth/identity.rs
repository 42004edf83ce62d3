//! The user that a request comes from: a user name and groups, as in Kubernetes.

/// The group whose members may do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// The group of all other users.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of a request without credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";
/// The user of the server's own loops, as in kube-apiserver.
pub const USER_SERVER: &str = "system:apiserver";

/// An authenticated user. In-process requests carry it as an extension of the HTTP request. Requests from a network cannot,
/// because extensions are not part of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
}

impl Identity {
    /// Returns an authenticated user of no further group.
    pub fn user(name: &str) -> Self {
        Identity { user: name.to_owned(), groups: vec![GROUP_AUTHENTICATED.to_owned()] }
    }

    /// Returns the server's own loops, which may do what is needed.
    pub(crate) fn server() -> Self {
        Identity { user: USER_SERVER.to_owned(), groups: vec![GROUP_MASTERS.to_owned()] }
    }
}
