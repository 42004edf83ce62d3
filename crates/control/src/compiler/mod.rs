//! The compiler from objects to zones: the records of the platform's zones, given its Routers, its RouteBindings, and the
//! configuration. Pure: no I/O, no clock.
//!
//! [`compile`] defines the meaning of all objects. The control loops use its parts: [`platform::Platform`] holds the objects and
//! returns the effects of a changed one, [`shard`], [`parent`], and [`alias`] build a whole zone or the changed names of one, and
//! [`digest`] identifies the contents that two name servers have in common.
//!
//! An invalid object gets a [`Diagnostic`]; the other objects, and its valid parts, are served.

use std::sync::Arc;

use signpost_dns::zone::Contents;
use signpost_types::v1alpha1::zone::ZoneKind;

pub mod settings;

pub mod health;
pub mod inputs;
pub mod platform;

pub mod adopted;
pub mod alias;
pub mod apex;
pub mod challenges;
pub mod discovery;
pub mod expectation;
pub mod former_domains;
pub mod former_names;
pub mod parent;
pub mod records;
pub mod shard;

pub mod diagnostic;
pub mod digest;
mod wire_form;

pub use diagnostic::Diagnostic;
pub use digest::Digest;
pub use platform::Platform;
pub use settings::Settings;
pub use shard::ShardView;

/// All objects that the zones are made from.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    pub routers: Vec<inputs::RouterInput>,
    /// The RouteBindings.
    pub bindings: Vec<inputs::BindingInput>,
    /// The ChallengeRecords, each with `<namespace>/<name>`.
    pub challenges: Vec<(Box<str>, challenges::ChallengeInput)>,
}

/// The results of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The parent zone, the alias zone, these two of each former domain, then the shards' zones in canonical order; with serial 0.
    pub zones: Vec<CompiledZone>,
    /// The problems of objects, beyond those that were found when they were read.
    pub diagnostics: Vec<Diagnostic>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledZone {
    pub kind: ZoneKind,
    /// The Router, for a shard.
    pub router: Option<Box<str>>,
    /// The digest of the objects' contribution.
    pub digest: Digest,
    /// The records. The SOA's serial is 0: the ledger sets it.
    pub contents: Contents,
}

/// Makes all zones from all objects.
pub fn compile(inputs: &Inputs, settings: &Settings) -> Compiled {
    let mut platform = Platform::new(settings);
    // Only the updated digests and indexes are needed here.
    let mut changes = Vec::new();
    for router in &inputs.routers {
        platform.put(&router.name, Some(Arc::new(ShardView::new(router.clone(), settings))), &mut changes);
    }
    for binding in &inputs.bindings {
        platform.put(&binding.key, Some(Arc::new(binding.clone())), &mut changes);
    }
    for (key, challenge) in &inputs.challenges {
        platform.put(key, Some(Arc::new(challenge.clone())), &mut changes);
    }
    compile_platform(&platform, settings)
}

/// Makes all zones of a platform.
pub fn compile_platform(platform: &Platform, settings: &Settings) -> Compiled {
    let mut diagnostics: Vec<Diagnostic> = platform.refused().cloned().collect();
    let mut zones = Vec::new();
    for settings in [settings].into_iter().chain(settings.former_domains().iter().map(|former| &**former)) {
        let delegations = platform.delegations_of(settings.domain());
        zones.push(CompiledZone {
            kind: ZoneKind::Parent,
            router: None,
            digest: delegations.digest(),
            contents: parent::zone(delegations, settings, 0),
        });
        zones.push(CompiledZone {
            kind: ZoneKind::Alias,
            router: None,
            digest: platform.alias_digest(),
            contents: alias::zone(platform.aliases().map(|binding| &**binding), platform.alias_texts(), settings, 0),
        });
    }
    zones.extend(platform.shards().map(|(apex, shard)| {
        let former_names = platform.former_names(apex);
        diagnostics.extend_from_slice(&shard.diagnostics);
        CompiledZone {
            kind: ZoneKind::Shard,
            router: Some(shard.name.clone()),
            digest: shard.digest.plus(former_names.digest()),
            contents: shard.zone(former_names, settings, 0, &mut diagnostics),
        }
    }));
    Compiled { zones, diagnostics }
}
