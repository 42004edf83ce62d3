//! The objects of a cluster that run the instances of a Router. Pure.
//!
//! An instance is a pod of the Router's Deployment. A rolling change starts a new pod first. The pod is ready when its proxy
//! serves the Router's configuration, and the Router's status has its address (`/readyz` of the agent). Only then does an old pod
//! get SIGTERM. Its agent leaves DNS, waits for the TTL, and lets connections finish. The grace period is longer than its time
//! limits for that.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::Wanted;
use crate::client::failover;
use signpost_types::names::{is_host_label, shortened_label};

/// The labels of all objects of instances, as a label selector.
pub const SELECTOR: &str = "app.kubernetes.io/component=router-instance,app.kubernetes.io/managed-by=signpost";
/// The label that the objects of a Router share: the name of its Service.
pub(super) const ROUTER: &str = "signpost.dev/router";
/// The beginning of the names of a Router's objects, except its Service.
pub(super) const PREFIX: &str = "router-";
/// The least time limit of an agent that waits for DNS, in seconds: that of `signpost agent`.
const LEAVE: u64 = 300;
/// The time in which name servers process the removal of an address, in addition to its TTL, in seconds.
const PROPAGATION: u64 = 60;
/// The time limit for connections to finish, in seconds: that of `signpost agent`.
const DRAIN: u64 = 60;
/// The time for the proxy and the agent to end, in seconds.
const END: u64 = 15;
/// The time that a pod is ready before the next one is replaced, in seconds. Name servers publish its address in the meantime.
const READY: u32 = 5;
/// The port of an agent's admin endpoints.
const ADMIN_PORT: u16 = 9453;
/// The directory of an agent's state. It is short because the paths of HAProxy's sockets are below it.
const DATA: &str = "/data";
const CERTIFICATES: &str = "/etc/signpost-certificates";
const UPSTREAM_AUTHORITIES: &str = "/etc/signpost-upstream-ca";
const ACCESS: &str = "/etc/signpost-access";
/// The key of authorities in ConfigMaps, as in `kube-root-ca.crt`.
const AUTHORITIES_KEY: &str = "ca.crt";
/// The path at which client libraries search for the credential of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The user of the program in its images.
const USER: u32 = 65_532;

/// The properties of instances in a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    /// The image, which contains the program and the proxies.
    pub image: String,
    /// The type of the Services, such as `ClusterIP`.
    pub service_type: &'static str,
    /// Whether pods use the network of their nodes.
    pub host_network: bool,
    /// The CPU request of a pod, such as `100m`.
    pub cpu: String,
    /// The memory request and limit of a pod, such as `512Mi`.
    pub memory: String,
    /// The Secret with certificates.
    pub certificates: Option<String>,
    /// The ConfigMap with the authorities that verify applications, under the key `ca.crt`.
    pub upstream_authorities: Option<String>,
    /// The Secret with the kubeconfig of agents; `None`: the API is that of the cluster, and their credential the service account.
    pub access: Option<String>,
    /// The API servers, instead of the one in that kubeconfig.
    pub api_servers: Vec<Uri>,
    /// The addresses on which agents serve `/readyz`; only their families count.
    pub admin: Vec<SocketAddr>,
    /// The name servers of the platform.
    pub name_servers: Vec<SocketAddr>,
    /// Further options of agents.
    pub options: Vec<String>,
}

/// A kind of these objects, in the order in which they are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The identity of the pods.
    ServiceAccount,
    /// The address of a load balancer, and the name in the cluster.
    Service,
    /// The bound on evicted pods.
    DisruptionBudget,
    /// The pods.
    Deployment,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::ServiceAccount, Kind::Service, Kind::DisruptionBudget, Kind::Deployment];

    /// Returns its place in the API.
    pub fn resource(self) -> ApiResource {
        match self {
            Kind::ServiceAccount => ApiResource::erase::<ServiceAccount>(&()),
            Kind::Service => ApiResource::erase::<Service>(&()),
            Kind::DisruptionBudget => ApiResource::erase::<PodDisruptionBudget>(&()),
            Kind::Deployment => ApiResource::erase::<Deployment>(&()),
        }
    }
}

/// Returns the objects of a Router, each with its kind and name.
pub fn of(router: &str, wanted: &Wanted, settings: &Settings) -> [(Kind, String, Value); 4] {
    // The admission policy for Leases of agents depends on the name of the service account.
    let name = format!("{PREFIX}{router}");
    // A Service name must be a DNS label; the other names need not be.
    let service =
        if is_host_label(&name) { name.clone() } else { shortened_label("router", router, &name.replace('.', "-")) };
    let labels = json!({
        "app.kubernetes.io/name": "signpost", "app.kubernetes.io/component": "router-instance",
        "app.kubernetes.io/managed-by": "signpost", ROUTER: service,
    });
    let selector = json!({"matchLabels": {ROUTER: service}});
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": name, "protocol": "TCP"});
    let mut service_spec = json!({
        "type": settings.service_type, "selector": selector["matchLabels"],
        "ports": [port("http", wanted.ports.http), port("https", wanted.ports.https)],
    });
    if settings.service_type != "ClusterIP" {
        // Applications see the addresses of clients.
        service_spec["externalTrafficPolicy"] = "Local".into();
    }
    // Two pods cannot listen on one port of a node, and there may be no other node.
    let [unavailable, surge] = if settings.host_network { [1, 0] } else { [0, 1] };
    let deployment = json!({
        "replicas": wanted.count, "minReadySeconds": READY, "revisionHistoryLimit": 2, "selector": selector,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}},
        "template": {"metadata": {"labels": labels}, "spec": pod(router, &name, wanted, settings, &selector)},
    });
    let budget = json!({"maxUnavailable": 1, "selector": selector});
    [
        (Kind::ServiceAccount, name.clone(), "automountServiceAccountToken", json!(false)),
        (Kind::Service, service.clone(), "spec", service_spec),
        (Kind::DisruptionBudget, name.clone(), "spec", budget),
        (Kind::Deployment, name.clone(), "spec", deployment),
    ]
    .map(|(kind, name, field, value)| {
        let ApiResource { api_version, kind: type_name, .. } = kind.resource();
        let metadata = json!({"name": name, "namespace": settings.namespace, "labels": labels});
        (kind, name, json!({"apiVersion": api_version, "kind": type_name, "metadata": metadata, field: value}))
    })
}

