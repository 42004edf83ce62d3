//! The traffic of Routes, which the agents of their Router count.
//!
//! ```text
//!  browser ──► this module ──HTTPS, certificate and token of the Lease──► the agents of the Router
//! ```
//!
//! A page with traffic queries the agents, at most [`AGENTS_MAX`] of them for a page, and all pages share the answers for some
//! seconds. What a user may see is decided here, by the permission to list Routes; the process reads the Leases with its own rights.
//!
//! [`agents`] has the requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::ask::Failure;
use super::session::Rights;
use super::{Answer, Shared, json_of, too_many};
use crate::agents;
use signpost_agent::traffic::history::History;
use signpost_agent::traffic::view::{RouteView, Totals, View};
use signpost_types::instance::InstanceReport;

/// The most agents that are queried for a page. Of a larger platform, the page shows the sum of these, with their number.
const AGENTS_MAX: usize = 64;
/// The most requests to agents at a time, for all pages.
const REQUESTS_MAX: usize = 16;
/// The time for a list of Leases.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which an answer is shared.
const FRESH: Duration = Duration::from_secs(3);
/// The most answers that are kept.
const ANSWERS_MAX: usize = 256;
/// The most namespaces of a user.
const NAMESPACES_MAX: usize = 64;
/// The most Routes in the response.
const ROUTES_MAX: usize = 20;

/// An answer of an agent, and its time.
type AgentAnswer = (Instant, Result<View, String>);

/// The readings of agents.
pub struct Agents {
    client: OnceLock<Option<kube::Client>>,
    /// The instances, and the time of the list.
    instances: tokio::sync::Mutex<Option<(Instant, Arc<Vec<InstanceReport>>)>>,
    /// The answers by instance and query.
    answers: Mutex<HashMap<(String, String), AgentAnswer>>,
    requests: Semaphore,
}

impl Default for Agents {
    fn default() -> Self {
        Agents {
            client: OnceLock::new(),
            instances: tokio::sync::Mutex::default(),
            answers: Mutex::default(),
            requests: Semaphore::new(REQUESTS_MAX),
        }
    }
}

impl Agents {
    /// Sets the client with which the Leases are read; `None`: this process has no rights of its own.
    pub fn open(&self, client: Option<kube::Client>) {
        let _ = self.client.set(client);
    }

    /// Returns the instances of a Router, or of all.
    async fn instances(&self, router: Option<&str>) -> Result<Vec<InstanceReport>, String> {
        let mut known = self.instances.lock().await;
        let fresh = known.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, instances)| instances.clone());
        let instances = match fresh {
            Some(instances) => instances,
            None => {
                let client = self.client.get().cloned().flatten().ok_or("this process has no access to agents")?;
                let listed = tokio::time::timeout(LIST_TIMEOUT, agents::list(client)).await;
                let listed = listed.map_err(|_| "the API did not list the Leases of agents in time")?;
                let reports = Arc::new(listed.map_err(|error| format!("cannot list the Leases of agents: {error}"))?);
                *known = Some((Instant::now(), Arc::clone(&reports)));
                reports
            }
        };
        Ok(instances.iter().filter(|one| router.is_none_or(|router| one.router == router)).cloned().collect())
    }

    /// Returns the answer of an agent to a query.
    async fn answer(&self, instance: &InstanceReport, query: &str) -> Result<View, String> {
        let key = (instance.lease_name(), query.to_owned());
        if let Some((_, answer)) = self.answers.lock().get(&key).filter(|(at, _)| at.elapsed() < FRESH) {
            return answer.clone();
        }
        let _permit = self.requests.acquire().await.map_err(|error| error.to_string())?;
        let answer = agents::request(instance, query).await.map_err(|error| error.to_string());
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if answers.len() < ANSWERS_MAX {
            answers.insert(key, (Instant::now(), answer.clone()));
        }
        answer
    }
}

/// The parameters of the endpoint; an empty one is not given.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    router: String,
    /// The Route as `namespace/name`.
    route: String,
    namespace: String,
}

impl Wanted {
    /// Returns the query for agents, which has only what the user may see; `None`: the user may see nothing of that.
    fn permitted(&self, rights: &Rights) -> Option<String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        match (&*self.route, &*self.namespace) {
            ("", "") if rights.all => {}
            ("", "") => {
                (!rights.namespaces.is_empty()).then_some(())?;
                for namespace in rights.namespaces.iter().take(NAMESPACES_MAX) {
                    query.append_pair("namespace", namespace);
                }
            }
            ("", namespace) => {
                rights.sees(namespace).then_some(())?;
                query.append_pair("namespace", namespace);
            }
            (route, _) => {
                let (namespace, _) = route.split_once('/')?;
                rights.sees(namespace).then_some(())?;
                query.append_pair("route", route);
            }
        }
        Some(query.finish())
    }
}

