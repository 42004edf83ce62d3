//! Which class each of very many Routers was of, found by its name, in an octet and a quarter a Router.
//!
//! An explanation is kept in every binding, and the names of a thousand Routers take tens of kilobytes. So they are left out: a
//! map is a table of octets in which each name has three *places*, and what these are together, by exclusive or, is the class.
//! Every name that was put in is answered right. Any other is known not to be one, but for one in sixteen at most; the map needs
//! nothing of the Routers that there are when it is read.
//!
//! ```text
//! map    = base64 (RFC 4648 §4, without padding) of: seed, 1 octet | table, 3 × third octets
//! digest = SHA-256 of: seed, 1 octet | name
//! place  = i × third + (octets 4i to 4i+3 of the digest, the first most significant) mod third, for i of 0, 1, 2
//! table[place 0] ^ table[place 1] ^ table[place 2] = check, upper 4 bits | class, lower 4 bits
//! check  = the upper 4 bits of octet 12 of the digest
//! ```
//!
//! Of a table with a quarter more places than names there is nearly always a name that alone has one of its places. It is taken
//! out, and so on until none is left; put in again in the opposite order, each finds a place of its own, which makes its class
//! right (F. C. Botelho, R. Pagh, N. Ziviani: Simple and Space-Efficient Minimal Perfect Hash Functions, 2007). Where names are
//! left another seed is tried. This order depends on the names alone, so it is found once for all decisions among the same
//! Routers: a fifth of a millisecond for a thousand; a map is then made in some microseconds.

use aws_lc_rs::digest;
use data_encoding::BASE64_NOPAD;

/// Names that a map is made for: 1,500 take 2,500 characters. More would make each binding larger than all else that it holds.
pub const NAMES_MAX: usize = 1_500;
/// Classes that there may be, 0 being one: as many as four bits tell apart.
pub const CLASSES_MAX: u8 = 16;
/// Seeds that are tried. Nineteen of twenty do for a thousand names.
const SEEDS: u8 = 32;
const CLASS_BITS: u8 = 0x0f;

/// The order in which the classes of certain names are written into a table.
#[derive(Debug)]
pub struct Layout {
    seed: u8,
    /// Places in each third of the table.
    third: usize,
    steps: Vec<Step>,
}

/// One name: its place that no name after it has, and the other two.
#[derive(Debug)]
struct Step {
    index: u16,
    own: u16,
    others: [u16; 2],
    check: u8,
}

impl Layout {
    /// That of these names, all different; `None` if there are more than [`NAMES_MAX`].
    pub fn new(names: &[&str]) -> Option<Layout> {
        if names.len() > NAMES_MAX {
            return None;
        }
        let third = (names.len() * 123 / 100 + 32).div_ceil(3);
        (0..SEEDS).find_map(|seed| Layout::of_seed(names, third, seed))
    }

    fn of_seed(names: &[&str], third: usize, seed: u8) -> Option<Layout> {
        let spots: Vec<Spot> = names.iter().map(|name| Spot::new(seed, name, third)).collect();
        // Of each place: how many of the names that are left have it, and the exclusive or of their numbers.
        let mut places = vec![(0_u16, 0_u16); 3 * third];
        for (spot, index) in spots.iter().zip(0_u16..) {
            spot.places.iter().for_each(|place| enter(&mut places[*place], index));
        }
        let mut alone: Vec<usize> = (0..places.len()).filter(|place| places[*place].0 == 1).collect();
        let mut steps = Vec::with_capacity(names.len());
        while let Some(own) = alone.pop() {
            let (count, index) = places[own];
            if count != 1 {
                continue;
            }
            let spot = &spots[usize::from(index)];
            let mut others = spot.places.iter().filter(|place| **place != own).map(|place| narrow(*place));
            let others = [others.next()?, others.next()?];
            steps.push(Step { index, own: narrow(own), others, check: spot.check });
            for place in spot.places {
                let (count, rest) = &mut places[place];
                (*count, *rest) = (*count - 1, *rest ^ index);
                if *count == 1 {
                    alone.push(place);
                }
            }
        }
        steps.reverse();
        (steps.len() == names.len()).then_some(Layout { seed, third, steps })
    }

    /// For how many names it is.
    pub fn names(&self) -> usize {
        self.steps.len()
    }

    /// The map in which the name at each index has the class, below [`CLASSES_MAX`], that `class` says.
    pub fn map(&self, class: impl Fn(usize) -> u8) -> String {
        let mut octets = vec![0; 1 + 3 * self.third];
        octets[0] = self.seed;
        let table = &mut octets[1..];
        for Step { index, own, others: [one, other], check } in &self.steps {
            let class = class(usize::from(*index)) & CLASS_BITS;
            table[usize::from(*own)] = check ^ class ^ table[usize::from(*one)] ^ table[usize::from(*other)];
        }
        BASE64_NOPAD.encode(&octets)
    }
}

