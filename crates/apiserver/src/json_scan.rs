//! Of an object's JSON, the few values that are asked for, borrowed from it; what lies between them is passed over.
//!
//! Every write passes here, and each row of every table. The tree of an object with its field sets is some two hundred pieces of
//! memory, to be made and given back; of those, selectors and columns want a dozen. So [`Paths`] are sought in one pass, in
//! which brackets are counted and strings hopped over, and what they lead to is left as it stands: a cell that shows a value
//! is a copy of its octets.
//!
//! What is skimmed is the server's own JSON, written by [`super::object::encode`]. Other well-formed JSON reads the same; what
//! is none gives nothing or too much, and never panics.

use std::borrow::Cow;
use std::ops::Range;

/// The JSON of a value, as it stands in an object's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// Of one whole value.
    pub fn of(text: &'a [u8]) -> Json<'a> {
        Json(text)
    }

    /// Its octets; none if it is absent.
    pub fn octets(self) -> &'a [u8] {
        self.0
    }

    /// Whether there is none, or only `null`.
    pub fn is_null(self) -> bool {
        matches!(self.0, b"" | b"null")
    }

    /// The text, if it is one.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inside = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if inside.contains(&b'\\') {
            return serde_json::from_slice(self.0).ok().map(Cow::Owned);
        }
        std::str::from_utf8(inside).ok().map(Cow::Borrowed)
    }

    /// Whether it is this text. `text` holds nothing that JSON escapes.
    pub fn is(self, text: &str) -> bool {
        self.0.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) == Some(text.as_bytes())
    }

    /// The number, if it is a whole one.
    pub fn number(self) -> Option<i64> {
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }

    /// The items of a list; none of anything else.
    pub fn items(self) -> impl Iterator<Item = Json<'a>> {
        let mut reader = Reader::new(self.0);
        let mut more = reader.enters(b'[', b']');
        std::iter::from_fn(move || {
            if !more {
                return None;
            }
            let item = reader.value()?;
            more = reader.goes_on();
            Some(item)
        })
    }

    /// The members of an object, in their order; none of anything else.
    pub fn members(self) -> impl Iterator<Item = (Json<'a>, Json<'a>)> {
        let mut reader = Reader::new(self.0);
        let mut more = reader.enters(b'{', b'}');
        std::iter::from_fn(move || {
            if !more {
                return None;
            }
            let name = reader.name()?;
            let value = reader.value()?;
            more = reader.goes_on();
            Some((name, value))
        })
    }

    /// The members of an object that have these names, which hold nothing that JSON escapes.
    pub fn get<const N: usize>(self, names: [&str; N]) -> [Json<'a>; N] {
        let mut found = [Json::default(); N];
        let mut left = N;
        for (name, value) in self.members() {
            if let Some(place) = names.iter().position(|wanted| name.is(wanted)) {
                found[place] = value;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        found
    }
}

/// Where values lie that are wanted together: dotted paths through objects, of which none leads through another's value.
#[derive(Debug, Default)]
pub struct Paths {
    below: Vec<Step>,
    count: usize,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    below: Vec<Step>,
    /// The places of the value among what is found, if it is wanted itself.
    places: Vec<usize>,
}

impl Paths {
    /// The same path may be there more than once.
    ///
    /// # Panics
    ///
    /// If a path leads through another's value.
    pub fn new(paths: impl IntoIterator<Item = &'static str>) -> Paths {
        /// The step of this name, made if there is none.
        fn step<'s>(steps: &'s mut Vec<Step>, name: &'static str) -> &'s mut Step {
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
        fn is_sound(steps: &[Step]) -> bool {
            steps.iter().all(|step| step.places.is_empty() != step.below.is_empty() && is_sound(&step.below))
        }
        assert!(is_sound(&all.below), "a path leads through another's value");
        all
    }

    /// The values at the paths, in the paths' order. `metadata` is where in `json` the value of its metadata lies: of these,
    /// nothing is looked at behind the last member that is wanted. `None` if it is no object.
    pub fn find<'a>(&self, json: &'a [u8], metadata: Range<usize>) -> Option<Vec<Json<'a>>> {
        let mut found = vec![Json::default(); self.count];
        Reader { text: json, at: 0, metadata }.seek(&self.below, &mut found)?;
        Some(found)
    }
}

