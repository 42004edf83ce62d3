//! `signpost explain KIND/NAME`: what the platform derived from an object of a source cluster, such as an HTTPRoute or a Gateway, from the
//! object to the state of each name.
//!
//! A Router or Route that a source wrote names its object in an annotation. The Router of a name comes from an object, too: so the
//! explanation of an HTTPRoute shows its Gateway.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use crate::cli::access::Access;
use crate::cli::style::{Painter, Style};
use crate::cli::table::{Cell, Properties, Table};
use signpost_types::route_state::RouteState;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::{READY, Router, ZONE_PUBLISHED};
use signpost_types::v1alpha1::{SOURCE_LABEL, SOURCE_OBJECT_ANNOTATION};

/// The kinds of sources, whether they have namespaces, and their short names.
const KINDS: [(&str, bool, &str); 9] = [
    ("Gateway", true, "gtw"),
    ("HTTPRoute", true, ""),
    ("GRPCRoute", true, ""),
    ("TLSRoute", true, ""),
    ("IngressController", true, ""),
    ("Route", true, ""),
    ("IngressClass", false, ""),
    ("Ingress", true, "ing"),
    ("Service", true, "svc"),
];
/// The namespace of all IngressControllers, which therefore need none.
const INGRESS_CONTROLLERS: &str = "openshift-ingress-operator";

/// An object of a source cluster, as the command names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceName {
    kind: &'static str,
    has_namespace: bool,
    pub(super) namespace: Option<String>,
    name: String,
}

impl SourceName {
    /// Reads `KIND/NAME` or `KIND/NAMESPACE/NAME`. The kind may be in lower case, in plural, or a short name, as for kubectl.
    pub(super) fn parse(text: &str) -> Result<SourceName, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, name] => (kind, None, name),
            [kind, namespace, name] => (kind, Some(namespace), name),
            _ => return Err("must be KIND/NAME or KIND/NAMESPACE/NAME".to_owned()),
        };
        if name.is_empty() || namespace.is_some_and(str::is_empty) {
            return Err("must be KIND/NAME or KIND/NAMESPACE/NAME".to_owned());
        }
        let kind = kind.to_ascii_lowercase();
        let is_it = |(known, _, short): &&(&str, bool, &str)| {
            let known = known.to_ascii_lowercase();
            kind == known
                || kind == format!("{known}s")
                || kind == format!("{known}es")
                || !short.is_empty() && kind == *short
        };
        let Some((known, has_namespace, _)) = KINDS.iter().find(is_it) else {
            let all: Vec<&str> = KINDS.iter().map(|(kind, ..)| *kind).collect();
            return Err(format!("{kind:?} is not a kind of source: use one of {}", all.join(", ")));
        };
        let namespace = namespace.or((*known == "IngressController").then_some(INGRESS_CONTROLLERS));
        let namespace = namespace.map(str::to_owned);
        Ok(SourceName { kind: known, has_namespace: *has_namespace, namespace, name: name.to_owned() })
    }

    /// Returns the text of the annotation of objects that come from this one; without a namespace of its own it is in `namespace`.
    pub(super) fn text(&self, namespace: &str) -> String {
        match self.has_namespace {
            true => format!("{} {}/{}", self.kind, self.namespace.as_deref().unwrap_or(namespace), self.name),
            false => format!("{} {}", self.kind, self.name),
        }
    }
}

/// The explanation of a source object. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceExplanation {
    source: String,
    routers: Vec<DerivedRouter>,
    names: Vec<DerivedName>,
}

/// A Router that comes from the object, or on which a name of it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DerivedRouter {
    name: String,
    zone: String,
    addresses: Vec<String>,
    /// The object that it comes from; absent: a user wrote it.
    source: Option<String>,
    conditions: Vec<Condition>,
}

/// A Route that comes from the object, or is on a Router that does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DerivedName {
    host: String,
    source: String,
    admitted_by: String,
    router: String,
    namespace: String,
    route: String,
    alias: Option<String>,
    state: RouteState,
    reason: Option<String>,
    message: Option<String>,
}

