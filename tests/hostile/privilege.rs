//! Machine credentials in the wrong hands.
