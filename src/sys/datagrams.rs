//! Many datagrams by one system call: `recvmmsg` and `sendmmsg` over memory that is laid out once.
//!
//! ```text
//! slot i:   header ─► source address, query octets, control octets     filled by `receive`
//!           reply octets                                               filled by the caller
//! queue:    header ─► source address and control of slot i, reply octets of slot i, for each `queue(i, …)`
//! ```
//!
//! Safe code would make one system call a datagram, which costs 10–30 % more of all CPU a query, or rebuild 64 headers at
//! each call. The memory is therefore owned by raw pointers (`Memory`): the headers hold addresses of their neighbours
//! for as long as a [`Batch`] lives, and nothing but these pointers ever reaches that memory.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// How many datagrams one call receives or sends at most. At 32 the cost of the call itself is already down to a few
/// nanoseconds each; more than 64 would only add to the latency of the first.
pub const BATCH_MAX: usize = 64;

/// How many octets of a query are received. Queries with a TSIG or an update in them stay below; what is longer arrives
/// cut off, so the parser sees a message that ends too soon.
pub const QUERY_OCTETS_MAX: usize = 2_048;

/// How many octets a reply may have: as large as any server is commonly set to send by UDP.
pub const REPLY_OCTETS_MAX: usize = 4_096;

/// From one query to the next: an odd number of cache lines, so that the queries of a batch do not all fall into the same
/// sets of the first-level cache, as they would at a multiple of 4,096.
const QUERY_STRIDE: usize = QUERY_OCTETS_MAX + 64;

/// From one reply to the next, for the same reason.
const REPLY_STRIDE: usize = REPLY_OCTETS_MAX + 64;

/// Room for one IP_PKTINFO or IPV6_PKTINFO message; the latter takes 40 octets.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The memory of one worker's batches: some 400 KiB, of which only what is used is ever touched.
pub struct Batch {
    queries: Memory<u8>,
    replies: Memory<u8>,
    /// Room for the larger of the two kinds of address.
    sources: Memory<libc::sockaddr_in6>,
    controls: Memory<Control>,
    received_octets: Memory<libc::iovec>,
    queued_octets: Memory<libc::iovec>,
    received_headers: Memory<libc::mmsghdr>,
    queued_headers: Memory<libc::mmsghdr>,
    /// Slots filled by the last `receive`.
    received: usize,
    /// Headers of `queued_headers` that wait to be sent.
    queued: usize,
}

/// A received datagram and where its reply goes.
pub struct Datagram<'a> {
    /// Its number in the batch, for [`Batch::queue`].
    pub slot: usize,
    /// Where it came from.
    pub source: SocketAddr,
    /// What it holds.
    pub query: &'a [u8],
    /// Room for the reply.
    pub reply: &'a mut [u8],
}

/// How long a receiving call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until there is at least one datagram, or the socket's read timeout has passed.
    ForOne,
    /// Not at all.
    No,
}

/// What became of the queued replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Given to the kernel.
    pub sent: usize,
    /// Refused by the kernel: no route, no room, a firewall.
    pub failed: usize,
}

impl Batch {
    /// Memory for batches on any socket.
    pub fn new() -> Self {
        let mut batch = Batch {
            queries: Memory::new(vec![0; BATCH_MAX * QUERY_STRIDE]),
            replies: Memory::new(vec![0; BATCH_MAX * REPLY_STRIDE]),
            // SAFETY: all zero is a valid value of this plain C structure.
            sources: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            controls: Memory::new(vec![Control([0; 64]); BATCH_MAX]),
            received_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            queued_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            // SAFETY: all zero is a valid value of this plain C structure.
            received_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            // SAFETY: as above.
            queued_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            received: 0,
            queued: 0,
        };
        for slot in 0..BATCH_MAX {
            let octets = libc::iovec { iov_base: batch.query(slot).cast(), iov_len: QUERY_OCTETS_MAX };
            batch.received_octets.set(slot, octets);
            let header = batch.received_headers.get_mut(slot);
            header.msg_hdr.msg_name = batch.sources.at(slot).cast();
            header.msg_hdr.msg_iov = batch.received_octets.at(slot);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = batch.controls.at(slot).cast();
            batch.queued_headers.get_mut(slot).msg_hdr.msg_iov = batch.queued_octets.at(slot);
            batch.queued_headers.get_mut(slot).msg_hdr.msg_iovlen = 1;
        }
        batch.received = BATCH_MAX;
        batch.clear();
        batch
    }

