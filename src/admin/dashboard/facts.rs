//! The data of Routes for lists, counts, and the topology; pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{page_size, search_words};
use signpost_control::client::reflector::ObjectKey;
use signpost_types::route_state::RouteState;
use signpost_types::v1alpha1::route::Route;

/// The maximum number of namespaces that are counted individually, those with the most Routes; the others are counted together.
const NAMESPACES_MAX: usize = 2_000;
/// The maximum number of pairs of a namespace and a Router in the response: those with the most Routes.
const LINKS_MAX: usize = 8_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteSummary {
    router: Option<Box<str>>,
    dns: Option<Box<str>>,
    alias: Option<Box<str>>,
    host: Option<Box<str>>,
    state: RouteState,
    /// The reason of the condition that decided the state.
    reason: Option<Box<str>>,
    /// The time of the creation.
    created: Option<Timestamp>,
}

impl From<&Route> for RouteSummary {
    fn from(route: &Route) -> Self {
        let status = route.status.clone().unwrap_or_default();
        let (state, decided) = RouteState::of(&status);
        let short = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(Into::into);
        RouteSummary {
            router: short(status.router.as_deref()),
            dns: short(status.dns.as_deref()),
            alias: short(status.canonical_name.as_deref()),
            host: short(route.spec.host.as_deref()),
            state,
            reason: short(decided.map(|condition| condition.reason.as_str())),
            created: route.metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }
}

impl RouteSummary {
    /// Returns the name that lists show first: the host, the stable alias, or the name on the shard.
    fn shown_name(&self) -> Option<&str> {
        self.host.as_deref().or(self.alias.as_deref()).or(self.dns.as_deref())
    }
}

pub type Keyed = (ObjectKey, Arc<RouteSummary>);

#[derive(Default, Clone)]
struct Counts([u64; RouteState::ALL.len()]);

impl Counts {
    fn add(&mut self, state: RouteState) {
        self.0[state as usize] += 1;
    }

    fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the nonzero counts by name.
    fn json(&self) -> Value {
        let counts = RouteState::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        counts.map(|(state, count)| (state.word().to_owned(), json!(count))).collect::<serde_json::Map<_, _>>().into()
    }
}

/// Returns the number of Routes by state, by namespace, by Router, and by both.
pub fn overview(routes: &[Keyed]) -> Value {
    let mut all = Counts::default();
    let mut namespaces: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut routers: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut links: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (key, summary) in routes {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        all.add(summary.state);
        namespaces.entry(namespace).or_default().add(summary.state);
        let router = summary.router.as_deref().unwrap_or_default();
        if !router.is_empty() {
            routers.entry(router).or_default().add(summary.state);
        }
        *links.entry((namespace, router)).or_default() += 1;
    }
    let namespace_count = namespaces.len();
    let mut namespaces: Vec<(&str, Counts)> = namespaces.into_iter().collect();
    if namespace_count > NAMESPACES_MAX {
        namespaces.sort_by_key(|(name, counts)| (std::cmp::Reverse(counts.all()), *name));
        namespaces.truncate(NAMESPACES_MAX);
        namespaces.sort_by_key(|(name, _)| *name);
    }
    let at: BTreeMap<&str, usize> = namespaces.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut links: Vec<(usize, &str, u64)> = links
        .into_iter()
        .filter_map(|((namespace, router), count)| Some((*at.get(namespace)?, router, count)))
        .collect();
    if links.len() > LINKS_MAX {
        links.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        links.truncate(LINKS_MAX);
    }
    let counted =
        |(name, counts): &(&str, Counts)| json!({"name": name, "routes": counts.all(), "states": counts.json()});
    let routers: Vec<(&str, Counts)> = routers.into_iter().collect();
    json!({
        "routes": all.all(),
        "states": all.json(),
        "namespaceCount": namespace_count,
        "namespaces": namespaces.iter().map(counted).collect::<Vec<_>>(),
        "routers": routers.iter().map(counted).collect::<Vec<_>>(),
        "links": links.iter().map(|(at, router, count)| json!([at, router, count])).collect::<Vec<_>>(),
    })
}

/// The value of the filter by Router that selects the Routes without one: not the name of an object.
const NO_ROUTER: &str = "(none)";

/// The search parameters of the list of Routes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// The search words; each must occur in the namespace, the name, the DNS name, the host, or the Router's name.
    q: String,
    namespace: Option<String>,
    /// The Router; [`NO_ROUTER`] for the Routes without one.
    router: Option<String>,
    state: Option<RouteState>,
    /// The column to sort by: `namespace`, `name`, `dns`, `router`, `state`, or `age`; with `-`, in descending order.
    sort: String,
    /// The number of Routes to skip.
    offset: usize,
    /// The number of Routes to return, at most [`super::PAGE_MAX`].
    limit: usize,
}

