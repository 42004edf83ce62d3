//! The audit log: all changes and rejected requests with their users, as Kubernetes' audit events.
//!
//! The log has one event per recorded request ([`Policy`]), at the level `Metadata` and the stage `ResponseComplete`. It never
//! contains a body or a header except the user agent, and no message that could quote a secret object. The event is created when the response is known, and
//! passed to the writer of the file ([`log`]) through a bounded queue: requests do not wait for the disk. If the queue is full,
//! the event is counted as lost, and the process logs an error. Of clients without credentials, a few events per second are
//! written, and the others are counted (`limit`), so that they cannot push other events out of the log.

mod limit;
pub mod log;

use std::time::Instant;

use http::header;
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::limit::StrangerLimit;
use self::log::Log;
use super::auth::AuthMethod;
use super::auth::Sender;
use super::auth::impersonate::Subject;
use super::request::{Target, Verb};
use crate::auth::identity::Identity;
use crate::json_scan::present;
use signpost_runtime::httpd::Peer;

/// The maximum length of a client's text in an event, in octets: path and query, user agent, a message that quotes them.
const TEXT_OCTETS_MAX: usize = 2_048;
/// The maximum number of a user's groups in an event.
const GROUPS_MAX: usize = 64;

/// The policy: which requests are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Writes and rejected requests, except reviews, and Leases and Events written by the process's own loops.
    Writes,
    /// Reads as well.
    All,
}

/// The audit log of a server.
pub struct Audit {
    policy: Policy,
    log: Log,
    strangers: Mutex<StrangerLimit>,
}

/// The attributes of a request at the time of its response, collected as the request passes the handler chain.
#[derive(Default)]
pub(crate) struct RequestAttributes {
    pub(crate) target: Option<Target>,
    pub(crate) verb: Option<Verb>,
    pub(crate) sender: Option<Sender>,
    pub(crate) subject: Option<Subject>,
}

/// The outcome of a request.
pub(crate) struct RequestOutcome<'a> {
    /// HTTP status.
    pub(crate) code: u16,
    /// Reason and message of a failure.
    pub(crate) failure: Option<(&'a str, &'a str)>,
    /// The created object, if any.
    pub(crate) made: Option<&'a CreatedObject>,
}

/// The object that a create made, as an extension of the response: the server may have chosen its name.
#[derive(Debug, Clone)]
pub(crate) struct CreatedObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) revision: u64,
}

impl Audit {
    /// Returns a log into `log`.
    pub fn new(policy: Policy, log: Log) -> Self {
        Audit { policy, log, strangers: Mutex::default() }
    }

    /// Returns the file and its numbers.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Records a request if the policy includes it.
    pub(crate) fn record(
        &self,
        id: &str,
        parts: &Parts,
        received: Timestamp,
        facts: &RequestAttributes,
        ending: &RequestOutcome<'_>,
    ) {
        if !self.counts(facts, ending.code) {
            return;
        }
        if !self.has_room(facts) {
            return self.log.suppress();
        }
        let event = event(id, parts, received, facts, ending);
        self.log.write(format!("{event}\n").into_bytes());
    }

    fn counts(&self, facts: &RequestAttributes, code: u16) -> bool {
        if self.policy == Policy::All || matches!(code, 401 | 403) {
            return true;
        }
        match &facts.target {
            Some(Target::Resource(resource)) if is_write(facts) => {
                // A leader renews its Lease every few seconds, and reports each decision with an Event.
                let own = facts.sender.as_ref().is_some_and(|sender| sender.proof == AuthMethod::InProcess);
                !(own && matches!(resource.kind.plural, "leases" | "events"))
            }
            _ => false,
        }
    }

    /// Returns whether the sender has credentials, or there is room for another event of a sender without them.
    fn has_room(&self, facts: &RequestAttributes) -> bool {
        let is_known = facts.sender.as_ref().is_some_and(|sender| sender.proof != AuthMethod::Nothing);
        is_known || self.strangers.lock().take(Instant::now())
    }
}

fn is_write(facts: &RequestAttributes) -> bool {
    facts.verb.is_some_and(|verb| !matches!(verb, Verb::Get | Verb::List | Verb::Watch))
}

