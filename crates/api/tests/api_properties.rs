//! Properties of everything that a stranger can send to the API, on random input that is nearly right. `fuzz/` runs the same
//! properties on input of its own.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

#[path = "api_properties/properties.rs"]
mod properties;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,3}", "[ -~]{0,12}", "\\PC{0,6}"]
}

/// Any JSON, a few levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((field(), inner), 0..4)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Returns a field that a Router has, or any.
fn field() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "spec",
        "metadata",
        "labels",
        "annotations",
        "name",
        "a",
        "ttl",
        "addresses",
        "ip",
        "weight",
        "records",
        "mode",
        "routeSelector",
        "matchLabels",
        "tier",
        "state",
        "status",
        "conditions",
        "type",
        "0",
        "-",
    ];
    prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => text()]
}

/// Generates a Router that is valid except for the given values.
fn config() -> impl Strategy<Value = Value> {
    let address = ("192\\.0\\.2\\.[1-4]", prop::option::of(0_u32..3));
    let addresses = prop::collection::vec(address, 0..4);
    let labels = prop::collection::vec(("[abc]", "[ab]{0,2}"), 0..3);
    let fields = prop::collection::vec((field(), any_json()), 0..3);
    (addresses, labels, prop::option::of(0_u32..9), fields).prop_map(|(addresses, labels, ttl, fields)| {
        let mut spec = Map::new();
        let addresses = addresses.into_iter().map(|(ip, weight)| match weight {
            Some(weight) => json!({"ip": ip, "weight": weight}),
            None => json!({"ip": ip}),
        });
        spec.insert("addresses".to_owned(), addresses.collect());
        spec.extend(ttl.map(|ttl| ("ttl".to_owned(), json!(ttl))));
        spec.extend(fields);
        let labels: Map<String, Value> = labels.into_iter().map(|(key, value)| (key, json!(value))).collect();
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "r", "labels": labels}, "spec": spec})
    })
}

/// Returns a JSON patch with pointers that often lead somewhere.
fn operations() -> impl Strategy<Value = Value> {
    let pointer = || {
        prop::collection::vec(field(), 0..5).prop_map(|fields| {
            fields.iter().map(|field| format!("/{}", field.replace('~', "~0").replace('/', "~1"))).collect::<String>()
        })
    };
    let operation = ("(add|remove|replace|move|copy|test)", pointer(), pointer(), any_json());
    let operation =
        operation.prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}));
    prop::collection::vec(operation, 0..6).prop_map(Value::from)
}

fn label_selector() -> impl Strategy<Value = String> {
    let key = "(example\\.com/|[a-z(]{0,3}/)?[aA1_.-]{0,4}";
    let value = "[ab1._-]{0,4}";
    let one = (key, "(=|==|!=| in | notin |>|<||!)", prop::collection::vec(value, 0..3)).prop_map(
        |(key, operator, values)| match operator.trim() {
            "in" | "notin" => format!("{key}{operator}({})", values.join(",")),
            "!" => format!("!{key}"),
            "" => key,
            operator => format!("{key}{operator}{}", values.first().cloned().unwrap_or_default()),
        },
    );
    prop::collection::vec(one, 0..4).prop_map(|parts| parts.join(","))
}

fn field_selector() -> impl Strategy<Value = String> {
    let path = "(metadata\\.name|metadata\\.namespace|spec\\.host|reason|status\\.phase|x)";
    let one =
        (path, "(=|==|!=)", "[a\\\\,=! ]{0,5}").prop_map(|(path, operator, value)| format!("{path}{operator}{value}"));
    prop::collection::vec(one, 0..3).prop_map(|parts| parts.join(","))
}

/// Returns a message of the kind, field by field: numbers, texts, and messages in it.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6),
        (0_u8..16, 0_u8..128).prop_map(|(number, value)| vec![number << 3, value]),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop::collection::vec((1_u8..15, inner), 0..4).prop_map(|fields| {
            let mut octets = Vec::new();
            for (number, content) in fields {
                octets.extend([number << 3 | 2, content.len().min(127) as u8]);
                octets.extend(&content[..content.len().min(127)]);
            }
            octets
        })
    })
}

