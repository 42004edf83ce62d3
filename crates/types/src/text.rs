//! The lengths of texts that the platform itself writes into objects.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, octets_max, cut_text) in
            [("abc", 3, "abc"), ("abc", 2, "ab"), ("aé", 2, "a"), ("aé", 3, "aé"), ("€", 2, ""), ("", 0, "")]
        {
            assert_eq!(cut(text, octets_max), cut_text, "{text} {octets_max}");
        }
    }
}
