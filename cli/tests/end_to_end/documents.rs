//! The commands of the documents run as they are written, and print what the documents show.

mod commands;
mod how;
mod text;
mod tutorial;

use scheduler::core::event::{Kind, Severity};

use crate::common::workspace;

#[test]
fn every_kind_of_event_is_in_the_table_of_faults_with_its_severity() {
    let text = std::fs::read_to_string(workspace().join("docs/faults.md")).unwrap();
    for kind in Kind::ALL {
        let severity = match kind.severity() {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let row = format!("| `{}` | {severity}", kind.name());
        assert!(text.contains(&row), "no row {row}");
    }
}
