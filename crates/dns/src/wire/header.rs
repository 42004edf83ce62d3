//! The header of a message (RFC 1035 §4.1.1): twelve octets of identifier, flags and counts.

use std::fmt;

/// The length of a header in octets.
pub const HEADER_OCTETS: usize = 12;

/// QR: the message is a response.
pub const FLAG_QR: u16 = 0x8000;
/// AA: the answer is authoritative.
pub const FLAG_AA: u16 = 0x0400;
/// TC: the message is truncated.
pub const FLAG_TC: u16 = 0x0200;
/// The opcode, four bits; copied into the response.
pub const FLAGS_OPCODE: u16 = 0x7800;
/// RD: recursion is desired; copied into the response.
pub const FLAG_RD: u16 = 0x0100;
/// CD: checking is disabled; copied into the response (RFC 4035 §3.1.6).
pub const FLAG_CD: u16 = 0x0010;

/// The kind of a query (RFC 1035 §4.1.1), four bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// A standard query.
    pub const QUERY: Opcode = Opcode(0);
    /// A zone has changed (RFC 1996).
    pub const NOTIFY: Opcode = Opcode(4);
    /// Change a zone (RFC 2136).
    pub const UPDATE: Opcode = Opcode(5);
}

/// A response code (RFC 1035 §4.1.1); those above 15 need an OPT record for their upper bits (RFC 6891 §6.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rcode(pub u16);

impl Rcode {
    /// No error.
    pub const NOERROR: Rcode = Rcode(0);
    /// The query could not be read.
    pub const FORMERR: Rcode = Rcode(1);
    /// The server failed.
    pub const SERVFAIL: Rcode = Rcode(2);
    /// The name does not exist.
    pub const NXDOMAIN: Rcode = Rcode(3);
    /// The kind of query is not implemented.
    pub const NOTIMP: Rcode = Rcode(4);
    /// The server refuses to answer.
    pub const REFUSED: Rcode = Rcode(5);
    /// A name exists that should not: here, a DNAME made a name too long (RFC 6672 §2.2).
    pub const YXDOMAIN: Rcode = Rcode(6);
    /// An RRset exists that should not (RFC 2136 §2.2).
    pub const YXRRSET: Rcode = Rcode(7);
    /// An RRset does not exist that should (RFC 2136 §2.2).
    pub const NXRRSET: Rcode = Rcode(8);
    /// The server is not authoritative, or the client is not authorized (RFC 8945).
    pub const NOTAUTH: Rcode = Rcode(9);
    /// A name in an update is not in its zone (RFC 2136 §2.2).
    pub const NOTZONE: Rcode = Rcode(10);
    /// The EDNS version is not supported (RFC 6891 §6.1.3).
    pub const BADVERS: Rcode = Rcode(16);
    /// The cookie is bad or missing (RFC 7873 §8).
    pub const BADCOOKIE: Rcode = Rcode(23);
}

impl fmt::Display for Rcode {
    /// Writes the mnemonic, or `RCODE` with the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Rcode::NOERROR => "NOERROR",
            Rcode::FORMERR => "FORMERR",
            Rcode::SERVFAIL => "SERVFAIL",
            Rcode::NXDOMAIN => "NXDOMAIN",
            Rcode::NOTIMP => "NOTIMP",
            Rcode::REFUSED => "REFUSED",
            Rcode::YXDOMAIN => "YXDOMAIN",
            Rcode::YXRRSET => "YXRRSET",
            Rcode::NXRRSET => "NXRRSET",
            Rcode::NOTAUTH => "NOTAUTH",
            Rcode::NOTZONE => "NOTZONE",
            Rcode::BADVERS => "BADVERS",
            Rcode::BADCOOKIE => "BADCOOKIE",
            Rcode(other) => return write!(f, "RCODE{other}"),
        })
    }
}

/// A header as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Identifier, copied into the response.
    pub id: u16,
    /// All sixteen bits of flags, opcode and response code.
    pub flags: u16,
    /// Entries in the question section.
    pub questions: u16,
    /// Records in the answer section.
    pub answers: u16,
    /// Records in the authority section.
    pub authorities: u16,
    /// Records in the additional section.
    pub additionals: u16,
}

impl Header {
    /// Returns the header at the start of `message`; `None` if it is shorter than that.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Header> {
        let octets: &[u8; HEADER_OCTETS] = message.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        Some(Header {
            id: word(0),
            flags: word(2),
            questions: word(4),
            answers: word(6),
            authorities: word(8),
            additionals: word(10),
        })
    }

    /// Returns the header's octets.
    #[inline]
    pub fn to_octets(self) -> [u8; HEADER_OCTETS] {
        let mut octets = [0; HEADER_OCTETS];
        for (at, word) in [self.id, self.flags, self.questions, self.answers, self.authorities, self.additionals]
            .into_iter()
            .enumerate()
        {
            octets[2 * at..2 * at + 2].copy_from_slice(&word.to_be_bytes());
        }
        octets
    }

    /// Returns the opcode in the flags.
    #[inline]
    pub fn opcode(self) -> Opcode {
        Opcode((self.flags >> 11) as u8 & 0x0f)
    }

    /// Returns the lower four bits of the response code.
    pub fn rcode(self) -> Rcode {
        Rcode(self.flags & 0x0f)
    }

    /// Returns whether this is a response.
    #[inline]
    pub fn is_response(self) -> bool {
        self.flags & FLAG_QR != 0
    }
}
