//! Requests as clients send them, with the answers they expect: recorded from `kubectl` (a file for each kind of work), and
//! written down for what it never sends.
//!
//! ```text
//! # whose requests these are
//! ### METHOD /path?query
//! Header: value
//!
//! body: text, or `hex` and octets in hexadecimal
//! => status
//! header: value
//!
//! answer: JSON, or `text …`, or `line` and the JSON of each line of a watch
//! ```
//!
//! Files are played in the order of their names against one server. In an expected answer, `…` matches any text (alone, any
//! value), an object can have more members than are listed, `null` is a member that must be absent, `{{=name}}` stores a value,
//! and `{{name}}` inserts it, in requests as well. Entries of `managedFields` are compared in any order.

use std::collections::BTreeMap;

use serde_json::Value;
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_ADMIN};

use crate::support::Server;

#[tokio::test]
async fn every_recorded_request_is_answered_as_expected() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api_server/recorded");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder of the project")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let server = Server::start().await;
    let mut failures = Vec::new();
    let mut count = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).expect("UTF-8");
        let name = file.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let mut kept = BTreeMap::new();
        for exchange in exchanges(&text) {
            count += 1;
            if let Err(why) = exchange.play(&server, &mut kept).await {
                failures.push(format!("{name}:{}: {} {}\n  {why}", exchange.line, exchange.method, exchange.path));
            }
        }
    }
    assert!(count > 100, "only {count} requests were found");
    assert!(failures.is_empty(), "{} of {count} went otherwise:\n{}", failures.len(), failures.join("\n"));
}

/// A request and its answer.
struct Exchange<'a> {
    line: usize,
    method: &'a str,
    path: &'a str,
    headers: Vec<&'a str>,
    body: String,
    status: u16,
    expected_headers: Vec<&'a str>,
    expected: String,
}

fn exchanges(text: &str) -> Vec<Exchange<'_>> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let Some(request) = line.strip_prefix("### ") else { continue };
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let mut until = |end: &dyn Fn(&str) -> bool| {
            let mut taken = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !end(line)) {
                taken.push(line);
            }
            taken
        };
        let headers = until(&|line| line.is_empty() || line.starts_with("=> "));
        let body = until(&|line| line.starts_with("=> ")).join("\n").trim().to_owned();
        let status = until(&|line| !line.starts_with("=> "));
        let status = status.first().and_then(|line| line["=> ".len()..].trim().parse().ok()).expect("a status");
        let expected_headers = until(&str::is_empty);
        let expected = until(&|line| line.starts_with("### ") || line.starts_with("# ")).join("\n").trim().to_owned();
        found.push(Exchange { line: index + 1, method, path, headers, body, status, expected_headers, expected });
    }
    found
}

impl Exchange<'_> {
    async fn play(&self, server: &Server, kept: &mut BTreeMap<String, String>) -> Result<(), String> {
        let fill = |text: &str| {
            kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
        };
        let body = match self.body.strip_prefix("hex ") {
            Some(octets) => octets
                .split_whitespace()
                .map(|octet| u8::from_str_radix(octet, 16).expect("octets in hexadecimal"))
                .collect(),
            None => fill(&self.body).into_bytes(),
        };
        let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
        let sender = Identity { user: USER_ADMIN.to_owned(), groups };
        let path = fill(self.path);
        let reply = server.send_as(Some(sender), self.method, &path, &self.headers, body).await;
        if reply.status != self.status {
            return Err(format!("status {}, not {}: {}", reply.status, self.status, reply.text));
        }
        for header in &self.expected_headers {
            let (name, value) = header.split_once(": ").expect("a header");
            let found = reply.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
            if !text_matches(value, found) {
                return Err(format!("{name} is {found:?}, not {value:?}"));
            }
        }
        if let Some(text) = self.expected.strip_prefix("text ") {
            return match text_matches(text.trim(), reply.text.trim()) {
                true => Ok(()),
                false => Err(format!("the answer is {:?}", reply.text)),
            };
        }
        if self.expected.is_empty() {
            return Ok(());
        }
        let expected: Vec<&str> = match self.expected.starts_with("line ") {
            true => self.expected.lines().filter_map(|line| line.strip_prefix("line ")).collect(),
            false => vec![&self.expected],
        };
        let found: Vec<Value> = serde_json::Deserializer::from_str(&reply.text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| format!("{error}: {}", reply.text))?;
        if expected.len() != found.len() {
            return Err(format!("{} lines, not {}: {}", found.len(), expected.len(), reply.text));
        }
        for (expected, found) in expected.iter().zip(&found) {
            let expected: Value = serde_json::from_str(expected).map_err(|error| format!("{error} in {expected}"))?;
            matches(&expected, found, "", kept).map_err(|why| format!("{why}\n  in {found}"))?;
        }
        Ok(())
    }
}

fn matches(expected: &Value, found: &Value, at: &str, kept: &mut BTreeMap<String, String>) -> Result<(), String> {
    match (expected, found) {
        (Value::String(any), _) if any == "…" => Ok(()),
        (Value::Object(expected), Value::Object(found)) => {
            for (name, value) in expected {
                let at = format!("{at}/{name}");
                match (value, found.get(name)) {
                    (Value::Null, None | Some(Value::Null)) => {}
                    (Value::Null, Some(other)) => return Err(format!("{at} is {other}, and should not be there")),
                    (value, Some(found)) => matches(value, found, &at, kept)?,
                    (_, None) => return Err(format!("{at} is missing")),
                }
            }
            Ok(())
        }
        // Their order follows the seconds of their times, which are others at every play.
        (Value::Array(expected), Value::Array(found)) if at.ends_with("/managedFields") => {
            let key = |entry: &Value| ["manager", "operation", "subresource"].map(|name| entry[name].clone());
            if expected.len() != found.len() {
                return Err(format!("{at} has {} entries, not {}", found.len(), expected.len()));
            }
            for entry in expected {
                let same = found.iter().find(|found| key(found) == key(entry));
                let same = same.ok_or_else(|| format!("{at} has none of {:?}", key(entry)))?;
                matches(entry, same, &format!("{at}/{}", entry["manager"]), kept)?;
            }
            Ok(())
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs
                .into_iter()
                .try_for_each(|(index, (value, found))| matches(value, found, &format!("{at}/{index}"), kept))
        }
        (Value::String(expected), Value::String(found)) => {
            if let Some(name) = expected.strip_prefix("{{=").and_then(|rest| rest.strip_suffix("}}")) {
                kept.insert(name.to_owned(), found.clone());
                return Ok(());
            }
            let expected = kept
                .iter()
                .fold(expected.clone(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
            match text_matches(&expected, found) {
                true => Ok(()),
                false => Err(format!("{at} is {found:?}, not {expected:?}")),
            }
        }
        (expected, found) if expected == found => Ok(()),
        (expected, found) => Err(format!("{at} is {found}, not {expected}")),
    }
}

fn text_matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|head| text.strip_prefix(head)) else { return false };
    let mut tail = None;
    for part in parts {
        if let Some(part) = tail.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    tail.map_or(rest.is_empty(), |tail| rest.ends_with(tail))
}
