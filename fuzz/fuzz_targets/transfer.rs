//! Arbitrary messages as the answer of a primary server to a request for a transfer: accepted or rejected, never a panic. The check accepts
//! a zone exactly if the reader of zone files accepts it, and it is the same zone when it is read from its file.
//!
//! The first octet of an input selects AXFR (0), IXFR (1), or messages without a valid header (2, 3). For each message follow the number of
//! its records (one octet), its length (two), and its octets after the question.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use signpost_dns::secondary::incoming::{Incoming, Received, apply, check};
use signpost_dns::wire::Name;
use signpost_dns::zone::{Contents, Serial};
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::read_zone;
use signpost_dns::zonefile::write::to_text;

/// The version of the client for IXFR.
const BEFORE: &[u8] = b"$ORIGIN z.test.\n$TTL 60\n@ SOA ns.test. admin.test. 1 3600 600 86400 60\n@ NS ns.test.\na A 192.0.2.1\nb A 192.0.2.1\n";

fn read(text: &[u8]) -> Option<Contents> {
    let file: Arc<Path> = Path::new("fuzz.zone").into();
    read_zone(text, &file, None, &mut NoIncludes).contents
}

fuzz_target!(|input: &[u8]| {
    let Some((&mode, mut rest)) = input.split_first() else { return };
    let apex: Name = "z.test.".parse().expect("a name");
    let client = (mode & 1 == 1).then_some(Serial(1));
    let mut incoming = Incoming::new(apex.clone(), 7, client);
    let received = loop {
        let Some(([count, high, low], body)) = rest.split_first_chunk() else { return };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(body.len());
        let (body, others) = body.split_at(length);
        rest = others;
        let qtype = if client.is_some() { 251 } else { 252 };
        let head = [0, 7, 0x84, 0, 0, 1, 0, *count, 0, 0, 0, 0];
        let message = match mode & 2 {
            0 => [&head[..], apex.as_wire(), &[0, qtype, 0, 1], body].concat(),
            _ => body.to_vec(),
        };
        match incoming.read(&message) {
            Ok(None) => {}
            Ok(Some(received)) => break received,
            Err(_) => return,
        }
    };
    let contents = match received {
        Received::Current(_) => return,
        Received::Whole(contents) => contents,
        Received::Changes(differences) => {
            let mut contents = read(BEFORE).expect("a zone");
            match apply(&mut contents, differences) {
                Ok(()) => contents,
                Err(_) => return,
            }
        }
    };
    let again = read(&to_text(&contents));
    assert_eq!(check(&contents).is_ok(), again.is_some(), "{:?}", check(&contents));
    if let Some(again) = again {
        assert_eq!(again, contents);
    }
});
