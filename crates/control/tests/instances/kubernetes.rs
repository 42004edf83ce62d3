//! Instances of Routers as pods: the objects that the runtime applies to a cluster, and their effects.
//!
//! The cluster is an API server of Signpost with these kinds as plain data. A part of this test acts as a cluster's Deployment
//! controller: it replaces pods in the order of the Deployment. The Leases of the agents in the pods are simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use signpost_api::identity::{Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::Settings;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::rules::MastersOnly;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::registry::{Context, Hooks, NoHooks};
use signpost_control::client::lease::{Leadership, Term};
use signpost_control::instances::kubernetes::Kubernetes;
use signpost_control::instances::objects::{self, Kind as Object};
use signpost_control::instances::{self, Runtime as _, Wanted};
use signpost_control::observe::instances as leases;
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::world::{self, World};
use signpost_types::v1alpha1::router::{InstanceState, Ports, Router, RouterKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Agent, PATIENCE, Running, admin};

const NAMESPACE: &str = "routers";

static DEPLOYMENT: LazyLock<Kind> = LazyLock::new(|| Kind { has_status: true, ..Kind::built_in::<Deployment>([]) });
static REPLICA_SET: LazyLock<Kind> = LazyLock::new(|| Kind::built_in::<ReplicaSet>([]));
static SERVICE: LazyLock<Kind> = LazyLock::new(|| Kind::built_in::<Service>([]));
static SERVICE_ACCOUNT: LazyLock<Kind> = LazyLock::new(|| Kind::built_in::<ServiceAccount>([]));
static BUDGET: LazyLock<Kind> = LazyLock::new(|| Kind::built_in::<PodDisruptionBudget>([]));

/// A cluster rejects a Service with two ports of one name.
struct PortNames;

impl Hooks for PortNames {
    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let ports = new["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let mut seen = BTreeSet::new();
        let again = ports.iter().filter(|port| old.is_some() && !seen.insert(port["name"].to_string()));
        again.map(|port| Cause::duplicate("spec.ports.name", &port["name"])).collect()
    }
}

impl Running {
    /// Returns the API of a cluster, with a namespace for instances.
    async fn cluster() -> Running {
        let kinds = [&*DEPLOYMENT, &*REPLICA_SET, &*SERVICE, &*SERVICE_ACCOUNT, &*BUDGET];
        let hooks = |kind: &Kind| -> Arc<dyn Hooks> {
            if std::ptr::eq(kind, &*SERVICE) { Arc::new(PortNames) } else { Arc::new(NoHooks) }
        };
        let kinds = Kinds::new(kinds.map(|kind| (kind, hooks(kind))));
        let running =
            Running::start(Settings::new(kinds, Arc::new(MastersOnly), Arc::new(Authenticator::default()))).await;
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(running.client(admin()));
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("a Namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        running
    }

    fn runtime(&self, image: &str) -> Kubernetes {
        Kubernetes::new(self.client(admin()), settings(image))
    }

    /// Returns the names of all objects, by kind.
    async fn names(&self) -> BTreeMap<&'static str, Vec<String>> {
        async fn of<K>(client: Client) -> Vec<String>
        where
            K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
            K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
        {
            let list = Api::<K>::namespaced(client, NAMESPACE).list(&ListParams::default()).await.expect("a list");
            list.items.iter().map(kube::ResourceExt::name_any).collect()
        }
        let client = self.client(admin());
        BTreeMap::from([
            ("Deployment", of::<Deployment>(client.clone()).await),
            ("PodDisruptionBudget", of::<PodDisruptionBudget>(client.clone()).await),
            ("Service", of::<Service>(client.clone()).await),
            ("ServiceAccount", of::<ServiceAccount>(client).await),
        ])
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client(admin()), NAMESPACE)
    }

    async fn deployment(&self, name: &str) -> Value {
        serde_json::to_value(self.deployments().get(name).await.expect("it is there")).expect("JSON")
    }
}

