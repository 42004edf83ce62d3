//! What conditions say: of a Route `Published` and `Resolvable`, of a Router `ZonePublished`. Pure.
//!
//! | condition | reason | when |
//! |---|---|---|
//! | `Published` | `Published` | the shard's zone and the alias zone hold the Route's names, under serials that the ledger gave |
//! | | `NotPublished` | one of them does not |
//! | | `NoActiveAddress` | the shard's zone has no address for the name, since the Router has no active one |
//! | `Resolvable` | `Resolvable` | every listed name server answers right for both names |
//! | | `NotPublished` | as above |
//! | | `NoActiveAddress` | the names are answered with no address, since the Router has no active one |
//! | | `NameTaken` | the Router's records, or a name server, have the name on the shard, which leads elsewhere |
//! | | `NoNameServer` | no name server is listed that could be asked |
//! | | a [`Fault::reason`] | a listed name server does not answer as it must |
//! | | `HostInZone` | a Router has come with a zone in which the Route's own host lies |
//! | | `DeletionHeld` | as `OldSerial`, while a DeletionHold holds back what was deleted |
//! | | `Pending` | that there was no zone was told, and is over; the name servers are being asked |

use jiff::Timestamp;
use tokio::time::Instant;

use super::check::{DELETION_HELD, Fault, text};
use super::proofs::{Proofs, SERVERS_MAX, Server, shard_of, system_name};
use super::routes::{PENDING, RouteState};
use super::standing::{PATIENCE, State};
use super::zones::Zone;
use crate::compiler::settings::text_of;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::expectation::Taken;
use crate::world::route::{Mark, NOT_PUBLISHED, Reported, ReportedNames};
use signpost_api::v1alpha1::route::{PUBLISHED, RESOLVABLE};
use signpost_api::v1alpha1::router::{NO_ACTIVE_ADDRESS, ZONE_PUBLISHED};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// Servers that a message names; of more it tells how many.
const SERVERS_TOLD_MAX: usize = 4;

/// What is to be said of a Route. `None`: nothing yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saying {
    /// Of `Published`.
    pub published: Option<ConditionUpdate>,
    /// Of `Resolvable`.
    pub resolvable: Option<ConditionUpdate>,
}

impl Saying {
    /// What of it the Route does not say. A good verdict that stands is not told anew because it was
    /// reached anew. Where nothing is to be said of `Resolvable` yet, what was said of it stands, unless that is that the names
    /// were in no zone, which they are in again.
    pub fn news(mut self, told: &ReportedNames) -> Vec<ConditionUpdate> {
        let is_published = self.published.as_ref().is_some_and(|published| published.is_true());
        if is_published && self.resolvable.is_none() && told.resolvable.is_some_and(|told| told.is_unpublished) {
            let message = "not known yet: the names are in their zones again, and the name servers are being asked";
            self.resolvable = Some(ConditionUpdate {
                kind: RESOLVABLE,
                status: Status::False,
                reason: PENDING,
                message: message.to_owned(),
            });
        }
        let is_told = |told: Option<Reported>, statement: &ConditionUpdate| {
            told.is_some_and(|told| {
                let both_are_true = told.mark.is_true() && statement.is_true();
                told.is_current && (both_are_true || told.mark == Mark::of_update(statement))
            })
        };
        let both = [(told.published, self.published), (told.resolvable, self.resolvable)];
        both.into_iter().filter_map(|(told, statement)| statement.filter(|one| !is_told(told, one))).collect()
    }
}

/// A server's fault with a zone.
struct Failure<'a> {
    server: &'a Server,
    fault: &'a Fault,
    apex: &'a Name,
    need: Serial,
}

