//! Reporting of a holder's deletion holds to the API, and reading of the decisions. The holder is a name server or a scheduler.
//!
//! Each hold is a [`DeletionHold`], named by the hold's ID, which is the same for all holders whose holds began with the same
//! objects. A holder creates the object if it is missing, adds itself with the objects that it holds and what it keeps because of
//! them, updates its entry when these change, and removes it when it holds nothing. The last holder deletes the object and the decision
//! with it. So a decision ends with its incident: if the same objects are lost again a month later, a new decision is necessary.
//! For the same reason, a decision counts only for holders that had entered before it, which the object's generation shows
//! without comparing clocks, and only for the objects of that entry: later losses stay held, and are reported next.
//!
//! A dead name server cannot remove its entry. So each holder renews its entry every minute, and removes the entries of others
//! that it has seen unchanged for ten minutes, by its own clock. A name server that was only disconnected enters again when it is
//! back; it has kept everything all the time.
//!
//! A DeletionHold without holders has no meaning. It remains if the API fails, or a holder dies, between the creation and
//! the entry. Each holder deletes the empty objects that it has written immediately, and those of others after a while.
//!
//! Holders may create and delete DeletionHolds and write their status, but may not decide. While the API is unreachable, none of
//! this works or is necessary: everything is kept, and the log and `/metrics` show the hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{PostParams, Preconditions};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::hold::{Decisions, Held, HoldDecision};
use super::losses::HeldLosses;
use crate::client::backoff::Backoff;
use crate::client::reflector::{Changes, HealthProbe, Informer, Store};
use crate::client::write::{self, update_status};
use crate::world::condition::{ConditionUpdate, Status as ConditionStatus, state};
use signpost_types::v1alpha1::deletion_hold::{
    DNS, Decision, DeletionHold, DeletionHoldCause, DeletionHoldHolder, DeletionHoldKind, DeletionHoldSpec,
    HEARD_EVERY, HELD, SILENCE_MAX,
};

/// The interval of comparisons when nothing happens.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The minimum time between two rounds of writes: a hold can grow many times per second.
const PACE: Duration = Duration::from_secs(1);
/// The time for the holder to apply an approval, before an entry with other objects replaces the approved one.
const APPLY_WAIT: Duration = Duration::from_secs(2);
/// The time limit for one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// Waits after failures, the first and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The age at which a DeletionHold without holders is abandoned: its creator died before the entry, which is one write.
const EMPTY_LONGEST: Duration = Duration::from_secs(2 * WRITE_TIMEOUT.as_secs());

/// The reporter of one holder, before and while it runs.
pub struct Reporter {
    writer: Writer,
    losses: Arc<HeldLosses>,
    deletion_holds: Store<DeletionHold>,
    changes: Changes<DeletionHold>,
    /// The DeletionHolds that this process has written, or tried to write, with the time of the last try.
    ours: HashMap<String, Instant>,
    /// The approvals that were read, with the time.
    approved: HashMap<String, (HoldDecision, Instant)>,
    /// The entries by DeletionHold and holder, each with the time at which it was first seen.
    heard: HashMap<(String, String), (DeletionHoldHolder, Instant)>,
}

/// The properties of a holder that its entries show.
#[derive(Clone)]
pub struct Holder {
    /// The identity of the process in this role.
    pub server: String,
    /// The displayed name.
    pub host: Option<String>,
    /// The kinds of objects that it keeps, or `DNS`, by the kind of the missing objects.
    pub keeps: HashMap<DeletionHoldKind, Vec<String>>,
}

impl Holder {
    /// Returns a name server.
    pub fn name_server(server: String, host: Option<String>) -> Self {
        let kinds = [DeletionHoldKind::Router, DeletionHoldKind::RouteBinding];
        Holder { server, host, keeps: kinds.map(|kind| (kind, vec![DNS.to_owned()])).into() }
    }

