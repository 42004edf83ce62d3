//! Deletes the ChallengeRecords that have expired: some ACME clients leave theirs behind.

use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::reflector::{Change, ObjectKey, Store};
use crate::client::write;
use crate::name_server::objects::each_object;
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::{ChallengeInfo, World};
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;

/// The number of deletions at a time.
const PLACES: usize = 4;
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The longest wait for the next expiry: timers do not advance while a machine sleeps.
const EXPIRY_LONGEST: Duration = Duration::from_secs(3600);

/// Deletes them until `stop`, which also ends with this process's leadership.
pub async fn run(client: kube::Client, world: World, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    let records = inputs.read(&world.challenges, Expiry::take);
    let queue = WorkQueue::new(PLACES, [Duration::ZERO; 2]);
    controller::run(Expiry { client, records, queue }, inputs, stop).await;
}

struct Expiry {
    client: kube::Client,
    records: Store<ChallengeInfo>,
    queue: WorkQueue<ObjectKey>,
}

impl Expiry {
    fn take(&mut self, change: Change<ChallengeInfo>) {
        let now = Instant::now();
        each_object(&change, |key, _| self.queue.add(key.clone(), now));
    }
}

impl Controller for Expiry {
    type Key = ObjectKey;
    type Job = ();
    type Done = ();

    const JOB_TIMEOUT: Duration = Duration::from_secs(10);

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn plan(&mut self, key: &ObjectKey, now: Instant) -> Plan<()> {
        let Some(record) = self.records.get(key) else { return Plan::Nothing };
        match Duration::try_from(record.expires.duration_since(Timestamp::now())) {
            Ok(left) if left > Duration::ZERO => Plan::At(now + left.min(EXPIRY_LONGEST)),
            _ => Plan::Act(()),
        }
    }

    fn act(&self, key: &ObjectKey, (): ()) -> Action<()> {
        let api: Api<ChallengeRecord> = Api::namespaced(self.client.clone(), key.namespace());
        let name = key.name.to_string();
        Box::pin(async move { write::delete(&api, &name, None).await.map(drop) })
    }

    fn done(&mut self, key: ObjectKey, result: kube::Result<()>, now: Instant) {
        if let Err(error) = result {
            tracing::warn!(record = %key, %error, "failed to delete an expired ChallengeRecord; retrying");
            self.queue.plan(key, now + RETRY_AFTER);
        }
    }
}
