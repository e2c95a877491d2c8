//! What the tests share.

pub mod guests;
