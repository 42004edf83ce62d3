//! The query path allocates nothing, for any query and any answer.
//!
//! The allocator of this test program counts the allocations of each thread. What a C library takes for itself (SHA-1 of NSEC3
//! proofs) does not pass through it.

#![allow(unsafe_code, reason = "an allocator that counts is a global allocator, which is unsafe by its trait")]

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use signpost_dns::nameserver::cookie::Cookies;
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_dns::nameserver::{
    Context, Exchange, Limiter, Outcome, Response, Scratch, Transport, respond, respond_batch,
};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Zone;

use stage::{Stage, contents, large_signatures, lines, octets, query, query_with_option, zone};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, octets: usize) -> *mut u8 {
        count();
        // SAFETY: as above; `pointer` came from `System`, as all do.
        unsafe { System.realloc(pointer, layout, octets) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    // A thread that ends may free and allocate after its own variables are gone.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

/// Returns the result of `work`, and the number of allocations of this thread meanwhile.
fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let result = work();
    (result, ALLOCATIONS.get() - before)
}

/// The hash of a name in an NSEC3 chain without salt.
fn hash(name: &str) -> String {
    let name: Name = name.parse().expect("a name");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, name.as_wire());
    data_encoding::BASE32HEX_NOPAD.encode(digest.as_ref()).to_ascii_lowercase()
}

fn stage() -> Stage {
    let large = large_signatures("far", RecordType::CNAME, 80);
    let many: String = (0..40)
        .map(|index| format!("many NS n{index}.ns.many\n n{index}.ns.many A 192.0.2.{index}\n big A 10.0.0.{index}\n"))
        .collect();
    let plain = format!(
        "* A 192.0.2.1\n * A 192.0.2.2\n exact AAAA 2001:db8::1\n cut NS ns.cut\n cut DS 1\n ns.cut A 192.0.2.3
         chain CNAME next\n next CNAME wild.w\n *.w A 192.0.2.4\n loop CNAME loop\n d DNAME exact\n away CNAME www.elsewhere.
         @ MX 1 mx1.mail.elsewhere.\n @ MX 2 mx2.mail.elsewhere.\n @ MX 3 exact\n s SRV 1 2 3 exact\n h HTTPS 1 .\n h A 192.0.2.5
         far CNAME far2\n far2 CNAME far3\n far3 MX 1 a.far3\n far3 MX 2 x.elsewhere.\n far3 MX 3 y.elsewhere.
         a.far3 A 192.0.2.6\n {large}{many}"
    );
    let signed = "@ NSEC b\n @ RRSIG NSEC\n @ RRSIG SOA\n b A 192.0.2.1\n b RRSIG A\n b NSEC @\n b RRSIG NSEC
         cut NS ns.elsewhere.\n cut NSEC @";
    let hashed = [hash("y.test."), hash("a.y.test.")];
    let chain = format!("@ NSEC3PARAM\n a A 192.0.2.1\n {0} NSEC3 0 {1}\n {1} NSEC3 0 {0}\n", hashed[0], hashed[1]);
    let mut weighted = contents("w.test.", "@ SOA ns.elsewhere. admin\n* A 192.0.2.1\n* A 192.0.2.2\n");
    let wildcard = "*.w.test.".parse().expect("a name");
    weighted.set_weights(&wildcard, RecordType::A, vec![1, 3]).expect("two weights");
    let weighted = Zone::build(weighted).expect("a zone");
    let mut stage = Stage::new([zone("z.test.", &plain), zone("x.test.", signed), zone("y.test.", &chain), weighted]);
    stage.settings.nsid = Some((*b"ns1").into());
    stage.settings.version = Some("signpost".into());
    let first = "e5e973e5a6b2a43f48e7dc849e37bfcf".parse().expect("a secret");
    stage.settings.cookies = Some(Cookies { first, others: Box::default(), required: false });
    stage
}

