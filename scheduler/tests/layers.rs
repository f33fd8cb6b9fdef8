//! The order of the crate's groups of modules, read from what each file imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A group uses itself and those before it, none after it.
const ORDER: [&str; 6] = ["config", "core", "host", "report", "faults", "daemon"];
/// What does IO, reads a clock or starts a thread.
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
/// Modules that use each other; a larger circle has no order in which it can be read. What a module
/// uses of the parts in its own folder is not counted: they are one.
const CIRCLE_MAX: usize = 2;

/// The shipped source of each module, without comments, by its path (`core::state::room`).
fn modules() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are here") {
            let path = entry.expect("a readable folder").path();
            let name = path
                .strip_prefix(&root)
                .expect("it is below the root")
                .with_extension("");
            let name = name
                .to_str()
                .expect("sources have plain names")
                .replace('/', "::");
            let is_of_a_group = ORDER
                .iter()
                .any(|group| name.split("::").next() == Some(group));
            if !is_of_a_group || name.contains("::tests") {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    _ = found.insert(
                        name,
                        shipped(&fs::read_to_string(path).expect("a source is text")),
                    )
                }
            }
        }
    }
    found
}

fn shipped(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths below `prefix` in a text, those in braces written out: of `crate::a::{b, c::d}` with
/// `crate` these are `a`, `a::b` and `a::c::d`.
fn paths(text: &str, prefix: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices(&format!("{prefix}::")) {
        let is_whole =
            !text[..at].ends_with(|before: char| before.is_alphanumeric() || ":_".contains(before));
        let rest = &text[at + prefix.len() + 2..];
        let end = rest.find(|next: char| !(next.is_alphanumeric() || ":_".contains(next)));
        let path = rest[..end.unwrap_or(rest.len())].trim_end_matches(':');
        if !is_whole || path.is_empty() && !rest.starts_with('{') {
            continue;
        }
        all.push(path.to_owned());
        let inner = rest[end.unwrap_or(rest.len())..].strip_prefix('{');
        let inner = inner.and_then(|inner| inner.split('}').next());
        for name in inner.into_iter().flat_map(|inner| inner.split(',')) {
            let name = name.trim().split(' ').next().unwrap_or("");
            all.push(format!("{path}::{name}"));
        }
    }
    all
}

fn group(module: &str) -> usize {
    let first = module.split("::").next();
    let place = ORDER.iter().position(|group| Some(*group) == first);
    place.expect("modules() keeps those of a group")
}

#[test]
fn each_group_uses_those_below_it_alone() {
    let modules = modules();
    assert!(modules.len() > 50, "{} modules", modules.len());
    for (module, text) in &modules {
        for path in paths(text, "crate") {
            let used = ORDER
                .iter()
                .position(|group| path.split("::").next() == Some(*group));
            assert!(
                used.is_none_or(|used| used <= group(module)),
                "{module} uses crate::{path}, which is above it"
            );
        }
    }
}

#[test]
fn the_core_does_no_io_and_reads_no_clock() {
    for (module, text) in modules() {
        let io = IO.iter().find(|io| text.contains(**io));
        assert!(group(&module) != 1 || io.is_none(), "{module} uses {io:?}");
    }
}

/// Which modules each uses.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let resolved = |path: &str| {
        let ends = path
            .match_indices("::")
            .map(|(at, _)| at)
            .chain([path.len()]);
        let mut prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        prefixes.reverse();
        let known = prefixes
            .into_iter()
            .find(|prefix| modules.contains_key(*prefix));
        known.map(str::to_owned)
    };
    let of = |module: &str, text: &str| {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        let named = paths(text, "crate").into_iter();
        let beside = paths(text, "super").into_iter();
        let all = named.chain(beside.map(|path| format!("{parent}::{path}")));
        let used = all.filter_map(|path| resolved(path.trim_matches(':')));
        used.filter(|used| used != module).collect()
    };
    let each = modules.iter();
    each.map(|(module, text)| (module.clone(), of(module, text)))
        .collect()
}

/// All that a module uses, however indirectly.
fn reachable(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for next in &uses[&module] {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

#[test]
fn no_more_than_two_modules_use_each_other() {
    let uses = uses();
    let reached: BTreeMap<_, _> = uses
        .keys()
        .map(|from| (from, reachable(&uses, from)))
        .collect();
    for (from, all) in &reached {
        let circle: Vec<_> = all
            .iter()
            .filter(|to| reached[to].contains(*from))
            .collect();
        assert!(
            circle.len() <= CIRCLE_MAX,
            "{from} is in a circle: {circle:?}"
        );
    }
}

#[test]
fn paths_are_found_with_what_is_in_their_braces() {
    let text = "use crate::core::{state::State, event}; crate::host::nvml; notcrate::daemon::x";
    assert_eq!(
        paths(text, "crate"),
        ["core", "core::state::State", "core::event", "host::nvml"]
    );
}
