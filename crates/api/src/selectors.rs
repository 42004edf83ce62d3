//! Selectors of labels in words.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt as _};

/// The longest term that is told in full: one may list a thousand values.
const TERM_OCTETS_MAX: usize = 120;

/// The first term of the selector that labels do not match, such as `tier in (gold,silver)`. Whoever may see a Router may see that.
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