/// Returns the `audit.k8s.io/v1` Event of a request.
fn event(
    id: &str,
    parts: &Parts,
    received: Timestamp,
    facts: &RequestAttributes,
    ending: &RequestOutcome<'_>,
) -> Value {
    let method = parts.method.as_str();
    let verb = match facts.verb {
        Some(verb) => verb.as_str(),
        None if method == "HEAD" || method == "GET" => "get",
        // Custom methods can be any text; those of HTTP are short.
        None => cut(method, 32),
    };
    let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let impersonated = facts.subject.as_ref().map(|subject| {
        let mut user = user(&subject.identity);
        user["uid"] = json!(subject.uid);
        user["extra"] = json!(Some(&subject.extra).filter(|extra| !extra.is_empty()));
        present(user)
    });
    present(json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": id,
        "stage": "ResponseComplete",
        "requestURI": cut(parts.uri.path_and_query().map_or("/", |uri| uri.as_str()), TEXT_OCTETS_MAX),
        "verb": verb,
        "user": facts.sender.as_ref().map_or_else(|| json!({}), |sender| user(&sender.identity)),
        "impersonatedUser": impersonated,
        "sourceIPs": parts.extensions.get::<Peer>().map(|peer| [peer.0.ip().to_canonical().to_string()]),
        "userAgent": agent.map(|agent| cut(agent, TEXT_OCTETS_MAX)),
        "objectRef": facts.target.as_ref().and_then(|target| object_reference(target, ending.made)),
        "responseStatus": present(json!({
            "metadata": {},
            "status": ending.failure.map(|_| "Failure"),
            "message": ending.failure.filter(|_| !quotes_a_secret(facts, ending)).map(|(_, message)| cut(message, TEXT_OCTETS_MAX)),
            "reason": ending.failure.map(|(reason, _)| reason),
            "code": ending.code,
        })),
        "requestReceivedTimestamp": micro_time(received),
        "stageTimestamp": micro_time(Timestamp::now()),
    }))
}

/// Returns whether the message of a failure can quote the body of a request about a secret object. Refusals of rights, quotas, and
/// names do not.
fn quotes_a_secret(facts: &RequestAttributes, ending: &RequestOutcome<'_>) -> bool {
    let is_secret = matches!(&facts.target, Some(Target::Resource(resource)) if resource.kind.is_secret);
    is_secret && !matches!(ending.code, 401 | 403 | 404)
}

fn user(identity: &Identity) -> Value {
    let groups = &identity.groups[..identity.groups.len().min(GROUPS_MAX)];
    present(json!({"username": identity.user, "groups": Some(groups).filter(|groups| !groups.is_empty())}))
}

fn object_reference(target: &Target, made: Option<&CreatedObject>) -> Option<Value> {
    let (group, mut reference) = match target {
        Target::Resource(resource) => {
            let reference = json!({
                "resource": resource.kind.plural,
                "namespace": resource.namespace,
                "name": resource.name.as_deref().or_else(|| made.map(|made| made.name.as_str())),
                "uid": made.map(|made| made.uid.as_str()),
                "apiVersion": resource.kind.version,
                "resourceVersion": made.map(|made| made.revision.to_string()),
                "subresource": resource.subresource.map(|subresource| subresource.as_str()),
            });
            (resource.kind.group, reference)
        }
        Target::Review { review, namespace } => {
            let reference = json!({"resource": review.plural, "namespace": namespace, "apiVersion": review.version});
            (review.group, reference)
        }
        Target::Path(_) => return None,
    };
    reference["apiGroup"] = json!(Some(group).filter(|group| !group.is_empty()));
    Some(present(reference))
}

/// Returns the longest prefix of a text of at most `octets`, cut between characters.
fn cut(text: &str, octets: usize) -> &str {
    let end = (0..=octets.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds() {
        for (nanosecond, text) in [(0, "2026-01-01T00:00:00.000000Z"), (1_234_999, "2026-01-01T00:00:00.001234Z")] {
            let time = Timestamp::new(1_767_225_600, nanosecond).expect("a time");
            assert_eq!(micro_time(time), text);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("äö", 3), "ä");
        assert_eq!(cut("ab", 3), "ab");
    }
}
