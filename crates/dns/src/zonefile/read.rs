//! The reader of zone files (RFC 1035 §5, RFC 2308 §4, RFC 3597 §5).
//!
//! [`read_zone`] reads a zone and checks it; [`read_records`] reads records that are part of something else. Both continue after
//! an error with the next entry, so that one run shows all errors. The state that a file changes belongs to its scope. An
//! included file gets a copy: its origin (RFC 1035 §5.1) and, as for BIND and NSD, its current owner end with it, while its TTLs
//! apply to the records after it.

use std::path::Path;
use std::sync::Arc;

use super::assembler::{Record, Sink, SourcePosition, ZoneAssembler, minimum_of};
use super::finding::{Bounds, Fault, FindingList, Position, Severity, ZoneFinding};
use super::generate;
use super::include::{Includes, NoIncludes};
use super::rdata_in;
use super::scan::{Scanner, Start, Word};
use super::values::{expected_but, name, not_a_ttl, push_name, push_text, ttl};
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Class, Name, RecordType};
use crate::zone::{Contents, Ttl, check};

/// The maximum depth of nested includes.
pub const INCLUDE_DEPTH_MAX: usize = 8;
/// The maximum number of files that one zone may include.
pub const INCLUDES_MAX: u32 = 1000;
/// The maximum total size of the included files of one zone, in octets.
pub const INCLUDED_OCTETS_MAX: u64 = 1 << 30;
/// The maximum total number of records from the `$GENERATE` directives of one zone.
pub const GENERATED_MAX: u64 = 1 << 20;

/// The result of reading a zone.
#[derive(Debug)]
pub struct ZoneRead {
    /// The zone, if it can be served: there is no error among the findings.
    pub contents: Option<Contents>,
    /// The apex, if a SOA was read, errors or not.
    pub apex: Option<Name>,
    /// The file and the position of the SOA record that provides the apex.
    pub soa: Option<(Arc<Path>, Position)>,
    /// The findings, by position.
    pub findings: Vec<ZoneFinding>,
}

/// The level of the checks of a zone.
#[derive(Debug, Clone, Copy)]
pub struct CheckLevel {
    /// The time at which signatures must be valid, in seconds since 1970; `None`: their times are not checked.
    pub now: Option<u64>,
    /// The number of threads that verify signatures and digests; `None`: they are not verified.
    pub verify: Option<usize>,
    /// The maximum numbers of findings that are kept.
    pub bounds: Bounds,
}

impl CheckLevel {
    /// Returns the level for a server: no cryptography, because a start with many signed zones would take minutes.
    pub fn of_server(now: Option<u64>) -> Self {
        CheckLevel { now, verify: None, bounds: Bounds::SERVER }
    }

    /// Returns the level for a full check: everything, signatures on `threads` threads.
    pub fn of_check(now: Option<u64>, threads: usize) -> Self {
        CheckLevel { now, verify: Some(threads), bounds: Bounds::CHECK }
    }
}

/// Reads and checks the zone in `text`. Findings call it `file`; names are relative to `origin` until an `$ORIGIN`.
pub fn read_zone(text: &[u8], file: &Arc<Path>, origin: Option<Name>, includes: &mut dyn Includes) -> ZoneRead {
    read_zone_with(text, file, origin, includes, &CheckLevel::of_server(None))
}

