//! Colours, on a terminal alone, and text that cannot drive one.

use std::io::IsTerminal as _;

/// What a piece of text means to its reader; the colour follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Bad,
    /// Of little weight.
    Dim,
    /// A heading.
    Strong,
}

impl Style {
    /// The parameter of "select graphic rendition" (ECMA-48 §8.3.117).
    fn code(self) -> &'static str {
        match self {
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
            Style::Dim => "2",
            Style::Strong => "1",
        }
    }
}

/// Colours text, or leaves it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Painter {
    colours: bool,
    /// How many columns the terminal has, if it is one.
    width: Option<usize>,
}

impl Painter {
    /// Never colours.
    #[cfg(test)]
    pub(super) const PLAIN: Painter = Painter { colours: false, width: None };

    /// Always colours, for tests of it.
    #[cfg(test)]
    pub(super) const COLOURED: Painter = Painter { colours: true, width: None };

    /// Colours if standard output is a terminal that knows colours and nobody said otherwise (<https://no-color.org>).
    pub(super) fn of_stdout() -> Self {
        let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let refused = said("NO_COLOR").is_some() || said("TERM").is_some_and(|terminal| terminal == "dumb");
        let is_terminal = std::io::stdout().is_terminal();
        let size = terminal_size::terminal_size_of(std::io::stdout()).filter(|_| is_terminal);
        Painter { colours: !refused && is_terminal, width: size.map(|(terminal_size::Width(width), _)| width.into()) }
    }

    /// How many columns a line may have; `None`: as many as it takes.
    pub(super) fn width(self) -> Option<usize> {
        self.width
    }

    /// For a terminal of this many columns, without colours.
    #[cfg(test)]
    pub(super) fn of_width(width: usize) -> Self {
        Painter { colours: false, width: Some(width) }
    }

    /// The text in the colour of its meaning.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", style.code()) } else { text.to_owned() }
    }
}

/// The text on one line, with every control character replaced: what users wrote into objects must not move the
/// cursor of whoever looks at them.
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
