//! The conditions `Published` and `Resolvable` of a Route, and `ZonePublished` of a Router, by the state of verification. Pure.
//!
//! | condition | reason | when |
//! |---|---|---|
//! | `Published` | `Published` | the shard's zone and the alias zone contain the Route's names, under serials of the ledger |
//! | | `NotPublished` | one of them does not |
//! | | `NoActiveAddress` | the shard's zone has no address for the name, because the Router has no active one |
//! | `Resolvable` | `Resolvable` | every listed name server that answers does so correctly for both names, and one does |
//! | | `NotPublished` | as above |
//! | | `NoActiveAddress` | the answers have no address, because the Router has no active one |
//! | | `NameTaken` | the Router's records, or a name server, use the name on the shard for another target |
//! | | `NoNameServer` | no name server is listed that could be queried |
//! | | a [`Fault::reason`] | a listed name server answers incorrectly, or none answers |
//! | | `HostInZone` | a Router was added whose zone contains the Route's own host |
//! | | `DeletionHeld` | as `OldSerial`, while a DeletionHold holds back deletions |
//! | | `Pending` | the names were in no zone, and are published again; the name servers are being queried |
//!
//! While a name server does not answer, a name that is new waits until the server either has it or answers SERVFAIL instead of
//! NXDOMAIN ([`denials`](crate::name_server::denials)). A Route that was `Resolvable` before stays so.

use jiff::Timestamp;
use tokio::time::Instant;

use super::check::{DELETION_HELD, Fault, text};
use super::server_zone::{DOUBT, Failure, State};
use super::state::{PENDING, RouteEntry, Server, Shard, VerificationState, Zone, shard_of, slot};
use crate::compiler::expectation::NameConflict;
use crate::compiler::settings::text_of;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::route::{Conditions, NOT_PUBLISHED};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_types::v1alpha1::route::{PUBLISHED, RESOLVABLE};
use signpost_types::v1alpha1::router::{NO_ACTIVE_ADDRESS, ZONE_PUBLISHED};

/// The servers that a message names; the others are counted.
const SERVERS_NAMED_MAX: usize = 4;
const NO_NAME_SERVER: &str =
    "no name server is listed with an address to query: set nameserver or verify.server in the configuration";

/// The conditions that a Route should have. `None`: not known yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredConditions {
    pub published: Option<ConditionUpdate>,
    pub resolvable: Option<ConditionUpdate>,
    /// The time at which `resolvable` is known, unless a check ends before.
    pub revisit: Option<Instant>,
}

impl DesiredConditions {
    /// Returns the conditions that differ from those of the Route. A true condition is unchanged while it is true. While
    /// `Resolvable` is unknown, it is unchanged too, unless it states that the names are in no zone, and they are published
    /// again.
    pub fn changed_conditions(mut self, reported: &Conditions) -> Vec<ConditionUpdate> {
        let is_published = self.published.as_ref().is_some_and(|published| published.is_true());
        if is_published && self.resolvable.is_none() && reported.is_refused(RESOLVABLE, NOT_PUBLISHED) {
            let message =
                "the names were missing from their zones and are published again; verification is in progress";
            self.resolvable = Some(condition(RESOLVABLE, false, PENDING, message.to_owned()));
        }
        let is_reported = |update: &ConditionUpdate| {
            let reported = reported.get(update.kind);
            reported.is_some_and(|reported| reported.is_true_now() && update.is_true() || reported.is_as(update))
        };
        let both = [self.published, self.resolvable].into_iter().flatten();
        both.filter(|update| !is_reported(update)).collect()
    }
}

/// A server's fault with a zone.
struct ServerFault<'a> {
    server: &'a Server,
    fault: &'a Fault,
    apex: &'a Name,
    need: Serial,
    /// The time since which the server does not answer; `None`: it answers incorrectly.
    silent_since: Option<Instant>,
}

