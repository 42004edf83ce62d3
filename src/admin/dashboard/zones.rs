//! The zones that this process serves, their records, and the serial of a zone on each name server.
//!
//! Records come from the zones in memory of the process's own name server: a process without the role `dns` has none. All
//! endpoints require the permission to list Zones. One request at a time reads zones, on a thread for blocking work, because a
//! large zone takes some tenths of a second.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{self, Failure};
use super::session::Session;
use super::{Answer, Shared, json_of, page_size, too_many};
use signpost_control::dns_client;
use signpost_dns::secondary::Secondary;
use signpost_dns::wire::Name;
use signpost_dns::zone::publish::{Origin, Publisher};
use signpost_dns::zone::rrset::ttl_of;
use signpost_dns::zone::{Contents, Zone};
use signpost_dns::zonefile::rdata_out;
use signpost_types::v1alpha1::zone::Zone as ZoneObject;

/// The maximum number of owners of a zone whose records are listed. A larger zone would take some hundred megabytes for each
/// request.
const OWNERS_MAX: usize = 250_000;
/// The maximum number of name servers that are queried at once.
const QUERIES_MAX: usize = 32;
/// The timeout of one try of a query; there are two. The page waits for the slowest name server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The zones of the process's name server, once it runs.
#[derive(Default)]
pub struct ServedZones(OnceLock<Served>);

#[derive(Clone)]
struct Served {
    zones: Arc<Publisher>,
    /// The zones from primary servers.
    copied: Option<Arc<Secondary>>,
}

impl ServedZones {
    /// Sets the zones. A process has one name server; a second call changes nothing.
    pub fn open(&self, zones: Arc<Publisher>, copied: Option<Arc<Secondary>>) {
        let _ = self.0.set(Served { zones, copied });
    }
}

impl Served {
    /// Returns the type of a zone: zones of the API's objects follow the API; other zones are of files, or of primary servers.
    fn kind(&self, zone: &Zone) -> &'static str {
        let is_copy = || self.zones.owner(zone.apex()).is_some_and(|owner| owner.origin == Origin::Primary);
        match (zone.is_shard(), zone.follows()) {
            (true, _) => "shard",
            (false, true) => "platform",
            (false, false) if is_copy() => "primary",
            (false, false) => "file",
        }
    }

    /// Returns the primary servers of a zone, and its state there; `None` if it has another origin.
    fn primaries(&self, zone: &Zone) -> Option<Value> {
        let (servers, status) = self.copied.as_ref()?.zone(zone.apex())?;
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let refreshed = status.refreshed.and_then(|at| at.elapsed().ok()).map(|age| age.as_secs());
        let state =
            json!({"servers": servers, "state": status.word(), "error": status.error, "refreshedSeconds": refreshed});
        (self.kind(zone) == "primary").then_some(state)
    }
}

/// The parameters of the endpoints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// The apex of a zone.
    zone: String,
    /// The Zone object with the addresses of the name servers.
    platform: String,
    /// Text that the apex, or the owner or data of a record, must contain.
    q: String,
    /// The type of the records.
    #[serde(rename = "type")]
    rtype: String,
    /// The number of zones or records to skip.
    offset: usize,
    /// The number to return, at most [`super::PAGE_MAX`].
    limit: usize,
}

impl Wanted {
    fn text(&self) -> String {
        self.q.trim().to_ascii_lowercase()
    }

    fn apex(&self) -> Result<Name, Failure> {
        let invalid = || Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "zone is not a domain name");
        self.zone.parse().map_err(|_| invalid())
    }
}

/// Returns a page of the zones that this process serves.
pub(super) async fn zones(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let session = shared.admitted(&headers).await?;
    let Some(served) = shared.admin.served.0.get().cloned() else {
        return Ok(json_of(&json!({"served": false, "total": 0, "offset": 0, "items": []})));
    };
    let answer = computed(&shared, &session, move || page(&served, &wanted)).await?;
    Ok(json_of(&answer))
}

