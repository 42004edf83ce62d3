//! The kinds of findings, with the severity of each, and the further records of the zone that could resolve it.

use std::fmt;

use crate::wire::{Name, RecordType};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is known to be wrong: a part was not checked.
    Note,
    /// The zone is served, but is probably not as intended.
    Warning,
    /// The zone is served, but resolvers cannot reach part of it, or validators treat part of it as bogus: it should not be
    /// published.
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
    ($($variant:ident $text:literal $severity:ident $resolved:ident$(($types:expr))? $doc:literal),+ $(,)?) => {
        /// The kinds of findings. Their texts are stable: scripts may rely on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $doc] $variant),+ }

        impl Code {
            /// Returns the code as scripts see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text),+ }
            }

            /// Returns the severity.
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity),+ }
            }

            fn resolved_by(self) -> ResolvedBy {
                use RecordType as T;
                match self { $(Code::$variant => ResolvedBy::$resolved$(($types))?),+ }
            }
        }
    };
}

codes! {
    SoaMissing "soa-missing" Error Types(&[T::SOA]) "The apex has no SOA (RFC 1034 §4.2.1).",
    SoaMultiple "soa-multiple" Error Nothing "The apex has several SOA records (RFC 1035 §5.2).",
    SoaBelowApex "soa-below-apex" Error Nothing "A name below the apex has an SOA (RFC 1035 §5.2).",
    NsMissing "ns-missing" Error Types(&[T::NS]) "The apex has no NS (RFC 1034 §4.2.1).",
    CnameNotAlone "cname-not-alone" Error Nothing "A name has a CNAME and other data (RFC 2181 §10.1).",
    CnameMultiple "cname-multiple" Error Nothing "A name has several CNAME records (RFC 2181 §10.1).",
    DnameMultiple "dname-multiple" Error Nothing "A name has several DNAME records (RFC 6672 §2.4).",
    DnameWithNs "dname-with-ns" Error Nothing "A DNAME is at a zone cut (RFC 6672 §2.3).",
    BelowDname "below-dname" Error Nothing "Records are below a DNAME (RFC 6672 §2.4).",
    DnameWildcard "dname-wildcard" Error Nothing "A wildcard has a DNAME (RFC 4592 §4.4).",
    NsWildcard "ns-wildcard" Error Nothing "A wildcard has an NS (RFC 4592 §4.2).",
    RrsetTooLarge "rrset-too-large" Error Nothing "An RRset with its signatures does not fit in a message.",
    SoaMnameRoot "soa-mname-root" Warning Nothing "The SOA has the root as its primary server, which means none.",
    NsNoAddress "ns-no-address" Fault Types(TO_ADDRESS) "A name server in the zone has no address.",
    NsLookalike "ns-lookalike" Warning Types(TO_ADDRESS) "A name server outside the zone has a name similar to one in the zone.",
    NsLoopback "ns-loopback" Warning Nothing "A name server's address is a loopback address.",
    NsAddressUnused "ns-address-unused" Warning Types(&[T::NS]) "An address appears to be that of a name server, but no NS refers to it.",
    BelowCut "below-cut" Warning Types(&[T::NS]) "Data at or below a zone cut that is neither glue nor permitted at the cut.",
    GlueSigned "glue-signed" Warning Nothing "Glue has a signature (RFC 4035 §2.2).",
    NsToCname "ns-to-cname" Fault Nothing "An NS points to an alias (RFC 2181 §10.3).",
    MxToCname "mx-to-cname" Warning Nothing "An MX points to an alias (RFC 2181 §10.3).",
    SrvToCname "srv-to-cname" Warning Nothing "An SRV points to an alias (RFC 2782).",
    MxNoAddress "mx-no-address" Warning Types(TO_ADDRESS) "An MX points to a host of the zone that has no address in it.",
    SrvNoAddress "srv-no-address" Warning Types(TO_ADDRESS) "An SRV points to a host of the zone that has no address in it.",
    CnameToCname "cname-to-cname" Warning Nothing "A CNAME points to another CNAME of the zone.",
    CnameLoop "cname-loop" Warning Nothing "A CNAME is part of a loop.",
    DsAtApex "ds-at-apex" Fault Nothing "A DS is at the zone's own apex (RFC 4035 §2.4).",
    DsWithoutNs "ds-without-ns" Warning Types(&[T::NS]) "A DS is at a name that is not delegated (RFC 4035 §2.4).",
    RrsigNothing "rrsig-covers-nothing" Warning Owner(&[]) "An RRSIG covers a type that its owner does not have.",
    RrsigSigner "rrsig-signer" Fault Nothing "The signer of an RRSIG is not the zone (RFC 4035 §2.2).",
    Unsigned "rrset-unsigned" Fault Types(&[T::RRSIG, T::NS]) "A signed zone has an RRset without RRSIG (RFC 4035 §2.2).",
    KeysMissing "dnskey-missing" Fault Types(&[T::DNSKEY]) "The apex is signed, but has no DNSKEY (RFC 4035 §2.1).",
    NoDenial "denial-missing" Fault Types(&[T::NSEC, T::NSEC3PARAM]) "A signed zone has neither NSEC at its apex nor a usable NSEC3PARAM.",
    RrsigExpired "rrsig-expired" Fault Nothing "A signature is no longer valid.",
    RrsigEarly "rrsig-not-yet-valid" Fault Nothing "A signature is not yet valid.",
    RrsigKey "rrsig-key-missing" Fault Types(&[T::DNSKEY]) "The key of a signature is not in the zone.",
    RrsigLabels "rrsig-labels" Fault Nothing "The label count of a signature does not match its owner (RFC 4034 §3.1.3).",
    RrsigTtl "rrsig-ttl" Warning Owner(&[]) "The TTL of an RRset exceeds the signed TTL (RFC 4035 §2.2).",
    NsecMissing "nsec-missing" Fault Anything "A name of a zone with NSEC has no NSEC (RFC 4035 §2.3).",
    NsecNext "nsec-next" Fault Anything "An NSEC does not point to the next name.",
    NsecTypes "nsec-types" Fault Anything "The types in an NSEC do not match the types of its owner.",
    Nsec3Missing "nsec3-missing" Fault Anything "A name of a zone with NSEC3 has no NSEC3 (RFC 5155 §7.1).",
    Nsec3Next "nsec3-next" Fault Anything "An NSEC3 does not point to the next hash.",
    Nsec3Types "nsec3-types" Fault Anything "The types in an NSEC3 do not match the types of its name.",
    Nsec3Stray "nsec3-stray" Warning Anything "An NSEC3 matches no name of the zone.",
    Nsec3Iterations "nsec3-iterations" Warning Nothing "NSEC3 with additional iterations (RFC 9276 §3.1).",
    Nsec3IterationsMax "nsec3-iterations-max" Error Types(&[T::NSEC, T::NSEC3PARAM]) "NSEC3 with more iterations than the server supports: it cannot prove negative answers (RFC 9276 §3.3).",
    RrsigWrong "rrsig-wrong" Fault Owner(&[T::DNSKEY]) "A signature does not match its records and its key (RFC 4035 §5.3).",
    RrsigUnchecked "rrsig-unchecked" Note Nothing "Signatures with an unsupported algorithm, which are not verified.",
    ZonemdWrong "zonemd-wrong" Warning Anything "The digest of the zone does not match its ZONEMD (RFC 8976 §4).",
    ZonemdSerial "zonemd-serial" Warning Anything "The serial of a ZONEMD differs from the serial of the SOA (RFC 8976 §4).",
    ZonemdUnchecked "zonemd-unchecked" Note Anything "A ZONEMD with an unsupported scheme or hash, which is not verified.",
    DsDigest "ds-digest" Fault Nothing "A DS with a digest of the wrong length for its type.",
    CdsMismatch "cds-mismatch" Warning Types(&[T::CDS, T::CDNSKEY]) "CDS and CDNSKEY records contradict each other (RFC 7344 §4, RFC 8078 §4).",
    SshfpDigest "sshfp-digest" Warning Nothing "An SSHFP with a fingerprint of the wrong length for its type.",
    TypeObsolete "type-obsolete" Warning Nothing "Records of an obsolete type.",
}

