//! Many datagrams by one system call: `recvmmsg` and `sendmmsg` over memory that is laid out once.
//!
//! ```text
//! slot i:   header ─► source address, query octets, control octets     filled by `receive`
//!           reply octets                                               filled by the caller
//! queue:    header ─► source address and control of slot i, reply octets of slot i, for each `queue(i, …)`
//! trains:   header ─► source address of the first, its control and UDP_SEGMENT, reply octets of each
//! ```
//!
//! Safe code would make one system call a datagram, which costs 10–30 % more of all CPU a query, or rebuild 64 headers at
//! each call. The memory is therefore owned by raw pointers (`Memory`): the headers hold addresses of their neighbours
//! for as long as a [`Batch`] lives, and nothing but these pointers ever reaches that memory.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::memory::Memory;
use super::trains::{CARS_MIN, Plan, Replies};

/// How many datagrams one call receives or sends at most. At 32 the cost of the call itself is already down to a few
/// nanoseconds each; more than 64 would only add to the latency of the first.
pub const BATCH_MAX: usize = 64;

/// How many octets of a query are received: any datagram, for whoever pads far beyond what the server says that it takes
/// (RFC 6891 §6.2.3) has still sent a whole message. What is not used of a slot is never touched.
pub const QUERY_OCTETS_MAX: usize = 65_535;

/// How many octets a reply may have: as large as any server is commonly set to send by UDP.
pub const REPLY_OCTETS_MAX: usize = 4_096;

/// From one query to the next: an odd number of cache lines, so that the queries of a batch do not all fall into the same
/// sets of the first-level cache, as they would at a multiple of 4,096.
const QUERY_STRIDE: usize = QUERY_OCTETS_MAX + 65;

/// From one reply to the next, for the same reason.
const REPLY_STRIDE: usize = REPLY_OCTETS_MAX + 64;

/// Room for one IP_PKTINFO or IPV6_PKTINFO message, of which the latter takes 40 octets, and for UDP_SEGMENT behind it,
/// which takes 24.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_OCTETS]);

const CONTROL_OCTETS: usize = 64;

/// What UDP_SEGMENT takes of it: a header and two octets, aligned.
// SAFETY: CMSG_SPACE only calculates.
const CUTS_OCTETS: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as libc::c_uint) } as usize;

/// The memory of one worker's batches: some 4.5 MiB, of which only what is used is ever touched.
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
    /// Whose source address and control each of them uses.
    queued_slots: [u8; BATCH_MAX],
    /// What goes together, if replies may travel so on this socket.
    plan: Option<Box<Plan>>,
    train_octets: Memory<libc::iovec>,
    train_headers: Memory<libc::mmsghdr>,
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
    /// Of these, refused since they were larger than the interface's MTU and fragments are forbidden.
    pub too_large: usize,
    /// Trains among what was sent: several replies to one peer as one message.
    pub trains: usize,
}

impl Sent {
    /// Counts replies that went in no message, for this reason.
    fn count_failed(&mut self, replies: usize, error: &io::Error) {
        self.failed += replies;
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            self.too_large += replies;
        }
    }
}

/// Whether a socket takes more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// It did until now.
    Some,
    /// It took nothing for as long as its write timeout says.
    None,
}

