//! The objects that determine the Routers and names of Routes, for one reader of all of them.

use std::collections::HashSet;
use std::sync::Arc;

use super::{BindingInfo, ClaimInfo, NamespaceInfo, RouteInfo, RouterInfo, World};
use crate::client::reflector::{Changes, HealthProbe, ObjectKey, Store};

/// The objects as the informers show them.
#[derive(Clone)]
pub struct Objects {
    pub routes: Store<RouteInfo>,
    /// RouteBindings.
    pub bindings: Store<BindingInfo>,
    pub claims: Store<ClaimInfo>,
    pub routers: Store<RouterInfo>,
    pub namespaces: Store<NamespaceInfo>,
}

/// The changes of the objects, each for this reader.
pub struct ObjectChanges {
    pub routes: Changes<RouteInfo>,
    /// The changes of RouteBindings.
    pub bindings: Changes<BindingInfo>,
    pub claims: Changes<ClaimInfo>,
    pub routers: Changes<RouterInfo>,
    pub namespaces: Changes<NamespaceInfo>,
}

impl World {
    /// Reads the objects.
    pub fn objects(&self) -> (Objects, ObjectChanges) {
        let (routes, route_changes) = self.routes.read();
        let (bindings, binding_changes) = self.bindings.read();
        let (claims, claim_changes) = self.claims.read();
        let (routers, router_changes) = self.routers.read();
        let (namespaces, namespace_changes) = self.namespaces.read();
        let changes = ObjectChanges {
            routes: route_changes,
            bindings: binding_changes,
            claims: claim_changes,
            routers: router_changes,
            namespaces: namespace_changes,
        };
        (Objects { routes, bindings, claims, routers, namespaces }, changes)
    }
}

impl Objects {
    /// Returns whether all kinds are listed.
    pub fn is_synced(&self) -> bool {
        self.routes.is_synced()
            && self.bindings.is_synced()
            && self.claims.is_synced()
            && self.routers.is_synced()
            && self.namespaces.is_synced()
    }

    /// Returns the health of each informer, for metrics and readiness.
    pub fn probes(&self) -> Vec<HealthProbe> {
        let Objects { routes, bindings, claims, routers, namespaces } = self;
        vec![routes.probe(), bindings.probe(), claims.probe(), routers.probe(), namespaces.probe()]
    }

    /// Returns the Routes that do not exist, and whose bindings and claims do.
    pub fn missing_routes(&self) -> HashSet<ObjectKey> {
        let unread: HashSet<ObjectKey> = self.routes.unknown().into_iter().collect();
        let (bindings, claims) = (self.bindings.all(), self.claims.all());
        // A finalizer keeps the binding of a deleted Route.
        let bound = bindings.into_iter().filter(|(_, binding)| !binding.deleting).map(|(key, _)| key);
        let held = claims.iter().filter(|(_, claim)| claim.released.is_none());
        let holders = held.flat_map(|(_, claim)| claim.holders().map(|(key, ..)| key));
        bound.chain(holders).filter(|key| self.routes.get(key).is_none() && !unread.contains(key)).collect()
    }

    pub fn router(&self, name: &str) -> Option<Arc<RouterInfo>> {
        self.routers.get(&ObjectKey::cluster(name))
    }

    pub fn claim(&self, name: &str) -> Option<Arc<ClaimInfo>> {
        self.claims.get(&ObjectKey::cluster(name))
    }

    /// Returns the Namespace of the object at `key`, or one without labels, if it is unknown.
    pub fn namespace_of(&self, key: &ObjectKey) -> Arc<NamespaceInfo> {
        self.namespaces.get(&ObjectKey::cluster(key.namespace())).unwrap_or_default()
    }
}
