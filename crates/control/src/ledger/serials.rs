//! The choice of the serial for a zone's next version.

use k8s_openapi::jiff::Timestamp;

use super::VERSIONS_MAX;
use crate::name_server::version_history::SERIAL_STRIDE;
use signpost_dns::zone::Serial;

/// The known state of the serial in the parent zone's file, under which that zone may have been served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseSerial {
    /// There is no such file.
    None,
    /// The serial in the file.
    Known(Serial),
    /// The files belong to another process. Most manual serials are the day and two digits, `2009092001`, far above the clock's:
    /// the first serial is above every such serial of the current day.
    Unknown,
}

impl BaseSerial {
    /// Returns the smallest first serial of the parent zone.
    pub(super) fn first_serial(self, unix_now: u64) -> Serial {
        match self {
            BaseSerial::None => Serial(unix_now as u32),
            BaseSerial::Known(serial) => Serial::next(with_room(serial), unix_now),
            BaseSerial::Unknown => {
                date_serial(unix_now).map_or(Serial(unix_now as u32), |serial| Serial::next(serial, unix_now))
            }
        }
    }
}

/// Returns the last of the serials that name servers may have used provisionally after `serial`, when they could not wait for the
/// ledger's next. See [`SERIAL_STRIDE`].
pub(super) fn with_room(serial: Serial) -> Serial {
    Serial(serial.0.wrapping_add(SERIAL_STRIDE - 1))
}

/// Returns the last serial of the form `YYYYMMDDnn` that is valid today in any time zone.
fn date_serial(unix_now: u64) -> Option<Serial> {
    const DAY: u64 = 86_400;
    let tomorrow = Timestamp::from_second(i64::try_from(unix_now + DAY).ok()?).ok()?;
    let digits: String = tomorrow.to_string().chars().filter(char::is_ascii_digit).take(8).collect();
    Some(Serial(digits.parse::<u32>().ok()?.checked_mul(100)?.checked_add(99)?))
}

/// The serials per second by which a restored zone advances, from its newest version in the backup to the restore: four changes
/// per second. The advance grows with time, so that a second restore of the same backup is newer than the first, too.
const RESTORED_PER_SECOND: i64 = SERIAL_STRIDE as i64 * 4;
/// The additional advance, for a burst of 125,000 changes.
const RESTORED_MORE: i64 = 1_000_000;
/// The largest advance: half of the range in which serials are comparable (RFC 1982 §3.2).
const RESTORED_MOST: i64 = 1 << 30;

/// Returns a `Zone` for a restore from a backup at `now`: its newest contents get a further version, with a serial later than any
/// that was issued since. Otherwise, name servers would have passed all serials of the ledger, each by its own count. `None`: the
/// zone has no version, and is restored unchanged.
pub fn after_restore(mut zone: serde_json::Value, now: Timestamp) -> Option<serde_json::Value> {
    let versions = zone.pointer_mut("/spec/versions")?.as_array_mut()?;
    let mut version = versions.first()?.clone();
    let serial = u32::try_from(version["serial"].as_u64()?).ok()?;
    let at: Timestamp = version["at"].as_str()?.parse().ok()?;
    let seconds = now.duration_since(at).as_secs().max(0);
    let jump = seconds.saturating_mul(RESTORED_PER_SECOND).saturating_add(RESTORED_MORE).min(RESTORED_MOST);
    let moved_on = serial.wrapping_add(u32::try_from(jump).unwrap_or(0));
    let unix_now = u64::try_from(now.as_second()).unwrap_or(0);
    version["serial"] = Serial::next(Serial(moved_on), unix_now).0.into();
    version["at"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    versions.insert(0, version);
    versions.truncate(VERSIONS_MAX);
    Some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_serial_of_the_parent_zone() {
        // 21 November 2026, around noon.
        let now = 1_795_262_400;
        for (base, expected) in [
            (BaseSerial::None, 1_795_262_400),
            (BaseSerial::Known(Serial(7)), 1_795_262_400),
            (BaseSerial::Known(Serial(2_009_092_001)), 2_009_092_009),
            (BaseSerial::Known(Serial(2_026_112_101)), 2_026_112_109),
            (BaseSerial::Known(Serial(u32::MAX)), 1_795_262_400),
            (BaseSerial::Known(Serial(3_942_746_040)), 3_942_746_048),
            // The day after, in the last time zone.
            (BaseSerial::Unknown, 2_026_112_300),
        ] {
            let first = base.first_serial(now);
            assert_eq!(first, Serial(expected), "{base:?}");
            if let BaseSerial::Known(serial) = base {
                assert!(first.is_after(serial), "{base:?}");
            }
        }
    }

    #[test]
    fn a_restored_zone_goes_on_later_than_anything_since() {
        let zone = |serial: u32, at: &str| {
            let version = serde_json::json!({"serial": serial, "digest": "00ff", "at": at});
            serde_json::json!({"metadata": {"name": "v3.example"}, "spec": {"type": "parent", "versions": vec![version; 16]}})
        };
        let restored = |zone: &serde_json::Value, now: &str| {
            let now: Timestamp = now.parse().expect("a time");
            let zone = after_restore(zone.clone(), now).expect("it has versions");
            let versions = zone["spec"]["versions"].as_array().expect("a list").clone();
            assert_eq!((versions.len(), &versions[0]["digest"]), (VERSIONS_MAX, &versions[1]["digest"]));
            Serial(u32::try_from(versions[0]["serial"].as_u64().expect("a number")).expect("32 bits"))
        };
        // A serial from a date, one from the clock, one about to wrap around, and an old one.
        for (serial, at) in [
            (2_026_112_116, "2026-11-21T12:00:00Z"),
            (1_795_262_400, "2026-11-21T12:00:00Z"),
            (u32::MAX - 7, "2026-11-21T12:00:00Z"),
            (1_795_262_400, "1990-01-01T00:00:00Z"),
        ] {
            let backup = zone(serial, at);
            let first = restored(&backup, "2026-11-22T00:00:00Z");
            let changed_since = Serial(serial.wrapping_add(100_000 * SERIAL_STRIDE));
            assert!(first.is_after(Serial(serial)) && first.is_after(changed_since), "{serial} {at} {first}");
            // All cases but the last, and but the case about to wrap around, which gets the clock's serial.
            if at.starts_with("2026") && serial < u32::MAX - 7 {
                let second = restored(&backup, "2026-11-22T00:01:00Z");
                assert!(second.is_after(Serial(first.0.wrapping_add(60 * SERIAL_STRIDE))), "{serial} {first} {second}");
            }
        }
        let none = serde_json::json!({"spec": {"type": "alias", "versions": []}});
        assert_eq!(after_restore(none, Timestamp::UNIX_EPOCH), None);
    }
}
