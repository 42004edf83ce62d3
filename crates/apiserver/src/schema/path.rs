//! The position of a walk in an object.

use std::fmt;

/// A position, as a chain from the leaf to the root, so that only reports allocate. It prints as `spec.to[0].name`.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => write!(out, "{name}"),
            Path::Field(parent, name) => write!(out, "{parent}.{name}"),
            Path::Item(parent, index) => write!(out, "{parent}[{index}]"),
        }
    }
}
