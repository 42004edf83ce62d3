//! One question, one answer: over UDP, and over TCP if the answer was truncated or TCP is wanted.

use std::net::SocketAddr;
use std::time::Duration;

use super::response::Response;
use signpost_control::inquiry::{self, AskError, Inquiry, Transport};
use signpost_dns::wire::edns::option;
use signpost_dns::wire::{Name, RecordType};

/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Question {
    pub(in crate::cli) name: Name,
    pub(in crate::cli) rtype: RecordType,
    /// Whether DNSSEC records are wanted, too.
    pub(in crate::cli) dnssec: bool,
    /// Whether it goes over TCP at once.
    pub(in crate::cli) tcp: bool,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Exchange {
    pub(in crate::cli) server: SocketAddr,
    /// `udp` or `tcp`.
    pub(in crate::cli) transport: &'static str,
    pub(in crate::cli) took: Duration,
    pub(in crate::cli) response: Response,
}

impl Question {
    /// Asks `server`.
    pub(in crate::cli) async fn ask(&self, server: SocketAddr) -> Result<Exchange, String> {
        // The server's identifier (RFC 5001 §2.1): the option, empty.
        let [high, low] = option::NSID.to_be_bytes();
        let options = [high, low, 0, 0];
        let inquiry = Inquiry { dnssec_ok: self.dnssec, options: &options, ..Inquiry::new(&self.name, self.rtype) };
        if !self.tcp {
            let exchange = read(server, "UDP", inquiry.ask_over_udp(server, TIMEOUT).await)?;
            if !exchange.response.is_truncated() {
                return Ok(exchange);
            }
        }
        read(server, "TCP", inquiry.ask_over_tcp(server, TIMEOUT).await)
    }
}

fn read(server: SocketAddr, over: &str, came: Result<inquiry::Response, AskError>) -> Result<Exchange, String> {
    let came = came.map_err(|error| match error {
        AskError::Silent(_) => format!("{server} does not answer over {over}"),
        AskError::Unreachable(kind) => format!("{server} cannot be asked over {over}: {kind}"),
        AskError::Malformed => format!("{server} answers over {over}, but not to our question"),
    })?;
    let response = Response::read(&came.octets);
    let response = response.ok_or_else(|| format!("{server} answers over {over}, and the answer is malformed"))?;
    let transport = match came.transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    };
    Ok(Exchange { server, transport, took: came.took, response })
}