/// Where the value ends that begins at `start`; `None` if it does not.
pub fn end_of_value(json: &[u8], start: usize) -> Option<usize> {
    let mut reader = Reader { at: start, ..Reader::new(json) };
    reader.hop()?;
    Some(reader.at)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    metadata: Range<usize>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Reader<'a> {
        Reader { text, at: 0, metadata: 0..0 }
    }

    /// Reads an object up to its end, or to where all is found if it is the whole.
    fn seek(&mut self, steps: &[Step], found: &mut [Json<'a>]) -> Option<()> {
        let begins = self.at;
        if self.token()? != b'{' {
            return None;
        }
        let mut left = steps.len();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            if left == 0 {
                return match begins {
                    0 => Some(()),
                    begins if begins == self.metadata.start => {
                        self.at = self.metadata.end;
                        Some(())
                    }
                    _ => self.leave(1),
                };
            }
            let name = self.name()?;
            match steps.iter().find(|step| name.is(step.name)) {
                None => self.hop()?,
                Some(step) => {
                    left -= 1;
                    if step.below.is_empty() {
                        let value = self.value()?;
                        step.places.iter().for_each(|place| found[*place] = value);
                    } else if self.peek()? == b'{' {
                        self.seek(&step.below, found)?;
                    } else {
                        self.hop()?;
                    }
                }
            }
            match self.token()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Whether a list or an object begins here that is not empty.
    fn enters(&mut self, open: u8, close: u8) -> bool {
        self.token() == Some(open) && self.peek().is_some_and(|next| next != close)
    }

    /// Whether another item or member follows.
    fn goes_on(&mut self) -> bool {
        self.token() == Some(b',')
    }

    /// The name of a member, and its colon.
    fn name(&mut self) -> Option<Json<'a>> {
        let name = (self.peek()? == b'"').then(|| self.value())??;
        (self.token()? == b':').then_some(name)
    }

    fn value(&mut self) -> Option<Json<'a>> {
        self.peek()?;
        let begins = self.at;
        self.hop()?;
        Some(Json(&self.text[begins..self.at]))
    }

    /// Passes over a value.
    fn hop(&mut self) -> Option<()> {
        match self.token()? {
            b'"' => self.hop_string(),
            b'{' | b'[' => self.leave(1),
            _ => {
                let ends = |octet: &u8| matches!(octet, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                self.at += self.text[self.at..].iter().position(ends).unwrap_or(self.text.len() - self.at);
                Some(())
            }
        }
    }

    /// Passes over all up to the bracket that closes as many as are open.
    fn leave(&mut self, mut open: usize) -> Option<()> {
        while open > 0 {
            match self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    self.hop_string()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(())
    }

    /// Passes over the rest of a string.
    fn hop_string(&mut self) -> Option<()> {
        loop {
            let rest = self.text.get(self.at..)?;
            let at = rest.iter().position(|octet| matches!(octet, b'"' | b'\\'))?;
            if rest[at] == b'"' {
                self.at += at + 1;
                return Some(());
            }
            self.at += at + 2;
        }
    }

    /// The next octet that is no space, which is passed.
    fn token(&mut self) -> Option<u8> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                octet => return Some(*octet),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const PATHS: [&str; 6] =
        ["spec.host", "spec.to.name", "status.conditions", "metadata.uid", "metadata.labels", "kind"];

    /// Objects in which the names of the paths are frequent.
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

    /// The value at a path through objects.
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
                // As it is read: of a number the last digit may be another one.
                let object: Value = serde_json::from_str(&text).expect("JSON");
                let found = paths.find(text.as_bytes(), 0..0).expect("an object");
                for (path, found) in PATHS.iter().zip(&found) {
                    let whole = at(&object, path).cloned();
                    prop_assert_eq!(read(*found), whole.clone(), "{}", path);
                    let whole = whole.unwrap_or_default();
                    prop_assert_eq!(found.text().map(Cow::into_owned), whole.as_str().map(str::to_owned));
                    prop_assert_eq!(found.number(), whole.as_i64());
                    prop_assert_eq!(found.is_null(), whole.is_null());
                    let items: Vec<Value> = found.items().filter_map(read).collect();
                    prop_assert_eq!(items, whole.as_array().cloned().unwrap_or_default());
                    let members = found.members().map(|(name, value)| {
                        (name.text().expect("a name").into_owned(), read(value).expect("a value"))
                    });
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
            for found in Paths::new(["a", "e.a"]).find(&text, 0..0).into_iter().flatten() {
                let _ = (found.text(), found.number(), found.items().count(), found.members().count());
            }
        }
    }

    #[test]
    fn behind_what_is_wanted_of_the_metadata_nothing_is_read() {
        let text = r#"{"metadata":{"uid":"u","x":]]]},"spec":{"host":"h"}}"#;
        let end = text.find(",\"spec").expect("it is there");
        let found = Paths::new(["metadata.uid", "spec.host"]).find(text.as_bytes(), 12..end).expect("an object");
        assert!(found[0].is("u") && found[1].is("h"));
        assert!(Paths::new(["metadata.uid", "spec.host"]).find(text.as_bytes(), 0..0).is_none());
    }

    #[test]
    fn a_path_may_be_wanted_twice() {
        let found = Paths::new(["a.b", "c", "a.b"]).find(br#"{"a":{"b":1}}"#, 0..0).expect("an object");
        assert_eq!(found.iter().map(|found| found.number()).collect::<Vec<_>>(), [Some(1), None, Some(1)]);
    }

    #[test]
    #[should_panic(expected = "through another's value")]
    fn a_path_through_another_is_refused() {
        let _ = Paths::new(["a", "a.b"]);
    }

    #[test]
    fn what_is_no_object_is_told() {
        for text in ["[]", "1", "\"x\"", "null", "{", "", "{\"a\"", "{\"b\":1;", "{\"a\":{\"b\":"] {
            assert!(Paths::new(["a.b"]).find(text.as_bytes(), 0..0).is_none(), "{text}");
        }
    }
}
