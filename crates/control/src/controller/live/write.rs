//! Writes what was found out into the status of Routes and Routers.
//!
//! A new Route gets both conditions by one patch that appends them, and holds only if the Route still is as it was seen:
//! that is one request and no reading before. Whatever else is to be written is read, changed and written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use serde::Serialize;
use serde_json::json;

use crate::client::reflector::ObjectKey;
use crate::client::status::{Statement, state, update_status};
use crate::client::write::patch_status;
use signpost_api::v1alpha1::route::{NameKind, PUBLISHED, Phase, RESOLVABLE, Route};
use signpost_api::v1alpha1::router::Router;
use signpost_dns::zone::Serial;

/// What is to be written into a Route.
#[derive(Debug, Clone)]
pub struct RouteWrite {
    /// Where it is.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its `metadata.generation`.
    pub generation: Option<i64>,
    /// The resourceVersion that it was seen with, if it then said nothing of what is to be written.
    pub fresh: Option<Box<str>>,
    /// The name on the shard that the statements speak of; `None`: whatever its names are.
    pub system_name: Option<String>,
    /// What is to be said.
    pub statements: Vec<Statement>,
}

/// Which conditions came to be true or false, or were said first; with what they say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// `Published`.
    pub published: Option<Statement>,
    /// `Resolvable`.
    pub resolvable: Option<Statement>,
}

impl Written {
    fn note(&mut self, statement: &Statement) {
        match statement.kind {
            PUBLISHED => self.published = Some(statement.clone()),
            RESOLVABLE => self.resolvable = Some(statement.clone()),
            _ => {}
        }
    }
}

/// Writes the conditions of a Route, if it still is the one that they speak of.
pub async fn route(client: &kube::Client, write: &RouteWrite) -> kube::Result<Written> {
    let namespace = write.key.namespace.as_deref().unwrap_or_default();
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace);
    if let Some(version) = &write.fresh
        && let Some(written) = append(client, write, version).await?
    {
        return Ok(written);
    }
    let mut written = Written::default();
    let change = |route: &Route| {
        written = Written::default();
        let status = route.status.clone().unwrap_or_default();
        let same_name = write.system_name.as_ref().is_none_or(|wanted| {
            status.names.iter().any(|name| name.kind == NameKind::System && name.name.eq_ignore_ascii_case(wanted))
        });
        if route.metadata.uid.as_deref() != Some(&write.uid) || status.phase != Phase::Scheduled || !same_name {
            return None;
        }
        let mut conditions = status.conditions;
        let mut changed = false;
        for statement in &write.statements {
            let before = conditions.iter().find(|condition| condition.type_ == statement.kind);
            if before.is_none_or(|before| (before.status == "True") != statement.is_true) {
                written.note(statement);
            }
            changed |= state(&mut conditions, statement, route.metadata.generation, Timestamp::now());
        }
        changed.then(|| json!({"conditions": conditions}))
    };
    update_status(&routes, &write.key.name, change).await?;
    Ok(written)
}

/// Appends conditions to a Route that has none of them, if it has not changed; `None`: it has.
async fn append(client: &kube::Client, write: &RouteWrite, version: &str) -> kube::Result<Option<Written>> {
    let test = |path, value| Operation { op: "test", path, value };
    let mut operations = vec![test("/metadata/resourceVersion", Operand::Text(version))];
    // The Route may have moved, which takes its conditions away, before its binding was seen to have: what is known then is of
    // its former name. The system name stands first; where it does not, the other way is taken.
    operations.extend(write.system_name.as_deref().map(|name| test("/status/names/0/name", Operand::Text(name))));
    let mut written = Written::default();
    for statement in &write.statements {
        written.note(statement);
        let condition = Condition {
            type_: statement.kind.to_owned(),
            status: if statement.is_true { "True" } else { "False" }.to_owned(),
            reason: statement.reason.to_owned(),
            message: statement.told().to_owned(),
            observed_generation: write.generation,
            last_transition_time: Time(Timestamp::now()),
        };
        operations.push(Operation { op: "add", path: "/status/conditions/-", value: Operand::Condition(condition) });
    }
    let body = serde_json::to_vec(&operations).map_err(kube::Error::SerdeError)?;
    match patch_status::<Route>(client, write.key.namespace.as_deref(), &write.key.name, body).await {
        Ok(()) => Ok(Some(written)),
        // It is gone, has changed, or has no conditions yet.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One operation of a JSON patch (RFC 6902).
#[derive(Serialize)]
struct Operation<'a> {
    op: &'static str,
    path: &'static str,
    value: Operand<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Operand<'a> {
    Text(&'a str),
    Condition(Condition),
}

/// Writes the condition and the serial of a Router's zone.
pub async fn router(
    client: &kube::Client,
    name: &str,
    statement: &Statement,
    serial: Option<Serial>,
) -> kube::Result<()> {
    let routers: Api<Router> = Api::all(client.clone());
    let change = |router: &Router| {
        let status = router.status.clone().unwrap_or_default();
        let mut conditions = status.conditions;
        let changed = state(&mut conditions, statement, router.metadata.generation, Timestamp::now());
        // A serial that was known stays.
        let serial = serial.map(|serial| serial.0).or(status.serial);
        (changed || status.serial != serial).then(|| json!({"conditions": conditions, "serial": serial}))
    };
    update_status(&routers, name, change).await?;
    Ok(())
}
