//! `GET /backup`: all contents of the store at one moment, for users with access to that path: administrators.
//!
//! A thread writes the backup as fast as the client reads it; writes to the store continue meanwhile. Only one backup runs at a
//! time. A backup that is cut off lacks the hash at its end, so its reader detects that it is incomplete.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use tokio::sync::{Mutex, mpsc};

use super::error::ApiError;
use super::respond;

/// The path.
pub const PATH: &str = "/backup";
/// The size of a piece of the response in octets.
const PIECE_OCTETS: usize = 256 * 1024;
/// The maximum number of pieces that wait for the client.
const PIECES_WAITING_MAX: usize = 4;

/// Writes a backup. It can block, and ends with an error if the writer does.
pub type Source = Arc<dyn Fn(&mut dyn Write) -> Result<(), String> + Send + Sync>;

/// The source of backups, and the lock of the backup in progress.
#[derive(Default)]
pub(crate) struct BackupSlot {
    pub(crate) source: OnceLock<Source>,
    turn: Arc<Mutex<()>>,
}

/// Answers the path; `None` for others, and if the store does not support backups.
pub(crate) fn answer(place: &BackupSlot, path: &str, method: &Method) -> Option<Result<Response, ApiError>> {
    let source = place.source.get().filter(|_| path == PATH)?.clone();
    if *method != Method::GET {
        return Some(Err(ApiError::method_not_allowed()));
    }
    let Ok(turn) = place.turn.clone().try_lock_owned() else {
        return Some(Err(ApiError::too_many_requests()));
    };
    let (sender, mut pieces) = mpsc::channel::<io::Result<Bytes>>(PIECES_WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut to = BufWriter::with_capacity(PIECE_OCTETS, Pieces(sender.clone()));
        let written = source(&mut to).and_then(|()| to.flush().map_err(|error| error.to_string()));
        // After a failure, the rest is not sent.
        drop(to.into_parts());
        if let Err(error) = written {
            tracing::warn!(%error, "backup failed");
            // The connection breaks, so that the client does not take the part for a whole backup.
            let _ = sender.blocking_send(Err(io::Error::other(error)));
        }
    });
    let stream = futures::stream::poll_fn(move |context| pieces.poll_recv(context));
    let mut response = respond::text(StatusCode::OK, "").map(|_| Body::from_stream(stream));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Some(Ok(response))
}

/// Sends each write as a piece; fails when the client has disconnected.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.blocking_send(Ok(Bytes::copy_from_slice(octets))).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    fn place(source: impl Fn(&mut dyn Write) -> Result<(), String> + Send + Sync + 'static) -> BackupSlot {
        BackupSlot { source: OnceLock::from(Arc::new(source) as Source), ..BackupSlot::default() }
    }

    #[tokio::test]
    async fn what_is_written_arrives_in_order() {
        let place = place(|to| {
            (0..200_000_u32)
                .try_for_each(|number| to.write_all(&number.to_be_bytes()))
                .map_err(|error| error.to_string())
        });
        assert!(answer(&place, "/backups", &Method::GET).is_none());
        assert!(answer(&BackupSlot::default(), PATH, &Method::GET).is_none());
        assert!(answer(&place, PATH, &Method::POST).is_some_and(|answer| answer.is_err()));
        let response = answer(&place, PATH, &Method::GET).expect("is there").expect("is served");
        let second = answer(&place, PATH, &Method::GET).expect("is there");
        assert!(second.is_err_and(|error| error.code == 429), "one at a time");
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(body.len(), 800_000);
        assert!(body.chunks_exact(4).zip(0..).all(|(octets, number)| octets == u32::to_be_bytes(number)));
    }

    #[tokio::test]
    async fn a_failure_breaks_the_answer_off() {
        let place = place(|to| {
            to.write_all(b"begun").and_then(|()| to.flush()).map_err(|error| error.to_string())?;
            Err("the disk is gone".to_owned())
        });
        let response = answer(&place, PATH, &Method::GET).expect("is there").expect("is served");
        assert!(response.into_body().collect().await.is_err());
    }
}