    /// Receives up to [`BATCH_MAX`] datagrams; what was received or queued before is forgotten.
    ///
    /// # Errors
    ///
    /// What `recvmmsg` says; `WouldBlock` if there was none in time.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        self.clear();
        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::No => libc::MSG_DONTWAIT,
        };
        // SAFETY: there are BATCH_MAX headers, and each points at memory that lives as long as `self` and whose sizes are
        // those it says: `new` set the pointers, `clear` has set the lengths that the last call changed. The kernel
        // writes within these. Nobody holds references into that memory, for `each` lends them from `&mut self`.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.received_headers.at(0),
                BATCH_MAX as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        self.received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        Ok(self.received)
    }

    /// The datagrams of the last [`Self::receive`], in their order. Who may be answered is for the query engine to say.
    pub fn each(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let this = &*self;
        (0..this.received).filter_map(move |slot| {
            let length = this.received_headers.get(slot).msg_len as usize;
            // SAFETY: the kernel has written `length` octets at the start of the slot's room, which is QUERY_OCTETS_MAX
            // long. The slice lives as long as the borrow of `self`, during which nothing writes there.
            let query = unsafe { std::slice::from_raw_parts(this.query(slot), length.min(QUERY_OCTETS_MAX)) };
            // SAFETY: rooms of different slots do not overlap, each slot is lent once, and the borrow of `self` is a
            // mutable one, so no other reference to this room exists while this one lives.
            let reply = unsafe { std::slice::from_raw_parts_mut(this.reply(slot), REPLY_OCTETS_MAX) };
            Some(Datagram { slot, source: this.source(slot)?, query, reply })
        })
    }

    /// Queues the first `length` octets of a slot's reply, to go whence the query came, from the address it came to.
    pub fn queue(&mut self, slot: usize, length: usize) {
        assert!(slot < self.received && length <= REPLY_OCTETS_MAX && self.queued < BATCH_MAX);
        let received = self.received_headers.get(slot).msg_hdr;
        if received.msg_controllen > 0 && !self.answer_from_there(slot) {
            return;
        }
        let octets = libc::iovec { iov_base: self.reply(slot).cast(), iov_len: length };
        self.queued_octets.set(self.queued, octets);
        let header = &mut self.queued_headers.get_mut(self.queued).msg_hdr;
        header.msg_name = received.msg_name;
        header.msg_namelen = received.msg_namelen;
        header.msg_control = if received.msg_controllen > 0 { received.msg_control } else { std::ptr::null_mut() };
        header.msg_controllen = received.msg_controllen;
        self.queued += 1;
    }

    /// Sends all queued replies. One that the kernel refuses is given up, and the next is sent.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> Sent {
        let mut report = Sent::default();
        let mut next = 0;
        while next < self.queued {
            // SAFETY: the headers from `next` to `queued` were filled by `queue` and point at memory that lives as long
            // as `self`; the kernel reads within the lengths they give, and writes only their `msg_len`.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    self.queued_headers.at(next),
                    (self.queued - next) as libc::c_uint,
                    0,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => {
                    report.sent += sent;
                    next += sent;
                }
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                // sendmmsg reports an error only for the first message of a call: that one cannot be sent.
                _ => {
                    report.failed += 1;
                    next += 1;
                }
            }
        }
        self.queued = 0;
        report
    }

    /// Makes the headers that the last call used ready for the next one.
    fn clear(&mut self) {
        for slot in 0..self.received {
            let header = &mut self.received_headers.get_mut(slot).msg_hdr;
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_controllen = size_of::<Control>() as _;
            header.msg_flags = 0;
        }
        self.received = 0;
        self.queued = 0;
    }

    fn query(&self, slot: usize) -> *mut u8 {
        self.queries.at(slot * QUERY_STRIDE)
    }

    fn reply(&self, slot: usize) -> *mut u8 {
        self.replies.at(slot * REPLY_STRIDE)
    }

    /// Where a datagram came from; always something, as the socket is of one of the two families.
    fn source(&self, slot: usize) -> Option<SocketAddr> {
        let address = self.sources.get(slot);
        match libc::c_int::from(address.sin6_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the kernel has written a `sockaddr_in`, which is smaller than the
                // `sockaddr_in6` it lies in and not more aligned.
                let address = unsafe { &*self.sources.at(slot).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(address.sin_port))))
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                // The scope is part of the address where it is link-local; the flow is not.
                let port = u16::from_be(address.sin6_port);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id)))
            }
            _ => None,
        }
    }

    /// Turns what the kernel said about where a datagram came to into what it wants to hear about where the answer goes
    /// from: the same structure, but the interface is left to the routing table. False if one cannot answer from there.
    fn answer_from_there(&mut self, slot: usize) -> bool {
        let header = self.received_headers.get(slot).msg_hdr;
        // SAFETY: the header's control memory was filled by the kernel up to `msg_controllen`, so CMSG_FIRSTHDR is null or
        // a whole `cmsghdr` within it, whose data is of the kind that its level and type say. The memory is aligned for
        // both by `Control`, and `read_unaligned` is not needed: CMSG_DATA is aligned like `cmsghdr` on Linux.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&header);
            if message.is_null() {
                return true;
            }
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>();
                    // `ipi_spec_dst` is the local address already, for a broadcast, too.
                    (*info).ipi_ifindex = 0;
                    true
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>();
                    let address = Ipv6Addr::from((*info).ipi6_addr.s6_addr);
                    if !address.is_unicast_link_local() {
                        (*info).ipi6_ifindex = 0;
                    }
                    !address.is_multicast()
                }
                _ => true,
            }
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// An array on the heap that is reached by raw pointers only, so that other memory may hold pointers into it.
struct Memory<T> {
    start: NonNull<T>,
    length: usize,
}

