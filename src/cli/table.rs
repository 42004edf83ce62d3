//! Tables and lists of properties. `comfy-table` lays them out: as wide as their contents or, on a terminal, as the terminal.

use comfy_table::{Attribute, Color, ColumnConstraint, ContentArrangement, presets};

use super::style::{Painter, Style, harmless};

/// The spaces between two columns.
const GAP: u16 = 3;
/// The width up to which a column does not wrap: a serial has ten digits.
const SHORT: u16 = 12;
/// Rows of a bounded table; the other formats have all.
const ROWS_MAX: usize = 50;

/// A cell: its text, its meaning, and its rank.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    style: Option<Style>,
    /// The number by which the column is sorted, if the text is not a number.
    rank: Option<i64>,
}

impl Cell {
    /// Returns a cell with a meaning.
    pub(super) fn styled(style: Style, text: impl Into<String>) -> Cell {
        Cell { style: Some(style), ..Cell::from(text.into()) }
    }

    pub(super) fn or_dash(text: Option<impl Into<String>>) -> Cell {
        match text {
            Some(text) => Cell::from(text.into()),
            None => Cell::styled(Style::Dim, "-"),
        }
    }

    /// Sets the number by which the column is sorted.
    pub(super) fn ranked(self, rank: impl TryInto<i64>) -> Cell {
        Cell { rank: Some(rank.try_into().unwrap_or(i64::MAX)), ..self }
    }

    /// Returns the key by which the column is sorted: numbers come first.
    fn key(&self) -> (bool, i64, &str) {
        match self.rank.or_else(|| self.text.parse().ok()) {
            Some(number) => (false, number, ""),
            None => (true, 0, self.text.trim_start()),
        }
    }

    fn shown(&self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(&self.text);
        match self.style {
            None => cell,
            Some(Style::Good) => cell.fg(Color::DarkGreen),
            Some(Style::Warning) => cell.fg(Color::DarkYellow),
            Some(Style::Bad) => cell.fg(Color::DarkRed),
            Some(Style::Dim) => cell.add_attribute(Attribute::Dim),
            Some(Style::Strong) => cell.add_attribute(Attribute::Bold),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::from(text.as_str())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell { text: harmless(text), style: None, rank: None }
    }
}

/// Rows of columns, under a heading. On a terminal that is too narrow, long cells continue below themselves.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Row>,
    rows_max: usize,
    /// The number of columns at the end that only [`Table::widen`] shows.
    hidden: usize,
}

#[derive(Debug)]
struct Row {
    cells: Vec<Cell>,
    /// The names that the row represents; `None`: the text of its first cell.
    names: Option<Vec<String>>,
}

impl Table {
    /// Returns an empty table with these columns. The heading has their names in upper case, with spaces for hyphens.
    pub(super) fn new<const N: usize>(columns: [&'static str; N]) -> Self {
        Table { columns: columns.into(), rows: Vec::new(), rows_max: usize::MAX, hidden: 0 }
    }

    /// Returns a table for a command that can list very many objects: the text has the first rows and the number of
    /// further ones.
    pub(super) fn bounded<const N: usize>(columns: [&'static str; N]) -> Self {
        Table { rows_max: ROWS_MAX, ..Table::new(columns) }
    }

    /// Hides the last column, except in wide output.
    pub(super) fn hiding_last(self) -> Self {
        Table { hidden: 1, ..self }
    }

    /// Shows the hidden columns.
    pub(super) fn widen(&mut self) {
        self.hidden = 0;
    }

    /// Adds a row. Its name is the text of the first cell.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), names: None });
    }

    /// Adds a row that represents these names.
    pub(super) fn row_of(&mut self, names: Vec<String>, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), names: Some(names) });
    }

    /// Returns whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sorts the rows by a column, if the table has it. Rows without a cell in it come first.
    pub(super) fn sort_by(&mut self, column: &str) {
        if let Some(at) = self.columns.iter().position(|name| name.eq_ignore_ascii_case(column)) {
            self.rows.sort_by(|one, other| one.key(at).cmp(&other.key(at)));
        }
    }

    /// Returns the names of all rows.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(Row::names)
    }

    /// Returns all lines, each with its end.
    pub(super) fn text(&self, painter: Painter) -> String {
        let columns = &self.columns[..self.columns.len() - self.hidden];
        let heading = |name: &&str| Cell::styled(Style::Strong, name.to_ascii_uppercase().replace('-', " ")).shown();
        let mut table = comfy_table::Table::new();
        table.set_header(columns.iter().map(heading));
        for row in self.rows.iter().take(self.rows_max) {
            table.add_row(row.cells.iter().take(columns.len()).map(Cell::shown));
        }
        let text = laid_out(table, painter);
        match self.rows.len().saturating_sub(self.rows_max) {
            0 => text,
            more => format!("{text}and {more} more; use --output json to list all\n"),
        }
    }
}

