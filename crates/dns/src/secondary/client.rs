//! Requests to primary servers, over TCP or TLS (RFC 9103): the serial, then the transfer if it is newer, on one connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::incoming::{Fault, Incoming, Received, serial_of};
use crate::transfer::message::{random_id, seconds_now};
use crate::tsig::{Key, Signer, StreamVerifier};
use crate::wire::header::{FLAG_AA, HEADER_OCTETS, Header, Rcode};
use crate::wire::message::{skip_name, skip_questions};
use crate::wire::question::Question;
use crate::wire::{Class, Name, RecordType, rdata};
use crate::zone::Serial;

/// The time for a connection, and for its TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The time for the next message. A primary server may have to prepare a large zone.
const MESSAGE_MAX: Duration = Duration::from_secs(20);
/// The time for a transfer: at 10 Mbit/s, that of the largest one.
const TRANSFER_MAX: Duration = Duration::from_secs(600);

/// ALPN of DNS over TLS (RFC 9103 §7.1).
pub const ALPN: &[u8] = b"dot";

/// A primary server.
#[derive(Clone)]
pub struct Primary {
    /// The address of its DNS server.
    pub address: SocketAddr,
    /// The key that signs the requests; `None`: they are not signed.
    pub key: Option<Arc<Key>>,
    /// The client and the name of the server for encrypted transfers; `None`: plain TCP.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// The reason why a primary server has not provided the zone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed, or ended too early.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server took too long.
    #[error("no answer in time")]
    Silent,
    /// The server did not agree to DNS over TLS (RFC 9103 §7.1).
    #[error("the server does not support DNS over TLS at this address")]
    Alpn,
    /// A message has no valid signature by the key.
    #[error("a message is not signed by the key {0}")]
    Signature(Name),
    /// The answer is not accepted.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The server announces a newer version, and the differences up to it are not accepted. The whole zone may be: the server's
    /// history can be damaged, and a server without IXFR (RFC 1995) can answer anything.
    #[error("the incremental transfer failed: {0}")]
    Incremental(Box<Error>),
    /// The serial of the primary server is lower.
    #[error("it has the older serial {0}")]
    Older(Serial),
}

/// Requests the zone at `apex` if the serial is newer than `have`; `whole`: all of it, not the differences from `have`.
///
/// # Errors
///
/// The reason why there is no answer, or none that is accepted. After [`Error::Incremental`], the whole zone can be requested. It needs
/// another connection, because the server may have closed this one, or may still be sending.
pub async fn fetch(primary: &Primary, apex: &Name, have: Option<Serial>, whole: bool) -> Result<Received, Error> {
    let connect = async {
        let stream = TcpStream::connect(primary.address).await?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(stream)
    };
    let stream = in_time(CONNECT_MAX, connect).await?;
    let Some((config, name)) = &primary.tls else { return exchange(stream, primary, apex, have, whole).await };
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = in_time(CONNECT_MAX, connector.connect(name.clone(), stream)).await?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(Error::Alpn);
    }
    exchange(stream, primary, apex, have, whole).await
}

async fn in_time<T>(most: Duration, work: impl Future<Output = io::Result<T>>) -> Result<T, Error> {
    Ok(timeout(most, work).await.map_err(|_| Error::Silent)??)
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    primary: &Primary,
    apex: &Name,
    have: Option<Serial>,
    whole: bool,
) -> Result<Received, Error> {
    let mut request = Request::send(&mut stream, primary, apex, RecordType::SOA, None).await?;
    let message = request.receive(&mut stream).await?;
    let serial = request.serial(&message, apex)?;
    match have {
        Some(have) if have == serial => return Ok(Received::Current(serial)),
        Some(have) if !serial.is_after(have) => return Err(Error::Older(serial)),
        _ => {}
    }
    let client = have.filter(|_| !whole);
    let transferred = timeout(TRANSFER_MAX, transfer(&mut stream, primary, apex, client)).await;
    match transferred.map_err(|_| Error::Silent).flatten() {
        // It announces a version that it does not send.
        Ok(Received::Current(serial)) => Err(Error::Older(serial)),
        Err(error @ (Error::Io(_) | Error::Silent | Error::Fault(_))) if client.is_some() => {
            Err(Error::Incremental(Box::new(error)))
        }
        result => result,
    }
}

