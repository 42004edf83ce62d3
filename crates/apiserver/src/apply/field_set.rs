//! Sets of fields, and their encoding as FieldsV1.
//!
//! A set is a tree along the structure of an object. A node can be a member itself (`.` in the encoding) and have children; a
//! leaf is always a member. Elements of a path are fields by name (`f:`), items of a list by their key fields (`k:`) or their
//! value (`v:`), and items by index (`i:`), which this code reads but never writes. In the encoding, a leaf is `{}`, never
//! `{".":{}}`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::fmt;

use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::schema::Node as Schema;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object.
    Field(String),
    /// An item of a list-map, by its key fields as compact JSON with sorted names.
    Key(String),
    /// An item of a list-set, by its value as compact JSON.
    Value(String),
    /// An item of a list, by its place.
    Index(i64),
}

impl Element {
    /// Returns the item of a list-map with these key fields.
    pub fn key(fields: &Map<String, Value>) -> Self {
        let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
        Element::Key(serde_json::to_string(&sorted).expect("a map with names is JSON"))
    }

    /// Returns the item of a list-set with this value.
    pub fn value(value: &Value) -> Self {
        Element::Value(value.to_string())
    }

    /// Returns the element in the form of FieldsV1.
    pub(super) fn encode(&self) -> String {
        match self {
            Element::Field(name) => ["f:", name].concat(),
            Element::Key(key) => ["k:", key].concat(),
            Element::Value(value) => ["v:", value].concat(),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Element::Field(rest.to_owned())),
            "k" => Some(Element::key(&serde_json::from_str(rest).ok()?)),
            "v" => Some(Element::value(&serde_json::from_str(rest).ok()?)),
            "i" => Some(Element::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// The form in which Kubernetes prints paths: `.spec`, `[name="n1"]`, `[=2]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(out, ".{name}"),
            Element::Key(key) => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(out, "[{}]", fields.join(","))
            }
            Element::Value(value) => write!(out, "[={value}]"),
            Element::Index(index) => write!(out, "[{index}]"),
        }
    }
}

/// A set of fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<Element, Node>,
}

/// A node is a member or has children, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    children: FieldSet,
}

