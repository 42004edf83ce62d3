//! The query log: a thread that takes records out of the workers' rings and writes them as lines or as dnstap messages.
//!
//! It has a separate thread because a write can block as long as the reader of the other end does, and neither a query nor a task
//! of the process may wait for that. While the log is off, the thread sleeps. While it is on, the thread empties the rings every
//! `LOOK`. Records that it cannot write are counted and dropped.

pub mod dnstap;
mod frames;
pub mod line;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::frames::{FrameFile, FrameSocket};
use crate::config::settings::QueryLog as Settings;
use crate::config::value::LogFormat;
use signpost_dns::transport::query_log::{QueryLogReceiver, RING_RECORDS};

/// The interval at which the rings are emptied: rare enough to cost nothing, frequent enough that a line appears immediately.
const LOOK: Duration = Duration::from_millis(50);

/// The number of octets after which lines are written before more are formatted.
const WRITE_OCTETS: usize = 64 * 1024;

/// The maximum wait of a stop, or of a change, for a writer that is blocked, such as in a pipe without a reader.
const END: Duration = Duration::from_secs(1);

/// The file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source} (--query-log-file)", path.display())]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

/// The running log.
pub struct QueryLog {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
pub struct Counts {
    written: AtomicU64,
    unwritten: AtomicU64,
}

impl Counts {
    /// Returns the number of written records.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the number of records that the file or standard output did not accept.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

struct Shared {
    /// The new settings, until the thread has applied them.
    next: Mutex<Option<(Settings, Sink)>>,
    stop: AtomicBool,
    counts: Arc<Counts>,
}

/// The destination of records: the file, the socket, or standard output without them. A log that is off opens nothing.
type Sink = Box<dyn Write + Send>;

fn open(settings: &Settings) -> Result<Sink, OpenError> {
    let is_dnstap = settings.format == LogFormat::Dnstap;
    if let Some(path) = settings.socket.as_ref().filter(|_| settings.sample > 0 && is_dnstap) {
        return Ok(Box::new(FrameSocket::new(path)));
    }
    let Some(path) = settings.file.as_ref().filter(|_| settings.sample > 0) else { return Ok(Box::new(io::stdout())) };
    let opened = match is_dnstap {
        true => FrameFile::create(path).map(|file| Box::new(file) as Sink),
        false => {
            let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path);
            file.map(|file| Box::new(file) as Sink)
        }
    };
    opened.map_err(|source| OpenError { path: path.clone(), source })
}

impl QueryLog {
    /// Starts to write the records from `receivers`. `identity` is the name of the server in dnstap messages.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the file cannot be opened.
    pub fn start(
        settings: &Settings,
        identity: Option<&str>,
        receivers: Vec<QueryLogReceiver>,
    ) -> Result<QueryLog, OpenError> {
        let sink = open(settings)?;
        let shared = Arc::new(Shared {
            next: Mutex::new(Some((settings.clone(), sink))),
            stop: AtomicBool::new(false),
            counts: Arc::default(),
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            receivers,
            identity: identity.map(str::to_owned),
            text: Vec::new(),
            is_failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("query-log".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| OpenError { path: PathBuf::from("query log"), source })?;
        Ok(QueryLog { shared, thread })
    }

    pub fn counts(&self) -> &Arc<Counts> {
        &self.shared.counts
    }

    /// Applies these settings, with the file reopened. They are in effect when this returns, unless the writer is blocked: then
    /// they take effect when it continues.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the file cannot be opened: then the log continues unchanged.
    pub async fn configure(&self, settings: &Settings) -> Result<(), OpenError> {
        let sink = open(settings)?;
        *self.shared.next.lock() = Some((settings.clone(), sink));
        self.thread.thread().unpark();
        let deadline = Instant::now() + END;
        while self.shared.next.lock().is_some() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Writes the remaining records and stops.
    pub async fn stop(self) {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let deadline = Instant::now() + END;
        while !self.thread.is_finished() {
            if Instant::now() > deadline {
                tracing::warn!("the query log is blocked in a write; unwritten records are lost");
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The state of the thread.
struct Writer {
    shared: Arc<Shared>,
    receivers: Vec<QueryLogReceiver>,
    identity: Option<String>,
    text: Vec<u8>,
    /// Whether the last write failed: only the first of consecutive failures is logged.
    is_failing: bool,
}

impl Writer {
    fn run(mut self) {
        let first = self.shared.next.lock().take();
        let Some((mut settings, mut sink)) = first else { return };
        loop {
            let is_last = self.shared.stop.load(Ordering::Acquire);
            self.drain(&settings, &mut sink);
            if is_last {
                return;
            }
            // The next settings stay pending until earlier records have reached their original destination.
            let mut next = self.shared.next.lock();
            if let Some(next) = next.take() {
                (settings, sink) = next;
                continue;
            }
            drop(next);
            match settings.sample {
                0 => std::thread::park(),
                _ => std::thread::park_timeout(LOOK),
            }
        }
    }

    /// Writes the current contents of the rings. After the log is turned off, these are the last recorded queries.
    fn drain(&mut self, settings: &Settings, sink: &mut Sink) {
        let mut records = 0;
        for at in 0..self.receivers.len() {
            for _ in 0..RING_RECORDS {
                let Some(record) = self.receivers[at].pop() else { break };
                if settings.sample == 0 {
                    continue;
                }
                let (text, clients) = (&mut self.text, settings.clients);
                match settings.format {
                    LogFormat::Json => line::json(text, &record, clients),
                    LogFormat::Text => line::columns(text, &record, clients),
                    LogFormat::Dnstap => dnstap::write(text, &record, clients, self.identity.as_deref()),
                }
                records += 1;
                if self.text.len() >= WRITE_OCTETS {
                    self.write(sink, std::mem::take(&mut records));
                }
            }
        }
        if records > 0 {
            self.write(sink, records);
        }
    }

    fn write(&mut self, sink: &mut Sink, records: u64) {
        let counts = &self.shared.counts;
        match sink.write_all(&self.text).and_then(|()| sink.flush()) {
            Ok(()) => {
                counts.written.fetch_add(records, Ordering::Relaxed);
                self.is_failing = false;
            }
            Err(error) => {
                counts.unwritten.fetch_add(records, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!("failed to write the query log: {error}; records are lost until writes succeed");
                }
            }
        }
        self.text.clear();
    }
}
