//! ChallengeRecord: a TXT record that proves the control of a name to a certification authority.
//!
//! Name servers create these for ACME clients that update DNS (RFC 2136), and the leader for the platform's own certificates. A
//! certificate of a name of another namespace would let its owner take that name's traffic, so a record must be about a name that a
//! RouteBinding of its namespace has, even if the platform writes it. The compiler of zones checks this again, for APIs without these hooks, and
//! because the Route can go before its record.

use std::sync::LazyLock;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::rules::expr::{old, this};
use crate::rules::{self, Rule};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{AGE, Column};
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader};
use signpost_types::names::{self, ACME_CHALLENGE_LABEL};
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, EXPIRY_HOURS_MAX, VALUES_MAX};

pub static CHALLENGE_RECORD: LazyLock<Kind> =
    LazyLock::new(|| Kind::of::<ChallengeRecord>().with_columns(COLUMNS).selectable_by(&["spec.name", "spec.key"]));

const COLUMNS: &[Column] = &[
    Column::new("Name", &["spec.name"], "The name of the TXT record."),
    Column::new("Key", &["spec.key"], "The TSIG key that added it; blank: the platform."),
    Column::new("Expires", &["spec.expiresAt"], "The time at which it is deleted."),
    AGE,
    Column::new("Value", &["spec.value"], "The text of the record.").wide(),
];

pub(super) struct ChallengeRecords {
    rules: Vec<Rule>,
    domain: String,
}

impl ChallengeRecords {
    pub(super) fn new(domain: &str) -> Self {
        ChallengeRecords { rules: rules(Some(domain)), domain: domain.to_owned() }
    }
}

#[async_trait]
impl Hooks for ChallengeRecords {
    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = rules::check(&self.rules, old, new);
        if old.is_none() {
            causes.extend(expiry_fault(context.now, new));
        }
        causes
    }

    async fn before_commit(&self, _: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        if let Operation::Create(new) = operation {
            self.check_name(new, reader)?;
            check_number(new, reader)?;
        }
        Ok(Vec::new())
    }
}

impl ChallengeRecords {
    /// Rejects a record about a name that no RouteBinding of its namespace has.
    fn check_name(&self, new: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
        let (namespace, name) = (text(&new["metadata"]["namespace"]), text(&new["spec"]["name"]));
        if namespace == SCHEDULER_LEASE_NAMESPACE {
            return Ok(());
        }
        let acme = names::acme_zone(&self.domain);
        let label = name.strip_suffix(&acme).and_then(|rest| rest.strip_suffix('.'));
        let host = name.strip_prefix(ACME_CHALLENGE_LABEL).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
        let first = label.unwrap_or_else(|| host.split('.').next().unwrap_or_default());
        let has = |binding: &Value| label.is_some() || names_of(binding).any(|name| name.eq_ignore_ascii_case(host));
        let labelled = reader.selected("RouteBinding", namespace, "spec.label", first)?;
        let is_own = labelled.iter().any(has)
            || (label.is_none() && reader.list("RouteBinding", Some(namespace))?.iter().any(has));
        // A certificate of a shard would be one of all its names.
        let is_shard = label.is_none() && reader.get("Zone", None, host)?.is_some();
        if is_own && !is_shard {
            return Ok(());
        }
        let message = match is_shard {
            true => format!("{host} is the zone of a Router; only the platform can prove it"),
            false => format!("no Route of namespace {namespace} has this name"),
        };
        Err(ApiError::invalid(
            &CHALLENGE_RECORD,
            text(&new["metadata"]["name"]),
            vec![Cause::invalid("spec.name", &new["spec"]["name"], &message)],
        ))
    }
}

/// Returns the names of a binding, and its former ones, without the asterisk of a wildcard.
fn names_of(binding: &Value) -> impl Iterator<Item = &str> {
    let of = |list: &'static str| binding["spec"][list].as_array().into_iter().flatten();
    let names = of("names").chain(of("formerNames")).map(|one| text(&one["name"]));
    names.map(|name| name.strip_prefix("*.").unwrap_or(name))
}

/// Rejects a value beyond [`VALUES_MAX`] of a name.
fn check_number(new: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    if reader.count("ChallengeRecord", "spec.name", text(&new["spec"]["name"]))? < VALUES_MAX {
        return Ok(());
    }
    let message = format!("{} has {VALUES_MAX} values, which is the maximum", text(&new["spec"]["name"]));
    Err(ApiError::forbidden(&CHALLENGE_RECORD, text(&new["metadata"]["name"]), &message))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn expiry_fault(now: Timestamp, object: &Value) -> Option<Cause> {
    let expires = &object["spec"]["expiresAt"];
    let at: Timestamp = expires.as_str()?.parse().ok()?;
    let longest = SignedDuration::from_hours(EXPIRY_HOURS_MAX);
    let is_allowed = at > now && at.duration_since(now) <= longest;
    let message = format!("must be in the future, and at most {EXPIRY_HOURS_MAX} hours from now");
    (!is_allowed).then(|| Cause::invalid("spec.expiresAt", expires, &message))
}

/// Returns the rules of ChallengeRecords.
pub(crate) fn rules(domain: Option<&str>) -> Vec<Rule> {
    let name = || this();
    let acme = match domain {
        Some(domain) => name().ends_with(format!(".{}", names::acme_zone(domain)).as_str()),
        None => name().matches("^[a-z0-9-]+[.]acme[.]"),
    };
    let immutable = "field is immutable; create another ChallengeRecord, and delete this one";
    let mut rules = rules::immutable(&["name", "value", "expiresAt"], immutable);
    let key = || this().field("key").is(old().field("key"));
    rules.extend([
        Rule::new("spec", this().has("key").choose(old().has("key") & key(), !old().has("key")), immutable)
            .about("key"),
        Rule::new("spec.name", this().matches("^[a-z0-9_.-]+$"), "must be a domain name in lower case"),
        Rule::new(
            "spec.name",
            name().starts_with(format!("{ACME_CHALLENGE_LABEL}.").as_str()) | acme,
            "must be _acme-challenge.<name of a Route>, or <label>.acme.<platform domain>",
        ),
        Rule::new("spec.value", this().matches("^[ -~]+$"), "must be printable ASCII"),
    ]);
    rules
}