/// The further records of the zone that could resolve a finding.
enum ResolvedBy {
    /// No records: the existing records are wrong.
    Nothing,
    /// Records of these types.
    Types(&'static [RecordType]),
    /// Records of the finding's owner, and of these types.
    Owner(&'static [RecordType]),
    /// Any record.
    Anything,
}

/// The types of an address, or of a record that leads to one.
const TO_ADDRESS: &[RecordType] =
    &[RecordType::A, RecordType::AAAA, RecordType::CNAME, RecordType::NS, RecordType::DNAME];

/// Records of the zone that could not be parsed, with the known parts: a problem that they could resolve is not reported, so that
/// one mistake is one finding.
#[derive(Debug, Default)]
pub struct UnparsedRecords {
    records: Vec<(Name, Option<RecordType>)>,
    /// Whether a record was lost whose owner is not even known.
    anything: bool,
}

/// The number of unparsed records above which any record may be among them.
const UNPARSED_MAX: usize = 1000;

impl UnparsedRecords {
    /// Adds a record with its known parts.
    pub fn push(&mut self, owner: Option<Name>, rtype: Option<RecordType>) {
        match owner.filter(|_| self.records.len() < UNPARSED_MAX) {
            Some(owner) => self.records.push((owner, rtype)),
            None => self.anything = true,
        }
    }

    /// Returns whether the finding might not exist if all records were present.
    pub fn may_resolve(&self, code: Code, owner: &Name, rtype: Option<RecordType>) -> bool {
        let is_of = |types: &[RecordType], found: Option<RecordType>| found.is_none_or(|found| types.contains(&found));
        match code.resolved_by() {
            ResolvedBy::Nothing => false,
            // Only the address of a name server can be glue.
            _ if code == Code::BelowCut && !matches!(rtype, Some(RecordType::A | RecordType::AAAA)) => false,
            _ if self.anything => true,
            ResolvedBy::Anything => !self.records.is_empty(),
            ResolvedBy::Types(types) => self.records.iter().any(|(_, found)| is_of(types, *found)),
            ResolvedBy::Owner(types) => self.records.iter().any(|(name, found)| name == owner || is_of(types, *found)),
        }
    }
}
