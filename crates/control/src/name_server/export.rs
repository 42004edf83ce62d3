//! The platform's zones as they should be by the API's objects at this moment, for the command line.
//!
//! A zone has the ledger's serial for its state; if the ledger does not have the state yet, the serial is after those in the
//! ledger. So a secondary that is fed from an export stays consistent with the name servers.

use std::collections::HashMap;

use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::version_history::Versions;
use super::{ledger_entry, unix_now};
use crate::compiler::challenges::ChallengeInput;
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::compiler::{Compiled, CompiledZone, Diagnostic, Digest, Inputs, Settings, apex, compile};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Contents, Serial};
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::{Zone, ZoneKind};

/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// The zones that result from the objects.
#[derive(Debug)]
pub struct Export {
    /// The parent zone, the alias zone, these two of each former domain, then the shards' zones in canonical order.
    pub zones: Vec<ExportedZone>,
    /// The problems of objects.
    pub diagnostics: Vec<Diagnostic>,
    /// The Routers that they were made from.
    pub routers: Vec<Router>,
    pub bindings: Vec<RouteBinding>,
}

#[derive(Debug)]
pub struct ExportedZone {
    pub kind: ZoneKind,
    /// The Router, for a shard.
    pub router: Option<Box<str>>,
    /// The records, including the SOA; [`signpost_dns::zone::Contents::apex`] is their apex.
    pub contents: Contents,
    /// Whether the ledger contains its serial; otherwise, it is provisional.
    pub in_ledger: bool,
}

/// The RouteBindings from which zones are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// Only the selected names. The zones lack all others.
    Part,
}

/// The objects that zones are made from.
#[derive(Debug)]
pub struct Objects {
    routers: Vec<Router>,
    bindings: Vec<RouteBinding>,
    challenges: Vec<ChallengeRecord>,
    ledger: Vec<Zone>,
    extent: Extent,
}

/// Lists the objects once and builds their zones. Returns the errors of the API.
pub async fn export(client: Client, settings: &Settings) -> Result<Export, kube::Error> {
    let (mut objects, bindings) =
        tokio::try_join!(Objects::without_bindings(client.clone()), list::<RouteBinding>(client))?;
    (objects.bindings, objects.extent) = (bindings, Extent::Whole);
    Ok(objects.zones(settings))
}

impl Objects {
    /// Lists Routers and Zones, of which there are few, and no RouteBindings. Returns the errors of the API.
    pub async fn without_bindings(client: Client) -> Result<Objects, kube::Error> {
        let (routers, ledger) = tokio::try_join!(list::<Router>(client.clone()), list::<Zone>(client.clone()))?;
        // A cluster with older definitions lacks the kind.
        let challenges = match list::<ChallengeRecord>(client).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            listed => listed?,
        };
        Ok(Objects { routers, bindings: Vec::new(), challenges, ledger, extent: Extent::Part })
    }

    pub fn add(&mut self, binding: RouteBinding) {
        self.bindings.push(binding);
    }

    /// Makes the zones.
    pub fn zones(&self, settings: &Settings) -> Export {
        let mut diagnostics = Vec::new();
        let domain = settings.domain_text();
        let routers = self.routers.iter().filter_map(|one| RouterInput::read(one, &domain, &mut diagnostics)).collect();
        let bindings = self.bindings.iter().filter_map(|one| BindingInput::read(one, &mut diagnostics)).collect();
        let challenges = self.challenges.iter().filter_map(|one| {
            let key = format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
            Some((key.into(), ChallengeInput::read(one)?))
        });
        let inputs = Inputs { routers, bindings, challenges: challenges.collect() };
        let Compiled { zones, diagnostics: more } = compile(&inputs, settings);
        diagnostics.extend(more);
        let ledger = self.ledger.iter().filter_map(ledger_entry).collect();
        let zones = number(zones, &ledger, self.extent, unix_now());
        Export { zones, diagnostics, routers: self.routers.clone(), bindings: self.bindings.clone() }
    }
}

/// Sets the serials of the zones. A part of a zone has the newest one, because it is not known to differ.
fn number(
    zones: Vec<CompiledZone>,
    ledger: &HashMap<Name, Versions>,
    extent: Extent,
    unix_now: u64,
) -> Vec<ExportedZone> {
    let zones = zones.into_iter().map(|zone| {
        let mut contents = zone.contents;
        let versions = ledger.get(contents.apex()).map_or(&[][..], |versions| versions);
        let is_named = |digest: &Digest| extent == Extent::Part || *digest == zone.digest;
        let named = versions.iter().find(|(_, digest)| is_named(digest)).map(|(serial, _)| *serial);
        let newest = versions.first().map(|(serial, _)| *serial);
        let own = || newest.map_or(Serial(unix_now as u32), |newest| Serial::next(newest, unix_now));
        apex::set_serial(&mut contents, named.unwrap_or_else(own).0);
        ExportedZone { kind: zone.kind, router: zone.router, contents, in_ledger: named.is_some() }
    });
    zones.collect()
}

async fn list<K>(client: Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client);
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_the_ledgers_where_it_names_the_state() {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let settings = settings.expect("good settings");
        let compiled = compile(&Inputs::default(), &settings).zones;
        let alias = settings.alias_apex().clone();
        let (now, other) = (compiled[1].digest, Digest(7));
        for (versions, serial, in_ledger) in [
            (vec![(9, other), (8, now)], 8, true),
            (vec![(9, now), (8, now)], 9, true),
            (vec![(900, other)], 901, false),
            (vec![(9, other)], 100, false),
            (vec![], 100, false),
        ] {
            let versions = versions.into_iter().map(|(serial, digest)| (Serial(serial), digest)).collect();
            let ledger = HashMap::from([(alias.clone(), versions)]);
            let zones = number(compiled.clone(), &ledger, Extent::Whole, 100);
            let zone = &zones[1];
            assert_eq!((apex::serial_of(&zone.contents), zone.in_ledger), (Some(serial), in_ledger));
            let zones = number(compiled.clone(), &ledger, Extent::Part, 100);
            let newest = ledger[&alias].first().map_or(100, |(serial, _)| serial.0);
            assert_eq!(apex::serial_of(&zones[1].contents), Some(newest), "of a part");
        }
    }
}
