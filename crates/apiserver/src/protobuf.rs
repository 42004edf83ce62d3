//! Request bodies in Kubernetes' protobuf, which kubectl and client-go send for built-in kinds.
//!
//! kubectl 1.32 and later sends Namespaces, Secrets, Services, and access reviews in this format, regardless of the server's offer; typed
//! clients in Go send Events, Leases, and DeleteOptions in it. Responses are always JSON. A body consists of four magic octets
//! and an *envelope* with the type and the object's octets. `messages.txt` lists the messages, with field numbers from
//! Kubernetes' `.proto` files. They are converted to the JSON that the client could have sent, so the rest of the server does not
//! depend on protobuf. An empty message of two octets becomes an empty object, as in JSON, so a body takes at most as much memory
//! as one of JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

use data_encoding::BASE64;
use jiff::Timestamp;
use prost::Message as _;
use serde_json::{Map, Value, json};

use self::Field::{
    AnyText, Flag, IntOrText, Labels, Many, MicroTime, NonZero, Number, Octets, OctetsMap, One, Text, Texts, Time, True,
};
use super::error::ApiError;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first octets of such a body: `k8s` and a zero.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Decodes a body into the object as JSON. An invalid body is 400, a kind without a message here 415.
pub fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let envelope = body.strip_prefix(&MAGIC).ok_or_else(|| broken("it does not start with the bytes 6b 38 73 00"))?;
    if envelope.is_empty() {
        return Err(broken("it is empty after the bytes 6b 38 73 00"));
    }
    let envelope = Envelope::decode(envelope).map_err(|error| broken(&error.to_string()))?;
    if !envelope.content_encoding.is_empty() {
        return Err(ApiError::unsupported_media_type(&format!("{MEDIA_TYPE} without a content encoding")));
    }
    let TypeMeta { api_version, kind } = envelope.type_meta.unwrap_or_default();
    let message = match (api_version.as_str(), kind.as_str()) {
        ("v1", "Namespace") => "Namespace",
        ("v1", "Service") => "Service",
        ("v1", "Secret") => "Secret",
        ("v1", "Event") => "CoreEvent",
        ("events.k8s.io/v1", "Event") => "NewEvent",
        ("discovery.k8s.io/v1", "EndpointSlice") => "EndpointSlice",
        ("coordination.k8s.io/v1", "Lease") => "Lease",
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview" | "SubjectAccessReview") => "AccessReview",
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => "RulesReview",
        ("authentication.k8s.io/v1", "SelfSubjectReview") => "SelfReview",
        // Each group has the options in its own version; they are the same everywhere.
        (_, "DeleteOptions") => "DeleteOptions",
        ("", _) => return Err(ApiError::bad_request("Object 'apiVersion' is missing in the protobuf body")),
        (_, "") => return Err(ApiError::bad_request("Object 'Kind' is missing in the protobuf body")),
        _ => return Err(ApiError::unsupported_media_type("application/json, application/yaml")),
    };
    let mut fields = object(message_of(message), &envelope.raw)?;
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(fields))
}

fn broken(what: &str) -> ApiError {
    ApiError::bad_request(format!("the body is not Kubernetes protobuf: {what}"))
}

#[derive(Clone, PartialEq, prost::Message)]
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

#[derive(Clone, PartialEq, prost::Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// A field of a message: its number, its name in JSON, and its type.
type MessageField = (u64, &'static str, Field);
/// The fields of a message. No message contains itself, which limits the depth.
type Message = [MessageField];

/// The messages by their names, of `messages.txt`.
static MESSAGES: LazyLock<HashMap<&'static str, Vec<MessageField>>> = LazyLock::new(|| {
    let lines = include_str!("protobuf/messages.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut messages, mut name) = (HashMap::<_, Vec<_>>::new(), "");
    for line in lines.filter(|line| !line.is_empty()) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            [number, field, kind] => {
                let number = number.parse().expect("the number of a field");
                messages.entry(name).or_default().push((number, field, Field::named(kind)));
            }
            _ => name = line,
        }
    }
    messages
});

fn message_of(name: &str) -> &'static Message {
    MESSAGES.get(name).expect("a message of the file")
}

