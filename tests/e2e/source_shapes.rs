//! Objects of the cluster in the shapes in which Envoy Gateway, NGINX Gateway Fabric, Istio, OpenShift 4, ingress-nginx, Traefik and Services
//! with annotations of external-dns have them (`shapes/`): shown from files, then published from one cluster.

use std::path::Path;

use serde_json::{Value, json};
use signpost_apiserver::kind::Kind;
use signpost_testing::program::{json, ok};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually};
use tokio_util::sync::CancellationToken;

use crate::source_reports::{condition, create};
use crate::sources::{
    CLASS, CONTROLLER, ENDPOINT_SLICE, GATEWAY, GRPC_ROUTE, INFRASTRUCTURE, INGRESS, INGRESS_CLASS, LISTENER_SET,
    OPENSHIFT_ROUTE, ROUTE, SERVICE, TLS_ROUTE, cluster_of,
};

/// The zones with their addresses, `@` for those whose own name has them; the hosts; the notes. All as `signpost sources` shows them.
struct Shapes {
    file: &'static str,
    zones: &'static [&'static str],
    hosts: &'static [&'static str],
    notes: &'static [&'static str],
}

const SHAPES: [Shapes; 6] = [
    Shapes {
        file: "envoy-gateway",
        zones: &["behind 203.0.113.22", "eg 203.0.113.21", "one 203.0.113.20", "team 203.0.113.20", "two 203.0.113.20"],
        hosts: &["admin.one", "both.one", "both.two", "web.team", "www"],
        notes: &[],
    },
    Shapes {
        file: "nginx-gateway-fabric",
        zones: &["cafe 203.0.113.30 @", "tls 203.0.113.30"],
        hosts: &["a.mail.tls", "cafe", "coffee.cafe"],
        notes: &[
            "Gateway cafe/gateway AddressRefused",
            "HTTPRoute tea/tea NotAdmitted",
            "TLSRoute cafe/mail SeveralLabels",
        ],
    },
    Shapes {
        file: "istio",
        zones: &["mesh 203.0.113.10", "pending"],
        hosts: &["reviews.mesh"],
        notes: &[
            "Gateway mesh/pending AddressRefused",
            "Gateway mesh/pending NoAddress",
            "Gateway mesh/waypoint NoHost",
        ],
    },
    Shapes {
        file: "openshift",
        zones: &["edge 203.0.113.42", "ocp 203.0.113.40", "private", "sharded 203.0.113.44"],
        hosts: &["both.edge", "both.ocp", "console-openshift-console.ocp", "twice-shop.ocp", "www.shop.example"],
        notes: &[
            "IngressController openshift-ingress-operator/private NoAddress",
            "Route shop/late NotAdmitted",
            "Route shop/twice SeveralParents",
        ],
    },
    Shapes {
        file: "ingress",
        zones: &["nginx 203.0.113.50", "traefik"],
        hosts: &["old.nginx", "site.nginx"],
        notes: &[
            "Ingress shop/old AnnotationIgnored",
            "Ingress shop/whoami NotAdmitted",
            "IngressClass alb ClassNotAccepted",
            "IngressClass traefik NoAddress",
        ],
    },
    Shapes {
        file: "service",
        zones: &["db 203.0.113.60 @", "games 203.0.113.61 2001:db8::61"],
        hosts: &["chess.games"],
        notes: &["Service shop/waiting NotAdmitted"],
    },
];

fn path_of(shapes: &Shapes) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/shapes").join(format!("{}.yaml", shapes.file));
    path.to_str().expect("UTF-8").to_owned()
}

fn objects_of(shapes: &Shapes) -> Vec<Value> {
    let text = std::fs::read_to_string(path_of(shapes)).expect("it is there");
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).expect("YAML")).collect()
}