fn settings(image: &str) -> objects::Settings {
    objects::Settings {
        namespace: NAMESPACE.to_owned(),
        image: image.to_owned(),
        service_type: "ClusterIP",
        host_network: false,
        cpu: "100m".to_owned(),
        memory: "512Mi".to_owned(),
        certificates: None,
        upstream_authorities: None,
        access: None,
        api_servers: Vec::new(),
        admin: vec!["0.0.0.0:9453".parse().expect("an address"), "[::]:9453".parse().expect("an address")],
        name_servers: vec!["192.0.2.53:53".parse().expect("an address")],
        options: ["--route-servers", "100"].map(str::to_owned).into(),
    }
}

/// No loss of a Router is held.
fn none_kept(_: BTreeSet<&str>) -> BTreeSet<String> {
    BTreeSet::new()
}

fn wanted(kind: RouterKind, count: usize) -> Wanted {
    let ports = Ports { http: 80, https: 443 };
    Wanted { kind, count, ports, addresses: Vec::new(), ttl: 30, serving: BTreeSet::new() }
}

fn of_routers(routers: &[(&str, Wanted)]) -> BTreeMap<String, Wanted> {
    routers.iter().map(|(name, wanted)| ((*name).to_owned(), wanted.clone())).collect()
}

/// Returns the object of a kind, after checking that the Kubernetes type has all of its fields.
fn object(router: &str, wanted: &Wanted, settings: &objects::Settings, kind: Object) -> Value {
    let objects = objects::of(router, wanted, settings);
    let (_, name, object) = objects.into_iter().find(|(one, ..)| *one == kind).expect("it is among them");
    assert_eq!(object["metadata"]["name"], name);
    fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(object.clone()).expect("its type")).expect("JSON")
    }
    let typed = match kind {
        Object::Deployment => typed::<Deployment>(&object),
        Object::Service => typed::<Service>(&object),
        Object::ServiceAccount => typed::<ServiceAccount>(&object),
        Object::DisruptionBudget => typed::<PodDisruptionBudget>(&object),
    };
    assert_eq!(typed, object, "a field has no place in its type");
    object
}

#[test]
fn the_objects_of_a_router() {
    let (wanted, settings) = (wanted(RouterKind::Haproxy, 2), settings("registry.example/signpost-router:1"));
    let labels = json!({
        "app.kubernetes.io/name": "signpost", "app.kubernetes.io/component": "router-instance",
        "app.kubernetes.io/managed-by": "signpost", "signpost.dev/router": "router-shard1",
    });
    let metadata = json!({"name": "router-shard1", "namespace": NAMESPACE, "labels": labels});
    let selector = json!({"matchLabels": {"signpost.dev/router": "router-shard1"}});
    let of = |kind| object("shard1", &wanted, &settings, kind);
    assert_eq!(
        of(Object::ServiceAccount),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": false,
        })
    );
    assert_eq!(
        of(Object::Service),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {
                "type": "ClusterIP", "selector": {"signpost.dev/router": "router-shard1"},
                "ports": [
                    {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
                    {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"},
                ],
            },
        })
    );
    assert_eq!(
        of(Object::DisruptionBudget),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": selector},
        })
    );
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "admin", "scheme": "HTTP"}, "periodSeconds": period,
            "failureThreshold": failures,
        })
    };
    let spread = |topology: &str| {
        json!({
            "maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector,
        })
    };
    assert_eq!(
        of(Object::Deployment),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 2, "minReadySeconds": 5, "revisionHistoryLimit": 2, "selector": selector,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "serviceAccountName": "router-shard1", "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    // The agent's limits for DNS and for connections, and 15 s.
                    "terminationGracePeriodSeconds": 375,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
                    },
                    "topologySpreadConstraints": [
                        spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone"),
                    ],
                    "containers": [{
                        "name": "agent", "image": "registry.example/signpost-router:1",
                        "command": ["/usr/bin/signpost"],
                        "args": [
                            "agent", "--router", "shard1", "--proxy", "haproxy", "--address", "$(POD_IP)",
                            "--http-port", "80", "--https-port", "443", "--data-dir", "/data",
                            "--leave-timeout", "300", "--drain-timeout", "60",
                            "--admin-listen", "0.0.0.0:9453", "--admin-listen", "[::]:9453",
                            "--name-server", "192.0.2.53:53", "--route-servers", "100",
                        ],
                        "env": [{
                            "name": "POD_IP",
                            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
                        }],
                        "ports": [
                            {"name": "http", "containerPort": 80, "protocol": "TCP"},
                            {"name": "https", "containerPort": 443, "protocol": "TCP"},
                            {"name": "admin", "containerPort": 9453, "protocol": "TCP"},
                        ],
                        "startupProbe": probe("/livez", 2, 60), "livenessProbe": probe("/livez", 10, 3),
                        "readinessProbe": probe("/readyz", 2, 2),
                        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/data"},
                            {
                                "name": "access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                                "readOnly": true,
                            },
                        ],
                    }],
                    "volumes": [
                        {"name": "data", "emptyDir": {}},
                        {"name": "access", "projected": {"defaultMode": 0o440, "sources": [
                            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                            {"configMap": {
                                "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }},
                            {"downwardAPI": {"items": [{
                                "path": "namespace",
                                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                            }]}},
                        ]}},
                    ],
                }},
            },
        })
    );
}