/// Returns a page of the records of a zone, and the state of its secondary and primary servers.
pub(super) async fn records(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let session = shared.admitted(&headers).await?;
    let apex = wanted.apex()?;
    let served = shared.admin.served.0.get().cloned();
    let Some((served, zone)) = served.and_then(|served| Some((served.clone(), served.zones.db().get(&apex)?))) else {
        let message = format!("this process does not serve the zone {apex}");
        return Err(Failure::new(StatusCode::NOT_FOUND, "NotServed", message));
    };
    if zone.owner_count() > OWNERS_MAX {
        let message = format!("zone {apex} has more than {OWNERS_MAX} owners; run \"signpost zone show {apex}\"");
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "TooLarge", message));
    }
    let secondaries: Vec<Value> = shared
        .admin
        .secondaries
        .of_zone(&apex)
        .into_iter()
        .map(|(server, state)| {
            let mut item = json!(state);
            item["server"] = json!(server);
            item
        })
        .collect();
    let answer = computed(&shared, &session, move || {
        let mut answer = list(&zone.contents(), &wanted);
        answer["secondaries"] = json!(secondaries);
        answer["primaries"] = json!(served.primaries(&zone));
        answer["serial"] = json!(zone.serial().map(|serial| serial.0));
        answer
    });
    Ok(json_of(&answer.await?))
}

/// Returns the serial of a zone on each name server that the platform queries to verify names.
///
/// The addresses are those in the Zone object `platform`, which the user must be able to read. The browser cannot name others.
pub(super) async fn servers(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let session = shared.admitted(&headers).await?;
    let apex = wanted.apex()?;
    let _permit = session.answers.clone().try_acquire_owned().map_err(|_| too_many())?;
    let addresses = shared.settle(&session, listed(&session, &wanted.platform).await)?;
    let queries: Vec<_> = addresses.into_iter().map(|address| serial(apex.clone(), address)).collect();
    let items: Vec<Value> = futures::stream::iter(queries).buffered(QUERIES_MAX).collect().await;
    Ok(json_of(&json!({"zone": apex.to_string(), "items": items})))
}

/// Computes an answer from zones while no other request does.
async fn computed(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    answer: impl FnOnce() -> Value + Send + 'static,
) -> Result<Value, Failure> {
    let of_user = session.answers.clone().try_acquire_owned().map_err(|_| too_many())?;
    let turn = shared.zone_reads.clone().acquire_owned().await.map_err(|_| too_many())?;
    // The permits end with the work, not with the request: a client that disconnects does not start more of it.
    let computing = tokio::task::spawn_blocking(move || {
        let _permits = (of_user, turn);
        answer()
    });
    computing.await.map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Failed", error.to_string()))
}

/// Returns a page of the zones in canonical order of their apexes.
fn page(served: &Served, wanted: &Wanted) -> Value {
    let (text, mut zones) = (wanted.text(), served.zones.db().zones());
    if !text.is_empty() {
        zones.retain(|zone| zone.apex().to_string().to_ascii_lowercase().contains(&text));
    }
    let item = |zone: &Arc<Zone>| {
        json!({
            "zone": zone.apex().to_string(),
            "type": served.kind(zone),
            "serial": zone.serial().map(|serial| serial.0),
            "owners": zone.owner_count(),
            "octets": zone.octets(),
            "available": zone.why_unavailable().is_none(),
        })
    };
    let items: Vec<Value> = zones.iter().skip(wanted.offset).take(page_size(wanted.limit)).map(item).collect();
    json!({"served": true, "total": zones.len(), "offset": wanted.offset, "items": items})
}

/// Returns a page of the records of `zone` in canonical order of their owners, and the number of records of each type.
fn list(zone: &Contents, wanted: &Wanted) -> Value {
    let (text, limit) = (wanted.text(), page_size(wanted.limit));
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    let (mut total, mut items) = (0, Vec::new());
    for (owner, rrsets) in zone.owners() {
        let owner_text = owner.to_string();
        let is_owner = text.is_empty() || owner_text.to_ascii_lowercase().contains(&text);
        for rrset in rrsets {
            let rtype = rrset.rtype.to_string();
            *types.entry(rtype.clone()).or_default() += rrset.rdata.len();
            if !wanted.rtype.is_empty() && !rtype.eq_ignore_ascii_case(&wanted.rtype) {
                continue;
            }
            for rdata in &rrset.rdata {
                if !is_owner && !rdata_out::text(rrset.rtype, rdata).to_ascii_lowercase().contains(&text) {
                    continue;
                }
                if total >= wanted.offset && items.len() < limit {
                    let (ttl, data) = (ttl_of(rrset, rdata, rrsets).seconds(), rdata_out::text(rrset.rtype, rdata));
                    items.push(json!({"owner": owner_text, "ttl": ttl, "type": rtype, "data": data}));
                }
                total += 1;
            }
        }
    }
    json!({
        "zone": zone.apex().to_string(),
        "owners": zone.owner_count(),
        "records": zone.record_count(),
        "types": types,
        "total": total,
        "offset": wanted.offset,
        "items": items,
    })
}

