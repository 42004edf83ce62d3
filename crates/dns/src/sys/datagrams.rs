//! Many datagrams by one system call: `recvmmsg` and `sendmmsg` over memory that is laid out once.
//!
//! ```text
//! slot i:   header ─► source address, query octets, control octets     filled by `receive`
//!           reply octets                                               filled by the caller
//! queue:    header ─► source address and control of slot i, reply octets of slot i, for each `queue(i, …)`
//! GSO:      header ─► source address of the first, its control and UDP_SEGMENT, reply octets of each
//! ```
//!
//! Safe code would need one system call per datagram, which costs 10–30 % more CPU time per query, or would rebuild 64 headers
//! at each call. The memory is therefore owned by raw pointers (`Memory`): the headers hold addresses of their neighbours for as
//! long as a [`Batch`] lives, and nothing but these pointers ever reaches that memory.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::BATCH_MAX;
use super::gso::{Replies, SEGMENTS_MIN, SendPlan};
use super::memory::Memory;

/// The size of the receive buffer of a query: any datagram, because a client that pads far beyond the server's advertised limit
/// (RFC 6891 §6.2.3) still sent a complete message. The unused part of a slot is never touched.
pub const QUERY_OCTETS_MAX: usize = 65_535;

/// The maximum size of a reply: the largest limit that servers commonly use for UDP.
pub const REPLY_OCTETS_MAX: usize = 4_096;

/// The distance between queries: an odd number of cache lines, so that the queries of a batch do not all map to the same sets of
/// the first-level cache, as they would at a multiple of 4,096.
const QUERY_STRIDE: usize = QUERY_OCTETS_MAX + 65;

/// The distance between replies, for the same reason.
const REPLY_STRIDE: usize = REPLY_OCTETS_MAX + 64;

/// Room for one IP_PKTINFO or IPV6_PKTINFO message, of which the latter takes 40 octets, and for UDP_SEGMENT behind it,
/// which takes 24.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_OCTETS]);

const CONTROL_OCTETS: usize = 64;

/// The control data of UDP_SEGMENT: a header and two octets, aligned.
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
    /// The slots whose source address and control data the queued replies use.
    queued_slots: [u8; BATCH_MAX],
    /// The plan for combined replies, if the socket supports them.
    plan: Option<Box<SendPlan>>,
    gso_octets: Memory<libc::iovec>,
    gso_headers: Memory<libc::mmsghdr>,
}

/// A received datagram, and the buffer of its reply.
pub struct Datagram<'a> {
    /// The number in the batch, for [`Batch::queue`].
    pub slot: usize,
    /// The source address.
    pub source: SocketAddr,
    /// The contents.
    pub query: &'a [u8],
    /// Room for the reply.
    pub reply: &'a mut [u8],
}

/// The maximum wait of a receiving call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Waits until there is at least one datagram, or the socket's read timeout expires.
    ForOne,
    /// Does not wait.
    No,
}

/// The outcome of the queued replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Given to the kernel.
    pub sent: usize,
    /// Refused by the kernel: no route, no room, a firewall.
    pub failed: usize,
    /// The rejected replies among these that were larger than the interface's MTU while fragmentation was forbidden.
    pub too_large: usize,
    /// GSO messages among the sent messages: several replies to one peer as one message.
    pub gso_messages: usize,
}

impl Sent {
    /// Counts replies that were not sent because of this error.
    fn count_failed(&mut self, replies: usize, error: &io::Error) {
        self.failed += replies;
        if error.raw_os_error() == Some(libc::EMSGSIZE) {
            self.too_large += replies;
        }
    }
}