#[test]
fn the_objects_follow_the_settings() {
    let (plain, base) = (wanted(RouterKind::Nginx, 1), settings("image"));
    let pod = |wanted: &Wanted, settings: &objects::Settings| {
        object("shard1", wanted, settings, Object::Deployment)["spec"]["template"]["spec"].take()
    };
    let has = |pod: &Value, flag: &str, value: &str| {
        let arguments: Vec<&str> =
            pod["containers"][0]["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        arguments.windows(2).any(|pair| pair == [flag, value])
    };
    assert!(has(&pod(&plain, &base), "--proxy", "nginx"));

    // An agent waits for the TTL, and the pod for the agent.
    let slow = pod(&Wanted { ttl: 3_600, ..plain.clone() }, &base);
    assert!(has(&slow, "--leave-timeout", "3660"));
    assert_eq!(slow["terminationGracePeriodSeconds"], 3_660 + 60 + 15);

    let host = objects::Settings { host_network: true, ..base.clone() };
    let on_nodes = pod(&plain, &host);
    assert_eq!((&on_nodes["hostNetwork"], &on_nodes["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    assert!(on_nodes["securityContext"].get("sysctls").is_none());
    let strategy = object("shard1", &plain, &host, Object::Deployment)["spec"]["strategy"]["rollingUpdate"].take();
    assert_eq!(strategy, json!({"maxUnavailable": 1, "maxSurge": 0}));

    let balancer = objects::Settings { service_type: "LoadBalancer", ..base.clone() };
    let service = object("shard1", &plain, &balancer, Object::Service);
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["externalTrafficPolicy"]),
        (&json!("LoadBalancer"), &json!("Local"))
    );

    let secrets = objects::Settings {
        certificates: Some("tls".to_owned()),
        upstream_authorities: Some("applications".to_owned()),
        access: Some("api".to_owned()),
        api_servers: vec!["https://a.example:6443".parse().expect("a URL")],
        ..base.clone()
    };
    let with_secrets = pod(&plain, &secrets);
    assert!(has(&with_secrets, "--certificates", "/etc/signpost-certificates"));
    assert!(has(&with_secrets, "--kubeconfig", "/etc/signpost-access/kubeconfig"));
    assert!(has(&with_secrets, "--api-server", "https://a.example:6443"));
    let secret = |name: &str| json!({"secretName": name, "defaultMode": 0o440});
    let volumes = &with_secrets["volumes"];
    assert_eq!((&volumes[1]["secret"], &volumes[3]["secret"]), (&secret("tls"), &secret("api")));
    assert!(has(&with_secrets, "--upstream-ca", "/etc/signpost-upstream-ca/ca.crt"));
    assert_eq!(volumes[2]["configMap"]["name"], "applications");

    // A Service name is a DNS label; the service account is named like the Leases of the Router.
    for (router, service) in [("a.b", "router-a-b-"), (&"x".repeat(60), &format!("router-{}-", "x".repeat(45)))] {
        let service_name = object(router, &plain, &base, Object::Service)["metadata"]["name"].take();
        let service_name = service_name.as_str().expect("a text");
        assert!(service_name.len() <= 63 && service_name.starts_with(service), "{service_name}");
        let account = object(router, &plain, &base, Object::ServiceAccount)["metadata"]["name"].take();
        assert_eq!(account, format!("router-{router}"));
        let deployment = object(router, &plain, &base, Object::Deployment);
        assert_eq!(deployment["spec"]["selector"]["matchLabels"]["signpost.dev/router"], service_name);
    }
}

#[tokio::test]
async fn the_cluster_follows_the_routers() {
    let cluster = Running::cluster().await;
    let mut runtime = cluster.runtime("image:1");
    let two = of_routers(&[("shard1", wanted(RouterKind::Haproxy, 2)), ("a.b", wanted(RouterKind::Nginx, 1))]);
    assert_eq!(runtime.reconcile(&two, &none_kept).await, BTreeMap::new());
    let names = cluster.names().await;
    assert!(names.values().all(|names| names.len() == 2), "{names:?}");
    assert_eq!(names["Deployment"], ["router-a.b", "router-shard1"]);
    let image = |deployment: &Value| deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let first = cluster.deployment("router-shard1").await;
    assert_eq!((&first["spec"]["replicas"], image(&first)), (&json!(2), json!("image:1")));

    // The next process adopts the objects, and changes nothing that is correct.
    let mut runtime = cluster.runtime("image:1");
    assert_eq!(runtime.reconcile(&two, &none_kept).await, BTreeMap::new());
    assert_eq!(cluster.deployment("router-shard1").await["metadata"], first["metadata"]);

    // Another image, another number and another proxy are changes of the same Deployment.
    let mut runtime = cluster.runtime("image:2");
    let changed = of_routers(&[("shard1", wanted(RouterKind::Nginx, 3)), ("a.b", wanted(RouterKind::Nginx, 1))]);
    assert_eq!(runtime.reconcile(&changed, &none_kept).await, BTreeMap::new());
    let second = cluster.deployment("router-shard1").await;
    assert_eq!((&second["spec"]["replicas"], image(&second)), (&json!(3), json!("image:2")));
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(second["spec"]["template"]["spec"]["containers"][0]["args"].to_string().contains("nginx"));

    // A change by another client is reverted at the next comparison.
    let mut runtime = cluster.runtime("image:2");
    runtime.reconcile(&changed, &none_kept).await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    cluster.deployments().patch("router-shard1", &PatchParams::default(), &patch).await.expect("patched");
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(admin()), NAMESPACE);
    accounts.delete("router-shard1", &DeleteParams::default()).await.expect("deleted");
    let services: Api<Service> = Api::namespaced(cluster.client(admin()), NAMESPACE);
    let ports = || async {
        let service = services.get("router-shard1").await.expect("it is there");
        let ports = service.spec.and_then(|spec| spec.ports).expect("ports");
        ports.into_iter().map(|port| (port.name.unwrap_or_default(), port.port)).collect::<BTreeMap<_, _>>()
    };
    let before = ports().await;
    let changed_port = json!({"spec": {"ports": [
        {"name": "http", "port": 81, "targetPort": "http", "protocol": "TCP"},
        {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"},
    ]}});
    services.patch("router-shard1", &PatchParams::default(), &Patch::Merge(changed_port)).await.expect("patched");
    assert_eq!(ports().await["http"], 81);
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    assert_eq!(runtime.reconcile(&changed, &none_kept).await, BTreeMap::new());
    assert_eq!(cluster.deployment("router-shard1").await["spec"]["replicas"], 3);
    accounts.get("router-shard1").await.expect("it is there again");
    assert_eq!(ports().await, before);
}

#[tokio::test]
async fn objects_go_after_the_pods() {
    let cluster = Running::cluster().await;
    let both = of_routers(&[("shard1", wanted(RouterKind::Haproxy, 2)), ("shard2", wanted(RouterKind::Haproxy, 1))]);
    assert_eq!(cluster.runtime("image").reconcile(&both, &none_kept).await, BTreeMap::new());
    let uid = cluster.deployments().get("router-shard1").await.expect("it is there").uid();
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(admin()), NAMESPACE);
    // A placeholder for the pods, which leave when they have drained.
    let pods = serde_json::from_value(json!({
        "metadata": {"name": "pods", "finalizers": ["example.org/drain"], "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "router-shard1", "uid": uid, "controller": true,
            "blockOwnerDeletion": true,
        }]},
        "spec": {"selector": {}},
    }));
    sets.create(&PostParams::default(), &pods.expect("a ReplicaSet")).await.expect("created");

    // The Router was deleted while no process led. An object of another owner stays.
    let foreign = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a ServiceAccount");
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(admin()), NAMESPACE);
    accounts.create(&PostParams::default(), &foreign).await.expect("created");
    let one = of_routers(&[("shard2", wanted(RouterKind::Haproxy, 1))]);
    assert_eq!(cluster.runtime("image").reconcile(&one, &none_kept).await, BTreeMap::new());
    let until_pods = async || loop {
        match sets.get_opt("pods").await.expect("an answer") {
            Some(pods) if pods.metadata.deletion_timestamp.is_some() => break,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    tokio::time::timeout(PATIENCE, until_pods()).await.expect("the pods get SIGTERM");
    assert_eq!(cluster.runtime("image").reconcile(&one, &none_kept).await, BTreeMap::new());
    let names = cluster.names().await;
    assert_eq!(names["ServiceAccount"], ["other", "router-shard1", "router-shard2"]);
    assert_eq!(names["Service"], ["router-shard1", "router-shard2"]);

    // The Router comes back before they have ended.
    let errors = cluster.runtime("image").reconcile(&both, &none_kept).await;
    assert_eq!(errors["shard1"], "Deployment routers/router-shard1: it is being deleted");

    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    sets.patch("pods", &PatchParams::default(), &patch).await.expect("patched");
    let until_gone = async || {
        while cluster.names().await["Deployment"].len() > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until_gone()).await.expect("the Deployment goes");
    assert_eq!(cluster.runtime("image").reconcile(&one, &none_kept).await, BTreeMap::new());
    let names = cluster.names().await;
    assert_eq!(names["ServiceAccount"], ["other", "router-shard2"]);
    assert!(
        ["Deployment", "Service", "PodDisruptionBudget"].iter().all(|kind| names[kind] == ["router-shard2"]),
        "{names:?}"
    );
}

/// The API of the platform has lost a Router. Its objects stay, and those of a Router that was deleted go.
#[tokio::test]
async fn the_objects_of_a_router_whose_loss_is_held_stay() {
    let cluster = Running::cluster().await;
    let one = || wanted(RouterKind::Haproxy, 1);
    // Services have other names than their Routers.
    let all = of_routers(&[("a.b", one()), ("shard1", one()), ("shard2", one())]);
    assert_eq!(cluster.runtime("image").reconcile(&all, &none_kept).await, BTreeMap::new());
    let before = cluster.names().await;
    let asked = std::sync::Mutex::new(BTreeSet::new());
    let keep = |lost: &'static [&'static str]| {
        let asked = &asked;
        move |running: BTreeSet<&str>| {
            *asked.lock().expect("no panic") = running.iter().map(|router| (*router).to_owned()).collect();
            running.into_iter().filter(|router| lost.contains(router)).map(str::to_owned).collect()
        }
    };
    // A runtime that has applied them, and that of the next leader.
    for mut runtime in [cluster.runtime("image"), cluster.runtime("image")] {
        assert_eq!(runtime.reconcile(&BTreeMap::new(), &keep(&["a.b", "shard1", "shard2"])).await, BTreeMap::new());
        assert_eq!(*asked.lock().expect("no panic"), all.keys().cloned().collect());
        assert_eq!(cluster.names().await, before);
    }
    let left = of_routers(&[("shard2", one())]);
    for _ in 0..2 {
        assert_eq!(cluster.runtime("image").reconcile(&left, &keep(&["a.b"])).await, BTreeMap::new());
        let gone = async || while cluster.names().await["Deployment"].len() > 2 {};
        tokio::time::timeout(PATIENCE, gone()).await.expect("the Deployment of shard1 goes");
    }
    let names = cluster.names().await;
    assert_eq!(names["Deployment"], ["router-a.b", "router-shard2"]);
    assert!(names.values().all(|names| names.len() == 2), "{names:?}");
}

