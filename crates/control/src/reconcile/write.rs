//! Execution of the reconciler's actions. Each one reads again the objects that the decision depends on, and repeats the
//! decision.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, Preconditions};
use serde_json::json;

use super::former_names::NameWriter;
use super::state::Action;
use super::{Settings, claim};
use crate::client::events::{Notice, Reporter, event};
use crate::client::lease::Term;
use crate::client::recorder;
use crate::client::reflector::ObjectKey;
use crate::client::write::{self, update_status};
use crate::status::health;
use crate::status::route::{Change, apply, assigned};
use crate::status::router::{self, Load};
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{RouteFindings, RouterFindings};
use crate::world::owners::Owners;
use crate::world::{self, BindingInfo, RouteInfo, RouterInfo};
use signpost_types::v1alpha1::route::{ROUTER_GONE, Route};
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;

/// The result of an action.
#[derive(Debug, Default)]
pub struct Done {
    /// The action as a metric label; `None`: nothing was left to do.
    pub action: Option<&'static str>,
    /// The uid of the Route that was written.
    pub uid: String,
    /// The conditions that turned true or false, or are new.
    pub turned: Vec<ConditionUpdate>,
    /// The findings that were written, or are obsolete.
    pub findings: RouteFindings,
}

impl Done {
    fn only(action: Option<&'static str>) -> Self {
        Done { action, ..Done::default() }
    }
}

/// Executes actions.
#[derive(Clone)]
pub(super) struct Writer {
    pub client: kube::Client,
    settings: Settings,
    world: Arc<world::Settings>,
    owners: Owners,
    /// The writer of former names, if there is a scheduler whose identity it uses.
    pub names: Option<NameWriter>,
}

impl Writer {
    pub(super) fn new(client: kube::Client, settings: &Settings, world: Arc<world::Settings>, owners: Owners) -> Self {
        Writer { client, settings: settings.clone(), world, owners, names: None }
    }

    /// Does what was planned.
    pub(super) async fn carry_out(&self, action: Action, term: &Term) -> kube::Result<Done> {
        match action {
            Action::SettleNames(key) => match &self.names {
                Some(names) => names.settle(&key, term).await.map(Done::only),
                None => Ok(Done::default()),
            },
            Action::SettleClaim(name, step) => {
                claim::settle(&self.client, &name, step, &self.settings, &self.owners).await.map(Done::only)
            }
            Action::Reclaim(key, uid) => claim::reclaim(&self.client, &key, &uid).await.map(Done::only),
            Action::ClearBinding(key) => self.clear_binding(&key).await.map(Done::only),
            Action::WriteRoute { key, change } => self.write_route(&key, change).await,
            Action::WriteRouter { name, load, findings } => {
                self.write_router(&name, &load, &findings).await.map(Done::only)
            }
        }
    }

    async fn write_route(&self, key: &ObjectKey, change: Change) -> kube::Result<Done> {
        let routes: Api<Route> = Api::namespaced(self.client.clone(), key.namespace());
        if change.is_unassigned {
            return self.assign(&routes, key).await.map(Done::only);
        }
        if change.statements.iter().any(|statement| statement.reason == ROUTER_GONE)
            && !self.is_router_gone(key).await?
        {
            return Ok(Done::default());
        }
        let mut written = None;
        let update = |route: &Route| {
            let changed = apply(&change, route, Timestamp::now());
            written = None;
            changed.map(|changed| {
                written = Some(changed.turned);
                changed.patch
            })
        };
        update_status(&routes, &key.name, update).await?;
        Ok(Done {
            action: written.is_some().then_some("status_written"),
            uid: change.uid.to_string(),
            turned: written.unwrap_or_default(),
            findings: change.findings,
        })
    }

    /// Writes the contents of its binding to the Route at `key`, if the server has not.
    async fn assign(&self, routes: &Api<Route>, key: &ObjectKey) -> kube::Result<Option<&'static str>> {
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), key.namespace());
        // The Route is read first: a later change of the binding also changes the Route, or is noticed.
        let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
        let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
        let Some(status) = assigned(&route, &binding.spec, Timestamp::now()) else { return Ok(None) };
        let patch = json!({"metadata": {"resourceVersion": route.metadata.resource_version}, "status": status});
        match routes.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(Some("assigned")),
            // The key is checked again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a Router was deleted according to the API, because the informer can lag.
    async fn is_router_gone(&self, key: &ObjectKey) -> kube::Result<bool> {
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), key.namespace());
        let routers: Api<Router> = Api::all(self.client.clone());
        let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(false) };
        let router = routers.get_opt(&binding.spec.router).await?;
        let is_same = |dns: &str| dns.is_empty() || dns.eq_ignore_ascii_case(&binding.spec.dns);
        Ok(router.is_none_or(|router| !router.spec.dns.as_deref().is_none_or(is_same)))
    }

    async fn write_router(
        &self,
        name: &str,
        load: &Load,
        findings: &RouterFindings,
    ) -> kube::Result<Option<&'static str>> {
        let routers: Api<Router> = Api::all(self.client.clone());
        let (mut is_written, mut notices) = (false, Vec::new());
        let update = |router: &Router| {
            let info = RouterInfo::new(router, &self.world);
            let change = router::router(&info, load, findings, &self.world.platform, Timestamp::now());
            is_written = change.is_some();
            change.map(|change| {
                notices = change.notices;
                change.patch
            })
        };
        let Some(router) = update_status(&routers, name, update).await?.filter(|_| is_written) else { return Ok(None) };
        let instance = self.settings.instance.clone();
        let reporter = Reporter { controller: "signpost.dev/health", action: "Probing", instance };
        for health::Notice { is_warning, reason, note } in notices {
            let (object, uid) = (ObjectKey::cluster(name), router.metadata.uid.clone().unwrap_or_default());
            let notice = Notice { api_version: None, kind: "Router", object, uid, is_warning, reason, note };
            if let Err(error) = recorder::record(&self.client, &event(notice, &reporter, Timestamp::now())).await {
                tracing::warn!(router = name, %error, "failed to record an event");
            }
        }
        Ok(Some("status_written"))
    }

    /// Deletes the binding at `key`, if it has no Route according to the API.
    async fn clear_binding(&self, key: &ObjectKey) -> kube::Result<Option<&'static str>> {
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), key.namespace());
        let routes: Api<Route> = Api::namespaced(self.client.clone(), key.namespace());
        // In this order: if the Route were re-created and bound in between, the binding's uid would be different.
        let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
        let route = routes.get_opt(&key.name).await?.map(|route| RouteInfo::new(&route));
        let view = BindingInfo::new(&binding);
        let is_kept = self.owners.keeps_route(key);
        if view.deleting || is_kept || !claim::is_stray(&view, route.as_ref()) {
            return Ok(None);
        }
        let preconditions = Preconditions { uid: binding.metadata.uid, resource_version: None };
        Ok(write::delete(&bindings, &key.name, Some(preconditions)).await?.then_some("deleted"))
    }
}
