//! The platform as the API shows it, for commands that foretell.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::api::v1alpha1::route::Route;
use crate::api::v1alpha1::route_binding::RouteBinding;
use crate::api::v1alpha1::router::Router;
use crate::client;
use crate::client::reflector::ObjectKey;
use crate::config::Settings;
use crate::scheduler::forecast::{Bound, Forecast};

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// How long the API may take to list everything.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// The platform, and how to speak to it.
pub(crate) struct Platform {
    /// Speaks as the kubeconfig's user.
    pub(crate) client: Client,
    /// The objects.
    pub(crate) forecast: Forecast,
    bound: BTreeMap<ObjectKey, Bound>,
}

impl Platform {
    /// Reads Routers, Namespaces, Routes and RouteBindings.
    pub(crate) async fn read(settings: &Settings) -> Result<Self, String> {
        let path: PathBuf = settings.kubeconfig.clone().unwrap_or_else(|| settings.data_dir.join("kubeconfig"));
        let client = client::from_kubeconfig(&path).await.map_err(|error| error.to_string())?;
        let mut forecast = Forecast::new(&settings.domain, Instant::now());
        let mut bound = BTreeMap::new();
        let reading = async {
            each(Api::all(client.clone()), |router: Router| forecast.set_router(router)).await?;
            each(Api::all(client.clone()), |namespace: Namespace| forecast.set_namespace(namespace)).await?;
            each(Api::all(client.clone()), |route: Route| forecast.set_route(route)).await?;
            each(Api::all(client.clone()), |binding: RouteBinding| {
                let (namespace, name) = (binding.metadata.namespace.clone(), binding.metadata.name.clone());
                let key = ObjectKey::namespaced(&namespace.unwrap_or_default(), &name.unwrap_or_default());
                forecast.set_binding(binding);
                bound.extend(forecast.bound(&key).map(|found| (key, found.clone())));
            })
            .await
        };
        let read = tokio::time::timeout(READ_TIMEOUT, reading).await;
        let silent = || Err("it takes too long".to_owned());
        let read = read.unwrap_or_else(|_| silent());
        read.map_err(|error| format!("the API of {} does not answer as needed: {error}", path.display()))?;
        Ok(Platform { client, forecast, bound })
    }

    /// What each route is bound to, as it was read.
    pub(crate) fn labels(&self) -> BTreeMap<ObjectKey, Bound> {
        self.bound.clone()
    }
}

/// Lists a kind page by page, so that what is dropped of each object is not held for all.
async fn each<K>(api: Api<K>, mut take: impl FnMut(K)) -> Result<(), String>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await.map_err(|error| told(&error))?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        page.items.into_iter().for_each(&mut take);
        match next {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// What the API said, or why it said nothing.
pub(crate) fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
