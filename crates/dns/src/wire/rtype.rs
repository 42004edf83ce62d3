//! Record types and classes with their mnemonics (RFC 1035 §3.2, the IANA registry, RFC 3597 §5 for the rest).

use std::fmt;
use std::str::FromStr;

/// A record type, or a QTYPE in a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u16);

macro_rules! record_types {
    ($($ident:ident $text:literal = $code:literal),+ $(,)?) => {
        #[allow(missing_docs, reason = "each constant is the type of its name in the IANA registry")]
        impl RecordType {
            $(pub const $ident: RecordType = RecordType($code);)+
        }

        const MNEMONICS: &[(&str, u16)] = &[$(($text, $code)),+];
    };
}

record_types! {
    A "A" = 1, NS "NS" = 2, MD "MD" = 3, MF "MF" = 4, CNAME "CNAME" = 5, SOA "SOA" = 6, MB "MB" = 7, MG "MG" = 8,
    MR "MR" = 9, NULL "NULL" = 10, WKS "WKS" = 11, PTR "PTR" = 12, HINFO "HINFO" = 13, MINFO "MINFO" = 14, MX "MX" = 15,
    TXT "TXT" = 16, RP "RP" = 17, AFSDB "AFSDB" = 18, X25 "X25" = 19, ISDN "ISDN" = 20, RT "RT" = 21, NSAP "NSAP" = 22,
    SIG "SIG" = 24, KEY "KEY" = 25, PX "PX" = 26, GPOS "GPOS" = 27, AAAA "AAAA" = 28, LOC "LOC" = 29, NXT "NXT" = 30,
    SRV "SRV" = 33, NAPTR "NAPTR" = 35, KX "KX" = 36, CERT "CERT" = 37, A6 "A6" = 38, DNAME "DNAME" = 39, OPT "OPT" = 41,
    APL "APL" = 42, DS "DS" = 43, SSHFP "SSHFP" = 44, IPSECKEY "IPSECKEY" = 45, RRSIG "RRSIG" = 46, NSEC "NSEC" = 47,
    DNSKEY "DNSKEY" = 48, DHCID "DHCID" = 49, NSEC3 "NSEC3" = 50, NSEC3PARAM "NSEC3PARAM" = 51, TLSA "TLSA" = 52,
    SMIMEA "SMIMEA" = 53, HIP "HIP" = 55, NINFO "NINFO" = 56, RKEY "RKEY" = 57, TALINK "TALINK" = 58, CDS "CDS" = 59, CDNSKEY "CDNSKEY" = 60, OPENPGPKEY "OPENPGPKEY" = 61,
    CSYNC "CSYNC" = 62, ZONEMD "ZONEMD" = 63, SVCB "SVCB" = 64, HTTPS "HTTPS" = 65, DSYNC "DSYNC" = 66, SPF "SPF" = 99, NID "NID" = 104,
    L32 "L32" = 105, L64 "L64" = 106, LP "LP" = 107, EUI48 "EUI48" = 108, EUI64 "EUI64" = 109, NXNAME "NXNAME" = 128,
    TKEY "TKEY" = 249, TSIG "TSIG" = 250, IXFR "IXFR" = 251, AXFR "AXFR" = 252, MAILB "MAILB" = 253,
    MAILA "MAILA" = 254, ANY "ANY" = 255, URI "URI" = 256, CAA "CAA" = 257, AVC "AVC" = 258, AMTRELAY "AMTRELAY" = 260,
    RESINFO "RESINFO" = 261, TA "TA" = 32_768, DLV "DLV" = 32_769,
}

impl RecordType {
    /// Returns whether this type is only for questions and messages, and never in a zone: QTYPEs and meta-types (RFC 6895 §3.1:
    /// 128 to 255, and OPT).
    pub const fn is_meta(self) -> bool {
        matches!(self.0, 0 | 41 | 128..=255)
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match MNEMONICS.iter().find(|(_, code)| *code == self.0) {
            Some((text, _)) => f.write_str(text),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

impl fmt::Debug for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is neither a mnemonic nor `TYPE` or `CLASS` and a number up to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown mnemonic")]
pub struct UnknownMnemonic;

impl FromStr for RecordType {
    type Err = UnknownMnemonic;

    /// Reads a mnemonic in any case, or `TYPE123` (RFC 3597 §5).
    fn from_str(text: &str) -> Result<Self, UnknownMnemonic> {
        match MNEMONICS.iter().find(|(known, _)| known.eq_ignore_ascii_case(text)) {
            Some((_, code)) => Ok(RecordType(*code)),
            None => generic(text, "TYPE").map(RecordType),
        }
    }
}

/// A class (RFC 1035 §3.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub u16);

#[allow(missing_docs, reason = "each constant is the class of its name in the IANA registry")]
impl Class {
    pub const IN: Class = Class(1);
    pub const CH: Class = Class(3);
    pub const HS: Class = Class(4);
    pub const NONE: Class = Class(254);
    pub const ANY: Class = Class(255);
}

const CLASSES: &[(&str, Class)] =
    &[("IN", Class::IN), ("CH", Class::CH), ("HS", Class::HS), ("NONE", Class::NONE), ("ANY", Class::ANY)];

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CLASSES.iter().find(|(_, class)| class == self) {
            Some((text, _)) => f.write_str(text),
            None => write!(f, "CLASS{}", self.0),
        }
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Class {
    type Err = UnknownMnemonic;

    /// Reads a mnemonic in any case, or `CLASS123` (RFC 3597 §5).
    fn from_str(text: &str) -> Result<Self, UnknownMnemonic> {
        match CLASSES.iter().find(|(known, _)| known.eq_ignore_ascii_case(text)) {
            Some((_, class)) => Ok(*class),
            None => generic(text, "CLASS").map(Class),
        }
    }
}

/// Returns the number in `TYPE123` or `CLASS123`.
fn generic(text: &str, prefix: &str) -> Result<u16, UnknownMnemonic> {
    let (head, digits) = text.split_at_checked(prefix.len()).ok_or(UnknownMnemonic)?;
    if !head.eq_ignore_ascii_case(prefix) || !digits.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(UnknownMnemonic);
    }
    digits.parse().map_err(|_| UnknownMnemonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mnemonics_read_and_write_back() {
        for (text, code) in [("A", 1), ("https", 65), ("TYPE65400", 65400), ("type1", 1)] {
            assert_eq!(text.parse(), Ok(RecordType(code)), "{text}");
        }
        for &(text, code) in MNEMONICS {
            assert_eq!(RecordType(code).to_string(), text);
            assert_eq!(text.parse(), Ok(RecordType(code)));
        }
        assert_eq!("CLASS1".parse(), Ok(Class::IN));
        for bad in ["TYPE", "TYPE65536", "TYPE+1", "TYP1", ""] {
            assert_eq!(bad.parse::<RecordType>(), Err(UnknownMnemonic), "{bad}");
        }
    }
}
