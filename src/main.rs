//! The program `signpost`.

fn main() {}
