//! The infrastructure of every process, independent of any domain: the HTTP listener, TLS files and trust, telemetry, the clock.

#![forbid(unsafe_code)]

pub mod httpd;
pub mod tls;
pub mod trust;

pub mod telemetry;

pub mod causes;
pub mod clock;
pub mod ending;