/// [`read_zone`] with the level `scrutiny`.
pub fn read_zone_with(
    text: &[u8],
    file: &Arc<Path>,
    origin: Option<Name>,
    includes: &mut dyn Includes,
    scrutiny: &CheckLevel,
) -> ZoneRead {
    let mut reader = Reader::new(file, includes, ZoneAssembler::default(), scrutiny.bounds);
    reader.read_file(text, &mut Scope { origin, ..Scope::default() });
    let Reader { sink: mut stage, mut findings, files, mut unparsed, .. } = reader;
    for (file, fault) in std::mem::take(&mut stage.early_faults) {
        unparsed.push(None, None);
        findings.push(finding(
            &files,
            SourcePosition { file, at: fault.at },
            Severity::Error,
            fault.code,
            fault.message,
        ));
    }
    for (place, (code, message)) in std::mem::take(&mut stage.early_remarks) {
        findings.push(finding(&files, place, Severity::Warning, code, message));
    }
    let soa = stage.soa.map(|place| (files[place.file as usize].clone(), place.at));
    let (zone, mut places) = stage.finish();
    let start = SourcePosition { file: 0, at: Position::START };
    match &zone {
        // A missing record may be in an unreadable entry: one error must not cause others.
        None if unparsed.may_resolve(check::Code::SoaMissing, &Name::root(), None) => {}
        None => {
            let message = "no SOA record; add one at the zone's apex".to_owned();
            findings.push(finding(&files, start, Severity::Error, check::Code::SoaMissing.as_str(), message));
        }
        Some(zone) => {
            let CheckLevel { now, verify, bounds } = *scrutiny;
            let kept_max = bounds.errors_max.max(bounds.warnings_max);
            let report = check::examine(zone, &check::Options { now, verify, kept_max, unparsed: &unparsed });
            findings.count_omitted(report.omitted);
            for found in report.findings {
                let place = places.find(&found.owner, found.rtype).unwrap_or(start);
                findings.push(finding(&files, place, found.code.severity(), found.code.as_str(), found.message));
            }
        }
    }
    let apex = zone.as_ref().map(|zone| zone.apex().clone());
    ZoneRead { contents: zone.filter(|_| !findings.has_errors()), apex, soa, findings: findings.into_sorted() }
}

/// Reads the records in `text`, which is not from a file: no SOA is necessary, includes are rejected, and names are relative to
/// `origin`. The records are complete only if no finding is an error.
pub fn read_records(text: &[u8], called: &Arc<Path>, origin: &Name) -> (Vec<Record>, Vec<ZoneFinding>) {
    let mut includes = NoIncludes;
    let mut reader = Reader::new(called, &mut includes, Vec::new(), Bounds::SERVER);
    reader.read_file(text, &mut Scope { origin: Some(origin.clone()), ..Scope::default() });
    (reader.sink, reader.findings.into_sorted())
}

/// The state that directives and records of a file set for later records.
#[derive(Clone, Default)]
struct Scope {
    origin: Option<Name>,
    /// The TTL of `$TTL` (RFC 2308 §4).
    default_ttl: Option<Ttl>,
    /// The last TTL in a record, which applies if there is no `$TTL` (RFC 1035 §5.1).
    stated_ttl: Option<Ttl>,
    owner: Option<Name>,
}

/// The counts that are limited over all files.
#[derive(Default)]
struct Totals {
    /// Files.
    included: u32,
    included_octets: u64,
    /// Records of `$GENERATE`.
    generated: u64,
}

struct Reader<'i, S> {
    sink: S,
    includes: &'i mut dyn Includes,
    findings: FindingList,
    /// All files so far; the first is the zone's own.
    files: Vec<Arc<Path>>,
    /// The index of the current file.
    file: u32,
    /// The open files: each was included by the previous one.
    open: Vec<u32>,
    /// Whether reading was stopped early.
    stopped: bool,
    totals: Totals,
    said_ttl_inherited: bool,
    /// The known parts of the current record: whether the scope's owner is its owner, and its type.
    has_owner: bool,
    rtype: Option<RecordType>,
    /// The records that could not be parsed.
    unparsed: check::UnparsedRecords,
    /// Scratch space: the data of the record being read, and its owner.
    rdata: Vec<u8>,
    owner: Vec<u8>,
}

impl<'i, S: Sink> Reader<'i, S> {
    fn new(file: &Arc<Path>, includes: &'i mut dyn Includes, sink: S, bounds: Bounds) -> Self {
        Reader {
            sink,
            includes,
            findings: FindingList::new(bounds),
            files: vec![file.clone()],
            file: 0,
            open: vec![0],
            stopped: false,
            totals: Totals::default(),
            said_ttl_inherited: false,
            has_owner: false,
            rtype: None,
            unparsed: check::UnparsedRecords::default(),
            rdata: Vec::with_capacity(256),
            owner: Vec::with_capacity(NAME_OCTETS_MAX),
        }
    }

