//! The table of the fields of each record type's data.
//!
//! It has one line per type, with the RFC that defines it. To add a type, add its line; a new kind of field needs its length in
//! `measure`, its text in `zonefile::rdata_in` and `zonefile::rdata_out`, and nothing else.

use std::fmt;

use crate::wire::RecordType;

/// The permitted changes of a domain name inside record data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameForm {
    /// The name may be compressed in messages (RFC 3597 §4: the types of RFC 1035), and is in lower case in the canonical form.
    Compressible,
    /// The name is never compressed, and is in lower case in the canonical form (RFC 4034 §6.2, RFC 6840 §5.1).
    Folded,
    /// The name is never compressed, and keeps its case in the canonical form.
    Exact,
}

/// A kind of field in record data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// A domain name.
    Name(NameForm),
    /// Names up to the end, possibly none (HIP's rendezvous servers).
    Names,
    /// An unsigned number of 8 bits.
    U8,
    /// An unsigned number of 16 bits.
    U16,
    /// An unsigned number of 32 bits.
    U32,
    /// A record type, in text its mnemonic.
    Type,
    /// A DNSSEC algorithm, 8 bits, in text a number or mnemonic (RFC 4034 §2.2).
    Algorithm,
    /// A certificate type, 16 bits, in text a number or mnemonic (RFC 4398 §2.1).
    CertificateType,
    /// Seconds in 32 bits, in text also with units.
    Seconds,
    /// Seconds since 1970 modulo 2^32, in text `YYYYMMDDHHmmSS` (RFC 4034 §3.2).
    Timestamp,
    /// 4 octets.
    Ipv4,
    /// 16 octets.
    Ipv6,
    /// 8 octets, in text four groups of hex digits (RFC 6742 §2.1).
    Node64,
    /// 6 octets, in text pairs of hex digits with dashes (RFC 7043 §3.2).
    Eui48,
    /// 8 octets, in text pairs of hex digits with dashes (RFC 7043 §4.2).
    Eui64,
    /// A length octet and that many octets.
    CharacterString,
    /// One or more character-strings up to the end.
    CharacterStrings,
    /// Octets up to the end, possibly none, in text one quoted string (CAA's value).
    Text,
    /// Like `Text`, at least one octet (URI's target, RFC 7553 §4.4).
    Target,
    /// A length octet and that many letters and digits, at least one (RFC 8659 §4.1).
    Tag,
    /// Octets up to the end, at least one, in text hex.
    Hex,
    /// Like `Hex`, in text after `0x` (RFC 1706 §7).
    Nsap,
    /// Octets up to the end, at least one, in text base64.
    Base64,
    /// Like `Base64`, possibly empty.
    Base64OrNone,
    /// A length octet and that many octets, in text hex, or `-` for none (NSEC3's salt).
    Salt,
    /// A length octet and at least one octet, in text base32 with the extended hex alphabet (NSEC3's next owner).
    HashedOwner,
    /// Windows of type bits up to the end (RFC 4034 §4.1.2).
    TypeBitmap,
    /// IPSECKEY's gateway, whose kind is the record's second octet (RFC 4025 §2.3).
    Gateway,
    /// AMTRELAY's discovery bit, kind of relay, and relay (RFC 8777 §4.2).
    Relay,
    /// DSYNC's scheme, 8 bits, in text a number or mnemonic (RFC 9859 §2.1).
    Scheme,
    /// ZONEMD's digest up to the end, in text hex: its length depends on the hash in the octet before, and is at least 12 octets
    /// (RFC 8976 §2.2.4).
    ZoneDigest,
    /// HIP's lengths, algorithm, tag and key (RFC 8005 §5).
    HostIdentity,
    /// Address prefixes up to the end (RFC 3123 §4).
    AddressPrefixes,
    /// Service parameters up to the end (RFC 9460 §2.2).
    SvcParams,
    /// The 16 octets of LOC (RFC 1876 §2).
    Location,
    /// All octets up to the end, in text only as in RFC 3597 §5.
    Opaque,
}

use Field::*;

const NAME: Field = Name(NameForm::Compressible);
const FOLDED: Field = Name(NameForm::Folded);
const EXACT: Field = Name(NameForm::Exact);