/// Returns the object that a Router or Route comes from.
fn source_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(SOURCE_OBJECT_ANNOTATION).map(String::as_str)
}

impl SourceExplanation {
    /// Reads what comes from an object. A user who may not list the Routes of all namespaces gets those of the object's namespace.
    pub(super) async fn find(access: &Access, wanted: &SourceName) -> Result<SourceExplanation, String> {
        let source = wanted.text(&access.namespace);
        let derived = || ListParams::default().labels(SOURCE_LABEL);
        let routers = access.list(&Api::<Router>::all(access.client.clone()), derived()).await?;
        let own: BTreeSet<&str> = routers
            .iter()
            .filter(|router| source_of(&router.metadata) == Some(&source))
            .filter_map(|router| router.metadata.name.as_deref())
            .collect();
        let namespace = wanted.namespace.as_deref().unwrap_or(&access.namespace);
        let routes = if own.is_empty() {
            access.list(&Api::<Route>::namespaced(access.client.clone(), namespace), derived()).await?
        } else {
            match access.list(&Api::<Route>::all(access.client.clone()), derived()).await {
                Ok(routes) => routes,
                Err(_) => access.list(&Api::<Route>::namespaced(access.client.clone(), namespace), derived()).await?,
            }
        };
        SourceExplanation::new(source, routers, routes)
    }

    fn new(source: String, routers: Vec<Router>, routes: Vec<Route>) -> Result<SourceExplanation, String> {
        let routers: BTreeMap<String, Router> =
            routers.into_iter().filter_map(|router| Some((router.metadata.name.clone()?, router))).collect();
        let is_own = |metadata: &ObjectMeta| source_of(metadata) == Some(&source);
        let mut shown: BTreeSet<String> =
            routers.iter().filter(|(_, router)| is_own(&router.metadata)).map(|(name, _)| name.clone()).collect();
        let mut names = Vec::new();
        for route in routes {
            let Some(adopted) = &route.spec.adopted else { continue };
            let is_of_route = is_own(&route.metadata);
            if !is_of_route && !routers.get(&adopted.router).is_some_and(|router| is_own(&router.metadata)) {
                continue;
            }
            if is_of_route {
                shown.insert(adopted.router.clone());
            }
            let status = route.status.clone().unwrap_or_default();
            let (state, decided) = RouteState::of(&status);
            names.push(DerivedName {
                host: route.spec.host.clone().unwrap_or_default(),
                source: source_of(&route.metadata).unwrap_or_default().to_owned(),
                admitted_by: adopted.by.clone(),
                router: adopted.router.clone(),
                namespace: route.metadata.namespace.clone().unwrap_or_default(),
                route: route.metadata.name.clone().unwrap_or_default(),
                alias: status.canonical_name.clone(),
                state,
                reason: decided.map(|condition| condition.reason.clone()),
                message: decided.map(|condition| condition.message.clone()),
            });
        }
        if shown.is_empty() && names.is_empty() {
            return Err(format!(
                "NotFound: no Router or Route comes from {source}; run \"signpost sources\" for the reasons why objects are left \
                 out"
            ));
        }
        names.sort_by(|a, b| (&a.host, &a.namespace, &a.route).cmp(&(&b.host, &b.namespace, &b.route)));
        let router = |name: String| {
            let router = routers.get(&name);
            let status = router.and_then(|router| router.status.clone()).unwrap_or_default();
            DerivedRouter {
                zone: router.and_then(|router| router.spec.dns.clone()).unwrap_or_default(),
                addresses: router.iter().flat_map(|router| router.addresses()).map(|one| one.ip.clone()).collect(),
                source: router.and_then(|router| source_of(&router.metadata)).map(str::to_owned),
                conditions: status.conditions,
                name,
            }
        };
        Ok(SourceExplanation { routers: shown.into_iter().map(router).collect(), names, source })
    }

