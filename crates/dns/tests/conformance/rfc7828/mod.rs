//! RFC 7828: the option edns-tcp-keepalive. What is answered to it is in `rfc6891`, with the other options.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, lines, opt, query_with_option, well_formed};

const KEEPALIVE: u16 = 11;

/// §3.2.1: a client "MUST specify an OPTION-LENGTH of zero". §3.3.1: a query over UDP with the option, of any length: the
/// server "MUST ignore the option".
#[test]
fn section_3_3_1_a_client_sends_no_timeout_and_over_udp_it_is_ignored() {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1");
    stage.peer.keepalive = Some(300);
    for data in [&b"\x01"[..], b"\x01\x2c", b"\0\0\0"] {
        let message = query_with_option("a.z.test. A", KEEPALIVE, data);
        for (transport, head) in [
            (Transport::Udp, "NOERROR aa"),
            (Transport::Tcp, "FORMERR"),
            (Transport::Tls, "FORMERR"),
            // The option is of TCP's idle timeout; here it means nothing.
            (Transport::Https, "NOERROR aa"),
        ] {
            stage.peer.transport = transport;
            let response = stage.respond(&message).expect("a response");
            well_formed(&message, &response);
            assert_eq!(lines(&response)[0], head, "{transport:?} {data:?}");
            assert_eq!(opt(&response).map(|(_, _, options)| options), Some(vec![]), "{transport:?} {data:?}");
        }
    }
}
