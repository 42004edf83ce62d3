//! The commands of the README and of `docs/`: the program understands every call of itself that a page shows.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// Pages that the program generates.
const GENERATED: [&str; 2] = ["cli.md", "configuration.md"];
/// Names that a page mentions because the program does not have such a command.
const ABSENT: [&str; 1] = ["login"];
/// Words that can precede a call, with the number of their arguments.
const PREFIXES: [(&str, usize); 4] = [("sudo", 0), ("-u", 1), ("cargo run --release --", 0), ("kubectl signpost", 0)];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).expect("it is there") {
        let path = entry.expect("readable").path();
        let is_generated = GENERATED.iter().any(|name| path.ends_with(name));
        if path.extension().is_some_and(|extension| extension == "md") && !is_generated {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// Returns the lines of code blocks, with those that a backslash continues joined, and the texts of code in prose.
fn code(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut prose) = (Vec::<String>::new(), String::new());
    let (mut is_block, mut is_output, mut continues) = (false, false, false);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            (is_block, is_output, continues) = (!is_block, language == "text", false);
        } else if is_block && !is_output {
            let part = line.trim().trim_end_matches('\\').trim_end();
            match lines.last_mut().filter(|_| continues) {
                Some(last) => *last += &format!(" {part}"),
                None => lines.push(part.to_owned()),
            }
            continues = line.ends_with('\\');
        } else if !is_block {
            prose += line;
            prose.push(' ');
        }
    }
    let inline = prose.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    (lines, inline)
}

/// Splits a line into the words of simple commands, as a shell does.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut in_word) = (String::new(), None, false);
    for character in line.trim_start_matches("$ ").chars().chain([' ']) {
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            (_, Some(_)) => word.push(character),
            ('\'' | '"', None) => (quote, in_word) = (Some(character), true),
            ('#', None) if !in_word => break,
            (' ' | '|' | ';' | '&' | '(' | ')' | '>' | '<', None) => {
                if in_word {
                    all.last_mut().expect("there is one").push(std::mem::take(&mut word));
                    in_word = false;
                }
                match character {
                    ' ' => {}
                    // The file of a redirection is not an argument, and stands last on our pages.
                    _ => all.push(Vec::new()),
                }
            }
            _ => (word, in_word) = (word + &character.to_string(), true),
        }
    }
    if in_word {
        all.last_mut().expect("there is one").push(word);
    }
    all
}

/// Returns the arguments of a call of the program, with its name first.
fn call(mut words: &[String]) -> Option<Vec<String>> {
    loop {
        let is_setting = words.first()?.split_once('=').is_some_and(|(name, _)| {
            name.bytes().all(|octet| octet.is_ascii_uppercase() || octet.is_ascii_digit() || octet == b'_')
        });
        let prefix = PREFIXES.iter().find(|(prefix, _)| {
            let prefix: Vec<&str> = prefix.split(' ').collect();
            words.len() > prefix.len() && prefix.iter().zip(words).all(|(wanted, word)| wanted == word)
        });
        match prefix {
            _ if is_setting => words = &words[1..],
            Some((prefix, more)) => {
                let count = prefix.split(' ').count();
                words = words.get(count + more..)?;
                if prefix.starts_with("cargo") || prefix.ends_with("signpost") {
                    // The plugin of kubectl accepts flags before the command.
                    let all = super::command();
                    let at = words.iter().position(|word| all.find_subcommand(word).is_some()).unwrap_or(0);
                    return Some([&["signpost".to_owned()][..], &words[at..], &words[..at]].concat());
                }
            }
            None if words[0] == "signpost" && words.len() > 1 => return Some(words.to_vec()),
            None => return None,
        }
    }
}

/// Returns the fault of a call that is mentioned in prose, which can lack arguments: an unknown command or flag.
fn mention(words: &[String]) -> Option<String> {
    let mut all = super::command();
    all.build();
    let (mut command, mut is_named) = (&all, true);
    for word in &words[1..] {
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or_default();
            let is_known = |command: &Command| command.get_arguments().any(|known| known.get_long() == Some(flag));
            if !is_known(command) {
                return Some(format!("no flag --{flag}"));
            }
        } else if is_named && command.has_subcommands() {
            match command.find_subcommand(word) {
                Some(below) => command = below,
                None if ABSENT.contains(&word.as_str()) => return None,
                // `explain` takes an object of a source cluster in place of a command.
                None if command.get_name() == "explain" && word.contains('/') => is_named = false,
                None => return Some(format!("no command {word}")),
            }
        } else {
            is_named = false;
        }
    }
    None
}

#[test]
fn every_call_on_a_page_is_understood() {
    let (mut faults, mut calls, mut mentions) = (Vec::new(), 0, 0);
    for path in pages() {
        let page = path.file_name().expect("a file").display().to_string();
        let (lines, inline) = code(&fs::read_to_string(&path).expect("UTF-8"));
        for line in &lines {
            for words in commands(line).iter().filter_map(|words| call(words)) {
                calls += 1;
                // A function of a shell adds its arguments.
                if words.iter().any(|word| word.starts_with("${@")) {
                    faults.extend(mention(&words).map(|fault| format!("{page}: {}: {fault}", words.join(" "))));
                } else if let Err(error) = super::command().try_get_matches_from(&words)
                    && error.use_stderr()
                {
                    let error = error.to_string();
                    faults.push(format!("{page}: {}: {}", words.join(" "), error.lines().next().unwrap_or_default()));
                }
            }
        }
        for words in inline.iter().flat_map(|text| commands(text)).filter_map(|words| call(&words)) {
            mentions += 1;
            faults.extend(mention(&words).map(|fault| format!("{page}: `{}`: {fault}", words.join(" "))));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(calls > 40 && mentions > 100, "{calls} calls and {mentions} mentions were found");
}

#[test]
fn wrong_calls_are_found() {
    let words = |line: &str| commands(line).iter().filter_map(|words| call(words)).collect::<Vec<_>>();
    for (line, expected) in [
        ("$ sudo -u signpost signpost status -o json | jq '.a b'", vec!["signpost status -o json"]),
        ("KUBECONFIG=a.b signpost dig x  # a comment", vec!["signpost dig x"]),
        ("cargo run --release -- curl myapp/hello", vec!["signpost curl myapp/hello"]),
        ("a && signpost user add \"tina t\" >file", vec!["signpost user add tina t"]),
        ("kubectl get signpost", vec![]),
        ("podman build -t signpost .", vec![]),
    ] {
        assert_eq!(words(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>(), expected, "{line}");
    }
    for (text, fault) in [
        ("signpost hold list", None),
        ("signpost user add", None),
        ("signpost hold show", Some("no command show")),
        ("signpost status --nope", Some("no flag --nope")),
    ] {
        assert_eq!(words(text).iter().find_map(|words| mention(words)).as_deref(), fault, "{text}");
    }
}
