//! kube-rs in the same process: the client through which our own loops speak.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use signpost::api::v1alpha1::route::Route;
use signpost::api::v1alpha1::router::Router;

use crate::support::{PATIENCE, Server, route, router};

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the type's JSON")
}

#[tokio::test]
async fn crud() {
    let server = Server::start().await;
    let api: Api<Route> = Api::default_namespaced(server.client());
    let made = api.create(&PostParams::default(), &typed(route("a"))).await.expect("creates");
    assert!(made.uid().is_some());
    assert!(api.get_opt("none").await.expect("answers").is_none());
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patches");
    assert_eq!(patched.labels()["x"], "y");
    let mut changed = patched.clone();
    changed.spec.path = Some("/p".into());
    let replaced = api.replace("a", &PostParams::default(), &changed).await.expect("replaces");
    let stale = api.replace("a", &PostParams::default(), &changed).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.code == 409));
    assert_eq!(replaced.metadata.generation, Some(2));
    let list = api.list(&ListParams::default().labels("x=y")).await.expect("lists");
    assert_eq!(list.items.len(), 1);
    let gone = api.delete("a", &DeleteParams::default()).await.expect("deletes");
    assert!(gone.is_right(), "a Status");
    assert!(kube::discovery::Discovery::new(server.client()).run().await.expect("discovers").has_group("signpost.dev"));
    let aggregated = kube::discovery::Discovery::new(server.client()).run_aggregated().await.expect("discovers");
    assert!(aggregated.has_group("signpost.dev"));
}

#[tokio::test]
async fn watchers_in_both_modes() {
    let server = Server::start().await;
    let api: Api<Router> = Api::all(server.client());
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &typed(router(name))).await.expect("creates");
    }
    for (mode, config) in
        [("list", watcher::Config::default().page_size(2)), ("streaming", watcher::Config::default().streaming_lists())]
    {
        let mut events = watcher(api.clone(), config).boxed();
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").expect("no error") {
                Some(watcher::Event::InitApply(object)) => seen.push(object.name_any()),
                Some(watcher::Event::InitDone) => break,
                Some(watcher::Event::Init) => {}
                other => panic!("{mode}: {other:?}"),
            }
        }
        assert_eq!(seen, ["a", "b", "c"], "{mode}");
        api.create(&PostParams::default(), &typed(router("d"))).await.expect("creates");
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").expect("no error");
        assert!(matches!(event, Some(watcher::Event::Apply(object)) if object.name_any() == "d"), "{mode}");
        api.delete("d", &DeleteParams::default()).await.expect("deletes");
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").expect("no error");
        assert!(matches!(event, Some(watcher::Event::Delete(object)) if object.name_any() == "d"), "{mode}");
    }
    let api: Api<kube::core::PartialObjectMeta<Router>> = Api::all(server.client());
    let metadata = watcher(api, watcher::Config::default()).applied_objects().boxed();
    let first: Vec<_> = metadata.take(3).try_collect().await.expect("no error");
    assert_eq!(first.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[tokio::test]
async fn leases() {
    let server = Server::start().await;
    let api: Api<Lease> = Api::namespaced(server.client(), "kube-system");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    let mut made = api.create(&PostParams::default(), &typed(lease)).await.expect("creates");
    let stale = made.clone();
    made.spec.as_mut().expect("a spec").holder_identity = Some("two".into());
    let replaced = api.replace("leader", &PostParams::default(), &made).await.expect("replaces");
    assert_eq!(replaced.spec.expect("a spec").holder_identity.as_deref(), Some("two"));
    let lost = api.replace("leader", &PostParams::default(), &stale).await;
    assert!(matches!(lost, Err(kube::Error::Api(status)) if status.code == 409));
}

#[tokio::test]
async fn finalizers_and_recorder() {
    use kube::runtime::events::{Event, EventType, Recorder, Reporter};
    use kube::runtime::finalizer::{Event as Finalizer, finalizer};
    let server = Server::start().await;
    let api: Api<Route> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &typed(route("a"))).await.expect("creates");
    let reconcile = |event: Finalizer<Route>| async move {
        let _ = event;
        Ok::<_, std::convert::Infallible>(kube::runtime::controller::Action::await_change())
    };
    let object = std::sync::Arc::new(api.get("a").await.expect("gets"));
    finalizer(&api, "example.com/f", object, reconcile).await.expect("adds the finalizer");
    let object = api.get("a").await.expect("gets");
    assert_eq!(object.finalizers(), ["example.com/f"]);

    let reporter = Reporter { controller: "test".into(), instance: None };
    let recorder = Recorder::new(server.client(), reporter);
    let event = || Event {
        type_: EventType::Normal,
        reason: "Tested".into(),
        note: Some("well".into()),
        action: "Test".into(),
        secondary: None,
    };
    use kube::Resource;
    let reference = object.object_ref(&());
    recorder.publish(&event(), &reference).await.expect("publishes");
    recorder.publish(&event(), &reference).await.expect("publishes again");
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(server.client());
    let found = events.list(&ListParams::default().fields("involvedObject.name=a")).await.expect("lists");
    assert_eq!(found.items.len(), 1, "the second raised the count of the first");

    api.delete("a", &DeleteParams::default()).await.expect("deletes");
    let object = std::sync::Arc::new(api.get("a").await.expect("is held"));
    finalizer(&api, "example.com/f", object, reconcile).await.expect("removes the finalizer");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(api.get_opt("a").await.expect("answers").is_none());
}
