//! The negotiation of response formats, by the `Accept` header, and of body formats.

use http::{HeaderMap, header};

use super::error::ApiError;

/// The format of the response for an object, a list, or a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The objects.
    Objects(Text),
    /// A table with the kind's columns, as `kubectl get` prints it.
    Table(MetaVersion),
    /// The metadata only.
    Metadata(MetaVersion),
}

/// A version of the group `meta.k8s.io`, with tables and partial metadata. They are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// Returns the `apiVersion` of a table.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The text format of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The formats on offer for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// An object or a list: all formats.
    Object,
    /// A watch: no YAML.
    Watch,
    /// A watch with bookmarks: no table either, since a bookmark has no row.
    WatchWithBookmarks,
}

const OFFERED: &str = "application/json, application/yaml";

/// A media type of an `Accept` header with its parameters.
pub struct MediaRange<'a> {
    /// Such as `application/json`, in lower case.
    pub media_type: String,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl MediaRange<'_> {
    /// Returns the value of a parameter, or empty text.
    pub fn parameter(&self, key: &str) -> &str {
        self.parameters.iter().find(|(found, _)| *found == key).map_or("", |(_, value)| value)
    }
}

/// Returns the ranges of the `Accept` header, most wanted first; `*/*` if there is none.
pub fn accepted(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges: Vec<MediaRange<'_>> = values.flat_map(|value| value.split(',')).filter_map(media_range).collect();
    if ranges.is_empty() {
        ranges.extend(media_range("*/*"));
    }
    // A stable sort: among equal weights, the client's order is kept.
    ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    ranges
}

fn media_range(text: &str) -> Option<MediaRange<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| !media_type.is_empty())?.to_ascii_lowercase();
    let parameters: Vec<_> =
        parts.filter_map(|part| part.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect();
    let quality = parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, value)| value.parse().ok());
    Some(MediaRange { media_type, parameters, quality: quality.unwrap_or(1.0) })
}

/// Returns the first format the client takes and we have; 406 if there is none.
pub fn format(headers: &HeaderMap, offer: Offer) -> Result<Format, ApiError> {
    for range in accepted(headers) {
        let text = match range.media_type.as_str() {
            "application/json" | "application/*" | "*/*" => Text::Json,
            "application/yaml" if offer == Offer::Object => Text::Yaml,
            _ => continue,
        };
        let version = match (range.parameter("g"), range.parameter("v")) {
            ("meta.k8s.io", "v1") => Some(MetaVersion::V1),
            ("meta.k8s.io", "v1beta1") => Some(MetaVersion::V1Beta1),
            _ => None,
        };
        match (range.parameter("as"), version) {
            ("", _) => return Ok(Format::Objects(text)),
            ("Table", Some(version)) if offer != Offer::WatchWithBookmarks => return Ok(Format::Table(version)),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", Some(version)) => {
                return Ok(Format::Metadata(version));
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable(OFFERED))
}

/// Returns the media type of the body in lower case and without parameters; empty if there is none.
pub fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn formats() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let json = Format::Objects(Text::Json);
        for (accept, offer, expected) in [
            ("", Offer::Object, Some(json)),
            ("*/*", Offer::Object, Some(json)),
            ("application/json", Offer::Watch, Some(json)),
            ("application/yaml", Offer::Object, Some(Format::Objects(Text::Yaml))),
            ("application/yaml", Offer::Watch, None),
            ("application/vnd.kubernetes.protobuf,application/json", Offer::Object, Some(json)),
            ("application/vnd.kubernetes.protobuf", Offer::Object, None),
            ("text/html", Offer::Object, None),
            ("text/html;q=0.9, application/json;q=0.1", Offer::Object, Some(json)),
            (table, Offer::Object, Some(Format::Table(MetaVersion::V1))),
            (table, Offer::Watch, Some(Format::Table(MetaVersion::V1))),
            (table, Offer::WatchWithBookmarks, None),
            (&format!("{table},application/json"), Offer::WatchWithBookmarks, Some(json)),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Offer::Object,
                Some(Format::Table(MetaVersion::V1Beta1)),
            ),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Offer::Object, Some(json)),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Offer::Object,
                Some(Format::Metadata(MetaVersion::V1)),
            ),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("a header"));
            }
            assert_eq!(format(&headers, offer).ok(), expected, "{accept}");
        }
    }
}
