//! The tokenizer of zone files (RFC 1035 §5.1): one pass over bytes, no copies.
//!
//! A file is a sequence of *entries*, each one line, or several joined by parentheses. [`Scanner::begin`] returns how the next
//! entry starts, [`Scanner::word`] returns its words until there is none, and [`Scanner::end`] skips its end. Quotes, escapes,
//! comments, CRLF and a missing newline at the end are handled only here; the reader of a word interprets its escapes, because
//! `\.` differs in names and in text.

use super::finding::{Fault, Position};

/// One word of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    /// The text in the file, escapes included, without its quotes.
    pub raw: &'a [u8],
    /// Whether it was in quotes.
    pub quoted: bool,
    /// Whether it contains a backslash.
    pub escaped: bool,
    /// The start (at the quote, if there is one).
    pub at: Position,
}

impl Word<'_> {
    /// Returns the word for a message: shortened, printable.
    pub fn shown(&self) -> String {
        const SHOWN_OCTETS_MAX: usize = 40;
        let cut = &self.raw[..self.raw.len().min(SHOWN_OCTETS_MAX)];
        let dots = if cut.len() < self.raw.len() { "…" } else { "" };
        let quote = if self.quoted { "\"" } else { "" };
        format!("'{quote}{}{dots}{quote}'", cut.escape_ascii())
    }
}

/// The start of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Starts with a blank: the owner of the previous entry applies.
    Blank,
    /// Starts with a word.
    Word,
    /// There is no further entry.
    EndOfFile,
}

/// A position in a text that moves forward.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
    /// The number of open parentheses, and the position of the outermost one.
    depth: u32,
    opened: Position,
    /// The position in the file of generated text, which has only one.
    fixed: Option<Position>,
}

