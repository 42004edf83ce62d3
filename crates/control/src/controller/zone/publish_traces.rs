//! The spans of Routes whose names are on their way into the zones: from a RouteBinding's arrival until its alias is answered.
//!
//! An alias is answered from a while after its binding was heard of, since the zone of the aliases waits for the ledger to name
//! its serial. Nothing is here of Routes that are not traced.

use std::time::{Duration, Instant};

use crate::compiler::inputs::BindingInput;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Zone;
use signpost_dns::zone::lookup::{Lookup, lookup};
use signpost_dns::zone::qname::Qname;
use signpost_runtime::telemetry::trace::Trace;

/// Names that may be on their way at a time. Beyond, none is added: their spans are missing.
const WALKS_MAX: usize = 4_096;
/// How long a name may be on its way: one that another Route has never comes.
const LONGEST: Duration = Duration::from_secs(120);

/// Names that were heard of and are not answered yet.
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
    /// A RouteBinding came that gives its Route another name than before.
    pub fn arrived(&mut self, trace: Option<Trace>, binding: &BindingInput) {
        let Some(trace) = trace.filter(|_| self.0.len() < WALKS_MAX) else { return };
        let (binding, label) = (binding.key.clone(), binding.label.clone());
        self.0.push(Walk { trace, binding, label, arrived: Instant::now(), made: None });
    }

    /// What came is taken in: what changes in the zones is known.
    pub fn made(&mut self) {
        let now = Instant::now();
        self.0.iter_mut().filter(|walk| walk.made.is_none()).for_each(|walk| walk.made = Some(now));
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This version of the zone of the aliases is answered from.
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
