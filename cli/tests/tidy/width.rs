//! Comments fit into 100 columns, and a cell of a table has 40 words at most.

use super::sources::files;

/// As in rustfmt.toml.
const COLUMNS_MAX: usize = 100;
const WORDS_MAX: usize = 40;

/// History is not reworded.
fn is_history(path: &str) -> bool {
    path.starts_with("benches/results/") || path.contains("/recorded/")
}

/// The marks that begin a line of comment in a file.
fn marks(path: &str) -> &'static [&'static str] {
    match path.rsplit('.').next() {
        Some("rs") => &["//"],
        Some("c" | "h" | "cu" | "java" | "go") => &["//", "/*", "* "],
        _ => &["# "],
    }
}

/// Endings of files with comments: of languages, and the names of scripts without an ending.
const COMMENTED: [&str; 28] = [
    ".c",
    ".conf",
    ".cu",
    ".go",
    ".h",
    ".java",
    ".py",
    ".rs",
    ".service",
    ".sh",
    ".slice",
    ".timer",
    ".toml",
    ".yaml",
    ".yml",
    "/build",
    "/check",
    "/check-artefact",
    "/files",
    "/in-systemd",
    "/pack",
    "/postinst",
    "/postrm",
    "/real-drivers",
    "/run",
    "/test-systemd",
    "/weaken",
    "/with-softgpu",
];

#[test]
fn comments_fit_into_100_columns() {
    let mut wide = Vec::new();
    for (path, text) in files(&COMMENTED) {
        let is_comment = |line: &str| {
            let begin = line.trim_start();
            marks(&path).iter().any(|mark| begin.starts_with(mark))
        };
        let lines = text.lines().enumerate();
        let of_file = lines.filter(|(_, line)| {
            is_comment(line) && line.chars().count() > COLUMNS_MAX && !is_history(&path)
        });
        wide.extend(of_file.map(|(index, _)| format!("{path}:{}", index + 1)));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn cells_of_tables_have_40_words_at_most() {
    let (mut long, mut cells) = (Vec::new(), 0);
    for (path, text) in files(&[".md"]) {
        if is_history(&path) {
            continue;
        }
        for (index, row) in text.lines().enumerate() {
            if !row.starts_with('|') {
                continue;
            }
            // `\|` is a character of a cell.
            let row = row.replace("\\|", "/");
            cells += row.split('|').count();
            let is_long = |cell: &str| cell.split_whitespace().count() > WORDS_MAX;
            if row.split('|').any(is_long) {
                long.push(format!("{path}:{}", index + 1));
            }
        }
    }
    assert!(cells > 1000, "only {cells} cells found");
    assert!(long.is_empty(), "{long:#?}");
}
