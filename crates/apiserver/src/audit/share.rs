//! Equal shares of the oldest part of the audit log.
//!
//! The total size of the log's files is limited, so old entries are removed. If that were simply the oldest file, one token with
//! many writes could remove all other users' entries. Instead, the oldest file is an archive. The next file to leave the log is
//! merged with it, and then the users with the most octets lose their own oldest entries until the rest fits. The entries of a
//! user with few writes stay as long as there is space for an equal share of all users.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The fields that are read from an event.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    user: User<'a>,
}

#[derive(Deserialize)]
struct User<'a> {
    #[serde(borrow)]
    username: Option<Cow<'a, str>>,
}

/// Writes the lines of `files`, which are in chronological order, into `archive`, at most `octets` of them. Missing files count
/// as empty. `archive` can be one of the files; it is replaced at the end, atomically.
pub(super) fn keep(files: &[&Path], archive: &Path, octets: u64) -> io::Result<()> {
    let mut of_users: HashMap<String, u64> = HashMap::new();
    each_line(files, |user, line| {
        match of_users.get_mut(user) {
            Some(sum) => *sum += line.len() as u64,
            None => drop(of_users.insert(user.to_owned(), line.len() as u64)),
        }
        Ok(())
    })?;
    let share = share(of_users.values().copied().collect(), octets);
    // From here: the number of octets that each user still loses.
    of_users.values_mut().for_each(|sum| *sum = sum.saturating_sub(share));
    let beside = beside(archive);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut kept = BufWriter::with_capacity(1 << 16, open(&beside)?);
    each_line(files, |user, line| match of_users.get_mut(user) {
        Some(excess @ 1..) => {
            *excess = excess.saturating_sub(line.len() as u64);
            Ok(())
        }
        _ => kept.write_all(line),
    })?;
    kept.flush()?;
    std::fs::rename(&beside, archive)
}

/// Opens a file of the log for writing, with mode 0600 if it is new.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn beside(archive: &Path) -> PathBuf {
    let mut name = archive.to_owned().into_os_string();
    name.push(".new");
    name.into()
}

fn each_line(files: &[&Path], mut each: impl FnMut(&str, &[u8]) -> io::Result<()>) -> io::Result<()> {
    for path in files {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let (mut reader, mut line) = (BufReader::with_capacity(1 << 16, file), Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            // A crash can cut off the last line.
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            let event = serde_json::from_slice::<Event<'_>>(&line).ok();
            each(event.as_ref().and_then(|event| event.user.username.as_deref()).unwrap_or_default(), &line)?;
            line.clear();
        }
    }
    Ok(())
}

/// Returns the largest share with which all of these sums, each cut to the share, are `octets` at most together.
fn share(mut sums: Vec<u64>, octets: u64) -> u64 {
    sums.sort_unstable();
    let (mut left, mut users) = (octets, sums.len() as u64);
    for sum in sums {
        let equal = left / users;
        if sum > equal {
            return equal;
        }
        (left, users) = (left - sum, users - 1);
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_flight() {
        for (sums, octets, expected) in [
            (&[][..], 100, u64::MAX),
            (&[40, 60], 100, u64::MAX),
            (&[1_000], 100, 100),
            (&[10, 1_000], 100, 90),
            (&[1_000, 10, 1_000], 100, 45),
            (&[50, 50, 50], 100, 33),
        ] {
            assert_eq!(share(sums.to_vec(), octets), expected, "{sums:?}");
        }
    }

    fn event(user: &str, number: usize) -> String {
        format!(
            "{{\"kind\":\"Event\",\"user\":{{\"groups\":[],\"username\":\"{user}\"}},\"auditID\":\"{number:06}\"}}\n"
        )
    }

    #[test]
    fn the_newest_entries_of_each_user_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (older, newer) = (folder.path().join("older"), folder.path().join("newer"));
        let quiet = event("quiet", 1) + &event("quiet\\u0021", 2);
        let loud: String = (0..1_000).map(|number| event("loud", number)).collect();
        std::fs::write(&older, format!("{quiet}no JSON\n{loud}")).expect("writes");
        std::fs::write(&newer, event("loud", 1_000) + "cut").expect("writes");
        let octets = 10 * event("loud", 0).len() as u64;
        for _ in 0..2 {
            keep(&[&older, &newer, &folder.path().join("absent")], &older, octets).expect("keeps");
            let kept = std::fs::read_to_string(&older).expect("reads");
            assert!(kept.len() as u64 <= octets, "{kept}");
            assert!(kept.starts_with(&format!("{quiet}no JSON\n")), "{kept}");
            assert!(kept.ends_with(&format!("{}cut\n", event("loud", 1_000))) && kept.contains("000999"), "{kept}");
            std::fs::write(&newer, "").expect("writes");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 2);
    }
}