    fn read_file(&mut self, text: &[u8], scope: &mut Scope) {
        let mut scanner = Scanner::new(text);
        let mut last_fault = None;
        loop {
            if self.findings.is_full() {
                if !self.stopped {
                    self.stopped = true;
                    self.unparsed.push(None, None);
                    let message = "too many errors: the rest of the file was not read".to_owned();
                    self.push(scanner.position(), Severity::Warning, "more-errors", message);
                }
                return;
            }
            let start = scanner.begin();
            if start == Start::EndOfFile {
                break;
            }
            if let Err(fault) = self.read_entry(&mut scanner, start, scope) {
                last_fault = Some(fault.at);
                self.lose(&fault, scope);
                self.push(fault.at, Severity::Error, fault.code, fault.message);
            }
            scanner.end();
        }
        if let Some(fault) = scanner.left_open().filter(|fault| last_fault != Some(fault.at)) {
            self.lose(&fault, scope);
            self.push(fault.at, Severity::Error, fault.code, fault.message);
        }
    }

    /// Records the records that may be missing because of a fault in an entry.
    fn lose(&mut self, fault: &Fault, scope: &Scope) {
        // A parenthesis or quote may have swallowed the following entries; a directive represents any number of records.
        let owner = scope.owner.clone().filter(|_| self.has_owner && fault.code != "syntax");
        self.unparsed.push(owner, self.rtype);
    }

    fn push(&mut self, at: Position, severity: Severity, code: &'static str, message: String) {
        self.findings.push(finding(&self.files, SourcePosition { file: self.file, at }, severity, code, message));
    }

    /// One entry: nothing, a directive, or a record.
    fn read_entry(&mut self, scanner: &mut Scanner<'_>, start: Start, scope: &mut Scope) -> Result<(), Fault> {
        (self.has_owner, self.rtype) = (false, None);
        let Some(first) = scanner.word()? else { return Ok(()) };
        match start {
            Start::Word if first.raw.starts_with(b"$") && !first.quoted => self.read_directive(&first, scanner, scope),
            Start::Word => {
                self.owner.clear();
                push_name(&first, scope.origin.as_ref(), &mut self.owner)?;
                // Consecutive records that repeat their owner need the name once.
                if scope.owner.as_ref().is_none_or(|owner| owner.as_wire() != self.owner) {
                    let wire = Name::from_wire(&self.owner);
                    scope.owner = Some(wire.map_err(|error| Fault::new(first.at, "name", error.to_string()))?);
                }
                self.has_owner = true;
                let next = scanner.word()?;
                self.read_record(first.at, next, scanner, scope)
            }
            _ => {
                if scope.owner.is_none() {
                    let message = "the line begins with a blank, but there is no previous owner; write the owner";
                    return Err(Fault::new(first.at, "owner", message));
                }
                self.has_owner = true;
                self.read_record(first.at, Some(first), scanner, scope)
            }
        }
    }