    /// Returns a scheduler, which runs instances of Routers as objects of these kinds.
    pub fn scheduler(server: &str, instances: &[&str]) -> Self {
        let of = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let keeps = HashMap::from([
            (DeletionHoldKind::Router, of(&[instances, &["Zone"]].concat())),
            (DeletionHoldKind::RouteBinding, of(&["RouteBinding", "NameClaim"])),
        ]);
        // A name server in the same process has an entry of its own.
        Holder { server: format!("{server}.scheduler"), host: Some(format!("scheduler {server}")), keeps }
    }

    /// Returns the sources of a scheduler, which keep the Routers and Routes that they wrote.
    pub fn sources(server: &str) -> Self {
        let keeps = HashMap::from([
            (DeletionHoldKind::Router, vec!["Router".to_owned()]),
            (DeletionHoldKind::RouteBinding, vec!["Route".to_owned()]),
        ]);
        Holder { server: format!("{server}.sources"), host: Some(format!("sources of {server}")), keeps }
    }
}

/// Writes DeletionHolds in the name of one holder.
#[derive(Clone)]
struct Writer {
    api: Api<DeletionHold>,
    holder: Holder,
}

/// A pending action.
#[derive(Debug, PartialEq)]
enum HoldAction {
    /// There is no such DeletionHold yet.
    Create(Held),
    /// This server is not among the holders, or its entry is out of date.
    Enter(Held),
    /// The entry is current, and due for renewal.
    Renew(Held),
    /// This server is a holder, but holds nothing.
    Leave(String),
    /// Other holders have been silent for too long.
    Lapse(String, Vec<DeletionHoldHolder>),
    /// The object has no holders.
    Sweep(String),
}

impl Reporter {
    /// Returns a reporter of `losses` in the entries of `holder`.
    pub fn new(client: kube::Client, holds: &Informer<DeletionHold>, holder: Holder, losses: Arc<HeldLosses>) -> Self {
        let (deletion_holds, changes) = holds.read();
        Reporter {
            writer: Writer { api: Api::all(client), holder },
            losses,
            deletion_holds,
            changes,
            ours: HashMap::new(),
            approved: HashMap::new(),
            heard: HashMap::new(),
        }
    }

    pub fn informer(&self) -> HealthProbe {
        self.deletion_holds.probe()
    }

