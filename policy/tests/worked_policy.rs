//! docs/add-a-policy.md shows the compiled policy, and the example configuration has every policy.

use std::fs;
use std::path::Path;

use policy::registry::POLICIES;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(path).expect("a file of the repository")
}

#[test]
fn the_document_has_the_text_of_the_worked_policy() {
    let document = read("docs/add-a-policy.md");
    let block = document
        .split("```rust\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    assert_eq!(block, Some(&*read("policy/src/idle_only.rs")));
}

#[test]
fn the_document_has_the_two_lines_beside_it() {
    let document = read("docs/add-a-policy.md");
    for (path, line) in [
        ("policy/src/lib.rs", "pub mod idle_only;"),
        ("policy/src/registry.rs", "&crate::idle_only::ENTRY"),
    ] {
        assert!(document.contains(line) && document.contains(path), "{line}");
        assert!(read(path).contains(line), "{line}");
    }
}

#[test]
fn the_example_of_a_configuration_has_every_policy() {
    let example = read("examples/gpu0.toml").replace('#', " ");
    let words: Vec<&str> = example.split_whitespace().collect();
    let example = words.join(" ");
    for entry in POLICIES {
        let line = format!("\"{}\" {}", entry.name, entry.about);
        assert!(example.contains(&line), "examples/gpu0.toml has no: {line}");
    }
}
