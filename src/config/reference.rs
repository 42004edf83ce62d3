//! `docs/configuration.md`, made from the table of settings. A test compares the two.

use std::fmt::Write as _;

use super::key::Key;
use super::rule::Form;
use super::settings::KEYS;

/// Returns the page, as Markdown.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    let mut heading = "";
    let (common, others): (Vec<&Key>, Vec<&Key>) = KEYS.iter().partition(|key| key.is_common);
    for key in common.into_iter().chain(others) {
        // Writing to a String cannot fail.
        if !key.is_common && key.heading != heading {
            heading = key.heading;
            let table = match key.table {
                "" => "At the top level of the file.".to_owned(),
                table => format!("In the table `[{table}]` of the file."),
            };
            let _ = write!(page, "\n## {heading}\n\n{table}\n");
        }
        let _ = write!(page, "\n### {}\n\n{}\n\n| | |\n|---|---|\n", key.flag, key.help);
        let _ = writeln!(page, "| file | `{}`{}: {} |", key.name, table_of(key), values(key));
        let repeats = if key.is_list() { " (repeats)" } else { "" };
        let _ = writeln!(page, "| flag | `--{} {}`{repeats} |", key.flag, key.shape.value_name);
        let _ = writeln!(page, "| variable | `{}` |", key.variable());
        if !key.shape.range.is_empty() {
            let _ = writeln!(page, "| range | {} |", key.shape.range);
        }
        let default = if key.default.value.is_some_and(|value| value == key.default.shown) {
            format!("`{}`", key.default.shown)
        } else {
            key.default.shown.replace('<', "&lt;").replace('>', "&gt;")
        };
        let reload = if key.reloads { "on SIGHUP" } else { "after a restart" };
        let _ = writeln!(page, "| default | {default} |\n| applies | {reload} |");
    }
    page
}

fn table_of(key: &Key) -> String {
    if key.table.is_empty() { String::new() } else { format!(" in `[{}]`", key.table) }
}

/// Returns the type of a value in the file.
fn values(key: &Key) -> String {
    let words = key.shape.words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
    match key.shape.form {
        Form::Tables { .. } => "an array of tables with these keys, or of strings `\"KEY=VALUE,...\"`".to_owned(),
        Form::Boolean => "`true` or `false`".to_owned(),
        Form::Integer => "a whole number".to_owned(),
        Form::Duration => "a duration, such as `\"5s\"`".to_owned(),
        Form::Size => "a size, such as `\"64Mi\"`, or a number of bytes".to_owned(),
        Form::Path if key.is_list() => "an array of strings, relative to the directory of the file".to_owned(),
        Form::Path => "a string, relative to the directory of the file".to_owned(),
        Form::Text if key.is_list() && words.is_empty() => "an array of strings".to_owned(),
        Form::Text if key.is_list() => format!("an array of {words}"),
        Form::Text if words.is_empty() => "a string".to_owned(),
        Form::Text => words,
    }
}

/// The text before the settings.
const HEAD: &str = include_str!("reference.md");
