//! Abusive clients: thousands of idle ones, clients that never read, clients that write one octet per second, and floods of
//! garbage. All stay on loopback and end by themselves. They connect from many addresses of 127.0.0.0/8, so that the limit on one
//! client's connections applies as usual.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signpost_testing::dns::{RecordType, query};
use socket2::{Domain, Socket, Type};

/// Connections from one address; fewer than the default bound of one client.
const OF_ONE_ADDRESS: usize = 200;

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// Many connections to one server.
pub struct Crowd(pub Vec<TcpStream>);

impl Crowd {
    /// Opens `count` connections; `receive_octets` bounds what the kernel takes for each that does not read.
    pub fn open(server: SocketAddr, count: usize, receive_octets: Option<usize>) -> Crowd {
        let one = |number: usize| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            if let Some(octets) = receive_octets {
                socket.set_recv_buffer_size(octets).expect("a smaller buffer");
            }
            let [high, low] = (1 + number / OF_ONE_ADDRESS).to_be_bytes()[6..] else { unreachable!("two octets") };
            let address = Ipv4Addr::new(127, 77, high, low);
            socket.bind(&SocketAddr::from((address, 0)).into()).expect("all of 127.0.0.0/8 is loopback");
            socket.connect(&server.into()).unwrap_or_else(|error| panic!("connection {number}: {error}"));
            let stream = TcpStream::from(socket);
            stream.set_nonblocking(true).expect("non-blocking");
            stream
        };
        Crowd((0..count).map(one).collect())
    }

    /// Sends one query on each connection and reads the answer; returns the number without an answer in time.
    pub fn ask_each(&mut self, patience: Duration) -> usize {
        let query = query(7, "app.shard.example", RecordType::A);
        let unanswered = self.0.iter_mut().filter_map(|stream| {
            stream.set_nonblocking(false).ok()?;
            stream.set_read_timeout(Some(patience)).ok()?;
            let mut length = [0; 2];
            let answered =
                stream.write_all(&framed(&query)).and_then(|()| stream.read_exact(&mut length)).and_then(|()| {
                    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
                    stream.read_exact(&mut answer)
                });
            stream.set_nonblocking(true).ok()?;
            answered.is_err().then_some(())
        });
        unanswered.count()
    }

    /// Sends on each connection as many queries with large answers as the kernel accepts, and reads nothing.
    pub fn ask_without_reading(&mut self) {
        let queries = framed(&query(7, "large.shard.example", RecordType::TXT)).repeat(500);
        for stream in &mut self.0 {
            // Queries that are not accepted are not needed.
            let _ = stream.write(&queries);
        }
    }

    /// Writes the octet at `at` of a query on each.
    pub fn write_one_octet(&mut self, at: usize) {
        let query = framed(&query(7, "some.name.that.is.long.enough.shard.example", RecordType::A));
        for stream in &mut self.0 {
            let _ = stream.write(&query[at..=at]);
        }
    }

    /// Returns the number of connections that the server has closed; reads nothing.
    pub fn closed(&self) -> usize {
        let is_closed = |stream: &&TcpStream| {
            // Unread data hides the end of the connection, except for a reset.
            matches!(stream.take_error(), Ok(Some(_)))
                || match stream.peek(&mut [0]) {
                    Ok(0) => true,
                    Ok(_) => false,
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                }
        };
        self.0.iter().filter(is_closed).count()
    }
}

/// Datagrams that are not queries, sent until this is dropped, or for two minutes.
pub struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Sends bursts of `burst` datagrams with a `pause` between them.
    pub fn start(server: SocketAddr, burst: usize, pause: Duration) -> Flood {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.78.0.1:0").expect("all of 127.0.0.0/8 is loopback");
            socket.connect(server).expect("loopback");
            let deadline = Instant::now() + Duration::from_secs(120);
            let mut chance = 0x9e37_79b9_7f4a_7c15u64;
            while !stopped.load(Ordering::Relaxed) && Instant::now() < deadline {
                for _ in 0..burst {
                    let datagram = garbage(&mut chance);
                    counter.fetch_add(u64::from(socket.send(&datagram).is_ok()), Ordering::Relaxed);
                }
                std::thread::sleep(pause);
            }
        });
        Flood { stop, sent, thread: Some(thread) }
    }

    /// Returns the number of datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Something that is hardly a query: any octets, a header that promises too much, a response, a loop of pointers, an OPT
/// record whose options run past its end.
fn garbage(chance: &mut u64) -> Vec<u8> {
    let mut next = || {
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        *chance
    };
    let kind = next() % 6;
    let length = (next() % 600) as usize;
    let mut any = |count: usize| (0..count).map(|_| (next() >> 32) as u8).collect::<Vec<u8>>();
    match kind {
        0 => any(length),
        1 => [&any(2)[..], &[0, 0, 255, 255, 255, 255, 255, 255, 255, 255], &any(length)].concat(),
        2 => {
            let mut response = query(1, "app.shard.example", RecordType::A);
            response[2] = 0x84;
            response
        }
        3 => [&any(2)[..], b"\0\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01"].concat(),
        4 => {
            let mut message = query(1, "app.shard.example", RecordType::A);
            message[11] = 1;
            message.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\x05\0\x0a\xff\xff\0");
            message
        }
        _ => any(length.min(11)),
    }
}
