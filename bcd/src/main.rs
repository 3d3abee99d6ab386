//! bcd
fn main() {}