#[tokio::test]
async fn failures_are_reported() {
    let cluster = Running::cluster().await;
    let one = of_routers(&[("shard1", wanted(RouterKind::Haproxy, 2))]);
    // An object of another owner is not taken over.
    let foreign = json!({
        "metadata": {"name": "router-shard1"}, "automountServiceAccountToken": true,
    });
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(admin()), NAMESPACE);
    let foreign = serde_json::from_value(foreign).expect("a ServiceAccount");
    accounts.create(&PostParams::default(), &foreign).await.expect("created");
    let errors = cluster.runtime("image").reconcile(&one, &none_kept).await;
    let error = &errors["shard1"];
    assert!(error.starts_with("ServiceAccount routers/router-shard1: ") && error.contains("conflict"), "{error}");
    assert!(error.ends_with(" (409)") && !error.contains('{'), "{error}");
    assert_eq!(accounts.get("router-shard1").await.expect("it is there").automount_service_account_token, Some(true));
    accounts.delete("router-shard1", &DeleteParams::default()).await.expect("deleted");

    let mut runtime = cluster.runtime("image");
    assert_eq!(runtime.reconcile(&one, &none_kept).await, BTreeMap::new());
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let status = json!({"conditions": [
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "too few"},
            {"type": kind, "status": status, "reason": reason, "message": message},
        ]});
        Patch::Merge(json!({"status": status}))
    };
    for (patch, expected) in [
        (condition("Progressing", "True", "ReplicaSetUpdated", "well"), None),
        (
            condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota"),
            Some("Deployment routers/router-shard1: FailedCreate: exceeded quota"),
        ),
        (
            condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out progressing"),
            Some("Deployment routers/router-shard1: ProgressDeadlineExceeded: timed out progressing"),
        ),
    ] {
        cluster.deployments().patch_status("router-shard1", &PatchParams::default(), &patch).await.expect("patched");
        let errors = cluster.runtime("image").reconcile(&one, &none_kept).await;
        assert_eq!(errors.get("shard1").map(String::as_str), expected);
    }

    // Without rights, and so without lists.
    let stranger =
        Kubernetes::new(cluster.client(Identity::user("guest")), settings("image")).reconcile(&one, &none_kept).await;
    let error = &stranger["shard1"];
    assert!(
        error.starts_with("failed to list the objects of its instances: ") && error.contains("forbidden"),
        "{error}"
    );
}

