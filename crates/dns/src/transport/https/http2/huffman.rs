//! The Huffman code of HPACK (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: shorter codes come first, and codes of one length are consecutive numbers in the order of their symbols. So
//! the lengths define it. The compiler makes two tables of them: one lookup decodes the codes of up to eight bits, which are those of
//! letters, digits, and the signs of paths; longer codes are searched by their length.

/// The length of each symbol's code in bits. The last one is EOS, 30 ones, which must not occur.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const LENGTH_MAX: usize = 30;

/// The tables for decoding.
struct Code {
    /// The symbol whose code the next eight bits begin with, and the length of the code; 0 if it is longer.
    short: [(u8, u8); 256],
    /// The symbols without EOS, in the order of their codes.
    symbols: [u8; 256],
    /// The first code of each length at the upper end of 32 bits, the first number beyond the codes there, and the position of the first
    /// symbol.
    first: [u32; LENGTH_MAX + 1],
    limit: [u32; LENGTH_MAX + 1],
    position: [usize; LENGTH_MAX + 1],
}

static CODE: Code = Code::new();

impl Code {
    const fn new() -> Self {
        let mut tables = Code {
            short: [(0, 0); 256],
            symbols: [0; 256],
            first: [0; LENGTH_MAX + 1],
            limit: [0; LENGTH_MAX + 1],
            position: [0; LENGTH_MAX + 1],
        };
        let (mut code, mut position, mut length) = (0_u32, 0, 1);
        while length <= LENGTH_MAX {
            code <<= 1;
            tables.first[length] = code << (32 - length);
            tables.position[length] = position;
            let mut symbol = 0;
            while symbol < 256 {
                if LENGTHS[symbol] as usize == length {
                    tables.symbols[position] = symbol as u8;
                    let mut rest = 0;
                    while length <= 8 && rest < 1 << (8 - length) {
                        tables.short[((code as usize) << (8 - length)) + rest] = (symbol as u8, length as u8);
                        rest += 1;
                    }
                    position += 1;
                    code += 1;
                }
                symbol += 1;
            }
            tables.limit[length] = code << (32 - length);
            length += 1;
        }
        tables
    }

    /// Returns the symbol of a code of more than eight bits, and its length; `None` for EOS.
    fn long(&self, bits: u32) -> Option<(u8, usize)> {
        let length = (9..=LENGTH_MAX).find(|length| bits < self.limit[*length])?;
        let number = (bits - self.first[length]) >> (32 - length);
        Some((self.symbols[self.position[length] + number as usize], length))
    }
}

/// Appends the decoded octets; `None` if they are not in this code.
pub(super) fn decode(octets: &[u8], into: &mut Vec<u8>) -> Option<()> {
    into.reserve(octets.len() * 8 / 5);
    let mut octets = octets.iter();
    // The next bits are the upper ones; zeros follow them.
    let (mut bits, mut count) = (0_u64, 0_usize);
    loop {
        while count <= 56
            && let Some(octet) = octets.next()
        {
            bits |= u64::from(*octet) << (56 - count);
            count += 8;
        }
        let (symbol, length) = match CODE.short[(bits >> 56) as usize] {
            (_, 0) => CODE.long((bits >> 32) as u32)?,
            (symbol, length) => (symbol, usize::from(length)),
        };
        if length > count {
            break;
        }
        into.push(symbol);
        bits <<= length;
        count -= length;
    }
    // RFC 7541 §5.2: the padding is less than eight bits, the first ones of EOS.
    (count < 8 && (!bits).leading_zeros() as usize >= count).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_the_standard() {
        // Codes of Appendix B: symbol, code, length.
        for (symbol, code, length) in [
            (b'0', 0x0, 5_u32),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'z', 0x7b, 7),
            (b'&', 0xf8, 8),
            (b'!', 0x3f8, 10),
            (b'\\', 0x7_fff0, 19),
            (0x80, 0xf_ffe6, 20),
            (0xff, 0x3ff_ffee, 26),
            (b'\n', 0x3fff_fffc, 30),
            (0x16, 0x3fff_fffe, 30),
        ] {
            let number: u64 = (code << (64 - length)) | (u64::MAX >> length);
            // The code, and ones up to the end of its last octet.
            let octets = &number.to_be_bytes()[..(length as usize).div_ceil(8)];
            let mut decoded = Vec::new();
            assert_eq!((decode(octets, &mut decoded), &decoded[..]), (Some(()), &[symbol][..]), "{symbol}");
        }
        let octets: f64 = LENGTHS.iter().map(|length| 0.5_f64.powi(i32::from(*length))).sum();
        assert_eq!(octets, 1.0, "a complete code");
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        // `a` is 00011, `1` is 00001.
        for (octets, expected) in [
            (&[][..], Some(&b""[..])),
            (&[0b0001_1111], Some(b"a")),
            (&[0b0001_1000], None),
            (&[0b0001_1110], None),
            (&[0b0001_1111, 0xff], None),
            (&[0xff], None),
            // EOS, and a code that is cut off.
            (&[0xff, 0xff, 0xff, 0xff], None),
            (&[0xff, 0xfe], None),
        ] {
            let mut decoded = Vec::new();
            let found = decode(octets, &mut decoded).map(|()| &decoded[..]);
            assert_eq!(found, expected, "{octets:x?}");
        }
    }
}
