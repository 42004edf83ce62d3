//! RFC 1035 §4.1.4: which parts of names are written once, and which are written out because no pointer reaches.

use signpost_dns::nameserver::Transport;
use signpost_dns::wire::RecordType;
use signpost_dns::zone::Zone;

use crate::conformance::stage::{Stage, contents, large_signatures, lines, records};

/// A zone of these lines, with a SOA whose names share a suffix outside of it, queried over a stream.
fn far(text: &str) -> Stage {
    let text = format!("@ SOA ns.elsewhere. admin.elsewhere.\n@ NS ns.elsewhere.\n{text}");
    let mut stage = Stage::new([Zone::build(contents("z.test.", &text)).expect("a zone of a test")]);
    stage.peer.transport = Transport::Tcp;
    stage
}

/// Checks the response's lines without signatures, and that a part of it is where no pointer reaches.
#[track_caller]
fn check_far(stage: &Stage, question: &str, expected: &str) {
    let response = stage.ask(question);
    assert!(response.len() > 0x4000, "{question}: {} octets", response.len());
    let found: Vec<String> = lines(&response).into_iter().filter(|line| !line.contains(" RRSIG ")).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(found, expected, "{question}");
}

/// The aliases after the first, their names, and all records of the last of them are beyond 16,383 octets.
#[test]
fn a_chain_beyond_the_reach_of_pointers_is_written_out() {
    let text = "a CNAME b
        b CNAME C
        c MX 10 d
        c MX 20 mail.c
        c MX 30 x.mail.elsewhere.
        c MX 40 y.mail.elsewhere.
        c TXT t
        d A 192.0.2.1
        mail.c AAAA 2001:db8::1
        e CNAME f
        f CNAME q.g
        g DNAME sub.h
        q.sub.h CNAME d
        i CNAME j
        j CNAME nowhere
        k CNAME l
        l CNAME www.cut
        cut NS ns1.cut
        cut NS ns2.cut
        ns1.cut A 192.0.2.2
        ns2.cut A 192.0.2.3\n";
    let owners = ["a", "e", "i", "k"].map(|owner| large_signatures(owner, RecordType::CNAME, 80)).concat();
    let stage = far(&format!("{text}{owners}"));
    // An owner that is written out is in lower case, as for the lookup; names in data are as in the message.
    let chain = "an a.z.test. CNAME b.z.test.\n an b.z.test. CNAME C.z.test.";
    check_far(
        &stage,
        "a.z.test. MX do",
        &format!(
            "NOERROR aa
             {chain}
             an c.z.test. MX 10 d.z.test.
             an c.z.test. MX 20 mail.C.z.test.
             an c.z.test. MX 30 x.mail.elsewhere.
             an c.z.test. MX 40 y.mail.elsewhere.
             ar d.z.test. A 192.0.2.1
             ar mail.c.z.test. AAAA 2001:db8::1"
        ),
    );
    check_far(&stage, "a.z.test. TXT do", &format!("NOERROR aa\n {chain}\n an c.z.test. TXT t"));
    check_far(
        &stage,
        "e.z.test. A do",
        "NOERROR aa
         an e.z.test. CNAME f.z.test.
         an f.z.test. CNAME q.g.z.test.
         an g.z.test. DNAME sub.h.z.test.
         an q.g.z.test. CNAME q.sub.h.z.test.
         an q.sub.h.z.test. CNAME d.z.test.
         an d.z.test. A 192.0.2.1",
    );
    check_far(
        &stage,
        "i.z.test. A do",
        "NXDOMAIN aa\n an i.z.test. CNAME j.z.test.\n an j.z.test. CNAME nowhere.z.test.\n ns z.test. SOA",
    );
    let soa = records(&stage.ask("i.z.test. A do")).into_iter().find(|record| record.section == "ns").expect("a SOA");
    assert!(soa.octets.starts_with(b"\x02ns\x09elsewhere\0\x05admin\x09elsewhere\0"), "{:02x?}", soa.octets);
    check_far(
        &stage,
        "k.z.test. A do",
        "NOERROR aa
         an k.z.test. CNAME l.z.test.
         an l.z.test. CNAME www.cut.z.test.
         ns cut.z.test. NS ns1.cut.z.test.
         ns cut.z.test. NS ns2.cut.z.test.
         ar ns1.cut.z.test. A 192.0.2.2
         ar ns2.cut.z.test. A 192.0.2.3",
    );
}

/// An RRset that begins within reach and ends beyond: names after that are written as those before them allow.
#[test]
fn a_set_across_the_reach_of_pointers() {
    let names: Vec<String> = (0..1200).map(|index| format!("n{index}.{}.elsewhere.", "x".repeat(40))).collect();
    let text: String = names.iter().map(|name| format!("a NS {name}\n")).collect();
    let stage = far(&text);
    let response = stage.ask("www.a.z.test. A");
    let expected: Vec<String> = names.iter().map(|name| format!("ns a.z.test. NS {name}")).collect();
    assert!(lines(&response)[1..] == expected, "{:?}", lines(&response).iter().take(3));
    assert!(response.len() > 0x4000 && response.len() < 1200 * 24, "{}", response.len());
}