impl<T: Copy> Memory<T> {
    fn new(values: Vec<T>) -> Self {
        let length = values.len();
        let start = Box::into_raw(values.into_boxed_slice()).cast::<T>();
        Memory { start: NonNull::new(start).expect("a box is not null"), length }
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.length);
        // SAFETY: the index lies within the array that `start` begins.
        unsafe { self.start.as_ptr().add(index) }
    }

    fn get(&self, index: usize) -> &T {
        // SAFETY: `at` points at an element that was initialized by `new`. Elements are changed only through `&mut self`
        // or by the kernel in a call that takes `&mut Batch`, so nothing changes it while this reference lives.
        unsafe { &*self.at(index) }
    }

    fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` says that there is no other reference.
        unsafe { &mut *self.at(index) }
    }

    fn set(&mut self, index: usize, value: T) {
        *self.get_mut(index) = value;
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.length);
        // SAFETY: this is the box that `new` took apart, and nothing uses it after this.
        drop(unsafe { Box::from_raw(slice) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// A socket that gives up waiting, and its address.
    fn socket(address: &str) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    /// Receives what there is, answers each datagram with its octets reversed, and returns how many that were.
    fn answer(batch: &mut Batch, server: &UdpSocket) -> usize {
        let received = batch.receive(server.as_fd(), Wait::ForOne).unwrap();
        let lengths: Vec<(usize, usize)> = batch
            .each()
            .map(|datagram| {
                let length = datagram.query.len();
                datagram.reply[..length].copy_from_slice(datagram.query);
                datagram.reply[..length].reverse();
                (datagram.slot, length)
            })
            .collect();
        lengths.into_iter().for_each(|(slot, length)| batch.queue(slot, length));
        assert_eq!(batch.send(server.as_fd()), Sent { sent: received, failed: 0 });
        received
    }

    #[test]
    fn batches_go_both_ways_and_the_memory_is_used_again() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (server, there) = socket(address);
            let (client, _) = socket(address);
            let mut batch = Batch::new();
            for round in 0..3u8 {
                let octets = |number: u8| vec![number, round, 7, 9][..usize::from(number % 4) + 1].to_vec();
                for number in 0..100 {
                    client.send_to(&octets(number), there).unwrap();
                }
                let mut answered = 0;
                while answered < 100 {
                    answered += answer(&mut batch, &server);
                }
                for number in 0..100 {
                    let mut reply = [0; 16];
                    let (length, from) = client.recv_from(&mut reply).unwrap();
                    let mut expected = octets(number);
                    expected.reverse();
                    assert_eq!((&reply[..length], from), (&*expected, there));
                }
            }
        }
    }

    #[test]
    fn nothing_to_receive_is_no_batch() {
        let (server, _) = socket("127.0.0.1:0");
        let mut batch = Batch::new();
        for wait in [Wait::No, Wait::ForOne] {
            assert_eq!(batch.receive(server.as_fd(), wait).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(batch.each().count(), 0);
        }
    }

    #[test]
    fn long_datagrams_are_cut_and_empty_ones_arrive() {
        let (server, there) = socket("127.0.0.1:0");
        let (client, here) = socket("127.0.0.1:0");
        client.send_to(&[7; QUERY_OCTETS_MAX + 100], there).unwrap();
        client.send_to(&[], there).unwrap();
        let mut batch = Batch::new();
        assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 2);
        let seen: Vec<_> = batch.each().map(|datagram| (datagram.query.len(), datagram.source)).collect();
        assert_eq!(seen, [(QUERY_OCTETS_MAX, here), (0, here)]);
    }

    #[test]
    fn one_reply_that_cannot_go_does_not_stop_the_others() {
        let (server, there) = socket("127.0.0.1:0");
        let (client, _) = socket("127.0.0.1:0");
        for number in 0..3 {
            client.send_to(&[number], there).unwrap();
        }
        let mut batch = Batch::new();
        assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 3);
        batch.each().for_each(|datagram| datagram.reply[0] = datagram.query[0]);
        (0..3).for_each(|slot| batch.queue(slot, 1));
        // Port 0 is nowhere: the second reply fails.
        batch.sources.get_mut(1).sin6_port = 0;
        assert_eq!(batch.send(server.as_fd()), Sent { sent: 2, failed: 1 });
        let mut reply = [0; 1];
        let mut got = || client.recv(&mut reply).map(|_| reply[0]).unwrap();
        assert_eq!([got(), got()], [0, 2]);
    }
}
