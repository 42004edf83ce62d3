//! What conditions say: of a Route `Published` and `Resolvable`, of a Router `ZonePublished`. Pure.
//!
//! | condition | reason | when |
//! |---|---|---|
//! | `Published` | `Published` | the shard's zone and the alias zone hold the Route's names, under serials that the ledger gave |
//! | | `NotPublished` | one of them does not |
//! | `Resolvable` | `Resolvable` | every listed name server answers right for both names |
//! | | `NotPublished` | as above |
//! | | `NoActiveAddress` | the names are answered with no address, since the Router has no active one |
//! | | `NoNameServer` | no name server is listed that could be asked |
//! | | a [`Fault::reason`] | a listed name server does not answer as it must |

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tokio::time::Instant;

use super::check::{Fault, text};
use super::proofs::{Proofs, RouteState, Server, shard_of, system_name};
use super::standing::{PATIENCE, State};
use crate::api::v1alpha1::route::{PUBLISHED, RESOLVABLE};
use crate::api::v1alpha1::router::ZONE_PUBLISHED;
use crate::client::status::Statement;
use crate::compiler::settings::text_of;
use crate::wire::Name;
use crate::zone::Serial;

/// Servers that a message names; of more it tells how many.
const SERVERS_TOLD_MAX: usize = 4;

/// What is to be said of a Route. `None`: nothing yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saying {
    /// Of `Published`.
    pub published: Option<Statement>,
    /// Of `Resolvable`.
    pub resolvable: Option<Statement>,
}

/// What a Route says of `Published` and `Resolvable`, shortened: there may be 100,000 Routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    published: Option<Heard>,
    resolvable: Option<Heard>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heard {
    is_true: bool,
    generation: Option<i64>,
    /// Hash of reason and message.
    text: u64,
}

impl Told {
    /// Of the conditions of a Route.
    pub fn of(conditions: &[Condition]) -> Self {
        let heard = |kind: &str| {
            let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
            let (is_true, generation) = (condition.status == "True", condition.observed_generation);
            Some(Heard { is_true, generation, text: hash(&condition.reason, &condition.message) })
        };
        Told { published: heard(PUBLISHED), resolvable: heard(RESOLVABLE) }
    }

    /// Whether nothing was said of either.
    pub fn is_nothing(&self) -> bool {
        *self == Told::default()
    }

    /// Whether it is said to be resolvable.
    pub fn is_resolvable(&self) -> bool {
        self.resolvable.is_some_and(|heard| heard.is_true)
    }

    /// What of `saying` a Route of this generation does not say. A good verdict that stands is not told anew because it was
    /// reached anew.
    pub fn lacks(&self, saying: Saying, generation: Option<i64>) -> Vec<Statement> {
        let is_told = |heard: Option<Heard>, statement: &Statement| {
            let same_text = |heard: &Heard| heard.text == hash(statement.reason, &statement.message);
            heard.is_some_and(|heard| {
                heard.is_true == statement.is_true
                    && heard.generation == generation
                    && (heard.is_true || same_text(&heard))
            })
        };
        let both = [(self.published, saying.published), (self.resolvable, saying.resolvable)];
        both.into_iter().filter_map(|(heard, statement)| statement.filter(|one| !is_told(heard, one))).collect()
    }
}

