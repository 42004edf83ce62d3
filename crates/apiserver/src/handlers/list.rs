//! GET of a collection: lists, with all pages from one snapshot.
//!
//! The newest state, and the first page of it, comes from the cache. Later pages do as well while the kind has not changed since
//! the first. Otherwise, they come from the store's history, like lists at an exact revision, so that all pages have the revision
//! of the first.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::get::{resource_version, wait_for};
use crate::cause::Cause;
use crate::continue_token::ContinueToken;
use crate::damaged::DamagedKey;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::negotiate::{self, Format, MetaVersion, Offer, Text};
use crate::object::Object;
use crate::selector::Selector;
use crate::store::{self, Key, Revision};
use crate::table::{self, Include, Rows};
use crate::watch_cache::Snapshot;
use crate::work::{self, OBJECTS_LARGE};
use crate::{representation, respond};

/// The number of objects per read from the store.
const STORE_PAGE_OBJECTS: usize = 1_000;
/// The size of a piece of the response: large enough that its cost is copying, small enough that a list of 100,000 objects is
/// never in memory twice.
const CHUNK_OCTETS: usize = 256 * 1024;

/// Part of a collection.
struct Page {
    revision: u64,
    objects: Vec<Arc<Object>>,
    /// The unreadable objects in the list; all of them are on the first page.
    damaged: Vec<DamagedKey>,
    /// The start of the next page, if there is one.
    next: Option<ContinueToken>,
    remaining: Option<u64>,
}

