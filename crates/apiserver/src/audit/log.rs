//! The file of the audit log: a thread that writes lines, rotates the file when it is full, and reopens it on request.
//!
//! ```text
//!   requests ── bounded queue ──▶ writer ──▶ audit.log ──▶ audit.log.1 ──▶ audit.log.2 ──▶ audit.log.3
//! ```
//!
//! A rotation renames each file to the next name, and so replaces the oldest one.
//!
//! Requests never wait for the writer: if the queue is full, the line is lost and counted, and the process logs an error. The
//! writer passes lines to the system within milliseconds and does not sync them: a power failure can lose the last ones.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// The maximum number of queued lines: at 10,000 writes per second, this bridges a disk that stalls for most of a second.
const QUEUE_LINES_MAX: usize = 8_192;
/// The maximum number of queued octets.
const QUEUE_OCTETS_MAX: usize = 16 << 20;
/// The interval between log lines about a persistent error.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// The wait for further lines after an idle phase. Each wakeup of the writer costs as much as formatting ten lines.
const GATHER: Duration = Duration::from_millis(2);
/// The interval at which the writer checks for a request to reopen the file.
const WAKE_INTERVAL: Duration = Duration::from_millis(250);

/// Bounds of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum size of a file in octets. Then it is rotated.
    pub octets: u64,
    /// The number of files, including the current one; at least 1.
    pub files: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { octets: 64 << 20, files: 4 }
    }
}

/// The number of lines by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Handed to the system.
    pub written: u64,
    /// Lost, because the queue was full or the file could not be written.
    pub lost: u64,
    /// The number of omitted lines: clients without credentials sent too many.
    pub suppressed: u64,
}

#[derive(Default)]
struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    suppressed: AtomicU64,
    waiting_octets: AtomicUsize,
    reopen: AtomicBool,
}

/// A log that is written in the background. Dropping it stops the writer after it has written the queue.
pub struct Log {
    sender: Option<SyncSender<Vec<u8>>>,
    shared: Arc<Shared>,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Log {
    /// Opens the file, with mode 0600 if it is new, and starts the writer.
    pub fn open(path: &Path, bounds: Bounds) -> io::Result<Log> {
        let files = Files::open(path, bounds)?;
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = sync_channel(QUEUE_LINES_MAX);
        let writing = shared.clone();
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || run(files, &receiver, &writing))?;
        Ok(Log { sender: Some(sender), shared, writer: Some(writer) })
    }

    /// Queues a line, including its newline, without waiting; if the queue is full, the line is lost.
    pub fn write(&self, line: Vec<u8>) {
        let octets = line.len();
        let waiting = self.shared.waiting_octets.fetch_add(octets, Ordering::Relaxed);
        let sent = waiting + octets <= QUEUE_OCTETS_MAX
            && self.sender.as_ref().is_some_and(|sender| sender.try_send(line).is_ok());
        if !sent {
            self.shared.waiting_octets.fetch_sub(octets, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an event that was omitted on purpose.
    pub fn suppress(&self) {
        self.shared.suppressed.fetch_add(1, Ordering::Relaxed);
    }

    /// Reopens the file by its name within a second, for tools that rotate logs themselves.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Relaxed);
    }

    /// Returns the number of lines by outcome.
    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { written, lost, suppressed, .. } = &*self.shared;
        Counts { written: get(written), lost: get(lost), suppressed: get(suppressed) }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            // The panic handler has already logged a panic of the writer.
            let _ = writer.join();
        }
    }
}

