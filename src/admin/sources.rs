//! `/sources`: the shards, names, and notes that the leading process derives from the objects of a source cluster, as JSON.

use std::sync::OnceLock;

use serde_json::{Value, json};

/// The most items of a list in [`Sources::page`].
const ITEMS_MAX: usize = 500;
/// The lists of a report.
const LISTS: [&str; 3] = ["shards", "names", "notes"];

/// The report of a process as JSON. Without one, the error is the reason.
type Source = Box<dyn Fn() -> Result<Value, String> + Send + Sync>;

/// The source of the endpoint's report: the loops of the role `scheduler` in this process, once they run.
#[derive(Default)]
pub struct Sources(OnceLock<Source>);

impl Sources {
    /// Sets the source of reports. A process has one; a second call changes nothing.
    pub(crate) fn open(&self, source: impl Fn() -> Result<Value, String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }

    /// Returns the report, or the reason why this process has none.
    fn report(&self) -> Result<Value, String> {
        self.0.get().map_or_else(|| Err(NOTHING.to_owned()), |source| source())
    }

    /// Returns the first items of each list that contain a text, and their number; without a report, the reason.
    pub fn page(&self, text: &str) -> Value {
        let mut report = match self.report() {
            Ok(report) => report,
            Err(reason) => return json!({"reason": reason}),
        };
        let text = text.trim().to_ascii_lowercase();
        let mut page = serde_json::Map::new();
        for list in LISTS {
            let items = report[list].take();
            let mut items = if let Value::Array(items) = items { items } else { Vec::new() };
            items.retain(|item| contains(item, &text));
            let total = items.len();
            items.truncate(ITEMS_MAX);
            page.insert(list.to_owned(), json!({"total": total, "items": items}));
        }
        page.into()
    }

    /// Returns the report in JSON, or the reason why this process has none.
    pub(super) fn text(&self) -> Result<String, String> {
        self.report().map(|report| report.to_string())
    }
}

/// Returns whether a value contains a text, in any of its texts.
fn contains(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one.to_ascii_lowercase().contains(text),
        Value::Array(items) => items.iter().any(|item| contains(item, text)),
        Value::Object(fields) => fields.values().any(|field| contains(field, text)),
        _ => false,
    }
}

/// The reason if nothing is read.
const NOTHING: &str = "this process reads no source cluster: it does not have the role scheduler, or sources are off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let sources = Sources::default();
        assert_eq!(sources.page("")["reason"], NOTHING);
        let names: Vec<Value> = (0..600).map(|number| json!({"host": format!("H{number}.example")})).collect();
        let shard = json!({"name": "gw", "source": {"kind": "Gateway", "name": "eu"}});
        sources.open(move || Ok(json!({"shards": [shard], "names": names, "notes": []})));
        for (text, shards, names, listed) in
            [("", 1, 600, 500), (" h59", 0, 11, 11), ("EU", 1, 0, 0), ("source", 0, 0, 0)]
        {
            let page = sources.page(text);
            assert_eq!((&page["shards"]["total"], &page["names"]["total"]), (&json!(shards), &json!(names)), "{text}");
            assert_eq!(page["names"]["items"].as_array().map(Vec::len), Some(listed), "{text}");
        }
    }
}
