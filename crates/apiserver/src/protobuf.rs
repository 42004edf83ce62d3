//! Bodies of requests in Kubernetes' protobuf, which kubectl and client-go send for built-in kinds.
//!
//! kubectl from 1.32 on writes Namespaces and access reviews this way, whatever the server said it takes; typed clients in Go
//! write Events, Leases and DeleteOptions so. Answers are JSON always. A body is four magic octets and an *envelope* with
//! the type and the object's own octets; the messages below are the objects, field numbers from Kubernetes' `.proto` files.
//! They are turned into the same JSON as if the client had sent that, so nothing behind knows of protobuf.

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;
use serde::ser::{Error, Serialize, Serializer};
use serde_json::Value;

use super::error::ApiError;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// What such a body starts with: `k8s` and a zero.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Decodes a body into the object as JSON. A broken body is 400, a kind without a message here 415.
pub fn decode(body: &[u8]) -> Result<Value, ApiError> {
    read(body).map(|read| read.object)
}

/// The same body as our own encoder writes it: what was decoded, encoded again. [`decode`] makes the same of both, which
/// tests and the fuzzer hold us to.
pub fn rewritten(body: &[u8]) -> Result<Vec<u8>, ApiError> {
    let Read { envelope, message, .. } = read(body)?;
    let envelope = Envelope { raw: message.encoded(), ..envelope };
    Ok([&MAGIC[..], &envelope.encode_to_vec()].concat())
}

/// A body, taken apart.
struct Read {
    envelope: Envelope,
    message: Box<dyn Encoded>,
    object: Value,
}

/// A message of whatever type, encoded.
trait Encoded {
    fn encoded(&self) -> Vec<u8>;
}

impl<T: Message> Encoded for T {
    fn encoded(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

fn read(body: &[u8]) -> Result<Read, ApiError> {
    let envelope = body.strip_prefix(&MAGIC).ok_or_else(|| broken("it does not start with the octets 6b 38 73 00"))?;
    if envelope.is_empty() {
        return Err(broken("it is empty behind the octets 6b 38 73 00"));
    }
    let envelope = Envelope::decode(envelope).map_err(|error| broken(&error.to_string()))?;
    if !envelope.content_encoding.is_empty() {
        return Err(ApiError::unsupported_media_type(&format!("{MEDIA_TYPE} without a content encoding")));
    }
    let type_meta = envelope.type_meta.clone().unwrap_or_default();
    let raw = envelope.raw.as_slice();
    let (mut object, message) = match (type_meta.api_version.as_str(), type_meta.kind.as_str()) {
        ("v1", "Namespace") => json::<Namespace>(raw),
        ("v1", "Event") => json::<CoreEvent>(raw),
        ("events.k8s.io/v1", "Event") => json::<NewEvent>(raw),
        ("coordination.k8s.io/v1", "Lease") => json::<Lease>(raw),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview" | "SubjectAccessReview") => json::<AccessReview>(raw),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => json::<RulesReview>(raw),
        ("authentication.k8s.io/v1", "SelfSubjectReview") => json::<SelfReview>(raw),
        // Each group has the options under its own version; they are the same everywhere.
        (_, "DeleteOptions") => json::<DeleteOptions>(raw),
        ("", _) => return Err(ApiError::bad_request("Object 'apiVersion' is missing in the protobuf body")),
        (_, "") => return Err(ApiError::bad_request("Object 'Kind' is missing in the protobuf body")),
        _ => return Err(ApiError::unsupported_media_type("application/json, application/yaml")),
    }?;
    let Some(fields) = object.as_object_mut() else { return Err(broken("it holds no object")) };
    fields.insert("apiVersion".to_owned(), Value::String(type_meta.api_version));
    fields.insert("kind".to_owned(), Value::String(type_meta.kind));
    Ok(Read { envelope, message, object })
}

fn broken(what: &str) -> ApiError {
    ApiError::bad_request(format!("the body is no Kubernetes protobuf: {what}"))
}

fn json<T: Message + Default + Serialize + 'static>(raw: &[u8]) -> Result<(Value, Box<dyn Encoded>), ApiError> {
    let message = T::decode(raw).map_err(|error| broken(&error.to_string()))?;
    let mut object = serde_json::to_value(&message).map_err(|error| broken(&error.to_string()))?;
    drop_unset(&mut object);
    Ok((object, Box::new(message)))
}

/// Takes out what Go's encoder writes for a field that was not set: empty text above all. Values of labels and annotations
/// may be empty, and an empty holder of a Lease says that it was released.
fn drop_unset(value: &mut Value) {
    let Value::Object(fields) = value else {
        value.as_array_mut().into_iter().flatten().for_each(drop_unset);
        return;
    };
    fields.retain(|name, field| match field {
        Value::Null => false,
        Value::String(text) => !text.is_empty() || name == "holderIdentity",
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty() || name == "spec",
        _ => true,
    });
    for (_, field) in fields.iter_mut().filter(|(name, _)| !matches!(name.as_str(), "labels" | "annotations")) {
        drop_unset(field);
    }
}

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(string, tag = "4")]
    content_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// A time of whole seconds.
