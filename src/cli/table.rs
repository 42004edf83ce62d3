//! Columns of text, and lists of facts.

use super::style::{Painter, Style, harmless};

/// What stands between two columns.
const GAP: &str = "   ";

/// One cell: its text, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// A cell with a meaning.
    pub(super) fn styled(style: Style, text: impl Into<String>) -> Cell {
        Cell { style: Some(style), ..Cell::from(text.into()) }
    }

    /// The text, or a dash.
    pub(super) fn or_dash(text: Option<impl Into<String>>) -> Cell {
        match text {
            Some(text) => Cell::from(text.into()),
            None => Cell::styled(Style::Dim, "-"),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text: harmless(&text), style: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell { text: harmless(text), style: None }
    }
}

/// Rows of columns under a heading. The widths follow from what stands in them; the last column ends with its text.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table with these columns.
    pub(super) fn new<const N: usize>(heading: [&str; N]) -> Self {
        Table { rows: vec![heading.into_iter().map(|name| Cell::styled(Style::Strong, name)).collect()] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// All lines, each with its end.
    pub(super) fn text(&self, painter: Painter) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            // Blanks at the end of a line are nobody's friend: the last cell with a text ends it.
            let cells = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            for (at, (cell, width)) in row.iter().zip(&widths).take(cells).enumerate() {
                match cell.style {
                    Some(style) => text.push_str(&painter.paint(style, &cell.text)),
                    None => text.push_str(&cell.text),
                }
                if at + 1 < cells {
                    text.extend(std::iter::repeat_n(' ', width - cell.text.chars().count()));
                    text.push_str(GAP);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Facts, a line each: a name and what there is to say.
#[derive(Debug, Default)]
pub(super) struct Facts {
    facts: Vec<(String, Cell)>,
}

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, name: &str, fact: impl Into<Cell>) {
        self.facts.push((harmless(name), fact.into()));
    }

    /// All lines, each with its end.
    pub(super) fn text(&self, painter: Painter) -> String {
        let width = self.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, fact) in &self.facts {
            text.push_str(&painter.paint(Style::Strong, name));
            text.extend(std::iter::repeat_n(' ', width - name.chars().count()));
            text.push_str(GAP);
            match fact.style {
                Some(style) => text.push_str(&painter.paint(style, &fact.text)),
                None => text.push_str(&fact.text),
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let mut table = Table::new(["NAME", "N", "WHY"]);
        table.row(["shard1".into(), Cell::styled(Style::Bad, "12"), "".into()]);
        table.row(["é".into(), Cell::or_dash(None::<String>), "a\x1bb".into()]);
        assert_eq!(table.text(Painter::PLAIN), "NAME     N    WHY\nshard1   12\né        -    a\u{fffd}b\n");
        let coloured = table.text(Painter::COLOURED);
        assert!(coloured.contains("shard1   \x1b[31m12\x1b[0m\n"), "{coloured:?}");
    }

    #[test]
    fn facts_stand_below_one_another() {
        let mut facts = Facts::default();
        facts.add("a", "one\n");
        facts.add("long", Cell::styled(Style::Good, "two"));
        assert_eq!(facts.text(Painter::PLAIN), "a      one\nlong   two\n");
    }
}