/// Returns the fields of a record's data, in order. A type that is not in the table has one [`Field::Opaque`].
pub const fn fields(rtype: RecordType) -> &'static [Field] {
    use RecordType as T;
    match rtype {
        // RFC 1035 §3.3, §3.4
        T::A => &[Ipv4],
        T::NS | T::MD | T::MF | T::CNAME | T::MB | T::MG | T::MR | T::PTR => &[NAME],
        T::SOA => &[NAME, NAME, U32, Seconds, Seconds, Seconds, Seconds],
        T::HINFO => &[CharacterString, CharacterString],
        T::MINFO => &[NAME, NAME],
        T::MX => &[U16, NAME],
        T::TXT => &[CharacterStrings],
        // RFC 1183. ISDN has one or two strings; the few existing records do not justify a separate kind.
        T::RP => &[FOLDED, FOLDED],
        T::AFSDB | T::RT => &[U16, FOLDED],
        T::X25 => &[CharacterString],
        T::ISDN => &[CharacterStrings],
        // RFC 1706, RFC 2163, RFC 1712
        T::NSAP => &[Nsap],
        T::PX => &[U16, FOLDED, FOLDED],
        T::GPOS => &[CharacterString, CharacterString, CharacterString],
        // RFC 2535, still seen as SIG(0) keys
        T::KEY | T::RKEY => &[U16, U8, Algorithm, Base64OrNone],
        T::SIG => &[Type, Algorithm, U8, Seconds, Timestamp, Timestamp, U16, FOLDED, Base64],
        // RFC 3596, RFC 1876, RFC 2782, RFC 3403, RFC 2230, RFC 4398, RFC 6672, RFC 3123
        T::AAAA => &[Ipv6],
        T::LOC => &[Location],
        T::SRV => &[U16, U16, U16, FOLDED],
        T::NAPTR => &[U16, U16, CharacterString, CharacterString, CharacterString, FOLDED],
        T::KX => &[U16, FOLDED],
        T::CERT => &[CertificateType, U16, Algorithm, Base64],
        T::DNAME => &[FOLDED],
        T::APL => &[AddressPrefixes],
        // RFC 4034, RFC 7344, RFC 5155, RFC 4431; TA is older
        T::DS | T::CDS | T::DLV | T::TA => &[U16, Algorithm, U8, Hex],
        T::RRSIG => &[Type, Algorithm, U8, Seconds, Timestamp, Timestamp, U16, FOLDED, Base64],
        T::NSEC => &[EXACT, TypeBitmap],
        T::DNSKEY | T::CDNSKEY => &[U16, U8, Algorithm, Base64],
        T::NSEC3 => &[U8, U8, U16, Salt, HashedOwner, TypeBitmap],
        T::NSEC3PARAM => &[U8, U8, U16, Salt],
        // RFC 4255, RFC 4025, RFC 4701, RFC 6698, RFC 8162, RFC 8005, RFC 7929, RFC 7477, RFC 8976
        T::SSHFP => &[U8, U8, Hex],
        T::IPSECKEY => &[U8, U8, U8, Gateway, Base64OrNone],
        T::DHCID => &[Base64],
        T::TLSA | T::SMIMEA => &[U8, U8, U8, Hex],
        T::HIP => &[HostIdentity, Names],
        T::OPENPGPKEY => &[Base64],
        T::CSYNC => &[U32, U16, TypeBitmap],
        T::ZONEMD => &[U32, U8, U8, ZoneDigest],
        // RFC 9460, RFC 7208 §3.1, RFC 6742, RFC 7043, RFC 7553, RFC 8659, RFC 9606
        T::SVCB | T::HTTPS => &[U16, EXACT, SvcParams],
        T::SPF | T::RESINFO | T::AVC | T::NINFO => &[CharacterStrings],
        T::NID | T::L64 => &[U16, Node64],
        T::L32 => &[U16, Ipv4],
        T::LP => &[U16, EXACT],
        T::EUI48 => &[Eui48],
        T::EUI64 => &[Eui64],
        // RFC 8777, RFC 9859, draft-ietf-dnsop-dnssec-trust-history
        T::AMTRELAY => &[U8, Relay],
        T::DSYNC => &[Type, Scheme, U16, EXACT],
        T::TALINK => &[EXACT, EXACT],
        T::URI => &[U16, U16, Target],
        T::CAA => &[U8, Tag, Text],
        _ => &[Opaque],
    }
}

impl fmt::Display for Field {
    /// The expected input for error messages: "an IPv4 address".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Name(_) | Names => "a domain name",
            U8 => "a number from 0 to 255",
            U16 => "a number from 0 to 65535",
            U32 => "a number from 0 to 4294967295",
            Type => "a record type",
            Algorithm => "a DNSSEC algorithm",
            CertificateType => "a certificate type",
            Seconds => "a time in seconds or with units (1h30m)",
            Timestamp => "a date as YYYYMMDDHHmmSS",
            Ipv4 => "an IPv4 address",
            Ipv6 => "an IPv6 address",
            Node64 => "four groups of hex digits with colons",
            Eui48 => "six pairs of hex digits with dashes",
            Eui64 => "eight pairs of hex digits with dashes",
            CharacterString | CharacterStrings => "a string of at most 255 octets",
            Text | Target => "a text",
            Tag => "a tag of letters and digits",
            Hex | ZoneDigest | Opaque => "hex digits",
            Nsap => "0x and hex digits",
            Base64 | Base64OrNone => "base64",
            Salt => "hex digits or -",
            HashedOwner => "base32hex",
            TypeBitmap => "record types",
            Gateway => "a gateway (an address, a name or .)",
            Relay => "a discovery bit (0 or 1), a type from 0 to 3, and a relay",
            Scheme => "a scheme (NOTIFY or a number)",
            HostIdentity => "a host identity",
            AddressPrefixes => "address prefixes (1:192.0.2.0/24)",
            SvcParams => "service parameters (key=value)",
            Location => "a location (LOC)",
        })
    }
}
