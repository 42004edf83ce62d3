//! The zones folder for a command that looks at it once: all zones and all findings.

use std::io;
use std::path::{Path, PathBuf};

use signpost_dns::wire::Name;
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::folder::{Change, Folder};
use signpost_dns::zonefile::{Finding, Severity};

/// The zones of a folder, in the order of their files.
#[derive(Debug, Default)]
pub(super) struct StaticZones {
    zones: Vec<(PathBuf, Contents)>,
    findings: Vec<Finding>,
}

impl StaticZones {
    /// Reads all of `folder`.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut all = StaticZones::default();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
        Folder::new(folder, threads)
            .rescan(
                |contents| contents,
                |change| match change {
                    Change::Serve { path, zone, findings, .. } => {
                        all.zones.push((path.to_path_buf(), zone));
                        all.findings.extend(findings);
                    }
                    Change::Refuse { findings, .. } => all.findings.extend(findings),
                    Change::Withdraw { .. } => {}
                },
            )
            .map_err(named)?;
        Ok(all)
    }

    /// The errors among the findings.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// Takes out the zone at `apex`, a name without a dot at the end.
    pub(super) fn take(&mut self, apex: &str) -> Option<Contents> {
        let apex: Name = apex.parse().ok()?;
        let at = self.zones.iter().position(|(_, zone)| *zone.apex() == apex)?;
        Some(self.zones.remove(at).1)
    }

    /// The zones, each with its file.
    pub(super) fn into_zones(self) -> Vec<(PathBuf, Contents)> {
        self.zones
    }
}
