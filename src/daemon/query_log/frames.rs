//! Frame Streams, the container of dnstap: a file, or a Unix socket with a handshake (`fstrm`'s protocol).
//!
//! ```text
//!   file:    START  data…  STOP
//!   socket:  READY →  ← ACCEPT  START →  data… →  STOP →  ← FINISH
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";
/// The types of control frames.
const ACCEPT: u32 = 1;
const START: u32 = 2;
const STOP: u32 = 3;
const READY: u32 = 4;
const FINISH: u32 = 5;
const FIELD_CONTENT_TYPE: u32 = 1;
/// The maximum length of a control frame.
const CONTROL_OCTETS_MAX: u32 = 512;
/// The maximum wait for the receiver: for a connection, its part of the handshake, or space in its buffer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// A stream in a file.
pub struct FrameFile(File);

impl FrameFile {
    /// Creates a file. An existing one gets the suffix `.1`, because a stream cannot be continued.
    pub fn create(path: &Path) -> io::Result<FrameFile> {
        if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0) {
            let mut former = path.as_os_str().to_owned();
            former.push(".1");
            std::fs::rename(path, PathBuf::from(former))?;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(path)?;
        file.write_all(&control(START))?;
        Ok(FrameFile(file))
    }
}

impl Write for FrameFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for FrameFile {
    fn drop(&mut self) {
        // Readers accept a stream without its end.
        let _ = self.0.write_all(&control(STOP));
    }
}

/// A stream to a receiver, which is connected as soon as there is one. Each write is a number of whole frames.
pub struct FrameSocket {
    path: PathBuf,
    stream: Option<UnixStream>,
    next_attempt: Option<Instant>,
}

impl FrameSocket {
    pub fn new(path: &Path) -> FrameSocket {
        FrameSocket { path: path.to_owned(), stream: None, next_attempt: None }
    }

    fn connected(&mut self) -> io::Result<&mut UnixStream> {
        if self.stream.is_none() {
            let now = Instant::now();
            if self.next_attempt.is_some_and(|next| now < next) {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the dnstap receiver is not connected"));
            }
            self.next_attempt = Some(now + RETRY);
            let stream = open(&self.path);
            self.stream = Some(
                stream.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))?,
            );
        }
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Write for FrameSocket {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        // All at once: after a part of a frame, the stream is unusable.
        let written = self.connected()?.write_all(octets);
        if written.is_err() {
            self.stream = None;
        }
        written.map(|()| octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FrameSocket {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.stream {
            let _ = stream.write_all(&control(STOP)).and_then(|()| expect(stream, FINISH));
        }
    }
}

fn open(path: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&control(READY))?;
    expect(&mut stream, ACCEPT)?;
    stream.write_all(&control(START))?;
    Ok(stream)
}

/// Reads a control frame, which must have this type.
fn expect(stream: &mut UnixStream, kind: u32) -> io::Result<()> {
    let mut read = || -> io::Result<u32> {
        let mut word = [0; 4];
        stream.read_exact(&mut word)?;
        Ok(u32::from_be_bytes(word))
    };
    let (escape, length, found) = (read()?, read()?, read()?);
    if escape != 0 || !(4..=CONTROL_OCTETS_MAX).contains(&length) || found != kind {
        let error = format!("the dnstap receiver sent the control frame {found} instead of {kind}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut rest = vec![0; length as usize - 4];
    stream.read_exact(&mut rest)
}

/// Returns a control frame: an escape of four zeros, its length, its type, and, except at the end, the content type.
fn control(kind: u32) -> Vec<u8> {
    let mut content = kind.to_be_bytes().to_vec();
    if kind != STOP && kind != FINISH {
        content.extend_from_slice(&FIELD_CONTENT_TYPE.to_be_bytes());
        content.extend_from_slice(&(CONTENT_TYPE.len() as u32).to_be_bytes());
        content.extend_from_slice(CONTENT_TYPE);
    }
    [&[0; 4][..], &(content.len() as u32).to_be_bytes(), &content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_existing_file_is_kept() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("queries.dnstap");
        for _ in 0..2 {
            FrameFile::create(&path).expect("created").write_all(b"frames").expect("written");
        }
        let expected = [control(START), b"frames".to_vec(), control(STOP)].concat();
        for path in [path, folder.path().join("queries.dnstap.1")] {
            assert_eq!(std::fs::read(path).expect("is there"), expected);
        }
    }

    #[test]
    fn a_receiver_that_starts_later_gets_the_frames() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("dnstap.sock");
        let mut socket = FrameSocket::new(&path);
        assert!(socket.write_all(b"lost").is_err());
        let listener = UnixListener::bind(&path).expect("a socket");
        let receiver = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a sender");
            expect(&mut stream, READY).expect("it is ready");
            stream.write_all(&control(ACCEPT)).expect("it reads");
            expect(&mut stream, START).expect("it starts");
            let mut frames = [0; 6];
            stream.read_exact(&mut frames).expect("frames");
            expect(&mut stream, STOP).expect("it stops");
            stream.write_all(&control(FINISH)).expect("it reads");
            frames
        });
        // Before the next attempt is due, it does not try.
        assert_eq!(socket.write_all(b"lost").expect_err("not yet").kind(), io::ErrorKind::NotConnected);
        socket.next_attempt = None;
        socket.write_all(b"frames").expect("connected");
        drop(socket);
        assert_eq!(&receiver.join().expect("it received all"), b"frames");
    }
}