/// A pod, with its agent.
#[derive(Clone, Debug)]
struct Pod {
    agent: Agent,
    image: String,
}

/// The actions of a cluster and of the agents in its pods, in steps.
struct Pods {
    all: Vec<Pod>,
    started: u8,
}

impl Pods {
    /// Takes a step; returns whether nothing is left to do.
    async fn step(&mut self, deployment: &Deployment, router: &Router, platform: &Client) -> bool {
        let spec = &deployment.spec;
        let strategy = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref()).expect("rolling");
        let number = |value: &Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>| match value {
            Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(number)) => {
                usize::try_from(*number).expect("few")
            }
            other => panic!("{other:?}"),
        };
        let (unavailable, surge) = (number(&strategy.max_unavailable), number(&strategy.max_surge));
        let replicas = usize::try_from(spec.replicas.expect("a number")).expect("few");
        let image = spec.template.spec.as_ref().and_then(|pod| pod.containers[0].image.clone()).expect("an image");

        // An agent that leaves stops when no client can find it.
        for pod in self
            .all
            .extract_if(.., |pod| pod.agent.state == InstanceState::Leaving && !has(router, pod.agent.address))
            .collect::<Vec<_>>()
        {
            pod.agent.delete_lease(platform).await;
        }
        let running = self.all.iter().filter(|pod| pod.agent.state == InstanceState::Serving);
        let ready = running.clone().filter(|pod| router.includes_instance(pod.agent.address)).count();
        let (count, outdated) = (running.clone().count(), running.clone().filter(|pod| pod.image != image).count());
        let current = count - outdated;
        if current < replicas && count < replicas + surge {
            self.started += 1;
            let address = [192, 0, 2, self.started].into();
            let agent = Agent { revision: 1, ..Agent::new(address, 80) };
            let pod = Pod { agent, image };
            pod.agent.renew(platform).await;
            self.all.push(pod);
            return false;
        }
        // A pod that is outdated, or surplus, leaves if enough others are ready.
        let is_spare = |pod: &Pod| pod.image != image || current > replicas;
        let leaving = self.all.iter_mut().find(|pod| pod.agent.state == InstanceState::Serving && is_spare(pod));
        match leaving {
            Some(pod) if ready + unavailable > replicas || !router.includes_instance(pod.agent.address) => {
                pod.agent.state = InstanceState::Leaving;
                pod.agent.renew(platform).await;
                false
            }
            Some(_) => false,
            None => self.all.len() == replicas && ready == replicas,
        }
    }
}

