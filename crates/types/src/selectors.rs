//! The text form of label selectors.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt as _};

/// The maximum length of a term in messages: a term can list a thousand values.
const TERM_OCTETS_MAX: usize = 120;

/// Returns the first term of the selector that the labels do not match, such as `tier in (gold,silver)`. It is visible to every
/// user that can read the Router.
pub fn unmatched_term(selector: &Selector, labels: &BTreeMap<String, String>) -> Option<String> {
    let mut terms = selector.clone().into_iter();
    let mut text = terms.find(|term| !Selector::from(term.clone()).matches(labels))?.to_string();
    if text.len() > TERM_OCTETS_MAX {
        let end = (0..=TERM_OCTETS_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    Some(text)
}