/// Returns a page of the routes that are wanted, in the requested order; otherwise in that of namespace and name.
pub fn page(routes: &[Keyed], wanted: &Wanted) -> Value {
    let words = search_words(&wanted.q);
    let mut found: Vec<&Keyed> = routes.iter().filter(|route| is_wanted(route, wanted, &words)).collect();
    sort(&mut found, &wanted.sort);
    let shown = found.iter().skip(wanted.offset).take(page_size(wanted.limit));
    let items: Vec<Value> = shown.map(|route| item(route)).collect();
    json!({"total": found.len(), "offset": wanted.offset, "items": items})
}

/// Sorts routes by a column; routes with the same value by namespace and name.
fn sort(routes: &mut [&Keyed], column: &str) {
    routes.sort_by(|one, other| one.0.cmp(&other.0));
    let (column, is_descending) = match column.strip_prefix('-') {
        Some(column) => (column, true),
        None => (column, false),
    };
    // The youngest Route has the smallest age. A missing value is the last one in ascending order.
    let order = |(one_key, one): &Keyed, (other_key, other): &Keyed| match column {
        "name" => one_key.name.cmp(&other_key.name),
        "dns" => last_if_missing(one.shown_name(), other.shown_name()),
        "router" => last_if_missing(one.router.as_deref(), other.router.as_deref()),
        "state" => (one.state as usize).cmp(&(other.state as usize)),
        "age" => other.created.cmp(&one.created),
        _ => one_key.cmp(other_key),
    };
    // The sort is stable.
    routes.sort_by(|one, other| if is_descending { order(other, one) } else { order(one, other) });
}

fn last_if_missing(one: Option<&str>, other: Option<&str>) -> Ordering {
    one.is_none().cmp(&other.is_none()).then_with(|| one.cmp(&other))
}

fn is_wanted((key, summary): &Keyed, wanted: &Wanted, words: &[String]) -> bool {
    let is = |asked: &Option<String>, found: Option<&str>| asked.as_deref().is_none_or(|asked| Some(asked) == found);
    let has = |word: &String| {
        let texts = [key.namespace.as_deref(), Some(key.name.as_str()), summary.router.as_deref()];
        let names = [summary.dns.as_deref(), summary.alias.as_deref(), summary.host.as_deref()];
        // `namespace/name` is one text, so that it can be pasted.
        let whole = word.contains('/').then(|| key.to_string());
        let mut all = texts.into_iter().chain(names).flatten().chain(whole.as_deref());
        all.any(|text| text.to_ascii_lowercase().contains(word.as_str()))
    };
    is(&wanted.namespace, key.namespace.as_deref())
        && is(&wanted.router, summary.router.as_deref().filter(|on| !on.is_empty()).or(Some(NO_ROUTER)))
        && wanted.state.is_none_or(|state| state == summary.state)
        && words.iter().all(has)
}

