//! The request and the response, as JSON.
//!
//! The request contains all inputs of a strategy, and the response only the decision. Readers of both ignore unknown fields, so
//! that both can grow; an incompatible change gets another `apiVersion`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::scheduler::snapshot::Shard;
use crate::world::NamespaceInfo;
use crate::world::router::RouterTarget;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::{GROUP, VERSION};

/// The maximum length of the stored reason of an answer, in characters: it is part of one line.
const REASON_CHARACTERS_MAX: usize = 256;

/// Returns the request about a Route. `routers` are those that may take it, at least one, by name; `snapshot` is the state at
/// that time.
pub fn question(route: Route, namespace: &NamespaceInfo, routers: Vec<Value>, snapshot: Value) -> Value {
    let metadata = route.metadata;
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "PlacementQuestion",
        "route": {
            "namespace": metadata.namespace.unwrap_or_default(),
            "name": metadata.name.unwrap_or_default(),
            // Equal to that of an earlier request only for the same Route.
            "uid": metadata.uid.unwrap_or_default(),
            "labels": metadata.labels.unwrap_or_default(),
            "namespaceLabels": namespace.labels,
            "host": route.spec.host.as_ref().filter(|host| !host.is_empty()),
            "spec": route.spec,
        },
        "routers": routers,
        "snapshot": snapshot,
    })
}

/// Returns a Router as a question has it.
pub fn router(router: &RouterTarget, shard: &Shard) -> Value {
    let capacity = [("soft", router.capacity.soft), ("hard", router.capacity.hard)];
    let capacity = capacity.into_iter().filter_map(|(name, routes)| Some((name.to_owned(), routes?.into())));
    let families = [(router.active.ipv4, "ipv4"), (router.active.ipv6, "ipv6")];
    let families = families.into_iter().filter(|(is_active, _)| *is_active).map(|(_, family)| family);
    json!({
        "name": router.name,
        "dns": router.dns,
        "labels": router.labels,
        "weight": router.weight,
        "capacity": capacity.collect::<Map<_, _>>(),
        // Those being bound at the moment included.
        "routes": shard.routes,
        "families": families.collect::<Vec<_>>(),
    })
}

/// Returns the scheduler's state: the newest version of any Router, the number of checked Routers, and the number of other Routes
/// with calls in flight, which no Router's `routes` counts.
pub fn snapshot(revision: Option<String>, considered: usize, undecided: usize) -> Value {
    json!({"revision": revision, "considered": considered, "undecided": undecided})
}

/// This Router.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object with the field `router`")]
pub struct Answer {
    /// The name of one of the Routers in the request.
    pub router: String,
    /// The reason, in a sentence; at most 256 characters of it are kept.
    #[serde(default)]
    pub reason: Option<String>,
    /// The score of each Router, an integer, higher is better. Scores are only shown in the explanation; they do not affect the
    /// choice.
    #[serde(default)]
    pub scores: Option<BTreeMap<String, i64>>,
}

/// The reason why a response is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The response is a list, whose members would be read as the fields in order.
    #[error("invalid type: a list, expected an object with the field `router`")]
    List,
    /// The response is not JSON, or lacks fields.
    #[error("{0}")]
    Unreadable(String),
}

