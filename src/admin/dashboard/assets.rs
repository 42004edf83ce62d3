//! The page, embedded in the program: markup, style, scripts, and a picture. There is no build step: these are the files in this
//! directory, and the browser loads the scripts as ES modules.

use std::sync::OnceLock;

use aws_lc_rs::digest::{self, SHA256};
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Name, kind and contents.
type Asset = (&'static str, &'static str, &'static str);

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        ($name, $kind, include_str!(concat!("assets/", $name)))
    };
}

const INDEX: Asset = asset!("index.html", HTML);
const ASSETS: &[Asset] = &[
    asset!("style.css", CSS),
    asset!("icon.svg", SVG),
    asset!("theme.js", JS),
    asset!("app.js", JS),
    asset!("help.js", JS),
    asset!("dom.js", JS),
    asset!("data.js", JS),
    asset!("plot.js", JS),
    asset!("words.js", JS),
    asset!("overview.js", JS),
    asset!("topology.js", JS),
    asset!("routes.js", JS),
    asset!("route.js", JS),
    asset!("router.js", JS),
    asset!("table.js", JS),
    asset!("advice.js", JS),
    asset!("shards.js", JS),
    asset!("zones.js", JS),
    asset!("zone.js", JS),
    asset!("sources.js", JS),
    asset!("events.js", JS),
    asset!("fleet.js", JS),
    asset!("traffic.js", JS),
];

/// Returns the page itself.
pub async fn index(headers: HeaderMap) -> Response {
    serve(&INDEX, &headers)
}

pub async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|(known, _, _)| *known == name) {
        Some(asset) => serve(asset, &headers),
        None => (StatusCode::NOT_FOUND, "file not found\n").into_response(),
    }
}

/// Returns one tag for all of them, so that a page never mixes files of two versions.
fn tag() -> &'static str {
    static TAG: OnceLock<String> = OnceLock::new();
    TAG.get_or_init(|| {
        let mut hash = digest::Context::new(&SHA256);
        for (_, _, text) in ASSETS.iter().chain([&INDEX]) {
            hash.update(text.as_bytes());
        }
        format!("\"{}\"", BASE64URL_NOPAD.encode(&hash.finish().as_ref()[..12]))
    })
}

fn serve((_, kind, text): &Asset, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag());
    let caching = [(header::ETAG, tag()), (header::CACHE_CONTROL, "no-cache")];
    match known {
        true => (StatusCode::NOT_MODIFIED, caching).into_response(),
        false => (caching, [(header::CONTENT_TYPE, *kind)], Body::from(*text)).into_response(),
    }
}