/// Names that share labels outside of the zone fit into 512 octets, as in Knot.
#[test]
fn names_of_an_rrset_share_their_suffixes() {
    let servers: Vec<String> =
        ('a'..='m').map(|letter| format!("{letter}.gtld-servers-of-somebody-else.example.")).collect();
    let mail: Vec<String> =
        (1..=12).map(|index| format!("mx{index:02}.mail.some-provider-with-a-long-name.example.")).collect();
    let mut text: String = servers.iter().map(|name| format!("@ NS {name}\n")).collect();
    text.extend(mail.iter().enumerate().map(|(at, name)| format!("@ MX {at} {name}\n")));
    let contents = contents("z.test.", &format!("@ SOA ns.elsewhere. admin\n{text}"));
    let stage = Stage::new([Zone::build(contents.clone()).expect("a zone")]);
    let response = stage.ask("z.test. NS noedns");
    let expected: Vec<String> = servers.iter().map(|name| format!("an z.test. NS {name}")).collect();
    assert_eq!((&lines(&response)[0][..], &lines(&response)[1..]), ("NOERROR aa", &expected[..]));
    // Header and question, the first name whole, twelve of one label and a pointer.
    assert_eq!(response.len(), 12 + 12 + 12 + 41 + 12 * (12 + 4));
    let response = stage.ask("z.test. MX noedns");
    let expected: Vec<String> =
        mail.iter().enumerate().map(|(at, name)| format!("an z.test. MX {at} {name}")).collect();
    assert_eq!((&lines(&response)[0][..], &lines(&response)[1..]), ("NOERROR aa", &expected[..]));
    assert_eq!(response.len(), 12 + 12 + 12 + 2 + 50 + 11 * (12 + 2 + 7));
    // What was taken out comes back.
    let back = stage.db.get(contents.apex()).expect("is served").contents();
    for rtype in [RecordType::SOA, RecordType::NS, RecordType::MX] {
        assert_eq!(back.get(contents.apex(), rtype), contents.get(contents.apex(), rtype));
    }
}

/// Glue points to where its name server stands, and that to the cut.
#[test]
fn a_large_referral_is_whole() {
    let text: String = (1..=13)
        .map(|index| {
            let name = format!("n{index:02}.servers.example-infrastructure");
            format!("example-infrastructure NS {name}\n {name} A 192.0.2.{index}\n {name} AAAA 2001:db8::{index:x}\n")
        })
        .collect();
    let stage = Stage::with("del.", &text);
    let response = stage.ask("www.example-infrastructure.del. A");
    let found = lines(&response);
    assert_eq!((&found[0][..], found.len()), ("NOERROR", 1 + 13 + 26));
    for index in 1..=13 {
        let name = format!("n{index:02}.servers.example-infrastructure.del.");
        assert_eq!(found[index], format!("ns example-infrastructure.del. NS {name}"));
        assert_eq!(found[12 + 2 * index], format!("ar {name} A 192.0.2.{index}"));
        assert_eq!(found[13 + 2 * index], format!("ar {name} AAAA 2001:db8::{index:x}"));
    }
    let servers = 12 + 4 + 8 + 2 + 12 * (12 + 4 + 2);
    assert_eq!(response.len(), 12 + 32 + 4 + servers + 13 * (16 + 28) + 11);
}

/// The owner's own labels, where it stands: in the question, after a wildcard, at the end of a chain.
#[test]
fn names_share_the_owners_labels() {
    let stage = Stage::with(
        "z.test.",
        "sub NS ns1.sub
         sub NS sub
         ns1.sub A 192.0.2.1
         *.w MX 1 mx.w
         *.w MX 2 *.w
         alias CNAME mail.b
         mail.b MX 1 mx.mail.b
         mail.b MX 2 b
         cased.B MX 1 mx.b",
    );
    for (question, at, octets) in [
        ("www.sub.z.test. A noedns", 0, &b"\x03ns1\xc0\x10"[..]),
        ("www.sub.z.test. A noedns", 1, b"\xc0\x10"),
        ("w.sub.z.test. A noedns", 1, b"\xc0\x0e"),
        ("q.w.z.test. MX noedns", 0, b"\0\x01\x02mx\xc0\x0e"),
        ("q.w.z.test. MX noedns", 1, b"\0\x02\x01*\xc0\x0e"),
        ("mail.b.z.test. MX noedns", 0, b"\0\x01\x02mx\xc0\x0c"),
        ("mail.b.z.test. MX noedns", 1, b"\0\x02\xc0\x11"),
        // Header, question, the alias's head: its target is at 42.
        ("alias.z.test. MX noedns", 0, b"\x04mail\x01b\xc0\x12"),
        ("alias.z.test. MX noedns", 1, b"\0\x01\x02mx\xc0\x2a"),
        ("alias.z.test. MX noedns", 2, b"\0\x02\xc0\x2f"),
        ("cased.b.z.test. MX noedns", 0, b"\0\x01\x02mx\x01b\xc0\x14"),
    ] {
        assert_eq!(records(&stage.ask(question))[at].octets, octets, "{question} {at}");
    }
    stage.check(
        "alias.z.test. MX",
        "NOERROR aa
         an alias.z.test. CNAME mail.b.z.test.
         an mail.b.z.test. MX 1 mx.mail.b.z.test.
         an mail.b.z.test. MX 2 b.z.test.",
    );
}

