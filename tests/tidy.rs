//! The shape of the source: which module may use which, where `unsafe` and the outside world may be, and what every file
//! begins with. A new arrow is a design change: make it here, alone, and explain it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each module may use, beside itself. Rows name only rows above them, but for the ones that say why.
const MAY_USE: &[(&str, &[&str])] = &[
    // Below everything; the pure parts use neither (see `PURE`).
    // What clients of HTTPS trust, be it for spans, keys of tokens, a strategy or numbers.
    ("trust", &[]),
    ("telemetry", &["trust"]),
    ("clock", &[]),
    // Threads that must not end by themselves say so here.
    ("ending", &[]),
    ("wire", &[]),
    ("api", &[]),
    ("sys", &[]),
    // A store on a disk asks how much room that has, which the standard library does not tell.
    ("store", &["sys", "ending"]),
    ("tls", &[]),
    ("zone", &["wire"]),
    ("tsig", &["wire"]),
    // The one who asks name servers, for controllers and commands alike.
    ("inquiry", &["wire"]),
    ("zonefile", &["wire", "zone"]),
    ("dnssec", &["wire", "zone"]),
    ("transfer", &["wire", "zone", "tsig"]),
    ("nameserver", &["wire", "zone", "dnssec", "tsig", "transfer"]),
    // Workers hold a reader of the zone map and hand its snapshot to the name server.
    ("transport", &["wire", "zone", "nameserver", "sys", "tls", "clock", "ending", "telemetry"]),
    ("httpd", &["tls", "telemetry"]),
    ("client", &["api", "clock", "trust", "telemetry"]),
    ("apiserver", &["api", "store", "httpd", "clock", "trust", "telemetry"]),
    ("compiler", &["api", "zone", "zonefile", "wire"]),
    ("scheduler", &["api", "client", "clock", "trust", "telemetry"]),
    // It keeps up with the folder of zone files, which is read by `zonefile`; its health probes trust as all our clients do.
    (
        "controller",
        &[
            "api",
            "client",
            "compiler",
            "zone",
            "zonefile",
            "transfer",
            "inquiry",
            "wire",
            "clock",
            "ending",
            "trust",
            "telemetry",
        ],
    ),
    ("agent", &["api", "client", "clock", "telemetry"]),
    ("admin", &["api", "client", "zone", "httpd", "clock", "telemetry"]),
    // The edges put everything together: `config` is what `daemon` and `cli` share.
    ("config", &["*"]),
    ("daemon", &["*"]),
    ("cli", &["*"]),
    ("main", &["*"]),
];

/// Modules that open no socket, read no file and ask for neither time nor chance: these come as arguments.
const PURE: &[&str] =
    &["wire/", "zone/", "zonefile/", "nameserver/", "compiler/", "api/", "scheduler/strategy/", "dnssec/", "tsig"];

/// What a pure module does not name.
const IMPURE: &[&str] = &[
    "std::fs",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "SystemTime",
    "Instant",
    "tokio",
    "crate::clock",
    "crate::telemetry",
    "tracing::",
    "std::env",
    "std::process",
    "rand::",
];

/// Where a pure module departs from that, and why.
const IMPURE_ALLOWED: &[(&str, &str)] = &[
    // `$INCLUDE` and the zones folder are read where they are understood.
    ("zonefile/", "std::fs"),
    // A file's age, to know one that may be written again within the same tick of its time stamp.
    ("zonefile/folder.rs", "SystemTime"),
];

/// Names of files that say nothing of what is in them.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager", "stuff"];

/// Marks of work left undone.
const UNDONE: &[&str] = &["TODO", "FIXME", "XXX", "todo!(", "unimplemented!(", "#[ignore"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below `folder`, with their path inside it and their text, in order.
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
    let inside = |path: &PathBuf| path.strip_prefix(&folder).expect("is inside").to_string_lossy().into_owned();
    files.iter().map(|path| (inside(path), std::fs::read_to_string(path).expect("UTF-8"))).collect()
}

/// The text without comments, string literals and the tests at its end. Tests may use whatever they like.
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

/// How many `#` the raw string has that `text` begins with.
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

