//! The alias zone `routes.<domain>`: for every bound Route, a CNAME from its stable name to its current name on the shard.
//!
//! A custom domain's CNAME points to the alias, so that a Route that moves to another shard changes one record here and none in
//! its owner's zone.

use super::apex;
use super::inputs::BindingInput;
use super::settings::Settings;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, OwnerChange, Rrset};

/// Returns the whole alias zone under a serial.
pub fn zone<'a>(bindings: impl IntoIterator<Item = &'a BindingInput>, settings: &Settings, serial: u32) -> Contents {
    let mut contents = Contents::new(settings.alias_apex().clone());
    apex::dress(&mut contents, settings, serial);
    for binding in bindings {
        let OwnerChange { owner, rrsets, .. } = change(&binding.label, Some(binding.target()), settings);
        for rrset in rrsets {
            contents.set(owner.clone(), rrset).expect("aliases are below the alias zone's apex");
        }
    }
    contents
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
