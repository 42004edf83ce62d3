//! Secret of Kubernetes (v1): certificates and other confidential data, encrypted at rest.
//!
//! Validation, defaults, and the merge of `stringData` match kube-apiserver. Types other than `kubernetes.io/tls` are plain data, with
//! the keys that kube-apiserver requires of them. Tokens of ServiceAccounts are rejected, because this server has no ServiceAccounts
//! and would never fill them in. No message here quotes a value.

use std::sync::LazyLock;

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{BUILT_IN_AGE, Cell, Column};
use signpost_apiserver::registry::{Context, Hooks, Reader};

use crate::access;
use crate::identity::Identity;

/// The maximum size of all values of a Secret, as in Kubernetes. They have a third more in Base64.
const DATA_BYTES_MAX: usize = 1 << 20;
/// The maximum size of a Secret as JSON: its values, and for the rest as much as any other object can have.
const OBJECT_BYTES_MAX: usize = DATA_BYTES_MAX.div_ceil(3) * 4 + (64 << 10);
const KEY_BYTES_MAX: usize = 253;
const KEYS_MAX: usize = 1_024;

const OPAQUE: &str = "Opaque";
const TLS: &str = "kubernetes.io/tls";
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The keys that kube-apiserver requires, by type.
const REQUIRED: [(&str, &[&str]); 4] = [
    (TLS, &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
];
const IMMUTABLE: &str = "field is immutable when `immutable` is set";
const INVALID_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub static SECRET: LazyLock<Kind> = LazyLock::new(|| {
    let value = |maximum: usize| json!({"maxLength": maximum});
    let map = || json!({"maxProperties": KEYS_MAX});
    let kind = Kind::built_in::<k8s_openapi::api::core::v1::Secret>([
        ("data", map()),
        ("data{}", value(OBJECT_BYTES_MAX)),
        ("stringData", map()),
        ("stringData{}", value(DATA_BYTES_MAX)),
    ]);
    Kind {
        is_secret: true,
        object_bytes: Some(OBJECT_BYTES_MAX),
        ..kind.with_columns(COLUMNS).selectable_by(&["type"])
    }
});

const COLUMNS: &[Column] = &[
    Column::new("Type", &["type"], "The type, which defines the keys of its data."),
    Column::new("Data", &["data"], "The number of its values.")
        .with_cell(|read, _| Cell::Number(i64::try_from(read[0].members().count()).unwrap_or(i64::MAX))),
    BUILT_IN_AGE,
];

pub(super) struct Secrets;

impl Hooks for Secrets {
    fn prepare(&self, _context: &Context<'_>, old: Option<&Value>, new: &mut Value) {
        prepare(new, old.and_then(|old| old["type"].as_str()).unwrap_or(OPAQUE));
    }

    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(old) = old {
            if old["type"] != new["type"] {
                causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
            }
            if old["immutable"] == true && new["immutable"] != true {
                causes.push(Cause::forbidden("immutable", IMMUTABLE));
            }
            if old["immutable"] == true && old["data"] != new["data"] {
                causes.push(Cause::forbidden("data", IMMUTABLE));
            }
        }
        causes.extend(faults(new));
        causes
    }

    fn denies_get(
        &self,
        identity: &Identity,
        namespace: Option<&str>,
        name: &str,
        reader: &dyn Reader,
    ) -> Result<Option<&'static str>, ApiError> {
        access::denies_secret(identity, namespace.unwrap_or_default(), name, reader)
    }
}

/// Sets the default type, and moves `stringData`, which is write-only, into `data`.
fn prepare(secret: &mut Value, default_type: &str) {
    let Some(secret) = secret.as_object_mut() else { return };
    if secret.get("type").is_none_or(|kind| kind.is_null() || kind == "") {
        secret.insert("type".to_owned(), default_type.into());
    }
    // A value of another type stays, and the schema rejects it.
    if let Some(Value::Object(values)) = secret.get("data")
        && values.is_empty()
    {
        secret.remove("data");
    }
    if let Some(Value::Object(data)) = secret.get_mut("data") {
        data.values_mut().for_each(join_lines);
    }
    if !secret.get("stringData").is_some_and(|texts| texts.is_object() && has_only_texts(texts)) {
        return;
    }
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = json!({});
    }
    if let Some(data) = data.as_object_mut() {
        let encoded = |text: Value| BASE64.encode(text.as_str().unwrap_or_default().as_bytes());
        data.extend(texts.into_iter().map(|(key, text)| (key, encoded(text).into())));
    }
}

fn has_only_texts(texts: &Value) -> bool {
    texts.as_object().is_some_and(|texts| texts.values().all(Value::is_string))
}

/// Removes the line breaks in Base64, which Go's decoder ignores.
fn join_lines(value: &mut Value) {
    if let Value::String(text) = value
        && text.contains(['\n', '\r'])
    {
        text.retain(|character| !matches!(character, '\n' | '\r'));
    }
}