async fn transfer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    primary: &Primary,
    apex: &Name,
    client: Option<Serial>,
) -> Result<Received, Error> {
    let qtype = if client.is_some() { RecordType::IXFR } else { RecordType::AXFR };
    let mut request = Request::send(stream, primary, apex, qtype, client).await?;
    let mut incoming = Incoming::new(apex.clone(), request.id, client);
    loop {
        let message = request.receive(stream).await?;
        if let Some(received) = incoming.read(&message)? {
            return if request.is_signed() { Ok(received) } else { Err(request.unsigned()) };
        }
    }
}

/// A request in flight.
struct Request {
    id: u16,
    verifier: Option<StreamVerifier>,
}

impl Request {
    async fn send(
        stream: &mut (impl AsyncWrite + Unpin),
        primary: &Primary,
        apex: &Name,
        qtype: RecordType,
        client: Option<Serial>,
    ) -> Result<Request, Error> {
        let id = random_id();
        let mut message = message(id, apex, qtype, client);
        let signer = Signer::sign_request(primary.key.as_ref(), &mut message, seconds_now());
        let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
        in_time(MESSAGE_MAX, async {
            stream.write_all(&framed).await?;
            stream.flush().await
        })
        .await?;
        Ok(Request { id, verifier: signer.map(StreamVerifier::new) })
    }

    /// Receives the next message, and checks its signature.
    async fn receive(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Error> {
        let read = async {
            let mut message = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut message).await?;
            Ok(message)
        };
        let message = in_time(MESSAGE_MAX, read).await?;
        if let Some(verifier) = &mut self.verifier
            && !verifier.verify(&message, seconds_now())
        {
            // An unsigned error, such as NOTAUTH with BADKEY, has the reason.
            return Err(match Header::read(&message).map(Header::rcode).filter(|rcode| *rcode != Rcode::NOERROR) {
                Some(rcode) => Fault::Refused(rcode).into(),
                None => self.unsigned(),
            });
        }
        Ok(message)
    }

    /// Returns whether all messages up to now are signed (RFC 8945 §5.3.1: the last one must be).
    fn is_signed(&self) -> bool {
        self.verifier.as_ref().is_none_or(StreamVerifier::is_complete)
    }

    fn unsigned(&self) -> Error {
        let key = self.verifier.as_ref().map_or_else(Name::root, |verifier| verifier.key().name().clone());
        Error::Signature(key)
    }

    /// Returns the serial in the answer to a query for the SOA record.
    fn serial(&self, message: &[u8], apex: &Name) -> Result<Serial, Fault> {
        let header = Header::read(message).filter(|header| header.id == self.id && header.is_response());
        let header = header.ok_or(Fault::Message("it is not an answer to the request"))?;
        if header.rcode() != Rcode::NOERROR {
            return Err(Fault::Refused(header.rcode()));
        }
        // RFC 1034 §4.3.5: the server must be authoritative.
        let is_answer = header.flags & FLAG_AA != 0
            && header.answers > 0
            && Question::read(message).is_some_and(|question| {
                question.qtype == RecordType::SOA && question.name(message).eq_ignore_ascii_case(apex.as_wire())
            });
        let read = || {
            let at = skip_name(message, skip_questions(message, header.questions)?)?;
            let head: &[u8; 10] = message.get(at..)?.first_chunk()?;
            let start = at + head.len();
            let end = start + usize::from(u16::from_be_bytes([head[8], head[9]]));
            let is_soa = head[..2] == RecordType::SOA.0.to_be_bytes() && head[2..4] == Class::IN.0.to_be_bytes();
            let data = rdata::expanded(message, RecordType::SOA, start, end).filter(|_| is_soa)?;
            Some(serial_of(&data))
        };
        read().filter(|_| is_answer).ok_or(Fault::Message("it has no authoritative SOA record"))
    }
}

