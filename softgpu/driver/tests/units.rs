//! Unit tests of the driver's modules that need nothing else of it. (The library itself is not
//! built as a test: two things in one process that export `cuInit` are one too many.)

#[path = "../src/ranges.rs"]
#[expect(
    dead_code,
    reason = "the test uses a part of the module, the driver all of it"
)]
mod ranges;