    /// Reports until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut held = self.losses.watch_held();
        let mut backoff = Backoff::new(RETRY[0], RETRY[1]);
        let (mut not_before, mut waits) = (Instant::now(), false);
        let writer = self.writer.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = self.changes.next() => {}
                Ok(()) = held.changed() => {}
                () = tokio::time::sleep_until(not_before), if waits => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            while self.changes.next().now_or_never().is_some() {}
            if !self.deletion_holds.is_synced() {
                continue;
            }
            let (deletion_holds, held) = (self.known(), held.borrow_and_update().clone());
            let decisions = decided(&held, &deletion_holds, &writer.holder.server);
            self.note_approvals(&decisions);
            self.losses.set_decisions(decisions);
            let is_known = |id: &str| find(&deletion_holds, id).is_some();
            self.ours.retain(|id, written| is_known(id) || written.elapsed() < EMPTY_LONGEST);
            self.hear(&deletion_holds);
            let written = |id: &str| self.ours.get(id).map(Instant::elapsed);
            let silent_for = |id: &str, holder: &DeletionHoldHolder| {
                let heard = self.heard.get(&(id.to_owned(), holder.server.clone()));
                heard.map_or(Duration::ZERO, |(_, since)| since.elapsed())
            };
            let (synced, now) = (self.losses.is_synced(), Timestamp::now());
            let mut steps = steps(&held, &deletion_holds, &writer.holder.server, written, silent_for, synced, now);
            steps.retain(|step| !self.is_being_applied(step));
            waits = !steps.is_empty() && Instant::now() < not_before;
            if waits {
                continue;
            }
            if !steps.is_empty() {
                not_before = Instant::now() + PACE;
            }
            for step in steps {
                // Recorded before the try: a failed write may have taken effect.
                if let Some(id) = step.is_entered() {
                    self.ours.insert(id.to_owned(), Instant::now());
                }
                let seen = step.is_entered().and_then(|id| find(&deletion_holds, id)?.metadata.generation);
                let write = timeout(WRITE_TIMEOUT, writer.carry_out(step, seen));
                let Some(done) = stop.run_until_cancelled(write).await else { return };
                match done {
                    Ok(Ok(())) => backoff.reset(),
                    failed => {
                        let error = match failed {
                            Ok(Err(error)) => error.to_string(),
                            _ => "the API did not answer in time".to_owned(),
                        };
                        tracing::warn!(%error, "failed to write DeletionHolds to the API; retrying");
                        not_before = Instant::now() + backoff.next_wait();
                        break;
                    }
                }
            }
        }
    }

    fn note_approvals(&mut self, decisions: &Decisions) {
        let approvals = decisions.iter().filter(|(_, decided)| decided.decision == Decision::Approve);
        let known = |id: &String, decided: &HoldDecision| self.approved.get(id).filter(|(known, _)| known == decided);
        let read = |(id, decided): (&String, &HoldDecision)| {
            let since = known(id, decided).map_or_else(Instant::now, |(_, since)| *since);
            (id.clone(), (decided.clone(), since))
        };
        self.approved = approvals.map(read).collect();
    }

    /// Returns whether the holder may still be applying an approval of the entry that the action replaces.
    fn is_being_applied(&self, step: &HoldAction) -> bool {
        let HoldAction::Enter(held) = step else { return false };
        self.approved.get(&held.id).is_some_and(|(_, since)| since.elapsed() < APPLY_WAIT)
    }

    /// Records the holders that have renewed their entries.
    fn hear(&mut self, deletion_holds: &[Arc<DeletionHold>]) {
        let mut heard = HashMap::new();
        for deletion_hold in deletion_holds {
            let id = deletion_hold.metadata.name.as_deref().unwrap_or_default();
            for holder in deletion_hold.status.iter().flat_map(|status| &status.holders) {
                let key = (id.to_owned(), holder.server.clone());
                let before = self.heard.remove(&key).filter(|(before, _)| before == holder);
                heard.insert(key, before.unwrap_or_else(|| (holder.clone(), Instant::now())));
            }
        }
        self.heard = heard;
    }

    /// Returns the DeletionHolds in the informer.
    fn known(&self) -> Vec<Arc<DeletionHold>> {
        self.deletion_holds.all().into_iter().map(|(_, deletion_hold)| deletion_hold).collect()
    }
}

impl HoldAction {
    /// Returns the ID of the DeletionHold that this action enters or leaves.
    fn is_entered(&self) -> Option<&str> {
        match self {
            HoldAction::Create(held) | HoldAction::Enter(held) | HoldAction::Renew(held) => Some(&held.id),
            HoldAction::Leave(id) => Some(id),
            HoldAction::Lapse(..) | HoldAction::Sweep(_) => None,
        }
    }
}

impl Writer {
    /// Carries out an action, for a DeletionHold of which the generation `seen` was read.
    async fn carry_out(&self, step: HoldAction, seen: Option<i64>) -> kube::Result<()> {
        match step {
            HoldAction::Create(held) => {
                match self.api.create(&PostParams::default(), &deletion_hold(&held)).await {
                    // Another holder was faster.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    created => drop(created?),
                }
                self.enter(&held, seen).await
            }
            HoldAction::Enter(held) => self.enter(&held, seen).await,
            HoldAction::Renew(held) => self.renew(&held).await,
            HoldAction::Leave(id) => self.remove(&id, |holder| holder.server == self.holder.server).await,
            // Holders that have renewed since then stay.
            HoldAction::Lapse(id, silent) => self.remove(&id, |holder| silent.contains(holder)).await,
            HoldAction::Sweep(id) => match self.api.get_opt(&id).await? {
                Some(deletion_hold) if !deletion_hold.is_held() => self.delete(&deletion_hold).await,
                _ => Ok(()),
            },
        }
    }