/// A label of 60 octets, beginning with this one.
fn long(first: char) -> String {
    format!("{first}{}", "o".repeat(59))
}

/// Queries without EDNS, so with room for 512 octets, and returns the head of the response.
#[track_caller]
fn head(stage: &Stage, question: &str) -> String {
    let response = stage.ask(&format!("{question} noedns"));
    assert!(response.len() <= 512, "{} octets", response.len());
    lines(&response)[0].clone()
}

/// Labels below the cut that a name server's name shares with the question are written once if necessary.
#[test]
fn a_referral_is_not_cut_for_a_name_that_stands_in_the_question() {
    let servers: String = "abcde"
        .chars()
        .map(|first| format!("sub NS {0}.sub\n {0}.sub A 192.0.2.1\n out CNAME x.{0}.sub\n", long(first)))
        .take(5)
        .collect();
    let stage = Stage::with("z.test.", &servers.replace("out CNAME x.b", "in CNAME x.b"));
    assert_eq!(head(&stage, &format!("x.{}.sub.z.test. A", long('f'))), "NOERROR tc");
    for server in "abcde".chars() {
        let owner = long(server);
        let response = stage.ask(&format!("x.{}.sub.Z.test. A noedns", owner.to_ascii_uppercase()));
        let found: Vec<String> = lines(&response).iter().map(|line| line.to_ascii_lowercase()).collect();
        assert_eq!((found.len(), &*found[0]), (11, "noerror"));
        for (at, server) in "abcde".chars().enumerate() {
            let server = long(server);
            assert_eq!(found[1 + at], format!("ns sub.z.test. ns {server}.sub.z.test."));
            assert_eq!(found[6 + at], format!("ar {server}.sub.z.test. a 192.0.2.1"));
        }
    }
}

/// Names made of a wildcard share with their owner what no record of the zone could.
#[test]
fn an_answer_from_a_wildcard_is_not_cut_for_a_name_that_stands_in_the_question() {
    let exchanges: String = "abcdef".chars().map(|first| format!("*.w MX 10 {}.w\n", long(first))).collect();
    let stage = Stage::with("z.test.", &exchanges);
    assert_eq!(head(&stage, &format!("{}.w.z.test. MX", long('g'))), "NOERROR aa tc");
    stage.check(
        &format!("{}.w.z.test. MX noedns", long('c')),
        &"abcdef".chars().fold("NOERROR aa".to_owned(), |lines, first| {
            format!("{lines}\nan {}.w.z.test. MX 10 {}.w.z.test.", long('c'), long(first))
        }),
    );
}

/// Aliases of one domain, some of them made by a DNAME: what all share is written once before the chain is cut.
#[test]
fn a_chain_is_not_cut_for_what_its_names_share() {
    let domain = long('d');
    let text = format!(
        "x0 CNAME x1.{domain}\n x1.{domain} CNAME x2.{domain}\n x2.{domain} CNAME x3.{domain}
         x3.{domain} CNAME x4.{domain}\n x4.{domain} CNAME x5.{domain}\n x5.{domain} CNAME a.b.d
         d DNAME {domain}\n a.b.{domain} MX 10 mx.x5.{domain}\n a.b.{domain} MX 20 mx.elsewhere.
         mx.x5.{domain} A 192.0.2.1"
    );
    let stage = Stage::with("z.test.", &text);
    let chain: String =
        (1..5).map(|at| format!("an x{at}.{domain}.z.test. CNAME x{}.{domain}.z.test.\n", at + 1)).collect();
    let expected = format!(
        "NOERROR aa
         an x0.z.test. CNAME x1.{domain}.z.test.
         {chain}
         an x5.{domain}.z.test. CNAME a.b.d.z.test.
         an d.z.test. DNAME {domain}.z.test.
         an a.b.d.z.test. CNAME a.b.{domain}.z.test.
         an a.b.{domain}.z.test. MX 10 mx.x5.{domain}.z.test.
         an a.b.{domain}.z.test. MX 20 mx.elsewhere.
         ar mx.x5.{domain}.z.test. A 192.0.2.1"
    );
    stage.check("x0.z.test. MX noedns", &expected);
    stage.check("x0.z.test. MX", &expected);
    assert!(stage.ask("x0.z.test. MX").len() > 512, "as stored it is too long");
}
