//! Measures the time to evaluate the CRD's rules with `kube-cel`, the same rules in Rust, and a whole create over a durable
//! store, in one run. The results are in `crates/api/README.md`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::Request;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};
use signpost_api::crds::crds;
use signpost_api::identity::{GROUP_MASTERS, Identity};
use signpost_api::kinds::{PlatformConfig, kinds, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::registry::Context;
use signpost_apiserver::store::embedded::Embedded;
use tower::ServiceExt;

const DOMAIN: &str = "v3.example";
const CREATES: u32 = 2_000;

fn object(kind: &str, name: &str) -> Value {
    let spec = match kind {
        "Route" => {
            json!({"host": "www.shop.example.org", "subdomain": "www", "path": "/", "to": {"kind": "Service", "name": "web"}})
        }
        _ => json!({"dns": format!("{name}.{DOMAIN}"), "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}],
                    "routeSelector": {"matchLabels": {"tier": "gold"}}, "healthCheck": {"path": "/", "expectedStatuses": "200-399"}}),
    };
    let mut object =
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    if kind == "Route" {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

/// Returns the mean time of `each`.
fn mean(times: u32, mut each: impl FnMut()) -> Duration {
    let begun = Instant::now();
    (0..times).for_each(|_| each());
    begun.elapsed() / times
}

fn compiled(kind: &str) -> CompiledSchema {
    let definitions = crds(Some(DOMAIN));
    let definition = definitions.iter().find(|found| found.spec.names.kind == kind).expect("a Signpost kind");
    let version = definition.spec.versions.first().and_then(|version| version.schema.as_ref()).expect("one version");
    compile_schema(&serde_json::to_value(&version.open_api_v3_schema).expect("a schema is JSON"))
}

/// Creates Routes through the whole server, over a store on disk.
async fn create() -> Duration {
    let folder = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Embedded::open(folder.path(), Default::default()).expect("a store"));
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens")));
    let api = ApiServer::new(store, server_settings(PlatformConfig::new(DOMAIN), authenticator));
    let running = api.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let server = tokio::spawn(async move { running.run(stopped).await });
    api.ready().await;
    let begun = Instant::now();
    for number in 0..CREATES {
        let mut route = object("Route", &format!("r{number}"));
        route["spec"].as_object_mut().expect("a spec").remove("subdomain");
        route["spec"]["host"] = format!("h{number}.example.org").into();
        let mut request = Request::post("/apis/signpost.dev/v1alpha1/namespaces/default/routes");
        request = request.header("content-type", "application/json");
        let mut request = request.body(Body::from(route.to_string())).expect("a request");
        request.extensions_mut().insert(Identity { user: "admin".into(), groups: vec![GROUP_MASTERS.into()] });
        let response = api.router().oneshot(request).await.expect("routers do not fail");
        assert_eq!(response.status(), 201);
    }
    let took = begun.elapsed() / CREATES;
    stop.cancel();
    server.await.expect("it stops");
    took
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let create = runtime.block_on(create());
    println!("a create, one after the other, durable: {create:?}");
    let kinds = kinds(PlatformConfig::new(DOMAIN));
    let identity = Identity::user("admin");
    for name in ["Route", "Router"] {
        let (kind, schema) = (kinds.find_kind(name).expect("a kind"), compiled(name));
        let mut object = object(name, "shard1");
        signpost_apiserver::schema::apply_defaults(&kind.schema, &mut object);
        let now = "2026-01-01T12:00:00Z".parse().expect("a constant");
        let context = Context { kinds: &kinds, identity: &identity, namespace: Some("default"), manager: "bench", now };
        let rust = mean(20_000, || drop(black_box(kinds.hooks(kind).validate(&context, None, &object))));
        let validator = Validator::new();
        let cel = mean(500, || drop(black_box(validator.validate_compiled(&schema, &object, None))));
        let share = 100.0 * cel.as_secs_f64() / create.as_secs_f64();
        println!("{name}: in Rust {rust:?}, by kube-cel {cel:?}: {share:.0} % of a create");
    }
}