impl Row {
    fn key(&self, column: usize) -> Option<(bool, i64, &str)> {
        self.cells.get(column).map(Cell::key)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let first = self.cells.first().filter(|_| self.names.is_none()).map(|cell| cell.text.as_str());
        self.names.iter().flatten().map(String::as_str).chain(first)
    }
}

/// Properties, a line each: a name and a value.
#[derive(Debug, Default)]
pub(super) struct Properties(comfy_table::Table);

impl Properties {
    /// Adds a property.
    pub(super) fn add(&mut self, name: &str, fact: impl Into<Cell>) {
        self.0.add_row([Cell::styled(Style::Strong, name).shown(), fact.into().shown()]);
    }

    /// Returns all lines, each with its end.
    pub(super) fn text(&self, painter: Painter) -> String {
        laid_out(self.0.clone(), painter)
    }
}

fn laid_out(mut table: comfy_table::Table, painter: Painter) -> String {
    table.load_style(presets::NOTHING).force_no_tty();
    let last = table.column_count().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { GAP }));
    }
    if painter.colours() {
        table.enforce_styling().style_text_only();
    }
    if let Some(width) = painter.width() {
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        // Numbers and words stay unbroken if the long columns still have room.
        let widths = table.column_max_content_widths();
        let least: usize = widths.iter().map(|width| usize::from((*width).min(SHORT) + GAP)).sum();
        if least <= usize::from(width) {
            for (column, _) in table.column_iter_mut().zip(widths).filter(|(_, width)| *width <= SHORT) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let mut table = Table::new(["NAME", "N", "WHY"]);
        table.row(["shard1".into(), Cell::styled(Style::Bad, "12"), "".into()]);
        table.row(["é".into(), Cell::or_dash(None::<String>), "a\x1bb".into()]);
        assert_eq!(table.text(Painter::PLAIN), "NAME     N    WHY\nshard1   12\né        -    a\u{fffd}b\n");
        let coloured = table.text(Painter::COLOURED);
        let plain: String = anstream::adapter::strip_str(&coloured).to_string();
        assert!(coloured.contains("12\x1b[") && coloured.contains("\x1b[1mNAME"), "{coloured:?}");
        let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trimmed(&plain), trimmed(&table.text(Painter::PLAIN)));
    }

    #[test]
    fn rows_are_sorted_by_any_column() {
        let mut table = Table::new(["name", "last-queried", "kind"]).hiding_last();
        table.row(["b".into(), Cell::from("2m").ranked(120), "x".into()]);
        table.row_of(vec!["a.example".to_owned(), "c.example".to_owned()], ["  a".into(), "7".into(), "z".into()]);
        table.row_of(Vec::new(), ["c".into()]);
        table.row(["10".into(), "-".into(), "y".into()]);
        let all = ["b", "a.example", "c.example", "10"];
        for (column, lines, names) in [
            ("none", ["b 2m", "a 7", "c", "10 -"], all),
            ("name", ["10 -", "a 7", "b 2m", "c"], ["10", "a.example", "c.example", "b"]),
            ("LAST-queried", ["c", "a 7", "b 2m", "10 -"], ["a.example", "c.example", "b", "10"]),
            ("kind", ["c", "b 2m", "10 -", "a 7"], ["b", "10", "a.example", "c.example"]),
        ] {
            table.sort_by(column);
            let text = table.text(Painter::PLAIN);
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let (heading, rows) = text.split_once('\n').expect("a heading");
            assert_eq!(words(heading), "NAME LAST QUERIED");
            assert_eq!(rows.lines().map(words).collect::<Vec<_>>(), lines, "{column}");
            assert_eq!(table.names().collect::<Vec<_>>(), names, "{column}");
        }
        table.widen();
        assert!(table.text(Painter::PLAIN).starts_with("NAME   LAST QUERIED   KIND\n"));
    }

    #[test]
    fn a_narrow_terminal_has_room_for_all_lines() {
        let mut table = Table::new(["NAME", "NUMBER", "WHY"]);
        table.row([
            "a-name-that-is-far-too-long-to-be-shown".into(),
            "7".into(),
            "one two three four five six seven".into(),
        ]);
        for width in [30, 45, 50, 80] {
            let text = table.text(Painter::of_width(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.split_whitespace().any(|word| word == "seven"), "{text}");
            assert!(width < 40 || text.contains("NUMBER"), "short columns stay whole:\n{text}");
        }
        assert_eq!(table.text(Painter::of_width(200)), table.text(Painter::PLAIN));
        let mut table = Table::new(["N", "WHY"]);
        table.row(["x".into(), "y".repeat(100).as_str().into()]);
        assert!(table.text(Painter::of_width(40)).lines().all(|line| line.chars().count() <= 40));
        assert!(table.text(Painter::of_width(1)).contains('y'));
    }

    #[test]
    fn properties_stand_below_one_another() {
        let mut facts = Properties::default();
        facts.add("a", "one\n");
        facts.add("long", Cell::styled(Style::Good, "two"));
        assert_eq!(facts.text(Painter::PLAIN), "a      one\nlong   two\n");
    }
}
