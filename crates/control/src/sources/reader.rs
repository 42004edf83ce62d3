//! The objects of the source cluster: an informer for each kind that a source needs and the cluster serves.
//!
//! Which versions are served is discovered, and discovered again from time to time: a definition that is installed later is
//! picked up. A kind that is no longer served, or cannot be listed, keeps its last objects.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedSender;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::api::ApiResource;
use kube::core::{DynamicResourceScope, ObjectMeta};
use kube::{Client, Resource};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::inventory::{self, Kind};
use super::rights::Scope;
use super::{Family, Mode, Settings};
use crate::client::reflector::{self, ApiOf, Change, Informer, Store};

/// An object, or the reason why it cannot be read.
pub type Item = Result<Arc<inventory::Resource>, String>;

/// A change of the objects of a kind.
pub struct Event {
    pub kind: Kind,
    /// The informer that sent it: those of an earlier one do not count.
    pub informer: u64,
    pub change: Change<Item>,
}

/// The kinds of a cluster.
#[derive(Debug, Default)]
pub struct Discovered {
    /// The kinds that can be listed, created and watched, in the version that the cluster prefers.
    pub served: BTreeMap<Kind, ApiResource>,
    /// The kinds of groups that do not answer.
    pub unknown: BTreeMap<Kind, String>,
}

/// The informers of the kinds that are served.
pub struct Reader {
    client: Client,
    settings: Arc<Settings>,
    kinds: BTreeSet<Kind>,
    reading: BTreeMap<Kind, Reading>,
    /// The sender of the changes of an informer.
    opened: UnboundedSender<BoxStream<'static, Event>>,
    /// The number of informers so far.
    informers: u64,
}

struct Reading {
    informer: u64,
    resource: ApiResource,
    store: Store<Item>,
    _watch: DropGuard,
}

