//! Colours, on a terminal alone, and text that cannot drive one.

use std::io::IsTerminal as _;

use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor;

/// The meaning of a text, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Good,
    Warning,
    Bad,
    Dim,
    Strong,
}

impl Style {
    fn rendered(self) -> anstyle::Style {
        match self {
            Style::Good => AnsiColor::Green.on_default(),
            Style::Warning => AnsiColor::Yellow.on_default(),
            Style::Bad => AnsiColor::Red.on_default(),
            Style::Dim => anstyle::Style::new().dimmed(),
            Style::Strong => anstyle::Style::new().bold(),
        }
    }
}

/// Colors text, or returns it unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Painter {
    colours: bool,
    /// The number of columns of the terminal, if it is one.
    width: Option<usize>,
}

impl Painter {
    /// Never colours.
    #[cfg(test)]
    pub(super) const PLAIN: Painter = Painter { colours: false, width: None };

    /// Always colours, for tests of it.
    #[cfg(test)]
    pub(super) const COLOURED: Painter = Painter { colours: true, width: None };

    /// Colours if standard output is a terminal that shows colors and no variable forbids them (<https://no-color.org>).
    pub(super) fn of_stdout() -> Self {
        let size = terminal_size::terminal_size_of(std::io::stdout()).filter(|_| std::io::stdout().is_terminal());
        let colours = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        Painter { colours, width: size.map(|(terminal_size::Width(width), _)| width.into()) }
    }

    /// Returns whether text has colors.
    pub(super) fn colours(self) -> bool {
        self.colours
    }

    /// Returns the maximum number of columns of a line; `None`: unlimited.
    pub(super) fn width(self) -> Option<usize> {
        self.width
    }

    /// Returns a painter for a terminal with this number of columns, without colors.
    #[cfg(test)]
    pub(super) fn of_width(width: usize) -> Self {
        Painter { colours: false, width: Some(width) }
    }

    /// Returns the text in the color of its meaning.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        let style = style.rendered();
        if self.colours && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Returns the text on one line, with every control character replaced: text of users in objects must not move the
/// cursor of a viewer's terminal.
pub(super) fn harmless(text: &str) -> String {
    text.trim_end()
        .chars()
        .map(|c| if c.is_control() { if c == '\n' || c == '\t' { ' ' } else { '\u{fffd}' } } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stand_around_the_text() {
        assert_eq!(Painter::COLOURED.paint(Style::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Painter::COLOURED.paint(Style::Bad, ""), "");
        assert_eq!(Painter::PLAIN.paint(Style::Bad, "x"), "x");
    }

    #[test]
    fn control_characters_lose_their_power() {
        assert_eq!(harmless("a\x1b[2Jb\nc\td\u{9b}1m\n"), "a\u{fffd}[2Jb c d\u{fffd}1m");
    }
}