/// Returns the specification of a pod.
fn pod(router: &str, name: &str, wanted: &Wanted, settings: &Settings, selector: &Value) -> Value {
    let leave = LEAVE.max(u64::from(wanted.ttl) + PROPAGATION);
    let spread = |topology: &str| {
        json!({
            "maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector,
        })
    };
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "admin", "scheme": "HTTP"},
            "periodSeconds": period, "failureThreshold": failures,
        })
    };
    let port = |name: &str, port: u16| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let mounts = volumes(settings);
    let mut spec = json!({
        "serviceAccountName": name, "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": leave + DRAIN + END,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
            // Ports below 1024 without a privilege.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
        "topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone")],
        "containers": [{
            "name": "agent", "image": settings.image, "command": ["/usr/bin/signpost"],
            "args": arguments(router, wanted, settings, leave),
            "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
            "ports": [
                port("http", wanted.ports.http), port("https", wanted.ports.https), port("admin", ADMIN_PORT),
            ],
            "startupProbe": probe("/livez", 2, 60), "livenessProbe": probe("/livez", 10, 3),
            "readinessProbe": probe("/readyz", 2, 2),
            "resources": {
                "requests": {"cpu": settings.cpu, "memory": settings.memory}, "limits": {"memory": settings.memory},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": mounts.iter().map(|(name, path, _)| {
                let mut mount = json!({"name": name, "mountPath": path});
                if *path != DATA {
                    mount["readOnly"] = true.into();
                }
                mount
            }).collect::<Vec<_>>(),
        }],
        "volumes": mounts.iter().map(|(name, _, (source, value))| json!({"name": name, *source: value})).collect::<Vec<_>>(),
    });
    if settings.host_network {
        (spec["hostNetwork"], spec["dnsPolicy"]) = (true.into(), "ClusterFirstWithHostNet".into());
        // A pod cannot change the network of its node.
        spec["securityContext"].as_object_mut().expect("an object").remove("sysctls");
    }
    spec
}

/// Returns the command line of an agent.
fn arguments(router: &str, wanted: &Wanted, settings: &Settings, leave: u64) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["agent", "--router", router, "--proxy", wanted.kind.word()].map(str::to_owned).into();
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    // Kubernetes replaces the name of the variable.
    add("--address", "$(POD_IP)".to_owned());
    add("--http-port", wanted.ports.http.to_string());
    add("--https-port", wanted.ports.https.to_string());
    add("--data-dir", DATA.to_owned());
    add("--leave-timeout", leave.to_string());
    add("--drain-timeout", DRAIN.to_string());
    let unspecified: BTreeSet<IpAddr> = settings
        .admin
        .iter()
        .map(|address| match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
        .collect();
    unspecified.into_iter().for_each(|ip| add("--admin-listen", SocketAddr::new(ip, ADMIN_PORT).to_string()));
    settings.name_servers.iter().for_each(|server| add("--name-server", server.to_string()));
    if settings.certificates.is_some() {
        add("--certificates", CERTIFICATES.to_owned());
    }
    if settings.upstream_authorities.is_some() {
        add("--upstream-ca", format!("{UPSTREAM_AUTHORITIES}/{AUTHORITIES_KEY}"));
    }
    if settings.access.is_some() {
        add("--kubeconfig", format!("{ACCESS}/kubeconfig"));
        settings.api_servers.iter().for_each(|server| add("--api-server", failover::text_of(server)));
    }
    arguments.extend(settings.options.iter().cloned());
    arguments
}

/// Returns the volumes of a pod, each with its directory and its source.
fn volumes(settings: &Settings) -> Vec<(&'static str, &'static str, (&'static str, Value))> {
    let secret = |name: &String| ("secret", json!({"secretName": name, "defaultMode": 0o440}));
    let mut volumes = vec![("data", DATA, ("emptyDir", json!({})))];
    volumes.extend(settings.certificates.iter().map(|name| ("certificates", CERTIFICATES, secret(name))));
    let authorities = |name: &String| {
        let items = json!([{"key": AUTHORITIES_KEY, "path": AUTHORITIES_KEY}]);
        ("configMap", json!({"name": name, "items": items, "defaultMode": 0o440}))
    };
    let upstream = settings.upstream_authorities.iter();
    volumes.extend(upstream.map(|name| ("upstream-ca", UPSTREAM_AUTHORITIES, authorities(name))));
    volumes.push(match &settings.access {
        Some(name) => ("access", ACCESS, secret(name)),
        None => {
            let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3_607}});
            let authority =
                json!({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}});
            let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
            let namespace = json!({"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}});
            let sources = json!({"sources": [token, authority, namespace], "defaultMode": 0o440});
            ("access", SERVICE_ACCOUNT, ("projected", sources))
        }
    });
    volumes
}