/// Answers a list.
pub(crate) async fn list(call: &Call<'_>) -> Result<Response, ApiError> {
    let kind = call.resource.kind;
    let format = negotiate::format(call.headers, Offer::Object)?;
    let include = Include::parse(&call.query)?;
    let selector = Selector::parse(kind, call.query.text("labelSelector"), call.query.text("fieldSelector"))?;
    if call.query.get("sendInitialEvents").is_some() {
        return Err(forbidden_option("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    let mut page = match page(call, &selector).await? {
        Ok(page) => page,
        Err(expired) => return Ok(expired),
    };
    let warnings = show_damaged(call, &selector, &mut page);
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = &mut page.next {
        if selector.is_everything() {
            // The next page subtracts from this count, so that only one page of a list has to count.
            let remaining = match page.remaining {
                Some(remaining) => remaining,
                None => count(call, page.revision, &token.after).await?,
            };
            token.remaining = Some(remaining);
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata["continue"] = token.encode().into();
    }
    let mut response = write(call, format, include, metadata, page.objects).await;
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Adds placeholders of damaged objects to a page. Returns the warnings.
fn show_damaged(call: &Call<'_>, selector: &Selector, page: &mut Page) -> Vec<String> {
    let objects = placeholders(call, selector, &page.damaged);
    if objects.is_empty() {
        return Vec::new();
    }
    let warn = |object: &Arc<Object>| {
        format!("the stored value of {} is damaged; the list shows it without its contents", object.key())
    };
    let warnings = objects.iter().map(warn).collect();
    page.objects.extend(objects);
    // A later page starts after the last object.
    if page.next.is_none() {
        page.objects.sort_by(|a, b| a.key().cmp(b.key()));
    }
    warnings
}

/// Returns the placeholders of those damaged objects that the selector may take.
pub(crate) fn placeholders(call: &Call<'_>, selector: &Selector, damaged: &[DamagedKey]) -> Vec<Arc<Object>> {
    let kind = call.server.cache.kind_cache(call.resource.kind).kind;
    let marks = call.server.kinds.damage_marks();
    let is_distinct = marks.distinguishes_placeholders(call.headers);
    let objects = damaged.iter().filter_map(|lost| marks.placeholder(kind, lost, is_distinct));
    objects.filter(|object| !selector.excludes(object)).collect()
}

/// Returns the error of a request that needs the contents of damaged objects.
pub(crate) fn damaged_objects(call: &Call<'_>, objects: &[Arc<Object>]) -> ApiError {
    let prefix = call.resource.kind.key_prefix;
    ApiError::damaged(&objects.iter().map(|object| format!("{prefix}{}", object.key())).collect::<Vec<_>>())
}

/// Returns the requested page, or the 410 that carries a token to continue.
async fn page(call: &Call<'_>, selector: &Selector) -> Result<Result<Page, Response>, ApiError> {
    let query = &call.query;
    // 0 means the same as no limit.
    let limit =
        query.number("limit")?.filter(|limit| *limit > 0).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let version = resource_version(query.get("resourceVersion"))?;
    let exact = match query.text("resourceVersionMatch") {
        "" => version.is_some_and(|version| version > 0) && limit.is_some(),
        _ if query.get("continue").is_some() => {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            return Err(forbidden_option("resourceVersionMatch", why));
        }
        _ if version.is_none() => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(forbidden_option("resourceVersionMatch", why));
        }
        "NotOlderThan" => false,
        "Exact" if version == Some(0) => {
            let why = "resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"";
            return Err(forbidden_option("resourceVersionMatch", why));
        }
        "Exact" => true,
        other => {
            let message = format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\"");
            return Err(invalid_options(Cause::new("FieldValueNotSupported", "resourceVersionMatch", message)));
        }
    };
    if let Some(token) = query.get("continue") {
        if version.is_some_and(|version| version > 0) {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        return continued(call, selector, ContinueToken::decode(token)?, limit).await;
    }
    let from_cache = match version {
        None => call.server.cache.is_current(&*call.server.store).await?,
        Some(wanted) if exact => {
            if call.server.cache.applied() < wanted {
                wait_for(call, wanted).await?;
            }
            return from_store(call, selector, Some(wanted), None, limit).await.map(Ok);
        }
        Some(0) => true,
        Some(wanted) => {
            wait_for(call, wanted).await?;
            true
        }
    };
    if !from_cache {
        return from_store(call, selector, None, None, limit).await.map(Ok);
    }
    let is_large = !selector.is_everything() && call.server.cache.kind_cache(call.resource.kind).len() >= OBJECTS_LARGE;
    let _permit = call.work.permit(is_large).await;
    Ok(Ok(work::beside(is_large, || cached(call, selector, limit))))
}

/// Returns the first page, from the cache.
fn cached(call: &Call<'_>, selector: &Selector, limit: Option<usize>) -> Page {
    let kind = call.resource.kind;
    let cache = &call.server.cache;
    let prefix = call.resource.prefix();
    let Some(limit) = limit else {
        let Snapshot { revision, mut objects, damaged } = cache.snapshot(kind, &prefix);
        if !selector.is_everything() {
            objects.retain(|object| selector.matches(kind, object));
        }
        return Page { revision, objects, damaged, next: None, remaining: None };
    };
    let wanted = |object: &Object| selector.matches(kind, object);
    let wanted: Option<&dyn Fn(&Object) -> bool> = if selector.is_everything() { None } else { Some(&wanted) };
    let (Snapshot { revision, objects, damaged }, remaining) = cache.page(kind, &prefix, limit, wanted);
    let next = objects.last().filter(|_| remaining > 0).map(|last| token(revision, &last.key()[prefix.len()..]));
    Page { revision, objects, damaged, next, remaining: Some(remaining as u64) }
}

/// Returns a later page. If its revision is no longer available, returns a 410 with a token to continue.
async fn continued(
    call: &Call<'_>,
    selector: &Selector,
    token: ContinueToken,
    limit: Option<usize>,
) -> Result<Result<Page, Response>, ApiError> {
    let known = token.remaining.filter(|_| token.revision.is_some());
    if let (Some(revision), Some(limit), true) = (token.revision, limit, selector.is_everything()) {
        let (kind, prefix) = (call.resource.kind, call.resource.prefix());
        let after = format!("{prefix}{}", token.after);
        if let Some((objects, more)) = call.server.cache.page_after(kind, &prefix, &after, limit, revision) {
            let next = objects.last().filter(|_| more);
            let next = next.map(|last| self::token(revision, &last.key()[prefix.len()..]));
            let remaining = known.map(|known| known.saturating_sub(objects.len() as u64));
            return Ok(Ok(Page { revision, objects, damaged: Vec::new(), next, remaining }));
        }
    }
    match from_store(call, selector, token.revision, Some(&token.after), limit).await {
        Ok(mut page) => {
            page.damaged.clear();
            page.remaining = known.map(|known| known.saturating_sub(page.objects.len() as u64)).or(page.remaining);
            Ok(Ok(page))
        }
        Err(error) if error.code == 410 => {
            let go_on = ContinueToken { revision: None, after: token.after, remaining: None };
            let error = ApiError::expired(
                "The provided continue parameter is too old: the list it belongs to is no longer kept. Restart the \
                 list without it, or continue with the token in this response: the rest is then listed at the current \
                 version, and objects that changed in the meantime can be missing or listed twice.",
            );
            let mut status = error.status();
            status["metadata"]["continue"] = go_on.encode().into();
            let mut response = error.into_response();
            *response.body_mut() = Body::from(status.to_string());
            Ok(Err(response))
        }
        Err(error) => Err(error),
    }
}

/// Returns the place of the next page.
fn token(revision: u64, after: &str) -> ContinueToken {
    ContinueToken { revision: Some(revision), after: after.to_owned(), remaining: None }
}

/// Returns the number of objects after the key `after` in the snapshot of `revision`.
async fn count(call: &Call<'_>, revision: u64, after: &str) -> Result<u64, ApiError> {
    let prefix = Key::below(call.resource.kind.key_prefix, &call.resource.prefix());
    let mut from = Key::below(&prefix.0, &format!("{after}\0"));
    let mut count = 0;
    loop {
        let page =
            call.server.store.list(&prefix, Some(&from), Some(Revision(revision)), Some(STORE_PAGE_OBJECTS)).await?;
        count += page.items.len() as u64;
        match page.items.last() {
            Some(last) if page.more => from = Key::below(&last.key.0, "\0"),
            _ => return Ok(count),
        }
    }
}

/// Returns a page from the store's history.
async fn from_store(
    call: &Call<'_>,
    selector: &Selector,
    at: Option<u64>,
    after: Option<&str>,
    limit: Option<usize>,
) -> Result<Page, ApiError> {
    let kind = call.server.cache.kind_cache(call.resource.kind).kind;
    let within = call.resource.prefix();
    let prefix = Key::below(kind.key_prefix, &within);
    let limit = limit.unwrap_or(usize::MAX);
    let mut from = after.map(|after| Key::below(&prefix.0, &format!("{after}\0")));
    let mut at = at.map(Revision);
    let (mut objects, mut damaged): (Vec<Arc<Object>>, Vec<DamagedKey>) = Default::default();
    loop {
        // Without a selector, every value matches; with a selector, the page may need more values.
        let want = match selector.is_everything() {
            true => STORE_PAGE_OBJECTS.min(limit - objects.len()),
            false => STORE_PAGE_OBJECTS,
        };
        let page = match call.server.store.list(&prefix, from.as_ref(), at, Some(want)).await {
            Ok(page) => page,
            Err(store::Error::Future { newest }) => {
                return Err(ApiError::version_too_large(at.map_or(0, |at| at.0), newest.0));
            }
            Err(error) => return Err(error.into()),
        };
        at = Some(page.at);
        let lost = |damaged: &store::Damaged| (damaged.key.relative(kind.key_prefix).into(), damaged.modified.0);
        damaged.extend(page.damaged.iter().map(lost));
        let count = page.items.len();
        let is_large = count >= OBJECTS_LARGE;
        let _permit = call.work.permit(is_large).await;
        let last = work::beside(is_large, || {
            for (index, item) in page.items.iter().enumerate() {
                let key = item.key.relative(kind.key_prefix);
                let Ok(object) = Object::from_stored(kind, key, &item.value, item.modified.0) else {
                    damaged.push((key.into(), item.modified.0));
                    continue;
                };
                if selector.matches(call.resource.kind, &object) {
                    objects.push(Arc::new(object));
                }
                if objects.len() == limit {
                    return Some((index, key));
                }
            }
            None
        });
        if let Some((index, key)) = last {
            let more = page.more || index + 1 < count;
            let next = more.then(|| token(page.at.0, &key[within.len()..]));
            return Ok(Page { revision: page.at.0, objects, damaged, next, remaining: page.remaining });
        }
        match page.items.last() {
            Some(last) if page.more => from = Some(Key::below(&last.key.0, "\0")),
            _ => return Ok(Page { revision: page.at.0, objects, damaged, next: None, remaining: None }),
        }
    }
}

/// Writes a list of objects in pieces. Each piece of a large list needs a permit, so that many lists of one user do not delay those
/// of others; a slow client holds none.
pub(crate) async fn write(
    call: &Call<'_>,
    format: Format,
    include: Include,
    metadata: Value,
    objects: Vec<Arc<Object>>,
) -> Response {
    let kind = call.resource.kind;
    let is_large = objects.len() >= OBJECTS_LARGE;
    let list_kind = format!("{}List", kind.kind);
    let head = match format {
        Format::Table(version) => table::head(kind, &metadata, true, version),
        Format::Metadata(version) => list_head("PartialObjectMetadataList", version.api_version(), &metadata),
        Format::Objects(Text::Json) => list_head(&list_kind, &kind.api_version(), &metadata),
        Format::Objects(Text::Yaml) => {
            let _permit = call.work.permit(is_large).await;
            return work::beside(is_large, || {
                let items: Vec<Value> = objects.iter().map(|object| representation::tree(kind, object)).collect();
                let list =
                    json!({"kind": list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": items});
                respond::yaml(StatusCode::OK, &list)
            });
        }
    };
    let version = match format {
        Format::Table(version) | Format::Metadata(version) => version,
        Format::Objects(_) => MetaVersion::V1,
    };
    let rows = Rows::new(kind, include, version);
    let writer = Writer { kind, format, rows, chunk: head, objects: objects.into(), first: true, done: false };
    let state = (writer, call.work.clone());
    let chunks = futures::stream::unfold(state, move |(mut writer, work)| async move {
        let permit = work.permit(is_large).await;
        let chunk = writer.next()?;
        drop(permit);
        Some((chunk, (writer, work)))
    });
    respond::stream(chunks)
}

fn list_head(kind: &str, api_version: &str, metadata: &Value) -> Vec<u8> {
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#).into_bytes()
}

struct Writer {
    kind: &'static Kind,
    format: Format,
    rows: Rows,
    chunk: Vec<u8>,
    objects: VecDeque<Arc<Object>>,
    first: bool,
    done: bool,
}

impl Writer {
    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let now = jiff::Timestamp::now().as_second();
        let mut chunk = std::mem::take(&mut self.chunk);
        while chunk.len() < CHUNK_OCTETS {
            let Some(object) = self.objects.pop_front() else {
                chunk.extend_from_slice(b"]}");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                chunk.push(b',');
            }
            match self.format {
                Format::Table(_) => self.rows.write(&mut chunk, &object, now),
                Format::Metadata(version) => chunk.extend_from_slice(&representation::metadata(&object, version)),
                Format::Objects(_) => representation::write_json(&mut chunk, self.kind, &object),
            }
        }
        self.chunk = Vec::with_capacity(if self.done { 0 } else { CHUNK_OCTETS + 4096 });
        Some(chunk.into())
    }
}

fn forbidden_option(field: &str, why: &str) -> ApiError {
    invalid_options(Cause::forbidden(field, why))
}

/// Returns 422 for an option of a list or a watch.
pub(crate) fn invalid_options(cause: Cause) -> ApiError {
    ApiError::invalid_of("ListOptions", "meta.k8s.io", "", vec![cause])
}
