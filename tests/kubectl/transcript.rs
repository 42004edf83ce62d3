//! Transcripts: commands, and their output.
//!
//! ```text
//! ## what the following steps are about
//! # a comment
//! $ get routes -n a        a command of kubectl; words as a shell would split them, NAME=value in front sets a variable
//! < apiVersion: v1         a line of its standard input
//! = 1                      its exit code; 0 by default
//! 1: No resources found    a line of its standard output: all of them, in order
//! 2: error: …              a line of its standard error: likewise
//! until 1.30               only for clients up to, or `from`, this version
//! again                    repeat it until it is so
//! save uid                 keeps what it prints, for `@uid@` in commands and input of later steps
//!
//! & one: get routes -w     begins a command that runs on, with a name, and waits until its watch is open
//! . one                    waits until it has printed the following lines, in any stream, and ends it
//! ```
//!
//! In an expected line, `…` matches any text, and alone any number of lines. Runs of spaces count as one, because the width of a
//! column depends on its contents.

use std::ops::RangeInclusive;

/// A file of steps.
pub struct Transcript {
    /// In their order.
    pub steps: Vec<Step>,
}

/// A command and its expected outcome.
pub struct Step {
    /// The number of its line.
    pub line: usize,
    /// The title of its section.
    title: String,
    /// The command as typed.
    typed: String,
    pub act: Act,
    pub words: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub input: String,
    /// Minor versions of the clients that it is for.
    pub minors: RangeInclusive<u32>,
    /// Whether it is repeated until it is right.
    pub again: bool,
    /// The name under which its output is kept.
    pub save: Option<String>,
    code: i32,
    stdout: Vec<String>,
    stderr: Vec<String>,
}

/// The action of a step.
pub enum Act {
    /// Run to the end.
    Run,
    /// Begin under a name.
    Begin(String),
    /// End what was begun under the name.
    End(String),
}

impl Transcript {
    /// Parses a transcript; the error contains the number of the line.
    pub fn parse(text: &str) -> Result<Transcript, String> {
        let mut steps: Vec<Step> = Vec::new();
        let mut title = String::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |what: &str| format!("line {}: {what}: {line:?}", index + 1);
            if let Some(rest) = line.strip_prefix("## ") {
                title = rest.to_owned();
                continue;
            }
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
            let begin = match mark {
                "$" => Some((Act::Run, rest)),
                "&" => {
                    let (name, rest) = rest.split_once(": ").ok_or_else(|| wrong("a name is missing"))?;
                    Some((Act::Begin(name.to_owned()), rest))
                }
                "." => Some((Act::End(rest.to_owned()), "")),
                _ => None,
            };
            if let Some((act, typed)) = begin {
                let mut words = split(typed).ok_or_else(|| wrong("a quote is not closed"))?;
                let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| is_upper(name));
                let count = words.iter().take_while(|word| is_variable(word)).count();
                let environment = words
                    .drain(..count)
                    .filter_map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
                steps.push(Step {
                    line: index + 1,
                    title: title.clone(),
                    typed: line.to_owned(),
                    act,
                    environment: environment.collect(),
                    words,
                    input: String::new(),
                    minors: 0..=u32::MAX,
                    again: false,
                    save: None,
                    code: 0,
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                });
                continue;
            }
            let step = steps.last_mut().ok_or_else(|| wrong("no command is above it"))?;
            let minor =
                || rest.strip_prefix("1.").and_then(|minor| minor.parse().ok()).ok_or_else(|| wrong("no version"));
            match mark {
                "<" => step.input += &format!("{rest}\n"),
                "1:" => step.stdout.push(rest.to_owned()),
                "2:" => step.stderr.push(rest.to_owned()),
                "=" => step.code = rest.parse().map_err(|_| wrong("no exit code"))?,
                "again" => step.again = true,
                "save" => step.save = Some(rest.to_owned()),
                "until" => step.minors = *step.minors.start()..=minor()?,
                "from" => step.minors = minor()?..=*step.minors.end(),
                _ => return Err(wrong("not understood")),
            }
        }
        Ok(Transcript { steps })
    }
}

impl Step {
    /// Whether a command came out as it should; what it printed if not.
    pub fn check(&self, code: i32, stdout: &str, stderr: &str) -> Result<(), String> {
        let right = code == self.code && lines_match(&self.stdout, stdout) && lines_match(&self.stderr, stderr);
        if right {
            return Ok(());
        }
        let shown =
            |mark: &str, text: &str| text.lines().map(|line| format!("    {mark} {line}\n")).collect::<String>();
        let wanted = |mark: &str, lines: &[String]| shown(mark, &lines.join("\n"));
        Err(format!(
            "{}:\n{}\n  expected\n    = {}\n{}{}  found\n    = {code}\n{}{}",
            self.title,
            self.typed,
            self.code,
            wanted("1:", &self.stdout),
            wanted("2:", &self.stderr),
            shown("1:", stdout),
            shown("2:", stderr),
        ))
    }
}

fn is_upper(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_uppercase() || octet == b'_')
}

/// Returns the words of a command line; `None` if a quote is not closed.
fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn lines_match(patterns: &[String], text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    match_lines(patterns, &lines)
}

fn match_lines(patterns: &[String], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| match_lines(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| matches(&spaced(first), &spaced(line)) && match_lines(rest, others)),
    }
}

fn spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|head| line.strip_prefix(head)) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(tail) => rest.ends_with(tail),
    }
}

#[test]
fn lines_and_words() {
    for (pattern, line, expected) in [
        ("a b", "a   b  ", true),
        ("a …", "a b c", true),
        ("a … d", "a b c d", true),
        ("a … d", "a b c", false),
        ("…x…y", "1x2x3y", true),
        ("a", "ab", false),
    ] {
        assert_eq!(matches(&spaced(pattern), &spaced(line)), expected, "{pattern} {line}");
    }
    let patterns = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(lines_match(&patterns(&["…", "b", "…"]), "a\nb\nc\n"));
    assert!(!lines_match(&patterns(&["a"]), "a\nb\n"));
    assert!(lines_match(&[], ""));
    assert_eq!(split("a 'b c' d=\"\" e").as_deref(), Some(&patterns(&["a", "b c", "d=", "e"])[..]));
    assert_eq!(split("a 'b"), None);
}
