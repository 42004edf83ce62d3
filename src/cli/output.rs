//! Output formats: a table, names, or data for programs; and the options of lists.
//!
//! The JSON of a command is an interface: fields are added, and none is renamed. The YAML has the same contents.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stdout};
use std::time::{Duration, Instant};

use clap::builder::PossibleValue;
use clap::{Arg, ArgMatches};
use serde::Serialize;
use serde_json::Value;

use super::style::Painter;
use super::table::Table;
use super::{Error, Exit, Outcome, noted, option, print, print_stderr, switch};

/// The time between two reads of a watched list. A list that takes longer is read half of the time.
const REFRESH: Duration = Duration::from_secs(2);
/// The number of lines of a terminal that does not report it.
const LINES_ASSUMED: usize = 24;

/// A form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Table,
    /// A table with all columns. Only lists have it.
    Wide,
    /// A name on each line. Only lists have it.
    Name,
    Json,
    Yaml,
}

/// `--output`.
pub(super) fn argument() -> Arg {
    formats(&[]).help("The output format")
}

fn formats(more: &[&'static str]) -> Arg {
    let table = PossibleValue::new("table").alias("text");
    let others = ["json", "yaml"].into_iter().chain(more.iter().copied()).map(PossibleValue::new);
    Arg::new("output")
        .long("output")
        .short('o')
        .value_name("FORMAT")
        .value_parser(std::iter::once(table).chain(others).collect::<Vec<_>>())
        .default_value("table")
}

impl Format {
    /// Returns the format in `--output`.
    pub(super) fn of(matches: &ArgMatches) -> Format {
        match matches.get_one::<String>("output").map(String::as_str) {
            Some("wide") => Format::Wide,
            Some("name") => Format::Name,
            Some("json") => Format::Json,
            Some("yaml") => Format::Yaml,
            _ => Format::Table,
        }
    }

    /// Returns the text of `value`; `table` returns the text of the formats that are not data.
    pub(super) fn render(self, value: &impl Serialize, table: impl FnOnce() -> String) -> String {
        if !matches!(self, Format::Json | Format::Yaml) {
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

/// `--output`, `--sort-by` and `--watch` of a command that prints a list with these columns.
pub(super) fn list_arguments(columns: impl IntoIterator<Item = &'static str>) -> [Arg; 3] {
    let format = formats(&["wide", "name"]).help("The output format; wide adds columns, name prints only names");
    let columns: BTreeSet<&'static str> = columns.into_iter().collect();
    let sort_by = option("sort-by", "COLUMN")
        .value_parser(columns.into_iter().collect::<Vec<_>>())
        .ignore_case(true)
        .help("Sort the table, or the names, by this column");
    let watch = switch("watch").short('w').help(
        "Print the list again when it changes, until Ctrl-C; on a terminal, refresh the screen every two seconds",
    );
    [format, sort_by, watch]
}

/// The options of a command that prints a list.
#[derive(Debug, Default)]
pub(super) struct ListOptions {
    format: Format,
    sort_by: Option<String>,
    watch: bool,
}

/// The contents of a list.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tables: Vec<Table>,
    /// The line that replaces tables without rows.
    pub(super) note: Option<String>,
}

impl ListOptions {
    /// Returns the options in [`list_arguments`].
    pub(super) fn of(matches: &ArgMatches) -> ListOptions {
        let sort_by = matches.get_one::<String>("sort-by").cloned();
        ListOptions { format: Format::of(matches), sort_by, watch: matches.get_flag("watch") }
    }

    /// Prints the list that `read` returns; with `--watch`, also its changes. `listing` returns its tables.
    pub(super) fn show<T: Serialize>(
        &self,
        mut read: impl FnMut() -> Result<T, Error>,
        listing: impl Fn(&T) -> Listing,
    ) -> Outcome {
        let text = |list: &T| self.format.render(list, || self.text(listing(list), Painter::of_stdout()));
        if self.watch {
            return self.watch(read, text);
        }
        print(&text(&read()?));
        Ok(Exit::Success)
    }

    /// Returns the tables of a list, or its names.
    pub(super) fn text(&self, mut listing: Listing, painter: Painter) -> String {
        if let Some(column) = &self.sort_by {
            listing.tables.iter_mut().for_each(|table| table.sort_by(column));
        }
        if self.format == Format::Name {
            let mut printed = BTreeSet::new();
            let names = listing.tables.iter().flat_map(Table::names).filter(|name| printed.insert(*name));
            return names.map(|name| format!("{name}\n")).collect();
        }
        if self.format == Format::Wide {
            listing.tables.iter_mut().for_each(Table::widen);
        }
        if let Some(note) = listing.note {
            return note + "\n";
        }
        let tables: Vec<String> = listing.tables.iter().map(|table| table.text(painter)).collect();
        tables.join("\n")
    }

    /// Reads the list again and again. Prints a changed list, or refreshes the screen, until the process is interrupted.
    fn watch<T: Serialize>(&self, mut read: impl FnMut() -> Result<T, Error>, text: impl Fn(&T) -> String) -> Outcome {
        let is_table = matches!(self.format, Format::Table | Format::Wide);
        let is_on_screen = is_table && stdout().is_terminal();
        // Ages in the text change all the time. The data decides whether the list has changed.
        let (mut data, mut page, mut before) = (String::new(), String::new(), String::new());
        loop {
            let started = Instant::now();
            let (list, mut notes) = noted(&mut read);
            let mut is_new = false;
            match list {
                Ok(list) => {
                    let now = Format::Json.render(&list, String::new);
                    is_new = now != data;
                    (data, page) = (now, text(&list));
                }
                Err(error) if data.is_empty() => {
                    print_stderr(&notes);
                    return Err(error);
                }
                Err(Error::Usage(error) | Error::Failed(error)) => notes += &format!("error: {error}\n"),
            }
            if is_on_screen {
                redraw(&format!("{notes}{page}"));
            } else {
                if notes != before {
                    print_stderr(&notes);
                }
                if is_new {
                    print(&match self.format {
                        Format::Json => page.clone(),
                        Format::Yaml => format!("---\n{page}"),
                        Format::Table | Format::Wide | Format::Name => format!("{page}\n"),
                    });
                }
            }
            before = notes;
            std::thread::sleep(REFRESH.max(started.elapsed()));
        }
    }
}

/// Replaces the contents of the terminal with the first lines of `page`.
fn redraw(page: &str) {
    let lines: usize = terminal_size::terminal_size().map_or(LINES_ASSUMED, |(_, height)| height.0.into());
    let page: Vec<&str> = page.lines().take(lines.saturating_sub(1)).collect();
    // Without wrapping, each line is one row, and the heading stays on the screen.
    print(&format!("\x1b[H\x1b[2J\x1b[?7l{}\x1b[?7h\n", page.join("\n")));
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

    fn options(arguments: &[&str]) -> Result<ListOptions, clap::Error> {
        let command = clap::Command::new("x").args(list_arguments(["name", "routes", "kind", "name"]));
        command.try_get_matches_from([&["x"][..], arguments].concat()).map(|matches| ListOptions::of(&matches))
    }

    #[test]
    fn a_list_is_printed_as_its_options_say() {
        let listing = |rows: &[(&str, &str)]| {
            let mut routes = Table::new(["name", "routes", "kind"]).hiding_last();
            rows.iter().for_each(|(name, count)| routes.row([*name, *count, "x"].map(Into::into)));
            let mut shards = Table::new(["shard", "routes"]);
            shards.row_of(Vec::new(), ["s2".into(), "9".into()]);
            shards.row_of(Vec::new(), ["s1".into(), "10".into()]);
            Listing { tables: vec![routes, shards], note: rows.is_empty().then(|| "no routes".to_owned()) }
        };
        let rows = [("b", "10"), ("a", "9"), ("b", "1")];
        let shards = "SHARD   ROUTES\ns2      9\ns1      10\n";
        for (arguments, expected) in [
            (&[][..], format!("NAME   ROUTES\nb      10\na      9\nb      1\n\n{shards}")),
            (
                &["-o", "wide", "--sort-by", "Routes"],
                format!("NAME   ROUTES   KIND\nb      1        x\na      9        x\nb      10       x\n\n{shards}"),
            ),
            (&["-o", "name"], "b\na\n".to_owned()),
            (&["-o", "name", "--sort-by", "name"], "a\nb\n".to_owned()),
        ] {
            let options = options(arguments).expect("valid");
            assert_eq!(options.text(listing(&rows), Painter::PLAIN), expected, "{arguments:?}");
        }
        assert_eq!(ListOptions::default().text(listing(&[]), Painter::PLAIN), "no routes\n");
        let error = options(&["--sort-by", "age"]).expect_err("there is no such column");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("[possible values: kind, name, routes]"), "{error}");
    }
}
