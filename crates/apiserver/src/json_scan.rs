//! Finds the requested values in an object's JSON, borrows them, and skips everything else.
//!
//! Every write and each table row uses this scan. The tree of an object with its field sets needs about two hundred allocations;
//! selectors and columns need a dozen of its values. The scan therefore finds all [`Paths`] in one pass and returns the values
//! unparsed: a cell that shows a value is a copy of its octets. In the other direction, `present` leaves out of a new object the
//! members that it does not have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Returns the object without its members that are `null`.
pub(crate) fn present(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
    object
}

/// The JSON of a value, unparsed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> From<&'a RawValue> for Json<'a> {
    fn from(value: &'a RawValue) -> Json<'a> {
        Json(value.get())
    }
}

impl<'a> Json<'a> {
    /// Returns the octets of the value; none if it is absent.
    pub fn octets(self) -> &'a [u8] {
        self.0.as_bytes()
    }

    /// Returns whether there is none, or only `null`.
    pub fn is_null(self) -> bool {
        matches!(self.0, "" | "null")
    }

    /// Returns the text, if it is one.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inside = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match inside.contains('\\') {
            true => serde_json::from_str(self.0).ok().map(Cow::Owned),
            false => Some(Cow::Borrowed(inside)),
        }
    }

    /// Returns whether it is this text. `text` holds nothing that JSON escapes.
    pub fn is(self, text: &str) -> bool {
        self.0.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(text)
    }

    /// Returns the number, if it is a whole one.
    pub fn number(self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// Returns the items of a list; none of anything else.
    pub fn items(self) -> impl Iterator<Item = Json<'a>> {
        serde_json::from_str::<Vec<&RawValue>>(self.0).unwrap_or_default().into_iter().map(Json::from)
    }

    /// Returns the members of an object, by their names; none of anything else.
    pub fn members(self) -> impl Iterator<Item = (String, Json<'a>)> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(self.0).unwrap_or_default();
        members.into_iter().map(|(name, value)| (name, value.into()))
    }

    /// Returns the members of an object that have these names.
    pub fn get<const N: usize>(self, names: [&str; N]) -> [Json<'a>; N] {
        let mut found = [Json::default(); N];
        let step = |(place, name)| Step { name, below: Vec::new(), places: vec![place] };
        // A value that is not an object has none.
        let _ = seek(&names.into_iter().enumerate().map(step).collect::<Vec<_>>(), self.octets(), &mut found);
        found
    }
}

/// The paths of values that are read together: dotted paths through objects. No path leads through another's value.
#[derive(Debug, Default)]
pub struct Paths {
    below: Vec<Step<'static>>,
    count: usize,
}

#[derive(Debug)]
struct Step<'n> {
    name: &'n str,
    below: Vec<Step<'n>>,
    /// The indexes of the value in the result, if the value itself is requested.
    places: Vec<usize>,
}

impl Paths {
    /// Returns these paths. A path can occur more than once.
    ///
    /// # Panics
    ///
    /// If a path leads through another's value.
    pub fn new(paths: impl IntoIterator<Item = &'static str>) -> Paths {
        /// Returns the step of this name, made if there is none.
        fn step<'s>(steps: &'s mut Vec<Step<'static>>, name: &'static str) -> &'s mut Step<'static> {
            let at = steps.iter().position(|step| step.name == name);
            let at = at.unwrap_or_else(|| {
                steps.push(Step { name, below: Vec::new(), places: Vec::new() });
                steps.len() - 1
            });
            &mut steps[at]
        }

        let mut all = Paths::default();
        for path in paths {
            let (through, last) = path.rsplit_once('.').unwrap_or(("", path));
            let through = through.split('.').filter(|name| !name.is_empty());
            let below = through.fold(&mut all.below, |below, name| &mut step(below, name).below);
            step(below, last).places.push(all.count);
            all.count += 1;
        }
        fn is_sound(steps: &[Step<'_>]) -> bool {
            steps.iter().all(|step| step.places.is_empty() != step.below.is_empty() && is_sound(&step.below))
        }
        assert!(is_sound(&all.below), "a path leads through another's value");
        all
    }

    /// Returns the values at the paths, in the order of the paths; `None` if the JSON is not an object.
    pub fn find<'a>(&self, json: &'a [u8]) -> Option<Vec<Json<'a>>> {
        let mut found = vec![Json::default(); self.count];
        seek(&self.below, json, &mut found).ok()?;
        Some(found)
    }
}

/// Returns the end of the value that begins at `start`; `None` if it is cut off.
pub fn end_of_value(json: &[u8], start: usize) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(json.get(start..)?).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(start + values.byte_offset())
}

fn seek<'a>(steps: &[Step<'_>], json: &'a [u8], found: &mut [Json<'a>]) -> Result<(), serde_json::Error> {
    serde_json::Deserializer::from_slice(json).deserialize_map(Seek { steps, found })
}

