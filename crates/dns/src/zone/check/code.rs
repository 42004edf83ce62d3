//! The kinds of findings, how bad each is, and what of the zone could cure it.

use std::fmt;

use crate::wire::{Name, RecordType};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is known to be wrong: something was not looked at.
    Note,
    /// The zone is served, but probably not what was meant.
    Warning,
    /// The zone is served as it stands, but resolvers cannot reach part of it, or validators take part of it for forged:
    /// nobody should publish it so.
    Fault,
    /// The zone is not served.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Fault => "fault",
            Severity::Warning => "warning",
            Severity::Note => "note",
        })
    }
}

macro_rules! codes {
    ($($variant:ident $text:literal $severity:ident $doc:literal),+ $(,)?) => {
        /// The kinds of findings. Their texts are stable: scripts may rely on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $doc] $variant),+ }

        impl Code {
            /// The code as scripts see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text),+ }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity),+ }
            }
        }
    };
}

codes! {
    SoaMissing "soa-missing" Error "The apex has no SOA (RFC 1034 §4.2.1).",
    SoaMultiple "soa-multiple" Error "The apex has several SOA records (RFC 1035 §5.2).",
    SoaBelowApex "soa-below-apex" Error "A name below the apex has a SOA (RFC 1035 §5.2).",
    NsMissing "ns-missing" Error "The apex has no NS (RFC 1034 §4.2.1).",
    CnameNotAlone "cname-not-alone" Error "A CNAME stands beside other data (RFC 2181 §10.1).",
    CnameMultiple "cname-multiple" Error "A name has several CNAME records (RFC 2181 §10.1).",
    DnameMultiple "dname-multiple" Error "A name has several DNAME records (RFC 6672 §2.4).",
    DnameWithNs "dname-with-ns" Error "A DNAME stands at a zone cut (RFC 6672 §2.3).",
    BelowDname "below-dname" Error "Records lie below a DNAME (RFC 6672 §2.4).",
    DnameWildcard "dname-wildcard" Error "A wildcard has a DNAME (RFC 4592 §4.4).",
    NsWildcard "ns-wildcard" Error "A wildcard has an NS (RFC 4592 §4.2).",
    RrsetTooLarge "rrset-too-large" Error "An RRset fits in no message, with its signatures.",
    SoaMnameRoot "soa-mname-root" Warning "The SOA names the root as primary, that is: none.",
    NsNoAddress "ns-no-address" Fault "A name server has no address in the zone that should have it.",
    NsLookalike "ns-lookalike" Warning "A name server outside the zone has a name that looks like one in the zone.",
    NsLoopback "ns-loopback" Warning "A name server's address is a loopback address.",
    NsAddressUnused "ns-address-unused" Warning "An address looks like a name server's, but no NS names it.",
    BelowCut "below-cut" Warning "Data at or below a zone cut that is neither glue nor the cut's own.",
    GlueSigned "glue-signed" Warning "Glue has a signature (RFC 4035 §2.2).",
    NsToCname "ns-to-cname" Fault "An NS names an alias (RFC 2181 §10.3).",
    MxToCname "mx-to-cname" Warning "An MX names an alias (RFC 2181 §10.3).",
    SrvToCname "srv-to-cname" Warning "A SRV names an alias (RFC 2782).",
    MxNoAddress "mx-no-address" Warning "An MX names a host of the zone that has no address in it.",
    SrvNoAddress "srv-no-address" Warning "A SRV names a host of the zone that has no address in it.",
    CnameToCname "cname-to-cname" Warning "A CNAME leads to another CNAME of the zone.",
    CnameLoop "cname-loop" Warning "A CNAME leads back to itself.",
    DsAtApex "ds-at-apex" Fault "A DS stands at the zone's own apex (RFC 4035 §2.4).",
    DsWithoutNs "ds-without-ns" Warning "A DS stands where no delegation is (RFC 4035 §2.4).",
    RrsigNothing "rrsig-covers-nothing" Warning "An RRSIG covers a type that its owner does not have.",
    RrsigSigner "rrsig-signer" Fault "An RRSIG's signer is not the zone (RFC 4035 §2.2).",
    Unsigned "rrset-unsigned" Fault "A signed zone has an RRset without RRSIG (RFC 4035 §2.2).",
    KeysMissing "dnskey-missing" Fault "The apex is signed, but has no DNSKEY (RFC 4035 §2.1).",
    NoDenial "denial-missing" Fault "A signed zone has neither NSEC at its apex nor an NSEC3PARAM that counts.",
    RrsigExpired "rrsig-expired" Fault "A signature is no longer valid.",
    RrsigEarly "rrsig-not-yet-valid" Fault "A signature is not yet valid.",
    RrsigKey "rrsig-key-missing" Fault "A signature is by a key that is not in the zone.",
    RrsigLabels "rrsig-labels" Fault "A signature counts other labels than its owner has (RFC 4034 §3.1.3).",
    RrsigTtl "rrsig-ttl" Warning "An RRset has a longer TTL than was signed (RFC 4035 §2.2).",
    NsecMissing "nsec-missing" Fault "A name of a zone with NSEC has none (RFC 4035 §2.3).",
    NsecNext "nsec-next" Fault "An NSEC does not lead to the next name.",
    NsecTypes "nsec-types" Fault "An NSEC names other types than are there.",
    Nsec3Missing "nsec3-missing" Fault "A name of a zone with NSEC3 has none (RFC 5155 §7.1).",
    Nsec3Next "nsec3-next" Fault "An NSEC3 does not lead to the next hash.",
    Nsec3Types "nsec3-types" Fault "An NSEC3 names other types than are there.",
    Nsec3Stray "nsec3-stray" Warning "An NSEC3 is of no name of the zone.",
    Nsec3Iterations "nsec3-iterations" Warning "NSEC3 with further iterations (RFC 9276 §3.1).",
    Nsec3IterationsMax "nsec3-iterations-max" Error "NSEC3 with more iterations than are served: no proof can be given (RFC 9276 §3.3).",
    RrsigWrong "rrsig-wrong" Fault "A signature is not that of its records by its key (RFC 4035 §5.3).",
    RrsigUnchecked "rrsig-unchecked" Note "Signatures by an algorithm that is not verified here.",
    ZonemdWrong "zonemd-wrong" Warning "The digest of the zone is another than its ZONEMD says (RFC 8976 §4).",
    ZonemdSerial "zonemd-serial" Warning "A ZONEMD is of another serial than the SOA's (RFC 8976 §4).",
    ZonemdUnchecked "zonemd-unchecked" Note "A ZONEMD of a scheme or hash that is not verified here.",
    DsDigest "ds-digest" Fault "A DS whose digest has not the length of its type.",
    CdsMismatch "cds-mismatch" Warning "CDS and CDNSKEY records contradict each other (RFC 7344 §4, RFC 8078 §4).",
    SshfpDigest "sshfp-digest" Warning "An SSHFP whose fingerprint has not the length of its type.",
    TypeObsolete "type-obsolete" Warning "Records of a type that is no more.",
}

