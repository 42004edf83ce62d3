//! NameClaim: the registry of names. A label has one holder. Another Route can claim it only after it was released and its
//! quarantine has passed. A host belongs to one namespace, whose Routes share it, each with another path.
//!
//! A wildcard host and a host that it covers are two claims, and two namespaces must not hold them: otherwise, the holder of
//! `*.shop.example` could lose names below it to any other user, and vice versa. The leading scheduler decides which claim is
//! admitted. The transaction that writes the claim checks this again, because a scheduler that has lost its lease without
//! noticing could admit one of them while its successor admits the other. A claim on a covered host therefore requires that the
//! wildcards above it are unchanged since they were read. A claim on a wildcard requires that the conflict key of the hosts below
//! it was not touched. A host that the router of a source admitted may overlap others: that router accepts both.

use std::sync::LazyLock;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::identity::is_of_the_platform;
use crate::kinds::{conflict_keys, route};
use crate::rules::expr::{item, old, this};
use crate::rules::{self, Rule};
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{self, AGE, Cell, Column};
use signpost_apiserver::registry::made;
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader, RelatedWrite, SideEffect};
use signpost_types::v1alpha1::name_claim::{CLAIM_LABEL, CLAIM_LABEL_LABEL, Holder, NameClaim};
use signpost_types::{names, paths};

/// The maximum size of a NameClaim: 200 Routes that share a host have half of it.
const BYTES_MAX: usize = 256 << 10;
/// The maximum number of NameClaims for each Route, which needs one for its label and one for its host.
const CLAIMS_OF_ROUTE: usize = 4;
/// The bytes of all NameClaims together, for each that their number permits. A label has 0.7 KiB, and a Route that shares a host with the
/// longest path 1.5 KiB.
const BYTES_EACH: u64 = 2 << 10;

pub static NAME_CLAIM: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<NameClaim>().with_columns(COLUMNS).selectable_by(&[
        "spec.type",
        "spec.value",
        "spec.holder.namespace",
        "spec.holder.name",
        "spec.holder.uid",
        "spec.quarantineUntil",
    ])
});

const COLUMNS: &[Column] = &[
    Column::new("Type", &["spec.type"], "Type of the claimed name: `label` or `host`."),
    Column::new("Value", &["spec.value"], "The label or the host."),
    Column::new(
        "Holder",
        &["spec.holder.namespace", "spec.holder.name", "spec.sharers"],
        "The Route that holds the name, or held it last, and the number of others that share the host.",
    )
    .with_cell(|read, _| match (read[0].text(), read[1].text(), read[2].items().count()) {
        (Some(namespace), Some(name), 0) => Cell::text(format!("{namespace}/{name}")),
        (Some(namespace), Some(name), others) => Cell::text(format!("{namespace}/{name} (+{others})")),
        _ => Cell::Blank,
    }),
    Column::new("Released", &["spec.releasedAt"], "Time since the holder released the name.")
        .of_type("date")
        .with_cell(|read, now| columns::since(read[0], now)),
    AGE,
    Column::new(
        "Quarantine-Until",
        &["spec.quarantineUntil"],
        "End of the quarantine; until then, only a Route with the same namespace and name can claim a label, and only a Route \
         of the namespace a host.",
    )
    .wide(),
    Column::new("Holder-UID", &["spec.holder.uid"], "The Route's uid.").wide(),
];

pub(super) struct NameClaims {
    /// The maximum number of labels, and of hosts, that a namespace has in quarantine.
    pub(super) quarantine: usize,
}

#[async_trait]
impl Hooks for NameClaims {
    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = rules::check(&RULES, old, new);
        match old {
            Some(old) => causes.extend(takeover_fault(context.now, &old["spec"], &new["spec"])),
            None if causes.iter().all(|cause| cause.field != "spec.value") => causes.extend(name_fault(new)),
            None => {}
        }
        causes
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        if let Operation::Update { old, new } = operation
            && is_released(new)
            && !is_of_the_platform(context.identity)
        {
            // A name is released by the deletion of its claim, except in quarantine. The platform's control loops release
            // names that their Route does not use any longer.
            guard_delete(old, reader)?;
        }
        match operation {
            Operation::Create(new) => within_limits(None, self.quarantine, new, reader)?,
            Operation::Update { old, new } => within_limits(Some(old), self.quarantine, new, reader)?,
            Operation::Delete { .. } | Operation::Release { .. } => {}
        }
        match operation {
            Operation::Create(claim) if holds_host(claim) => guard_overlap(context.now, claim, reader).await,
            Operation::Update { old, new }
                if holds_host(new) && (!holds_host(old) || namespace_of(old) != namespace_of(new)) =>
            {
                guard_overlap(context.now, new, reader).await
            }
            Operation::Create(_) | Operation::Update { .. } => Ok(Vec::new()),
            // Repeated at the end of a deletion: a Route may have taken over the claim while a finalizer held it.
            Operation::Delete { old, .. } | Operation::Release { old } => {
                guard_delete(old, reader)?;
                Ok(Vec::new())
            }
        }
    }
}