impl Batch {
    /// Memory for batches on any socket.
    pub fn new() -> Self {
        let mut batch = Batch {
            queries: Memory::new(vec![0; BATCH_MAX * QUERY_STRIDE]),
            replies: Memory::new(vec![0; BATCH_MAX * REPLY_STRIDE]),
            // SAFETY: all zero is a valid value of this plain C structure.
            sources: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            controls: Memory::new(vec![Control([0; CONTROL_OCTETS]); BATCH_MAX]),
            received_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            queued_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            // SAFETY: all zero is a valid value of this plain C structure.
            received_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            // SAFETY: as above.
            queued_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
            received: 0,
            queued: 0,
            queued_slots: [0; BATCH_MAX],
            plan: None,
            train_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            // SAFETY: as above.
            train_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
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
    #[inline]
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
        self.queued_slots[self.queued] = slot as u8;
        self.queued += 1;
    }

    /// From now on sends replies to one peer together where it can, if the kernel knows how to on this socket; returns
    /// whether it does. Use the batch with this socket only.
    pub fn couple(&mut self, socket: BorrowedFd<'_>) -> bool {
        let known = knows_trains(socket);
        self.plan = known.then(|| Box::new(Plan::new(CARS_MIN)));
        known
    }

    /// Whether replies to one peer go together: [`Self::couple`] was called, and no train has been refused since.
    pub fn is_coupled(&self) -> bool {
        self.plan.is_some()
    }

    /// Sends all queued replies. One that the kernel refuses is given up, and the next is sent; if the socket has no room for
    /// one within its write timeout, all that are left are given up, for each would wait as long again.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> Sent {
        let mut report = Sent::default();
        match self.plan.take() {
            None => {
                self.send_each(socket, 0..self.queued, &mut report);
            }
            Some(mut plan) => {
                // Where nothing goes together, what was queued is sent as it is.
                let together = plan.try_to_make(self.queued, self);
                let refused = together && self.send_trains(socket, &plan, &mut report);
                if !together {
                    self.send_each(socket, 0..self.queued, &mut report);
                }
                self.plan = (!refused).then_some(plan);
            }
        }
        self.queued = 0;
        report
    }

    /// Sends these of the queued replies, a message each. Says whether there is room for more.
    fn send_each(&mut self, socket: BorrowedFd<'_>, replies: Range<usize>, report: &mut Sent) -> Room {
        let mut next = replies.start;
        while next < replies.end {
            match send_some(socket, &mut self.queued_headers, next, replies.end) {
                Ok(sent) => {
                    report.sent += sent;
                    next += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    report.failed += replies.end - next;
                    return Room::None;
                }
                Err(error) => {
                    report.count_failed(1, &error);
                    next += 1;
                }
            }
        }
        Room::Some
    }

