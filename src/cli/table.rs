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

/// The least width to which a column is cut, and to which the last one is broken into lines.
const CUT_LEAST: usize = 12;
/// See [`CUT_LEAST`].
const WRAP_LEAST: usize = 24;

/// Rows of columns under a heading. The widths follow from what stands in them; the last column ends with its text. On a
/// terminal that is too narrow the widest columns are cut, and the last one goes on below itself; if that is not enough, the
/// columns before it are left out.
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
        let mut rows: Vec<Vec<&Cell>> = self.rows.iter().map(|row| row.iter().collect()).collect();
        let mut widths: Vec<usize> = Vec::new();
        for row in &rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        if let Some(room) = painter.width() {
            while widths.len() > 2 && least(&widths) > room {
                let left_out = widths.len() - 2;
                widths.remove(left_out);
                rows.iter_mut().filter(|row| row.len() > left_out).for_each(|row| {
                    row.remove(left_out);
                });
            }
            fit(&mut widths, room);
        }
        let mut text = String::new();
        for row in &rows {
            // Blanks at the end of a line are nobody's friend: the last cell with a text ends it.
            let cells = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            for (at, (cell, width)) in row.iter().zip(&widths).take(cells).enumerate() {
                if at + 1 == widths.len() {
                    let before = widths[..at].iter().map(|width| width + GAP.len()).sum();
                    text.push_str(&wrapped(cell, *width, before, painter));
                    continue;
                }
                let shown = cut(&cell.text, *width);
                text.push_str(&painted(cell, &shown, painter));
                if at + 1 < cells {
                    text.extend(std::iter::repeat_n(' ', width - shown.chars().count()));
                    text.push_str(GAP);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// How many columns of a terminal a line needs at least.
fn least(widths: &[usize]) -> usize {
    let Some((last, others)) = widths.split_last() else { return 0 };
    let cut: usize = others.iter().map(|width| (*width).min(CUT_LEAST) + GAP.len()).sum();
    cut + (*last).min(WRAP_LEAST)
}

/// Makes columns so narrow that a line has `room` for them, if they can be.
fn fit(widths: &mut [usize], room: usize) {
    let Some((last, others)) = widths.split_last_mut() else { return };
    let gaps = others.len() * GAP.len();
    let least = (*last).min(WRAP_LEAST);
    let taken = |others: &[usize]| others.iter().sum::<usize>() + gaps;
    while taken(others) + least > room
        && let Some(widest) = others.iter_mut().max().filter(|widest| **widest > CUT_LEAST)
    {
        *widest -= 1;
    }
    *last = (*last).min(room.saturating_sub(taken(others)).max(least));
}

/// The text, or as much of it as there is room for.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn painted(cell: &Cell, text: &str, painter: Painter) -> String {
    match cell.style {
        Some(style) => painter.paint(style, text),
        None => text.to_owned(),
    }
}

/// The text of a cell in lines of `width`, all but the first after `before` blanks.
fn wrapped(cell: &Cell, width: usize, before: usize, painter: Painter) -> String {
    let mut lines = vec![String::new()];
    for word in cell.text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is a line");
            let used = line.chars().count();
            let room = width.saturating_sub(if used == 0 { 0 } else { used + 1 });
            if word.len() <= room || used == 0 && width == 0 {
                if used > 0 {
                    line.push(' ');
                }
                line.extend(word);
                break;
            }
            // A word that is longer than a line goes on in the next.
            if used == 0 {
                line.extend(word.drain(..width.min(word.len())));
            }
            lines.push(String::new());
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| painted(cell, line, painter)).collect();
    lines.join(&format!("\n{}", " ".repeat(before)))
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
            let before = width + GAP.len();
            let room = painter.width().map_or(usize::MAX, |all| all.saturating_sub(before).max(WRAP_LEAST));
            text.push_str(&wrapped(fact, room, before, painter));
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
    fn a_narrow_terminal_has_room_for_all_lines() {
        let mut table = Table::new(["NAME", "NUMBER", "WHY"]);
        table.row([
            "a-name-that-is-far-too-long-to-be-shown".into(),
            "7".into(),
            "one two three four five six seven".into(),
        ]);
        for width in [45, 50, 80] {
            let text = table.text(Painter::of_width(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.split_whitespace().any(|word| word == "seven"), "{text}");
        }
        assert_eq!(
            table.text(Painter::of_width(48)),
            "NAME           NUMBER   WHY\na-name-that…   7        one two three four five\n                        six seven\n"
        );
        assert!(!table.text(Painter::of_width(40)).contains("NUMBER"), "there is no room for it");
        assert_eq!(table.text(Painter::of_width(200)), table.text(Painter::PLAIN));
        // One word that is longer than a line is broken, and the narrowest terminal ends nothing.
        let mut table = Table::new(["N", "WHY"]);
        table.row(["x".into(), "y".repeat(100).as_str().into()]);
        assert!(table.text(Painter::of_width(40)).lines().all(|line| line.chars().count() <= 40));
        assert!(table.text(Painter::of_width(1)).contains("yyy"));
    }

    #[test]
    fn facts_stand_below_one_another() {
        let mut facts = Facts::default();
        facts.add("a", "one\n");
        facts.add("long", Cell::styled(Style::Good, "two"));
        assert_eq!(facts.text(Painter::PLAIN), "a      one\nlong   two\n");
    }
}