/// A visitor that reads an object, and stores the values at the paths.
struct Seek<'s, 'f, 'a> {
    steps: &'s [Step<'s>],
    found: &'f mut [Json<'a>],
}

impl<'de> DeserializeSeed<'de> for Seek<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A value that is not an object contains no paths.
impl<'de> Visitor<'de> for Seek<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<&RawValue>()? {
            match self.steps.iter().find(|step| Json::from(name).is(step.name)) {
                None => drop(members.next_value::<IgnoredAny>()?),
                Some(step) if step.below.is_empty() => {
                    let value = Json::from(members.next_value::<&RawValue>()?);
                    step.places.iter().for_each(|place| self.found[*place] = value);
                }
                Some(Step { below, .. }) => members.next_value_seed(Seek { steps: below, found: self.found })?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const PATHS: [&str; 6] =
        ["spec.host", "spec.to.name", "status.conditions", "metadata.uid", "metadata.labels", "kind"];

    /// Generates objects in which the names of the paths are frequent.
    fn any_object() -> impl Strategy<Value = Value> {
        const NAMES: [&str; 10] =
            ["spec", "status", "host", "to", "name", "conditions", "metadata", "uid", "labels", "kind"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6..1e6).prop_map(Value::from),
            "[a\"\\\\é\n{}\\[\\]]{0,4}".prop_map(Value::from)
        ];
        let object = |inner: BoxedStrategy<Value>| {
            let name = proptest::sample::select(&NAMES[..]).prop_map(str::to_owned);
            let fields = proptest::collection::btree_map(name, inner, 0..8);
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
        };
        let inner = leaf.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array), object(inner.boxed())]
        });
        object(inner.boxed())
    }

    /// Returns the value at a path through objects.
    fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
        path.split('.').try_fold(object, |value, name| value.as_object()?.get(name))
    }

    fn read(json: Json<'_>) -> Option<Value> {
        (!json.octets().is_empty()).then(|| serde_json::from_slice(json.octets()).expect("it is JSON"))
    }

    proptest! {
        #[test]
        fn what_is_found_is_as_in_the_whole(object in any_object()) {
            let paths = Paths::new(PATHS);
            for text in [object.to_string(), serde_json::to_string_pretty(&object).expect("JSON")] {
                // Parsed from the text: the last digit of a number can change.
                let object: Value = serde_json::from_str(&text).expect("JSON");
                let found = paths.find(text.as_bytes()).expect("an object");
                for (path, found) in PATHS.iter().zip(&found) {
                    let whole = at(&object, path).cloned();
                    prop_assert_eq!(read(*found), whole.clone(), "{}", path);
                    let whole = whole.unwrap_or_default();
                    prop_assert_eq!(found.text().map(Cow::into_owned), whole.as_str().map(str::to_owned));
                    prop_assert_eq!(found.number(), whole.as_i64());
                    prop_assert_eq!(found.is_null(), whole.is_null());
                    let items: Vec<Value> = found.items().filter_map(read).collect();
                    prop_assert_eq!(items, whole.as_array().cloned().unwrap_or_default());
                    let members = found.members().map(|(name, value)| (name, read(value).expect("a value")));
                    let members = members.collect::<serde_json::Map<_, _>>();
                    prop_assert_eq!(members, whole.as_object().cloned().unwrap_or_default());
                    let [host] = found.get(["host"]);
                    prop_assert_eq!(read(host), at(&whole, "host").cloned());
                }
            }
        }

        #[test]
        fn what_is_no_json_does_no_harm(text in proptest::collection::vec(
            proptest::sample::select(&b"{}[]\",:\\ ae1"[..]), 0..40)
        ) {
            for found in Paths::new(["a", "e.a"]).find(&text).into_iter().flatten() {
                let _ = (found.text(), found.number(), found.items().count(), found.members().count());
            }
        }
    }

    #[test]
    fn a_path_may_be_wanted_twice() {
        let found = Paths::new(["a.b", "c", "a.b"]).find(br#"{"a":{"b":1}}"#).expect("an object");
        assert_eq!(found.iter().map(|found| found.number()).collect::<Vec<_>>(), [Some(1), None, Some(1)]);
    }

    #[test]
    #[should_panic(expected = "through another's value")]
    fn a_path_through_another_is_refused() {
        let _ = Paths::new(["a", "a.b"]);
    }

    #[test]
    fn what_is_no_object_is_reported() {
        for text in ["[]", "1", "\"x\"", "null", "{", "", "{\"a\"", "{\"b\":1;", "{\"a\":{\"b\":"] {
            assert!(Paths::new(["a.b"]).find(text.as_bytes()).is_none(), "{text}");
        }
    }
}
