//! Instances as pods of a Kubernetes cluster: a Deployment, a Service, a PodDisruptionBudget, and a ServiceAccount for each
//! Router.
//!
//! The objects are found by their labels, so that the next leader adopts them. An object that differs from the applied one is
//! applied again. An object that no Router needs is deleted: the Deployment first, and the others when its pods have ended. The
//! objects of a Router whose loss is held stay unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::objects::{self, Kind, PREFIX, ROUTER, SELECTOR, Settings};
use super::{KeepFilter, Runtime, Wanted};

const MANAGER: &str = "signpost-routers";
/// The time between two comparisons with the cluster.
const INTERVAL: Duration = Duration::from_secs(5);
/// The time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// An object of the namespace.
type Key = (Kind, String);

/// Instances as pods.
pub struct Kubernetes {
    client: kube::Client,
    settings: Settings,
    /// The desired objects, each with its Router.
    wanted: BTreeMap<Key, (String, Value)>,
    /// The applied objects, each with its version after that.
    applied: BTreeMap<Key, (Value, String)>,
    /// The time of the next comparison, unless the desired objects change.
    next: Instant,
    /// The reasons why instances of Routers do not run.
    errors: BTreeMap<String, String>,
}

impl Kubernetes {
    /// Creates the runtime. The client needs the rights on the objects in the namespace.
    pub fn new(client: kube::Client, settings: Settings) -> Kubernetes {
        let (wanted, applied, errors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Kubernetes { client, settings, wanted, applied, next: Instant::now(), errors }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.settings.namespace, &kind.resource())
    }

    /// Lists the objects that this runtime, or an earlier one, has created.
    async fn list(&self) -> Result<BTreeMap<Key, DynamicObject>, String> {
        let mut found = BTreeMap::new();
        let of_instances = ListParams::default().labels(SELECTOR);
        for kind in Kind::ALL {
            let objects = bounded(self.api(kind).list(&of_instances)).await?;
            found.extend(objects.items.into_iter().map(|object| ((kind, object.name_any()), object)));
        }
        Ok(found)
    }

    /// Applies an object. `is_ours`: it exists with Signpost's labels.
    async fn apply(&self, (kind, name): &Key, content: &Value, is_ours: bool) -> kube::Result<DynamicObject> {
        // An object of that name without Signpost's labels belongs to another owner: a difference is a conflict.
        let parameters = PatchParams { force: is_ours, ..PatchParams::apply(MANAGER) };
        let api = self.api(*kind);
        match api.patch(name, &parameters, &Patch::Apply(content)).await {
            // Another client changed the key of an item, such as the number of a port. An apply keeps the changed item, and adds a
            // second one with the same name. A merge replaces the whole list.
            Err(kube::Error::Api(status)) if status.code == 422 && is_ours => {
                let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                api.patch(name, &parameters, &Patch::Merge(content)).await
            }
            applied => applied,
        }
    }

    /// Compares the cluster with the desired state, and changes the differences.
    async fn compare(&mut self, kept: &KeepFilter<'_>) -> Result<BTreeMap<String, String>, String> {
        let mut found = self.list().await?;
        let mut errors = BTreeMap::new();
        for (key, (router, content)) in &self.wanted {
            let live = found.remove(key);
            let is_as_applied = |live: &DynamicObject| {
                self.applied
                    .get(key)
                    .is_some_and(|(applied, version)| applied == content && *version == version_of(live))
            };
            let result = match live {
                // The object is created again after its deletion.
                Some(live) if live.metadata.deletion_timestamp.is_some() => Err("it is being deleted".to_owned()),
                Some(live) if is_as_applied(&live) => Ok(live),
                live => {
                    let applied = bounded(self.apply(key, content, live.is_some())).await;
                    // The caller reports an error.
                    if applied.is_ok() {
                        tracing::info!(router, kind = ?key.0, name = key.1, "applied an object of the Router's instances");
                    }
                    applied
                }
            };
            let result = result.and_then(|live| {
                self.applied.insert(key.clone(), (content.clone(), version_of(&live)));
                failure(&live).map_or(Ok(()), Err)
            });
            if let Err(error) = result {
                let (kind, namespace) = (key.0.resource().kind, &self.settings.namespace);
                errors.entry(router.clone()).or_insert_with(|| format!("{kind} {namespace}/{}: {error}", key.1));
            }
        }
        self.applied.retain(|key, _| self.wanted.contains_key(key));
        self.delete(found, kept).await;
        Ok(errors)
    }