    /// Removes holders, and the DeletionHold if it has no others.
    async fn remove(&self, id: &str, is_removed: impl Fn(&DeletionHoldHolder) -> bool) -> kube::Result<()> {
        let change = |deletion_hold: &DeletionHold| {
            let mut holders = deletion_hold.status.clone().unwrap_or_default().holders;
            let before = holders.len();
            holders.retain(|holder| !is_removed(holder));
            (holders.len() < before).then(|| json!({"holders": holders}))
        };
        match update_status(&self.api, id, change).await? {
            Some(deletion_hold) if !deletion_hold.is_held() => self.delete(&deletion_hold).await,
            _ => Ok(()),
        }
    }

    async fn enter(&self, held: &Held, seen: Option<i64>) -> kube::Result<()> {
        let change = |deletion_hold: &DeletionHold| {
            let mut status = deletion_hold.status.clone().unwrap_or_default();
            let now = Timestamp::now();
            let before = status.holders.iter().position(|holder| holder.server == self.holder.server);
            let before = before.map(|at| status.holders.remove(at));
            // A decision about the entry that was not read yet must be applied first.
            let is_unread = |before: &DeletionHoldHolder| {
                deletion_hold.is_decided_for(before) && deletion_hold.metadata.generation > seen
            };
            if before.as_ref().is_some_and(|before| has_reported(deletion_hold, before, held) || is_unread(before)) {
                return None;
            }
            status.holders.push(DeletionHoldHolder {
                server: self.holder.server.clone(),
                host: self.holder.host.clone(),
                since: before.map_or(Time(now), |before| before.since),
                generation: deletion_hold.metadata.generation.unwrap_or(0),
                uid: deletion_hold.metadata.uid.clone(),
                user: None,
                keeps: self.holder.keeps.get(&held.kind).cloned().unwrap_or_default(),
                objects: Some(number(held.count)),
                set: Some(held.set.clone()),
                changed_at: Some(Time(now)),
                last_heartbeat_time: Some(Time(now)),
            });
            state(&mut status.conditions, &statement(held), deletion_hold.metadata.generation, now);
            let objects = status.holders.iter().filter_map(|holder| holder.objects).max();
            let known = status.known.max(Some(number(held.known)));
            Some(json!({
                "holders": status.holders, "conditions": status.conditions,
                "objects": objects, "known": known, "names": held.names,
            }))
        };
        update_status(&self.api, &held.id, change).await.map(drop)
    }

    /// Renews the entry. The rest is unchanged: decisions since the entry still count.
    async fn renew(&self, held: &Held) -> kube::Result<()> {
        let change = |deletion_hold: &DeletionHold| {
            let mut holders = deletion_hold.status.clone().unwrap_or_default().holders;
            let ours = holders.iter_mut().find(|holder| holder.server == self.holder.server)?;
            if !has_reported(deletion_hold, ours, held) {
                return None;
            }
            ours.last_heartbeat_time = Some(Time(Timestamp::now()));
            Some(json!({"holders": holders}))
        };
        update_status(&self.api, &held.id, change).await.map(drop)
    }

    /// Deletes the object, if its version is unchanged.
    async fn delete(&self, deletion_hold: &DeletionHold) -> kube::Result<()> {
        let metadata = deletion_hold.metadata.clone();
        let preconditions = Preconditions { uid: metadata.uid, resource_version: metadata.resource_version };
        write::delete(&self.api, &metadata.name.unwrap_or_default(), Some(preconditions)).await.map(drop)
    }
}

