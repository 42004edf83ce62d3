//! A simulated name server: the loops of the role `dns` over a map of zones that is queried directly.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use signpost_api::identity::USER_NAME_SERVER;
use signpost_control::compiler::Settings;
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::name_server::reserved;
use signpost_control::name_server::{self, objects::Objects, status::Status};
use signpost_control::world::{self, World};
use signpost_dns::nameserver::{self, Context, Outcome, Peer, Response, Stats, Transport, respond};
pub use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::header::{FLAG_RD, Header};
use signpost_dns::wire::{Class, Name, RecordType};
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::publish::Publisher;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::{DENIAL, WATCH, settings};

pub fn loops(connection: &Connection, name: &str, db: Arc<ZoneDb>, state: PathBuf) -> Vec<BoxFuture<'static, ()>> {
    let client = connection.client(USER_NAME_SERVER);
    let platform: Arc<Settings> = settings();
    let reading = world::Settings { watch_longest: Some(WATCH), ..world::Settings::of(platform.clone()) };
    let world = World::new(&client, reading);
    let zones = Arc::new(Publisher::new(db));
    reserved::reserve(&zones, &platform, &[]);
    zones.db().open();
    let (status, stop) = (Arc::<Status>::default(), CancellationToken::new());
    let holder = Holder::name_server(name.to_owned(), None);
    let reporter = Reporter::new(client.clone(), &world.holds, holder, status.losses().clone());
    let options = name_server::Options {
        settings: platform,
        state: Some(state),
        former_domain: None,
        zones,
        deletion_hold_threshold: watch::Sender::new(25).subscribe(),
        denial_longest: Some(DENIAL),
        status,
        publishing: name_server::metrics::Publishing::default(),
        loading: oneshot::channel().0,
    };
    let until = stop.clone();
    let zones = async move {
        let started = name_server::start(options).await.expect("its state is usable");
        name_server::run(client, Objects::read(&world), started, stop).await.expect("its state is writable");
    };
    vec![zones.boxed(), reporter.run(until).boxed()]
}

/// Returns the response of a name server with these zones.
pub fn answer(db: &ZoneDb, query: &[u8]) -> Option<Vec<u8>> {
    // Names here have a few addresses.
    let (settings, stats, mut buffer) = (nameserver::Settings::default(), Stats::new(), [0; 4096]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1024));
    // At the start of time, a zone denies names until its loop ends that, which always runs in time here.
    let peer = Peer { address, transport: Transport::Tcp, now: 0, random: 0, keepalive: None };
    let snapshot = db.snapshot();
    let context = Context { snapshot: &snapshot, settings: &settings, stats: &stats, limiter: None };
    let mut response = Response::new(&mut buffer);
    (respond(&context, query, &peer, &mut response) == Outcome::Reply).then(|| response.octets().to_vec())
}

/// Returns the response of such a name server for an address of `name`.
pub fn ask(db: &ZoneDb, name: &Name) -> Rcode {
    Rcode(Header::read(&response(db, name)).expect("a header").flags & 0x0f)
}

/// Returns the addresses for `name` on such a name server.
pub fn addresses(db: &ZoneDb, name: &Name) -> BTreeSet<IpAddr> {
    let message = Message::from_vec(&response(db, name)).expect("a response");
    let records = message.answers.iter().map(|record| &record.data);
    records.filter_map(|data| if let RData::A(address) = data { Some(address.0.into()) } else { None }).collect()
}

fn response(db: &ZoneDb, name: &Name) -> Vec<u8> {
    let header = Header { flags: FLAG_RD, questions: 1, ..Header::default() };
    let mut query = header.to_octets().to_vec();
    query.extend_from_slice(name.as_wire());
    query.extend_from_slice(&RecordType::A.0.to_be_bytes());
    query.extend_from_slice(&Class::IN.0.to_be_bytes());
    answer(db, &query).expect("a query is answered")
}