fn protobuf_body() -> impl Strategy<Value = Vec<u8>> {
    const KINDS: &[(&str, &str)] = &[
        ("v1", "Namespace"),
        ("v1", "Event"),
        ("events.k8s.io/v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
        ("authentication.k8s.io/v1", "SelfSubjectReview"),
        ("v1", "DeleteOptions"),
    ];
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len().min(127) as u8][..], content].concat();
    (prop::sample::select(KINDS), message()).prop_map(move |((version, kind), mut raw)| {
        raw.truncate(127);
        let type_meta = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [&b"k8s\0"[..], &field(1, &type_meta), &field(2, &raw)].concat()
    })
}

proptest! {
    #[test]
    fn json_patches(operations in operations()) {
        properties::json_patch(operations.to_string().as_bytes());
    }

    #[test]
    fn merge_patches(body in any_json()) {
        properties::merge_patch(body.to_string().as_bytes());
    }

    #[test]
    fn applies(config in config()) {
        properties::apply_patch(config.to_string().as_bytes());
    }

    #[test]
    fn selectors(labels in label_selector(), fields in field_selector()) {
        properties::selector(&labels, &fields);
        properties::selector(&labels, "");
        properties::selector("", &fields);
    }

    #[test]
    fn texts_as_selectors(labels in "\\PC{0,40}", fields in "\\PC{0,40}") {
        properties::selector(&labels, &fields);
    }

    #[test]
    fn continue_tokens(revision in prop::option::of(-2_i64..3), start in "[ -~]{0,20}\u{0}?", garbage in "[A-Za-z0-9_=-]{0,60}") {
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string();
        properties::continue_token(&data_encoding::BASE64URL_NOPAD.encode(token.as_bytes()));
        properties::continue_token(&garbage);
    }

    #[test]
    fn protobuf_bodies(body in protobuf_body(), garbage in prop::collection::vec(any::<u8>(), 0..80)) {
        properties::protobuf(&body);
        properties::protobuf(&garbage);
    }
}

/// The seeds of the fuzzer are real input: each of them is understood, and so tests what comes after reading.
#[test]
fn the_corpora_are_understood() {
    let corpus = |target: &str| {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut seeds: Vec<Vec<u8>> =
            files.map(|file| std::fs::read(file.expect("readable").path()).expect("readable")).collect();
        seeds.sort();
        assert!(seeds.len() >= 4, "{target} has too few seeds");
        seeds
    };
    for seed in corpus("patch") {
        properties::json_patch(&seed);
        properties::merge_patch(&seed);
        assert!(serde_json::from_slice::<Value>(&seed).is_ok());
    }
    for seed in corpus("apply") {
        properties::apply_patch(&seed);
        assert!(serde_json::from_slice::<Value>(&seed).is_ok_and(|config| config["metadata"].is_object()));
    }
    for seed in corpus("protobuf") {
        properties::protobuf(&seed);
        assert!(signpost_apiserver::protobuf::decode(&seed).is_ok(), "{seed:02x?}");
    }
    for seed in corpus("continue_token") {
        let text = std::str::from_utf8(&seed).expect("text");
        properties::continue_token(text);
        assert!(signpost_apiserver::continue_token::ContinueToken::decode(text).is_ok(), "{text}");
    }
    for seed in corpus("selector") {
        let text = std::str::from_utf8(&seed).expect("text");
        let (labels, fields) = text.split_once('\n').unwrap_or((text, ""));
        properties::selector(labels, fields);
        let kind = &*signpost_api::kinds::route::ROUTE;
        assert!(signpost_apiserver::selector::Selector::parse(kind, labels, fields).is_ok(), "{text}");
    }
}
