//! A schema in a form for walks: the permitted contents of each place, looked up once and not in JSON for each object.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

/// A structural schema: the served document, and its [`Node`]s, which the server uses to walk objects.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    root: Node,
}

impl Schema {
    /// Parses a document.
    pub fn new(document: Value) -> Arc<Schema> {
        let root = Node::of(&document);
        Arc::new(Schema { document, root })
    }

    /// Returns the document: OpenAPI v3, structural.
    pub fn document(&self) -> &Value {
        &self.document
    }
}

impl Deref for Schema {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.root
    }
}

/// Things by the names of fields, in their order.
type Named<T> = Box<[(Box<str>, T)]>;

/// The schema of one place. An absent member limits nothing.
#[derive(Debug, Default)]
pub struct Node {
    /// `type`.
    pub(crate) kind: Option<Type>,
    /// `x-kubernetes-int-or-string`.
    pub(crate) int_or_string: bool,
    /// `properties`, by name; `None` if the document has none at all.
    properties: Option<Named<Node>>,
    /// `additionalProperties` that is a schema.
    additional: Option<Box<Node>>,
    /// Whether fields that the schema does not name are kept.
    pub(crate) preserves_unknown: bool,
    /// `required`.
    pub(super) required: Box<[Box<str>]>,
    /// The properties that have a `default`.
    pub(super) defaults: Named<Value>,
    /// `items`.
    pub(crate) items: Option<Box<Node>>,
    /// `x-kubernetes-list-type`.
    pub(crate) list: List,
    /// `x-kubernetes-map-type: atomic`.
    pub(crate) is_atomic_map: bool,
    /// `enum`.
    pub(super) allowed: Option<Vec<Value>>,
    /// `format`.
    pub(super) format: Option<Box<str>>,
    /// The bounds of its values.
    pub(super) bounds: Bounds,
}

/// The bounds of numbers, texts, lists, and objects.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// `minimum` and `maximum`.
    pub(super) numbers: (Option<f64>, Option<f64>),
    /// `minLength` and `maxLength`.
    pub(super) lengths: (Option<u64>, Option<u64>),
    /// `minItems` and `maxItems`.
    pub(super) items: (Option<u64>, Option<u64>),
    /// `maxProperties`.
    pub(super) properties_max: Option<u64>,
}

/// The types of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
}

/// The identity of list items.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum List {
    /// The list is atomic: one value.
    #[default]
    Atomic,
    /// Items are identified by their values.
    Set,
    /// Items are identified by these fields.
    Map(Box<[Box<str>]>),
}

impl Type {
    const ALL: [Type; 6] = [Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean];

    /// Returns the name of the list type.
    pub fn as_str(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }
}

impl Node {
    /// Returns the schema in a document.
    pub fn of(document: &Value) -> Node {
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        let flag = |name: &str| document.get(name) == Some(&Value::Bool(true));
        let count = |name: &str| document.get(name).and_then(Value::as_u64);
        let number = |name: &str| document.get(name).and_then(Value::as_f64);
        let inner = |name: &str| document.get(name).map(|inner| Box::new(Node::of(inner)));
        let properties = document.get("properties").and_then(Value::as_object);
        let default =
            |(name, property): (&String, &Value)| Some((name.as_str().into(), property.get("default")?.clone()));
        Node {
            kind: text("type").and_then(|text| Type::ALL.into_iter().find(|kind| kind.as_str() == text)),
            int_or_string: flag("x-kubernetes-int-or-string"),
            properties: properties.map(|properties| {
                properties.iter().map(|(name, inner)| (name.as_str().into(), Node::of(inner))).collect()
            }),
            additional: document
                .get("additionalProperties")
                .filter(|inner| inner.is_object())
                .map(|inner| Box::new(Node::of(inner))),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields") || flag("additionalProperties"),
            required: texts(document.get("required")),
            defaults: properties.into_iter().flatten().filter_map(default).collect(),
            items: inner("items"),
            list: match text("x-kubernetes-list-type") {
                Some("set") => List::Set,
                Some("map") => List::Map(texts(document.get("x-kubernetes-list-map-keys"))),
                _ => List::Atomic,
            },
            is_atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            allowed: document.get("enum").and_then(Value::as_array).cloned(),
            format: text("format").map(Into::into),
            bounds: Bounds {
                numbers: (number("minimum"), number("maximum")),
                lengths: (count("minLength"), count("maxLength")),
                items: (count("minItems"), count("maxItems")),
                properties_max: count("maxProperties"),
            },
        }
    }

    /// Returns the schema of a field that is declared by name.
    pub(crate) fn property(&self, name: &str) -> Option<&Node> {
        self.properties.as_deref()?.iter().find(|(found, _)| **found == *name).map(|(_, node)| node)
    }

    /// Returns the schema of the field `name`, declared by name or by `additionalProperties`.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        self.property(name).or(self.additional.as_deref())
    }

    /// Returns whether any field is declared by name.
    pub(crate) fn has_properties(&self) -> bool {
        self.properties.is_some()
    }

    /// Returns the default of a field that is declared by name.
    pub(crate) fn default_of(&self, name: &str) -> Option<&Value> {
        self.defaults.iter().find(|(found, _)| **found == *name).map(|(_, default)| default)
    }
}

fn texts(list: Option<&Value>) -> Box<[Box<str>]> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}