fn enter(place: &mut (u16, u16), index: u16) {
    *place = (place.0 + 1, place.1 ^ index);
}

/// A place as it is kept: there are fewer than 2,000.
fn narrow(place: usize) -> u16 {
    u16::try_from(place).expect("a table of so few names is small")
}

/// Where a name is in a table.
struct Spot {
    places: [usize; 3],
    check: u8,
}

impl Spot {
    fn new(seed: u8, name: &str, third: usize) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&[seed]);
        context.update(name.as_bytes());
        let digest = context.finish();
        let octets = digest.as_ref();
        let places = [0, 1, 2].map(|i| {
            let number = octets[4 * i..4 * i + 4].iter().fold(0, |number: u64, octet| number << 8 | u64::from(*octet));
            // The remainder is below a size.
            i * third + usize::try_from(number % third as u64).unwrap_or_default()
        });
        Spot { places, check: octets[12] & !CLASS_BITS }
    }
}

/// A map that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassMap {
    seed: u8,
    table: Vec<u8>,
}

impl ClassMap {
    /// Reads a map; `None` if it is none.
    pub fn read(text: &str) -> Option<ClassMap> {
        let octets = BASE64_NOPAD.decode(text.as_bytes()).ok()?;
        let (seed, table) = octets.split_first()?;
        let is_table = !table.is_empty() && table.len().is_multiple_of(3);
        is_table.then(|| ClassMap { seed: *seed, table: table.to_vec() })
    }

    /// The class of the name; `None`: it is none of those that were put in.
    pub fn class(&self, name: &str) -> Option<u8> {
        let spot = Spot::new(self.seed, name, self.table.len() / 3);
        let octet = spot.places.iter().fold(0, |octet, place| octet ^ self.table[*place]);
        (octet & !CLASS_BITS == spot.check).then_some(octet & CLASS_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    fn map(names: &[&str], class: impl Fn(usize) -> u8) -> ClassMap {
        let layout = Layout::new(names).expect("there is one");
        assert_eq!(layout.names(), names.len());
        ClassMap::read(&layout.map(class)).expect("it is a map")
    }

    #[test]
    fn a_thousand_names_and_more_take_an_octet_and_a_quarter_each() {
        for count in [1, 17, 100, 1_000, NAMES_MAX] {
            let names: Vec<String> = (0..count).map(|number| format!("r{number:04}-{}", "a".repeat(40))).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let layout = Layout::new(&names).expect("there is one");
            let class = |index: usize| u8::try_from(index * 7 % 16).expect("below 16");
            let text = layout.map(class);
            assert!(text.len() <= (count * 123 / 100 + 32 + 3) * 4 / 3 + 2, "{count}: {}", text.len());
            let map = ClassMap::read(&text).expect("it is a map");
            for (index, name) in names.iter().enumerate() {
                assert_eq!(map.class(name), Some(class(index)), "{name}");
            }
            let strangers = (0..10_000).filter(|number| map.class(&format!("other{number}")).is_some()).count();
            assert!(strangers < 800, "{count}: {strangers} of 10,000");
        }
        let many: Vec<String> = (0..=NAMES_MAX).map(|number| number.to_string()).collect();
        assert!(Layout::new(&many.iter().map(String::as_str).collect::<Vec<_>>()).is_none());
    }

    /// Bindings keep maps for years: what was written is read.
    #[test]
    fn the_form_stays_as_it_is() {
        let map = ClassMap::read("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEAAAACxAIIAAAAAAA").expect("it is a map");
        let classes = ["shard1", "shard2", "shard3", "shard4"].map(|name| map.class(name));
        assert_eq!(classes, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn what_is_no_map_is_not_read() {
        for text in ["", "AA", "AAAA", "not base64!", "AAAAAA=="] {
            assert_eq!(ClassMap::read(text), None, "{text}");
        }
        let layout = Layout::new(&[]).expect("of no name");
        assert!(ClassMap::read(&layout.map(|_| 0)).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the names and their classes are.
        #[test]
        fn every_name_has_its_class(
            names in proptest::collection::btree_set("[a-z0-9.-]{1,60}", 0..300),
            classes in proptest::collection::vec(0..CLASSES_MAX, 300),
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect();
            let map = map(&names, |index| classes[index]);
            for (index, name) in names.iter().enumerate() {
                prop_assert_eq!(map.class(name), Some(classes[index]));
            }
        }

        /// Whatever was written into a binding by whoever may.
        #[test]
        fn no_text_is_a_fault(text in "[A-Za-z0-9+/=]{0,64}", name in ".{0,20}") {
            if let Some(map) = ClassMap::read(&text) {
                prop_assert!(map.class(&name).is_none_or(|class| class < CLASSES_MAX));
            }
        }
    }
}
