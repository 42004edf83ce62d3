//! The compiler's results for a Router's fields and names, before any name server publishes its zone.

use std::collections::{BTreeMap, BTreeSet};

use crate::compiler::expectation::Expectation;
use crate::compiler::former_names::FormerNames;
use crate::compiler::inputs::RouterInput;
use crate::compiler::settings::text_of;
use crate::compiler::{Diagnostic, Settings, shard};
use crate::controller::zone::zones::examine;
use signpost_dns::wire::Name;
use signpost_types::v1alpha1::router::Router;

/// The compiler's results for a Router, with the settings of the platform's zones.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The problems of its fields.
    pub faults: Box<[Diagnostic]>,
    /// Labels directly below the zone's apex whose names do not resolve to the Router, in lower case, with the reason as text
    /// that follows the name.
    pub taken: BTreeMap<Box<str>, Box<str>>,
    /// Labels directly below its zone's apex at which it has records of its own, in lower case: no former name can be there.
    pub record_labels: BTreeSet<Box<str>>,
}

impl Examination {
    /// Examines a Router.
    pub fn new(router: &Router, input: Option<&RouterInput>, platform: &Settings) -> Self {
        Examination {
            faults: examine(router, platform).into(),
            taken: input.map_or_else(BTreeMap::new, |input| taken_labels(input, platform)),
            record_labels: input.map_or_else(BTreeSet::new, record_labels),
        }
    }
}

/// Returns the labels directly below the apex whose names do not resolve to a Router, and the reason: its records, or a name
/// server.
pub fn taken_labels(input: &RouterInput, platform: &Settings) -> BTreeMap<Box<str>, Box<str>> {
    let has_server = || platform.name_servers().iter().any(|server| server.name.is_at_or_below(&input.apex));
    // Nearly no Router has any.
    if input.records.is_empty() && !has_server() {
        return BTreeMap::new();
    }
    let expectation = Expectation::new(input, platform);
    let below = expectation.all_taken().filter(|owner| owner.parent().as_ref() == Some(&input.apex));
    below.filter_map(|owner| Some((label_of(owner), expectation.taken(owner)?.to_string().into()))).collect()
}

fn record_labels(input: &RouterInput) -> BTreeSet<Box<str>> {
    if input.records.is_empty() {
        return BTreeSet::new();
    }
    let made = shard::compile(input, &FormerNames::default(), &mut Vec::new());
    let owners = made.records.owners().map(|(owner, _)| owner);
    let below = owners.filter(|owner| !owner.is_wildcard() && owner.parent().as_ref() == Some(&input.apex));
    below.map(label_of).collect()
}

/// Returns the first label of a name, in lower case.
fn label_of(name: &Name) -> Box<str> {
    text_of(name).split('.').next().unwrap_or_default().into()
}
