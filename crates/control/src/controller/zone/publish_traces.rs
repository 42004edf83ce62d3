//! Trace spans of Routes whose names are being published: from a RouteBinding's arrival until its alias resolves.
//!
//! An alias resolves some time after its binding arrives, because the alias zone waits for its serial from the ledger. The module
//! stores nothing about Routes without traces.

use std::time::{Duration, Instant};

use crate::compiler::inputs::BindingInput;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Zone;
use signpost_dns::zone::lookup::{Lookup, lookup};
use signpost_dns::zone::qname::Qname;
use signpost_runtime::telemetry::trace::Trace;

/// The most names that are tracked at a time. Beyond it, none is added: their spans are missing.
const WALKS_MAX: usize = 4_096;
/// The longest time for which a name is tracked: a name that another Route holds never arrives.
const LONGEST: Duration = Duration::from_secs(120);

/// The names that have arrived and do not resolve yet.
#[derive(Debug, Default)]
pub struct PublishTraces(Vec<Walk>);

#[derive(Debug)]
struct Walk {
    trace: Trace,
    binding: Box<str>,
    label: Box<str>,
    arrived: Instant,
    made: Option<Instant>,
}

impl PublishTraces {
    /// Records the arrival of a RouteBinding that gives its Route a new name.
    pub fn arrived(&mut self, trace: Option<Trace>, binding: &BindingInput) {
        let Some(trace) = trace.filter(|_| self.0.len() < WALKS_MAX) else { return };
        let (binding, label) = (binding.key.clone(), binding.label.clone());
        self.0.push(Walk { trace, binding, label, arrived: Instant::now(), made: None });
    }

    /// Marks the arrived changes as applied: the changes in the zones are known.
    pub fn made(&mut self) {
        let now = Instant::now();
        self.0.iter_mut().filter(|walk| walk.made.is_none()).for_each(|walk| walk.made = Some(now));
    }

    /// Returns whether no name is being published.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends the spans of names in this version of the alias zone, which is now served.
    pub fn published(&mut self, aliases: &Zone, apex: &Name) {
        let now = Instant::now();
        self.0.retain(|walk| {
            if !has(aliases, apex, &walk.label) {
                return walk.arrived.elapsed() < LONGEST;
            }
            let made = walk.made.unwrap_or(now);
            let of = |name, began| walk.trace.step(name, began).with("signpost.binding", &*walk.binding);
            of("compile", walk.arrived).end_at(made);
            of("publish", made).with("dns.zone", apex.to_string()).end_at(now);
            false
        });
    }
}

fn has(aliases: &Zone, apex: &Name, label: &str) -> bool {
    let Ok(name) = apex.prepend(label.as_bytes()) else { return false };
    matches!(lookup(aliases, &Qname::of(name.as_wire()), RecordType::CNAME), Some(Lookup::Answer(..)))
}
