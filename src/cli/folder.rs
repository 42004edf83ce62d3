//! Zone files for a command that reads them once: one file, or all zones and all findings of a directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use signpost_dns::wire::Name;
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::folder::{FileChange, Folder, origin_by_name};
use signpost_dns::zonefile::include::{FolderIncludes, read_file};
use signpost_dns::zonefile::{CheckLevel, Severity, ZoneFinding, ZoneRead, read_zone_with};

/// Reads and checks a zone file, whose first origin is `origin` or its name.
pub(super) fn read(file: &Path, origin: Option<Name>) -> io::Result<ZoneRead> {
    let mut text = Vec::new();
    read_file(file, &mut text)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    let mut includes = FolderIncludes::new(file.parent().unwrap_or(Path::new("")));
    let origin = origin.or_else(|| origin_by_name(file));
    Ok(read_zone_with(&text, &Arc::from(file), origin, &mut includes, &CheckLevel::of_check(now, threads())))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The zones of a folder, in the order of their files.
#[derive(Debug, Default)]
pub(super) struct StaticZones {
    zones: Vec<(PathBuf, Contents)>,
    findings: Vec<ZoneFinding>,
}

impl StaticZones {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut all = StaticZones::default();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
        Folder::new(folder, threads())
            .rescan(
                |contents| contents,
                |change| match change {
                    FileChange::Serve { path, zone, findings, .. } => {
                        all.zones.push((path.to_path_buf(), zone));
                        all.findings.extend(findings);
                    }
                    FileChange::Refuse { findings, .. } => all.findings.extend(findings),
                    FileChange::Withdraw { .. } => {}
                },
            )
            .map_err(named)?;
        Ok(all)
    }

    /// Returns the errors among the findings.
    pub(super) fn errors(&self) -> impl Iterator<Item = &ZoneFinding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// Takes out the zone at `apex`, a name without a dot at the end.
    pub(super) fn take(&mut self, apex: &str) -> Option<Contents> {
        let apex: Name = apex.parse().ok()?;
        let at = self.zones.iter().position(|(_, zone)| *zone.apex() == apex)?;
        Some(self.zones.remove(at).1)
    }

    /// Returns the zones, each with its file.
    pub(super) fn into_zones(self) -> Vec<(PathBuf, Contents)> {
        self.zones
    }
}
