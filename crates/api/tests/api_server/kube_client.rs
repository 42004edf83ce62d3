//! kube-rs: the client through which Signpost's own loops speak, and users' controllers. Every test runs twice: against the server's
//! own service in this process, and over TLS with a token.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{Config, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use signpost_runtime::{httpd, tls};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

use crate::support::{ADMIN_TOKEN, PATIENCE, Server, route, router};

/// A server and how it is reached.
struct Reached {
    client: kube::Client,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Reached {
    fn client(&self) -> kube::Client {
        self.client.clone()
    }

    async fn in_process() -> Reached {
        let server = Server::start().await;
        Reached { client: server.client(), _server: server, _folder: tempfile::tempdir().expect("a folder") }
    }

    async fn over_tls() -> Reached {
        let _ = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().install_default();
        let server = Server::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let names = tls::loopback_names();
        let authority = tls::Authority::open(folder.path(), names, std::time::SystemTime::now()).expect("certificates");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let config = authority.server_config(None).expect("a certificate");
        let (router, stop) = (server.api.router(), server.stop_token());
        tokio::spawn(httpd::serve(listener, Some(config), router, httpd::Limits::default(), stop));
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": BASE64.encode(authority.certificate_pem().as_bytes()),
            }}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
        }))
        .expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
        let client = kube::Client::try_from(config).expect("a client");
        Reached { client, _server: server, _folder: folder }
    }
}

macro_rules! both_ways {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Reached::in_process().await).await;
            })*
        }
        mod over_tls {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Reached::over_tls().await).await;
            })*
        }
    };
}

both_ways!(
    crud,
    watchers_in_both_modes,
    leases,
    finalizers_and_recorder,
    a_reflector_follows,
    a_controller_reconciles,
    server_side_apply,
    an_expired_watch_is_listed_anew,
);

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the type's JSON")
}

async fn crud(server: &Reached) {
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

async fn watchers_in_both_modes(server: &Reached) {
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

async fn leases(server: &Reached) {
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

async fn finalizers_and_recorder(server: &Reached) {
    use kube::runtime::events::{Event, EventType, Recorder, Reporter};
    use kube::runtime::finalizer::{Event as Finalizer, finalizer};
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
    assert!(api.get_opt("a").await.expect("answers").is_none());
}

async fn a_reflector_follows(server: &Reached) {
    use kube::runtime::reflector;
    let api: Api<Route> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &typed(route("a"))).await.expect("creates");
    let (reader, writer) = reflector::store();
    let stream = reflector(writer, watcher(api.clone(), watcher::Config::default())).touched_objects();
    let follows = tokio::spawn(stream.for_each(|_| async {}));
    tokio::time::timeout(PATIENCE, reader.wait_until_ready()).await.expect("in time").expect("the writer is there");
    api.create(&PostParams::default(), &typed(route("b"))).await.expect("creates");
    api.delete("a", &DeleteParams::default()).await.expect("deletes");
    let names = || reader.state().iter().map(|route| route.name_any()).collect::<Vec<_>>();
    for _ in 0..2_400 {
        if names() == ["b"] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(names(), ["b"]);
    follows.abort();
}

/// A controller as users write them: it applies a label by server-side apply whenever a Route changes, and a Route that it
/// owns is reported under its owner.
async fn a_controller_reconciles(server: &Reached) {
    use kube::runtime::controller::{Action, Controller};
    let api: Api<Route> = Api::default_namespaced(server.client());
    let reconcile = |object: Arc<Route>, api: Arc<Api<Route>>| async move {
        let seen = object.metadata.generation.unwrap_or_default().to_string();
        let config = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"name": object.name_any(), "labels": {"seen": seen}}});
        api.patch(&object.name_any(), &PatchParams::apply("labeller").force(), &Patch::Apply(config)).await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let again = |_: Arc<Route>, _: &kube::Error, _: Arc<Api<Route>>| Action::requeue(Duration::from_millis(50));
    let controller = Controller::new(api.clone(), watcher::Config::default())
        .owns(api.clone(), watcher::Config::default())
        .run(reconcile, again, Arc::new(api.clone()));
    let runs = tokio::spawn(controller.for_each(|_| async {}));
    api.create(&PostParams::default(), &typed(route("a"))).await.expect("creates");
    let labelled = |seen: &'static str| {
        let api = api.clone();
        async move {
            for _ in 0..2_400 {
                if api.get("a").await.expect("gets").labels().get("seen").is_some_and(|found| found == seen) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            panic!("never labelled {seen}");
        }
    };
    labelled("1").await;
    let patch = json!({"spec": {"path": "/changed"}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patches");
    labelled("2").await;
    // Nothing is left to do: what it applies changes nothing, and so starts nothing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let version = api.get("a").await.expect("gets").resource_version();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(api.get("a").await.expect("gets").resource_version(), version);
    runs.abort();
}

async fn server_side_apply(server: &Reached) {
    let api: Api<Route> = Api::default_namespaced(server.client());
    let config = |path: &str| {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "a"},
            "spec": {"path": path, "to": {"kind": "Service", "name": "web"}}})
    };
    let apply = |manager: &'static str, path: &'static str, force: bool| {
        let (api, config) = (api.clone(), config(path));
        async move {
            let parameters = PatchParams { force, ..PatchParams::apply(manager) };
            api.patch("a", &parameters, &Patch::Apply(config)).await
        }
    };
    let made = apply("one", "/a", false).await.expect("creates");
    let again = apply("one", "/a", false).await.expect("changes nothing");
    assert_eq!((made.resource_version(), made.managed_fields()), (again.resource_version(), again.managed_fields()));
    let conflict = apply("two", "/b", false).await;
    let Err(kube::Error::Api(status)) = conflict else { panic!("{conflict:?}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let causes: Vec<_> = status.details.as_ref().expect("details").causes.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(causes, [".spec.path"]);
    let forced = apply("two", "/b", true).await.expect("is forced");
    assert_eq!(forced.spec.path.as_deref(), Some("/b"));
    let managers: Vec<_> = forced.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["one", "two"]);
    let status = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "a"}, "status": {
        "conditions": [{"type": "Published", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let reported = api.patch_status("a", &PatchParams::apply("three"), &Patch::Apply(status)).await.expect("applies");
    assert_eq!(reported.metadata.generation, Some(2), "a status update does not change the generation");
    let entry = reported.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some("three"));
    assert_eq!(entry.and_then(|entry| entry.subresource.as_deref()), Some("status"));
}

/// An expired watch inside a 200 response makes kube-rs list again immediately.
async fn an_expired_watch_is_listed_anew(server: &Reached) {
    let api: Api<Route> = Api::default_namespaced(server.client());
    api.create(&PostParams::default(), &typed(route("a"))).await.expect("creates");
    let old = api.list_metadata(&ListParams::default()).await.expect("lists").metadata.resource_version;
    let old = old.expect("a version");
    let store = &server._server.store;
    let writer: Api<Route> = Api::default_namespaced(server._server.client());
    // More than the cache keeps of a kind, so that only the store's history could contain them.
    for index in 0..4_200 {
        let patch = json!({"spec": {"path": format!("/{index}")}});
        writer.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patches");
        if index == 4_150 {
            store.compact(store.revision().await.expect("a revision")).await.expect("compacts");
        }
    }
    let mut lines = api.watch(&kube::api::WatchParams::default(), &old).await.expect("a 200").boxed();
    let first = tokio::time::timeout(PATIENCE, lines.try_next()).await.expect("in time").expect("a line");
    assert!(matches!(first, Some(kube::core::WatchEvent::Error(status)) if status.code == 410));
}
