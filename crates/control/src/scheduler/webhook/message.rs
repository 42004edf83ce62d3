//! What is asked and answered, as JSON.
//!
//! The question holds all that a strategy may go by, and the answer only what it decided. Readers of either pass over fields
//! that they do not know, so that both can grow; a change that readers would stumble over gets another `apiVersion`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scheduler::snapshot::Shard;
use crate::world::NamespaceInfo;
use crate::world::router::{Labels, RouterTarget};
use signpost_api::v1alpha1::route::{Route, RouteSpec};
use signpost_api::v1alpha1::{GROUP, VERSION};

/// `kind` of a question.
pub const QUESTION_KIND: &str = "PlacementQuestion";
/// Longest reason that is kept of an answer, in characters: it stands in one line beside other things.
const REASON_CHARACTERS_MAX: usize = 256;

/// Which Router shall have this route?
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// `signpost.dev/v1alpha1`.
    pub api_version: String,
    /// [`QUESTION_KIND`].
    pub kind: &'static str,
    /// The Route to place.
    pub route: AskedRoute,
    /// The Routers that may take it, at least one, by name.
    pub routers: Vec<AskedRouter>,
    /// What the scheduler knew when it asked.
    pub snapshot: AskedSnapshot,
}

/// A Route, in a question.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedRoute {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: the same as in an earlier question only for the same Route.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
    /// Its namespace's labels.
    pub namespace_labels: Labels,
    /// `spec.host`, if it is not empty.
    pub host: Option<String>,
    /// Its spec.
    pub spec: RouteSpec,
}

/// A Router that may take the Route.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedRouter {
    /// Its name, which the answer is to give.
    pub name: String,
    /// Its zone.
    pub dns: String,
    /// Its labels.
    pub labels: Labels,
    /// `spec.weight`.
    pub weight: u32,
    /// `spec.capacity`, as far as it is set.
    pub capacity: AskedCapacity,
    /// How many routes it has, those being bound at the moment included.
    pub routes: u32,
    /// Of which families it has active addresses: `ipv4`, `ipv6`.
    pub families: Vec<&'static str>,
}

/// A Router's capacity.
#[derive(Debug, Clone, Serialize)]
pub struct AskedCapacity {
    /// Above this many routes others are preferred: those that have reached it are asked about only when all have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft: Option<u32>,
    /// At this many it takes no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard: Option<u32>,
}

/// What the scheduler knew when it asked.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedSnapshot {
    /// The newest version of any Router.
    pub revision: Option<String>,
    /// How many Routers were looked at.
    pub considered: usize,
    /// How many other routes are being asked about at the same time. `routes` counts none of them.
    pub undecided: usize,
}

impl Question {
    /// The question about a Route.
    pub fn new(
        route: Route,
        namespace: &NamespaceInfo,
        routers: Vec<AskedRouter>,
        snapshot: AskedSnapshot,
    ) -> Question {
        let metadata = route.metadata;
        Question {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: QUESTION_KIND,
            route: AskedRoute {
                namespace: metadata.namespace.unwrap_or_default(),
                name: metadata.name.unwrap_or_default(),
                uid: metadata.uid.unwrap_or_default(),
                labels: metadata.labels.unwrap_or_default(),
                namespace_labels: namespace.labels.clone(),
                host: route.spec.host.clone().filter(|host| !host.is_empty()),
                spec: route.spec,
            },
            routers,
            snapshot,
        }
    }
}

impl AskedRouter {
    /// What a question tells of a Router.
    pub fn new(router: &RouterTarget, shard: &Shard) -> AskedRouter {
        let families = [(router.active.ipv4, "ipv4"), (router.active.ipv6, "ipv6")];
        AskedRouter {
            name: router.name.clone(),
            dns: router.dns.clone(),
            labels: router.labels.clone(),
            weight: router.weight,
            capacity: AskedCapacity { soft: router.capacity.soft, hard: router.capacity.hard },
            routes: shard.routes,
            families: families.into_iter().filter(|(has, _)| *has).map(|(_, family)| family).collect(),
        }
    }
}

/// This Router.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object with the field `router`")]
pub struct Answer {
    /// Name of one of the Routers asked about.
    pub router: String,
    /// Why, in a sentence for people; at most 256 characters of it are kept.
    #[serde(default)]
    pub reason: Option<String>,
    /// How good each Router is, in whole numbers, higher is better. Only told to people, not looked at.
    #[serde(default)]
    pub scores: Option<BTreeMap<String, i64>>,
}

/// Why an answer is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is a list: its members in their order would be taken for the fields.
    #[error("invalid type: a list, expected an object with the field `router`")]
    List,
    /// It is not JSON, or lacks fields.
    #[error("{0}")]
    Unreadable(String),
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words for the endpoint's author.
    pub fn parse(octets: &[u8]) -> Result<Answer, AnswerError> {
        let told = |error: serde_json::Error| {
            // What reads the answer says it in the words of our language.
            let words = [("expected i64", "expected a whole number"), ("expected a map", "expected an object")];
            let text = words.iter().fold(error.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
            AnswerError::Unreadable(text)
        };
        if octets.trim_ascii_start().starts_with(b"[") {
            return Err(AnswerError::List);
        }
        let mut answer: Answer = serde_json::from_slice(octets).map_err(told)?;
        answer.reason = answer.reason.as_deref().map(one_line).filter(|reason| !reason.is_empty());
        Ok(answer)
    }

    /// The score that it gives a Router.
    pub fn score(&self, router: &str) -> Option<i64> {
        self.scores.as_ref()?.get(router).copied()
    }
}

/// The text as one line without what cannot be seen, cut where it is too long.
fn one_line(text: &str) -> String {
    let text: String = text.chars().filter(|character| !is_unseen(*character)).collect();
    let words: Vec<&str> = text.split(|character: char| character.is_whitespace() || character.is_control()).collect();
    let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// Whether a character takes no room, or changes the direction of others: with those a text reads as something else than it is
/// (Unicode TR 36 §2.4). The two joiners stay, which words of some languages need.
fn is_unseen(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::filter::tests::router;
    use serde_json::json;

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
        let facts = router("shard1", json!({"weight": 3, "capacity": {"hard": 9}, "addresses": addresses}));
        let routers = vec![AskedRouter::new(&facts, &Shard { routes: 4, ..Shard::default() })];
        let snapshot = AskedSnapshot { revision: Some("7".to_owned()), considered: 2, undecided: 1 };
        let question = Question::new(route, &namespace, routers, snapshot);
        assert_eq!(
            serde_json::to_value(question).expect("it is JSON"),
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