/// The class of an octet for the tokenizer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Blank,
    Return,
    Newline,
    Comment,
    Open,
    Close,
    Quote,
    Backslash,
    Control,
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Ordinary; 256];
    let mut octet = 0;
    while octet < 0x20 {
        kinds[octet] = Kind::Control;
        octet += 1;
    }
    kinds[0x7f] = Kind::Control;
    kinds[b' ' as usize] = Kind::Blank;
    kinds[b'\t' as usize] = Kind::Blank;
    kinds[b'\r' as usize] = Kind::Return;
    kinds[b'\n' as usize] = Kind::Newline;
    kinds[b';' as usize] = Kind::Comment;
    kinds[b'(' as usize] = Kind::Open;
    kinds[b')' as usize] = Kind::Close;
    kinds[b'"' as usize] = Kind::Quote;
    kinds[b'\\' as usize] = Kind::Backslash;
    kinds
};

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of a file's text.
    pub fn new(text: &'a [u8]) -> Self {
        // A byte order mark is not part of the first owner.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Scanner { text, at, line: 1, line_start: 0, depth: 0, opened: Position::START, fixed: None }
    }

    /// Creates a scanner over text that a directive at `position` generated.
    pub fn made_at(text: &'a [u8], position: Position) -> Self {
        Scanner { fixed: Some(position), ..Scanner::new(text) }
    }

    /// Returns the position of the scanner.
    pub fn position(&self) -> Position {
        self.position_of(self.at)
    }

    fn position_of(&self, at: usize) -> Position {
        let column = u32::try_from(at - self.line_start + 1).unwrap_or(u32::MAX);
        self.fixed.unwrap_or(Position { line: self.line, column })
    }

    /// Returns the start of the next entry.
    pub fn begin(&self) -> Start {
        match self.text.get(self.at) {
            None => Start::EndOfFile,
            Some(b' ' | b'\t') => Start::Blank,
            Some(_) => Start::Word,
        }
    }

    /// Returns the next word of the entry; `None` at its end, also when called again.
    #[inline]
    pub fn word(&mut self) -> Result<Option<Word<'a>>, Fault> {
        self.next_word::<false>()
    }

    /// Like [`Scanner::word`], but a quote after `=` belongs to the word (`alpn="h2,h3"`, RFC 9460 §2.1).
    pub fn parameter(&mut self) -> Result<Option<Word<'a>>, Fault> {
        self.next_word::<true>()
    }

    fn next_word<const PARAMETER: bool>(&mut self) -> Result<Option<Word<'a>>, Fault> {
        loop {
            let Some(&octet) = self.text.get(self.at) else {
                return if self.depth == 0 { Ok(None) } else { Err(self.never_closed()) };
            };
            match KINDS[usize::from(octet)] {
                Kind::Blank => self.at += 1,
                Kind::Return if self.is_line_end() => self.at += 1,
                Kind::Newline if self.depth == 0 => return Ok(None),
                Kind::Newline => self.step_over_newline(),
                Kind::Comment => self.skip_comment(),
                Kind::Open => {
                    if self.depth == 0 {
                        self.opened = self.position();
                    }
                    self.depth = self.depth.saturating_add(1);
                    self.at += 1;
                }
                Kind::Close if self.depth > 0 => {
                    self.depth -= 1;
                    self.at += 1;
                }
                Kind::Close => return Err(self.fault("unmatched ')': no '(' is open")),
                Kind::Quote => return self.quoted_word().map(Some),
                Kind::Ordinary | Kind::Backslash => return self.plain_word::<PARAMETER>().map(Some),
                Kind::Control | Kind::Return => return Err(self.control_character()),
            }
        }
    }

    fn plain_word<const PARAMETER: bool>(&mut self) -> Result<Word<'a>, Fault> {
        let (start, at) = (self.at, self.position());
        let mut escaped = false;
        while let Some(&octet) = self.text.get(self.at) {
            match KINDS[usize::from(octet)] {
                Kind::Ordinary => self.at += 1,
                Kind::Backslash => {
                    escaped = true;
                    self.step_over_escape()?;
                }
                Kind::Quote if PARAMETER && self.text[start..self.at].ends_with(b"=") => {
                    escaped |= self.quoted_word()?.escaped;
                    break;
                }
                Kind::Quote => {
                    return Err(self.fault("a quote inside a word; write \\\" or put the whole word in quotes"));
                }
                Kind::Return if !self.is_line_end() => return Err(self.control_character()),
                Kind::Control => return Err(self.control_character()),
                _ => break,
            }
        }
        Ok(Word { raw: &self.text[start..self.at], quoted: false, escaped, at })
    }

    fn quoted_word(&mut self) -> Result<Word<'a>, Fault> {
        let at = self.position();
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.step_over_escape()?;
                }
                // Otherwise, a missing quote would include the following records in the text.
                None | Some(b'\n') => return Err(Fault::new(at, "syntax", "the quote is not closed on its line")),
                Some(_) => self.at += 1,
            }
        }
        let raw = &self.text[start..self.at];
        self.at += 1;
        match self.text.get(self.at).map(|&octet| KINDS[usize::from(octet)]) {
            Some(Kind::Ordinary | Kind::Backslash) => Err(self.fault("a blank is missing after the closing quote")),
            _ => Ok(Word { raw, quoted: true, escaped, at }),
        }
    }

    /// Skips a backslash and the character after it, which is part of the word unless it is the end of a line.
    fn step_over_escape(&mut self) -> Result<(), Fault> {
        match self.text.get(self.at + 1) {
            None | Some(b'\n' | b'\r') => Err(self.fault("a backslash at the end of the line")),
            Some(_) => {
                self.at += 2;
                Ok(())
            }
        }
    }

    /// Ends the entry: skips its rest, so that the next one can begin.
    pub fn end(&mut self) {
        while let Some(&octet) = self.text.get(self.at) {
            match octet {
                b'\n' => {
                    self.step_over_newline();
                    if self.depth == 0 {
                        return;
                    }
                }
                b';' => self.skip_comment(),
                b'(' => {
                    if self.depth == 0 {
                        self.opened = self.position();
                    }
                    self.depth = self.depth.saturating_add(1);
                    self.at += 1;
                }
                b')' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.at += 1;
                }
                b'"' => {
                    if self.quoted_word().is_err() {
                        while self.text.get(self.at).is_some_and(|&octet| octet != b'\n') {
                            self.at += 1;
                        }
                    }
                }
                b'\\' => self.at += if matches!(self.text.get(self.at + 1), None | Some(b'\n')) { 1 } else { 2 },
                _ => self.at += 1,
            }
        }
    }

    /// Returns the rest of this line unchanged, for directives that rewrite text.
    pub fn rest_of_line(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
        self.at += length;
        rest[..length].trim_ascii()
    }

    /// Returns the fault of an open parenthesis at the end of the text, if there is one.
    pub fn left_open(&self) -> Option<Fault> {
        (self.depth > 0 && self.at >= self.text.len()).then(|| self.never_closed())
    }

    fn never_closed(&self) -> Fault {
        Fault::new(self.opened, "syntax", "the '(' is never closed: expected ')' before the end of the file")
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
    }

    fn step_over_newline(&mut self) {
        self.at += 1;
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
    }

    /// Returns whether the carriage return here belongs to the end of a line or of the file.
    fn is_line_end(&self) -> bool {
        matches!(self.text.get(self.at + 1), None | Some(b'\n'))
    }

    fn control_character(&self) -> Fault {
        let octet = self.text[self.at];
        self.fault(format!("control character; write it as \\{octet:03}"))
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.position(), "syntax", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a text: how each starts, and its words, `!line:column` for a fault.
    fn entries(text: &str) -> Vec<String> {
        let mut scanner = Scanner::new(text.as_bytes());
        let mut found = Vec::new();
        loop {
            let mut entry = match scanner.begin() {
                Start::EndOfFile => return found,
                Start::Blank => String::from("_"),
                Start::Word => String::new(),
            };
            loop {
                match scanner.word() {
                    Ok(Some(word)) => {
                        let mark = if word.quoted { "\"" } else { "" };
                        entry += &format!("[{mark}{}{mark}]", word.raw.escape_ascii());
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        entry += &format!("!{}:{}", fault.at.line, fault.at.column);
                        break;
                    }
                }
            }
            scanner.end();
            found.push(entry);
        }
    }

    #[test]
    fn entries_and_words() {
        let cases: &[(&str, &[&str])] = &[
            ("a b\nc", &["[a][b]", "[c]"]),
            ("a\r\n b\r\n", &["[a]", "_[b]"]),
            ("a ; c (\"\n\n", &["[a]", ""]),
            ("a ( b ; x )\n c\n) d\ne", &["[a][b][c][d]", "[e]"]),
            ("a (b)(c)", &["[a][b][c]"]),
            (r#"a "b;c (" d"#, &[r#"[a]["b;c ("][d]"#]),
            (r#"a "" "\"""#, &[r#"[a][""]["\\\""]"#]),
            (r"a\ b \; c\;d", &[r"[a\\ b][\\;][c\\;d]"]),
            ("a )\nb", &["[a]!1:3", "[b]"]),
            ("a \"b\nc", &["[a]!1:3", "[c]"]),
            ("a b\"c\"\nd", &["[a]!1:4", "[d]"]),
            ("a \"b\"c\nd", &["[a]!1:6", "[d]"]),
            (r#"a "b""c""#, &[r#"[a]["b"]["c"]"#]),
            ("a \u{1}b\nc", &["[a]!1:3", "[c]"]),
            ("a\rb\nc", &["!1:2", "[c]"]),
            ("a \\\nb", &["[a]!1:3", "[b]"]),
            ("a (\nb\nc", &["[a][b][c]!1:3"]),
            ("\u{feff}a b", &["[a][b]"]),
        ];
        for (text, expected) in cases {
            assert_eq!(entries(text), *expected, "{text:?}");
        }
    }

    #[test]
    fn a_parameter_may_quote_its_value() {
        let mut scanner = Scanner::new(br#"alpn="h2 h3" key="a\"b""#);
        let mut words = Vec::new();
        while let Some(word) = scanner.parameter().expect("well-formed") {
            words.push(word.raw);
        }
        assert_eq!(words, [&br#"alpn="h2 h3""#[..], br#"key="a\"b""#]);
    }
}