fn hash(reason: &str, message: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((reason, message))
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
        let Some(shard) = self.shards.get(&apex) else {
            let message = format!("there is no zone {}: no Router has it", text(&apex));
            return if late { not_published(&message, self.asks) } else { Saying::default() };
        };
        let alias_apex = self.settings.alias_apex();
        let message = format!(
            "{} holds the name of the route under serial {}, {} its alias under serial {}",
            text(&apex),
            shard.zone.serial,
            text(alias_apex),
            route.serial
        );
        let published = Statement { kind: PUBLISHED, is_true: true, reason: "Published", message };
        if !self.asks {
            return Saying { published: Some(published), resolvable: None };
        }
        let resolvable = self.resolvable(route, &apex, host, at);
        // Both are told at once, unless that takes too long.
        let published = (resolvable.is_some() || late).then_some(published);
        Saying { published, resolvable }
    }

    fn resolvable(&self, route: &RouteState, apex: &Name, host: Option<&str>, at: Timestamp) -> Option<Statement> {
        let no = |reason, message| Some(Statement { kind: RESOLVABLE, is_true: false, reason, message });
        let shard = self.shards.get(apex)?;
        let name = system_name(&route.binding);
        if self.servers.is_empty() {
            return no("NoNameServer", NO_NAME_SERVER.to_owned());
        }
        if shard.expectation.of(&name).is_empty() {
            let message = format!("Router {} has no active address, so that the name leads nowhere", shard.router.name);
            return no("NoActiveAddress", message);
        }
        let alias_apex = self.settings.alias_apex();
        let mut failures = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let zones = [(&shard.zone, apex, shard.zone.serial), (&self.alias, alias_apex, route.serial)];
            let mut failed = false;
            for (zone, apex, need) in zones {
                match zone.standings[index].state(need) {
                    State::Right => {}
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
            return no(first.fault.reason(), told(&failures));
        }
        let alias = alias_apex.prepend(route.binding.label.as_bytes()).ok()?;
        let servers = self.servers.iter().enumerate().map(|(index, server)| {
            let serial = |zone: &super::proofs::Zone| zone.standings[index].proven().unwrap_or(zone.serial);
            format!("{server} with serials {} and {}", serial(&shard.zone), serial(&self.alias))
        });
        let mut message = format!(
            "{} and {} are answered right by {}; checked at {}",
            text(&name),
            text(&alias),
            list(servers, self.servers.len(), ", "),
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        if let Some(host) = host {
            message += &format!("; {host} leads there once its own DNS has the record in status.names");
        }
        Some(Statement { kind: RESOLVABLE, is_true: true, reason: "Resolvable", message })
    }

    /// What is to be said of the Router of the shard `apex`: its name, the statement, and the zone's serial. `None`: nothing
    /// yet.
    pub fn router_saying(&self, apex: &Name) -> Option<(String, Statement, Serial)> {
        let shard = self.shards.get(apex)?;
        let serial = shard.zone.serial;
        let say = |is_true, reason, message| {
            Some((shard.router.name.to_string(), Statement { kind: ZONE_PUBLISHED, is_true, reason, message }, serial))
        };
        let zone = text(apex);
        if !self.asks {
            let message = format!("{zone} has serial {serial}; name servers are not asked (verify-names is off)");
            return say(true, "Published", message);
        }
        if self.servers.is_empty() {
            return say(false, "NoNameServer", NO_NAME_SERVER.to_owned());
        }
        let mut failures = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            match shard.zone.standings[index].state(serial) {
                State::Right => {}
                State::Unknown => return None,
                State::Failed(fault) => failures.push(Failure { server, fault, apex, need: serial }),
            }
        }
        match failures.first() {
            Some(first) => say(false, first.fault.reason(), told(&failures)),
            None => {
                let servers = list(self.servers.iter().map(Server::to_string), self.servers.len(), ", ");
                say(true, "Published", format!("{servers} answer for {zone} from serial {serial} on"))
            }
        }
    }

    /// What is to be said of a Route whose alias is not in the alias zone.
    pub fn unheld_saying(&self) -> Saying {
        let alias_apex = text_of(self.settings.alias_apex());
        not_published(&format!("{alias_apex} does not hold the route's alias"), self.asks)
    }
}

const NO_NAME_SERVER: &str =
    "no name server is listed with an address to ask: set nameserver or verify-server in the configuration";

fn not_published(message: &str, asks: bool) -> Saying {
    let say = |kind| Statement { kind, is_true: false, reason: "NotPublished", message: message.to_owned() };
    Saying { published: Some(say(PUBLISHED)), resolvable: asks.then(|| say(RESOLVABLE)) }
}

fn told(failures: &[Failure<'_>]) -> String {
    let one = |failure: &Failure<'_>| {
        let Failure { server, fault, apex, need } = failure;
        match fault {
            // Not under which: that may change at every look, and this is written to each Route of the zone.
            Fault::OldSerial { .. } => format!("{server} has {} under a serial older than {need}", text(apex)),
            fault => format!("{server} {fault}"),
        }
    };
    list(failures.iter().map(one), failures.len(), "; ")
}

fn list(items: impl Iterator<Item = String>, count: usize, separator: &str) -> String {
    let mut told: Vec<String> = items.take(SERVERS_TOLD_MAX).collect();
    if let Some(more) = count.checked_sub(SERVERS_TOLD_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join(separator)
}