fn has(router: &Router, address: IpAddr) -> bool {
    router.addresses().iter().any(|one| one.ip.parse() == Ok(address))
}

/// The image and the number of instances change. During that time, the Router's addresses are always those of serving instances,
/// in the desired number.
#[tokio::test]
async fn a_rolling_change_loses_no_address() {
    let cluster = Running::cluster().await;
    let platform = Running::start(server_settings(PlatformConfig::new("v3.example"), Arc::default())).await;
    let operator = platform.client(admin());
    let routers: Api<Router> = Api::all(operator.clone());
    let router = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"},
        "spec": {"type": "haproxy", "instances": 2, "ttl": 1},
    });
    routers.create(&PostParams::default(), &serde_json::from_value(router).expect("a Router")).await.expect("created");

    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let controller = platform.client(Identity::user(USER_CONTROLLER));
    let world = World::new(&platform.client(Identity::user(USER_SCHEDULER)), world::Settings::of_domain("v3.example"));
    let (_lead, leadership) = watch::channel(Leadership::Leader(Term::unlimited()));
    let settings = reconcile::Settings { settle: Duration::from_millis(20), ..reconcile::Settings::default() };
    let reconciler = Reconciler::new(controller.clone(), &world, settings, reconcile::Metrics::default());
    tokio::spawn(reconciler.run(leadership, stop.clone()));
    tokio::spawn(leases::run(controller, world.clone(), 50, leases::Metrics::default(), stop.clone()));
    let start = |image: &str| {
        let term = stop.child_token();
        tokio::spawn(instances::run(world.clone(), cluster.runtime(image), term.clone(), CancellationToken::new()));
        term
    };

    let mut pods = Pods { all: Vec::new(), started: 0 };
    let mut term = start("image:1");
    for (image, instances, started) in [("image:1", 2, 2), ("image:2", 2, 4), ("image:2", 3, 5), ("image:2", 1, 5)] {
        if image != "image:1" && pods.started == 2 {
            term.cancel();
            term = start(image);
        }
        let patch = Patch::Merge(json!({"spec": {"instances": instances}}));
        routers.patch("shard1", &PatchParams::default(), &patch).await.expect("patched");
        let least = pods.all.len().min(instances);
        let settle = async {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let Some(deployment) = cluster.deployments().get_opt("router-shard1").await.expect("an answer") else {
                    continue;
                };
                let router = routers.get("shard1").await.expect("it is there");
                let stated = router.status.iter().flat_map(|status| &status.current_addresses).count();
                assert!(stated >= least, "{stated} addresses of {least}: {:?}", pods.all);
                for address in router.addresses() {
                    let is_there = pods.all.iter().any(|pod| pod.agent.address.to_string() == address.ip);
                    assert!(is_there, "{} was stopped while clients find it: {:?}", address.ip, pods.all);
                }
                let pod = deployment.spec.template.spec.as_ref();
                let is_right = deployment.spec.replicas == i32::try_from(instances).ok()
                    && pod.is_some_and(|pod| pod.containers[0].image.as_deref() == Some(image));
                if pods.step(&deployment, &router, &operator).await && is_right {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, settle).await.unwrap_or_else(|_| panic!("{image}, {instances}: {:?}", pods.all));
        assert_eq!(pods.started, started, "{image}, {instances}");
        let ready = async {
            while routers.get("shard1").await.expect("it is there").status.and_then(|status| status.ready_instances)
                != u32::try_from(instances).ok()
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.expect("the status follows");
    }
    term.cancel();
}
