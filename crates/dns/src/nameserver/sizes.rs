//! Message sizes: the buckets of a histogram, found by one load from a small table.

/// The upper bounds of the buckets in octets, inclusive; larger sizes are in one more bucket. The steps are fine in the range of
/// most queries and answers, and are at the sizes with a meaning: 512 (a client without EDNS, RFC 1035 §2.3.4), 1232 (no
/// fragments anywhere), and 4096 (the limit of many clients).
pub const BOUNDS: [u16; 16] = [32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1232, 1536, 2048, 4096, 16384];

/// The number of buckets.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// All bounds up to [`TABLED_OCTETS_MAX`] are multiples of this, so that sizes after one multiple and up to the next share
/// a bucket.
const STEP: usize = 16;
/// Larger sizes are compared: no datagram of this server is larger, and a stream's message costs much more than that anyway.
const TABLED_OCTETS_MAX: usize = 4096;

/// The number of steps below a size.
const TABLE: [u8; TABLED_OCTETS_MAX / STEP] = table();

/// Returns the bucket of a message of this many octets: the first whose bound is not below it.
#[inline]
pub fn bucket(octets: usize) -> usize {
    // No octets are beyond the table, and compared.
    match TABLE.get(octets.wrapping_sub(1) / STEP) {
        Some(bucket) => usize::from(*bucket),
        None => first_at_least(octets),
    }
}

const fn table() -> [u8; TABLED_OCTETS_MAX / STEP] {
    let mut table = [0; TABLED_OCTETS_MAX / STEP];
    let mut at = 0;
    while at < table.len() {
        table[at] = first_at_least((at + 1) * STEP) as u8;
        at += 1;
    }
    table
}

const fn first_at_least(octets: usize) -> usize {
    let mut at = 0;
    while at < BOUNDS.len() && (BOUNDS[at] as usize) < octets {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_bounds() {
        assert!(BOUNDS.is_sorted());
        for octets in 0..=usize::from(u16::MAX) {
            let expected = BOUNDS.iter().position(|bound| octets <= usize::from(*bound)).unwrap_or(BOUNDS.len());
            assert_eq!(bucket(octets), expected, "{octets}");
        }
    }
}
