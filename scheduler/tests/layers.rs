//! The order of the crate's groups of modules, read from each file's imports.

use testing::layers::Layers;

/// A group uses itself and those before it, none after it.
const ORDER: [&str; 6] = ["config", "core", "host", "report", "faults", "daemon"];
/// IO, clocks and threads.
const IO: [&str; 8] = [
    "std::fs",
    "std::process",
    "std::thread",
    "std::net",
    "std::env",
    "std::time",
    "rustix",
    "libc",
];

fn layers() -> Layers {
    let layers = Layers::read(env!("CARGO_MANIFEST_DIR"), &ORDER, &[]);
    let count = layers.modules().len();
    assert!(count > 50, "{count} modules");
    layers
}

#[test]
fn each_group_uses_those_below_it_alone() {
    layers().assert_downwards();
}

#[test]
fn the_core_does_no_io_and_reads_no_clock() {
    let layers = layers();
    for (module, text) in layers.modules() {
        let io = IO.iter().find(|io| text.contains(**io));
        let is_core = layers.group(module) == Some(1);
        assert!(!is_core || io.is_none(), "{module} uses {io:?}");
    }
}

#[test]
fn no_more_than_two_modules_use_each_other() {
    layers().assert_no_circles();
}