impl Answer {
    /// Parses a response.
    ///
    /// # Errors
    ///
    /// The problem, in terms for the endpoint's author.
    pub fn parse(octets: &[u8]) -> Result<Answer, AnswerError> {
        let unreadable = |error: serde_json::Error| {
            // The JSON parser uses Rust's terms, which are replaced.
            let words = [("expected i64", "expected a whole number"), ("expected a map", "expected an object")];
            let text = words.iter().fold(error.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
            AnswerError::Unreadable(text)
        };
        if octets.trim_ascii_start().starts_with(b"[") {
            return Err(AnswerError::List);
        }
        let mut answer: Answer = serde_json::from_slice(octets).map_err(unreadable)?;
        answer.reason = answer.reason.as_deref().map(one_line).filter(|reason| !reason.is_empty());
        Ok(answer)
    }

    /// Returns the score of a Router in the answer.
    pub fn score(&self, router: &str) -> Option<i64> {
        self.scores.as_ref()?.get(router).copied()
    }
}

/// Returns the text as one line without invisible characters, cut if it is too long.
fn one_line(text: &str) -> String {
    let text: String = text.chars().filter(|character| !is_unseen(*character)).collect();
    let words: Vec<&str> = text.split(|character: char| character.is_whitespace() || character.is_control()).collect();
    let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// Returns whether a character is invisible, or changes the direction of others, so that a text is displayed differently (Unicode
/// TR 36 §2.4). The two joiners stay, because words of some languages need them.
fn is_unseen(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::filter::tests;

    #[test]
    fn a_question_holds_what_a_strategy_may_go_by() {
        let route = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"namespace": "shop", "name": "front", "uid": "u1", "labels": {"tier": "gold"}},
            "spec": {"host": "www.shop.example", "path": "/buy"},
        });
        let route: Route = serde_json::from_value(route).expect("a Route");
        let namespace = NamespaceInfo { labels: [("team".to_owned(), "a".to_owned())].into(), ..Default::default() };
        let addresses = json!([{"ip": "192.0.2.1"}, {"ip": "2001:db8::1", "state": "drained"}]);
        let target = tests::router("shard1", json!({"weight": 3, "capacity": {"hard": 9}, "addresses": addresses}));
        let routers = vec![router(&target, &Shard { routes: 4, ..Shard::default() })];
        let snapshot = snapshot(Some("7".to_owned()), 2, 1);
        assert_eq!(
            question(route, &namespace, routers, snapshot),
            json!({
                "apiVersion": "signpost.dev/v1alpha1", "kind": "PlacementQuestion",
                "route": {
                    "namespace": "shop", "name": "front", "uid": "u1", "labels": {"tier": "gold"},
                    "namespaceLabels": {"team": "a"}, "host": "www.shop.example",
                    "spec": {"host": "www.shop.example", "path": "/buy"},
                },
                "routers": [{
                    "name": "shard1", "dns": "shard1.v3.example", "labels": {}, "weight": 3, "capacity": {"hard": 9},
                    "routes": 4, "families": ["ipv4"],
                }],
                "snapshot": {"revision": "7", "considered": 2, "undecided": 1},
            })
        );
    }

    #[test]
    fn answers() {
        for (text, expected) in [
            (r#"{"router":"a"}"#, Ok(("a", None, None))),
            (r#"{"router":"a","reason":null,"scores":null}"#, Ok(("a", None, None))),
            (r#"{"router":"a","kind":"x","reason":" it\n is\u0007 near ","scores":{"a":5,"b":-1}}"#, {
                Ok(("a", Some("it is near"), Some(5)))
            }),
            (r#"{"router":"a","reason":"\n"}"#, Ok(("a", None, None))),
            (r#"{"router":"a","reason":"\u202e\u200e"}"#, Ok(("a", None, None))),
            (r#"{"router":"a","reason":"near\u202e it\u2066s\u200b a\u2069 \ufeffb"}"#, {
                Ok(("a", Some("near its a b"), None))
            }),
            (r#""a""#, Err("invalid type: string \"a\", expected an object with the field `router` at")),
            ("[]", Err("expected an object with the field `router`")),
            (r#" ["a","near",null]"#, Err("expected an object with the field `router`")),
            ("", Err("EOF")),
            ("shard1", Err("expected value")),
            (r#"{"router":7}"#, Err("invalid type")),
            (r#"{"reason":"x"}"#, Err("missing field `router`")),
            (
                r#"{"router":"a","scores":{"a":0.5}}"#,
                Err("invalid type: floating point `0.5`, expected a whole number"),
            ),
            (r#"{"router":"a","scores":7}"#, Err("invalid type: integer `7`, expected an object")),
            (r#"{"router":"a"} x"#, Err("trailing")),
        ] {
            let answer = Answer::parse(text.as_bytes());
            match expected {
                Ok((router, reason, score)) => {
                    let answer = answer.unwrap_or_else(|error| panic!("{text}: {error}"));
                    assert_eq!((answer.router.as_str(), answer.reason.as_deref()), (router, reason), "{text}");
                    assert_eq!(answer.score("a"), score, "{text}");
                }
                Err(part) => {
                    let error = answer.expect_err(text).to_string();
                    assert!(error.contains(part), "{text}: {error}");
                }
            }
        }
        let long = json!({"router": "a", "reason": "ä ".repeat(1000)}).to_string();
        let reason = Answer::parse(long.as_bytes()).expect("it is one").reason.expect("it has one");
        assert!(reason.chars().count() <= REASON_CHARACTERS_MAX + 1 && reason.ends_with("ä…"), "{reason}");
    }
}
