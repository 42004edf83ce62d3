//! Hashes that are the same in each process.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

pub(crate) fn hash_of(of: &(impl Hash + ?Sized)) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}
