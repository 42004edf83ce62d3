//! Random zones, random queries: compares Signpost's answers with those of `knotd` and `nsd`, over the wire, section by section.
//! `named` is queried as well for proofs of nonexistence, on which the two often disagree, and `hickory-server` for unsigned zones.
//!
//! Every server loads the same zone files, half of them signed. Sets are compared without regard to order, because servers rotate
//! them. [`compare`] lists the permitted differences, each with the reason in the standard. The seed determines the run, except
//! for keys: `DIFFERENTIAL_SEED` repeats one, and `DIFFERENTIAL_PAIRS` sets the number of queries (default 4,000; the long form
//! is 50,000 and more). Each round of [`PAIRS_OF_ROUND`] queries has new zones.

mod compare;
mod hickory;
mod servers;
mod signed;
mod zones;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use compare::Answer;
use hickory::Hickory;
use servers::Servers;
use zones::Chance;

const PAIRS_OF_ROUND: usize = 2_000;
const PAIRS_DEFAULT: u64 = 4_000;
const ZONES_OF_ROUND: usize = 24;
/// The maximum number of differences that are shown, and after which no further round is begun.
const SHOWN_MAX: usize = 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

#[test]
fn answers_equal_those_of_knot_and_nsd() {
    let seed = setting("DIFFERENTIAL_SEED", 20_261_121);
    let pairs = usize::try_from(setting("DIFFERENTIAL_PAIRS", PAIRS_DEFAULT)).expect("fits");
    let mut asked = 0;
    let mut differences = Vec::new();
    let mut faults_of_hickory = BTreeMap::new();
    for round in 0..pairs.div_ceil(PAIRS_OF_ROUND) as u64 {
        let mut chance = Chance::new(seed.wrapping_add(round));
        let mut zones: Vec<zones::Zone> =
            (0..ZONES_OF_ROUND).map(|number| zones::Zone::random(&mut chance, number)).collect();
        signed::sign_some(&mut zones);
        let servers = Servers::start(&zones);
        let hickory = Hickory::start(&zones);
        let clients = servers.addresses().map(|(name, address)| (name, Client::new(address)));
        for _ in 0..PAIRS_OF_ROUND.min(pairs - asked) {
            let zone = &zones[chance.below(zones.len())];
            let (qname, qtype, edns) = zone.question(&mut chance);
            let query = query(&qname, qtype, edns);
            let [ours, knot, nsd, named] = clients.each_ref().map(|(_, client)| client.ask(&query));
            let ours = Answer::parse_as_is(&ours);
            let [knot, nsd, named] = [knot, nsd, named].map(|octets| Answer::parse(&octets));
            for (server, difference) in
                compare::differences(qtype, &ours, [("knot", &knot), ("nsd", &nsd)], &named, &zone.text)
            {
                let theirs = if server == "nsd" { &nsd } else { &knot };
                differences.push(format!(
                    "{qname} TYPE{qtype} edns {edns:?}, seed {}: {server}: {difference}\n--- ours\n{ours}--- theirs\n{theirs}\
                     --- named\n{named}--- zone\n{}",
                    seed.wrapping_add(round),
                    zone.text
                ));
            }
            if !zone.signed
                && qtype != compare::ANY
                && let Err(difference) = hickory.check(&query, zone, &ours, &mut faults_of_hickory)
            {
                differences.push(format!(
                    "{qname} TYPE{qtype} edns {edns:?}, seed {}: hickory: {difference}--- ours\n{ours}--- zone\n{}",
                    seed.wrapping_add(round),
                    zone.text
                ));
            }
            asked += 1;
        }
        if differences.len() > SHOWN_MAX {
            break;
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {asked} questions were answered differently; the first:\n{}",
        differences.len(),
        differences.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join("\n")
    );
    println!("{asked} questions were answered alike, seed {seed}; faults of hickory-server: {faults_of_hickory:?}");
    if asked as u64 >= PAIRS_DEFAULT {
        hickory::assert_all_occur(&faults_of_hickory);
    }
}

/// Returns a query in wire form.
fn query(qname: &str, qtype: u16, edns: Option<(u16, bool)>) -> Vec<u8> {
    let mut octets = vec![0x5a, 0xa5, 0, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    octets.extend_from_slice(&wire_name(qname));
    octets.extend_from_slice(&qtype.to_be_bytes());
    octets.extend_from_slice(&[0, 1]);
    if let Some((size, dnssec_ok)) = edns {
        octets.extend_from_slice(&[0, 0, 41]);
        octets.extend_from_slice(&size.to_be_bytes());
        octets.extend_from_slice(&[0, 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    }
    octets
}

/// Returns a name in wire form; escapes as in a zone file.
fn wire_name(text: &str) -> Vec<u8> {
    let name: signpost_dns::wire::Name = text.parse().expect("a name of the test's own");
    name.as_wire().to_vec()
}

struct Client(UdpSocket);

impl Client {
    fn new(server: SocketAddr) -> Client {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        socket.connect(server).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Client(socket)
    }

    fn ask(&self, query: &[u8]) -> Vec<u8> {
        let mut answer = [0; 65_535];
        for _ in 0..5 {
            self.0.send(query).expect("loopback");
            if let Ok(length) = self.0.recv(&mut answer) {
                return answer[..length].to_vec();
            }
        }
        panic!("no answer to {query:02x?}");
    }
}