    /// Reads `[ttl] [class] type data`, TTL and class in either order, for the scope's owner, which was at `at`.
    fn read_record<'a>(
        &mut self,
        at: Position,
        mut next: Option<Word<'a>>,
        scanner: &mut Scanner<'a>,
        scope: &mut Scope,
    ) -> Result<(), Fault> {
        let mut record_ttl = None;
        let mut class = None;
        let rtype = loop {
            let Some(word) = next else {
                let message = "expected a record type, found the end of the record";
                return Err(Fault::new(scanner.position(), "type", message));
            };
            if record_ttl.is_none() && word.raw.first().is_some_and(u8::is_ascii_digit) && !word.quoted {
                record_ttl = Some(self.ttl(&word)?);
            } else if class.is_none()
                && let Some(found) = read_class(&word)
            {
                if found != Class::IN {
                    return Err(expected_but(&word, "class IN, the only one that is served", "class"));
                }
                class = Some(found);
            } else {
                break read_type(&word)?;
            }
            next = scanner.word()?;
        };
        self.rtype = Some(rtype);
        if rtype.is_meta() {
            let message = format!("{rtype} is a type of queries and messages; a zone cannot contain it");
            return Err(Fault::new(at, "type", message));
        }
        rdata_in::read(rtype, scanner, scope.origin.as_ref(), &mut self.rdata)?;
        let Some(owner) = scope.owner.clone() else { return Ok(()) };
        scope.stated_ttl = record_ttl.or(scope.stated_ttl);
        // RFC 1035 §5.1: omitted TTLs "are default to the last explicitly stated values"; a `$TTL` replaces them (RFC 2308 §4).
        let known_ttl = record_ttl.or(scope.default_ttl);
        let inherited_ttl = scope.stated_ttl.filter(|_| S::INHERITS_TTL && known_ttl.is_none());
        if let Some(ttl) = inherited_ttl.filter(|_| !self.said_ttl_inherited) {
            self.said_ttl_inherited = true;
            let seconds = ttl.seconds();
            let message = format!(
                "no TTL here and no $TTL earlier: using the TTL of the last record that has one, {seconds} s (RFC 1035 \
                 §5.1); write a $TTL at the top"
            );
            self.push(at, Severity::Warning, "ttl-inherited", message);
        }
        let ttl = known_ttl.or(inherited_ttl);
        if S::INHERITS_TTL && rtype == RecordType::SOA && ttl.is_none() {
            // As in BIND: the minimum of an SOA without a TTL is like a `$TTL`, also after records with a TTL.
            scope.default_ttl = Some(minimum_of(&self.rdata));
        }
        let record = Record { owner, rtype, ttl, rdata: self.rdata.as_slice().into() };
        if let Some((code, message)) = self.sink.take(record, SourcePosition { file: self.file, at })? {
            self.push(at, Severity::Warning, code, message);
        }
        Ok(())
    }

    /// Reads a TTL; in a zone, a TTL that is too large counts as zero.
    fn ttl(&mut self, word: &Word<'_>) -> Result<Ttl, Fault> {
        if let Some(ttl) = ttl(word)? {
            return Ok(ttl);
        }
        if !S::TAKES_LARGE_TTL {
            return Err(not_a_ttl(word));
        }
        let message = format!("the TTL {} is greater than 2147483647; using 0 (RFC 2181 §8)", word.shown());
        self.push(word.at, Severity::Warning, "ttl-too-large", message);
        Ok(Ttl::default())
    }

    fn read_directive(
        &mut self,
        directive: &Word<'_>,
        scanner: &mut Scanner<'_>,
        scope: &mut Scope,
    ) -> Result<(), Fault> {
        let mut need = |what: &str| {
            let word = scanner.word()?;
            word.ok_or_else(|| {
                let message = format!("expected {what}, found the end of the line");
                Fault::new(scanner.position(), "directive", message)
            })
        };
        if directive.raw.eq_ignore_ascii_case(b"$ORIGIN") {
            let origin = name(&need("a domain name after $ORIGIN")?, scope.origin.as_ref())?;
            expect_end(scanner)?;
            scope.origin = Some(origin);
        } else if directive.raw.eq_ignore_ascii_case(b"$TTL") {
            let word = need("a TTL after $TTL")?;
            let default_ttl = self.ttl(&word)?;
            expect_end(scanner)?;
            scope.default_ttl = Some(default_ttl);
        } else if directive.raw.eq_ignore_ascii_case(b"$INCLUDE") {
            let file = need("a file after $INCLUDE")?;
            let origin = match scanner.word()? {
                Some(origin) => Some(name(&origin, scope.origin.as_ref())?),
                None => scope.origin.clone(),
            };
            expect_end(scanner)?;
            let mut inner = Scope { origin, ..scope.clone() };
            self.include(&file, &mut inner)?;
            // RFC 2308 §4: a $TTL holds for "all RRs appearing after the directive".
            (scope.default_ttl, scope.stated_ttl) = (inner.default_ttl, inner.stated_ttl);
        } else if directive.raw.eq_ignore_ascii_case(b"$GENERATE") {
            let range = generate::Range::parse(&need("a range start-stop after $GENERATE")?)?;
            let owner = need("an owner after the range")?;
            let template = scanner.rest_of_line();
            self.generate(directive.at, range, owner.raw, template, scope)?;
        } else {
            return Err(expected_but(directive, "$ORIGIN, $TTL, $INCLUDE or $GENERATE", "directive"));
        }
        Ok(())
    }

    fn include(&mut self, word: &Word<'_>, scope: &mut Scope) -> Result<(), Fault> {
        let fault = |message: String| Fault::new(word.at, "include", message);
        if self.open.len() > INCLUDE_DEPTH_MAX {
            let message =
                format!("includes are nested more than {INCLUDE_DEPTH_MAX} deep; check whether a file includes itself");
            return Err(fault(message));
        }
        if self.totals.included >= INCLUDES_MAX {
            return Err(fault(format!("the zone includes more than {INCLUDES_MAX} files")));
        }
        self.totals.included += 1;
        let mut file = Vec::new();
        push_text(word, &mut file)?;
        let file =
            String::from_utf8(file).map_err(|_| fault(format!("{} is not a file name in UTF-8", word.shown())))?;
        let includer = self.files[self.file as usize].clone();
        let (path, text) = self.includes.open(&includer, Path::new(&file)).map_err(fault)?;
        if self.open.iter().any(|file| self.files[*file as usize] == path) {
            return Err(fault(format!("{} includes itself", path.display())));
        }
        self.totals.included_octets += text.len() as u64;
        if self.totals.included_octets > INCLUDED_OCTETS_MAX {
            return Err(fault(format!("the zone's includes have more than {INCLUDED_OCTETS_MAX} bytes")));
        }
        let outer = self.file;
        self.file = self.files.len() as u32;
        self.files.push(path);
        self.open.push(self.file);
        self.read_file(&text, scope);
        self.open.pop();
        self.file = outer;
        Ok(())
    }

    fn generate(
        &mut self,
        at: Position,
        range: generate::Range,
        owner: &[u8],
        template: &[u8],
        outer: &mut Scope,
    ) -> Result<(), Fault> {
        self.totals.generated += range.count();
        if self.totals.generated > GENERATED_MAX {
            let message = format!("the zone's $GENERATE directives make more than {GENERATED_MAX} records");
            return Err(Fault::new(at, "generate", message));
        }
        let template = generate::without_quotes(template);
        let mut scope = outer.clone();
        let mut line = Vec::new();
        for number in range.numbers() {
            line.clear();
            for part in [owner, b" ", &*template] {
                generate::expand(part, number, &mut line).map_err(|message| Fault::new(at, "generate", message))?;
            }
            if line.len() > generate::LINE_OCTETS_MAX {
                let message = format!("a record of more than {} octets", generate::LINE_OCTETS_MAX);
                return Err(Fault::new(at, "generate", message));
            }
            let mut scanner = Scanner::made_at(&line, at);
            let Some(first) = scanner.word()? else { continue };
            scope.owner = Some(name(&first, scope.origin.as_ref())?);
            let next = scanner.word()?;
            // The first number with an invalid record represents all.
            self.read_record(at, next, &mut scanner, &mut scope)?;
        }
        outer.stated_ttl = scope.stated_ttl;
        Ok(())
    }
}