fn run(mut files: Files, receiver: &Receiver<Vec<u8>>, shared: &Shared) {
    let mut complaints = ErrorLogLimiter::default();
    let mut unflushed = 0;
    loop {
        let received = match receiver.try_recv() {
            Err(TryRecvError::Empty) => {
                let flushed = files.flush();
                complaints.settle(&files.path, flushed, unflushed, shared);
                unflushed = 0;
                complaints.report(&files.path, shared);
                match receiver.recv_timeout(WAKE_INTERVAL) {
                    Ok(line) => {
                        // The thread sleeps instead of waiting at the queue: requests that arrive meanwhile cause no wakeup.
                        std::thread::sleep(GATHER);
                        Some(line)
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => None,
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            Err(TryRecvError::Disconnected) => break,
            Ok(line) => Some(line),
        };
        if shared.reopen.swap(false, Ordering::Relaxed) {
            let reopened = files.reopen();
            complaints.settle(&files.path, reopened, unflushed, shared);
            unflushed = 0;
        }
        let Some(line) = received else { continue };
        shared.waiting_octets.fetch_sub(line.len(), Ordering::Relaxed);
        match files.write(&line) {
            Ok(()) => unflushed += 1,
            failed => complaints.settle(&files.path, failed, 1, shared),
        }
    }
    let flushed = files.flush();
    complaints.settle(&files.path, flushed, unflushed, shared);
    complaints.report(&files.path, shared);
}

/// The rate limit of error messages.
#[derive(Default)]
struct ErrorLogLimiter {
    lost_reported: u64,
    reported: Option<Instant>,
    error: Option<io::Error>,
}

impl ErrorLogLimiter {
    /// Counts lines as written, or lost with the reason.
    fn settle(&mut self, _path: &Path, outcome: io::Result<()>, lines: u64, shared: &Shared) {
        match outcome {
            Ok(()) => {
                shared.written.fetch_add(lines, Ordering::Relaxed);
            }
            Err(error) => {
                shared.lost.fetch_add(lines, Ordering::Relaxed);
                self.error = Some(error);
            }
        }
    }

    fn report(&mut self, path: &Path, shared: &Shared) {
        let lost = shared.lost.load(Ordering::Relaxed);
        let due = self.reported.is_none_or(|reported| reported.elapsed() >= COMPLAINT_INTERVAL);
        if lost == self.lost_reported || !due {
            return;
        }
        let events = lost - self.lost_reported;
        match self.error.take() {
            Some(error) => {
                tracing::error!(%error, events, "audit events lost: failed to write {}", path.display())
            }
            None => {
                tracing::error!(events, "audit events lost: they arrive faster than {} can be written", path.display())
            }
        }
        (self.lost_reported, self.reported) = (lost, Some(Instant::now()));
    }
}

/// The current file, and the former ones.
struct Files {
    path: PathBuf,
    bounds: Bounds,
    file: BufWriter<File>,
    octets: u64,
}

impl Files {
    fn open(path: &Path, bounds: Bounds) -> io::Result<Files> {
        let file = BufWriter::with_capacity(1 << 16, open(path)?);
        let octets = file.get_ref().metadata()?.len();
        Ok(Files { path: path.to_owned(), bounds, file, octets })
    }

    /// Returns the path of a file: 0 is the current one.
    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        PathBuf::from(name)
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.octets > 0 && self.octets + length > self.bounds.octets {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.octets += length;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Renames `audit.log` to `audit.log.1`, that one to `audit.log.2`, and so on. The last rename replaces the oldest file.
    fn rotate(&mut self) -> io::Result<()> {
        self.flush()?;
        let unless_absent = |outcome: io::Result<()>| match outcome {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        };
        if self.bounds.files <= 1 {
            unless_absent(std::fs::remove_file(&self.path))?;
        }
        for number in (1..self.bounds.files).rev() {
            unless_absent(std::fs::rename(self.numbered(number - 1), self.numbered(number)))?;
        }
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        let file = open(&self.path)?;
        self.octets = file.metadata()?.len();
        // Data that could not be flushed is dropped with the old file.
        let (_old, _unwritten) =
            std::mem::replace(&mut self.file, BufWriter::with_capacity(1 << 16, file)).into_parts();
        flushed
    }
}

/// Opens a file of the log for writing, with mode 0600 if it is new.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        for files in 1..=4 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("audit.log");
            let log = Log::open(&path, Bounds { octets: 100, files }).expect("opens");
            for number in 0..50 {
                log.write(format!("{number:09}\n").into_bytes());
            }
            drop(log);
            assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), files);
            let names = ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"];
            for (name, newest) in names.into_iter().take(files).zip([49, 39, 29, 19]) {
                let text = std::fs::read_to_string(folder.path().join(name)).expect("reads");
                assert_eq!(text.lines().count(), 10, "{files} files: {name}");
                assert!(text.ends_with(&format!("{newest:09}\n")), "{files} files: {name}: {text}");
            }
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
    }

    #[test]
    fn a_start_goes_on_where_the_last_one_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        for _ in 0..2 {
            Log::open(&path, Bounds::default()).expect("opens").write(b"line\n".to_vec());
        }
        assert_eq!(lines(&path), 2);
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("moved"));
        let log = Log::open(&path, Bounds::default()).expect("opens");
        log.write(b"one\n".to_vec());
        while log.counts().written < 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::rename(&path, &moved).expect("moves");
        log.reopen();
        log.write(b"two\n".to_vec());
        drop(log);
        assert_eq!((lines(&moved), lines(&path)), (1, 1));
    }

    #[test]
    fn nobody_waits_and_what_is_lost_is_counted() {
        // The writer never starts: lines beyond the queue are lost immediately.
        let (sender, _receiver) = sync_channel(4);
        let log = Log { sender: Some(sender), shared: Arc::default(), writer: None };
        for _ in 0..10 {
            log.write(b"line\n".to_vec());
        }
        log.write(vec![b'x'; QUEUE_OCTETS_MAX + 1]);
        assert_eq!(log.counts(), Counts { written: 0, lost: 7, suppressed: 0 });
        assert_eq!(log.shared.waiting_octets.load(Ordering::Relaxed), 4 * 5);
    }
}
