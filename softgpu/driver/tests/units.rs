//! Unit tests of driver modules without other dependencies. (The library itself is not built as a
//! test: one process cannot have two objects that export `cuInit`.)

#[path = "../src/ranges.rs"]
#[expect(
    dead_code,
    reason = "the test uses a part of the module, the driver all of it"
)]
mod ranges;
