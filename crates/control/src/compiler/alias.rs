//! The alias zone `routes.<domain>`: for every bound Route, a CNAME from its stable name to its current name on the shard.
//!
//! A custom domain's CNAME points to the alias, so that a Route that moves to another shard changes one record here and none in
//! its owner's zone. An alias can have proofs for certification authorities below it ([`super::challenges`]).

use std::collections::{BTreeMap, BTreeSet};

use super::inputs::BindingInput;
use super::settings::Settings;
use super::{apex, challenges};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, OwnerChange, Rrset};
use signpost_types::names::ACME_CHALLENGE_LABEL;

/// Returns the whole alias zone under a serial.
pub fn zone<'a>(
    bindings: impl IntoIterator<Item = &'a BindingInput>,
    texts: &BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    settings: &Settings,
    serial: u32,
) -> Contents {
    let mut contents = Contents::new(settings.alias_apex().clone());
    apex::dress(&mut contents, settings, serial);
    let aliases = bindings.into_iter().map(|binding| change(&binding.label, Some(binding.target()), settings));
    let texts = texts.iter().filter_map(|(label, values)| text_change(label, values, settings));
    for OwnerChange { owner, rrsets, .. } in aliases.chain(texts) {
        for rrset in rrsets {
            contents.set(owner.clone(), rrset).expect("aliases are below the alias zone's apex");
        }
    }
    contents
}

/// Returns the change of the TXT records for the alias of `label`; `None` if there is no room for their name.
pub fn text_change(label: &str, values: &BTreeSet<Box<str>>, settings: &Settings) -> Option<OwnerChange> {
    let alias = settings.alias_apex().prepend(label.as_bytes()).ok()?;
    let owner = alias.prepend(ACME_CHALLENGE_LABEL.as_bytes()).ok()?;
    let rrsets = (!values.is_empty()).then(|| challenges::rrset(values));
    Some(OwnerChange { owner, rrsets: rrsets.into_iter().collect(), weights: Vec::new() })
}

/// Returns the change that points the alias of `label` to the zone `shard`, or deletes it without one.
///
/// # Panics
///
/// If `label` is not a label, or `shard` is not a name with room for it: `BindingInput::read` rejects these.
pub fn change(label: &str, shard: Option<&str>, settings: &Settings) -> OwnerChange {
    let owner = settings.alias_apex().prepend(label.as_bytes()).expect("Settings::new leaves room for any label");
    let rrsets = shard.map(|shard| {
        let shard: Name = shard.parse().expect("BindingInput::read has checked it");
        let target = shard.prepend(label.as_bytes()).expect("BindingInput::read has checked the length");
        Rrset { rtype: RecordType::CNAME, ttl: settings.alias_ttl, rdata: vec![target.as_wire().into()] }
    });
    OwnerChange { owner, rrsets: rrsets.into_iter().collect(), weights: Vec::new() }
}
