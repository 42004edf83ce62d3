//! The zones around one name, from as few API objects as possible: all Routers and Zones, of which there are few, and
//! only the RouteBindings to which the name, and the targets of its aliases, lead.
//!
//! The NameClaims connect a name and a binding: the label below the apex of a shard or of the alias zone, and every
//! custom host, has a NameClaim with the Route that holds it or held it last, and the binding has the name of that
//! Route.

use std::collections::BTreeSet;

use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::why::{ALIASES_MAX, Why};
use crate::cli::access::{Access, ApiLocation};
use crate::cli::zones::{Source, ZoneInputs, Zones, complain_of};
use signpost_control::client::reflector::ObjectKey;
use signpost_control::compiler::settings::text_of;
use signpost_control::name_server::export::Objects;
use signpost_dns::wire::{Name, RecordType};
use signpost_types::names::{host_claim_name, label_claim_name};
use signpost_types::paths::ROOT;
use signpost_types::v1alpha1;
use signpost_types::v1alpha1::name_claim::{Holder, NameClaim};
use signpost_types::v1alpha1::route::{NameKind, Route};
use signpost_types::v1alpha1::route_binding::RouteBinding;

/// Reads the zone directory, if there is one, and the API objects that matter to `name` if the second argument is set. Users
/// without access to NameClaims get all objects.
pub(super) async fn around(place: &ApiLocation, ask: bool, name: &Name, rtype: RecordType) -> Result<Zones, String> {
    let mut ground = ZoneInputs::find(place, ask).await?;
    let Some((access, platform)) = ground.api.clone() else { return Ok(ground.zones(None)) };
    let (access, platform) = (&access, &platform);
    let objects = Objects::without_bindings(access.client.clone()).await;
    let mut objects = objects.map_err(|error| access.unanswered(error))?;
    let (mut asked, mut found) = (BTreeSet::new(), BTreeSet::new());
    // Each turn knows the names that the turn before led to.
    for _ in 0..=ALIASES_MAX {
        let exported = objects.zones(platform);
        let zones = ground.zones(Some(exported));
        let names = Why::explain(&zones, name, rtype).steps.into_iter().filter_map(|step| step.name.parse().ok());
        let claims: BTreeSet<String> = names.flat_map(|name| claims(&zones, &name)).collect();
        let new: Vec<String> = claims.into_iter().filter(|claim| asked.insert(claim.clone())).collect();
        if new.is_empty() {
            complain_of(&objects.zones(platform));
            return Ok(zones);
        }
        for claim in new {
            match holders(access, &claim).await {
                Ok(holders) => {
                    let is_shared = holders.len() > 1;
                    for holder in holders {
                        let key = ObjectKey::namespaced(&holder.namespace, &holder.name);
                        if is_shared || holder.path() != ROOT {
                            ground.paths.insert(key.to_string(), holder.path().to_owned());
                        }
                        if found.insert(key)
                            && let Some(binding) = binding(access, &holder.namespace, &holder.name).await?
                        {
                            objects.add(binding);
                        }
                    }
                }
                Err(kube::Error::Api(status)) if status.code == 403 => return Zones::gather(place, ask).await,
                Err(error) => return Err(access.unanswered(error)),
            }
        }
    }
    Ok(ground.zones(Some(objects.zones(platform))))
}

/// Explains a name to a tenant, who cannot read the platform's zones: the tenant's own Route that has it. `None`: the
/// user may read the zones.
pub(super) async fn explain_to_tenant(place: &ApiLocation, name: &Name) -> Result<Option<String>, String> {
    let access = place.connect().await?;
    let zones: Api<v1alpha1::zone::Zone> = Api::all(access.client.clone());
    match zones.list(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        Err(error) => return Err(access.unanswered(error)),
        Ok(_) => return Ok(None),
    }
    let namespace = &access.namespace;
    let routes: Api<Route> = Api::namespaced(access.client.clone(), namespace);
    let routes = access.list(&routes, ListParams::default()).await?;
    let wanted = text_of(name);
    let found = routes.iter().filter_map(|route| {
        let status = route.status.as_ref()?;
        let its = status.names.iter().find(|its| its.name.eq_ignore_ascii_case(&wanted))?;
        let on = status.router.as_deref().unwrap_or("no Router");
        let kind = match its.kind {
            NameKind::System => "the system name",
            NameKind::Alias => "the alias",
            NameKind::Custom => "the custom host",
            NameKind::Adopted => "the adopted host",
        };
        let is_host = matches!(its.kind, NameKind::Custom | NameKind::Adopted);
        let path = route.spec.path.as_deref().filter(|_| is_host);
        let path = path.map(|path| format!(" for the path {path}")).unwrap_or_default();
        Some(format!("{wanted} is {kind}{path} of your Route {namespace}/{} on {on}", route.name_any()))
    });
    let found: Vec<String> = found.collect();
    let found = match found.is_empty() {
        true => format!("no Route in namespace {namespace} has the name {wanted}"),
        false => found.join("; "),
    };
    Ok(Some(format!("{found}; you are not allowed to read other objects of the platform")))
}

fn claims(zones: &Zones, name: &Name) -> Vec<String> {
    let mut claims = vec![host_claim_name(&text_of(name))];
    let made = |source: &Source| matches!(source, Source::Alias | Source::Shard(_));
    if let Some(zone) = zones.of(name).filter(|zone| made(&zone.source)) {
        let below = name.label_count().saturating_sub(zone.contents.apex().label_count());
        let label = below.checked_sub(1).and_then(|skip| name.labels().nth(skip));
        let label = label.map(|label| String::from_utf8_lossy(label).to_ascii_lowercase());
        // A text that cannot be the name of an object is not a label of the platform.
        let is_ours = |label: &String| label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
        claims.extend(label.filter(is_ours).map(|label| label_claim_name(&label)));
    }
    claims
}

/// Returns the Routes that hold a claim, or held it last: several share a host by their paths.
async fn holders(access: &Access, claim: &str) -> Result<Vec<Holder>, kube::Error> {
    let claims: Api<NameClaim> = Api::all(access.client.clone());
    Ok(claims.get_opt(claim).await?.map(|claim| claim.spec.holders()).unwrap_or_default())
}

async fn binding(access: &Access, namespace: &str, name: &str) -> Result<Option<RouteBinding>, String> {
    let bindings: Api<RouteBinding> = Api::namespaced(access.client.clone(), namespace);
    bindings.get_opt(name).await.map_err(|error| access.unanswered(error))
}