    /// Deletes objects that no Router needs, except those of the `kept` Routers.
    async fn delete(&self, mut found: BTreeMap<Key, DynamicObject>, kept: &KeepFilter<'_>) {
        let running = found
            .iter()
            .filter(|((kind, _), live)| *kind == Kind::Deployment && live.metadata.deletion_timestamp.is_none());
        let routers = running.filter_map(|((_, name), _)| name.strip_prefix(PREFIX)).collect();
        let kept = kept(routers);
        let kept: BTreeSet<_> = kept
            .iter()
            .filter_map(|router| {
                let deployment = found.get(&(Kind::Deployment, format!("{PREFIX}{router}")))?;
                deployment.labels().get(ROUTER).cloned()
            })
            .collect();
        found.retain(|_, live| live.labels().get(ROUTER).is_none_or(|router| !kept.contains(router)));
        let deployments = found.iter().filter(|((kind, _), _)| *kind == Kind::Deployment);
        let draining: BTreeSet<_> = deployments.filter_map(|(_, live)| live.labels().get(ROUTER)).collect();
        for ((kind, name), live) in &found {
            // Pods that are leaving need their service account and their load balancer.
            let has_pods = live.labels().get(ROUTER).is_some_and(|router| draining.contains(router));
            if *kind != Kind::Deployment && has_pods || live.metadata.deletion_timestamp.is_some() {
                continue;
            }
            // The Deployment stays until its pods have ended.
            let is_foreground = *kind == Kind::Deployment;
            let propagation = if is_foreground { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
            let parameters = DeleteParams {
                propagation_policy: Some(propagation),
                preconditions: Some(Preconditions { uid: live.uid(), resource_version: None }),
                ..DeleteParams::default()
            };
            match bounded(self.api(*kind).delete(name, &parameters)).await {
                Ok(_) => tracing::info!(?kind, name, "deleted an object of instances that no Router needs"),
                Err(error) => tracing::warn!(?kind, name, error, "failed to delete an object of instances; retrying"),
            }
        }
    }
}

impl Runtime for Kubernetes {
    async fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, Wanted>,
        kept: &KeepFilter<'_>,
    ) -> BTreeMap<String, String> {
        let of = |(router, wanted): (&String, &Wanted)| {
            let objects = objects::of(router, wanted, &self.settings);
            objects.map(|(kind, name, content)| ((kind, name), (router.clone(), content)))
        };
        let objects: BTreeMap<Key, (String, Value)> = wanted.iter().flat_map(of).collect();
        if objects == self.wanted && Instant::now() < self.next {
            return self.errors.clone();
        }
        self.wanted = objects;
        self.errors = self.compare(kept).await.unwrap_or_else(|error| {
            tracing::warn!(error, "failed to list the objects of instances; retrying");
            let error = format!("failed to list the objects of its instances: {error}");
            wanted.keys().map(|router| (router.clone(), error.clone())).collect()
        });
        self.next = Instant::now() + INTERVAL;
        self.errors.clone()
    }

    /// Pods outlive this process.
    async fn shut_down(&mut self) {}
}

/// Returns a value that changes whenever a client changes an object, and for a Deployment not with its status.
fn version_of(object: &DynamicObject) -> String {
    match object.metadata.generation {
        Some(generation) => format!("{generation} of {}", object.uid().unwrap_or_default()),
        None => object.resource_version().unwrap_or_default(),
    }
}

/// Returns the reason why a Deployment has no new pods, or these are not ready.
fn failure(object: &DynamicObject) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let is_failure = |condition: &&Value| {
        let state = (text(condition, "type"), text(condition, "status"));
        [("ReplicaFailure", "True"), ("Progressing", "False")].contains(&(&state.0, &state.1))
    };
    let condition = conditions.iter().find(is_failure)?;
    Some(format!("{}: {}", text(condition, "reason"), text(condition, "message")))
}

async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, request).await {
        // The whole error has Rust's form of the status.
        Ok(Err(kube::Error::Api(status))) => Err(format!("{} ({})", status.message, status.code)),
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the API of the cluster does not answer in time".to_owned()),
    }
}
