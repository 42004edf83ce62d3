//! Zone files and the zones from objects: a file serves its apex and all names below it, and each object that it hides gets a
//! diagnostic with the file's name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::compiler::{Diagnostic, Platform};
use signpost_dns::wire::Name;

/// The apexes that zone files serve, in canonical order, with their files.
#[derive(Debug, Default)]
pub struct FileZones(pub BTreeMap<Name, Arc<Path>>);

impl FileZones {
    /// Returns a diagnostic for each Router and each alias that a file hides.
    pub fn diagnostics(&self, platform: &Platform, alias_apex: &Name) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        if self.0.is_empty() {
            return found;
        }
        for (apex, router) in platform.shards() {
            let files = self.at_and_below(apex);
            found.extend(files.filter_map(|(file, path)| hidden(apex, &router.name, file, path, platform)));
        }
        for (file, path) in self.at_and_below(alias_apex).filter(|(file, _)| file.parent().as_ref() == Some(alias_apex))
        {
            let label = file.labels().next().and_then(|label| std::str::from_utf8(label).ok());
            let Some(binding) = label.and_then(|label| platform.alias(label)) else { continue };
            let path = path.display();
            let message =
                format!("the alias {file} is served from the file {path}, not from the RouteBinding; remove the file");
            found.push(Diagnostic::binding(&binding.key, "spec.label", message));
        }
        found
    }

    fn at_and_below<'a>(&'a self, zone: &'a Name) -> impl Iterator<Item = (&'a Name, &'a Arc<Path>)> {
        // In canonical order, all names below a name follow it directly.
        let files = self.0.range::<Name, _>((Bound::Included(zone), Bound::Unbounded));
        files.take_while(|(file, _)| file.is_at_or_below(zone))
    }
}

/// Returns the diagnostic for a file at or below the `apex` of a Router; `None` if the file is inside another shard below that.
fn hidden(apex: &Name, router: &str, file: &Name, path: &Path, platform: &Platform) -> Option<Diagnostic> {
    let path = path.display();
    let message = if file == apex {
        format!(
            "the zone {apex} is served from the file {path}; remove the file, or re-create the Router with another dns"
        )
    } else {
        let mut above = std::iter::successors(file.parent(), Name::parent);
        above.find(|zone| platform.shard(zone).is_some()).filter(|closest| closest == apex)?;
        format!(
            "names at and below {file} are served from the file {path}, not from the Router's zone; remove the file, \
             unless no Route has that name"
        )
    };
    Some(Diagnostic::router(router, "spec.dns", message))
}
