//! Spans of a Route's walk at a collector: one tree over two processes; and no harm where the collector is away.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, eventually, free_address};

/// A collector that keeps what it gets: each span with the service and the instance that sent it.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct ReceivedSpan {
    service: String,
    instance: String,
    span: Span,
}

/// The header that it wants to see.
const TOKEN: &str = "Bearer let-me-in";

impl Collector {
    fn start() -> Collector {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let spans: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let kept = spans.clone();
        let take = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            assert_eq!(headers["authorization"], TOKEN);
            kept.lock().expect("no thread panics").extend(received_spans(&body));
            ([("content-type", "application/x-protobuf")], Bytes::new())
        };
        let router = axum::Router::new().route("/v1/traces", axum::routing::post(take));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("is bound");
        runtime.spawn(async move { axum::serve(listener, router).await });
        Collector { address, spans, _runtime: runtime }
    }

    /// Returns the spans of one trace.
    fn of(&self, trace: &[u8]) -> Vec<ReceivedSpan> {
        let spans = self.spans.lock().expect("no thread panics");
        spans.iter().filter(|received| received.span.trace_id == trace).cloned().collect()
    }
}

fn received_spans(body: &[u8]) -> Vec<ReceivedSpan> {
    let request = ExportTraceServiceRequest::decode(body).expect("OTLP in protobuf");
    let mut all = Vec::new();
    for sent in request.resource_spans {
        let resource = sent.resource.expect("the sender identifies itself");
        let attributes: BTreeMap<String, String> =
            resource.attributes.into_iter().map(|pair| (pair.key, format!("{:?}", pair.value))).collect();
        for scope in sent.scope_spans {
            assert_eq!(scope.scope.expect("the spans have a scope").name, "signpost");
            let (service, instance) = (attributes["service.name"].clone(), attributes["service.instance.id"].clone());
            let with = |span| ReceivedSpan { service: service.clone(), instance: instance.clone(), span };
            all.extend(scope.spans.into_iter().map(with));
        }
    }
    all
}

const OBJECTS: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\nspec: {addresses: [{ip: \
192.0.2.1}]}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: signpost.dev/v1alpha1\nkind: \
Route\nmetadata: {name: front, namespace: shop}\nspec: {to: {name: web}}\n";

/// Creates a Route and waits until it is live; its trace's id.
fn walk(data: &DataDir) -> Vec<u8> {
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    kubectl.ok(&["-n", "shop", "wait", "route/front", "--for=condition=Resolvable", "--timeout=180s"]);
    let uid = kubectl.ok(&["-n", "shop", "get", "route", "front", "-o", "jsonpath={.metadata.uid}"]);
    data_encoding::HEXLOWER.decode(uid.trim().replace('-', "").as_bytes()).expect("a uid is a UUID")
}

#[test]
fn a_routes_walk_is_one_tree_over_two_processes() {
    let (collector, data, ns) = (Collector::start(), DataDir::new(), DataDir::new());
    let headers = data.join("headers");
    std::fs::write(&headers, format!("Authorization: {TOKEN}\n")).expect("written");
    let endpoint = format!("http://{}", collector.address);
    let headers = headers.to_str().expect("UTF-8").to_owned();
    let traced = ["--trace-endpoint", &endpoint, "--trace-headers", &headers, "--trace-service", "under-test"];
    let (ports, other) = (Ports::free(), Ports::free());
    let asked = format!("ns1.example.org={}", other.dns);
    let platform = ["--domain", "example.org", "--nameserver", "ns1.example.org=192.0.2.53"];
    let own = ["--data-dir", data.path(), "--roles", "api,scheduler,admin", "--verify-server", &asked];
    let server = Server::start(ports, &[&own[..], &platform, &traced].concat());
    let access = data.join("name-server.kubeconfig");
    let access = access.to_str().expect("UTF-8");
    let own = ["--data-dir", ns.path(), "--roles", "dns,admin", "--kubeconfig", access];
    let name_server = Server::start(other, &[&own[..], &platform, &traced].concat());
    let trace = walk(&data);

    let names = ["api.write", "bind", "compile", "decide", "prove", "publish", "schedule"];
    let spans = eventually("the whole walk is traced", || {
        let spans = collector.of(&trace);
        let found: BTreeSet<&str> = spans.iter().map(|received| received.span.name.as_str()).collect();
        (found == BTreeSet::from(names)).then_some(spans)
    });
    let one = |name: &str| {
        let found: Vec<&ReceivedSpan> = spans.iter().filter(|received| received.span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} is sent {} times", found.len());
        found[0]
    };
    let root = &one("api.write").span;
    assert!(root.parent_span_id.is_empty(), "{root:?}");
    for (name, parent) in [
        ("schedule", "api.write"),
        ("decide", "schedule"),
        ("bind", "schedule"),
        ("compile", "api.write"),
        ("publish", "api.write"),
        ("prove", "api.write"),
    ] {
        let (span, parent) = (&one(name).span, &one(parent).span);
        assert_eq!(span.parent_span_id, parent.span_id, "{name}");
        assert!(span.start_time_unix_nano >= root.start_time_unix_nano, "{name} began before the Route was there");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{name}");
    }
    assert_eq!(spans.iter().map(|received| &received.span.span_id).collect::<BTreeSet<_>>().len(), names.len());
    assert!(one("bind").span.end_time_unix_nano <= one("prove").span.end_time_unix_nano);
    assert!(one("publish").span.end_time_unix_nano <= one("prove").span.end_time_unix_nano);
    let text = format!("{:?}", one("schedule").span.attributes);
    for known in ["shop/front", "shard1", "bound"] {
        assert!(text.contains(known), "{text}");
    }

    // The sources of spans: the name server reports its own steps, the other process the rest.
    assert!(spans.iter().all(|received| received.service.contains("under-test")));
    assert_eq!(one("compile").instance, one("publish").instance);
    assert_ne!(one("compile").instance, one("api.write").instance);
    for (server, spans) in [(&server, 5.0), (&name_server, 2.0)] {
        let sent = |result| Scrape::of(server.admin).sum("signpost_trace_spans_total", &[("result", result)]);
        eventually("the sent spans are counted", || (sent("sent") >= spans).then_some(()));
        assert_eq!((sent("failed"), sent("dropped")), (0.0, 0.0));
    }
}

#[test]
fn a_collector_that_is_away_disturbs_nobody() {
    let data = DataDir::new();
    let endpoint = format!("http://{}/v1/traces", free_address());
    let arguments = ["--data-dir", data.path(), "--domain", "example.org", "--trace-endpoint", &endpoint];
    let server = Server::start(Ports::free(), &arguments);
    walk(&data);
    eventually("the failed spans are counted", || {
        let failed = Scrape::of(server.admin).sum("signpost_trace_spans_total", &[("result", "failed")]);
        (failed >= 7.0).then_some(())
    });
    let errors = || server.log().matches("failed to send spans to the trace collector").count();
    eventually("the log has it", || (errors() > 0).then_some(()));
    assert_eq!(errors(), 1, "{}", server.log());
    assert!(server.terminate().success());
}
