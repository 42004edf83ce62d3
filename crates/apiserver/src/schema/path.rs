//! Where in an object a walk is.

use std::fmt;

/// A place, as a chain from the leaf to the root, so that nothing is allocated but for a report. It prints as `spec.to[0].name`.
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