/// Returns the whole name of a host or zone, which is below the domain unless it is of several labels outside.
fn whole(name: &str) -> String {
    if name.ends_with(".example") { name.to_owned() } else { format!("{name}.apps.example.com") }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the shards, names and notes of a report in the form of [`Shapes`].
fn found(derived: &Value) -> [Vec<String>; 3] {
    let list = |name: &str| derived[name].as_array().expect("a list").clone();
    let short = |name: &Value| text(name).trim_end_matches(".apps.example.com").to_owned();
    let zone = |shard: Value| {
        let addresses = shard["addresses"].as_array().into_iter().flatten().map(|address| text(address).to_owned());
        let apex = (shard["hasApex"] == true).then(|| "@".to_owned());
        [short(&shard["dns"])].into_iter().chain(addresses).chain(apex).collect::<Vec<_>>().join(" ")
    };
    let note = |note: Value| {
        let source = &note["source"];
        let place = [text(&source["namespace"]), text(&source["name"])];
        let place = place.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        format!("{} {place} {}", text(&source["kind"]), text(&note["reason"]))
    };
    let mut all = [
        list("shards").into_iter().map(zone).collect::<Vec<_>>(),
        list("names").iter().map(|name| short(&name["host"])).collect(),
        list("notes").into_iter().map(note).collect(),
    ];
    all.iter_mut().for_each(|list| list.sort());
    all
}

#[test]
fn shapes_in_files_are_shown() {
    for shapes in &SHAPES {
        let classes =
            ["--ingress-class", "nginx=nginx.apps.example.com", "--ingress-class", "traefik=traefik.apps.example.com"];
        let file = path_of(shapes);
        let derived = json(&[&["sources", "--domain", "apps.example.com", "-f", &file][..], &classes].concat());
        let expected = [shapes.zones, shapes.hosts, shapes.notes];
        let mut found = found(&derived);
        found[2].dedup();
        for (list, expected) in found.iter().zip(expected) {
            assert_eq!(*list, expected, "{}: {derived}", shapes.file);
        }
    }
}

/// One cluster with all of them: `show` writes nothing, `publish` answers for each name, and each owner sees it on the own object.
#[test]
fn shapes_of_a_cluster_are_published() {
    let (data, stop) = (DataDir::new(), CancellationToken::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let kinds: [&'static Kind; 13] = [
        &CLASS,
        &GATEWAY,
        &LISTENER_SET,
        &ROUTE,
        &GRPC_ROUTE,
        &TLS_ROUTE,
        &INFRASTRUCTURE,
        &CONTROLLER,
        &OPENSHIFT_ROUTE,
        &SERVICE,
        &INGRESS,
        &INGRESS_CLASS,
        &ENDPOINT_SLICE,
    ];
    let cluster = runtime.block_on(cluster_of(&kinds, &[], stop.clone()));
    let of_cluster = data.kubeconfig(cluster.address);
    let source = Kubectl::new(of_cluster.clone().into());
    for shapes in &SHAPES {
        objects_of(shapes).iter().for_each(|object| create(&source, object));
    }
    let arguments = |mode: &str| -> Vec<String> {
        let uses = ["gateway", "openshift", "ingress", "service"].map(|name| format!("--sources-{name}={mode}"));
        let others = [
            "--data-dir",
            data.path(),
            "--domain",
            "apps.example.com",
            "--sources-kubeconfig",
            &of_cluster,
            "--sources-ingress-classes",
            "nginx=nginx.apps.example.com,traefik=traefik.apps.example.com",
        ];
        others.into_iter().map(str::to_owned).chain(uses).collect()
    };
    let start = |mode: &str| {
        let arguments = arguments(mode);
        Server::start(Ports::free(), &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    for shapes in &SHAPES {
        for (all, list) in expected.iter_mut().zip([shapes.zones, shapes.hosts, shapes.notes]) {
            all.extend(list.iter().map(|text| (*text).to_owned()));
        }
    }
    expected.iter_mut().for_each(|list| list.sort());
    let reported = |server: &Server| {
        let admin = format!("http://{}", server.admin);
        eventually("all is derived", || {
            let mut found = found(&json(&["sources", "--admin", &admin]));
            found[2].dedup();
            (found == expected).then_some(())
        });
    };

    let shown = start("show");
    reported(&shown);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    for kind in ["routers", "routes.signpost.dev"] {
        assert_eq!(kubectl.json(&[kind, "-A"])["items"], json!([]), "show writes nothing");
    }
    drop(shown);

    let server = start("publish");
    reported(&server);
    for shapes in &SHAPES {
        let addresses_of = |zone: &str| -> Vec<String> {
            let of_zone = |text: &&&str| text.split(' ').next().is_some_and(|name| whole(name) == zone);
            let found = SHAPES.iter().flat_map(|shapes| shapes.zones).find(of_zone).expect("a zone");
            found.split(' ').skip(1).filter(|word| *word != "@" && !word.contains(':')).map(str::to_owned).collect()
        };
        // An alias leads to a name in another zone.
        let addresses = |name: &str| -> Vec<String> {
            let found = dig(server.dns, name, "A", &[]);
            let found = match found.data("CNAME").first().map(|target| dig(server.dns, target, "A", &[])) {
                Some(next) => match next.data("CNAME").first().map(|target| dig(server.dns, target, "A", &[])) {
                    Some(last) => last,
                    None => next,
                },
                None => found,
            };
            found.data("A").into_iter().map(|address| address.to_owned()).collect()
        };
        for zone in shapes.zones {
            let name = whole(zone.split(' ').next().expect("a name"));
            let (any, apex) = (format!("any.{name}"), name.clone());
            let expected = addresses_of(&name);
            eventually(&format!("{any} is {expected:?}"), || (addresses(&any) == expected).then_some(()));
            let expected = if zone.ends_with('@') { expected } else { Vec::new() };
            assert_eq!(addresses(&apex), expected, "{apex}");
        }
        for host in shapes.hosts.iter().filter(|host| !host.ends_with(".example")) {
            let (name, expected) =
                (whole(host), if *host == "www" { "203.0.113.21".to_owned() } else { String::new() });
            let zone = if host.contains('.') { host.rsplit('.').next().expect("a label") } else { host };
            let expected = if expected.is_empty() { addresses_of(&whole(zone)) } else { vec![expected] };
            eventually(&format!("{name} is {expected:?}"), || (addresses(&name) == expected).then_some(()));
        }
    }

    // Each owner sees the state on the own object, next to what the controllers wrote.
    let entries = |kind: &str, namespace: &str, name: &str| -> Vec<Value> {
        let object = source.json(&[kind, name, "-n", namespace]);
        let parents = object["status"]["parents"].as_array().cloned().unwrap_or_default();
        parents.into_iter().filter(|entry| entry["controllerName"] == "signpost.dev/dns").collect()
    };
    for (kind, namespace, name, parents) in [
        ("httproutes", "envoy", "backend", 1),
        ("httproutes", "team", "both", 2),
        ("httproutes", "team", "own", 1),
        ("grpcroutes", "team", "admin", 1),
        ("httproutes", "cafe", "coffee", 2),
        ("httproutes", "cafe", "home", 1),
        ("tlsroutes", "cafe", "mail", 1),
        ("httproutes", "mesh", "reviews", 1),
    ] {
        let own = eventually(&format!("{kind} {namespace}/{name} is resolvable"), || {
            let own = entries(kind, namespace, name);
            let is_resolvable =
                |entry: &Value| condition(entry, "signpost.dev/Resolvable").is_some_and(|(status, _)| status == "True");
            (!own.is_empty() && own.iter().all(is_resolvable)).then_some(own)
        });
        assert_eq!(own.len(), parents, "{own:?}");
    }
    let refused = eventually("a refused one has an entry", || entries("httproutes", "tea", "tea").pop());
    assert_eq!(condition(&refused, "signpost.dev/Published"), Some(("False".to_owned(), "NotAdmitted".to_owned())));
    let platform = ["--data-dir", data.path()];
    for (object, part) in [
        ("httproute/envoy/backend", "www.apps.example.com"),
        ("gateway/cafe/gateway", "coffee.cafe.apps.example.com"),
        ("ingress/shop/site", "site.nginx.apps.example.com"),
        ("svc/shop/games", "chess.games.apps.example.com"),
    ] {
        let text = ok(&[&["explain", object][..], &platform].concat());
        assert!(text.contains(part), "{object}:\n{text}");
    }
    stop.cancel();
}