/// Messages, with the first line of their answers over UDP.
fn cases() -> Vec<(Vec<u8>, &'static str)> {
    let mut cases: Vec<(Vec<u8>, &str)> = [
        ("a.z.test. A", "NOERROR aa"),
        ("a.z.test. A noedns rd", "NOERROR aa rd"),
        ("A.Z.test. AAAA", "NOERROR aa"),
        ("a.w.test. A", "NOERROR aa"),
        ("a.exact.z.test. A", "NXDOMAIN aa"),
        ("exact.z.test. AAAA", "NOERROR aa"),
        ("www.cut.z.test. A do", "NOERROR"),
        ("cut.z.test. DS", "NOERROR aa"),
        ("www.many.z.test. A noedns", "NOERROR tc"),
        ("chain.z.test. A do", "NOERROR aa"),
        ("loop.z.test. A", "NOERROR aa"),
        ("q.d.z.test. A", "NXDOMAIN aa"),
        ("away.z.test. A", "NOERROR aa"),
        ("z.test. MX", "NOERROR aa"),
        ("z.test. SOA", "NOERROR aa"),
        ("z.test. NS", "NOERROR aa"),
        ("s.z.test. SRV", "NOERROR aa"),
        ("h.z.test. HTTPS", "NOERROR aa"),
        ("h.z.test. ANY", "NOERROR aa"),
        ("far.z.test. MX do", "NOERROR aa tc"),
        ("big.z.test. A noedns", "NOERROR aa tc"),
        ("b.x.test. A do", "NOERROR aa"),
        ("b.x.test. AAAA do", "NOERROR aa"),
        ("c.x.test. A do", "NXDOMAIN aa"),
        ("www.cut.x.test. A do", "NOERROR"),
        ("b.x.test. RRSIG", "NOERROR aa"),
        ("c.y.test. A do", "NXDOMAIN aa"),
        ("a.y.test. AAAA do", "NOERROR aa"),
        ("a.elsewhere. A", "REFUSED"),
        ("z.test. AXFR", "REFUSED"),
        ("z.test. OPT", "FORMERR"),
        ("version.bind. TXT class=CH", "NOERROR aa"),
        ("a.z.test. A class=HS", "REFUSED"),
    ]
    .map(|(question, head)| (query(question), head))
    .into();
    for (code, data, head) in [
        (3, &b""[..], "NOERROR aa"),
        (10, b"client12", "NOERROR aa"),
        (10, b"client12server78", "NOERROR aa"),
        (10, b"short", "FORMERR"),
        (11, b"", "NOERROR aa"),
        (12, b"\0\0\0\0", "NOERROR aa"),
    ] {
        cases.push((query_with_option("a.z.test. A", code, data), head));
    }
    let changed = |at: usize, octet: u8| {
        let mut message = query("a.z.test. A");
        let at = if at == usize::MAX { message.len() - 5 } else { at };
        message[at] = octet;
        message
    };
    cases.push((changed(2, 4 << 3), "REFUSED"));
    cases.push((changed(2, 5 << 3), "NOTIMP"));
    cases.push((changed(5, 2), "FORMERR"));
    cases.push((changed(usize::MAX, 1), "BADVERS"));
    cases.push((changed(2, 0x80), ""));
    cases.push((b"short".to_vec(), ""));
    let mut signed = query("a.z.test. A");
    signed[11] = 2;
    signed.extend(octets(r"\003key\000\000\250\000\255\000\000\000\000\000\020"));
    signed.extend(octets(r"\003alg\000\000\000\000\000\000\001\001\044\000\000\000"));
    let length = signed.len();
    signed.truncate(length - 1);
    signed.extend(octets(r"\000\007\000\000\000\000"));
    let rdata_octets = 5 + 8 + 2 + 6;
    let length_at = query("a.z.test. A").len() + 5 + 9;
    signed[length_at] = rdata_octets;
    cases.push((signed, "NOTAUTH"));
    cases
}

#[test]
fn the_allocator_counts() {
    assert_eq!(counted(|| black_box(vec![1u8; 10])).1, 1);
    assert_eq!(counted(|| black_box([1u8; 10])).1, 0);
}

#[test]
fn no_answer_allocates() {
    let mut stage = stage();
    let snapshot = stage.db.snapshot();
    let mut buffer = vec![0; 65535];
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic] {
        stage.peer.transport = transport;
        for (message, head) in cases() {
            let context =
                Context { snapshot: &snapshot, settings: &stage.settings, stats: &stage.stats, limiter: None };
            let mut response = Response::new(&mut buffer);
            let (outcome, allocations) = counted(|| respond(&context, &message, &stage.peer, &mut response));
            let found = match outcome {
                Outcome::Reply | Outcome::HandOff(_) | Outcome::Signed => lines(response.octets())[0].clone(),
                Outcome::Drop => String::new(),
            };
            assert_eq!(allocations, 0, "{found} over {transport:?} to {message:02x?}");
            if transport == Transport::Udp {
                assert_eq!(found, head, "{message:02x?}");
            }
            if transport == Transport::Tcp && head == "NOERROR aa tc" {
                assert_eq!(found, "NOERROR aa", "all of it over a stream");
            }
        }
    }
}

#[test]
fn no_batch_allocates() {
    let mut stage = stage();
    // With a limit that is reached on the way: answers, truncated ones and none.
    stage.settings.rate_limit = Some(RateLimit { per_second: 2, ..RateLimit::default() });
    let limiter = Limiter::new([1, 2]);
    let snapshot = stage.db.snapshot();
    let context =
        Context { snapshot: &snapshot, settings: &stage.settings, stats: &stage.stats, limiter: Some(&limiter) };
    let messages: Vec<Vec<u8>> = cases().into_iter().map(|(message, _)| message).collect();
    let messages: Vec<&Vec<u8>> = messages.iter().cycle().take(5 * messages.len()).collect();
    let mut buffers = vec![[0; 1232]; messages.len()];
    let mut exchanges: Vec<Exchange<'_>> =
        messages.iter().zip(&mut buffers).map(|(message, buffer)| Exchange::new(message, stage.peer, buffer)).collect();
    let mut scratch = Scratch::new();
    let ((), allocations) = counted(|| respond_batch(&context, &mut scratch, &mut exchanges));
    assert_eq!(allocations, 0);
    let replies = exchanges.iter().filter(|exchange| exchange.outcome != Outcome::Drop).count();
    let limited: u64 = stage.stats.counts().limited.iter().sum();
    assert!(replies > messages.len() / 5 && limited > 0, "{replies} replies, {limited} limited");
}