/// Which further records of the zone could make a finding go away.
enum Cure {
    /// None: it is a fault of the records that are there.
    Nothing,
    /// Those of these types.
    Types(&'static [RecordType]),
    /// Those of the finding's owner, and of these types.
    Owner(&'static [RecordType]),
    /// Any.
    Anything,
}

impl Code {
    fn cure(self, rtype: Option<RecordType>) -> Cure {
        use RecordType as T;
        match self {
            Code::SoaMultiple
            | Code::SoaBelowApex
            | Code::SoaMnameRoot
            | Code::CnameNotAlone
            | Code::CnameMultiple
            | Code::DnameMultiple
            | Code::DnameWithNs
            | Code::DnameWildcard
            | Code::BelowDname
            | Code::NsWildcard
            | Code::RrsetTooLarge
            | Code::NsLoopback
            | Code::GlueSigned
            | Code::NsToCname
            | Code::MxToCname
            | Code::SrvToCname
            | Code::CnameToCname
            | Code::CnameLoop
            | Code::RrsigSigner
            | Code::RrsigExpired
            | Code::RrsigEarly
            | Code::RrsigLabels
            | Code::RrsigUnchecked
            | Code::Nsec3Iterations
            | Code::DsAtApex
            | Code::DsDigest
            | Code::SshfpDigest
            | Code::TypeObsolete => Cure::Nothing,
            Code::BelowCut if !matches!(rtype, Some(T::A | T::AAAA)) => Cure::Nothing,
            // A name server's address is glue.
            Code::BelowCut | Code::DsWithoutNs | Code::NsMissing | Code::NsAddressUnused => Cure::Types(&[T::NS]),
            Code::SoaMissing => Cure::Types(&[T::SOA]),
            // An address, or what leads to one.
            Code::NsNoAddress | Code::NsLookalike | Code::MxNoAddress | Code::SrvNoAddress => {
                Cure::Types(&[T::A, T::AAAA, T::CNAME, T::NS, T::DNAME])
            }
            Code::CdsMismatch => Cure::Types(&[T::CDS, T::CDNSKEY]),
            Code::RrsigKey | Code::KeysMissing => Cure::Types(&[T::DNSKEY]),
            Code::RrsigNothing | Code::RrsigTtl => Cure::Owner(&[]),
            Code::RrsigWrong => Cure::Owner(&[T::DNSKEY]),
            // Below a delegation nothing is signed.
            Code::Unsigned => Cure::Types(&[T::RRSIG, T::NS]),
            Code::NoDenial | Code::Nsec3IterationsMax => Cure::Types(&[T::NSEC, T::NSEC3PARAM]),
            Code::NsecMissing
            | Code::NsecNext
            | Code::NsecTypes
            | Code::Nsec3Missing
            | Code::Nsec3Next
            | Code::Nsec3Types
            | Code::Nsec3Stray
            | Code::ZonemdWrong
            | Code::ZonemdSerial
            | Code::ZonemdUnchecked => Cure::Anything,
        }
    }
}

/// Records of the zone that could not be read, as far as it is known which: what they would cure is not found wrong, so that
/// one mistake is one finding.
#[derive(Debug, Default)]
pub struct Unread {
    records: Vec<(Name, Option<RecordType>)>,
    /// Something was lost of which not even the owner is known.
    anything: bool,
}

/// With more unread records than this, anything may be among them.
const UNREAD_MAX: usize = 1000;

impl Unread {
    /// Adds a record of which this is known.
    pub fn push(&mut self, owner: Option<Name>, rtype: Option<RecordType>) {
        match owner.filter(|_| self.records.len() < UNREAD_MAX) {
            Some(owner) => self.records.push((owner, rtype)),
            None => self.anything = true,
        }
    }

    /// Whether the finding might not be one, were all records there.
    pub fn may_cure(&self, code: Code, owner: &Name, rtype: Option<RecordType>) -> bool {
        let cure = code.cure(rtype);
        let is_of = |types: &[RecordType], found: Option<RecordType>| found.is_none_or(|found| types.contains(&found));
        match cure {
            Cure::Nothing => false,
            _ if self.anything => true,
            Cure::Anything => !self.records.is_empty(),
            Cure::Types(types) => self.records.iter().any(|(_, found)| is_of(types, *found)),
            Cure::Owner(types) => self.records.iter().any(|(name, found)| name == owner || is_of(types, *found)),
        }
    }
}
