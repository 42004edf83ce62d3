//! How large messages are: the buckets of a histogram, found by one load from a small table.

/// Upper bounds of the buckets in octets, each included; what is larger falls into one more. The steps are fine where
/// queries and answers lie, and stand at the sizes that decide something: 512 (a client without EDNS, RFC 1035 §2.3.4),
/// 1232 (no fragments anywhere) and 4096 (what many clients offer).
pub const BOUNDS: [u16; 16] = [32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1232, 1536, 2048, 4096, 16384];

/// How many buckets there are.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// All bounds up to [`TABLED_OCTETS_MAX`] are multiples of this, so that sizes after one multiple and up to the next share
/// a bucket.
const STEP: usize = 16;
/// What is larger is compared: no datagram of ours is, and a stream's message costs much more than that anyway.
const TABLED_OCTETS_MAX: usize = 4096;

/// By how many steps lie below a size.
const TABLE: [u8; TABLED_OCTETS_MAX / STEP] = table();

/// The bucket of a message of so many octets: the first whose bound is not below it.
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
