//! The client of the CA's renewal information (ARI, RFC 9773): the CA moves the time of renewal before it revokes a certificate, and to
//! spread its load. The time within a window follows from the certificate, so that each leader has the same.

use std::time::Duration;

use instant_acme::{CertificateIdentifier, Error};

use super::ca::SUGGESTED_AGAIN as AGAIN;
use super::context::Context;
use super::plan::{Issued, Subject, Window};

/// The shortest and the longest time between two requests that a CA can choose (RFC 9773 §4.3.2).
const INTERVAL: (i64, i64) = (60, 86_400);

/// A request without a suggestion.
struct Failure {
    /// The pause that the CA requires, in seconds.
    pause: i64,
    /// Whether the CA answers no other request either: not if it lacks this certificate.
    is_for_all: bool,
}

/// Returns the window in which the CA suggests to renew a certificate that is in use. Requests it when that is due.
pub(super) async fn window(context: &Context, subject: &Subject, issued: &Issued, now: i64) -> Option<Window> {
    let id = issued.id.as_deref().filter(|_| issued.directory == context.settings.ca.directory)?;
    let (former, is_due) = context.suggestions.of(subject, id, now);
    if !is_due {
        return former;
    }
    let (window, pause) = match request(context, id).await {
        Ok((window, seconds)) => (window, seconds.clamp(INTERVAL.0, INTERVAL.1)),
        Err(Failure { pause, is_for_all }) => {
            if is_for_all {
                context.suggestions.wait(now, pause);
            }
            (former, pause.max(AGAIN))
        }
    };
    context.suggestions.set(subject, id, window, now.saturating_add(pause));
    window
}

/// Returns the window, and the time until the next request in seconds.
async fn request(context: &Context, id: &str) -> Result<(Option<Window>, i64), Failure> {
    let failure =
        |pause: Option<Duration>, is_for_all| Failure { pause: seconds(pause.unwrap_or_default()), is_for_all };
    let session = context.session().await.map_err(|fault| failure(fault.retry_after, true))?;
    let id = identifier(id).ok_or(Failure { pause: 0, is_for_all: false })?;
    match session.account.renewal_info(&id).await {
        Ok((info, pause)) => {
            let window = info.suggested_window;
            Ok((Window::new(window.start.unix_timestamp(), window.end.unix_timestamp()), seconds(pause)))
        }
        Err(Error::Unsupported(_)) => Ok((None, AGAIN)),
        Err(error) => {
            let fault = session.failure(&error);
            tracing::debug!(reason = fault.reason, message = fault.message, "the CA suggested no time of renewal");
            Err(failure(fault.retry_after, session.is_refused()))
        }
    }
}

fn seconds(pause: Duration) -> i64 {
    i64::try_from(pause.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the identifier of a certificate in the form that the CA reads (RFC 9773 §4.1).
pub(super) fn identifier(id: &str) -> Option<CertificateIdentifier<'_>> {
    let (authority, serial) = id.split_once('.')?;
    Some(CertificateIdentifier { authority_key_identifier: authority.into(), serial: serial.into() })
}
