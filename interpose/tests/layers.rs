//! The order of the crate's groups of modules, read from each file's imports.

use std::fs;
use std::path::Path;

use testing::layers::Layers;

/// A group uses itself and those before it, none after it. `src/lib.rs` describes each.
const ORDER: [&str; 12] = [
    "platform", "driver", "process", "dispatch", "kernels", "progress", "signals", "daemon",
    "memory", "launch", "hooks", "doors",
];
/// Groups named like one of their modules.
const FRONTS: [(&str, &str); 3] = [
    ("driver", "calls"),
    ("process", "state"),
    ("kernels", "identify"),
];
/// Files and folders in `src`: the groups and `lib.rs`.
const ENTRIES_MAX: usize = ORDER.len() + 1;

/// Most statics with state. A module has at most one, of a struct that holds all its state, so that
/// the state is in one place and a test can have its own.
const STATICS_MAX: usize = 20;
/// Statics without state, by module and name.
const WITHOUT_STATE: [(&str, &str, &str); 9] = [
    ("driver::real", "HOOKED", TABLE),
    ("hooks::cuda", "HOOKS", TABLE),
    ("hooks::cuda", "POSITIONS", TABLE),
    ("hooks::nvml::hooks", "HOOKS", TABLE),
    ("hooks::operators::hooks", "EXPORTS", TABLE),
    ("hooks::operators::hooks", "HOOKS", TABLE),
    ("platform::unwinder", "ENTRIES", TABLE),
    ("driver::real::shim", "BEGIN", LINKED),
    ("driver::real::shim", "pillion_shim", LINKED),
];
const TABLE: &str = "a table that the compiler makes";
const LINKED: &str = "a symbol for the dynamic linker, never written";

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

#[test]
fn state_lies_in_few_statics() {
    let layers = layers();
    let all = layers.modules().iter().flat_map(|(module, text)| {
        let named = statics(text).into_iter();
        named.map(move |name| (module.as_str(), name))
    });
    let root = include_str!("../src/lib.rs");
    let all: Vec<_> = all
        .chain(statics(root).into_iter().map(|name| ("lib", name)))
        .collect();
    for (module, name, reason) in WITHOUT_STATE {
        let is_there = all.contains(&(module, name));
        assert!(is_there, "{module} has no {name}, {reason}");
    }
    let is_state = |found: &(&str, &str)| {
        let mut without = WITHOUT_STATE.iter();
        !without.any(|(module, name, _)| (*module, *name) == *found)
    };
    let state: Vec<_> = all.into_iter().filter(is_state).collect();
    let mut modules: Vec<_> = state.iter().map(|(module, _)| *module).collect();
    modules.dedup();
    assert_eq!(modules.len(), state.len(), "one static a module: {state:?}");
    let file =
        |(module, name): &(&str, &str)| format!("src/{}.rs: {name}", module.replace("::", "/"));
    let files: Vec<_> = state.iter().map(file).collect();
    assert!(
        state.len() <= STATICS_MAX,
        "{} statics with state, {STATICS_MAX} are allowed:\n{}",
        state.len(),
        files.join("\n")
    );
}

/// A module's statics, also those in functions, but not thread-locals and linker-defined symbols.
fn statics(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    // The line that ends a block whose statics are not counted.
    let mut end: Option<String> = None;
    for line in text.lines() {
        if end.as_deref() == Some(line.trim_end()) {
            end = None;
        }
        let inner = line.trim_start();
        let is_apart = ["thread_local! {", "unsafe extern \"C\" {"].contains(&inner.trim_end());
        if end.is_none() && is_apart {
            let indent = &line[..line.len() - inner.len()];
            end = Some(format!("{indent}}}"));
        }
        if end.is_none() {
            names.extend(static_in(inner));
        }
    }
    names
}

fn static_in(line: &str) -> Option<&str> {
    let code = line.split("//").next()?;
    let is_word = |at: &usize| {
        let before = code[..*at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '\''))
    };
    let mut places = code.match_indices("static ").map(|(at, _)| at);
    let at = places.find(is_word)?;
    let (name, _) = code[at..].strip_prefix("static ")?.split_once(':')?;
    let name = name.trim_start_matches("mut ");
    let is_name = |c: char| c.is_alphanumeric() || "_$".contains(c);
    name.chars().all(is_name).then_some(name)
}

#[test]
fn statics_are_found_wherever_they_lie() {
    let text = "pub(crate) static A: u8 = 0;\npub(in crate::b) static B: u8 = 0;\n\
                thread_local! {\n    static C: u8 = 0;\n}\n    static D: u8 = 0;\n\
                unsafe extern \"C\" {\n    static E: u8;\n}\nfn f() -> &'static str {}\n\
                static mut F: u8 = 0;\npub static G: u8 = 0;\n\
                #[used] static H: u8 = 0;\nfn f() { static I: u8 = 0; }\n\
                $(static $name: u8 = 0;)*\nlet x: &'static str = y;";
    let found = statics(text);
    assert_eq!(found, ["A", "B", "D", "F", "G", "H", "I", "$name"]);
}
