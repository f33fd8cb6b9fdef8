//! This crate has no state outside a client: no static, no thread-local.

use std::fs;
use std::path::Path;

#[test]
fn no_source_has_a_global() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // Unit tests come last in a file.
        let code = text.split("#[cfg(test)]").next().unwrap();
        let is_global = |line: &&str| {
            let code = line.split("//").next().unwrap();
            code.split_whitespace().any(|word| word == "static") || code.contains("thread_local!")
        };
        let found = code.lines().find(is_global);
        assert_eq!(found, None, "{}", path.display());
        count += 1;
    }
    assert!(count > 10, "{count} files");
}