/// Returns a request; for IXFR, with the serial of the client in the authority section (RFC 1995 §3).
fn message(id: u16, apex: &Name, qtype: RecordType, client: Option<Serial>) -> Vec<u8> {
    let authorities = u16::from(client.is_some());
    let header = Header { id, questions: 1, authorities, ..Header::default() };
    let mut message = header.to_octets().to_vec();
    message.extend_from_slice(apex.as_wire());
    message.extend_from_slice(&qtype.0.to_be_bytes());
    message.extend_from_slice(&Class::IN.0.to_be_bytes());
    if let Some(Serial(serial)) = client {
        // The owner is the name of the question. The other fields do not matter.
        message.extend_from_slice(&(0xc000 | HEADER_OCTETS as u16).to_be_bytes());
        message.extend_from_slice(&[0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
        message.extend_from_slice(&serial.to_be_bytes());
        message.extend_from_slice(&[0; 16]);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::FLAG_QR;

    /// Requests a version after the serial 5. The server answers the queries with these response codes, the first also with a SOA record
    /// of the serial 6, and closes the connection.
    async fn error(rcodes: &'static [Rcode], whole: bool) -> String {
        let apex: Name = "z.test.".parse().expect("a name");
        let primary = Primary { address: ([192, 0, 2, 1], 53).into(), key: None, tls: None };
        let (stream, mut server) = tokio::io::duplex(1_024);
        let serve = async {
            for (number, rcode) in rcodes.iter().enumerate() {
                let mut message = vec![0; usize::from(server.read_u16().await.expect("a query"))];
                server.read_exact(&mut message).await.expect("a query");
                message.truncate(HEADER_OCTETS + apex.as_wire().len() + 4);
                let header = Header::read(&message).expect("a header");
                let flags = FLAG_QR | FLAG_AA | rcode.0;
                let header = Header { flags, answers: u16::from(number == 0), authorities: 0, ..header };
                message[..HEADER_OCTETS].copy_from_slice(&header.to_octets());
                if number == 0 {
                    let numbers = [6, 3_600, 600, 86_400, 60].map(u32::to_be_bytes).concat();
                    message.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
                    message.extend_from_slice(&numbers);
                }
                server.write_u16(message.len() as u16).await.expect("it reads");
                server.write_all(&message).await.expect("it reads");
            }
            // Also a query without an answer, so that the client reads the end.
            server.read_u16().await.ok();
            drop(server);
        };
        let (result, ()) = tokio::join!(exchange(stream, &primary, &apex, Some(Serial(5)), whole), serve);
        result.expect_err("the transfer fails").to_string()
    }

    /// The whole zone is requested only if the query for the serial had an answer: a server that is down costs one wait.
    #[tokio::test]
    async fn only_an_incremental_transfer_can_be_followed_by_a_whole_one() {
        for (rcodes, whole, expected) in [
            (&[][..], false, "unexpected end of file"),
            (&[Rcode::SERVFAIL], false, "the primary server answers SERVFAIL"),
            (&[Rcode::NOERROR], false, "the incremental transfer failed: unexpected end of file"),
            (
                &[Rcode::NOERROR, Rcode::SERVFAIL],
                false,
                "the incremental transfer failed: the primary server answers SERVFAIL",
            ),
            (&[Rcode::NOERROR], true, "unexpected end of file"),
            (&[Rcode::NOERROR, Rcode::NOTAUTH], true, "the primary server answers NOTAUTH"),
        ] {
            assert_eq!(error(rcodes, whole).await, expected, "{rcodes:?}, {whole}");
        }
    }
}
