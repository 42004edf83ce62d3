//! Compression of objects at rest, relative to a sample of their kind.
//!
//! All objects of a kind have the same members, managers, and conditions, and differ in names, UIDs, and times. LZ4 therefore
//! uses another object's whole text as its dictionary, which reduces 2.9 KB to 0.25 KB. No training is needed: a
//! [`DictionaryPool`] regularly takes a new sample from its input, so that texts that change over time, or with a new version of
//! the program, stay as small. A former sample stays in memory as long as a text that was compressed with it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// The number of texts per sample. Each sample costs its own length, so that many texts share the cost of one object. Four times
/// as many would save nothing, and would keep a poor sample four times as long.
const TEXTS_A_SAMPLE: usize = 1_024;
/// The maximum length of a sample in octets: the time of each use is proportional to it.
const SAMPLE_OCTETS_MAX: usize = 8_192;

/// The text of an object, as a dictionary.
pub struct Dictionary(Box<[u8]>);

impl Dictionary {
    /// Returns the dictionary of a text; if the text is too long, of its end.
    pub fn new(text: &[u8]) -> Dictionary {
        Dictionary(text[text.len().saturating_sub(SAMPLE_OCTETS_MAX)..].into())
    }
}

/// A text, compressed relative to a sample.
pub(super) struct Compressed {
    octets: Box<[u8]>,
    len: u32,
    sample: Arc<Dictionary>,
}

impl Compressed {
    pub fn new(text: &[u8], sample: &Arc<Dictionary>) -> Compressed {
        let len = u32::try_from(text.len()).expect("an object is smaller than four GiB");
        // Copied, because an allocator leaves a block in place that shrinks by less than half.
        let octets = lz4_flex::block::compress_with_dict(text, &sample.0).as_slice().into();
        Compressed { octets, len, sample: Arc::clone(sample) }
    }

    /// Returns the length of the text.
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
    /// Returns the sample for `text`: that of the texts before it, or after `TEXTS_A_SAMPLE` of them the text itself.
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
