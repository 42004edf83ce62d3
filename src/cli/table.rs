//! Tables and lists of properties. `comfy-table` lays them out: as wide as their contents or, on a terminal, as the terminal.

use comfy_table::{Attribute, Color, ColumnConstraint, ContentArrangement, presets};

use super::style::{Painter, Style, harmless};

/// The spaces between two columns.
const GAP: u16 = 3;
/// The width up to which a column does not wrap: a serial has ten digits.
const SHORT: u16 = 12;
/// Rows of a bounded table; the other formats have all.
const ROWS_MAX: usize = 50;

/// A cell: its text, and its meaning.
#[derive(Debug, Clone)]
pub(super) struct Cell(comfy_table::Cell);

impl Cell {
    /// Returns a cell with a meaning.
    pub(super) fn styled(style: Style, text: impl Into<String>) -> Cell {
        let Cell(cell) = Cell::from(text.into());
        Cell(match style {
            Style::Good => cell.fg(Color::DarkGreen),
            Style::Warning => cell.fg(Color::DarkYellow),
            Style::Bad => cell.fg(Color::DarkRed),
            Style::Dim => cell.add_attribute(Attribute::Dim),
            Style::Strong => cell.add_attribute(Attribute::Bold),
        })
    }

    /// Returns the text, or a dash.
    pub(super) fn or_dash(text: Option<impl Into<String>>) -> Cell {
        match text {
            Some(text) => Cell::from(text.into()),
            None => Cell::styled(Style::Dim, "-"),
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
        Cell(comfy_table::Cell::new(harmless(text)))
    }
}

/// Rows of columns, under a heading. On a terminal that is too narrow, long cells continue below themselves.
#[derive(Debug)]
pub(super) struct Table {
    rows: comfy_table::Table,
    rows_max: usize,
    left_out: usize,
}

impl Table {
    /// Returns an empty table with these columns.
    pub(super) fn new<const N: usize>(heading: [&str; N]) -> Self {
        let mut rows = comfy_table::Table::new();
        rows.set_header(heading.map(|name| Cell::styled(Style::Strong, name).0));
        Table { rows, rows_max: usize::MAX, left_out: 0 }
    }

    /// Returns a table for a command that can list very many objects: the text has the first rows and the number of
    /// further ones.
    pub(super) fn bounded<const N: usize>(heading: [&str; N]) -> Self {
        Table { rows_max: ROWS_MAX, ..Table::new(heading) }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        if self.rows.row_count() < self.rows_max {
            self.rows.add_row(cells.into_iter().map(|Cell(cell)| cell));
        } else {
            self.left_out += 1;
        }
    }

    /// Returns whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.row_count() == 0
    }

    /// Returns all lines, each with its end.
    pub(super) fn text(&self, painter: Painter) -> String {
        let text = laid_out(self.rows.clone(), painter);
        match self.left_out {
            0 => text,
            more => format!("{text}and {more} more; use --output json to list all\n"),
        }
    }
}

/// Properties, a line each: a name and a value.
#[derive(Debug, Default)]
pub(super) struct Properties(comfy_table::Table);

impl Properties {
    /// Adds a property.
    pub(super) fn add(&mut self, name: &str, fact: impl Into<Cell>) {
        self.0.add_row([Cell::styled(Style::Strong, name).0, fact.into().0]);
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