impl Proofs {
    /// What is to be said of the Route whose names are those of `label`. `host` is its own.
    pub fn saying(&self, label: &str, host: Option<&str>, now: Instant, at: Timestamp) -> Saying {
        let Some(route) = self.routes.get(label) else { return Saying::default() };
        let late = now >= route.since + PATIENCE;
        let apex = shard_of(&route.binding);
        let Some(shard) = self.zones.shards.get(&apex) else {
            let message = format!("there is no zone {}: no Router has it", text(&apex));
            return if late { not_published(&message, self.config.asks) } else { Saying::default() };
        };
        let alias_apex = self.config.settings.alias_apex();
        let message = format!(
            "{} holds the name of the route under serial {}, {} its alias under serial {}",
            text(&apex),
            shard.zone.serial,
            text(alias_apex),
            route.serial
        );
        let name = system_name(&route.binding);
        let is_outage = shard.expectation.taken(&name).is_none() && shard.expectation.of(&name).is_empty();
        let published = match is_outage {
            true => leads_nowhere(PUBLISHED, &shard.router.name),
            false => ConditionUpdate { kind: PUBLISHED, status: Status::True, reason: "Published", message },
        };
        if !self.config.asks {
            return Saying { published: Some(published), resolvable: None };
        }
        let resolvable = self.resolvable((label, route), &apex, host, (late, at));
        // Both are told at once, unless that takes too long.
        let published = (resolvable.is_some() || late).then_some(published);
        Saying { published, resolvable }
    }