/// The top-level modules that a file names: by `crate::x`, `crate::{x, y}`, `signpost::x`, or enough `super::`.
fn used(file: &str, code: &str) -> BTreeSet<String> {
    let depth = file.matches('/').count() + usize::from(!file.ends_with("mod.rs") && !is_root(file));
    let up = "super::".repeat(depth);
    let mut prefixes = vec!["crate::", "signpost::"];
    if depth > 0 {
        prefixes.push(&up);
    }
    let mut names = BTreeSet::new();
    for prefix in prefixes {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|character| character.is_alphanumeric() || matches!(character, '_' | ':')) {
                continue;
            }
            let after = &code[at + prefix.len()..];
            match after.strip_prefix('{') {
                Some(group) => names.extend(first_names(group)),
                None => names.extend(first_name(after)),
            }
        }
    }
    names
}

fn is_root(file: &str) -> bool {
    matches!(file, "lib.rs" | "main.rs")
}

fn first_name(text: &str) -> Option<String> {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The first names of the parts of `{a::b, c::{d, e}}`, without its opening brace.
fn first_names(group: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut part = String::new();
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(first_name(std::mem::take(&mut part).trim())),
            _ if depth == 0 => part.push(character),
            _ => {}
        }
    }
    names.extend(first_name(part.trim()));
    names
}

/// The top-level module that a file belongs to.
fn module(file: &str) -> &str {
    let first = file.split('/').next().expect("split gives one part at least");
    first.strip_suffix(".rs").unwrap_or(first)
}

#[test]
fn arrows_point_up_the_table() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut faults = Vec::new();
    for (file, text) in sources("src") {
        let module = module(&file);
        if module == "lib" {
            continue;
        }
        let Some(allowed) = table.get(module) else {
            faults.push(format!("src/{file}: module {module} is not in the table"));
            continue;
        };
        for name in used(&file, &code(&text)) {
            // What is no module is an item of the crate's root: there is none but modules.
            let known = table.contains_key(name.as_str());
            if known && name != module && !allowed.contains(&name.as_str()) && *allowed != ["*"] {
                faults.push(format!("src/{file}: {module} may not use {name}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}\nThe table is in tests/tidy.rs and DESIGN §9.", faults.join("\n"));
}

#[test]
fn the_parser_of_paths_sees_all_forms() {
    let text = "use crate::{a::{b, c}, d, e::f};\n// crate::comment\nlet x = \"crate::string\"; let y = r#\"crate::raw\"#;\n\
                fn z() { crate::g::h(); super::super::i::j(); my_crate::k(); }\n#[cfg(test)]\nmod tests { use crate::test_only; }\n";
    let names: Vec<_> = used("module/file.rs", &code(text)).into_iter().collect();
    assert_eq!(names, ["a", "d", "e", "g", "i"]);
}

#[test]
fn unsafe_is_in_sys_alone() {
    for (file, text) in sources("src") {
        let code = code(&text);
        let names_it =
            code.split(|character: char| !character.is_alphanumeric() && character != '_').any(|word| word == "unsafe");
        assert!(!names_it || module(&file) == "sys", "src/{file} holds unsafe code; it belongs in src/sys/");
    }
}

#[test]
fn pure_modules_stay_pure() {
    let mut faults = Vec::new();
    for (file, text) in sources("src") {
        if !PURE.iter().any(|pure| file.starts_with(pure)) {
            continue;
        }
        let code = code(&text);
        for word in IMPURE {
            let allowed = IMPURE_ALLOWED.iter().any(|(place, name)| file.starts_with(place) && name == word);
            if !allowed && code.contains(word) {
                faults.push(format!("src/{file} names {word}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    for folder in ["src", "tests", "benches"] {
        for (file, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{folder}/{file} does not begin with what it is (//!)");
            let stem = Path::new(&file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            assert!(!EMPTY_NAMES.contains(&stem.as_str()), "{folder}/{file}: the name says nothing of what is in it");
            if file != "tidy.rs" {
                for mark in UNDONE {
                    assert!(!text.contains(mark), "{folder}/{file} holds {mark}");
                }
            }
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
            // One comment may stand above a group of lines.
            assert!(explained, "Cargo.toml:{}: no comment above says why this is here: {line}", at + 1);
        }
    }
}
