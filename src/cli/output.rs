//! Output formats: a table, or data for programs.
//!
//! The JSON of a command is an interface: fields are added, and none is renamed. The YAML has the same contents.

use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches};
use serde::Serialize;
use serde_json::Value;

use super::style::Painter;
use super::{Exit, Outcome, print};

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Table,
    Json,
    Yaml,
}

/// `--output`.
pub(super) fn argument() -> Arg {
    let table = PossibleValue::new("table").alias("text");
    Arg::new("output")
        .long("output")
        .short('o')
        .value_name("FORMAT")
        .value_parser([table, PossibleValue::new("json"), PossibleValue::new("yaml")])
        .default_value("table")
        .help("The output format")
}

impl Format {
    /// Returns the format in `--output`.
    pub(super) fn of(matches: &ArgMatches) -> Format {
        match matches.get_one::<String>("output").map(String::as_str) {
            Some("json") => Format::Json,
            Some("yaml") => Format::Yaml,
            _ => Format::Table,
        }
    }

    /// Returns the text of `value`; `table` returns the text of the table format.
    pub(super) fn render(self, value: &impl Serialize, table: impl FnOnce() -> String) -> String {
        if self == Format::Table {
            return table();
        }
        // YAML by way of JSON, so that both have the same contents.
        let value = without_nulls(serde_json::to_value(value).expect("reports are plain data"));
        let text = match self {
            Format::Yaml => serde_saphyr::to_string(&value).expect("JSON is YAML"),
            _ => serde_json::to_string_pretty(&value).expect("a value is JSON"),
        };
        if text.ends_with('\n') { text } else { text + "\n" }
    }

    /// Prints `value`; `table` returns the text of the table format, in colors on a terminal.
    pub(super) fn show(self, value: &impl Serialize, table: impl FnOnce(Painter) -> String) -> Outcome {
        print(&self.render(value, || table(Painter::of_stdout())));
        Ok(Exit::Success)
    }
}

/// Removes the members of objects that are absent in a report.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let present = members.into_iter().filter(|(_, value)| !value.is_null());
            present.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_formats_say_the_same() {
        let value = json!({"name": "a: b", "list": [1, {"deep": null, "n": 1}], "text": "yes", "absent": null});
        let expected = json!({"name": "a: b", "list": [1, {"n": 1}], "text": "yes"});
        let render = |format: Format| format.render(&value, || "a table\n".to_owned());
        assert_eq!(render(Format::Table), "a table\n");
        let of_json: Value = serde_json::from_str(&render(Format::Json)).expect("JSON");
        let of_yaml: Value = serde_saphyr::from_str(&render(Format::Yaml)).expect("YAML");
        assert_eq!((&of_json, &of_yaml), (&expected, &expected));
    }

    #[test]
    fn the_former_word_for_a_table_is_understood() {
        for (given, format) in
            [("table", Format::Table), ("text", Format::Table), ("json", Format::Json), ("yaml", Format::Yaml)]
        {
            let command = clap::Command::new("x").arg(argument());
            let matches = command.try_get_matches_from(["x", "-o", given]).expect("is understood");
            assert_eq!(Format::of(&matches), format);
        }
    }
}
