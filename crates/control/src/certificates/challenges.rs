//! The proofs for the certificate authority: TXT records of a zone, and what instances answer for a host. Both are checked before the CA
//! validates them, because each failed validation counts.

use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use tokio::time::{Instant, sleep};

use super::Settings;
use super::ca::{not_ready, of_api};
use super::context::Context;
use super::plan::Failure;
use crate::client::write;
use crate::dns_client::{Data, Question};
use crate::observe::programmed::ProbeTarget;
use crate::world::later;
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_types::names::acme_challenge_name;
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, ChallengeRecordSpec};

/// The path of the answers (RFC 8555 §8.3), before the token.
const PATH: &str = "/.well-known/acme-challenge/";
/// The time after which a record ends that nothing has removed.
const RECORD_LIFETIME: Duration = Duration::from_secs(3_600);
/// The time that a record must have left at each step of an order: the CA can validate it after the step has ended.
const RECORD_LEFT: Duration = Duration::from_secs(1_800);
/// The time for name servers to have the records, and for instances to answer.
const PROOF_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two checks: the first and the longest.
const POLL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// The time for a request to an instance.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1 << 10;

fn records(client: &kube::Client) -> Api<ChallengeRecord> {
    Api::namespaced(client.clone(), SCHEDULER_LEASE_NAMESPACE)
}

/// Creates the records at a name, and waits until every listed name server that answers has them, which is at least one.
pub(super) async fn publish(context: &Context, name: &str, values: &[String]) -> Result<(), Failure> {
    let records = records(&context.client);
    for value in values {
        create(&records, name, value).await.map_err(|error| of_api(&error))?;
    }
    let owner: Name = name.parse().map_err(|_| not_ready("name", format!("{name} is not a DNS name")))?;
    let (servers, patience) = (&context.settings.servers, context.settings.patience);
    let question = Question { name: owner, rtype: RecordType::TXT };
    let check = async |at: usize| {
        let server = &servers[at];
        // A silent server is the fleet's problem: a resolver queries the next one.
        let Ok(response) = question.ask(server.address, patience).await else { return Ok(false) };
        let has = |value: &String| {
            response.answers.iter().any(|record| matches!(&record.data, Data::Text(text) if text == value.as_bytes()))
        };
        match response.rcode == Rcode::NOERROR && values.iter().all(has) {
            true => Ok(true),
            false => Err(format!("{} does not have the TXT records at {name}", server.address)),
        }
    };
    match until_all(servers, PROOF_TIMEOUT, check).await {
        Ok(0) => Err(not_ready("nameServers", format!("no listed name server answers for {name}"))),
        Ok(_) => Ok(()),
        Err(faults) => Err(not_ready("nameServers", faults)),
    }
}

/// Creates a record, unless there is one that lasts. The expiry of one cannot change, so one that expires soon is replaced.
async fn create(records: &Api<ChallengeRecord>, name: &str, value: &str) -> kube::Result<()> {
    let now = Timestamp::now();
    let (name, value, expires_at) = (name.to_owned(), value.to_owned(), Time(later(now, RECORD_LIFETIME)));
    let spec = ChallengeRecordSpec { name, value, key: None, expires_at };
    let object = spec.object_name();
    if let Some(former) = records.get_opt(&object).await? {
        if former.spec.expires_at.0 > later(now, RECORD_LEFT) {
            return Ok(());
        }
        write::delete(records, &object, None).await?;
    }
    let metadata = ObjectMeta { name: Some(object), ..ObjectMeta::default() };
    match records.create(&PostParams::default(), &ChallengeRecord { metadata, spec }).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        created => created.map(drop),
    }
}

/// Returns the name among `targets` to which the owner of a host with an asterisk leads its challenges. If that cannot be found out, it is left to
/// the CA with the first one.
pub(super) async fn target_of<'a>(context: &Context, host: &str, targets: &'a [String]) -> Option<&'a str> {
    let Settings { resolvers, patience, .. } = &context.settings;
    let question = Question { name: acme_challenge_name(host).parse().ok()?, rtype: RecordType::CNAME };
    let Ok(response) = question.resolve(resolvers, *patience).await else { return targets.first().map(String::as_str) };
    let is_named = |target: &&String| {
        let Ok(name) = target.parse::<Name>() else { return false };
        response.answers.iter().any(|record| record.data == Data::Cname(name.clone()))
    };
    targets.iter().find(is_named).map(String::as_str)
}

/// Removes all records at a name that the platform itself made.
pub(super) async fn withdraw(client: &kube::Client, name: &str) {
    let records = records(client);
    let removed = async {
        for record in records.list(&ListParams::default()).await? {
            if let Some(object) = record.metadata.name.filter(|_| record.spec.name == name && record.spec.key.is_none())
            {
                write::delete(&records, &object, None).await?;
            }
        }
        Ok::<(), kube::Error>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(name, %error, "failed to remove challenge records; they expire within an hour");
    }
}

/// Waits until every instance answers the challenges for a host.
pub(super) async fn prove_http(
    context: &Context,
    host: &str,
    tokens: &[String],
    thumbprint: &str,
    instances: &[ProbeTarget],
) -> Result<(), Failure> {
    if instances.is_empty() {
        return Err(not_ready("instances", "no instance of the Router serves".to_owned()));
    }
    let check = async |at: usize| {
        let target = instances[at];
        for token in tokens {
            let ask = async |http: reqwest::Client| {
                let url = format!("http://{}{PATH}{token}", target.address);
                let request = http.get(url).header(reqwest::header::HOST, host).timeout(REQUEST_TIMEOUT);
                let mut response = request.send().await.map_err(|error| error.without_url().to_string())?;
                let mut answer = Vec::new();
                while let Ok(Some(chunk)) = response.chunk().await
                    && answer.len() < ANSWER_BYTES_MAX
                {
                    answer.extend_from_slice(&chunk);
                }
                Ok((response.status().as_u16(), answer))
            };
            let answer = context.instances.request(target, ask).await;
            let (status, answer) = answer.map_err(|error| format!("{}: {error}", target.address))?;
            if status != 200 || answer != format!("{token}.{thumbprint}").as_bytes() {
                return Err(format!(
                    "{} does not answer the challenge for {host}: HTTP status {status}",
                    target.address
                ));
            }
        }
        Ok(true)
    };
    until_all(instances, PROOF_TIMEOUT, check).await.map(drop).map_err(|faults| not_ready("instances", faults))
}

/// Runs a check of all servers or instances until none of them has a fault, or the time is over: then the faults are the error.
async fn until_all<T, F: Future<Output = Result<bool, String>>>(
    targets: &[T],
    patience: Duration,
    check: impl Fn(usize) -> F,
) -> Result<usize, String> {
    let (deadline, mut pause) = (Instant::now() + patience, POLL[0]);
    loop {
        let results = join_all((0..targets.len()).map(&check)).await;
        let faults: Vec<&str> = results.iter().filter_map(|result| result.as_ref().err().map(String::as_str)).collect();
        let good = results.iter().filter(|result| **result == Ok(true)).count();
        if faults.is_empty() {
            return Ok(good);
        }
        if Instant::now() > deadline {
            let (named, more) = (faults[..faults.len().min(3)].join("; "), faults.len().saturating_sub(3));
            return Err(if more > 0 { format!("{named}; and {more} more") } else { named });
        }
        sleep(pause).await;
        pause = (pause * 2).min(POLL[1]);
    }
}
