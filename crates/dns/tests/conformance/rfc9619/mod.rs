//! RFC 9619: a query has one question. §4: "QDCOUNT must not be greater than 1" with opcode QUERY: FORMERR.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, lines, query};

#[test]
fn more_than_one_question_is_malformed() {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1");
    for transport in [Transport::Udp, Transport::Tcp] {
        stage.peer.transport = transport;
        for count in [2u16, 3, 255, 256, 65_535] {
            let one = query("a.z.test. A noedns");
            let mut message = one.clone();
            message[4..6].copy_from_slice(&count.to_be_bytes());
            // Whether the other questions are there or only announced.
            for there in [0, usize::from(count.min(20)) - 1] {
                let mut message = message.clone();
                (0..there).for_each(|_| message.extend_from_slice(&one[12..]));
                let response = stage.respond(&message).expect("a response");
                assert_eq!(lines(&response)[0], "FORMERR", "{count} announced, {there} more there");
                assert_eq!(response[4..12], [0; 8], "nothing of them is repeated");
            }
        }
    }
}