fn item((key, summary): &Keyed) -> Value {
    let mut item = json!(**summary);
    item["namespace"] = json!(key.namespace);
    item["name"] = json!(key.name);
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(namespace: &str, name: &str, status: Value) -> Keyed {
        let route: Route = serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"namespace": namespace, "name": name}, "spec": {}, "status": status,
        }))
        .expect("a Route");
        (ObjectKey::namespaced(namespace, name), Arc::new(RouteSummary::from(&route)))
    }

    fn platform() -> Vec<Keyed> {
        let on = |router: &str, dns: &str| json!({"phase": "scheduled", "router": router, "dns": dns});
        vec![
            route("shop", "front", on("shard1", "shop-front.shard1.example")),
            route("shop", "back", on("shard2", "shop-back.shard2.example")),
            route("news", "front", on("shard1", "News.example.org")),
            route("news", "vault", json!({"phase": "new"})),
        ]
    }

    #[test]
    fn counts_by_namespace_router_and_both() {
        let answer = overview(&platform());
        assert_eq!(answer["routes"], 4);
        assert_eq!(answer["states"], json!({"scheduled": 3, "pending": 1}));
        assert_eq!(
            answer["namespaces"][0],
            json!({"name": "news", "routes": 2, "states": {"scheduled": 1, "pending": 1}})
        );
        assert_eq!(answer["routers"][0], json!({"name": "shard1", "routes": 2, "states": {"scheduled": 2}}));
        assert_eq!(answer["links"], json!([[0, "", 1], [0, "shard1", 1], [1, "shard1", 1], [1, "shard2", 1]]));
    }

    #[test]
    fn pages_of_what_is_wanted() {
        let names = |wanted: Wanted| -> Vec<String> {
            let answer = page(&platform(), &wanted);
            let items = answer["items"].as_array().expect("a list").iter();
            items.map(|item| format!("{}/{}", item["namespace"], item["name"]).replace('"', "")).collect()
        };
        let query = |q: &str| Wanted { q: q.to_owned(), ..Wanted::default() };
        assert_eq!(names(Wanted::default()), ["news/front", "news/vault", "shop/back", "shop/front"]);
        assert_eq!(names(query("front shard1")), ["news/front", "shop/front"]);
        assert_eq!(names(query("NEWS.example")), ["news/front"]);
        assert_eq!(names(query("shop/ba")), ["shop/back"]);
        let of = |namespace: &str| Some(namespace.to_owned());
        assert_eq!(names(Wanted { namespace: of("shop"), ..Wanted::default() }), ["shop/back", "shop/front"]);
        assert_eq!(names(Wanted { router: of("shard2"), ..Wanted::default() }), ["shop/back"]);
        assert_eq!(names(Wanted { state: Some(RouteState::Pending), ..Wanted::default() }), ["news/vault"]);
        assert_eq!(names(Wanted { router: of("(none)"), ..Wanted::default() }), ["news/vault"]);
        assert_eq!(names(Wanted { offset: 1, limit: 2, ..Wanted::default() }), ["news/vault", "shop/back"]);
        assert_eq!(page(&platform(), &query("front"))["total"], 2);
        let sorted = |sort: &str| Wanted { sort: sort.to_owned(), ..Wanted::default() };
        assert_eq!(names(sorted("name")), ["shop/back", "news/front", "shop/front", "news/vault"]);
        assert_eq!(names(sorted("-name")), ["news/vault", "news/front", "shop/front", "shop/back"]);
        assert_eq!(names(sorted("router")), ["news/front", "shop/front", "shop/back", "news/vault"]);
        assert_eq!(names(sorted("-namespace")), ["shop/front", "shop/back", "news/vault", "news/front"]);
        assert_eq!(names(sorted("unknown")), names(Wanted::default()));
    }

    #[test]
    fn the_youngest_is_first_by_age() {
        let at = |name: &str, second: i64| {
            let (key, summary) = route("shop", name, json!({"phase": "new"}));
            let created = Some(Timestamp::from_second(second).expect("a time"));
            (key, Arc::new(RouteSummary { created, ..RouteSummary::clone(&summary) }))
        };
        let routes = [at("a", 10), at("b", 30), at("c", 20)];
        let names = |sort: &str| -> Vec<String> {
            let answer = page(&routes, &Wanted { sort: sort.to_owned(), ..Wanted::default() });
            let items = answer["items"].as_array().expect("a list").iter();
            items.map(|item| item["name"].as_str().expect("text").to_owned()).collect()
        };
        assert_eq!(names("age"), ["b", "c", "a"]);
        assert_eq!(names("-age"), ["a", "c", "b"]);
    }
}
