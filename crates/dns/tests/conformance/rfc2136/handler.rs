//! Requests with and without signatures, as the handler answers them.

use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use signpost_dns::nameserver::hand_off::{Answer, HandOff, refuse};
use signpost_dns::nameserver::signed::Signed;
use signpost_dns::nameserver::{Context, Outcome, Response, respond, signed};
use signpost_dns::tsig::{Key, Keys, Signer};
use signpost_dns::update::{Job, Right, Updates};
use signpost_dns::wire::header::Rcode;
use tokio::sync::mpsc;

use super::{ID, name, request, served, to_octets};
use crate::conformance::stage::{Stage, lines, well_formed};

const NOW: u64 = 1_800_000_000;

fn key(text: &str) -> Arc<Key> {
    Arc::new(Key::new(name(text), "hmac-sha256", b"a secret").expect("a key"))
}

/// A server whose keys `one.` and `two.` may change records, and `three.` may not.
pub struct Server {
    pub stage: Stage,
    pub updates: Arc<Updates>,
    jobs: Mutex<mpsc::Receiver<Job>>,
}

impl Server {
    pub fn new() -> Server {
        Server::with_keys(["one.", "two.", "three."].map(|text| (*key(text)).clone()))
    }

    pub fn with_keys(keys: impl IntoIterator<Item = Key>) -> Server {
        let mut stage = Stage::new([served()]);
        stage.settings.keys = Some(Arc::new(Keys::new(keys).expect("they differ")));
        stage.settings.updates = true;
        let right = |text: &str| Right { key: name(text), holder: format!("ns-{text}").into() };
        let (updates, jobs) = Updates::new(vec![right("one."), right("two.")]);
        Server { stage, updates, jobs: Mutex::new(jobs) }
    }

    /// Returns the answer to a message: that of the handler, or the server's own.
    pub fn send(&self, message: &[u8]) -> Option<Answer> {
        let Stage { db, settings, stats, peer, .. } = &self.stage;
        let snapshot = db.snapshot();
        let context = Context { snapshot: &snapshot, settings, stats, limiter: None };
        let mut buffer = vec![0; 65_535];
        let mut response = Response::new(&mut buffer);
        let (outcome, signed) = match respond(&context, message, peer, &mut response) {
            Outcome::Signed => signed::respond(&context, message, peer, &mut response),
            outcome => (outcome, None),
        };
        let Outcome::HandOff(kind) = outcome else { return Some(Answer::One(response.octets().to_vec())) };
        let message = signed.as_ref().map_or(message, Signed::query);
        let request = HandOff::of(kind, message, peer, &context, signed.as_ref().map(Signed::signature))
            .expect("it has a question");
        self.updates.answer(&request).or_else(|| {
            let outcome = refuse(&context, peer, &response);
            (outcome == Outcome::Reply).then(|| Answer::One(response.octets().to_vec()))
        })
    }

    /// Returns the first line of the answer, or `later`.
    pub fn ask(&self, message: &[u8]) -> String {
        match self.send(message).expect("an answer") {
            Answer::One(response) => {
                well_formed(message, &response);
                // §3.8: QR, and the opcode of the request.
                assert_eq!(response[2] & 0xf8, message[2] & 0x78 | 0x80);
                lines(&response).join(" ")
            }
            Answer::Later(_) => "later".to_owned(),
            Answer::Many(_) => panic!("one message"),
        }
    }

    pub fn next_job(&self) -> Option<Job> {
        self.jobs.lock().try_recv().ok()
    }
}

/// Signs a message by the key with this name.
pub fn sign(message: &[u8], by: &str, now: u64) -> Vec<u8> {
    let mut signer = Signer::of_request(key(by));
    let mut buffer = message.to_vec();
    buffer.resize(message.len() + signer.octets(), 0);
    let length = signer.sign(&mut buffer, message.len(), now).expect("there is room");
    buffer.truncate(length);
    buffer
}

fn message(lines: &str) -> Vec<u8> {
    to_octets(ID, &request(lines)).expect("it is short")
}

const ADD: &str = "IN _acme-challenge.a.z.test. TXT v";

