//! Sends spans to a collector: OTLP over HTTP in protobuf, in batches, from a queue of fixed size.
//!
//! The encoding is that of OpenTelemetry's own crate; the connection is that of all outbound HTTP of Signpost. A batch that is
//! not accepted is sent again a few times, while the queue fills and then drops spans. Code that creates spans never waits and
//! gets no error. The log records when the collector stops responding and when it responds again, and `/metrics` counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, ResponseBodyTooLarge};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::trace::{Counters, Span};
use crate::trust;

/// The maximum number of spans per request: some hundred kilobytes.
const BATCH_MAX: usize = 512;
/// The wait of a batch's first span for others.
const GATHERED_WITHIN: Duration = Duration::from_secs(1);
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The delays before a failed batch is sent again; after the last retry, it is dropped.
const RETRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// The maximum time for the last batch when the process ends.
const LAST_WITHIN: Duration = Duration::from_secs(2);
/// The maximum length of a response in octets: it contains the number of rejected spans, and the reason.
const ANSWER_OCTETS_MAX: usize = 64 << 10;
/// The maximum size of the file of headers, in octets.
const HEADERS_OCTETS_MAX: u64 = 64 << 10;

/// The destination of spans, and their attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The URL of the collector.
    pub endpoint: String,
    /// A file with additional headers, one `Name: value` per line.
    pub headers: Option<PathBuf>,
    /// The CAs in PEM to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// The name of this service.
    pub service: String,
    /// The name of this process.
    pub instance: String,
}

/// Checks the URL of a collector. The path of a URL without one is `/v1/traces`.
///
/// # Errors
///
/// The reason why spans cannot be sent to it.
pub fn endpoint(text: &str) -> Result<String, trust::UrlError> {
    let url = trust::url(text)?;
    let bare = url.trim_end_matches('/');
    let is_bare = bare.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?']));
    Ok(if is_bare { format!("{bare}/v1/traces") } else { url })
}

/// Checks the name of a service.
///
/// # Errors
///
/// The form of a name.
pub fn service(text: &str) -> Result<String, &'static str> {
    let is_plain = text.bytes().all(|octet| octet.is_ascii_graphic()) && (1..=128).contains(&text.len());
    is_plain.then(|| text.to_owned()).ok_or("must be 1 to 128 ASCII characters without spaces")
}

/// The reason why spans cannot be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The CAs are invalid.
    #[error(transparent)]
    Authorities(#[from] trust::AuthoritiesError),
    /// The HTTP client cannot be created.
    #[error("failed to set up the export of spans: {0}")]
    Client(String),
}

/// The sender of spans.
pub struct Sender {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    endpoint: String,
    counters: Counters,
}

impl Sender {
    /// Reads the files and creates a client. Nothing is sent yet.
    pub fn new(settings: &Settings, counters: Counters) -> Result<Sender, SetupError> {
        let headers = settings.headers.as_deref().map(headers).transpose()?.unwrap_or_default();
        let client = trust::client(settings.authorities.as_deref())?.timeout(TIMEOUT).build();
        let client = Client(client.map_err(|error| SetupError::Client(error.to_string()))?);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(&settings.endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            // The exporter's own wait between retries would block a thread.
            .with_retry_policy(RetryPolicy::disabled())
            .with_headers(headers)
            .build()
            .map_err(|error| SetupError::Client(error.to_string()))?;
        let attributes = [
            KeyValue::new("service.name", settings.service.clone()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", settings.instance.clone()),
        ];
        exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        let scope = InstrumentationScope::builder("signpost").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Sender { exporter, scope, endpoint: settings.endpoint.clone(), counters })
    }

    /// Sends spans until `stop` fires, then the queued ones once.
    pub async fn run(self, mut spans: mpsc::Receiver<Span>, stop: CancellationToken) {
        let mut was_taken = true;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                () = stop.cancelled() => break,
                received = spans.recv_many(&mut batch, BATCH_MAX) => if received == 0 { break },
            }
            if batch.len() < BATCH_MAX {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(GATHERED_WITHIN) => {}
                }
                let room = BATCH_MAX - batch.len();
                (0..room).map_while(|_| spans.try_recv().ok()).for_each(|span| batch.push(span));
            }
            let taken = tokio::select! {
                taken = self.send(batch, &RETRIES) => taken,
                () = stop.cancelled() => break,
            };
            match (&taken, was_taken) {
                (Err(error), true) => {
                    tracing::warn!(endpoint = %self.endpoint, %error, "failed to send spans to the trace collector; dropping them");
                }
                (Ok(()), false) => tracing::info!(endpoint = %self.endpoint, "the trace collector accepts spans again"),
                _ => {}
            }
            was_taken = taken.is_ok();
        }
        let last: Vec<Span> = (0..BATCH_MAX).map_while(|_| spans.try_recv().ok()).collect();
        if !last.is_empty() {
            let _ = tokio::time::timeout(LAST_WITHIN, self.send(last, &[])).await;
        }
    }

    async fn send(&self, batch: Vec<Span>, retries: &[Duration]) -> Result<(), String> {
        let count = batch.len();
        let batch: Vec<SpanData> = batch.into_iter().map(|span| self.data(span)).collect();
        let mut pauses = retries.iter();
        loop {
            let error = match self.exporter.export(batch.clone()).await {
                Ok(()) => {
                    self.counters.count("sent", count);
                    return Ok(());
                }
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else {
                self.counters.count("failed", count);
                return Err(error.to_string());
            };
            tokio::time::sleep(*pause).await;
        }
    }

    fn data(&self, span: Span) -> SpanData {
        let Span { trace, id, parent, name, began, ended, attributes, fault } = span;
        let (trace, id) = (TraceId::from_bytes(trace), SpanId::from_bytes(id));
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: began,
            end_time: ended,
            attributes: attributes.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: fault.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The HTTP client, in the form for the exporter.
#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let mut response = self.0.execute(request.try_into()?).await?;
        let mut octets = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if octets.len() + chunk.len() > ANSWER_OCTETS_MAX {
                return Err(Box::new(ResponseBodyTooLarge::new()));
            }
            octets.extend_from_slice(&chunk);
        }
        let mut answer = http::Response::new(Bytes::from(octets));
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

/// Parses headers, one `Name: value` per line; empty lines and those that begin with `#` are ignored.
fn headers(path: &Path) -> Result<HashMap<String, String>, SetupError> {
    let at = |reason: String| SetupError::File { path: path.to_owned(), reason };
    if std::fs::metadata(path).map_err(|error| at(error.to_string()))?.len() > HEADERS_OCTETS_MAX {
        return Err(at(format!("is larger than {HEADERS_OCTETS_MAX} bytes; set a file of headers")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let is_good = name.parse::<http::HeaderName>().is_ok() && value.parse::<http::HeaderValue>().is_ok();
        // The exporter decodes percent signs.
        is_good.then(|| (name, value.replace('%', "%25")))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    // The line is not logged: it can contain a secret.
    lines
        .map(|(at_line, line)| {
            header(line).ok_or_else(|| at(format!("line {} is not of the form \"Name: value\"", at_line + 1)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("headers");
        std::fs::write(&path, "# for the collector\nAuthorization: Bearer a:b%20c\n\nx-tenant:shop\n")
            .expect("written");
        let read = headers(&path).expect("reads");
        assert_eq!(read["authorization"], "Bearer a:b%2520c");
        assert_eq!((read["x-tenant"].as_str(), read.len()), ("shop", 2));
        std::fs::write(&path, "x-tenant: shop\nsecret\n").expect("written");
        let error = headers(&path).expect_err("is refused").to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    }
}