impl VerificationState {
    /// Returns the conditions of the Route with the names of `label` and the custom host `host`. `time` is the time of day.
    pub fn conditions(&self, label: &str, host: Option<&str>, now: Instant, time: Timestamp) -> DesiredConditions {
        let Some(route) = self.routes.get(label) else { return DesiredConditions::default() };
        // All servers should have the name at that time.
        let is_late = now >= route.since + DOUBT;
        let apex = shard_of(&route.binding);
        let Some(shard) = self.zones.shards.get(&apex) else {
            let message = format!("the zone {} does not exist: no Router has it", text(&apex));
            return if is_late { not_published(&message, self.config.queries) } else { DesiredConditions::default() };
        };
        let name = route.binding.name();
        let is_outage =
            shard.router.expectation.conflict(&name).is_none() && shard.router.expectation.of(&name).is_empty();
        let message = format!(
            "{} has the Route's name under serial {}, and {} its alias under serial {}",
            text(&apex),
            shard.zone.serial,
            text(self.config.platform.alias_apex()),
            route.serial()
        );
        let published = match is_outage {
            true => no_active_address(PUBLISHED, &shard.router.name),
            false => condition(PUBLISHED, true, "Published", message),
        };
        if !self.config.queries {
            return DesiredConditions { published: Some(published), ..DesiredConditions::default() };
        }
        let resolvable = match is_outage && !self.config.servers.is_empty() {
            true => Ok(no_active_address(RESOLVABLE, &shard.router.name)),
            false => self.resolvable((label, route), (&apex, shard), host, now, time),
        };
        let revisit = resolvable.as_ref().err().copied().flatten();
        let resolvable = resolvable.ok();
        // Both are reported together, unless that takes too long.
        let published = (resolvable.is_some() || is_late).then_some(published);
        DesiredConditions { published, resolvable, revisit }
    }