impl FieldSet {
    /// Returns whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds the field at `path`; an empty path means the object itself, which is never a member.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.nodes.entry(first.clone()).or_default();
        match rest {
            [] => node.member = true,
            rest => node.children.insert(rest),
        }
    }

    /// Adds the field directly below, by `element`, and its contents, unless both are empty.
    pub(super) fn put(&mut self, element: impl Fn() -> Element, member: bool, children: FieldSet) {
        if member || !children.is_empty() {
            self.nodes.insert(element(), Node { member, children });
        }
    }

    /// Returns the set of these paths of plain fields, such as `["metadata", "name"]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Returns whether the field directly below, by `element`, is a member.
    pub fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// Returns the members below `element`.
    pub fn below(&self, element: &Element) -> Option<&FieldSet> {
        self.nodes.get(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    /// Returns the members of either set.
    #[must_use]
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut both = self.clone();
        both.absorb(other.clone());
        both
    }

    /// Adds the members of `other`.
    pub fn absorb(&mut self, other: FieldSet) {
        for (element, theirs) in other.nodes {
            match self.nodes.entry(element) {
                Place::Vacant(place) => drop(place.insert(theirs)),
                Place::Occupied(ours) => {
                    let ours = ours.into_mut();
                    ours.member |= theirs.member;
                    ours.children.absorb(theirs.children);
                }
            }
        }
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let nodes = self.nodes.iter().filter_map(|(element, ours)| {
            let theirs = other.nodes.get(element)?;
            let children = ours.children.intersection(&theirs.children);
            let node = Node { member: ours.member && theirs.member, children };
            (node.member || !node.children.is_empty()).then(|| (element.clone(), node))
        });
        FieldSet { nodes: nodes.collect() }
    }

    /// Returns the members that are not members of `other`; members below a member of `other` stay.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Removes the members of `other`; members below one of them stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.reduce(other, |ours, theirs| {
            ours.member &= !theirs.member;
            ours.children.subtract(&theirs.children);
        });
    }

    /// Removes the members of `other`, and all members below them.
    pub fn cut(&mut self, other: &FieldSet) {
        self.reduce(other, |ours, theirs| match theirs.member {
            true => *ours = Node::default(),
            false => ours.children.cut(&theirs.children),
        });
    }

    fn reduce(&mut self, other: &FieldSet, reduce: impl Fn(&mut Node, &Node)) {
        for (element, theirs) in &other.nodes {
            let Some(ours) = self.nodes.get_mut(element) else { continue };
            reduce(ours, theirs);
            if !ours.member && ours.children.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// Returns the set in which also each field is a member that the schema declares by name and that has members below.
    #[must_use]
    pub fn with_containers(&self, schema: Option<&Schema>, step: Step) -> FieldSet {
        let nodes = self.nodes.iter().map(|(element, node)| {
            let (inner, declared) = step(schema, element);
            let member = node.member || declared && !node.children.is_empty();
            (element.clone(), Node { member, children: node.children.with_containers(inner, step) })
        });
        FieldSet { nodes: nodes.collect() }
    }

    /// Removes the members of this set from an encoded one, like [`FieldSet::difference`]. `None` if the encoding is invalid.
    pub(super) fn take_from(&self, encoded: &mut Map<String, Value>) -> Option<()> {
        for (element, node) in &self.nodes {
            let element = element.encode();
            let Some(theirs) = encoded.get_mut(&element) else { continue };
            let theirs = theirs.as_object_mut()?;
            let member = theirs.remove(".").is_some() || theirs.is_empty();
            node.children.take_from(theirs)?;
            match (member && !node.member, theirs.is_empty()) {
                (true, true) | (false, false) => {}
                (true, false) => drop(theirs.insert(".".to_owned(), Value::Object(Map::new()))),
                (false, true) => drop(encoded.remove(&element)),
            }
        }
        Some(())
    }

    /// Adds the members of this set to an encoded one, like [`FieldSet::absorb`]. `None` if the encoding is invalid.
    pub(super) fn add_to(&self, encoded: &mut Map<String, Value>) -> Option<()> {
        for (element, node) in &self.nodes {
            let theirs = match encoded.entry(element.encode()) {
                Entry::Vacant(place) => {
                    place.insert(node.encode());
                    continue;
                }
                Entry::Occupied(theirs) => theirs.into_mut().as_object_mut()?,
            };
            let member = theirs.remove(".").is_some() || theirs.is_empty() || node.member;
            node.children.add_to(theirs)?;
            if member && !theirs.is_empty() {
                theirs.insert(".".to_owned(), Value::Object(Map::new()));
            }
        }
        Some(())
    }

    /// Returns every member's path as text, such as `.spec.to[name="n1"].weight`. At each level the members come first, then what
    /// is below them, as Kubernetes lists them.
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_paths("", &mut found);
        found
    }

    fn collect_paths(&self, prefix: &str, found: &mut Vec<String>) {
        let members = self.nodes.iter().filter(|(_, node)| node.member);
        found.extend(members.map(|(element, _)| format!("{prefix}{element}")));
        for (element, node) in &self.nodes {
            node.children.collect_paths(&format!("{prefix}{element}"), found);
        }
    }

    /// Returns the encoding as FieldsV1.
    pub fn encode(&self) -> Value {
        let mut object = Map::new();
        for (element, node) in &self.nodes {
            object.insert(element.encode(), node.encode());
        }
        Value::Object(object)
    }

    /// Decodes FieldsV1; `None` if it is invalid.
    pub fn decode(value: &Value) -> Option<FieldSet> {
        let mut set = FieldSet::default();
        for (name, inner) in value.as_object()? {
            if name == "." {
                continue;
            }
            let children = FieldSet::decode(inner)?;
            let member = children.is_empty() || inner.get(".").is_some();
            set.nodes.insert(Element::decode(name)?, Node { member, children });
        }
        Some(set)
    }
}