#[test]
fn only_a_key_with_the_right_changes_records() {
    let server = Server::new();
    let of_zone = |zone: &str| {
        let mut request = request(ADD);
        request.zone = name(zone);
        to_octets(ID, &request).expect("it is short")
    };
    for (message, expected) in [
        (message(ADD), "REFUSED"),
        (sign(&message(ADD), "three.", NOW), "REFUSED"),
        (sign(&message("IN a.z.test. A 192.0.2.1"), "one.", NOW), "REFUSED"),
        (sign(&of_zone("y.test."), "one.", NOW), "NOTAUTH"),
        (sign(&of_zone("a.z.test."), "one.", NOW), "NOTAUTH"),
        (sign(&message("IN a.y.test. TXT v"), "one.", NOW), "NOTZONE"),
        (sign(&message("IN a.z.test. ANY"), "one.", NOW), "FORMERR"),
        (sign(&message("if ANY b.z.test. ANY"), "one.", NOW), "NXDOMAIN"),
        (sign(&message("if NONE a.z.test. ANY"), "one.", NOW), "YXDOMAIN"),
        (sign(&message("if NONE a.z.test. A"), "one.", NOW), "YXRRSET"),
        (sign(&message("if ANY a.z.test. MX"), "one.", NOW), "NXRRSET"),
        (sign(&message("if ANY a.z.test. A"), "one.", NOW), "NOERROR"),
        (message(ADD)[..14].to_vec(), "FORMERR"),
    ] {
        let found = server.ask(&message);
        assert_eq!(found.split(' ').next(), Some(expected), "{found}");
    }
    assert!(server.next_job().is_none());
    let by_unknown = sign(&message(ADD), "one.", NOW);
    let mut wrong = by_unknown.clone();
    let at = wrong.len() - 20;
    wrong[at] ^= 1;
    assert!(server.ask(&wrong).starts_with("NOTAUTH"), "BADSIG");
    assert!(server.ask(&sign(&message(ADD), "one.", NOW - 301)).starts_with("NOTAUTH"), "BADTIME");
    assert_eq!(server.ask(&sign(&message(ADD), "oNe.", NOW)), "later", "names of keys have no case");
    let job = server.next_job().expect("a job");
    assert_eq!((&*job.right.holder, job.zone.to_string().as_str(), job.operations.len()), ("ns-one.", "z.test.", 1));
    let [applied, repeated, refused, not_authoritative, malformed, prerequisite, failed] = server.updates.counts();
    assert_eq!((applied, repeated, refused, not_authoritative), (1, 0, 3, 3));
    assert_eq!((malformed, prerequisite, failed), (1, 4, 0));
}

#[test]
fn without_rights_it_is_not_implemented() {
    let mut server = Server::new();
    server.updates.set_rights(Vec::new());
    server.stage.settings.updates = false;
    assert_eq!(server.ask(&message(ADD)), "NOTIMP");
    assert_eq!(server.ask(&message(ADD)[..14]), "NOTIMP");
}

#[test]
fn a_repeated_request_is_done_once() {
    let mut server = Server::new();
    let first = sign(&message(ADD), "one.", NOW);
    let Some(Answer::Later(answer)) = server.send(&first) else { panic!("later") };
    let job = server.next_job().expect("a job");
    // While it is in progress, and signed again.
    let Some(Answer::Later(retry)) = server.send(&sign(&message(ADD), "one.", NOW + 3)) else { panic!("later") };
    job.answer.send(Rcode::REFUSED).expect("it is awaited");
    for answer in [answer, retry] {
        assert_eq!(lines(&answer.now_or_never().expect("it is there")), ["REFUSED"]);
    }
    // A recorded copy, from elsewhere.
    server.stage.peer.address = "198.51.100.1:9".parse().expect("an address");
    let Some(Answer::Later(copy)) = server.send(&first) else { panic!("later") };
    assert_eq!(lines(&copy.now_or_never().expect("it is there")), ["REFUSED"]);
    assert!(server.next_job().is_none());
    // Another client's request with the same contents.
    assert_eq!(server.ask(&sign(&message(ADD), "one.", NOW + 4)), "later");
    assert!(server.next_job().is_some());
    let [_, repeated, refused, ..] = server.updates.counts();
    assert_eq!((repeated, refused), (2, 1));
}

#[test]
fn jobs_are_bounded_for_each_right() {
    let server = Server::new();
    let numbered = |number: u32, by: &str| sign(&message(&format!("{ADD}{number}")), by, NOW);
    for number in 0..8 {
        assert_eq!(server.ask(&numbered(number, "one.")), "later");
    }
    assert_eq!(server.ask(&numbered(8, "one.")), "SERVFAIL");
    assert_eq!(server.ask(&numbered(8, "two.")), "later");
    drop(server.next_job());
    assert_eq!(server.ask(&numbered(9, "one.")), "later", "a job has ended");
    // Without an answer of the job, the client gets SERVFAIL.
    let Some(Answer::Later(answer)) = server.send(&numbered(0, "one.")) else { panic!("later") };
    assert_eq!(lines(&answer.now_or_never().expect("it is there")), ["SERVFAIL"]);
}
