//! The lengths of texts that the platform itself writes into objects.

use std::borrow::Borrow;

/// The maximum length of a condition's message, in octets. The schema accepts eight times as many. The lower limit leaves room
/// for many conditions.
pub const MESSAGE_OCTETS_MAX: usize = 4_096;

/// Returns the longest prefix of `text` of at most `octets_max` octets, cut between characters.
pub fn cut(text: &str, octets_max: usize) -> &str {
    let mut end = text.len().min(octets_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the first `most` texts, separated by commas, and the number of the others: `a, b and 3 more`.
pub fn listed<S: Borrow<str>>(texts: &[S], most: usize) -> String {
    let named = texts[..texts.len().min(most)].join(", ");
    let more = texts.len().saturating_sub(most);
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_texts_are_listed() {
        for (texts, list) in
            [(&[][..], ""), (&["a"], "a"), (&["a", "b"], "a, b"), (&["a", "b", "c"], "a, b and 1 more")]
        {
            assert_eq!(listed(texts, 2), list);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, octets_max, cut_text) in
            [("abc", 3, "abc"), ("abc", 2, "ab"), ("aé", 2, "a"), ("aé", 3, "aé"), ("€", 2, ""), ("", 0, "")]
        {
            assert_eq!(cut(text, octets_max), cut_text, "{text} {octets_max}");
        }
    }
}
