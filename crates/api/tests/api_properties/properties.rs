//! Properties that must hold for arbitrary requests to the API. The fuzz targets check the same properties.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};
use signpost_api::kinds::router::ROUTER as ROUTER_KIND;
use signpost_api::kinds::{PlatformConfig, kinds};
use signpost_apiserver::apply::server_side_apply;
use signpost_apiserver::continue_token::ContinueToken;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::selector::Selector;
use signpost_apiserver::{patch, protobuf, schema};

/// A Router as stored, with fields of two managers.
static ROUTER: LazyLock<Value> = LazyLock::new(|| {
    let config = |spec: Value| json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "r", "labels": {"a": "b"}}, "spec": spec});
    let one = config(json!({"ttl": 5, "addresses": [{"ip": "192.0.2.1", "weight": 2}], "records": ["@ TXT x"]}));
    let two = config(json!({"mode": "active-active", "addresses": [{"ip": "192.0.2.2"}],
        "routeSelector": {"matchLabels": {"tier": "gold"}}}));
    let first = apply(None, one, "one", false).expect("applies");
    apply(Some(&first), two, "two", false).expect("applies")
});

fn router() -> &'static Kind {
    &ROUTER_KIND
}

fn apply(live: Option<&Value>, config: Value, manager: &str, force: bool) -> Option<Value> {
    let now = Timestamp::from_second(1_800_000_000).expect("a time");
    server_side_apply(router(), live, config, manager, force, None, now).ok()
}

/// A JSON patch applies whole or not at all; what it makes is JSON of bounded size and depth.
pub fn json_patch(body: &[u8]) {
    let mut patched = ROUTER.clone();
    if patch::json_patch(&mut patched, body).is_err() {
        assert_eq!(patched, *ROUTER, "a refused patch changes nothing");
        return;
    }
    let text = patched.to_string();
    // A body can add what it holds, and copies have their own bound.
    assert!(text.len() <= ROUTER.to_string().len() + 6 * body.len() + (4 << 20), "{}", text.len());
    let again: Value = serde_json::from_str(&text).expect("what a patch makes can be read back");
    assert_eq!(again, patched);
}

/// A merge patch does the same the second time as the first, and leaves no `null` of its own in objects.
pub fn merge_patch(body: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    let mut once = ROUTER.clone();
    patch::merge_patch(&mut once, &body);
    let mut twice = once.clone();
    patch::merge_patch(&mut twice, &body);
    assert_eq!(once, twice, "{body}");
}

/// A repeated apply has no further effect, by any manager, forced or not; other managers' fields are removed only if it is
/// forced.
pub fn apply_patch(body: &[u8]) {
    let Ok(mut config) = serde_json::from_slice::<Value>(body) else { return };
    if !config.is_object() || !config["metadata"].is_object() {
        return;
    }
    schema::prune(&router().schema, &mut config);
    for (manager, force) in [("one", false), ("one", true), ("three", false), ("three", true)] {
        for live in [None, Some(&*ROUTER)] {
            let Some(once) = apply(live, config.clone(), manager, force) else { continue };
            let twice = apply(Some(&once), config.clone(), manager, force);
            assert_eq!(twice.as_ref(), Some(&once), "{manager} {force} {config}");
            let text = once.to_string();
            assert_eq!(serde_json::from_str::<Value>(&text).ok().as_ref(), Some(&once));
            // A `spec` that is not an object replaces the whole; validation rejects the result.
            if live.is_some() && manager == "three" && !force && once["spec"].is_object() {
                let kept = |object: &Value| object["spec"]["ttl"].clone();
                assert_eq!(kept(&once), kept(&ROUTER), "another's field changed without force: {config}");
            }
        }
    }
}

/// A selector that is understood is written and read back as the same.
pub fn selector(labels: &str, fields: &str) {
    let kinds = kinds(PlatformConfig::new("v3.example"));
    for kind in ["Route", "Event", "Namespace"] {
        let kind = kinds.find_kind(kind).expect("a kind");
        let Ok(selector) = Selector::parse(kind, labels, fields) else { continue };
        let (labels, fields) = (selector.labels_text(), selector.fields_text());
        let again = Selector::parse(kind, &labels, &fields);
        assert_eq!(again.as_ref(), Ok(&selector), "{labels:?} {fields:?}");
        assert_eq!(selector.is_everything(), labels.is_empty() && fields.is_empty());
    }
}

/// A token that is understood is written and read back as the same, and leads nowhere outside its list.
pub fn continue_token(text: &str) {
    let Ok(token) = ContinueToken::decode(text) else { return };
    assert!(!token.after.is_empty() && !token.after.contains("..") && token.revision != Some(0));
    assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
}

/// A decoded body is an object of its kind, and not much larger as JSON.
pub fn protobuf(body: &[u8]) {
    let Ok(object) = protobuf::decode(body) else { return };
    assert!(object["kind"].is_string() && object["apiVersion"].is_string(), "{object}");
    assert!(object.to_string().len() <= 64 * body.len(), "{object}");
}
