//! A name server and resolver: TXT records from the ChallengeRecords of the API, and CNAME and CAA records of the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;
use tokio::net::UdpSocket;

const CNAME: u16 = 5;
const TXT: u16 = 16;
const CAA: u16 = 257;
/// The size of a header (RFC 1035 §4.1.1).
const HEADER: usize = 12;

/// The data of records, by name and type.
type Records = Arc<Mutex<HashMap<(String, u16), Vec<u8>>>>;

pub struct Dns {
    pub address: SocketAddr,
    records: Records,
}

impl Dns {
    pub async fn start(client: Client) -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let (address, records) = (socket.local_addr().expect("it is bound"), Records::default());
        let own = records.clone();
        tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, client_address)) = socket.recv_from(&mut query).await {
                let Some(response) = respond(&query[..length], &client, &own).await else { continue };
                let _ = socket.send_to(&response, client_address).await;
            }
        });
        Dns { address, records }
    }

    /// Creates or replaces a CNAME record.
    pub fn lead(&self, name: &str, target: &str) {
        let mut data = Vec::new();
        for label in target.split('.').chain([""]) {
            data.push(label.len() as u8);
            data.extend_from_slice(label.as_bytes());
        }
        self.records.lock().insert((name.to_owned(), CNAME), data);
    }

    /// Creates a CAA record that permits no CA to issue.
    pub fn forbid(&self, name: &str) {
        self.records.lock().insert((name.to_owned(), CAA), b"\0\x05issue;".to_vec());
    }
}

/// Returns the response to a query with one question.
async fn respond(query: &[u8], client: &Client, records: &Records) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (HEADER, Vec::new());
    while let length @ 1.. = usize::from(*query.get(at)?) {
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_ascii_lowercase());
        at += 1 + length;
    }
    let (name, end) = (labels.join("."), at + 5);
    let rtype = u16::from_be_bytes([*query.get(at + 1)?, *query.get(at + 2)?]);
    let mut answers: Vec<Vec<u8>> = records.lock().get(&(name.clone(), rtype)).cloned().into_iter().collect();
    if rtype == TXT {
        let all = Api::<ChallengeRecord>::all(client.clone()).list(&ListParams::default()).await.ok()?;
        let values = all.items.into_iter().filter(|record| record.spec.name == name).map(|record| record.spec.value);
        answers.extend(values.map(|value| [&[value.len() as u8], value.as_bytes()].concat()));
    }
    // A response with authority, one question, and these answers.
    let mut response =
        [&query[..2], &[0x84, 0, 0, 1, 0, answers.len() as u8, 0, 0, 0, 0], query.get(HEADER..end)?].concat();
    for data in answers {
        let rtype = rtype.to_be_bytes();
        response.extend([0xc0, HEADER as u8, rtype[0], rtype[1], 0, 1, 0, 0, 0, 0, 0, data.len() as u8]);
        response.extend(data);
    }
    Some(response)
}
