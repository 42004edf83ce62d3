//! Attacks on processor time, and on the signals that report a hang.
