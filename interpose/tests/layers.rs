//! The order of the crate's groups of modules, read from what each file imports.

use std::fs;
use std::path::Path;

use testing::layers::Layers;

/// A group uses itself and those before it, none after it. `src/lib.rs` says what each is for.
const ORDER: [&str; 12] = [
    "platform", "driver", "client", "dispatch", "kernels", "progress", "signals", "daemon",
    "memory", "launch", "hooks", "doors",
];
/// Groups whose names are those of one of their modules.
const FRONTS: [(&str, &str); 3] = [
    ("driver", "calls"),
    ("client", "state"),
    ("kernels", "identify"),
];
/// Files and folders in `src`: what is not a group is `lib.rs`.
const ENTRIES_MAX: usize = ORDER.len() + 1;

fn layers() -> Layers {
    let layers = Layers::read(env!("CARGO_MANIFEST_DIR"), &ORDER, &FRONTS);
    let count = layers.modules().len();
    assert!(count > 80, "{count} modules");
    layers
}

#[test]
fn each_group_uses_those_below_it_alone() {
    layers().assert_downwards();
}

#[test]
fn no_more_than_two_modules_use_each_other() {
    layers().assert_no_circles();
}

#[test]
fn every_module_is_of_a_group() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = fs::read_dir(root).expect("the sources are here").count();
    assert_eq!(entries, ENTRIES_MAX);
}