/// Whether a socket accepts more replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The socket accepts more.
    Some,
    /// The socket accepted nothing within its write timeout.
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
            gso_octets: Memory::new(vec![EMPTY; BATCH_MAX]),
            // SAFETY: as above.
            gso_headers: Memory::new(vec![unsafe { std::mem::zeroed() }; BATCH_MAX]),
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
    /// The error of `recvmmsg`; `WouldBlock` if no datagram arrived in time.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        self.clear();
        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::No => libc::MSG_DONTWAIT,
        };
        // SAFETY: there are BATCH_MAX headers, and each points to memory that lives as long as `self` and has the sizes in the
        // header: `new` set the pointers, and `clear` has reset the lengths that the last call changed. The kernel writes within
        // these. There are no references into that memory, because `each` lends them from `&mut self`.
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

    /// Returns the datagrams of the last [`Self::receive`], in their order. The query engine decides which of them are answered.
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

    /// Queues the first `length` octets of a slot's reply, to the source of the query, from the address that received it.
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

    /// Returns the control data of a reply to the query of a slot that is sent after the batch, so that it comes from the address that
    /// received the query: empty on a socket with one address. `None` if answers from that address are impossible.
    pub fn reply_control(&mut self, slot: usize) -> Option<Box<[u8]>> {
        assert!(slot < self.received);
        let octets: usize = self.received_headers.get(slot).msg_hdr.msg_controllen as _;
        let is_possible = octets == 0 || self.answer_from_there(slot);
        is_possible.then(|| self.controls.get(slot).0[..octets].into())
    }

    /// Enables combined replies to one peer, if the kernel supports them on this socket; returns whether it does. Use the batch
    /// with this socket only.
    pub fn enable_gso(&mut self, socket: BorrowedFd<'_>) -> bool {
        let known = supports_gso(socket);
        self.plan = known.then(|| Box::new(SendPlan::new(SEGMENTS_MIN)));
        known
    }

    /// Returns whether replies to one peer are combined: [`Self::enable_gso`] was called, and no GSO message was rejected since.
    pub fn is_gso_on(&self) -> bool {
        self.plan.is_some()
    }

    /// Sends all queued replies. A reply that the kernel rejects is dropped. If the socket has no room within its write timeout,
    /// the remaining replies are dropped, because each would wait as long again.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> Sent {
        let mut report = Sent::default();
        match self.plan.take() {
            None => {
                self.send_each(socket, 0..self.queued, &mut report);
            }
            Some(mut plan) => {
                // Without combined messages, the queued replies are sent separately.
                let together = plan.try_to_plan(self.queued, self);
                let refused = together && self.send_gso(socket, &plan, &mut report);
                if !together {
                    self.send_each(socket, 0..self.queued, &mut report);
                }
                self.plan = (!refused).then_some(plan);
            }
        }
        self.queued = 0;
        report
    }

    /// Sends these of the queued replies, each as one message. Returns whether there is room for more.
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

    /// Sends the queued replies as planned. Returns whether the kernel does not accept GSO messages on this socket: then the
    /// replies of a rejected one have been sent separately.
    fn send_gso(&mut self, socket: BorrowedFd<'_>, plan: &SendPlan, report: &mut Sent) -> bool {
        let messages = self.build_gso_headers(plan);
        let mut room = Room::Some;
        let mut refused = false;
        let mut next = 0;
        while next < messages && room == Room::Some {
            let error = match send_some(socket, &mut self.gso_headers, next, messages) {
                Ok(sent) => {
                    for message in next..next + sent {
                        report.sent += plan.segments(message);
                        report.gso_messages += usize::from(plan.segments(message) > 1);
                    }
                    next += sent;
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::WouldBlock {
                break;
            }
            if plan.segments(next) > 1 && is_gso_refusal(&error) {
                for reply in plan.replies(next) {
                    if room == Room::None {
                        report.failed += 1;
                        continue;
                    }
                    let before = report.sent;
                    room = self.send_each(socket, reply..reply + 1, report);
                    // A reply that can be sent in neither way indicates a problem of the peer, such as one without a port.
                    refused |= report.sent > before;
                }
            } else {
                report.count_failed(plan.segments(next), &error);
            }
            next += 1;
        }
        report.failed += (next..messages).map(|message| plan.segments(message)).sum::<usize>();
        refused
    }

    /// Builds the headers of GSO messages from the headers of their replies; returns their number.
    fn build_gso_headers(&mut self, plan: &SendPlan) -> usize {
        let mut octets = 0;
        let messages = plan.messages();
        for message in 0..messages {
            let start = octets;
            let mut first = None;
            for reply in plan.replies(message) {
                first = first.or(Some(reply));
                let of_reply = *self.queued_octets.get(reply);
                self.gso_octets.set(octets, of_reply);
                octets += 1;
            }
            let Some(first) = first else { continue };
            let mut header = *self.queued_headers.get(first);
            header.msg_hdr.msg_iov = self.gso_octets.at(start);
            header.msg_hdr.msg_iovlen = (octets - start) as _;
            if octets - start > 1 {
                let length = self.queued_octets.get(first).iov_len;
                // The control memory of the slot whose source address this is; `queue` left it out where it is empty.
                let slot = usize::from(self.queued_slots[first]);
                header.msg_hdr.msg_control = self.controls.at(slot).cast();
                let used = self.ask_for_cuts(slot, header.msg_hdr.msg_controllen as _, length as u16);
                header.msg_hdr.msg_controllen = used as _;
            }
            self.gso_headers.set(message, header);
        }
        messages
    }

    /// Resets the headers that the last call used.
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

    /// Returns the source of a datagram; always present, because the socket has one of the two families.
    #[inline]
    fn source(&self, slot: usize) -> Option<SocketAddr> {
        let address = self.sources.get(slot);
        match libc::c_int::from(address.sin6_family) {
            libc::AF_INET => {
                // SAFETY: the family shows that the kernel has written a `sockaddr_in`, which is smaller than the enclosing
                // `sockaddr_in6` and not more aligned.
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

    /// Returns the peer of a reply as the kernel wrote it; for IPv4, the rest is always zero.
    fn source_octets(&self, reply: usize) -> &[u8; size_of::<libc::sockaddr_in6>()] {
        let source = self.sources.at(self.queued_slots[reply].into());
        // SAFETY: the memory is as large as the array, is initialized by `new` and has no padding; nothing changes it while
        // `self` is borrowed.
        unsafe { &*source.cast() }
    }

    /// Returns the number of octets of a reply's control data.
    fn control_octets(&self, reply: usize) -> usize {
        self.queued_headers.get(reply).msg_hdr.msg_controllen as _
    }

    /// Returns the control memory that a reply uses.
    fn control(&self, reply: usize) -> &[u8; CONTROL_OCTETS] {
        &self.controls.get(self.queued_slots[reply].into()).0
    }

    /// Writes UDP_SEGMENT, which requests datagrams of `length` octets, after the `used` octets of a slot's control memory;
    /// returns the number of used octets.
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

    /// Converts the kernel's information about the destination of a datagram into the source of its answer: the same structure,
    /// but without the interface, which the routing table selects. False if answers from that address are impossible.
    fn answer_from_there(&mut self, slot: usize) -> bool {
        let header = self.received_headers.get(slot).msg_hdr;
        // SAFETY: the kernel filled the header's control memory up to `msg_controllen`, so CMSG_FIRSTHDR is null or a whole
        // `cmsghdr` within it, whose data has the type of its level and type. The memory is aligned for both by `Control`, and
        // `read_unaligned` is not needed: CMSG_DATA is aligned like `cmsghdr` on Linux.
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
        // Family and port, and the address: an IPv4 address is in the first word after them, the variable part of an IPv6
        // address in the last two. The product spreads the few bits in which neighbors differ; its top bits are the hash.
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

/// Passes `headers[from..to]` to the kernel; returns the number of accepted messages, or the error of the first.
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

/// Returns whether the kernel supports UDP_SEGMENT (Linux 4.18; not gVisor).
fn supports_gso(socket: BorrowedFd<'_>) -> bool {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    let pointer = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the pointers are to a `c_int` and to its size; the descriptor is open since it is borrowed.
    unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, pointer, &mut size) == 0 }
}

/// Returns whether a GSO message was rejected because it is one: a device without checksums in hardware (EIO), a path with a
/// smaller MTU than IPv6 allows (EMSGSIZE, from older kernels EINVAL), a kernel or filter that does not know the option.
fn is_gso_refusal(error: &io::Error) -> bool {
    let refusals = [libc::EIO, libc::EINVAL, libc::EMSGSIZE, libc::ENOPROTOOPT, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

#[cfg(test)]
mod tests;
