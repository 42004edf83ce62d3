//! The values of `strategy` and of the keys of the webhook.

use std::net::IpAddr;

use super::Strategy;
use signpost_control::scheduler::strategy::{StrategyName, UnknownStrategy};
use signpost_control::scheduler::webhook;

/// Any way of choosing.
pub(super) fn strategy(text: &str) -> Result<Strategy, String> {
    if text == webhook::NAME {
        return Ok(Strategy::Webhook);
    }
    let own = |error: UnknownStrategy| format!("{error}, and webhook asks an endpoint of yours");
    text.parse().map(Strategy::Own).map_err(own)
}

/// A strategy of ours: a fallback is what cannot fail.
pub(super) fn fallback(text: &str) -> Result<StrategyName, String> {
    text.parse().map_err(|error: UnknownStrategy| error.to_string())
}

/// A URL that can be posted to. User and password have no place in it: it is shown in settings and logs.
pub(super) fn url(text: &str) -> Result<String, String> {
    let parsed: Option<http::Uri> = text.parse().ok();
    let host =
        parsed.as_ref().filter(|url| matches!(url.scheme_str(), Some("http" | "https"))).and_then(http::Uri::host);
    match host {
        Some(host) if !host.is_empty() && !text.contains('@') => Ok(text.to_owned()),
        Some(_) => Err("must be a URL without user and password".to_owned()),
        None => Err("must be an https or http URL, such as https://placer.example/choose".to_owned()),
    }
}

/// Whether what is sent to this URL leaves the machine without TLS.
pub fn is_readable_on_its_way(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here =
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    url.scheme() == Some(&http::uri::Scheme::HTTP) && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, good) in [
            ("https://placer.example/choose", true),
            ("http://127.0.0.1:8080", true),
            ("http://[2001:db8::1]:8080/x?y=z", true),
            ("https://user:secret@placer.example/", false),
            ("ftp://placer.example/", false),
            ("placer.example/choose", false),
            ("/choose", false),
            ("https://", false),
            ("", false),
        ] {
            assert_eq!(url(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn plain_http_leaves_the_machine() {
        for (text, expected) in [
            ("http://placer.example/choose", true),
            ("HTTP://192.0.2.1:8080/", true),
            ("http://[2001:db8::1]/", true),
            ("http://localhost.placer.example/", true),
            ("http://127.0.0.1.placer.example/", true),
            ("https://placer.example/choose", false),
            ("http://127.0.0.1:8181/", false),
            ("http://[::1]:8181/", false),
            ("http://LOCALHOST/", false),
        ] {
            assert_eq!(is_readable_on_its_way(text), expected, "{text}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(strategy("webhook"), Ok(Strategy::Webhook));
        assert_eq!(strategy("weighted"), Ok(Strategy::Own(StrategyName::Weighted)));
        assert!(strategy("best").is_err_and(|error| error.contains("weighted") && error.contains("webhook")));
        assert!(fallback("webhook").is_err());
    }
}