    /// Sends the queued replies as planned. Says whether the kernel takes no trains here after all: then what was in a
    /// refused one has been sent a message each.
    fn send_trains(&mut self, socket: BorrowedFd<'_>, plan: &Plan, report: &mut Sent) -> bool {
        let trains = self.lay_trains(plan);
        let mut room = Room::Some;
        let mut refused = false;
        let mut next = 0;
        while next < trains && room == Room::Some {
            let error = match send_some(socket, &mut self.train_headers, next, trains) {
                Ok(sent) => {
                    for train in next..next + sent {
                        report.sent += plan.cars(train);
                        report.trains += usize::from(plan.cars(train) > 1);
                    }
                    next += sent;
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::WouldBlock {
                break;
            }
            if plan.cars(next) > 1 && tells_of_trains(&error) {
                for reply in plan.replies(next) {
                    if room == Room::None {
                        report.failed += 1;
                        continue;
                    }
                    let before = report.sent;
                    room = self.send_each(socket, reply..reply + 1, report);
                    // What goes neither way says something about the peer: one without a port, for instance.
                    refused |= report.sent > before;
                }
            } else {
                report.count_failed(plan.cars(next), &error);
            }
            next += 1;
        }
        report.failed += (next..trains).map(|train| plan.cars(train)).sum::<usize>();
        refused
    }

    /// Makes the headers of trains from those of their replies; returns how many.
    fn lay_trains(&mut self, plan: &Plan) -> usize {
        let mut octets = 0;
        let trains = plan.trains();
        for train in 0..trains {
            let start = octets;
            let mut first = None;
            for reply in plan.replies(train) {
                first = first.or(Some(reply));
                let of_reply = *self.queued_octets.get(reply);
                self.train_octets.set(octets, of_reply);
                octets += 1;
            }
            let Some(first) = first else { continue };
            let mut header = *self.queued_headers.get(first);
            header.msg_hdr.msg_iov = self.train_octets.at(start);
            header.msg_hdr.msg_iovlen = (octets - start) as _;
            if octets - start > 1 {
                let length = self.queued_octets.get(first).iov_len;
                // The control memory of the slot whose source address this is; `queue` left it out where it is empty.
                let slot = usize::from(self.queued_slots[first]);
                header.msg_hdr.msg_control = self.controls.at(slot).cast();
                let used = self.ask_for_cuts(slot, header.msg_hdr.msg_controllen as _, length as u16);
                header.msg_hdr.msg_controllen = used as _;
            }
            self.train_headers.set(train, header);
        }
        trains
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

    #[inline]
    fn query(&self, slot: usize) -> *mut u8 {
        self.queries.at(slot * QUERY_STRIDE)
    }

    #[inline]
    fn reply(&self, slot: usize) -> *mut u8 {
        self.replies.at(slot * REPLY_STRIDE)
    }

    /// Where a datagram came from; always something, as the socket is of one of the two families.
    #[inline]
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

    /// A reply's peer as the kernel wrote it; of IPv4 the rest is always zero.
    fn source_octets(&self, reply: usize) -> &[u8; size_of::<libc::sockaddr_in6>()] {
        let source = self.sources.at(self.queued_slots[reply].into());
        // SAFETY: the memory is as large as the array, is initialized by `new` and has no padding; nothing changes it while
        // `self` is borrowed.
        unsafe { &*source.cast() }
    }

    /// How many octets of control a reply goes with.
    fn control_octets(&self, reply: usize) -> usize {
        self.queued_headers.get(reply).msg_hdr.msg_controllen as _
    }

    /// The control memory that a reply uses.
    fn control(&self, reply: usize) -> &[u8; CONTROL_OCTETS] {
        &self.controls.get(self.queued_slots[reply].into()).0
    }

    /// Writes UDP_SEGMENT, which asks for datagrams of `length` octets, behind the `used` octets of a slot's control
    /// memory; returns how many are used then.
    fn ask_for_cuts(&mut self, slot: usize, used: usize, length: u16) -> usize {
        assert!(used + CUTS_OCTETS <= CONTROL_OCTETS && used.is_multiple_of(align_of::<libc::cmsghdr>()));
        // SAFETY: a `cmsghdr` and two octets fit behind `used`, by the assertion, and are aligned, as `Control` is. The data
        // is written unaligned, for it has no type there.
        unsafe {
            let message = self.controls.at(slot).cast::<u8>().add(used).cast::<libc::cmsghdr>();
            (*message).cmsg_level = libc::SOL_UDP;
            (*message).cmsg_type = libc::UDP_SEGMENT;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as libc::c_uint) as _;
            libc::CMSG_DATA(message).cast::<u16>().write_unaligned(length);
        }
        used + CUTS_OCTETS
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

/// The queued replies, as a plan sees them.
impl Replies for Batch {
    fn hash(&self, reply: usize) -> u32 {
        let octets = self.source_octets(reply);
        let word = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        // Family and port, and the address: an IPv4 one in the first word behind, the changing part of an IPv6 one in the
        // last two. Multiplied, since neighbours differ in few bits, and taken from the top.
        let mixed = (word(0) ^ word(20)).wrapping_mul(0x9e37_79b1) ^ (word(4) ^ word(16)).wrapping_mul(0x85eb_ca6b);
        (mixed ^ self.octets(reply) as u32).wrapping_mul(0xc2b2_ae35).rotate_left(16)
    }

    fn alike(&self, one: usize, other: usize) -> bool {
        self.octets(one) == self.octets(other)
            && self.source_octets(one) == self.source_octets(other)
            && match (self.control_octets(one), self.control_octets(other)) {
                (0, 0) => true,
                (one_octets, other_octets) => {
                    let most = CONTROL_OCTETS - CUTS_OCTETS;
                    one_octets == other_octets
                        && one_octets <= most
                        && self.control(one)[..one_octets] == self.control(other)[..one_octets]
                }
            }
    }

    fn octets(&self, reply: usize) -> usize {
        self.queued_octets.get(reply).iov_len
    }
}

/// Gives the kernel `headers[from..to]`; returns how many it took, or why it did not take the first.
fn send_some(socket: BorrowedFd<'_>, headers: &mut Memory<libc::mmsghdr>, from: usize, to: usize) -> io::Result<usize> {
    assert!(from < to && to <= headers.length());
    loop {
        // SAFETY: the caller has filled the headers `from..to`, and they point at memory of the same `Batch`; the kernel
        // reads within the lengths they give, and writes only their `msg_len`.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.at(from), (to - from) as libc::c_uint, 0) };
        match usize::try_from(sent) {
            Ok(sent) if sent > 0 => return Ok(sent),
            // sendmmsg reports an error only for the first message of a call: that one cannot be sent.
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Whether the kernel knows UDP_SEGMENT (Linux 4.18; not gVisor).
fn knows_trains(socket: BorrowedFd<'_>) -> bool {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    let pointer = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the pointers are to a `c_int` and to its size; the descriptor is open since it is borrowed.
    unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, pointer, &mut size) == 0 }
}

/// Whether a train was refused for being one: a device without checksums in hardware (EIO), a path with a smaller MTU than
/// IPv6 allows (EMSGSIZE, from older kernels EINVAL), a kernel or filter that does not know the option.
fn tells_of_trains(error: &io::Error) -> bool {
    let refusals = [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::ENOPROTOOPT, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    /// A socket that gives up waiting, and its address.
    fn socket(address: &str) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
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
        assert_eq!(batch.send(server.as_fd()), Sent { sent: received, ..Sent::default() });
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
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut batch = Batch::new();
        for wait in [Wait::No, Wait::ForOne] {
            assert_eq!(batch.receive(server.as_fd(), wait).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(batch.each().count(), 0);
        }
    }

    #[test]
    fn the_longest_datagrams_and_empty_ones_arrive() {
        // What IPv4 leaves of its 65,535 octets.
        const LONGEST: usize = 65_507;
        let (server, there) = socket("127.0.0.1:0");
        let (client, here) = socket("127.0.0.1:0");
        client.send_to(&[7; LONGEST], there).unwrap();
        client.send_to(&[], there).unwrap();
        let mut batch = Batch::new();
        assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 2);
        let seen: Vec<_> = batch.each().map(|datagram| (datagram.query.len(), datagram.source)).collect();
        assert_eq!(seen, [(LONGEST, here), (0, here)]);
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
        assert_eq!(batch.send(server.as_fd()), Sent { sent: 2, failed: 1, ..Sent::default() });
        let mut reply = [0; 1];
        let mut got = || client.recv(&mut reply).map(|_| reply[0]).unwrap();
        assert_eq!([got(), got()], [0, 2]);
    }

    /// Receives `count` datagrams and answers each with its octets.
    fn echo(batch: &mut Batch, server: &UdpSocket, count: usize) -> Sent {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut report = Sent::default();
        let mut received = 0;
        while received < count && std::time::Instant::now() < deadline {
            let Ok(now) = batch.receive(server.as_fd(), Wait::ForOne) else { continue };
            received += now;
            let mut lengths = [0; BATCH_MAX];
            for datagram in batch.each() {
                datagram.reply[..datagram.query.len()].copy_from_slice(datagram.query);
                lengths[datagram.slot] = datagram.query.len();
            }
            lengths[..now].iter().enumerate().for_each(|(slot, length)| batch.queue(slot, *length));
            let sent = batch.send(server.as_fd());
            report.sent += sent.sent;
            report.failed += sent.failed;
            report.trains += sent.trains;
        }
        report
    }

    /// What a client gets, sorted, and how much of it came from each address.
    fn gather(client: &UdpSocket, servers: [SocketAddr; 2], count: usize) -> (Vec<Vec<u8>>, [usize; 2]) {
        let mut octets = [0; QUERY_OCTETS_MAX];
        let mut from = [0; 2];
        let mut all = Vec::new();
        for _ in 0..count {
            let (length, source) = client.recv_from(&mut octets).unwrap();
            from[servers.iter().position(|server| *server == source).expect("from an address that was asked")] += 1;
            all.push(octets[..length].to_vec());
        }
        all.sort();
        (all, from)
    }

    #[test]
    fn trains_arrive_as_what_was_queued() {
        for (bound, asked, clients_at) in [
            ("127.0.0.1:0", ["127.0.0.1", "127.0.0.1"], "127.0.0.1:0"),
            ("0.0.0.0:0", ["127.0.0.1", "127.0.0.2"], "127.0.0.1:0"),
            ("[::1]:0", ["::1", "::1"], "[::1]:0"),
            ("[::]:0", ["::1", "::1"], "[::1]:0"),
        ] {
            let (server, address) = socket(bound);
            if address.ip().is_unspecified() {
                crate::sys::packet_info::enable(server.as_fd(), address).unwrap();
            }
            let mut batch = Batch::new();
            // A kernel that knows no trains has nothing to show here.
            if !batch.couple(server.as_fd()) {
                return;
            }
            let clients: Vec<UdpSocket> = (0..3).map(|_| socket(clients_at).0).collect();
            let asked = asked.map(|ip| SocketAddr::new(ip.parse().unwrap(), address.port()));
            for round in 0..3u8 {
                // Few lengths, one too long for a train, from each client to each address, turn and turn about.
                let octets = |client: usize, number: u8| {
                    vec![client as u8 ^ number ^ round; [20, 31, 20, 1_232, 1_400][usize::from(number % 5)]]
                };
                for number in 0..20 {
                    for (who, client) in clients.iter().enumerate() {
                        client.send_to(&octets(who, number), asked[usize::from(number / 10)]).unwrap();
                    }
                }
                let sent = echo(&mut batch, &server, 60);
                assert_eq!((sent.sent, sent.failed), (60, 0), "{bound}");
                assert!(sent.trains > 0, "{bound}");
                for (who, client) in clients.iter().enumerate() {
                    let mut expected: Vec<_> = (0..20).map(|number| octets(who, number)).collect();
                    expected.sort();
                    let from = if asked[0] == asked[1] { [20, 0] } else { [10, 10] };
                    assert_eq!(gather(client, asked, 20), (expected, from), "{bound}");
                }
            }
            assert!(batch.is_coupled());
        }
    }

    fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        let (pointer, size) = (std::ptr::from_ref(&value).cast(), size_of_val(&value) as libc::socklen_t);
        // SAFETY: the pointer is to a `c_int` that outlives the call, and the size given is its size.
        assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, size) }, 0);
    }

    #[test]
    fn a_refused_train_is_sent_singly_and_is_the_last() {
        let (server, there) = socket("127.0.0.1:0");
        let (client, _) = socket("127.0.0.1:0");
        let mut batch = Batch::new();
        if !batch.couple(server.as_fd()) {
            return;
        }
        // The kernel cuts nothing on a socket without checksums: EINVAL.
        set(&server, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
        for round in 0..2 {
            (0..20u8).for_each(|number| assert!(client.send_to(&[number; 30], there).is_ok()));
            let sent = echo(&mut batch, &server, 20);
            assert_eq!((sent.sent, sent.failed, sent.trains), (20, 0, 0), "round {round}");
            let expected: Vec<_> = (0..20u8).map(|number| vec![number; 30]).collect();
            assert_eq!(gather(&client, [there; 2], 20).0, expected);
            assert!(!batch.is_coupled());
        }
    }

    #[test]
    fn a_peer_that_cannot_be_answered_does_not_end_trains() {
        let (server, there) = socket("127.0.0.1:0");
        let (client, _) = socket("127.0.0.1:0");
        let mut batch = Batch::new();
        if !batch.couple(server.as_fd()) {
            return;
        }
        (0..8u8).for_each(|number| assert!(client.send_to(&[number], there).is_ok()));
        assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 8);
        (0..8).for_each(|slot| batch.queue(slot, 1));
        // Port 0 is nowhere, and EINVAL: a query can claim to come from there.
        (0..4).for_each(|slot| batch.sources.get_mut(slot).sin6_port = 0);
        let sent = batch.send(server.as_fd());
        assert_eq!(sent, Sent { sent: 4, failed: 4, trains: 1, ..Sent::default() });
        assert!(batch.is_coupled());
    }

    #[test]
    fn what_is_too_large_is_counted_beside_trains_too() {
        let (server, there) = socket("[::1]:0");
        let (client, _) = socket("[::1]:0");
        let mut batch = Batch::new();
        // As if the interface had the smallest MTU of IPv6, 1,232 octets of which are a datagram's, and fragments were
        // forbidden.
        set(&server, libc::IPPROTO_IPV6, libc::IPV6_MTU, 1_280);
        set(&server, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1);
        for coupled in [false, true] {
            if coupled && !batch.couple(server.as_fd()) {
                return;
            }
            for octets in [1_233, 30, 1_232, 30, 30, 30] {
                client.send_to(&[7; QUERY_OCTETS_MAX][..octets], there).unwrap();
            }
            assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 6);
            let lengths: Vec<_> = batch.each().map(|datagram| (datagram.slot, datagram.query.len())).collect();
            lengths.iter().for_each(|(slot, octets)| batch.queue(*slot, *octets));
            let sent = batch.send(server.as_fd());
            let expected = Sent { sent: 5, failed: 1, too_large: 1, trains: usize::from(coupled) };
            assert_eq!(sent, expected, "coupled: {coupled}");
            assert_eq!(batch.is_coupled(), coupled);
        }
    }