impl Reader {
    pub fn new(client: Client, settings: Arc<Settings>, opened: UnboundedSender<BoxStream<'static, Event>>) -> Self {
        Reader { client, kinds: settings.kinds(), settings, reading: BTreeMap::new(), opened, informers: 0 }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn kinds(&self) -> &BTreeSet<Kind> {
        &self.kinds
    }

    /// Returns the version in which a kind is read.
    pub fn resource(&self, kind: Kind) -> Option<&ApiResource> {
        self.reading.get(&kind).map(|reading| &reading.resource)
    }

    /// Returns whether an event is one of the present informer of its kind.
    pub fn is_current(&self, event: &Event) -> bool {
        self.reading.get(&event.kind).is_some_and(|reading| reading.informer == event.informer)
    }

    /// Reads a kind in this version.
    pub fn open(&mut self, kind: Kind, resource: ApiResource) {
        if self.resource(kind) == Some(&resource) {
            return;
        }
        self.informers += 1;
        let (informer, prefixes) = (self.informers, self.settings.annotation_prefixes.clone());
        let settings = self.selection(kind, resource.clone());
        let project =
            move |object: Foreign| kind.read(object.object, &prefixes).map(Arc::new).map_err(|error| error.to_string());
        let (store, changes) = Informer::new(self.client.clone(), settings, project).read();
        let stop = CancellationToken::new();
        let changes = changes.map(move |change| Event { kind, informer, change });
        // The loop that receives them owns this.
        let _ = self.opened.unbounded_send(changes.take_until(stop.clone().cancelled_owned()).boxed());
        self.reading.insert(kind, Reading { informer, resource, store, _watch: stop.drop_guard() });
    }

    /// Stops reading a kind that is not served.
    pub fn close(&mut self, kind: Kind) {
        self.reading.remove(&kind);
    }

    /// Returns why a kind cannot be read, if it cannot.
    pub fn failure(&self, kind: Kind) -> Option<String> {
        self.reading.get(&kind)?.store.health().error
    }

    /// Lists all kinds again.
    pub fn relist(&self) {
        self.reading.values().for_each(|reading| reading.store.relist());
    }

    /// Returns which objects of a kind are read: no more than the sources need.
    fn selection(&self, kind: Kind, resource: ApiResource) -> reflector::Settings {
        let families = Family::ALL.into_iter().filter(|family| self.settings.mode(*family) != Mode::Off);
        let scopes = families.filter(|family| family.kinds().contains(&kind)).map(|family| family.scope(kind));
        // If they differ, all objects.
        let scope = scopes.reduce(|a, b| if a == b { a } else { Scope::default() }).unwrap_or_default();
        reflector::Settings {
            of: ApiOf::Sources,
            resource: Some(resource),
            namespace: scope.namespace.map(str::to_owned),
            field_selector: scope.name.map(|name| format!("metadata.name={name}")),
            ..reflector::Settings::default()
        }
    }
}

/// Discovers in which version each of these kinds is served.
pub async fn discover(client: Client, kinds: BTreeSet<Kind>) -> kube::Result<Discovered> {
    let groups = client.list_api_groups().await?;
    let mut discovered = Discovered::default();
    let names: BTreeSet<&str> = kinds.iter().map(|kind| kind.group()).collect();
    for name in names {
        let mut versions = vec!["v1".to_owned()];
        if !name.is_empty() {
            let Some(group) = groups.groups.iter().find(|group| group.name == name) else { continue };
            let preferred = group.preferred_version.iter().map(|version| version.version.clone());
            versions = preferred.chain(group.versions.iter().map(|version| version.version.clone())).collect();
        }
        let mut failure = None;
        let mut missing: BTreeSet<Kind> = kinds.iter().copied().filter(|kind| kind.group() == name).collect();
        for version in versions {
            if missing.is_empty() {
                break;
            }
            match resources(&client, name, &version).await {
                Ok(resources) => {
                    let found = missing.iter().filter_map(|kind| Some((*kind, served(&resources, *kind, &version)?)));
                    discovered.served.extend(found);
                    missing.retain(|kind| !discovered.served.contains_key(kind));
                }
                Err(error) => failure = Some(error.to_string()),
            }
        }
        if let Some(error) = failure {
            discovered.unknown.extend(missing.into_iter().map(|kind| (kind, error.clone())));
        }
    }
    Ok(discovered)
}

/// Returns whether a kind is still served in this version.
pub async fn is_served(client: Client, kind: Kind, resource: ApiResource) -> kube::Result<bool> {
    let resources = resources(&client, &resource.group, &resource.version).await?;
    Ok(served(&resources, kind, &resource.version).is_some())
}

/// Returns the resources of a version; none if it is not served.
async fn resources(client: &Client, group: &str, version: &str) -> kube::Result<Vec<APIResource>> {
    let listed = match group {
        "" => client.list_core_api_resources(version).await,
        group => client.list_api_group_resources(&format!("{group}/{version}")).await,
    };
    match listed {
        Ok(list) => Ok(list.resources),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns a kind in this version. Without the verb `create`, its definition is being removed: Kubernetes then deletes all objects of
/// the kind, which shows nothing about the single objects.
fn served(resources: &[APIResource], kind: Kind, version: &str) -> Option<ApiResource> {
    let (group, name) = kind.group_and_name();
    let can = |resource: &APIResource, verb: &str| resource.verbs.iter().any(|known| known == verb);
    let is_it = |resource: &&APIResource| {
        resource.kind == name
            && !resource.name.contains('/')
            && ["list", "watch", "create"].into_iter().all(|verb| can(resource, verb))
    };
    let found = resources.iter().find(is_it)?;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: name.to_owned(),
        plural: found.name.clone(),
    })
}

/// An object of any kind.
#[derive(Clone)]
struct Foreign {
    metadata: ObjectMeta,
    object: Value,
}

impl<'de> Deserialize<'de> for Foreign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(de::Error::custom)?;
        Ok(Foreign { metadata, object })
    }
}

impl Resource for Foreign {
    type DynamicType = ();
    type Scope = DynamicResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        Cow::Borrowed("Object")
    }

    fn group(_: &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn version(_: &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