fn deletion_hold(held: &Held) -> DeletionHold {
    DeletionHold::new(
        &held.id,
        DeletionHoldSpec {
            kind: held.kind,
            objects: number(held.count),
            known: number(held.known),
            cause: held.cause,
            names: held.names.clone(),
            decision: None,
            decided_at: None,
        },
    )
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn statement(held: &Held) -> ConditionUpdate {
    let Held { count, known, .. } = held;
    let kind = held.kind.word();
    let (reason, message) = match held.cause {
        DeletionHoldCause::List => {
            ("MissingFromList", format!("{count} of {known} objects of kind {kind} are missing from a full list"))
        }
        DeletionHoldCause::Burst => {
            let message = format!("{count} of {known} objects of kind {kind} were deleted in a short time");
            ("BurstOfDeletions", message)
        }
    };
    ConditionUpdate {
        kind: HELD,
        status: ConditionStatus::True,
        reason,
        message: format!("{message}; their names and what depends on them are kept"),
    }
}

fn entry<'a>(deletion_hold: &'a DeletionHold, server: &str) -> Option<&'a DeletionHoldHolder> {
    deletion_hold.status.as_ref()?.holders.iter().find(|holder| holder.server == server)
}

/// Returns whether this name server's entry in this DeletionHold matches the held objects.
fn has_reported(deletion_hold: &DeletionHold, entry: &DeletionHoldHolder, held: &Held) -> bool {
    entry.set.as_ref() == Some(&held.set) && entry.uid == deletion_hold.metadata.uid
}

fn find<'a>(deletion_holds: &'a [Arc<DeletionHold>], id: &str) -> Option<&'a Arc<DeletionHold>> {
    deletion_holds.iter().find(|deletion_hold| deletion_hold.metadata.name.as_deref() == Some(id))
}

/// Returns the decisions that were made after the entry of `server`, on the objects of that entry.
fn decided(held: &[Held], deletion_holds: &[Arc<DeletionHold>], server: &str) -> Decisions {
    let decision = |held: &Held| {
        let deletion_hold = find(deletion_holds, &held.id)?;
        let entry = entry(deletion_hold, server).filter(|entry| deletion_hold.is_decided_for(entry))?;
        let set = entry.set.clone()?;
        deletion_hold.spec.decision.map(|decision| HoldDecision { decision, set })
    };
    held.iter().filter_map(|held| Some((held.id.clone(), decision(held)?))).collect()
}

