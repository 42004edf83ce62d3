//! The rights that each source needs in its cluster: one table, from which the manifests in `deploy/` are generated.
//!
//! Only the process that leads uses them. Name servers need none of them.

use std::fmt::Write as _;

use super::Family;
use super::inventory::Kind;
use super::openshift::{INFRASTRUCTURE, NAMESPACE, OPERATOR_NAMESPACE};

const READ: &str = "get, list, watch";

/// The part of a kind that a source reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// `None`: all namespaces, or the kind has none.
    pub namespace: Option<&'static str>,
    /// The only object that is read.
    pub name: Option<&'static str>,
}

impl Family {
    /// Returns the part of a kind that the source reads.
    pub fn scope(self, kind: Kind) -> Scope {
        match (self, kind) {
            (Family::OpenShift, Kind::Service | Kind::EndpointSlice) => {
                Scope { namespace: Some(NAMESPACE), name: None }
            }
            (_, Kind::IngressController) => Scope { namespace: Some(OPERATOR_NAMESPACE), name: None },
            (_, Kind::Infrastructure) => Scope { namespace: None, name: Some(INFRASTRUCTURE) },
            _ => Scope::default(),
        }
    }

    /// Returns the name of the source in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Family::Gateway => "gateway",
            Family::OpenShift => "openshift",
            Family::Ingress => "ingress",
            Family::Service => "service",
        }
    }
}

impl Kind {
    /// Returns the name of the kind in paths and rights.
    pub fn plural(self) -> String {
        let name = self.name().to_ascii_lowercase();
        if name.ends_with('s') { format!("{name}es") } else { format!("{name}s") }
    }
}

/// A right: the verbs on resources.
struct Right {
    namespace: Option<&'static str>,
    group: &'static str,
    resources: String,
    names: Option<&'static str>,
    verbs: &'static str,
}

fn rights(family: Family) -> Vec<Right> {
    let mut rights: Vec<Right> = Vec::new();
    for kind in family.kinds() {
        let Scope { namespace, name } = family.scope(*kind);
        let (group, resource) = (kind.group(), kind.plural());
        let same =
            rights.iter_mut().find(|right| (right.group, right.namespace, right.names) == (group, namespace, name));
        match same {
            Some(right) => right.resources += &format!(", {resource}"),
            None => rights.push(Right { namespace, group, resources: resource, names: name, verbs: READ }),
        }
    }
    let statuses: Vec<String> = family
        .kinds()
        .iter()
        .filter(|kind| kind.is_gateway_route())
        .map(|kind| format!("{}/status", kind.plural()))
        .collect();
    let all = |group, resources, verbs| Right { namespace: None, group, resources, names: None, verbs };
    if !statuses.is_empty() {
        // The state of the names, in an entry of its own.
        rights.push(all(Kind::HTTPRoute.group(), statuses.join(", "), "update, patch"));
    }
    for group in ["", "events.k8s.io"] {
        rights.push(all(group, "events".to_owned(), "get, create, update, patch"));
    }
    rights
}

/// The names in the manifests.
pub struct Names<'a> {
    /// The prefix of the names of roles.
    pub prefix: &'a str,
    /// The service account of the leader, and its namespace.
    pub account: [&'a str; 2],
    /// Further lines of the metadata of each object.
    pub labels: &'a str,
}

/// Returns the manifests of the rights of a source: a role for the cluster, and one for each namespace.
pub fn manifests(family: Family, names: &Names<'_>) -> String {
    let rights = rights(family);
    let mut namespaces: Vec<Option<&str>> = rights.iter().map(|right| right.namespace).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let mut text = String::new();
    for namespace in namespaces {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let name = format!("{}-source-{}", names.prefix, family.word());
        let metadata = namespace.map_or_else(String::new, |namespace| format!("  namespace: {namespace}\n"));
        let head = |kind: &str| {
            let labels = names.labels;
            format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{metadata}{labels}"
            )
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}rules:", head(kind));
        for right in rights.iter().filter(|right| right.namespace == namespace) {
            let group = if right.group.is_empty() { "\"\"" } else { right.group };
            let _ = write!(text, "  - apiGroups: [{group}]\n    resources: [{}]\n", right.resources);
            if let Some(names) = right.names {
                let _ = writeln!(text, "    resourceNames: [{names}]");
            }
            let _ = writeln!(text, "    verbs: [{}]", right.verbs);
        }
        let [account, of] = names.account;
        let binding = head(&format!("{kind}Binding"));
        let _ = write!(
            text,
            "---\n{binding}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\nsubjects:\n  \
             - kind: ServiceAccount\n    name: {account}\n    namespace: {of}\n---\n"
        );
    }
    text
}