fn finding(
    files: &[Arc<Path>],
    place: SourcePosition,
    severity: Severity,
    code: &'static str,
    message: String,
) -> ZoneFinding {
    let SourcePosition { file, at: Position { line, column } } = place;
    ZoneFinding { severity, file: files[file as usize].clone(), line, column, message, code }
}

fn expect_end(scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    match scanner.word()? {
        Some(extra) => Err(expected_but(&extra, "the end of the line", "directive")),
        None => Ok(()),
    }
}

/// Returns the class in `word`, if it is one.
fn read_class(word: &Word<'_>) -> Option<Class> {
    // A word that begins with another letter is not a class; this saves the comparison for nearly every type.
    if word.quoted || !matches!(word.raw.first(), Some(b'I' | b'i' | b'C' | b'c' | b'H' | b'h')) {
        return None;
    }
    if word.raw.eq_ignore_ascii_case(b"IN") {
        return Some(Class::IN);
    }
    std::str::from_utf8(word.raw).ok()?.parse().ok()
}

fn read_type(word: &Word<'_>) -> Result<RecordType, Fault> {
    match word.raw {
        _ if word.quoted => {}
        b"A" => return Ok(RecordType::A),
        b"AAAA" => return Ok(RecordType::AAAA),
        b"NS" => return Ok(RecordType::NS),
        b"CNAME" => return Ok(RecordType::CNAME),
        b"TXT" => return Ok(RecordType::TXT),
        b"RRSIG" => return Ok(RecordType::RRSIG),
        b"NSEC3" => return Ok(RecordType::NSEC3),
        raw => {
            if let Some(rtype) = std::str::from_utf8(raw).ok().and_then(|text| text.parse().ok()) {
                return Ok(rtype);
            }
        }
    }
    Err(expected_but(word, "a record type (write a type without a name as TYPE123)", "type"))
}
