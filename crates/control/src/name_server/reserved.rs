//! The apexes of the platform: its domain and alias zone, and those of each former domain that is served.
//!
//! The file of a domain is not a zone but the base of the parent zone, and a file for an alias zone is rejected. A file that was
//! served before a former domain was known, or whose domain is no longer served, changes its use.
//! [`Publisher`] has the rules for all other apexes: a file wins, because the operator of this name server put it there, and the
//! Router with the same apex gets a diagnostic that names the file.

use tokio::sync::watch;

use crate::compiler::Settings;
use crate::compiler::former_domains::FormerDomain;
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::publish::{Publisher, Reservation};
use signpost_types::names::ALIAS_LABEL;

/// The problem with a file for an alias zone.
pub const ALIASES_REFUSED: &str =
    "the alias zone is built from the API's objects and cannot come from a file; remove the file";

/// Reserves the apexes of the platform with these former domains. They have zones from now on: a zone file of a domain above must not
/// answer for names at and below the platform's.
pub fn reserve(zones: &Publisher, settings: &Settings, former: &[FormerDomain]) {
    let former = former.iter().filter_map(|former| {
        let domain: Name = former.domain.parse().ok()?;
        let aliases = domain.prepend(ALIAS_LABEL.as_bytes()).ok()?;
        Some((domain, aliases))
    });
    let mut reservations = NameMap::default();
    for (domain, aliases) in former.chain([(settings.domain().clone(), settings.alias_apex().clone())]) {
        reservations.insert(domain, Reservation::Base);
        reservations.insert(aliases, Reservation::Refused);
    }
    for file in zones.reserve(reservations) {
        tracing::error!(file = %file.display(), "{ALIASES_REFUSED}");
    }
}

/// Returns a receiver that is notified of every change of the files that provide zones or bases.
pub fn file_changes(zones: &Publisher) -> watch::Receiver<()> {
    let (sender, receiver) = watch::channel(());
    zones.listen(move |step| {
        if step.files_changed {
            sender.send_replace(());
        }
    });
    receiver
}