fn faults(secret: &Value) -> Vec<Cause> {
    let empty = Map::new();
    let data = secret["data"].as_object().unwrap_or(&empty);
    let (mut causes, mut bytes) = (Vec::new(), 0);
    for (key, value) in data {
        let path = format!("data[{key}]");
        if !is_key(key) {
            causes.push(Cause::invalid(&path, &key.as_str().into(), INVALID_KEY));
        }
        match value.as_str().map(|value| BASE64.decode(value.as_bytes())) {
            Some(Ok(value)) => bytes += value.len(),
            Some(Err(_)) => causes.push(Cause::new("FieldValueInvalid", path, "Invalid value: must be Base64")),
            // The schema rejects it.
            None => {}
        }
    }
    if bytes > DATA_BYTES_MAX {
        causes.push(Cause::too_long("data", DATA_BYTES_MAX as u64));
    }
    let kind = secret["type"].as_str().unwrap_or_default();
    if kind == SERVICE_ACCOUNT_TOKEN {
        causes.push(Cause::forbidden("type", "this server has no ServiceAccounts, and issues no tokens for them"));
    }
    let is_absent = |key: &&&str| !data.contains_key(**key);
    let required = REQUIRED.iter().filter(|(required, _)| *required == kind).flat_map(|(_, keys)| *keys);
    causes.extend(required.filter(is_absent).map(|key| Cause::required(format!("data[{key}]"), "")));
    causes
}

fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(is_allowed) && key != "." && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use signpost_types::instance::AGENT_NAMESPACE;
    use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;

    use super::*;
    use crate::access::{GROUP_ADMINS, GROUP_ROUTER_AGENTS};
    use crate::identity::GROUP_TENANT_PREFIX;
    use crate::kinds::fixture::{self, Objects, check_create, check_update, context};

    fn secret(fields: Value) -> Value {
        let mut secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-tls", "namespace": "n"}});
        secret.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
        secret
    }

    #[test]
    fn string_data_and_the_default_type() {
        for (sent, expected) in [
            (json!({}), json!({"type": "Opaque"})),
            (json!({"type": "", "data": {}, "stringData": {}}), json!({"type": "Opaque"})),
            (
                json!({"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "c", "d": ""}}),
                json!({"type": "Opaque", "data": {"a": "YQ==", "b": "Yw==", "d": ""}}),
            ),
            (json!({"stringData": {"a": "a"}, "data": null}), json!({"type": "Opaque", "data": {"a": "YQ=="}})),
            (
                json!({"type": "example.com/x", "data": {"a": "YQ\n==\r\n"}}),
                json!({"type": "example.com/x", "data": {"a": "YQ=="}}),
            ),
            // The schema rejects these.
            (json!({"stringData": {"a": 1}}), json!({"type": "Opaque", "stringData": {"a": 1}})),
            (json!({"data": [], "stringData": 7}), json!({"type": "Opaque", "data": [], "stringData": 7})),
        ] {
            let (mut object, expected) = (secret(sent.clone()), secret(expected));
            Secrets.prepare(&context(), None, &mut object);
            assert_eq!(object, expected, "{sent}");
        }
        let (old, mut new) = (secret(json!({"type": TLS})), secret(json!({})));
        Secrets.prepare(&context(), Some(&old), &mut new);
        assert_eq!(new["type"], TLS);
    }

    #[test]
    fn sizes_are_those_of_the_values() {
        let of = |bytes: usize| {
            secret(
                json!({"data": {"a": BASE64.encode(&vec![7; bytes / 2]), "b": BASE64.encode(&vec![7; bytes.div_ceil(2)])}}),
            )
        };
        assert_eq!(check_create("Secret", of(DATA_BYTES_MAX)), Vec::<String>::new());
        let long = ["data: Too long: may not be more than 1048576 bytes"];
        assert_eq!(check_create("Secret", of(DATA_BYTES_MAX + 1)), long);
        let text = |bytes: usize| secret(json!({"stringData": {"a": "x".repeat(bytes)}}));
        assert_eq!(check_create("Secret", text(DATA_BYTES_MAX)), Vec::<String>::new());
        assert_eq!(
            check_create("Secret", text(DATA_BYTES_MAX + 1)),
            ["stringData.a: Too long: may not be more than 1048576 bytes"]
        );
        assert!(signpost_apiserver::object::encode(&of(DATA_BYTES_MAX)).len() <= OBJECT_BYTES_MAX);
        const { assert!(OBJECT_BYTES_MAX + 8_192 < signpost_apiserver::store::TXN_OCTETS_MAX) };
    }

    /// No fault quotes a value: faults are in answers, and in what clients log.
    #[test]
    fn no_fault_quotes_a_value() {
        let old = secret(json!({"type": TLS, "immutable": true, "data": {"tls.crt": "b2xk", "tls.key": "b2xk"}}));
        for fields in [
            json!({"data": {"a": "MARKER"}}),
            json!({"data": {"a": ["MARKER"], "/": "MARKER="}}),
            json!({"data": "MARKER", "stringData": "MARKER", "immutable": "MARKER"}),
            json!({"stringData": {"a": ["MARKER"]}}),
            json!({"type": TLS, "data": {"tls.crt": "MARKER"}}),
        ] {
            for faults in
                [check_create("Secret", secret(fields.clone())), check_update("Secret", &old, secret(fields.clone()))]
            {
                assert!(
                    !faults.is_empty() && !faults.iter().any(|fault| fault.contains("MARKER")),
                    "{fields} {faults:?}"
                );
            }
        }
    }

    #[test]
    fn cells_are_those_of_kubectl() {
        for (fields, expected) in [
            (json!({"type": TLS, "data": {"tls.crt": "YQ==", "tls.key": "YQ=="}}), (json!(TLS), json!(2))),
            (json!({"type": "Opaque"}), (json!("Opaque"), json!(0))),
        ] {
            let cell = |name| fixture::cell(&SECRET, name, &secret(fields.clone()));
            assert_eq!((cell("Type"), cell("Data")), expected);
        }
    }

    /// An agent reads the Secrets that Routes of its Router name, in their own namespace.
    #[test]
    fn agents_read_the_secrets_of_their_routes() {
        let route = |namespace: &str, name: &str, secret: &str, router: &str, former: &[&str]| {
            let former: Vec<_> = former.iter().map(|router| json!({"name": "x.example", "router": router})).collect();
            json!({"kind": "Route", "metadata": {"namespace": namespace, "name": name},
                "spec": {"tls": {"termination": "edge", "secretName": secret}},
                "status": {"router": router, "formerNames": former}})
        };
        let reader = Objects::new(vec![
            route("n", "one", "web-tls", "s1", &[]),
            route("n", "two", "web-tls", "s2", &["s3"]),
            route("n", "new", "unbound-tls", "", &[]),
            route("m", "one", "other-tls", "s1", &[]),
        ]);
        let of = |groups: &[&str]| Identity {
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Identity::user("u")
        };
        let agent = |router: &str| format!("{}{router}", crate::access::GROUP_ROUTER_AGENT_PREFIX);
        let tenant = format!("{GROUP_TENANT_PREFIX}n");
        for (groups, namespace, name, is_permitted) in [
            (vec![agent("s1")], "n", "web-tls", true),
            (vec![agent("s2")], "n", "web-tls", true),
            (vec![agent("s3")], "n", "web-tls", true),
            (vec![agent("s4")], "n", "web-tls", false),
            (vec![agent("s4"), agent("s2")], "n", "web-tls", true),
            (vec![agent("s1")], "n", "unbound-tls", false),
            (vec![agent("s1")], "n", "other-tls", false),
            (vec![agent("s1")], "m", "web-tls", false),
            (vec![agent("s1")], "m", "other-tls", true),
            (vec![agent("")], "n", "unbound-tls", false),
            (vec![GROUP_ROUTER_AGENTS.to_owned()], "n", "web-tls", true),
            (vec![GROUP_ROUTER_AGENTS.to_owned()], "n", "unbound-tls", false),
            (vec![GROUP_ROUTER_AGENTS.to_owned()], "n", "absent", false),
            (vec![agent("s4"), tenant.clone()], "n", "anything", true),
            // The certificates that the platform gets; a Router can have a dot in its name.
            (vec![agent("s1")], AGENT_NAMESPACE, "router-s1.hash", true),
            (vec![agent("s1.eu")], AGENT_NAMESPACE, "router-s1.eu.hash", true),
            (vec![agent("s1")], AGENT_NAMESPACE, "router-s1.eu.hash", false),
            (vec![agent("s1.eu")], AGENT_NAMESPACE, "router-s1.hash", false),
            (vec![agent("s1")], AGENT_NAMESPACE, "router-s2.hash", false),
            (vec![agent("s1")], AGENT_NAMESPACE, "other", false),
            (vec![agent("s1")], SCHEDULER_LEASE_NAMESPACE, "router-s1.hash", false),
            (vec![GROUP_ROUTER_AGENTS.to_owned()], AGENT_NAMESPACE, "router-s1.hash", true),
            (vec![GROUP_ROUTER_AGENTS.to_owned()], SCHEDULER_LEASE_NAMESPACE, "acme-account-1", false),
            (vec![agent("s4"), tenant.clone()], "m", "other-tls", false),
            (vec![tenant], "n", "anything", true),
            (vec![agent("s4"), GROUP_ADMINS.to_owned()], "m", "anything", true),
        ] {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let identity = of(&groups);
            let denied = Secrets.denies_get(&identity, Some(namespace), name, &reader).expect("read");
            assert_eq!(denied.is_none(), is_permitted, "{groups:?} {namespace}/{name}");
        }
    }
}
