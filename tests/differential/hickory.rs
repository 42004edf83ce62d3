//! `hickory-server` as a further server, in the process of the test, with the unsigned zones: it loads no signed zone.
//!
//! It answers from its own in-memory store. [`Fault`] lists its known faults; every other difference fails the test, and so does
//! a fault that no longer occurs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use domain::base::ToName as _;
use domain::base::rdata::ComposeRecordData as _;
use domain::zonefile::inplace::{Entry, Zonefile};
use hickory_proto::rr::{LowerName, Name, Record};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};
use hickory_server::net::runtime::TokioRuntimeProvider;
use hickory_server::store::in_memory::InMemoryZoneHandler;
use hickory_server::zone_handler::{AxfrPolicy, Catalog, ZoneType};
use signpost_testing::name_server::NameServer;
use tokio::runtime::Runtime;

use super::Client;
use super::compare::{Answer, compare};
use super::zones::Zone;

/// The known faults of `hickory-server` 0.26.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The SOA record of a negative response has its own TTL. RFC 2308 §3 demands the minimum of that and the field MINIMUM.
    NegativeTtl,
    /// A referral has AA, and the addresses of at most one name server. If the query is for NS, or a CNAME leads to the cut, the NS
    /// records are in the answer section; if it is for SOA, there are those of the apex, too. RFC 1034 §4.3.2 step 3b has only the
    /// former, in the authority section, and RFC 9471 §3.1 demands all in-domain glue. (hickory-dns#2810)
    Referral,
    /// A wildcard applies to names that exist, to names below them, and to names below closer enclosers. If it does not have the
    /// type, the response is NXDOMAIN. RFC 4592 §3.3.1 demands the wildcard below the closest encloser only, and §2.2.1 NODATA.
    /// (hickory-dns#1275, #2905, #3893)
    Wildcard,
    /// A DNAME is a record like others, and nothing is below it. RFC 6672 §3.2 demands the substitution.
    Dname,
    /// If the target of a CNAME does not exist or does not have the type, the response is NOERROR, without SOA. RFC 2308 §2.1 and
    /// §2.2 demand the RCODE and the SOA record of the target.
    EndOfChain,
}

impl Fault {
    const ALL: [Fault; 5] = [Fault::NegativeTtl, Fault::Referral, Fault::Wildcard, Fault::Dname, Fault::EndOfChain];
}

/// The running server.
pub struct Hickory {
    client: Client,
    /// The parents of the wildcards of each zone.
    wildcards: HashMap<String, BTreeSet<Name>>,
    _server: NameServer,
    _runtime: Runtime,
}

impl Hickory {
    pub fn start(zones: &[Zone]) -> Hickory {
        let runtime = Runtime::new().expect("threads");
        let (mut catalog, mut wildcards) = (Catalog::new(), HashMap::new());
        for zone in zones.iter().filter(|zone| !zone.signed) {
            let apex: Name = zone.apex.parse().expect("a name");
            let mut store: InMemoryZoneHandler<TokioRuntimeProvider> =
                InMemoryZoneHandler::empty(apex.clone(), ZoneType::Primary, AxfrPolicy::Deny);
            let records = records(&zone.text);
            wildcards.insert(zone.apex.clone(), records.iter().flat_map(|record| parents(&record.name)).collect());
            for record in records {
                assert!(store.upsert_mut(record, 0), "rejected: {}", zone.text);
            }
            catalog.upsert(LowerName::new(&apex), vec![Arc::new(store)]);
        }
        let server = runtime.block_on(NameServer::start(catalog));
        Hickory { client: Client::new(server.address), wildcards, _server: server, _runtime: runtime }
    }

    /// Compares our answer with that of the server, and counts known faults. An error is a difference.
    pub fn check(
        &self,
        query: &[u8],
        zone: &Zone,
        ours: &Answer,
        met: &mut BTreeMap<Fault, usize>,
    ) -> Result<(), String> {
        let mut theirs = Answer::parse(&self.client.ask(query));
        let mut meet = |fault| *met.entry(fault).or_default() += 1;
        if theirs.limit_negative_ttl() {
            meet(Fault::NegativeTtl);
        }
        let Err(difference) = compare(ours, &theirs, "hickory") else { return Ok(()) };
        match self.fault(zone, ours, &theirs) {
            Some(fault) => meet(fault),
            None => return Err(format!("{difference:?}\n--- hickory\n{theirs}")),
        }
        Ok(())
    }

    /// Returns the fault that explains a difference.
    fn fault(&self, zone: &Zone, ours: &Answer, theirs: &Answer) -> Option<Fault> {
        let wildcards = &self.wildcards[&zone.apex];
        let below_wildcard = |name: &Name| {
            wildcards.iter().any(|parent| parent.zone_of(name) && parent.num_labels() < name.num_labels())
        };
        if ours.is_referral() && (theirs.truncated || ours.referral(&zone.apex) == theirs.referral(&zone.apex)) {
            Some(Fault::Referral)
        } else if ours.has_dname() {
            Some(Fault::Dname)
        } else if ours.is_longer_than(theirs) {
            Some(Fault::EndOfChain)
        } else if ours.path.iter().any(below_wildcard) {
            Some(Fault::Wildcard)
        } else {
            None
        }
    }
}

/// Fails if a known fault did not occur, so that the list is shortened with a newer version.
pub fn assert_all_occur(met: &BTreeMap<Fault, usize>) {
    let gone: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| !met.contains_key(fault)).collect();
    assert!(gone.is_empty(), "hickory-server no longer has these faults; remove them from the list: {gone:?}");
}

/// Returns the parents of the wildcards at and above a name.
fn parents(name: &Name) -> Vec<Name> {
    let above = std::iter::successors(Some(name.clone()), |name| (!name.is_root()).then(|| name.base_name()));
    above.filter(Name::is_wildcard).map(|wildcard| wildcard.base_name()).collect()
}

/// Returns the records of a zone file as the crate `domain` reads them: hickory's own parser does not know all types and escapes.
fn records(text: &str) -> Vec<Record> {
    let mut file = Zonefile::load(&mut text.as_bytes()).expect("memory");
    let mut records = Vec::new();
    while let Some(entry) = file.next_entry().unwrap_or_else(|error| panic!("{error}: {text}")) {
        let Entry::Record(record) = entry else { panic!("only records: {text}") };
        let mut data = Vec::new();
        record.data().compose_rdata(&mut data).expect("memory");
        let mut octets: Vec<u8> = record.owner().to_vec().as_slice().to_vec();
        octets.extend(record.rtype().to_int().to_be_bytes());
        octets.extend(record.class().to_int().to_be_bytes());
        octets.extend(record.ttl().as_secs().to_be_bytes());
        octets.extend(u16::try_from(data.len()).expect("the data of a record").to_be_bytes());
        octets.extend(data);
        records.push(Record::read(&mut BinDecoder::new(&octets)).expect("a record"));
    }
    records
}