    /// A datagram socket within this machine, which tells its sender when it is full.
    fn local_socket(name: &str) -> (UnixDatagram, std::os::unix::net::SocketAddr) {
        let name = format!("sp-{}-{name}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        (socket, address)
    }

    #[test]
    fn without_room_for_one_reply_the_rest_is_given_up() {
        // Queues that are full stand for a device that does not drain, and not to wait at all for a time-out that passes.
        let (server, there) = local_socket("server");
        let (full, here) = local_socket("full");
        let (idle, _) = local_socket("idle");
        // Each sender has a bound of its own, too; full is what takes not one of a new sender's.
        let fill = |number: usize| {
            let (sender, _) = local_socket(&format!("fill{number}"));
            (0..1_000_000).take_while(|_| sender.send_to_addr(&[9], &here).is_ok()).count()
        };
        assert!((0..1_000).any(|number| fill(number) == 0), "it is never full");
        for coupled in [false, true] {
            let mut batch = Batch::new();
            batch.plan = coupled.then(|| Box::new(Plan::new(CARS_MIN)));
            // One goes, four would go together if there were room, and one more would find room.
            for client in [&idle, &full, &full, &full, &full, &idle] {
                client.send_to_addr(&[3; 8], &there).unwrap();
            }
            assert_eq!(batch.receive(server.as_fd(), Wait::No).unwrap(), 6);
            (0..6).for_each(|slot| batch.queue(slot, if slot == 5 { 7 } else { 8 }));
            assert_eq!(
                batch.send(server.as_fd()),
                Sent { sent: 1, failed: 5, ..Sent::default() },
                "coupled: {coupled}"
            );
            assert_eq!(idle.recv(&mut [0; 9]).unwrap(), 8);
            assert_eq!(idle.recv(&mut [0; 9]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(batch.is_coupled(), coupled);
        }
    }
}
