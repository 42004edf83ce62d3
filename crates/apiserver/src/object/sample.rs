//! Texts of objects at rest, kept as what sets them apart from a sample of their kind.
//!
//! All objects of a kind have the same members, managers and conditions, and differ in names, uids and times. So LZ4 gets another
//! object's whole text as its dictionary, and what is left of 2.9 KB are 0.25. Nothing is prepared or trained: a
//! [`DictionaryPool`] takes a new sample every so often from what it is given, so that texts that change over time, or with a new
//! version of the program, stay as small. An old sample lives as long as a text that was set apart from it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// How many texts are packed with one sample. Each sample costs its own length, so this many share that of one object; four
/// times as many would save nothing, and stay with a poor sample four times as long.
const TEXTS_A_SAMPLE: usize = 1_024;
/// How much of a text is a sample, in octets: each use of a sample takes time in its length.
const SAMPLE_OCTETS_MAX: usize = 8_192;

/// The text of an object, as a dictionary.
pub struct Dictionary(Box<[u8]>);

impl Dictionary {
    /// Of a text, of which the end is kept if it is too long.
    pub fn new(text: &[u8]) -> Dictionary {
        Dictionary(text[text.len().saturating_sub(SAMPLE_OCTETS_MAX)..].into())
    }
}

/// A text as what sets it apart from a sample.
pub(super) struct Compressed {
    octets: Box<[u8]>,
    len: u32,
    sample: Arc<Dictionary>,
}

impl Compressed {
    pub fn new(text: &[u8], sample: &Arc<Dictionary>) -> Compressed {
        let len = u32::try_from(text.len()).expect("an object is smaller than four GiB");
        // Copied, since an allocator leaves what shrinks by less than half where it is.
        let octets = lz4_flex::block::compress_with_dict(text, &sample.0).as_slice().into();
        Compressed { octets, len, sample: Arc::clone(sample) }
    }

    /// The length of the text.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn unpack(&self) -> Bytes {
        let mut text = Vec::new();
        self.unpack_to(&mut text);
        text.into()
    }

    /// Appends the text.
    pub fn unpack_to(&self, out: &mut Vec<u8>) {
        let begins = out.len();
        out.resize(begins + self.len as usize, 0);
        lz4_flex::block::decompress_into_with_dict(&self.octets, &mut out[begins..], &self.sample.0)
            .expect("it was packed with this sample, in this process");
    }
}

/// Chooses the samples of one kind.
#[derive(Default)]
pub struct DictionaryPool(Mutex<Option<(Arc<Dictionary>, usize)>>);

impl DictionaryPool {
    /// The sample for `text`: that of the texts before it, or after `TEXTS_A_SAMPLE` of them the text itself.
    pub fn sample(&self, text: impl FnOnce() -> Bytes) -> Arc<Dictionary> {
        let mut state = self.0.lock();
        match &mut *state {
            Some((sample, used)) if *used < TEXTS_A_SAMPLE => {
                *used += 1;
                Arc::clone(sample)
            }
            _ => {
                let sample = Arc::new(Dictionary::new(&text()));
                *state = Some((Arc::clone(&sample), 1));
                sample
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let texts = ["", "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &"0123456789".repeat(10_000)];
        for sample in texts {
            let sample = Arc::new(Dictionary::new(sample.as_bytes()));
            for text in texts {
                assert_eq!(Compressed::new(text.as_bytes(), &sample).unpack(), text.as_bytes());
            }
        }
    }

    #[test]
    fn samples_change() {
        let sampler = DictionaryPool::default();
        let of = |text: &'static str| sampler.sample(|| Bytes::from_static(text.as_bytes()));
        let first = of("first");
        for _ in 1..TEXTS_A_SAMPLE {
            assert!(Arc::ptr_eq(&of("other"), &first));
        }
        assert_eq!(&*of("second").0, b"second");
    }
}