/// Returns the necessary actions. Before the first list (`synced`), no holder leaves: objects held before a restart are still
/// held. `written` returns, by ID, the time since this process wrote to a DeletionHold, and `silent_for` the time without a
/// change of a holder's entry, because clocks can differ.
fn steps(
    held: &[Held],
    deletion_holds: &[Arc<DeletionHold>],
    server: &str,
    written: impl Fn(&str) -> Option<Duration>,
    silent_for: impl Fn(&str, &DeletionHoldHolder) -> Duration,
    synced: bool,
    now: Timestamp,
) -> Vec<HoldAction> {
    let mut steps = Vec::new();
    for held in held {
        let Some(deletion_hold) = find(deletion_holds, &held.id) else {
            steps.push(HoldAction::Create(held.clone()));
            continue;
        };
        if !entry(deletion_hold, server).is_some_and(|entry| has_reported(deletion_hold, entry, held)) {
            steps.push(HoldAction::Enter(held.clone()));
        } else if written(&held.id).is_none_or(|ago| ago >= HEARD_EVERY.unsigned_abs()) {
            steps.push(HoldAction::Renew(held.clone()));
        }
    }
    for deletion_hold in deletion_holds {
        let id = deletion_hold.metadata.name.clone().unwrap_or_default();
        let created = deletion_hold.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
        let others = deletion_hold.status.iter().flat_map(|status| &status.holders);
        let others = others.filter(|holder| holder.server != server);
        let is_gone = |holder: &&DeletionHoldHolder| silent_for(&id, holder) >= SILENCE_MAX.unsigned_abs();
        let silent: Vec<DeletionHoldHolder> = others.filter(is_gone).cloned().collect();
        if !silent.is_empty() {
            steps.push(HoldAction::Lapse(id.clone(), silent));
        }
        if held.iter().any(|held| held.id == id) {
            continue;
        }
        if entry(deletion_hold, server).is_some() {
            steps.extend(synced.then_some(HoldAction::Leave(id)));
        } else if !deletion_hold.is_held() && (written(&id).is_some() || age > EMPTY_LONGEST) {
            steps.push(HoldAction::Sweep(id));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_types::v1alpha1::deletion_hold::DeletionHoldStatus;

    fn held(id: &str) -> Held {
        Held {
            id: id.to_owned(),
            set: "s3".to_owned(),
            kind: DeletionHoldKind::Router,
            cause: DeletionHoldCause::List,
            count: 3,
            known: 3,
            names: vec!["a".to_owned()],
            decision: None,
        }
    }

    /// Returns a DeletionHold of age `age` in seconds and of this generation, with its holders and the generations at which they
    /// entered.
    fn known(
        id: &str,
        age: i64,
        generation: i64,
        decision: Option<Decision>,
        holders: &[(&str, i64)],
    ) -> Arc<DeletionHold> {
        let mut deletion_hold = deletion_hold(&held(id));
        deletion_hold.metadata.generation = Some(generation);
        deletion_hold.metadata.uid = Some("u1".to_owned());
        deletion_hold.metadata.creation_timestamp = Some(Time(at(1000 - age)));
        deletion_hold.spec.decision = decision;
        let holder = |(server, generation): &(&str, i64)| DeletionHoldHolder {
            server: (*server).to_owned(),
            host: None,
            since: Time(at(0)),
            generation: *generation,
            uid: Some("u1".to_owned()),
            user: None,
            keeps: Vec::new(),
            objects: Some(3),
            set: Some("s3".to_owned()),
            changed_at: None,
            last_heartbeat_time: Some(Time(at(990))),
        };
        deletion_hold.status =
            Some(DeletionHoldStatus { holders: holders.iter().map(holder).collect(), ..DeletionHoldStatus::default() });
        Arc::new(deletion_hold)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn holders_come_and_go() {
        let leave = || HoldAction::Leave("x".to_owned());
        let sweep = |id: &str| HoldAction::Sweep(id.to_owned());
        let written = |id: &str| (id == "mine").then_some(Duration::from_secs(120));
        for (holds, deletion_holds, synced, expected) in [
            (vec!["x"], vec![], true, vec![HoldAction::Create(held("x"))]),
            (vec!["x"], vec![known("x", 1, 1, None, &[("other", 1)])], true, vec![HoldAction::Enter(held("x"))]),
            // Decisions from before a restart are unknown.
            (vec!["x"], vec![known("x", 1, 1, None, &[("me", 1)])], true, vec![HoldAction::Renew(held("x"))]),
            (vec![], vec![known("x", 1, 1, None, &[("me", 1), ("other", 1)])], true, vec![leave()]),
            // After a restart, it may still be held.
            (vec![], vec![known("x", 1, 1, None, &[("me", 1)])], false, vec![]),
            (vec![], vec![known("x", 1000, 1, None, &[("other", 1)])], true, vec![]),
            (vec![], vec![known("x", 1, 1, None, &[])], true, vec![]),
            (vec![], vec![known("x", 30, 1, None, &[])], true, vec![]),
            (vec![], vec![known("x", 31, 1, None, &[])], true, vec![sweep("x")]),
            // This name server has created it, and no longer holds anything.
            (vec![], vec![known("mine", 1, 1, None, &[])], true, vec![sweep("mine")]),
            (vec![], vec![known("mine", 1, 1, None, &[("other", 1)])], true, vec![]),
            (vec!["mine"], vec![known("mine", 31, 1, None, &[])], true, vec![HoldAction::Enter(held("mine"))]),
            (vec!["y"], vec![known("x", 1, 1, None, &[("me", 1)])], true, vec![HoldAction::Create(held("y")), leave()]),
        ] {
            let holds: Vec<Held> = holds.into_iter().map(held).collect();
            let steps = steps(&holds, &deletion_holds, "me", written, just_now, synced, at(1000));
            assert_eq!(steps, expected, "{deletion_holds:?}");
        }
        let grown = Held { set: "s4".to_owned(), count: 4, ..held("x") };
        let deletion_holds = [known("x", 1, 1, None, &[("me", 1)])];
        let steps = steps(std::slice::from_ref(&grown), &deletion_holds, "me", written, just_now, true, at(1000));
        assert_eq!(steps, [HoldAction::Enter(grown)]);
    }

    fn just_now(_: &str, _: &DeletionHoldHolder) -> Duration {
        Duration::ZERO
    }

    /// The times in entries do not count: clocks can differ by hours.
    #[test]
    fn who_is_silent_for_long_is_taken_off() {
        let both = [known("x", 900, 1, None, &[("me", 1), ("other", 1)])];
        let other = entry(&both[0], "other").expect("it is there").clone();
        let lapse = || HoldAction::Lapse("x".to_owned(), vec![other.clone()]);
        let renew = || HoldAction::Renew(held("x"));
        for (written, silent, holds, expected) in [
            (59, 59, true, vec![]),
            // The holder renews its entry.
            (60, 599, true, vec![renew()]),
            (60, 600, true, vec![renew(), lapse()]),
            (1, 600, true, vec![lapse()]),
            // Also by one that holds nothing of it.
            (1, 600, false, vec![lapse(), HoldAction::Leave("x".to_owned())]),
        ] {
            let holds: Vec<Held> = holds.then(|| held("x")).into_iter().collect();
            let written = |_: &str| Some(Duration::from_secs(written));
            let silent_for = |_: &str, _: &DeletionHoldHolder| Duration::from_secs(silent);
            for second in [0, 990 + 600, 1_000_000] {
                let steps = steps(&holds, &both, "me", written, silent_for, true, at(second));
                assert_eq!(steps, expected, "{second} {holds:?}");
            }
        }
    }

    #[test]
    fn a_decision_counts_for_who_had_entered() {
        let approve = Some(Decision::Approve);
        for (deletion_hold, counts) in [
            (known("x", 1, 2, approve, &[("me", 1)]), true),
            (known("x", 1, 2, approve, &[("me", 2)]), false),
            (known("x", 1, 3, approve, &[("me", 2)]), true),
            (known("x", 1, 2, approve, &[("other", 1)]), false),
            (known("x", 1, 2, None, &[("me", 1)]), false),
            (known("y", 1, 2, approve, &[("me", 1)]), false),
        ] {
            let decisions = decided(&[held("x")], std::slice::from_ref(&deletion_hold), "me");
            let decided = HoldDecision { decision: Decision::Approve, set: "s3".to_owned() };
            assert_eq!(decisions.get("x") == Some(&decided), counts, "{deletion_hold:?}");
        }
        // The object was re-created under its name, or is being deleted.
        for change in [
            |deletion_hold: &mut DeletionHold| deletion_hold.metadata.uid = Some("u2".to_owned()),
            |deletion_hold: &mut DeletionHold| deletion_hold.metadata.deletion_timestamp = Some(Time(at(1000))),
        ] {
            let mut deletion_hold = DeletionHold::clone(&known("x", 1, 2, approve, &[("me", 1)]));
            change(&mut deletion_hold);
            assert!(decided(&[held("x")], &[Arc::new(deletion_hold.clone())], "me").is_empty(), "{deletion_hold:?}");
            assert!(deletion_hold.is_undecided());
        }
        // More objects are held than at the time of the decision, which is about those of the entry.
        let grown = Held { set: "s4".to_owned(), count: 4, ..held("x") };
        let decisions = decided(&[grown], &[known("x", 1, 2, approve, &[("me", 1)])], "me");
        assert_eq!(decisions.get("x").map(|decided| decided.set.as_str()), Some("s3"));
    }
}
