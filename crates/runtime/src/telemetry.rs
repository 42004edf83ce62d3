//! Logs: events of `tracing` on standard error, as text or as JSON, at a level that can be changed at run time. Metrics are written
//! to a [`page`] at each scrape.

pub mod page;

use std::io::IsTerminal;

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// The format of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text lines, in color on a terminal.
    Human,
    /// One JSON object per line.
    Json,
}

/// The error of a change of the level.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// The text is neither a level nor a list of directives.
    #[error(transparent)]
    Form(ParseError),
    /// The filter rejects the change.
    #[error(transparent)]
    Log(reload::Error),
}

/// The running log, with which the level can be changed.
#[derive(Clone)]
pub struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Log {
    /// Changes the level. `level` is a level or directives of `tracing_subscriber::EnvFilter`; others change nothing and
    /// are returned.
    pub fn set_level(&self, level: &str) -> Result<(), LevelError> {
        let filter = parse(level).map_err(LevelError::Form)?;
        self.filter.reload(filter).map_err(LevelError::Log)
    }
}

/// Starts logging, for the whole process. A second call in one process changes nothing and returns `None`.
pub fn init(level: &str, format: Format) -> Option<Log> {
    let (filter, handle) = reload::Layer::new(parse(level).unwrap_or_else(|_| EnvFilter::new("info")));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let layer = fmt::layer().with_writer(std::io::stderr).with_span_events(FmtSpan::NONE);
    let layer = match format {
        Format::Human => layer.with_ansi(colour).with_target(false).boxed(),
        Format::Json => layer.with_ansi(false).json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(layer).try_init().ok()?;
    Some(Log { filter: handle })
}

/// Checks a level, or directives such as `info,signpost=debug`.
///
/// # Errors
///
/// The form of a level.
pub fn level(text: &str) -> Result<String, &'static str> {
    match text.parse::<EnvFilter>() {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err("must be error, warn, info, debug, or trace, or directives such as info,signpost=debug"),
    }
}

/// The Kubernetes client logs each failed request; the caller does so as well, and can decide whether it matters. An operator's
/// own directive for it overrides this one, because it comes later.
const QUIET: &str = "kube_client=off";

fn parse(level: &str) -> Result<EnvFilter, ParseError> {
    format!("{QUIET},{level}").parse()
}
