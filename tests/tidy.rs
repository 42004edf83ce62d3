//! The shape of the source: where `unsafe` and the outside world may be, what every file begins with, and that every
//! dependency has its reason. Which crate may use which is in the manifests.

use std::path::{Path, PathBuf};

/// The modules that open no socket, read no file, and use neither the clock nor random numbers: these are arguments.
const PURE: &[&str] = &[
    "crates/dns/src/wire/",
    "crates/dns/src/zone/",
    "crates/dns/src/zonefile/",
    "crates/dns/src/nameserver/",
    "crates/dns/src/secondary/incoming.rs",
    "crates/types/src/",
    "crates/api/src/",
    "crates/agent/src/site.rs",
    "crates/agent/src/resolve.rs",
    "crates/agent/src/render/",
    "crates/control/src/compiler/",
    "crates/control/src/scheduler/strategy/",
];

/// The names that a pure module must not contain.
const IMPURE: &[&str] = &[
    "std::fs",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "SystemTime",
    "Instant",
    "tokio",
    "signpost_runtime",
    "tracing::",
    "std::env",
    "std::process",
    "rand::",
];

/// The exceptions of pure modules, each with its reason.
const IMPURE_ALLOWED: &[(&str, &str)] = &[
    // `$INCLUDE` and the zones directory are read where they are understood.
    ("crates/dns/src/zonefile/", "std::fs"),
    // A file's age, to know one that may be written again within the same tick of its time stamp.
    ("crates/dns/src/zonefile/folder.rs", "SystemTime"),
];

/// The file names that do not describe their contents.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager", "stuff"];

/// Marks of work left undone.
const UNDONE: &[&str] = &["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Rust files below `folder`, with their path from the root and their text, in order.
fn sources(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the project") {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => walk(&path, files),
                false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
                false => {}
            }
        }
    }
    let folder = root().join(folder);
    let mut files = Vec::new();
    if folder.is_dir() {
        walk(&folder, &mut files);
    }
    files.sort();
    let inside = |path: &PathBuf| path.strip_prefix(root()).expect("is inside").to_string_lossy().into_owned();
    files.iter().map(|path| (inside(path), std::fs::read_to_string(path).expect("UTF-8"))).collect()
}

/// Returns the text without comments, string literals, and the tests at its end. Tests may use any names.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\n").next().expect("split gives one part at least");
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            rest[open..].find(&end).map_or(rest.len(), |found| open + found + end.len())
        } else if rest.starts_with('"') {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            0
        };
        if skip == 0 {
            let character = rest.chars().next().expect("not at the end");
            code.push(character);
            at += character.len_utf8();
        } else {
            code.push(' ');
            at += skip;
        }
    }
    code
}

/// Returns the number of `#` of the raw string at the start of `text`.
fn raw_string(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.bytes().take_while(|octet| *octet == b'#').count();
    rest[hashes..].starts_with('"').then_some(hashes)
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, octet) in text.bytes().enumerate().skip(1) {
        match octet {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn unsafe_is_in_sys_alone() {
    for (file, text) in sources("src").into_iter().chain(sources("crates")) {
        let code = code(&text);
        let mut words = code.split(|character: char| !character.is_alphanumeric() && character != '_');
        let belongs = file.starts_with("crates/dns/src/sys/") || !file.contains("src/");
        assert!(
            belongs || !words.any(|word| word == "unsafe"),
            "{file} holds unsafe code; it belongs in crates/dns/src/sys/"
        );
    }
}

#[test]
fn pure_modules_stay_pure() {
    let mut faults = Vec::new();
    for (file, text) in sources("crates") {
        // Tests in a separate file may use any names, like other tests.
        if !PURE.iter().any(|pure| file.starts_with(pure)) || file.ends_with("/tests.rs") {
            continue;
        }
        let code = code(&text);
        for word in IMPURE {
            let allowed = IMPURE_ALLOWED.iter().any(|(place, name)| file.starts_with(place) && name == word);
            if !allowed && code.contains(word) {
                faults.push(format!("{file} names {word}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_has_an_unresolved_merge() {
    let listed = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Ok(listed) = listed.map(|output| output.stdout) else { return };
    let files = listed.split(|octet| *octet == 0).filter(|name| !name.is_empty());
    for file in files.filter_map(|name| std::str::from_utf8(name).ok()) {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        let marker = text.lines().position(|line| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> "));
        assert_eq!(marker, None, "{file} has a marker of a merge");
    }
}

#[test]
fn every_file_says_what_it_is() {
    for folder in ["src", "crates", "tests", "benches"] {
        for (file, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{file} does not begin with its description (//!)");
            let stem = Path::new(&file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            assert!(!EMPTY_NAMES.contains(&stem.as_str()), "{file}: the name does not describe its content");
            if file != "tests/tidy.rs" {
                for mark in UNDONE {
                    assert!(!text.contains(mark), "{file} holds {mark}");
                }
            }
        }
    }
}

/// A doc test is a program that is linked by itself. There are none, so that no step has to build them: examples are tests.
#[test]
fn no_comment_has_a_doc_test() {
    for (file, text) in sources("src").into_iter().chain(sources("crates")) {
        let mut is_open = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or_default();
            let Some(language) = comment.trim_start().strip_prefix("```") else { continue };
            is_open = !is_open;
            let is_rust = language.is_empty() || language.starts_with("rust");
            assert!(
                !is_open || !is_rust,
                "{file}:{}: the block is a doc test; name its language, such as text",
                at + 1
            );
        }
    }
}

#[test]
fn every_dependency_says_why_it_is_here() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let mut in_dependencies = false;
    let mut explained = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            in_dependencies = line.trim_matches(['[', ']']).ends_with("dependencies");
            explained = false;
        } else if line.starts_with('#') {
            explained = !line.starts_with("# ---");
        } else if line.is_empty() {
            explained = false;
        } else if in_dependencies {
            // One comment can cover a group of lines. Packages take versions and reasons from the workspace.
            assert!(
                explained || line.ends_with(".workspace = true"),
                "Cargo.toml:{}: no comment above has the reason for this line: {line}",
                at + 1
            );
        }
    }
}