    /// `late`: the route has been there for so long that all servers should have its name; `at`: the time.
    fn resolvable(
        &self,
        (label, route): (&str, &RouteState),
        apex: &Name,
        host: Option<&str>,
        (late, at): (bool, Timestamp),
    ) -> Option<ConditionUpdate> {
        let no = |reason, message| Some(ConditionUpdate { kind: RESOLVABLE, status: Status::False, reason, message });
        let shard = self.zones.shards.get(apex)?;
        let name = system_name(&route.binding);
        if self.config.servers.is_empty() {
            return no("NoNameServer", NO_NAME_SERVER.to_owned());
        }
        if let Some(taken) = shard.expectation.taken(&name) {
            return no("NameTaken", is_taken(&name, taken, &shard.router.name));
        }
        if shard.expectation.of(&name).is_empty() {
            return Some(leads_nowhere(RESOLVABLE, &shard.router.name));
        }
        // A route may ask for its own name.
        let host = host.filter(|host| !host.eq_ignore_ascii_case(&text(&name)));
        if let Some(message) = host.and_then(|host| self.taken_by_zone(host)) {
            return no("HostInZone", message);
        }
        let alias_apex = self.config.settings.alias_apex();
        let mut failures = Vec::new();
        for (index, server) in self.config.servers.iter().enumerate() {
            let states = [
                (shard_state(&shard.zone, index), apex, shard.zone.serial, index),
                (self.alias_state(label, route, index), alias_apex, route.serial, index + SERVERS_MAX),
            ];
            let mut failed = false;
            for (state, apex, need, slot) in states {
                let state = if state == State::Right { self.own.state(label, slot, need) } else { state };
                match state {
                    State::Right => {}
                    // Where the deletion hold keeps, what is new comes a moment later, under a serial that says nothing of it.
                    State::Failed(Fault::OldSerial { .. }) if !late => return None,
                    State::Unknown => return None,
                    // One fault of a server is enough.
                    State::Failed(_) if failed => {}
                    State::Failed(fault) => {
                        failures.push(Failure { server, fault, apex, need });
                        failed = true;
                    }
                }
            }
            if !failed && Self::is_to_be_asked(route, index) {
                return None;
            }
        }
        if let Some(first) = failures.first() {
            return no(self.reason(first), self.told(&failures));
        }
        let alias = alias_apex.prepend(route.binding.label.as_bytes()).ok()?;
        let servers = self.config.servers.iter().enumerate().map(|(index, server)| {
            let serial = |zone: &Zone| zone.standings[index].serial().unwrap_or(zone.serial);
            format!("{server} with serials {} and {}", serial(&shard.zone), serial(&self.zones.alias))
        });
        let mut message = format!(
            "{} and {} are answered right by {}; checked at {}",
            text(&name),
            text(&alias),
            list(servers, self.config.servers.len(), ", "),
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        if let Some(host) = host {
            message += &format!("; {host} leads there once its own DNS has the record in status.names");
        }
        Some(ConditionUpdate { kind: RESOLVABLE, status: Status::True, reason: "Resolvable", message })
    }

    /// What is to be said of the Router of the shard `apex`: its name, the statement, and the zone's serial if that is known.
    /// `None`: nothing yet.
    pub fn router_saying(&self, apex: &Name) -> Option<(String, ConditionUpdate, Option<Serial>)> {
        if let Some((router, error)) = self.zones.refused.get(apex) {
            let message = format!(
                "the API refuses to have the serial of {} written, so that each name server serves it under serials of its \
                 own: {error}",
                text(apex)
            );
            let statement =
                ConditionUpdate { kind: ZONE_PUBLISHED, status: Status::False, reason: "SerialRefused", message };
            return Some((router.to_string(), statement, None));
        }
        let shard = self.zones.shards.get(apex)?;
        let serial = shard.zone.serial;
        let say = |is_true: bool, reason, message| {
            let statement = ConditionUpdate { kind: ZONE_PUBLISHED, status: is_true.into(), reason, message };
            Some((shard.router.name.to_string(), statement, Some(serial)))
        };
        let zone = text(apex);
        if !self.config.asks {
            let message = format!("{zone} has serial {serial}; name servers are not asked (verify.names is false)");
            return say(true, "Published", message);
        }
        if self.config.servers.is_empty() {
            return say(false, "NoNameServer", NO_NAME_SERVER.to_owned());
        }
        let mut failures = Vec::new();
        let has_deletion_hold = self.has_deletion_hold(apex);
        let mut old = false;
        for (index, server) in self.config.servers.iter().enumerate() {
            let standing = &shard.zone.standings[index];
            match standing.state(serial) {
                State::Right => {}
                State::Unknown => return None,
                // Where no DeletionHold is known, the version is what is asked for: a zone has more than addresses.
                State::Failed(_) if has_deletion_hold && standing.shows_all() => old = true,
                State::Failed(fault) => failures.push(Failure { server, fault, apex, need: serial }),
            }
        }
        if let Some(first) = failures.first() {
            return say(false, self.reason(first), self.told(&failures));
        }
        let servers = list(self.config.servers.iter().map(Server::to_string), self.config.servers.len(), ", ");
        let answer = if self.config.servers.len() == 1 { "answers" } else { "answer" };
        // Every tenant may read it, and a DeletionHold is the operator's: it is not named.
        let message = match old && has_deletion_hold {
            false => format!("{servers} {answer} for {zone} from serial {serial} on"),
            true => format!(
                "{servers} {answer} for {zone} as the Router says, under an older serial than {serial} while a DeletionHold holds \
                 back what was deleted"
            ),
        };
        say(true, "Published", message)
    }

    /// How a server stands with a route's alias: by the zone's version, or by what it has shown.
    fn alias_state(&self, label: &str, route: &RouteState, index: usize) -> State<'_> {
        let standing = &self.zones.alias.standings[index];
        let shown = self.behind.shown(label, index);
        match standing.state(route.serial) {
            State::Right => State::Right,
            state => match shown.map(|serial| standing.state(serial)) {
                Some(State::Right) => State::Right,
                _ => state,
            },
        }
    }

    /// Why nobody reaches a Route by its own host: a Router came with a zone in which the host lies.
    fn taken_by_zone(&self, host: &str) -> Option<String> {
        let name: Name = host.strip_prefix("*.").unwrap_or(host).parse().ok()?;
        let mut above = std::iter::successors(Some(name), Name::parent);
        let (apex, shard) = above.find_map(|apex| self.zones.shards.get_key_value(&apex))?;
        let (zone, router) = (text(apex), &shard.router.name);
        Some(format!(
            "{host} lies in {zone}, which is the zone of Router {router} now: its own DNS is not asked any more; give the \
             route another host, or make the Router anew with another zone"
        ))
    }

