//! The platform as the API shows it, for commands that foretell.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

use super::plan::Context;
use crate::cli::access::{Access, ApiLocation, each};
use crate::cli::platform::PlatformSettings;
use crate::cli::progress;
use signpost_control::client::reflector::ObjectKey;
use signpost_control::scheduler::simulation::Simulation;
use signpost_control::world::quarantine;
use signpost_types::v1alpha1::name_claim::{CLAIM_LABEL, CLAIM_LABEL_HOST, NameClaim};
use signpost_types::v1alpha1::route::{NameKind, Route};
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;

/// The time limit for all API requests of one of these commands.
pub(crate) const API_TIMEOUT: Duration = Duration::from_secs(120);

/// The platform, and how to speak to it.
pub(crate) struct MoveContext {
    pub(crate) access: Access,
    /// The known part of its configuration.
    pub(crate) known: PlatformSettings,
    pub(crate) simulation: Simulation,
    pub(crate) context: Context,
}

impl MoveContext {
    /// Reads Routers, Namespaces, Routes, RouteBindings, and the NameClaims in quarantine and on hosts.
    pub(crate) async fn read(place: &ApiLocation) -> Result<Self, String> {
        let access = place.connect().await?;
        let failure = |error: kube::Error| match error {
            kube::Error::Api(status) if status.code == 403 => format!(
                "you are not allowed to read the whole platform, as a prediction requires ({}); only operators can \
                 move Routes",
                status.message
            ),
            error => access.unanswered(error),
        };
        let namespaces: Api<Namespace> = Api::all(access.client.clone());
        namespaces.list_metadata(&ListParams::default().limit(1)).await.map_err(failure)?;
        let known = progress::during("reading the platform", PlatformSettings::find(place, &access)).await?;
        let mut simulation = Simulation::new(&known.domain, Instant::now());
        if let Some(most) = known.quarantined_max {
            simulation = simulation.with_quarantined_max(most);
        }
        if let Some(reserved) = &known.reserved_labels {
            simulation = simulation.with_reserved_labels(reserved.clone());
        }
        let mut records = BTreeMap::new();
        let mut bound = BTreeMap::new();
        let client = &access.client;
        let reading = async {
            let all = ListParams::default;
            each(&Api::all(client.clone()), all(), |router: Router| simulation.set_router(router)).await?;
            each(&Api::all(client.clone()), all(), |namespace: Namespace| simulation.set_namespace(namespace)).await?;
            let kept = all().fields(quarantine::SELECTOR);
            match each(&Api::all(client.clone()), kept, |claim: NameClaim| simulation.set_claim(claim)).await {
                // An API with older definitions does not know the field, and its schedulers have no bound then.
                Err(kube::Error::Api(status)) if status.code == 400 => {}
                read => read?,
            }
            let of_hosts = all().labels(&format!("{CLAIM_LABEL}={CLAIM_LABEL_HOST}"));
            each(&Api::all(client.clone()), of_hosts, |claim: NameClaim| simulation.set_claim(claim)).await?;
            each(&Api::all(client.clone()), all(), |route: Route| {
                records.extend(record(&route));
                simulation.set_route(route);
            })
            .await?;
            each(&Api::all(client.clone()), all(), |binding: RouteBinding| {
                let (namespace, name) = (binding.metadata.namespace.clone(), binding.metadata.name.clone());
                let key = ObjectKey::namespaced(&namespace.unwrap_or_default(), &name.unwrap_or_default());
                simulation.set_binding(binding);
                bound.extend(simulation.bound(&key).map(|found| (key, found.clone())));
            })
            .await
        };
        progress::during("reading the platform", reading).await.map_err(failure)?;
        let (domain, former_name_retention) = (known.domain.clone(), known.former_name_retention);
        let context = Context { domain, former_name_retention, records, bound, now: Timestamp::now() };
        Ok(MoveContext { access, known, simulation, context })
    }
}

/// Returns the record of a Route's custom host, if it has one and its status contains the record.
fn record(route: &Route) -> Option<(ObjectKey, String)> {
    let names = &route.status.as_ref()?.names;
    let record = names.iter().find(|name| name.kind == NameKind::Custom)?.record.clone()?;
    let (namespace, name) = (route.metadata.namespace.as_deref()?, route.metadata.name.as_deref()?);
    Some((ObjectKey::namespaced(namespace, name), record))
}
