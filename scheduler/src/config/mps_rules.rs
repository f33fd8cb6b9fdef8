//! `[mps]`: commands to query, start and end NVIDIA's MPS, and whether this daemon manages it.

use std::path::{Path, PathBuf};

use profiler::settings::{self, Reader, Whole};
use rustix::fs::{Access, access};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const LOGS_MAX: usize = 8;
const WORDS_MAX: usize = 64;

/// Default of `restarts_per_hour`.
pub const RESTARTS_PER_HOUR: u32 = 3;

/// The program that talks to MPS's control daemon, at the path of NVIDIA's packages.
const MPS_CONTROL: &str = "/usr/bin/nvidia-cuda-mps-control";
/// Starts a control daemon in the background (its manual page).
const IN_BACKGROUND: &str = "-d";
/// Starts static partitions (NVIDIA's MPS guide, "Legacy MPS v2 Interface"; R535, R550 exit on it).
const STATIC_PARTITIONING: &str = "-S";

/// Former keys of `[faults]`, and their names in `[mps]`.
const MOVED: [(&str, &str); 5] = [
    ("mps_control", "control"),
    ("mps_start", "start"),
    ("mps_terminate", "terminate"),
    ("mps_logs", "logs"),
    ("mps_patterns", "patterns"),
];

/// `[mps]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MpsRules {
    /// `manage`: start the control daemon if missing, watch and restart it.
    pub manage: bool,
    /// `control`: the command that reads `quit` on its standard input and so ends MPS.
    #[serde(deserialize_with = "command")]
    pub control: Vec<String>,
    /// `start`: the command that starts MPS, and returns when it runs.
    #[serde(deserialize_with = "command")]
    pub start: Vec<String>,
    /// `terminate`: the command that reads questions and `terminate_client` on its standard input.
    #[serde(deserialize_with = "command")]
    pub terminate: Vec<String>,
    /// `logs`: log files of MPS.
    #[serde(deserialize_with = "logs")]
    pub logs: Vec<PathBuf>,
    /// `patterns`: further parts of a log line that mean a fault.
    #[serde(deserialize_with = "patterns")]
    pub patterns: Vec<String>,
    /// `restarts_per_hour`: limit with `manage`; the first start does not count.
    #[serde(deserialize_with = "restarts")]
    pub restarts_per_hour: u32,
    /// `static_partitioning`: with `manage`, start MPS with static partitions.
    pub static_partitioning: bool,
}

impl Default for MpsRules {
    fn default() -> Self {
        let program = || MPS_CONTROL.to_owned();
        Self {
            manage: false,
            control: vec![program()],
            start: vec![program(), IN_BACKGROUND.to_owned()],
            terminate: vec![program()],
            logs: Vec::new(),
            patterns: Vec::new(),
            restarts_per_hour: RESTARTS_PER_HOUR,
            static_partitioning: false,
        }
    }
}

impl MpsRules {
    /// The command that starts MPS, including the option for `static_partitioning`.
    #[must_use]
    pub fn start_command(&self) -> Vec<String> {
        let more = self.static_partitioning.then_some(STATIC_PARTITIONING);
        let words = self.start.iter().cloned();
        words.chain(more.map(str::to_owned)).collect()
    }

    /// Configured programs that cannot be run, a sentence each; `is_restarting`: a rule restarts
    /// MPS. Unused default programs of MPS, which may not be installed, are left out.
    #[must_use]
    pub fn missing_programs(&self, is_restarting: bool) -> Vec<String> {
        let is_used = is_restarting || self.manage;
        let is_asked = self.manage || self.terminate != Self::default().terminate;
        let named = [
            (is_used, "control", &self.control),
            (is_used, "start", &self.start),
            (is_asked, "terminate", &self.terminate),
        ];
        let named = named.into_iter().filter(|(is_used, ..)| *is_used);
        let doubts = named.filter_map(|(_, key, command)| {
            let program = Path::new(command.first()?);
            let why = why_not_executable(program)?;
            Some(format!("[mps] {key}: {}: {why}", program.display()))
        });
        doubts.collect()
    }

    /// Missing `logs`, a sentence each. They may come.
    #[must_use]
    pub fn missing_logs(&self) -> Vec<String> {
        let missing = self.logs.iter().filter(|path| !path.exists());
        let sentence = |path: &PathBuf| format!("[mps] logs: {} does not exist", path.display());
        missing.map(sentence).collect()
    }
}

fn why_not_executable(program: &Path) -> Option<String> {
    match program.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_file() => Some("not a regular file".to_owned()),
        Ok(_) => access(program, Access::EXEC_OK)
            .err()
            .map(|error| error.to_string()),
    }
}

/// Takes former keys out of `[faults]`, with a fault for each: the rest is read without them.
pub(super) fn refuse_moved(reader: &mut Reader<'_>, document: &mut DeTable<'_>) {
    let Some(DeValue::Table(faults)) = document.get_mut("faults").map(Spanned::get_mut) else {
        return;
    };
    for (old, new) in MOVED {
        if let Some(value) = faults.remove(old) {
            let what = format!("{old} of [faults] has moved; nearest is {new} in [mps]");
            reader.fault(value.span().start, what);
        }
    }
}

pub(super) fn check(rules: &MpsRules, reader: &mut Reader<'_>, document: &DeTable<'_>) {
    let given = |key: &str| settings::at(document, &format!("mps.{key}")).map(Spanned::span);
    for key in ["restarts_per_hour", "static_partitioning"] {
        if let Some(span) = given(key).filter(|_| !rules.manage) {
            let what = format!(
                "{key} is set, but applies only where this daemon starts MPS; nearest is manage = \
                 true"
            );
            reader.fault(span.start, what);
        }
    }
    if let Some(span) = given("start").filter(|_| rules.static_partitioning) {
        let what = format!(
            "start and static_partitioning are both set, but start has its own arguments; nearest \
             is \"{STATIC_PARTITIONING}\" among these"
        );
        reader.fault(span.start, what);
    }
}

fn restarts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    // More than one in three minutes repairs nothing.
    Ok(Whole::<0, 20>::deserialize(deserializer)?.0 as u32)
}

fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
    wanted: &str,
    near: impl FnOnce(&[String]) -> Option<String>,
    is_right: impl FnOnce(&[String]) -> bool,
) -> Result<Vec<String>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(deserializer)?;
    if is_right(&texts) && texts.iter().all(|text| !text.contains('\0')) {
        return Ok(texts);
    }
    Err(settings::wrong(wanted, near(&texts)))
}

fn logs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    let wanted = format!("a list of at most {LOGS_MAX} absolute paths");
    let near = |_: &[String]| Some("[\"/var/log/nvidia-mps/control.log\"]".to_owned());
    let logs = texts(deserializer, &wanted, near, |logs| {
        logs.len() <= LOGS_MAX && logs.iter().all(|log| log.starts_with('/'))
    });
    logs.map(|logs| logs.into_iter().map(PathBuf::from).collect())
}

fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let wanted = format!("a list of at most {LOGS_MAX} strings");
    texts(
        deserializer,
        &wanted,
        |_| None,
        |patterns| patterns.len() <= LOGS_MAX && !patterns.iter().any(String::is_empty),
    )
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let wanted =
        "a list of strings, of which the first is the absolute path of a program; no shell is used";
    let near = |words: &[String]| {
        let program = words.first().filter(|program| !program.starts_with('/'));
        program.map(|program| format!("[\"/usr/bin/{program}\"]"))
    };
    texts(deserializer, wanted, near, |words| {
        words.len() <= WORDS_MAX && words.first().is_some_and(|word| word.starts_with('/'))
    })
}