    /// Returns the condition, or the time at which it is known, if no check decides before.
    fn resolvable(
        &self,
        (label, route): (&str, &RouteEntry),
        (apex, shard): (&Name, &Shard),
        host: Option<&str>,
        now: Instant,
        time: Timestamp,
    ) -> Result<ConditionUpdate, Option<Instant>> {
        let no = |reason, message| Ok(condition(RESOLVABLE, false, reason, message));
        let name = route.binding.name();
        if self.config.servers.is_empty() {
            return no("NoNameServer", NO_NAME_SERVER.to_owned());
        }
        if let Some(taken) = shard.router.expectation.conflict(&name) {
            return no("NameTaken", is_taken(&name, taken, &shard.router.name));
        }
        // A route may have its own name as its host, or the apex of its shard if that has addresses.
        let is_apex = |host: &str| shard.router.has_apex() && host.eq_ignore_ascii_case(&text(apex));
        let host = host.filter(|host| !host.eq_ignore_ascii_case(&text(&name)) && !is_apex(host));
        if let Some(message) = host.and_then(|host| self.taken_by_zone(host)) {
            return no("HostInZone", message);
        }
        let mut found = Vec::with_capacity(self.config.servers.len());
        for index in 0..self.config.servers.len() {
            found.push(self.server_fault((label, route), (apex, shard), index, now).ok_or(None)?);
        }
        let faults: Vec<&ServerFault<'_>> = found.iter().flatten().collect();
        let is_right = |fault: &&Option<ServerFault<'_>>| fault.is_none();
        // Clients query another server instead of one that does not answer.
        let wrong = faults.iter().find(|fault| fault.silent_since.is_none());
        let blocking = wrong.or_else(|| faults.first().filter(|_| found.iter().find(is_right).is_none()));
        if let Some(first) = blocking {
            return no(self.reason(first), self.message(&faults));
        }
        if let Some(since) = faults.iter().filter_map(|fault| fault.silent_since).max() {
            let at = since.max(route.since).max(shard.since) + self.config.silence_longest;
            if now < at {
                return Err(Some(at));
            }
        }
        let alias = self.config.platform.alias_apex().prepend(route.binding.label.as_bytes()).map_err(|_| None)?;
        let right = self.config.servers.iter().enumerate().filter(|(index, _)| found[*index].is_none());
        let servers = right.map(|(index, server)| {
            let serial = |zone: &Zone| zone.servers[index].state.serial().unwrap_or(zone.serial);
            format!("{server} with serials {} and {}", serial(&shard.zone), serial(&self.zones.alias))
        });
        let mut message = format!(
            "{} and {} are answered correctly by {}; checked at {}",
            text(&name),
            text(&alias),
            list(servers, self.config.servers.len() - faults.len(), ", "),
            time.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        if !faults.is_empty() {
            message += &format!("; {}", self.message(&faults));
        }
        if let Some(host) = host {
            message += &format!("; {host} leads there when its own DNS has the record in status.names");
        }
        Ok(condition(RESOLVABLE, true, "Resolvable", message))
    }

    /// Returns the fault of a server with a Route's names, if it has one; `None`: not known yet.
    fn server_fault<'a>(
        &'a self,
        (label, route): (&str, &RouteEntry),
        (apex, shard): (&'a Name, &'a Shard),
        index: usize,
        now: Instant,
    ) -> Option<Option<ServerFault<'a>>> {
        let (server, alias_apex) = (&self.config.servers[index], self.config.platform.alias_apex());
        let of_zone = [(shard_state(&shard.zone, index), false), (self.alias_state(label, route, index), true)];
        let mut found: Option<ServerFault<'_>> = None;
        for (state, is_alias) in of_zone {
            let of_name = || self.failing[slot(index, is_alias)].get(label).map_or(State::Right, Failure::state);
            let (apex, need) = if is_alias { (alias_apex, route.serial()) } else { (apex, shard.zone.serial) };
            let (fault, silent_since) = match if state == State::Right { of_name() } else { state } {
                State::Right => continue,
                // If a server holds back deletions, a new name arrives a moment later, under a serial that does not show it. All
                // servers should have the name after the time of doubt.
                State::Failed(Fault::OldSerial) if now < route.since + DOUBT => return None,
                State::Unknown => return None,
                State::Silent(fault, since) => (fault, Some(since)),
                State::Failed(fault) => (fault, None),
            };
            // One fault of a server is enough, a wrong answer rather than none.
            if found.as_ref().is_none_or(|found| found.silent_since.is_some()) {
                found = Some(ServerFault { server, fault, apex, need, silent_since });
            }
        }
        let slots = 1 << slot(index, false) | 1 << slot(index, true);
        if found.is_none() && route.to_query & slots != 0 {
            return None;
        }
        Some(found)
    }

    /// Returns the condition of the Router of the shard `apex`, with its name, and the zone's serial if that is known. `None`:
    /// not known yet.
    pub fn router_condition(&self, apex: &Name) -> Option<(String, ConditionUpdate, Option<Serial>)> {
        let zone = text(apex);
        if let Some((router, error)) = self.zones.refused.get(apex) {
            let message = format!(
                "the API rejects the serial of {zone}, so each name server serves the zone under its own serials: \
                 {error}"
            );
            return Some((router.to_string(), condition(ZONE_PUBLISHED, false, "SerialRefused", message), None));
        }
        if let Some((router, outer)) = self.zones.withheld.get(apex) {
            // The message omits the names, because every tenant may read it, and a name contains its Route's namespace.
            let message = format!(
                "names of Routes in {0} are at or below {zone}, so {zone} is not served, and these names resolve as before; \
                 move or delete these Routes, or re-create the Router with another zone",
                text(outer)
            );
            return Some((router.to_string(), condition(ZONE_PUBLISHED, false, "ZoneWithheld", message), None));
        }
        let shard = self.zones.shards.get(apex)?;
        let serial = shard.zone.serial;
        let found = |is_true, reason, message| {
            Some((shard.router.name.to_string(), condition(ZONE_PUBLISHED, is_true, reason, message), Some(serial)))
        };
        if !self.config.queries {
            let message = format!("{zone} has serial {serial}; name servers are not queried (verify.names is false)");
            return found(true, "Published", message);
        }
        if self.config.servers.is_empty() {
            return found(false, "NoNameServer", NO_NAME_SERVER.to_owned());
        }
        let has_deletion_hold = self.has_deletion_hold(apex);
        let (mut faults, mut right, mut is_old) = (Vec::new(), Vec::new(), false);
        for (server, entry) in self.config.servers.iter().zip(&shard.zone.servers) {
            let fault = |fault, silent_since| ServerFault { server, fault, apex, need: serial, silent_since };
            match entry.state.state(serial) {
                State::Right => right.push(server),
                State::Unknown => return None,
                // Without a known DeletionHold, the version counts: a zone has more than addresses.
                State::Failed(_) | State::Silent(Fault::OldSerial, _) if has_deletion_hold && entry.state.is_same() => {
                    is_old = true;
                    right.push(server);
                }
                State::Failed(found) => faults.push(fault(found, None)),
                State::Silent(found, since) => faults.push(fault(found, Some(since))),
            }
        }
        let faults: Vec<&ServerFault<'_>> = faults.iter().collect();
        let wrong = faults.iter().find(|fault| fault.silent_since.is_none());
        if let Some(first) = wrong.or_else(|| faults.first().filter(|_| right.is_empty())) {
            return found(false, self.reason(first), self.message(&faults));
        }
        let answer = if right.len() == 1 { "answers" } else { "answer" };
        let count = right.len();
        let servers = list(right.into_iter().map(Server::to_string), count, ", ");
        // The message omits the DeletionHold, because every tenant may read the message, but a DeletionHold is the operator's.
        let mut message = match is_old {
            false => format!("{servers} {answer} for {zone} with serial {serial} or later"),
            true => format!(
                "{servers} {answer} for {zone} as the Router specifies, under a serial older than {serial}, while a \
                 DeletionHold keeps deleted objects"
            ),
        };
        if !faults.is_empty() {
            message += &format!("; {}", self.message(&faults));
        }
        found(true, "Published", message)
    }

    /// Returns the state of a route's alias on a server: by the zone's version, or by the one in which the server has shown it.
    fn alias_state(&self, label: &str, route: &RouteEntry, index: usize) -> State<'_> {
        let server = &self.zones.alias.servers[index].state;
        let is_shown = self.shown_in(label, index).is_some_and(|serial| server.state(serial) == State::Right);
        if is_shown { State::Right } else { server.state(route.serial()) }
    }

    /// Returns the reason why the DNS of a Route's custom host is not queried: a Router was added whose zone contains the host.
    fn taken_by_zone(&self, host: &str) -> Option<String> {
        let name: Name = host.strip_prefix("*.").unwrap_or(host).parse().ok()?;
        let mut above = std::iter::successors(Some(name), Name::parent);
        let (apex, shard) = above.find_map(|apex| self.zones.shards.get_key_value(&apex))?;
        let (zone, router) = (text(apex), &shard.router.name);
        Some(format!(
            "{host} is in {zone}, the zone of Router {router}, so its own DNS is not queried; give the Route another \
             host, or re-create the Router with another zone"
        ))
    }

    fn reason(&self, fault: &ServerFault<'_>) -> &'static str {
        match fault.fault {
            Fault::OldSerial if self.has_deletion_hold(fault.apex) => DELETION_HELD,
            fault => fault.reason(),
        }
    }

    fn message(&self, faults: &[&ServerFault<'_>]) -> String {
        let one = |ServerFault { server, fault, apex, need, .. }: &ServerFault<'_>| {
            if **fault != Fault::OldSerial {
                return format!("{server} {fault}");
            }
            // The message omits the server's serial: it can change with every check, and the message is written to each Route of
            // the zone.
            let held = match self.has_deletion_hold(apex) {
                true => ", while a DeletionHold keeps deleted objects, and has not answered correctly for the name",
                false => "",
            };
            format!("{server} has {} under a serial older than {need}{held}", text(apex))
        };
        list(faults.iter().copied().map(one), faults.len(), "; ")
    }

    /// Returns the conditions of a Route whose alias is not in the alias zone.
    pub fn conditions_without_alias(&self) -> DesiredConditions {
        let alias_apex = text_of(self.config.platform.alias_apex());
        not_published(&format!("{alias_apex} does not have the Route's alias"), self.config.queries)
    }
}