/// Returns the name servers in a Zone object, as the API gives it to this user.
async fn listed(session: &Session, object: &str) -> Result<Vec<SocketAddr>, Failure> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_');
    if object.is_empty() || object.contains("..") || !object.chars().all(is_name) {
        return Err(Failure::new(StatusCode::BAD_REQUEST, "BadRequest", "platform is not the name of a Zone"));
    }
    let octets = ask::get(&session.client, &format!("/apis/signpost.dev/v1alpha1/zones/{object}")).await?;
    let zone: Option<ZoneObject> = serde_json::from_slice(&octets).ok();
    let addresses = zone.and_then(|zone| zone.spec.platform).map(|platform| platform.asked).unwrap_or_default();
    Ok(addresses.iter().filter_map(|address| address.parse().ok()).collect())
}

/// Queries one name server for the serial of a zone.
async fn serial(name: Name, server: SocketAddr) -> Value {
    let started = Instant::now();
    let found = dns_client::serial_on(name, server, QUERY_TIMEOUT).await;
    let seconds = started.elapsed().as_secs_f64();
    let serial = found.as_ref().ok().map(|serial| serial.0);
    json!({"server": server.to_string(), "serial": serial, "error": found.err().map(|error| error.to_string()), "seconds": seconds})
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::secondary::client::Primary;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::Ttl;
    use signpost_dns::zone::publish::Change;

    fn contents() -> Contents {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let mut contents = Contents::new(name("example."));
        for (owner, last) in [("b.example.", 1), ("a.example.", 2), ("a.example.", 3)] {
            let rdata = vec![192, 0, 2, last].into_boxed_slice();
            let ttl = Ttl::new(60).expect("a TTL");
            contents.add(name(owner), RecordType::A, ttl, rdata).expect("is in the zone");
        }
        contents
    }

    #[test]
    fn zones_of_primary_servers_have_their_type_and_state() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let zones = Arc::new(Publisher::new(Arc::default()));
        let primary = Primary { address: "192.0.2.1:53".parse().expect("an address"), key: None, tls: None };
        let followed = ["a.test.", "b.test."].map(|apex| (name(apex), vec![primary.clone()]));
        let copied = Secondary::new(followed, directory.path(), zones.clone()).expect("an empty directory");
        assert_eq!(copied.restore(), Vec::<String>::new());
        zones.publish([Change::unavailable(Origin::BrokenFile, &name("c.test."))]);
        // A file comes before a primary server.
        let file = Arc::from(std::path::Path::new("b.zone"));
        zones.publish([Change::unavailable(Origin::File(file), &name("b.test."))]);
        let served = Served { zones, copied: Some(Arc::new(copied)) };
        let page = page(&served, &Wanted::default());
        let types: Vec<&str> =
            page["items"].as_array().expect("a list").iter().filter_map(|item| item["type"].as_str()).collect();
        assert_eq!(types, ["primary", "file", "file"]);
        let primaries = |apex: &str| served.primaries(&served.zones.db().get(&name(apex)).expect("it is served"));
        let expected =
            json!({"servers": ["192.0.2.1:53"], "state": "missing", "error": null, "refreshedSeconds": null});
        assert_eq!(primaries("a.test."), Some(expected));
        assert_eq!((primaries("b.test."), primaries("c.test.")), (None, None));
    }

    #[test]
    fn records_are_listed_in_pages() {
        let found = |wanted: Wanted| -> (usize, Vec<String>) {
            let answer = list(&contents(), &wanted);
            let items = answer["items"].as_array().expect("a list").iter();
            let total = answer["total"].as_u64().expect("a number") as usize;
            (total, items.map(|item| format!("{} {}", item["owner"], item["data"]).replace('"', "")).collect())
        };
        let all = ["a.example. 192.0.2.2", "a.example. 192.0.2.3", "b.example. 192.0.2.1"];
        assert_eq!(found(Wanted::default()), (3, all.map(str::to_owned).into()));
        let page = Wanted { offset: 1, limit: 1, ..Wanted::default() };
        assert_eq!(found(page), (3, vec![all[1].to_owned()]));
        let of = |q: &str, rtype: &str| Wanted { q: q.to_owned(), rtype: rtype.to_owned(), ..Wanted::default() };
        assert_eq!(found(of("B.EXAMPLE", "a")), (1, vec![all[2].to_owned()]));
        assert_eq!(found(of("192.0.2.3", "")), (1, vec![all[1].to_owned()]));
        assert_eq!(found(of("", "AAAA")).0, 0);
        assert_eq!(list(&contents(), &Wanted::default())["types"], json!({"A": 3}));
    }
}