/// The type of a field. Go's encoder also writes most unset fields; a value equal to an unset field is left out.
enum Field {
    /// A text; empty if it was not set.
    Text,
    /// A text that can be empty: an empty holder of a Lease means that the Lease was released.
    AnyText,
    /// A list of texts.
    Texts,
    /// A map of texts, of which values may be empty.
    Labels,
    /// Octets, which JSON has in Base64.
    Octets,
    /// A map of texts to octets.
    OctetsMap,
    /// A number, only written if it was set.
    Number,
    /// A number; 0 if it was not set.
    NonZero,
    /// True or false, only written if it was set.
    Flag,
    /// True; false if it was not set.
    True,
    /// A time of whole seconds.
    Time,
    /// A time of microseconds.
    MicroTime,
    /// A number or a text, as a port; 0 or empty if it was not set.
    IntOrText,
    /// A message; if it was not set, one without fields, except for a `spec`.
    One(&'static str),
    /// A list of messages.
    Many(&'static str),
}

impl Field {
    fn named(kind: &'static str) -> Field {
        match kind {
            "text" => Text,
            "any-text" => AnyText,
            "texts" => Texts,
            "labels" => Labels,
            "octets" => Octets,
            "octets-map" => OctetsMap,
            "number" => Number,
            "non-zero" => NonZero,
            "flag" => Flag,
            "true" => True,
            "time" => Time,
            "micro-time" => MicroTime,
            "int-or-text" => IntOrText,
            message => message.strip_suffix('*').map_or(One(message), Many),
        }
    }
}

/// The content of a field, by its wire type.
enum Content<'a> {
    Number(u64),
    Octets(&'a [u8]),
    /// Four or eight octets, which no field here uses.
    Fixed,
}

fn object(message: &Message, octets: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let mut fields = Map::new();
    fill(&mut fields, message, octets)?;
    Ok(fields)
}

/// Adds the fields in `octets`, and skips those that are not in the table.
fn fill(fields: &mut Map<String, Value>, message: &Message, mut octets: &[u8]) -> Result<(), ApiError> {
    while !octets.is_empty() {
        let key = varint(&mut octets)?;
        let content = match key & 7 {
            0 => Content::Number(varint(&mut octets)?),
            1 => take(&mut octets, 8).map(|_| Content::Fixed)?,
            2 => {
                let length = varint(&mut octets)?;
                Content::Octets(take(&mut octets, length)?)
            }
            5 => take(&mut octets, 4).map(|_| Content::Fixed)?,
            _ => return Err(broken("a field has an unknown wire type")),
        };
        if let Some((_, name, field)) = message.iter().find(|(number, ..)| *number == key >> 3) {
            set(fields, name, field, content)?;
        }
    }
    Ok(())
}

fn set(fields: &mut Map<String, Value>, name: &str, field: &Field, content: Content<'_>) -> Result<(), ApiError> {
    let value = match (field, content) {
        (Text, Content::Octets(octets)) => Some(text(octets)?).filter(|text| !text.is_empty()).map(Value::from),
        (AnyText, Content::Octets(octets)) => Some(text(octets)?.into()),
        (Octets, Content::Octets(octets)) => Some(BASE64.encode(octets).into()),
        (Number, Content::Number(number)) => Some((number as i64).into()),
        (NonZero, Content::Number(number)) => Some(number as i64).filter(|number| *number != 0).map(Value::from),
        (Flag, Content::Number(number)) => Some((number != 0).into()),
        (True, Content::Number(number)) => (number != 0).then(|| true.into()),
        (Time, Content::Octets(octets)) => time(octets, "%Y-%m-%dT%H:%M:%SZ")?,
        (MicroTime, Content::Octets(octets)) => time(octets, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (IntOrText, Content::Octets(octets)) => {
            let mut either = object(message_of("IntOrText"), octets)?;
            either.remove(if either.contains_key("type") { "text" } else { "number" })
        }
        (One(message), Content::Octets(octets)) => {
            // A repeated message is merged into the first.
            let mut inner = match fields.remove(name) {
                Some(Value::Object(inner)) => inner,
                _ => Map::new(),
            };
            fill(&mut inner, message_of(message), octets)?;
            Some(inner).filter(|inner| !inner.is_empty() || name == "spec").map(Value::Object)
        }
        (Texts, Content::Octets(octets)) => {
            let item = text(octets)?.into();
            push(fields, name, item);
            return Ok(());
        }
        (Many(message), Content::Octets(octets)) => {
            let item = object(message_of(message), octets)?.into();
            push(fields, name, item);
            return Ok(());
        }
        (Labels | OctetsMap, Content::Octets(octets)) => {
            let message = if matches!(field, Labels) { "Entry" } else { "OctetsEntry" };
            let mut entry = object(message_of(message), octets)?;
            let [key, value] = ["key", "value"].map(|name| entry.remove(name).unwrap_or_else(|| json!("")));
            if let (Some(labels), Value::String(key)) =
                (fields.entry(name).or_insert_with(|| json!({})).as_object_mut(), key)
            {
                labels.insert(key, value);
            }
            return Ok(());
        }
        _ => return Err(broken(&format!("the field {name} has the wrong type"))),
    };
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
    Ok(())
}

fn push(fields: &mut Map<String, Value>, name: &str, item: Value) {
    if let Value::Array(items) = fields.entry(name).or_insert_with(|| json!([])) {
        items.push(item);
    }
}

fn text(octets: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(octets).map_err(|_| broken("a text is not UTF-8"))
}

/// Converts a message; one without fields is Go's zero time: not set.
fn time(octets: &[u8], format: &str) -> Result<Option<Value>, ApiError> {
    let parts = object(message_of("Time"), octets)?;
    if parts.is_empty() {
        return Ok(None);
    }
    let part = |name: &str| parts.get(name).and_then(Value::as_i64).unwrap_or_default();
    let nanos = i32::try_from(part("nanos")).map_err(|_| broken("a time has too many nanoseconds"))?;
    let time = Timestamp::new(part("seconds"), nanos).map_err(|error| broken(&error.to_string()))?;
    Ok(Some(time.strftime(format).to_string().into()))
}

fn varint(octets: &mut &[u8]) -> Result<u64, ApiError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (octet, rest) = octets.split_first().ok_or_else(|| broken("it ends within a number"))?;
        *octets = rest;
        value |= u64::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken("a number has more than ten bytes"))
}

fn take<'a>(octets: &mut &'a [u8], length: u64) -> Result<&'a [u8], ApiError> {
    let split = usize::try_from(length).ok().and_then(|length| octets.split_at_checked(length));
    let (taken, rest) = split.ok_or_else(|| broken("a field is longer than the rest of the message"))?;
    *octets = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(mut value: u64) -> Vec<u8> {
        let mut octets = Vec::new();
        while value >= 0x80 {
            octets.push(value as u8 | 0x80);
            value >>= 7;
        }
        octets.push(value as u8);
        octets
    }

    /// Returns a field of a number.
    fn count(field: u64, value: u64) -> Vec<u8> {
        [number(field << 3), number(value)].concat()
    }

    /// Returns a field of a text or a message.
    fn part(field: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
        let content = content.as_ref();
        [number(field << 3 | 2), number(content.len() as u64), content.to_vec()].concat()
    }

    fn body(api_version: &str, kind: &str, message: &[Vec<u8>]) -> Vec<u8> {
        let type_meta = Some(TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() });
        let envelope = Envelope { type_meta, raw: message.concat(), ..Envelope::default() };
        [&MAGIC[..], &envelope.encode_to_vec()].concat()
    }

    /// Returns the body that `kubectl create namespace demo` sends: Go writes each text, even if it is empty.
    fn namespace_of_kubectl() -> Vec<u8> {
        let metadata = [&b"\x0a\x04demo\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"[..]].concat();
        let raw = [&[0x0a, metadata.len() as u8][..], &metadata, b"\x12\x00\x1a\x02\x0a\x00"].concat();
        let type_meta = b"\x0a\x02v1\x12\x09Namespace";
        let envelope =
            [&[0x0a, type_meta.len() as u8][..], type_meta, &[0x12, raw.len() as u8], &raw, b"\x1a\x00\x22\x00"]
                .concat();
        [&MAGIC[..], &envelope].concat()
    }

    /// The body of `kubectl create secret generic`, with octets that are not text.
    #[test]
    fn octets_become_base64() {
        let entry = |key: &str, value: &[u8]| part(2, [part(1, key), part(2, value)].concat());
        let metadata = part(1, part(1, "web-tls"));
        let secret = [
            metadata,
            entry("a", &[0xff, 0]),
            entry("b", b""),
            part(3, "Opaque"),
            part(4, [part(1, "c"), part(2, "d")].concat()),
            count(5, 0),
        ];
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-tls"}, "type": "Opaque",
            "data": {"a": "/wA=", "b": ""}, "stringData": {"c": "d"}, "immutable": false});
        assert_eq!(decode(&body("v1", "Secret", &secret)).expect("a body"), expected);
    }

    #[test]
    fn bodies_become_the_json_of_the_object() {
        let noon = 1_767_268_800;
        let label = part(11, [part(1, "a"), part(2, "")].concat());
        let micro_time = [count(1, noon), count(2, 5_000)].concat();
        let endpoint = [part(1, "192.0.2.1"), part(2, count(1, 0)), part(4, "")].concat();
        for (sent, expected) in [
            (
                namespace_of_kubectl(),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo", "generation": 0}, "spec": {}}),
            ),
            (
                body(
                    "authorization.k8s.io/v1",
                    "SelfSubjectAccessReview",
                    &[part(
                        2,
                        part(1, [part(1, ""), part(2, "list"), part(3, "example.org"), part(5, "books")].concat()),
                    )],
                ),
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": {"verb": "list", "group": "example.org", "resource": "books"}}}),
            ),
            (
                body(
                    "coordination.k8s.io/v1",
                    "Lease",
                    &[
                        part(1, [part(1, "l"), part(8, ""), label].concat()),
                        part(2, [part(1, ""), count(2, 1), part(4, micro_time)].concat()),
                    ],
                ),
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "labels": {"a": ""}},
                    "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T12:00:00.000005Z"}}),
            ),
            (
                body(
                    "v1",
                    "Event",
                    &[part(9, "Normal"), part(6, count(1, noon)), part(2, part(1, "Lease")), count(8, 2)],
                ),
                json!({"apiVersion": "v1", "kind": "Event", "type": "Normal", "firstTimestamp": "2026-01-01T12:00:00Z",
                    "involvedObject": {"kind": "Lease"}, "count": 2}),
            ),
            (
                body("v1", "DeleteOptions", &[part(4, "Background")]),
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
            ),
            (
                body(
                    "v1",
                    "Service",
                    &[
                        part(2, part(1, [count(3, 80), part(4, count(2, 8080)), count(5, 0)].concat())),
                        part(2, part(1, [count(3, 81), part(4, [count(1, 1), part(3, "http")].concat())].concat())),
                        part(
                            2,
                            [part(1, [count(3, 82), part(4, count(2, 0))].concat()), part(3, "None"), count(13, 0)]
                                .concat(),
                        ),
                        part(3, part(1, "")),
                    ],
                ),
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": [
                    {"port": 80, "targetPort": 8080}, {"port": 81, "targetPort": "http"}, {"port": 82}]}}),
            ),
            (
                body(
                    "discovery.k8s.io/v1",
                    "EndpointSlice",
                    &[part(2, endpoint), part(3, [part(1, ""), count(3, 8080)].concat()), part(4, "IPv4")],
                ),
                json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}], "ports": [{"port": 8080}]}),
            ),
        ] {
            assert_eq!(decode(&sent).unwrap(), expected);
        }
    }

    #[test]
    fn every_message_is_there_and_none_holds_itself() {
        fn depth(message: &Message) -> usize {
            let inner = message.iter().map(|(_, _, field)| match field {
                One(name) | Many(name) => depth(message_of(name)),
                _ => 0,
            });
            1 + inner.max().unwrap_or(0)
        }
        assert!(MESSAGES.values().all(|message| depth(message) < 8));
    }

    #[test]
    fn hostile_bodies_are_refused() {
        let good = namespace_of_kubectl();
        for end in 1..good.len() {
            let error = decode(&good[..end]).map(|_| ()).err();
            assert!(error.as_ref().is_none_or(|error| matches!(error.code, 400 | 415)), "{end} {error:?}");
        }
        let packed = Envelope { content_encoding: "gzip".to_owned(), ..Envelope::default() };
        let far = [count(1, i64::MAX as u64), count(2, u64::MAX)].concat();
        let lease = |spec: &[u8]| body("coordination.k8s.io/v1", "Lease", &[part(2, spec)]);
        for (body, code) in [
            (b"".to_vec(), 400),
            (b"{}".to_vec(), 400),
            (MAGIC.to_vec(), 400),
            ([&MAGIC[..], b"\x12\xff\xff\xff\xff\x0f"].concat(), 400),
            ([&MAGIC[..], b"\x0a\x02\x0a\xff"].concat(), 400),
            ([&MAGIC[..], &packed.encode_to_vec()].concat(), 415),
            (body("v1", "Pod", &[]), 415),
            (lease(&part(4, far)), 400),
            // Of another type, not UTF-8, a number without end, a length beyond the end, and a group.
            (lease(&count(1, 1)), 400),
            (lease(&part(1, b"\xff")), 400),
            (lease(&[&[0x10_u8][..], &[0xff; 11]].concat()), 400),
            (lease(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 400),
            (lease(b"\x0b\x0c"), 400),
        ] {
            assert_eq!(decode(&body).map(|_| ()).map_err(|error| error.code), Err(code), "{body:02x?}");
        }
        // Unknown fields of any type are skipped.
        let unknown = [count(90, 1), part(91, "x"), b"\xe1\x05eight...".to_vec(), b"\xe5\x05four".to_vec()].concat();
        assert_eq!(decode(&lease(&unknown)).unwrap()["spec"], json!({}));
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