/// Returns the traffic of a Route, a namespace, a Router, or the platform, as far as the user may list Routes.
pub async fn traffic(State(shared): State<Arc<Shared>>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Answer {
    let (session, rights) = shared.signed_in(&headers).await?;
    // A user has a limit of requests that wait for agents.
    let _permit = session.answers.clone().try_acquire_owned().map_err(|_| too_many())?;
    let message = "the page requires the permission to list the Routes";
    let query = wanted.permitted(&rights).ok_or_else(|| Failure::new(StatusCode::FORBIDDEN, "Forbidden", message))?;
    let agents = &shared.agents;
    let router = Some(&*wanted.router).filter(|router| !router.is_empty());
    let instances = match agents.instances(router).await {
        Ok(instances) => instances,
        Err(reason) => return Ok(json_of(&json!({"unavailable": reason}))),
    };
    let count = instances.len();
    let answers = futures::stream::iter(instances.into_iter().take(AGENTS_MAX)).map(|instance| {
        let query = query.as_str();
        async move {
            let answer = agents.answer(&instance, query).await;
            (instance, answer)
        }
    });
    let answers: Vec<_> = answers.buffer_unordered(REQUESTS_MAX).collect().await;
    let may_see = |route: &str| {
        let (namespace, _) = route.split_once('/').unwrap_or_default();
        rights.sees(namespace)
    };
    Ok(json_of(&summary(answers, count, rights.routers, may_see)))
}

/// Returns the sum of the answers of agents. `names_instances`: the user may see them. What agents return about other Routes than
/// the user may see is left out.
fn summary(
    answers: Vec<(InstanceReport, Result<View, String>)>,
    count: usize,
    names_instances: bool,
    may_see: impl Fn(&str) -> bool,
) -> Value {
    let (mut totals, mut history) = (Totals::default(), History::default());
    let mut routes = BTreeMap::<String, RouteView>::new();
    let (mut instances, mut lost, mut answered) = (Vec::new(), 0_u64, 0);
    for (instance, answer) in answers {
        let error = match answer {
            Ok(view) if view.readings == 0 => Some("it has not read the counters yet".to_owned()),
            Ok(view) => {
                answered += 1;
                lost = u64::saturating_add(lost, view.lost);
                totals.merge(&view.totals);
                history.merge(&view.history);
                for route in view.routes.into_iter().filter(|route| may_see(&route.route)) {
                    match routes.entry(route.route.clone()) {
                        std::collections::btree_map::Entry::Vacant(entry) => _ = entry.insert(route),
                        std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(route),
                    }
                }
                None
            }
            Err(error) => Some(error),
        };
        if names_instances {
            instances.push(json!({"name": instance.lease_name(), "router": instance.router, "error": error}));
        }
    }
    instances.sort_by_key(|one| one["name"].as_str().map(str::to_owned));
    let mut routes: Vec<RouteView> = routes.into_values().collect();
    routes.sort_by(|one, other| other.traffic.rates.requests.total_cmp(&one.traffic.rates.requests));
    routes.truncate(ROUTES_MAX);
    json!({
        "totals": totals, "routes": routes, "lost": lost, "instances": instances, "instanceCount": count,
        "answered": answered, "history": history,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(all: bool, namespaces: &[&str]) -> Rights {
        Rights {
            all,
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            routers: true,
            zones: all,
            leases: all,
            events: all,
            event_namespaces: Vec::new(),
        }
    }

    /// A tenant sees the traffic of its own Routes.
    #[test]
    fn who_sees_what() {
        let (admin, tenant, nobody) = (rights(true, &[]), rights(false, &["bank", "shop"]), rights(false, &[]));
        for (query, rights, expected) in [
            ("", &admin, Some("")),
            ("router=shard1", &admin, Some("")),
            ("router=shard1", &tenant, Some("namespace=bank&namespace=shop")),
            ("", &tenant, Some("namespace=bank&namespace=shop")),
            ("", &nobody, None),
            ("namespace=shop", &tenant, Some("namespace=shop")),
            ("namespace=other", &tenant, None),
            ("namespace=other", &admin, Some("namespace=other")),
            ("route=shop%2Fweb", &tenant, Some("route=shop%2Fweb")),
            ("route=other%2Fweb", &tenant, None),
            ("route=other%2Fweb&namespace=shop", &tenant, None),
            ("route=shop", &admin, None),
            ("route=shop%2Fa%26namespace%3Dother", &tenant, Some("route=shop%2Fa%26namespace%3Dother")),
        ] {
            let uri = format!("/?{query}").parse().expect("a URI");
            let Query(wanted): Query<Wanted> = Query::try_from_uri(&uri).expect("parameters");
            assert_eq!(wanted.permitted(rights).as_deref(), expected, "{query}");
        }
    }
}