impl Node {
    fn encode(&self) -> Value {
        let mut inner = self.children.encode();
        if let (true, Some(inner)) = (self.member && !self.children.is_empty(), inner.as_object_mut()) {
            inner.insert(".".to_owned(), Value::Object(Map::new()));
        }
        inner
    }
}

/// The function that follows a set along a schema: it returns the schema below an element, and whether that is a field declared
/// by name.
pub type Step = for<'a> fn(Option<&'a Schema>, &Element) -> (Option<&'a Schema>, bool);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        FieldSet::decode(&value).unwrap()
    }

    #[test]
    fn the_encoding_is_kubernetes_own() {
        for encoded in [
            json!({}),
            json!({"f:spec": {}}),
            json!({"f:spec": {".": {}, "f:host": {}}}),
            json!({"f:to": {"k:{\"name\":\"n1\"}": {".": {}, "f:name": {}}}, "f:ports": {"v:1": {}, "v:\"a\"": {}}, "i:3": {}}),
        ] {
            assert_eq!(set(encoded.clone()).encode(), encoded);
        }
        // A leaf is `{}`; a lone `.` is accepted, but never written.
        assert_eq!(set(json!({"f:a": {".": {}}})).encode(), json!({"f:a": {}}));
        for bad in
            [json!([]), json!({"x:a": {}}), json!({"f:a": 1}), json!({"k:{": {}}), json!({"i:x": {}}), json!({"a": {}})]
        {
            assert_eq!(FieldSet::decode(&bad), None, "{bad}");
        }
    }

    #[test]
    fn sets_combine() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let b = set(json!({"f:a": {"f:b": {}}, "f:d": {}, "f:e": {}}));
        assert_eq!(a.union(&b), set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}})));
        assert_eq!(a.intersection(&b), set(json!({"f:a": {"f:b": {}}, "f:d": {}})));
        assert_eq!(a.difference(&b), set(json!({"f:a": {".": {}, "f:c": {}}})));
        assert_eq!(b.difference(&a), set(json!({"f:e": {}})));
        let mut cut = a.clone();
        cut.cut(&set(json!({"f:a": {}})));
        assert_eq!(cut, set(json!({"f:d": {}})));
        cut.cut(&b);
        assert!(cut.is_empty());
        assert_eq!(a.difference(&set(json!({"f:a": {}}))), set(json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})));
    }

    #[test]
    fn paths_are_printed_as_kubernetes_does() {
        let set = set(json!({"f:metadata": {"f:labels": {"f:a.b/c": {}}}, "f:spec": {
            "f:ports": {"v:2": {}}, "f:to": {"k:{\"name\":\"n1\",\"port\":80}": {".": {}, "f:weight": {}}}}}));
        let expected = [
            ".metadata.labels.a.b/c",
            ".spec.ports[=2]",
            ".spec.to[name=\"n1\",port=80]",
            ".spec.to[name=\"n1\",port=80].weight",
        ];
        assert_eq!(set.paths(), expected);
    }

    fn any_set() -> impl Strategy<Value = FieldSet> {
        let path = proptest::collection::vec("[ab]".prop_map(Element::Field), 1..4);
        proptest::collection::vec(path, 0..6).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn the_laws_of_sets_hold(a in any_set(), b in any_set()) {
            prop_assert_eq!(FieldSet::decode(&a.encode()), Some(a.clone()));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&a).is_empty());
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
        }

        #[test]
        fn encoded_sets_combine_as_sets_do(a in any_set(), b in any_set()) {
            let mut encoded = a.encode();
            let taken = b.take_from(encoded.as_object_mut().unwrap());
            prop_assert_eq!((taken, encoded), (Some(()), a.difference(&b).encode()));
            let mut encoded = a.encode();
            let added = b.add_to(encoded.as_object_mut().unwrap());
            prop_assert_eq!((added, encoded), (Some(()), a.union(&b).encode()));
        }
    }
}
