//! Whether a Route is bound twice: what may never be seen in a watch of RouteBindings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::promises::Promises;

/// The RouteBindings that there are, and the Routes whose binding has gone.
pub struct Bindings {
    promises: Arc<Promises>,
    /// Label and Router of the binding of a Route, by the uid of the Route.
    bound: BTreeMap<String, (String, String)>,
    labels: BTreeMap<String, String>,
    ended: BTreeSet<String>,
}

impl Bindings {
    pub fn new(promises: &Arc<Promises>) -> Bindings {
        let (bound, labels, ended) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Bindings { promises: Arc::clone(promises), bound, labels, ended }
    }

    /// Takes an event of a watch; an error describes what is wrong.
    pub fn observe(&mut self, kind: &str, binding: &Value) -> Result<(), String> {
        let text = |member: &str| binding["spec"][member].as_str().unwrap_or_default().to_owned();
        let (route, uid, router, label) = (text("routeName"), text("routeUID"), text("router"), text("label"));
        if kind == "DELETED" {
            self.bound.remove(&uid);
            self.labels.remove(&label);
            self.ended.insert(uid);
            return Ok(());
        }
        if self.ended.contains(&uid) {
            return Err(format!("Route {route} ({uid}) is bound again, after its binding was deleted: {binding}"));
        }
        if let Some(other) = self.labels.insert(label.clone(), uid.clone()).filter(|other| *other != uid) {
            return Err(format!("the label of Route {route} ({uid}) is that of {other}, too: {binding}"));
        }
        match self.bound.insert(uid.clone(), (label.clone(), router.clone())) {
            Some(_) if kind == "ADDED" => Err(format!("Route {route} ({uid}) has two bindings: {binding}")),
            Some((before, _)) if before != label => Err(format!("Route {route} had label {before}: {binding}")),
            Some((_, before)) if before != router && !self.promises.was_requested(&route, &router) => {
                Err(format!("Route {route} left {before}, and no client moved it: {binding}"))
            }
            _ => Ok(()),
        }
    }
}