    fn reason(&self, failure: &Failure<'_>) -> &'static str {
        match failure.fault {
            Fault::OldSerial { .. } if self.has_deletion_hold(failure.apex) => DELETION_HELD,
            fault => fault.reason(),
        }
    }

    fn told(&self, failures: &[Failure<'_>]) -> String {
        let one = |failure: &Failure<'_>| {
            let Failure { server, fault, apex, need } = failure;
            match (fault, self.has_deletion_hold(apex)) {
                // Not under which: that may change at every look, and this is written to each Route of the zone.
                (Fault::OldSerial { .. }, false) => {
                    format!("{server} has {} under a serial older than {need}", text(apex))
                }
                (Fault::OldSerial { .. }, true) => format!(
                    "{server} has {} under a serial older than {need}, while a DeletionHold holds back what was deleted, and has \
                     not answered for the name as it should",
                    text(apex)
                ),
                (fault, _) => format!("{server} {fault}"),
            }
        };
        list(failures.iter().map(one), failures.len(), "; ")
    }

    /// What is to be said of a Route whose alias is not in the alias zone.
    pub fn unheld_saying(&self) -> Saying {
        let alias_apex = text_of(self.config.settings.alias_apex());
        not_published(&format!("{alias_apex} does not hold the route's alias"), self.config.asks)
    }
}

/// How a server stands with a shard's zone: by its version, or by what it answers for good under an older one.
fn shard_state(zone: &Zone, index: usize) -> State<'_> {
    let standing = &zone.standings[index];
    if standing.shows_all() { State::Right } else { standing.state(zone.serial) }
}

const NO_NAME_SERVER: &str =
    "no name server is listed with an address to ask: set nameserver or verify.server in the configuration";

/// What is said of a name that something else has in the shard of this Router.
fn is_taken(name: &Name, taken: &Taken, router: &str) -> String {
    let name = text(name);
    match taken {
        Taken::NameServer => format!("{name} {taken} and does not lead to the route: move the route to another Router"),
        _ => format!(
            "{name} {taken} by spec.records of Router {router} and does not lead to the route: take these records out, or move \
             the route to another Router"
        ),
    }
}

/// What is said of a name that the zone has, with no address: for whoever uses it that is an outage.
fn leads_nowhere(kind: &'static str, router: &str) -> ConditionUpdate {
    let message = format!("Router {router} has no active address, so that the name leads nowhere");
    ConditionUpdate { kind, status: Status::False, reason: NO_ACTIVE_ADDRESS, message }
}

fn not_published(message: &str, asks: bool) -> Saying {
    let say =
        |kind| ConditionUpdate { kind, status: Status::False, reason: NOT_PUBLISHED, message: message.to_owned() };
    Saying { published: Some(say(PUBLISHED)), resolvable: asks.then(|| say(RESOLVABLE)) }
}

fn list(items: impl Iterator<Item = String>, count: usize, separator: &str) -> String {
    let mut told: Vec<String> = items.take(SERVERS_TOLD_MAX).collect();
    if let Some(more) = count.checked_sub(SERVERS_TOLD_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    #[test]
    fn a_zone_that_is_there_again_is_told_at_once() {
        let condition = |kind: &str, reason: &str| Condition {
            type_: kind.to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: "there is no zone s.v3.example: no Router has it".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let published =
            ConditionUpdate { kind: PUBLISHED, status: Status::True, reason: "Published", message: "m".to_owned() };
        for (reason, expected) in [
            (NOT_PUBLISHED, vec![(PUBLISHED, "Published"), (RESOLVABLE, PENDING)]),
            // What was found out about servers stands until something else is.
            ("NotAnswering", vec![(PUBLISHED, "Published")]),
        ] {
            let told =
                ReportedNames::new(&[condition(PUBLISHED, NOT_PUBLISHED), condition(RESOLVABLE, reason)], Some(1));
            let saying = Saying { published: Some(published.clone()), resolvable: None };
            let found = saying.news(&told);
            assert_eq!(found.iter().map(|one| (one.kind, one.reason)).collect::<Vec<_>>(), expected, "{reason}");
        }
    }
}