/// Returns a new claim on a label that was never claimed, equal to a claim that is created alone. It is written in the
/// transaction of the binding that needs it, if no claim exists at the commit.
pub(super) fn of_label(context: &Context<'_>, label: &str, holder: &Holder) -> Result<RelatedWrite, ApiError> {
    let kind = &*NAME_CLAIM;
    let name = names::label_claim_name(label);
    let spec = json!({"type": "label", "value": label, "holder": holder, "since": Time(context.now)});
    let metadata = json!({"name": name, "labels": {CLAIM_LABEL: CLAIM_LABEL_LABEL}});
    let claim = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec});
    let effect = SideEffect::Put(made(context, kind, claim)?);
    Ok(RelatedWrite { kind: kind.kind, namespace: None, name, expect: None, effect })
}

/// Rejects a claim that exceeds [`BYTES_MAX`], and one beyond [`CLAIMS_OF_ROUTE`] and twice what namespaces can have in quarantine:
/// labels and hosts, each with [`BYTES_EACH`]. Otherwise, a client with a scheduler's credential could fill the store with them.
fn within_limits(old: Option<&Value>, quarantine: usize, claim: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let found = claim.to_string().len();
    if found > BYTES_MAX {
        return Err(ApiError::object_too_large(&NAME_CLAIM, name, found, BYTES_MAX));
    }
    let (routes, namespaces) = (reader.number("Route")?, reader.number("Namespace")?);
    let of_namespace = quarantine.saturating_mul(4);
    let maximum = routes.saturating_mul(CLAIMS_OF_ROUTE).saturating_add(namespaces.max(1).saturating_mul(of_namespace));
    let grows = old.is_none_or(|old| found > old.to_string().len());
    let bytes = reader.bytes("NameClaim")?.saturating_add(found as u64);
    let is_within = old.is_some() || reader.number("NameClaim")? < maximum;
    if is_within && (!grows || bytes <= (maximum as u64).saturating_mul(BYTES_EACH)) {
        return Ok(());
    }
    let message = format!(
        "the limit of {CLAIMS_OF_ROUTE} NameClaims for each Route and {of_namespace} for each namespace, with {BYTES_EACH} bytes for \
         each of them, is reached"
    );
    Err(ApiError::forbidden(&NAME_CLAIM, name, &message))
}

fn holds_host(claim: &Value) -> bool {
    claim["spec"]["type"] == "host" && !is_released(claim)
}

/// Returns whether a claim keeps a host from Routes of other namespaces: it is held, or was released and is kept for its
/// namespace and name.
fn keeps_host(now: Timestamp, claim: &Value) -> bool {
    let until = claim["spec"]["quarantineUntil"].as_str().and_then(|until| until.parse::<Timestamp>().ok());
    claim["spec"]["type"] == "host" && (!is_released(claim) || until.is_some_and(|until| until > now))
}

fn is_released(claim: &Value) -> bool {
    !claim["spec"]["releasedAt"].is_null()
}

fn namespace_of(claim: &Value) -> &Value {
    &claim["spec"]["holder"]["namespace"]
}

/// Returns whether the router of a source admitted the host to the Route that holds it.
fn is_adopted(claim: &Value, reader: &dyn Reader) -> Result<bool, ApiError> {
    let holder = &claim["spec"]["holder"];
    let name = holder["name"].as_str().unwrap_or_default();
    let route = reader.get("Route", holder["namespace"].as_str(), name)?;
    Ok(route.is_some_and(|route| route["metadata"]["uid"] == holder["uid"] && route::is_adopted(&route)))
}