#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A time of microseconds.
#[derive(Clone, PartialEq, Message)]
struct MicroTime {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        time(serializer, self.seconds, 0, "%Y-%m-%dT%H:%M:%SZ")
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        time(serializer, self.seconds, self.nanos, "%Y-%m-%dT%H:%M:%S.%6fZ")
    }
}

/// A message without fields is Go's zero time: not set.
fn time<S: Serializer>(serializer: S, seconds: i64, nanos: i32, format: &str) -> Result<S::Ok, S::Error> {
    if seconds == 0 && nanos == 0 {
        return serializer.serialize_none();
    }
    let time = Timestamp::new(seconds, nanos).map_err(S::Error::custom)?;
    serializer.collect_str(&time.strftime(format))
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, optional, tag = "7")]
    generation: Option<i64>,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct Namespace {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<NamespaceSpec>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct NamespaceSpec {
    #[prost(string, repeated, tag = "1")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct AccessReview {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<AccessReviewSpec>,
}

/// That of a review of oneself has the first two fields only.
#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewSpec {
    #[prost(message, optional, tag = "1")]
    resource_attributes: Option<ResourceAttributes>,
    #[prost(message, optional, tag = "2")]
    non_resource_attributes: Option<NonResourceAttributes>,
    #[prost(string, tag = "3")]
    user: String,
    #[prost(string, repeated, tag = "4")]
    groups: Vec<String>,
    #[prost(string, tag = "6")]
    uid: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct ResourceAttributes {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    verb: String,
    #[prost(string, tag = "3")]
    group: String,
    #[prost(string, tag = "4")]
    version: String,
    #[prost(string, tag = "5")]
    resource: String,
    #[prost(string, tag = "6")]
    subresource: String,
    #[prost(string, tag = "7")]
    name: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct NonResourceAttributes {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    verb: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct RulesReview {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<RulesReviewSpec>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct RulesReviewSpec {
    #[prost(string, tag = "1")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct SelfReview {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[prost(int64, optional, tag = "1")]
    grace_period_seconds: Option<i64>,
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Preconditions>,
    #[prost(bool, optional, tag = "3")]
    orphan_dependents: Option<bool>,
    #[prost(string, tag = "4")]
    propagation_policy: String,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(string, tag = "2")]
    resource_version: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct Lease {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    acquire_time: Option<MicroTime>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<MicroTime>,
    #[prost(int32, optional, tag = "5")]
    lease_transitions: Option<i32>,
    #[prost(string, optional, tag = "6")]
    strategy: Option<String>,
    #[prost(string, optional, tag = "7")]
    preferred_holder: Option<String>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(string, tag = "7")]
    field_path: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
struct EventSource {
    #[prost(string, tag = "1")]
    component: String,
    #[prost(string, tag = "2")]
    host: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct EventSeries {
    #[prost(int32, optional, tag = "1")]
    count: Option<i32>,
    #[prost(message, optional, tag = "2")]
    last_observed_time: Option<MicroTime>,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct CoreEvent {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    involved_object: Option<ObjectReference>,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
    #[prost(message, optional, tag = "5")]
    source: Option<EventSource>,
    #[prost(message, optional, tag = "6")]
    first_timestamp: Option<Time>,
    #[prost(message, optional, tag = "7")]
    last_timestamp: Option<Time>,
    #[prost(int32, optional, tag = "8")]
    count: Option<i32>,
    #[prost(string, tag = "9")]
    #[serde(rename = "type")]
    kind: String,
    #[prost(message, optional, tag = "10")]
    event_time: Option<MicroTime>,
    #[prost(message, optional, tag = "11")]
    series: Option<EventSeries>,
    #[prost(string, tag = "12")]
    action: String,
    #[prost(message, optional, tag = "13")]
    related: Option<ObjectReference>,
    #[prost(string, tag = "14")]
    reporting_component: String,
    #[prost(string, tag = "15")]
    reporting_instance: String,
}

#[derive(Clone, PartialEq, Message, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct NewEvent {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    event_time: Option<MicroTime>,
    #[prost(message, optional, tag = "3")]
    series: Option<EventSeries>,
    #[prost(string, tag = "4")]
    reporting_controller: String,
    #[prost(string, tag = "5")]
    reporting_instance: String,
    #[prost(string, tag = "6")]
    action: String,
    #[prost(string, tag = "7")]
    reason: String,
    #[prost(message, optional, tag = "8")]
    regarding: Option<ObjectReference>,
    #[prost(message, optional, tag = "9")]
    related: Option<ObjectReference>,
    #[prost(string, tag = "10")]
    note: String,
    #[prost(string, tag = "11")]
    #[serde(rename = "type")]
    kind: String,
    #[prost(message, optional, tag = "12")]
    deprecated_source: Option<EventSource>,
    #[prost(message, optional, tag = "13")]
    deprecated_first_timestamp: Option<Time>,
    #[prost(message, optional, tag = "14")]
    deprecated_last_timestamp: Option<Time>,
    #[prost(int32, optional, tag = "15")]
    deprecated_count: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn body(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
        let envelope = Envelope {
            type_meta: Some(TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() }),
            raw: message.encode_to_vec(),
            ..Envelope::default()
        };
        [&MAGIC[..], &envelope.encode_to_vec()].concat()
    }

    /// What `kubectl create namespace demo` sends, octet by octet: Go writes each text, empty or not.
    fn namespace_of_kubectl() -> Vec<u8> {
        let metadata = [&b"\x0a\x04demo\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"[..]].concat();
        let raw = [&[0x0a, metadata.len() as u8][..], &metadata, b"\x12\x00\x1a\x02\x0a\x00"].concat();
        let type_meta = b"\x0a\x02v1\x12\x09Namespace";
        let envelope =
            [&[0x0a, type_meta.len() as u8][..], type_meta, &[0x12, raw.len() as u8], &raw, b"\x1a\x00\x22\x00"]
                .concat();
        [&MAGIC[..], &envelope].concat()
    }

    #[test]
    fn bodies_become_the_json_of_the_object() {
        let expected =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo", "generation": 0}, "spec": {}});
        assert_eq!(decode(&namespace_of_kubectl()).unwrap(), expected);

        let review = AccessReview {
            spec: Some(AccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: "list".to_owned(),
                    group: "example.org".to_owned(),
                    resource: "books".to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let expected = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "list", "group": "example.org", "resource": "books"}}});
        assert_eq!(decode(&body("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review)).unwrap(), expected);

        let lease = Lease {
            metadata: Some(ObjectMeta {
                name: "l".to_owned(),
                labels: [("a".to_owned(), String::new())].into(),
                ..Default::default()
            }),
            spec: Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                renew_time: Some(MicroTime { seconds: 1_767_268_800, nanos: 5_000 }),
                ..Default::default()
            }),
        };
        let expected = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "labels": {"a": ""}},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T12:00:00.000005Z"}});
        assert_eq!(decode(&body("coordination.k8s.io/v1", "Lease", &lease)).unwrap(), expected);

        let event = CoreEvent {
            kind: "Normal".to_owned(),
            first_timestamp: Some(Time { seconds: 1_767_268_800, nanos: 0 }),
            involved_object: Some(ObjectReference { kind: "Lease".to_owned(), ..Default::default() }),
            count: Some(2),
            ..Default::default()
        };
        let expected = json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "firstTimestamp": "2026-01-01T12:00:00Z",
            "involvedObject": {"kind": "Lease"}, "count": 2});
        assert_eq!(decode(&body("v1", "Event", &event)).unwrap(), expected);

        let options = DeleteOptions { propagation_policy: "Background".to_owned(), ..Default::default() };
        let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        assert_eq!(decode(&body("v1", "DeleteOptions", &options)).unwrap(), expected);
    }

    #[test]
    fn hostile_bodies_are_refused() {
        let good = namespace_of_kubectl();
        for end in 1..good.len() {
            let error = decode(&good[..end]).map(|_| ()).err();
            assert!(error.as_ref().is_none_or(|error| matches!(error.code, 400 | 415)), "{end} {error:?}");
        }
        let far = Lease {
            spec: Some(LeaseSpec {
                renew_time: Some(MicroTime { seconds: i64::MAX, nanos: -1 }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let packed = Envelope { content_encoding: "gzip".to_owned(), ..Envelope::default() };
        for (body, code) in [
            (b"".to_vec(), 400),
            (b"{}".to_vec(), 400),
            (MAGIC.to_vec(), 400),
            ([&MAGIC[..], b"\x12\xff\xff\xff\xff\x0f"].concat(), 400),
            ([&MAGIC[..], b"\x0a\x02\x0a\xff"].concat(), 400),
            ([&MAGIC[..], &packed.encode_to_vec()].concat(), 415),
            (body("v1", "Pod", &Namespace::default()), 415),
            (body("coordination.k8s.io/v1", "Lease", &far), 400),
        ] {
            assert_eq!(decode(&body).map(|_| ()).map_err(|error| error.code), Err(code), "{body:02x?}");
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode(&body);
            let _ = decode(&[&MAGIC[..], &body].concat());
        }

        #[test]
        fn no_changed_octet_panics(place in 0_usize..60, octet in any::<u8>()) {
            let mut changed = namespace_of_kubectl();
            if let Some(found) = changed.get_mut(place) {
                *found = octet;
            }
            let _ = decode(&changed);
        }
    }
}
