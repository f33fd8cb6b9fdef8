//! The commands of the documents run as they are written, and print what the documents show.

mod benches;
mod commands;
mod how;
mod text;
mod tutorial;

use scheduler::core::event::{Kind, Severity};

use crate::common::workspace;

#[test]
fn every_kind_of_event_is_in_the_table_of_faults_with_its_severity() {
    let text = std::fs::read_to_string(workspace().join("docs/faults.md")).unwrap();
    let section = text
        .split("\n## ")
        .find(|part| part.starts_with("Events\n"));
    let rows = section.expect("a section on events").lines();
    let rows = rows.filter_map(|line| line.strip_prefix("| `"));
    let mut documented: Vec<String> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            let kind = cells.next().unwrap_or_default().trim_end_matches('`');
            // Further cases stand behind it.
            let severity = cells.next().unwrap_or_default().split(';').next();
            format!("{kind} {}", severity.unwrap_or_default())
        })
        .collect();
    let mut all: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| {
            let severity = match kind.severity() {
                Severity::Info => "info",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            format!("{} {severity}", kind.name())
        })
        .collect();
    documented.sort_unstable();
    all.sort_unstable();
    assert_eq!(documented, all);
}
