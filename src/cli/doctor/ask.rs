//! The DNS client of `doctor`: one query to one server, over UDP or TCP and with any kind of EDNS.
//!
//! It blocks; queries to many servers run in threads. Names are texts in lower case with a dot at the end.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use signpost_control::dns_client::{Query, QueryError, Response};
use signpost_dns::wire::header::FLAG_RD;
use signpost_dns::wire::{Name, RecordType};

/// Most queries of one run: enough for a hundred servers and shards, and an end to any loop.
const QUERIES_MAX: u32 = 5_000;
/// An option of the range for experiments (RFC 6891 §9), 65,001, which no server knows, with one octet.
const OPTION_UNKNOWN: [u8; 5] = [0xfd, 0xe9, 0, 1, 0];

/// The transport and the EDNS of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryOptions {
    /// A datagram with EDNS.
    Udp,
    /// The same with recursion desired.
    Recursive,
    /// The same with an option that no server knows.
    UnknownOption,
    /// The same in version 1 of EDNS, which is not defined.
    UnknownVersion,
    /// A connection.
    Tcp,
}

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The query failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The query was not sent.
    #[error("not queried: {0}")]
    NotSent(String),
}

/// A client that counts its queries.
pub struct Client {
    /// How long one try may take.
    timeout: Duration,
    /// The reactor of the sockets of all threads.
    runtime: Runtime,
    sent: AtomicU32,
}

impl Client {
    /// Returns a client that waits up to `timeout` for each response.
    ///
    /// # Errors
    ///
    /// If the system provides no thread for the reactor.
    pub fn new(timeout: Duration) -> io::Result<Client> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Client { timeout, runtime, sent: AtomicU32::new(0) })
    }

    /// Sends a query, and again over TCP if the response is truncated.
    pub fn ask(
        &self,
        server: SocketAddr,
        name: &str,
        rtype: RecordType,
        options: QueryOptions,
    ) -> Result<Response, Fault> {
        if self.sent.fetch_add(1, Ordering::Relaxed) >= QUERIES_MAX {
            return Err(Fault::NotSent(format!("more than {QUERIES_MAX} queries")));
        }
        let name: Name =
            name.parse().map_err(|error| Fault::NotSent(format!("{name} is not a domain name: {error}")))?;
        let query = query(&name, rtype, options);
        let response = self.runtime.block_on(async {
            match options {
                QueryOptions::Tcp => query.send_over_tcp(server, self.timeout).await,
                _ => query.send(server, self.timeout).await,
            }
        });
        Ok(response?)
    }
}

fn query(name: &Name, rtype: RecordType, options: QueryOptions) -> Query<'_> {
    let plain = Query::new(name, rtype);
    match options {
        QueryOptions::Udp | QueryOptions::Tcp => plain,
        QueryOptions::Recursive => Query { flags: FLAG_RD, ..plain },
        QueryOptions::UnknownOption => Query { options: &OPTION_UNKNOWN, ..plain },
        QueryOptions::UnknownVersion => Query { edns_version: 1, ..plain },
    }
}

/// Returns a name of a response as text in lower case.
pub fn text(name: &Name) -> String {
    name.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_name_is_not_sent() {
        let client = Client::new(Duration::from_millis(1)).expect("a runtime");
        for name in ["a".repeat(64), "a.".repeat(128)] {
            let found = client.ask(([127, 0, 0, 1], 9).into(), &name, RecordType::A, QueryOptions::Udp);
            assert!(matches!(found, Err(Fault::NotSent(_))), "{found:?}");
        }
    }

    #[test]
    fn queries_carry_their_options() {
        let name: Name = "example.org.".parse().expect("a name");
        for (options, flags, version, octets) in [
            (QueryOptions::Udp, 0, 0, 0),
            (QueryOptions::Recursive, FLAG_RD, 0, 0),
            (QueryOptions::UnknownOption, 0, 0, 5),
            (QueryOptions::UnknownVersion, 0, 1, 0),
            (QueryOptions::Tcp, 0, 0, 0),
        ] {
            let query = query(&name, RecordType::AAAA, options);
            assert_eq!((query.flags, query.edns_version, query.options.len()), (flags, version, octets));
        }
    }
}