/// Returns the state of a shard's zone on a server: by its version, or by the answers of an older one at which the server stays.
fn shard_state(zone: &Zone, index: usize) -> State<'_> {
    let server = &zone.servers[index].state;
    if server.is_same() { State::Right } else { server.state(zone.serial) }
}

fn condition(kind: &'static str, is_true: bool, reason: &'static str, message: String) -> ConditionUpdate {
    ConditionUpdate { kind, status: Status::from(is_true), reason, message }
}

/// Returns the message about a name with another use in the shard of this Router.
fn is_taken(name: &Name, taken: &NameConflict, router: &str) -> String {
    let name = text(name);
    match taken {
        NameConflict::NameServer => {
            format!("{name} {taken} and does not lead to the Route: move the Route to another Router")
        }
        _ => format!(
            "{name} {taken} by spec.records of Router {router} and does not lead to the Route: remove these records, \
             or move the Route to another Router"
        ),
    }
}

/// Returns the condition of a name that the zone has, without an address: for its users, that is an outage.
fn no_active_address(kind: &'static str, router: &str) -> ConditionUpdate {
    let message = format!("Router {router} has no active address, so the name resolves to NODATA");
    condition(kind, false, NO_ACTIVE_ADDRESS, message)
}

fn not_published(message: &str, queries: bool) -> DesiredConditions {
    let no = |kind| condition(kind, false, NOT_PUBLISHED, message.to_owned());
    DesiredConditions { published: Some(no(PUBLISHED)), resolvable: queries.then(|| no(RESOLVABLE)), revisit: None }
}

fn list(items: impl Iterator<Item = String>, count: usize, separator: &str) -> String {
    let mut named: Vec<String> = items.take(SERVERS_NAMED_MAX).collect();
    if let Some(more) = count.checked_sub(SERVERS_NAMED_MAX).filter(|more| *more > 0) {
        named.push(format!("and {more} more"));
    }
    named.join(separator)
}
