//! The dependencies between a crate's modules, read from its sources. Modules stand in *groups*,
//! the folders of `src`, in one order. A group may have a *front*: a module whose names are the
//! group's own (`pub use front::*`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Most modules that may use each other; a larger circle has no reading order.
const CIRCLE_MAX: usize = 2;

/// A crate's modules in their groups.
pub struct Layers {
    /// The groups, from the bottom.
    order: &'static [&'static str],
    /// Groups with a front, and the front.
    fronts: &'static [(&'static str, &'static str)],
    /// The shipped source of each module, without comments, by its path (`core::state::room`).
    modules: BTreeMap<String, String>,
}

impl Layers {
    /// Reads the sources of the crate whose manifest is in that folder.
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn read(
        manifest: &str,
        order: &'static [&'static str],
        fronts: &'static [(&'static str, &'static str)],
    ) -> Self {
        let root = Path::new(manifest).join("src");
        let mut layers = Self {
            order,
            fronts,
            modules: BTreeMap::new(),
        };
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("the sources are here") {
                let path = entry.expect("a readable folder").path();
                let name = path.strip_prefix(&root).expect("it is below the root");
                let name = name.with_extension("");
                let name = name.to_str().expect("sources have plain names");
                let name = name.replace('/', "::");
                if layers.group(&name).is_none() || name.contains("::tests") {
                    continue;
                }
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let text = fs::read_to_string(path).expect("a source is text");
                        layers.modules.insert(name, shipped(&text));
                    }
                }
            }
        }
        layers
    }

    /// The shipped source of each module, without comments, by its path.
    #[must_use]
    pub fn modules(&self) -> &BTreeMap<String, String> {
        &self.modules
    }

    /// The group of a path.
    #[must_use]
    pub fn group(&self, path: &str) -> Option<usize> {
        let first = path.split("::").next();
        self.order.iter().position(|group| Some(*group) == first)
    }

    /// Asserts that each group uses only itself and those before it.
    /// # Panics
    /// If one does not.
    pub fn assert_downwards(&self) {
        let mut wrong = Vec::new();
        for (module, text) in &self.modules {
            for path in paths(text, "crate") {
                if self.group(&path) > self.group(module) {
                    wrong.push(format!("{module} uses crate::{path}, which is above it"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Asserts that no more than two modules use each other. A module's own folder counts as one.
    /// # Panics
    /// If more do.
    pub fn assert_no_circles(&self) {
        let uses = self.uses();
        let reached: BTreeMap<_, _> = uses
            .keys()
            .map(|from| (from, reachable(&uses, from)))
            .collect();
        let mut circles = BTreeSet::new();
        for (from, all) in &reached {
            let is_back = |to: &&String| reached[to].contains(*from);
            let circle: Vec<_> = all.iter().filter(is_back).collect();
            if circle.len() > CIRCLE_MAX {
                circles.insert(circle);
            }
        }
        assert!(circles.is_empty(), "modules in circles: {circles:#?}");
    }

    fn uses(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |module: &str, text: &str| {
            let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
            let named = paths(text, "crate").into_iter();
            let beside = paths(text, "super").into_iter();
            let all = named.chain(beside.map(|path| format!("{parent}::{path}")));
            let used = all.filter_map(|path| self.resolved(path.trim_matches(':')));
            used.filter(|used| used != module).collect()
        };
        let each = self.modules.iter();
        each.map(|(module, text)| (module.clone(), of(module, text)))
            .collect()
    }

    fn resolved(&self, path: &str) -> Option<String> {
        let ends = path.match_indices("::").map(|(at, _)| at);
        let mut prefixes: Vec<&str> = ends.chain([path.len()]).map(|end| &path[..end]).collect();
        prefixes.reverse();
        let known = |prefix: &&str| self.modules.contains_key(*prefix);
        if let Some(found) = prefixes.into_iter().find(known) {
            return Some(found.to_owned());
        }
        let (group, name) = path.split_once("::").unwrap_or((path, ""));
        let (_, front) = self.fronts.iter().find(|(shows, _)| *shows == group)?;
        // Also parts of the front, which share its names.
        let part = format!("{group}::{front}::{name}");
        match self.modules.contains_key(&part) {
            true => Some(part),
            false => Some(format!("{group}::{front}")),
        }
    }
}

fn shipped(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap_or("");
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths below `prefix`, with braces expanded: `crate::a::{b, c::d}` has `a::b` and `a::c::d`.
fn paths(text: &str, prefix: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices(&format!("{prefix}::")) {
        let is_path = |before: char| before.is_alphanumeric() || ":_".contains(before);
        if !text[..at].ends_with(is_path) {
            write_out("", &text[at + prefix.len() + 2..], &mut all);
        }
    }
    all
}

fn write_out<'a>(before: &str, text: &'a str, all: &mut Vec<String>) -> &'a str {
    let is_end = |next: char| !(next.is_alphanumeric() || ":_".contains(next));
    let (path, mut rest) = text.split_at(text.find(is_end).unwrap_or(text.len()));
    let path = format!("{before}{path}");
    let Some(inner) = rest.strip_prefix('{') else {
        let path = path.trim_end_matches("::self").trim_end_matches(':');
        all.extend((!path.is_empty()).then(|| path.to_owned()));
        return rest;
    };
    rest = inner;
    loop {
        rest = rest.trim_start_matches(|next: char| next.is_whitespace() || next == ',');
        if let Some(rest) = rest.strip_prefix('}') {
            return rest;
        }
        let left = rest.len();
        rest = write_out(&path, rest, all);
        // An alias.
        rest = rest.trim_start();
        if let Some(name) = rest.strip_prefix("as ") {
            rest = name.trim_start_matches(|next| !is_end(next));
        }
        if rest.len() == left {
            return rest;
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_with_what_is_in_their_braces() {
        let text = "use crate::core::{state::{self, State as S}, event}; crate::host::nvml; \
                    notcrate::daemon::x; pub(in crate::report) f()";
        let found = [
            "core::state",
            "core::state::State",
            "core::event",
            "host::nvml",
            "report",
        ];
        assert_eq!(paths(text, "crate"), found);
    }
}