    /// Returns the text output.
    pub(super) fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        facts.add("source", self.source.clone());
        for router in &self.routers {
            let addresses =
                if router.addresses.is_empty() { "no address".to_owned() } else { router.addresses.join(", ") };
            let from = match &router.source {
                Some(source) if *source == self.source => String::new(),
                Some(source) => format!(", from {source}"),
                None => ", which no source wrote".to_owned(),
            };
            facts.add("router", format!("{} with the zone {} ({addresses}){from}", router.name, router.zone));
            let shown =
                router.conditions.iter().filter(|condition| [READY, ZONE_PUBLISHED].contains(&&*condition.type_));
            for Condition { type_, status, reason, message, .. } in shown {
                facts.add(type_, format!("{status}, {reason}: {message}"));
            }
        }
        let mut text = facts.text(painter);
        let mut table = Table::bounded(["host", "router", "route", "alias", "state", "why"]);
        for name in &self.names {
            let style = match name.state {
                RouteState::Resolvable | RouteState::Answered => Style::Good,
                RouteState::Refused | RouteState::Down => Style::Bad,
                _ => Style::Warning,
            };
            // A live name is explained by its admission, another one by its fault.
            let why = match (style, &name.message) {
                (Style::Good, _) | (_, None) => name.admitted_by.clone(),
                (_, Some(message)) => format!("{}: {message}", name.reason.as_deref().unwrap_or_default()),
            };
            table.row([
                Cell::from(name.host.as_str()),
                Cell::from(name.router.as_str()),
                Cell::from(format!("{}/{}", name.namespace, name.route)),
                Cell::or_dash(name.alias.clone()),
                Cell::styled(style, name.state.word()),
                Cell::from(why),
            ]);
        }
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.text(painter));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::{Value, json};

    #[test]
    fn names_of_objects() {
        for (text, expected) in [
            ("httproute/web", "HTTPRoute shop/web"),
            ("HTTPRoutes/bank/web", "HTTPRoute bank/web"),
            ("gtw/eu", "Gateway shop/eu"),
            ("ingresses/web", "Ingress shop/web"),
            ("ingressclasses/nginx", "IngressClass nginx"),
            ("ingresscontroller/default", "IngressController openshift-ingress-operator/default"),
            ("svc/db", "Service shop/db"),
        ] {
            assert_eq!(SourceName::parse(text).expect("a source").text("shop"), expected, "{text}");
        }
        for wrong in ["web", "pod/web", "httproute/", "httproute//web", "httproute/a/b/c"] {
            assert!(SourceName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_chain_from_the_object_to_the_name() {
        let from = |source: &str| json!({SOURCE_OBJECT_ANNOTATION: source});
        let router: Router = object(
            "Router",
            json!({"name": "gw-infra-eu", "annotations": from("Gateway infra/eu")}),
            json!({"dns": "eu.c.example", "addresses": [{"ip": "192.0.2.1"}]}),
            json!(null),
        );
        let route = |name: &str, source: &str, status: Value| -> Route {
            object(
                "Route",
                json!({"namespace": "shop", "name": name, "annotations": from(source)}),
                json!({
                    "host": format!("{name}.eu.c.example"),
                    "adopted": {"router": "gw-infra-eu", "by": "listener https of Gateway infra/eu"},
                }),
                status,
            )
        };
        let routes = || {
            vec![
                route("web", "HTTPRoute shop/web", json!({"phase": "new"})),
                route("api", "HTTPRoute shop/api", json!({"phase": "new"})),
            ]
        };
        let found = |source: &str| SourceExplanation::new(source.to_owned(), vec![router.clone()], routes());
        let hosts = |found: &SourceExplanation| found.names.iter().map(|name| name.host.clone()).collect::<Vec<_>>();
        let of_route = found("HTTPRoute shop/web").expect("found");
        assert_eq!(hosts(&of_route), ["web.eu.c.example"]);
        let text = of_route.text(Painter::PLAIN);
        for part in
            ["from Gateway infra/eu", "eu.c.example (192.0.2.1)", "listener https of Gateway infra/eu", "pending"]
        {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let of_gateway = found("Gateway infra/eu").expect("found");
        assert_eq!(hosts(&of_gateway), ["api.eu.c.example", "web.eu.c.example"]);
        assert!(found("HTTPRoute shop/other").expect_err("none").contains("signpost sources"));
    }
}