/// Rejects a host that overlaps one that another namespace holds, unless its router has admitted it: a router accepts both, and uses
/// the most specific one.
async fn guard_overlap(now: Timestamp, claim: &Value, reader: &dyn Reader) -> HookResult {
    const KIND: &str = "NameClaim";
    let host = claim["spec"]["value"].as_str().unwrap_or_default();
    let may_overlap = is_adopted(claim, reader)?;
    let is_of_another =
        |found: &Value| !may_overlap && keeps_host(now, found) && namespace_of(found) != namespace_of(claim);
    let refused = |what: String| {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::invalid(&NAME_CLAIM, name, vec![Cause::forbidden("spec.value", &what)])
    };
    let mut writes = Vec::new();
    for wildcard in names::wildcards_above(host) {
        let name = names::host_claim_name(&wildcard);
        match reader.get(KIND, None, &name)? {
            Some(found) if is_of_another(&found) => {
                return Err(refused(format!("{host} is below a wildcard that another namespace holds")));
            }
            Some(found) => writes.push(RelatedWrite::keep(KIND, &found)),
            None => {
                writes.push(RelatedWrite { kind: KIND, namespace: None, name, expect: None, effect: SideEffect::Keep })
            }
        }
    }
    let (of_domain, all) = (conflict_keys::hosts_of(host), conflict_keys::hosts());
    let Some(stands_for) = host.strip_prefix("*.") else {
        writes.extend([of_domain.touch(), all.touch()]);
        return Ok(writes);
    };
    // A host that a wildcard of one label covers touches the key of its own domains.
    let (judged, other) = if stands_for.contains('.') { (of_domain, all) } else { (all, of_domain) };
    let touched = reader.touched(&judged).await?;
    let below = |value: &str| names::covers(host, value);
    if reader.matching(KIND, "spec.value", &below)?.iter().any(is_of_another) {
        return Err(refused(format!("{host} covers a host that another namespace holds")));
    }
    writes.extend([judged.touch_next(touched), other.touch()]);
    Ok(writes)
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(rules);

pub(crate) fn rules() -> Vec<Rule> {
    let is = |kind: &str| this().field("type").is(kind);
    let mut rules = rules::immutable(&["type", "value"], "field is immutable: create another NameClaim");
    rules.push(
        Rule::new(
            "spec",
            !is("label") | this().field("value").matches("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
            "must be one lower-case label of a host name, at most 63 octets",
        )
        .about("value"),
    );
    rules.extend(rules::shape("spec", Some("value"), Some(!is("host")), names::HOST));
    rules.extend(rules::not_empty(
        &["spec.holder.namespace", "spec.holder.name", "spec.holder.uid"],
        "must not be empty",
    ));
    let name = || this().field("metadata").field("name");
    let same = |field| this().field("holder").field(field).is(old().field("holder").field(field));
    rules.extend(rules::not_empty(&["spec.sharers[].name", "spec.sharers[].uid"], "must not be empty"));
    let path = this().field("holder").has("path").choose(this().field("holder").field("path"), paths::ROOT);
    rules.extend([
        Rule::new("spec", !this().has("sharers") | is("host"), "only a host has several Routes")
            .about("sharers")
            .forbidden(),
        Rule::new("spec", !item("s").field("path").is(path), "the holder has this path").each("sharers", "s", "path"),
        Rule::new(
            "spec",
            !this().has("quarantineUntil") | this().has("releasedAt"),
            "a held name has no quarantine; also set spec.releasedAt",
        )
        .about("quarantineUntil")
        .forbidden(),
        Rule::new(
            "",
            this()
                .field("spec")
                .field("type")
                .is("label")
                .choose(name().is(this().field("spec").field("value")), name().matches("^host[.][0-9a-v]{32}$")),
            "metadata.name must be the label, or host. and a hash of the host",
        )
        .in_clusters(),
        // Signpost's server compares with its clock. A definition has no clock, so it compares with the new holder's `since`.
        Rule::new(
            "spec",
            same("namespace") & (same("name") | is("host"))
                | old().has("releasedAt")
                    & (!old().has("quarantineUntil") | old().field("quarantineUntil").at_most(this().field("since"))),
            "the name is held by another Route or is in quarantine for its last holder",
        )
        .about("holder")
        .in_clusters(),
    ]);
    rules
}

/// Returns the fault of a claim whose name does not match its value, or whose host has an invalid A-label.
fn name_fault(object: &Value) -> Option<Cause> {
    let (name, value) = (&object["metadata"]["name"], &object["spec"]["value"]);
    let text = value.as_str()?;
    let claim = match object["spec"]["type"].as_str()? {
        "label" => names::label_claim_name(text),
        "host" => match names::check_a_labels(text) {
            Ok(()) => names::host_claim_name(text),
            Err(error) => return Some(Cause::invalid("spec.value", value, &error.to_string())),
        },
        _ => return None,
    };
    (name != &claim).then(|| Cause::invalid("metadata.name", name, &format!("must be {claim:?} for this value")))
}

/// Returns the fault of a takeover: a Route of the same namespace and name can take over the name at any time, and for a host any
/// Route of the namespace; others only after it was released and its quarantine has passed.
fn takeover_fault(now: Timestamp, before: &Value, after: &Value) -> Option<Cause> {
    let same = |name: &str| before["holder"][name] == after["holder"][name];
    if same("namespace") && (same("name") || before["type"] == "host") {
        return None;
    }
    // The error of the scheduler's write is copied into the condition of a Route of another namespace, so it must not name the
    // holder.
    if before["releasedAt"].is_null() {
        return Some(Cause::forbidden(
            "spec.holder",
            "the name is held by the Route in spec.holder; that Route must release it first",
        ));
    }
    let until = before["quarantineUntil"].as_str()?;
    let passed = until.parse::<Timestamp>().is_ok_and(|until| until <= now);
    (!passed).then(|| {
        Cause::forbidden(
            "spec.holder",
            &format!("the name is in quarantine until {until}; only the Route in spec.holder can claim it"),
        )
    })
}

/// Rejects the deletion of a held claim unless its Routes are deleted: otherwise, two Routes could have one name.
fn guard_delete(claim: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let spec = &claim["spec"];
    if is_released(claim) {
        return Ok(());
    }
    let namespace = spec["holder"]["namespace"].as_str();
    for holder in std::iter::once(&spec["holder"]).chain(spec["sharers"].as_array().into_iter().flatten()) {
        let name = holder["name"].as_str().unwrap_or_default();
        let route = reader.get("Route", namespace, name)?;
        if route.is_some_and(|route| route["metadata"]["uid"] == holder["uid"]) {
            let namespace = namespace.unwrap_or_default();
            let what = format!("the name is held by Route {namespace}/{name}; delete that Route first");
            let claim_name = claim["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::conflict(&NAME_CLAIM, claim_name, &what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, USER_CONTROLLER};
    use crate::kinds::fixture::{NOW, Objects, check_update, context};

    const CLAIMS: NameClaims = NameClaims { quarantine: 1 };

    #[tokio::test]
    async fn claims_are_limited_by_number_and_size() {
        let route =
            |number: usize| json!({"kind": "Route", "metadata": {"namespace": "n", "name": format!("r{number}")}});
        let many = |routes: usize, claims: usize| {
            let claims =
                (0..claims).map(|number| claim(&format!("l{number}"), "label", &format!("l{number}"), json!({})));
            Objects::new(claims.chain((0..routes).map(route)).collect())
        };
        let new = claim("n-r", "label", "n-r", json!({}));
        // Four in quarantine for a namespace, and four of each Route.
        for (routes, claims, good) in [(0, 3, true), (0, 4, false), (2, 11, true), (2, 12, false)] {
            let found = CLAIMS.before_commit(&context(), Operation::Create(&new), &many(routes, claims)).await;
            assert_eq!(found.is_ok(), good, "{routes} {claims}");
        }
        let update = Operation::Update { old: &new, new: &new };
        assert!(CLAIMS.before_commit(&context(), update, &many(0, 4)).await.is_ok());
        // Many large ones: the bytes that four small ones may have.
        let mut large = new.clone();
        large["metadata"]["annotations"] = json!({"a": "x".repeat(3 << 10)});
        for (held, good) in [(1, true), (2, false)] {
            let objects = || Objects::new(vec![large.clone(); held]);
            for (operation, good) in [
                (Operation::Create(&large), good),
                (Operation::Update { old: &new, new: &large }, good),
                (Operation::Update { old: &large, new: &large }, true),
                (Operation::Update { old: &large, new: &new }, true),
            ] {
                let found = CLAIMS.before_commit(&context(), operation, &objects()).await;
                assert_eq!(found.is_ok(), good, "{held}");
            }
        }
        large["metadata"]["annotations"] = json!({"a": "x".repeat(BYTES_MAX)});
        for operation in [Operation::Create(&large), Operation::Update { old: &new, new: &large }] {
            let error = CLAIMS.before_commit(&context(), operation, &many(1, 0)).await.err().expect("refused");
            assert_eq!(error.code, 413);
        }
    }

    fn claim(name: &str, kind: &str, value: &str, more: Value) -> Value {
        let mut spec = json!({"type": kind, "value": value, "since": NOW,
            "holder": {"namespace": "n", "name": "r", "uid": "u"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn a_name_changes_hands_only_after_its_quarantine() {
        let past = "2000-01-01T00:00:00Z";
        let future = "2100-01-01T00:00:00Z";
        let held = claim("n-r", "label", "n-r", json!({}));
        let quarantined = claim("n-r", "label", "n-r", json!({"releasedAt": past, "quarantineUntil": future}));
        let free = claim("n-r", "label", "n-r", json!({"releasedAt": past, "quarantineUntil": past}));
        let released = claim("n-r", "label", "n-r", json!({"releasedAt": past}));
        let again = claim("n-r", "label", "n-r", json!({"holder": {"namespace": "n", "name": "r", "uid": "v"}}));
        let other = claim("n-r", "label", "n-r", json!({"holder": {"namespace": "m", "name": "r", "uid": "w"}}));
        for (old, new, good) in [
            (&held, &again, true),
            (&held, &quarantined, true),
            (&held, &other, false),
            (&quarantined, &again, true),
            (&quarantined, &other, false),
            (&free, &other, true),
            (&released, &other, true),
        ] {
            let found = check_update("NameClaim", old, new.clone());
            assert_eq!(found.is_empty(), good, "{old} {new} {found:?}");
            assert!(found.iter().all(|cause| cause.starts_with("spec.holder: Forbidden")), "{found:?}");
        }
        // Any Route of the namespace can take over a host.
        let host = |name: &str, namespace: &str| {
            let holder = json!({"namespace": namespace, "name": name, "uid": name, "path": "/"});
            claim(&names::host_claim_name("a.test"), "host", "a.test", json!({"holder": holder}))
        };
        let mut shared = host("r", "n");
        shared["spec"]["sharers"] = json!([{"name": "s", "uid": "s", "path": "/s"}]);
        assert!(check_update("NameClaim", &host("r", "n"), shared.clone()).is_empty());
        assert!(check_update("NameClaim", &shared, host("s", "n")).is_empty());
        assert_eq!(check_update("NameClaim", &shared, host("s", "m")).len(), 1);
        let mut renamed = held.clone();
        renamed["spec"]["value"] = json!("other");
        assert_eq!(check_update("NameClaim", &held, renamed).len(), 1);
    }

    /// Returns the claim of a namespace to a host.
    fn claim_of(value: &str, namespace: &str, more: Value) -> Value {
        let mut claim = claim(&names::host_claim_name(value), "host", value, more);
        claim["metadata"]["resourceVersion"] = json!("5");
        claim["spec"]["holder"]["namespace"] = json!(namespace);
        claim
    }

    #[tokio::test]
    async fn hosts_of_two_namespaces_do_not_overlap() {
        let released = || json!({"releasedAt": NOW});
        for (held, asked, good) in [
            (claim_of("*.shop.test", "m", json!({})), "www.shop.test", false),
            (claim_of("*.shop.test", "m", json!({})), "a.b.SHOP.test", false),
            (claim_of("*.shop.test", "m", json!({})), "*.b.shop.test", false),
            (claim_of("*.shop.test", "m", json!({})), "shop.test", true),
            (claim_of("*.shop.test", "n", json!({})), "www.shop.test", true),
            (claim_of("*.shop.test", "m", released()), "www.shop.test", true),
            (claim_of("www.shop.test", "m", json!({})), "*.shop.test", false),
            (claim_of("WWW.shop.test", "m", json!({})), "*.test", false),
            (claim_of("*.b.shop.test", "m", json!({})), "*.shop.test", false),
            (claim_of("www.shop.test", "n", json!({})), "*.shop.test", true),
            (claim_of("www.shop.test", "m", released()), "*.shop.test", true),
            (claim_of("shop.test", "m", json!({})), "*.shop.test", true),
            (claim_of("notshop.test", "m", json!({})), "*.shop.test", true),
        ] {
            let (new, context) = (claim_of(asked, "n", json!({})), context());
            let objects = Objects::new(vec![held.clone()]);
            let found = CLAIMS.before_commit(&context, Operation::Create(&new), &objects).await;
            assert_eq!(found.is_ok(), good, "{held} {asked}");
            if let Err(error) = found {
                assert_eq!(error.code, 422);
                assert!(!error.message.contains("\"m\""), "the message reveals the holder: {}", error.message);
            }
            // The rules apply again when a released claim is reclaimed, but not when a holder releases it.
            let old = claim_of(asked, "n", released());
            let update = Operation::Update { old: &old, new: &new };
            assert_eq!(CLAIMS.before_commit(&context, update, &objects).await.is_ok(), good, "{held} {asked}");
            let update = Operation::Update { old: &new, new: &old };
            assert_eq!(CLAIMS.before_commit(&context, update, &objects).await.map(|it| it.len()).ok(), Some(0));
        }
        // The values that were read must be unchanged at the commit.
        let context = context();
        let reported = async |asked: &str| {
            let new = claim_of(asked, "n", json!({}));
            let objects = Objects::new(vec![claim_of("*.test", "n", json!({}))]);
            let writes = CLAIMS.before_commit(&context, Operation::Create(&new), &objects).await.unwrap();
            let report = |write: RelatedWrite| (write.kind, write.name, write.expect, write.effect);
            writes.into_iter().map(report).collect::<Vec<_>>()
        };
        let wildcard = |value| names::host_claim_name(value);
        let (of_domain, all) = (conflict_keys::hosts_of("shop.test").touch().name, conflict_keys::hosts().touch().name);
        let next = || SideEffect::Put(json!({}));
        assert_eq!(
            reported("www.shop.test").await,
            [
                ("NameClaim", wildcard("*.shop.test"), None, SideEffect::Keep),
                ("NameClaim", wildcard("*.test"), Some("5".to_owned()), SideEffect::Keep),
                ("ConflictKey", of_domain.clone(), None, SideEffect::Touch),
                ("ConflictKey", all.clone(), None, SideEffect::Touch),
            ]
        );
        assert_eq!(
            reported("*.shop.test").await,
            [
                ("NameClaim", wildcard("*.test"), Some("5".to_owned()), SideEffect::Keep),
                ("ConflictKey", of_domain, Some("7".to_owned()), next()),
                ("ConflictKey", all, None, SideEffect::Touch),
            ]
        );
    }

    /// The router of a source accepts overlapping hosts. Its admission is that of the Route that holds the claim.
    #[tokio::test]
    async fn adopted_hosts_of_two_namespaces_can_overlap() {
        let adopted = |uid: &str| {
            json!({"kind": "Route", "metadata": {"namespace": "n", "name": "r", "uid": uid},
                "spec": {"host": "www.shop.test", "adopted": {"router": "s1", "by": "listener a of Gateway n/g"}}})
        };
        for (held, asked, uid, good) in [
            ("*.shop.test", "www.shop.test", "u", true),
            ("www.shop.test", "*.shop.test", "u", true),
            ("*.shop.test", "www.shop.test", "another", false),
            ("www.shop.test", "*.shop.test", "another", false),
        ] {
            let (new, context) = (claim_of(asked, "n", json!({})), context());
            let objects = Objects::new(vec![claim_of(held, "m", json!({})), adopted(uid)]);
            let found = CLAIMS.before_commit(&context, Operation::Create(&new), &objects).await;
            assert_eq!(found.is_ok(), good, "{held} {asked} {uid}");
        }
    }

    #[tokio::test]
    async fn a_held_claim_is_not_deleted_nor_released() {
        let route = |uid: &str| json!({"kind": "Route", "metadata": {"name": "r", "namespace": "n", "uid": uid}});
        let held = claim("n-r", "label", "n-r", json!({}));
        let released = claim("n-r", "label", "n-r", json!({"releasedAt": NOW}));
        let shared = json!({"holder": {"namespace": "n", "name": "gone", "uid": "g"},
            "sharers": [{"name": "r", "uid": "u", "path": "/r"}]});
        let shared = claim("n-r", "label", "n-r", shared);
        for (objects, old, good) in [
            (vec![route("u")], &shared, false),
            (vec![route("v")], &shared, true),
            (vec![route("u")], &held, false),
            (vec![route("v")], &held, true),
            (vec![], &held, true),
            (vec![route("u")], &released, true),
        ] {
            let (context, options) = (context(), json!({}));
            let operation = Operation::Delete { old, options: &options };
            let objects = Objects::new(objects);
            let found = CLAIMS.before_commit(&context, operation, &objects).await;
            assert_eq!(found.is_ok(), good, "{old}");
            let update = Operation::Update { old, new: &released };
            assert_eq!(CLAIMS.before_commit(&context, update, &objects).await.is_ok(), good, "{old}");
            let controller = Identity::user(USER_CONTROLLER);
            let context = Context { identity: &controller, ..context };
            assert!(CLAIMS.before_commit(&context, update, &objects).await.is_ok(), "{old}");
        }
    }
}
