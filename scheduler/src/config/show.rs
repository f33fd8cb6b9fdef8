//! The configuration in force, and the file behind each setting.

use policy::Policy;
use profiler::settings::Layers;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::Config;

/// Version of this document: changes when a reader of the old one would be misled.
pub const SCHEMA_VERSION: u32 = 1;

/// Origin of settings that no file contains.
pub const BUILT_IN: &str = "default";

/// Every setting in force, in the order of sections and keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The files read; a later one overrides an earlier one.
    pub files: Vec<String>,
    /// The settings.
    pub settings: Vec<Setting>,
}

/// One key of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Section and key, such as `policy.poll_us`; in a list of tables with the index, from 0.
    pub key: String,
    /// In the file's form.
    pub value: Value,
    /// File, line and column, or [`BUILT_IN`].
    pub origin: String,
}

impl Shown {
    /// For `config`, read from `layers`.
    #[must_use]
    pub fn of(layers: &Layers, config: &Config) -> Self {
        let mut said = Vec::new();
        if let Ok(document) = layers.document() {
            collect(layers, &document, "", &mut said);
        }
        let mut settings = built_in(&config.policy);
        settings.retain(|built_in| {
            let is_said = |setting: &Setting| setting.key == built_in.key;
            !said.iter().any(is_said)
        });
        settings.append(&mut said);
        settings.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            schema_version: SCHEMA_VERSION,
            files: layers.paths().map(|it| it.display().to_string()).collect(),
            settings,
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has text keys only")
    }
}

/// The defaults under this policy, from the example, which shows every key.
fn built_in(policy: &Policy) -> Vec<Setting> {
    let name = policy.name();
    let check = |section: &str, line: &str| {
        let of = |wanted: &str| if section == wanted { line } else { "" };
        let (gpu, own) = (of("gpu"), of("policy"));
        let mut text = format!("[gpu]\nindex = 0\n{gpu}\n[policy]\nname = \"{name}\"\n{own}\n");
        if !["gpu", "policy"].contains(&section) {
            text += &format!("[{section}]\n{line}\n");
        }
        Config::check(BUILT_IN.as_ref(), &text).ok()
    };
    let without = check("policy", "");
    let setting = |key: String, value| Setting {
        key,
        value,
        origin: BUILT_IN.to_owned(),
    };
    let mut settings = vec![setting("policy.name".to_owned(), name.into())];
    let mut section = "";
    for line in include_str!("../../../examples/gpu0.toml").lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            continue;
        }
        let is_key = |key: &str| {
            key.bytes()
                .all(|b| b.is_ascii_lowercase() || b"_0123456789".contains(&b))
        };
        let Some((key, text)) = line.split_once(" = ").filter(|(key, _)| is_key(key)) else {
            continue;
        };
        if without.is_some() && check(section, line) == without {
            settings.push(setting(format!("{section}.{key}"), value_of(text)));
        }
    }
    if let Policy::Listed(numbers) = policy {
        let params = numbers.entry().params().iter();
        settings.extend(params.map(|param| {
            let value = match param.is_switch {
                true => (param.default != 0.0).into(),
                false => param.default.into(),
            };
            setting(format!("policy.{}", param.key), value)
        }));
    }
    settings
}

fn collect(layers: &Layers, table: &DeTable<'_>, above: &str, settings: &mut Vec<Setting>) {
    for (key, value) in table {
        let key = match above {
            "" => key.get_ref().to_string(),
            above => format!("{above}.{}", key.get_ref()),
        };
        match value.get_ref() {
            // The presence of an empty section may turn something on.
            DeValue::Table(table) if table.is_empty() => settings.push(Setting {
                key,
                value: Value::Object(serde_json::Map::new()),
                origin: layers.place(value.span().start).to_string(),
            }),
            DeValue::Table(table) => collect(layers, table, &key, settings),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                let tables = items.iter().enumerate();
                let tables =
                    tables.filter_map(|(place, item)| Some((place, item.get_ref().as_table()?)));
                for (place, table) in tables {
                    collect(layers, table, &format!("{key}.{place}"), settings);
                }
            }
            _ => settings.push(Setting {
                key,
                value: value_of(layers.text(value.span())),
                origin: layers.place(value.span().start).to_string(),
            }),
        }
    }
}

fn value_of(text: &str) -> Value {
    let read = toml::from_str::<toml::Table>(&format!("value = {text}"));
    let value = read.ok().and_then(|mut table| table.remove("value"));
    let value = value.and_then(|value| serde_json::to_value(value).ok());
    value.unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::super::source::Source;
    use super::*;

    fn shown(
        files: &[(&str, &str)],
        source: impl Fn(&Path) -> Source,
    ) -> (tempfile::TempDir, Shown) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (config, layers) = source(folder.path()).read().unwrap();
        let shown = Shown::of(&layers, &config);
        (folder, shown)
    }

    #[test]
    fn every_setting_in_force_has_its_value_and_who_said_it() {
        let files = [
            (
                "default.toml",
                "[memory]\nbest_effort = \"30%\"\n[policy]\npoll_us = 100\n",
            ),
            ("default.d/10-site.toml", "[limits]\njobs_per_user = 8\n"),
            (
                "gpu0.toml",
                "[gpu]\nuuid = \"GPU-1\"\n[policy]\npoll_us = 40\n",
            ),
            (
                "gpu0.d/50-rules.toml",
                "[[memory.rules]]\nuser = \"1000\"\nquota = \"20%\"\n[policy]\nslo_p99 = \"1.2x\"\n",
            ),
        ];
        let (folder, shown) = shown(&files, |folder| Source::File(folder.join("gpu0.toml")));
        let of = |key: &str| {
            let mut found = shown.settings.iter().filter(|setting| setting.key == key);
            let setting = found
                .next()
                .unwrap_or_else(|| panic!("no {key}: {shown:?}"));
            assert!(found.next().is_none(), "{key} twice");
            let origin = Path::new(&setting.origin).strip_prefix(folder.path());
            let origin = origin.map_or(setting.origin.clone(), |it| it.display().to_string());
            (setting.value.clone(), origin)
        };
        for (key, value, origin) in [
            ("memory.best_effort", json!("30%"), "default.toml:2:15"),
            (
                "limits.jobs_per_user",
                json!(8),
                "default.d/10-site.toml:2:17",
            ),
            ("gpu.uuid", json!("GPU-1"), "gpu0.toml:2:8"),
            ("policy.poll_us", json!(40), "gpu0.toml:4:11"),
            (
                "memory.rules.0.user",
                json!("1000"),
                "gpu0.d/50-rules.toml:2:8",
            ),
            ("policy.slo_p99", json!("1.2x"), "gpu0.d/50-rules.toml:5:11"),
            ("policy.name", json!("pillion"), "default"),
            ("policy.max_hold_ms", json!(100), "default"),
            ("memory.excess", json!("report"), "default"),
        ] {
            assert_eq!(of(key), (value, origin.to_owned()), "{key}");
        }
        assert_eq!(shown.files.len(), 4);
        assert!(!shown.settings.iter().any(|it| it.key == "gpu.index"));
        assert!(
            shown
                .settings
                .iter()
                .all(|setting| !setting.origin.is_empty())
        );
    }

    #[test]
    fn a_key_that_the_policy_does_not_look_at_is_not_in_force() {
        let file = [(
            "gpu0.toml",
            "[gpu]\nindex = 0\n[policy]\nname = \"orion\"\n",
        )];
        let (_folder, shown) = shown(&file, |folder| Source::File(folder.join("gpu0.toml")));
        let has = |key: &str| shown.settings.iter().any(|setting| setting.key == key);
        assert!(has("policy.poll_us") && has("policy.lease_ms"));
        assert!(!has("policy.feedback") && !has("policy.gap_prediction"));
    }

    #[test]
    fn what_is_built_in_is_what_every_key_has_that_has_a_value_without_a_file() {
        let pillion: Policy = "pillion".parse().unwrap();
        let settings = built_in(&pillion);
        let keys: Vec<&str> = settings
            .iter()
            .map(|setting| setting.key.as_str())
            .collect();
        assert_eq!(
            keys,
            [
                "policy.name",
                "gpu.sharing",
                "policy.slo_miss",
                "policy.block_priority",
                "policy.feedback",
                "policy.beside",
                "policy.kernel_pairs",
                "policy.gap_prediction",
                "policy.learnt_durations",
                "policy.residual_us",
                "policy.lease_ms",
                "policy.poll_us",
                "policy.max_hold_ms",
                "policy.unknown_kernel_us",
                "policy.on_daemon_loss",
                "policy.collectives",
                "memory.best_effort",
                "memory.high_priority",
                "memory.excess",
                "memory.slack",
                "faults.stuck_s",
                "mps.control",
                "mps.start",
                "mps.terminate",
                "mps.patterns",
                "limits.clients_per_user",
                "limits.jobs_per_user",
                "limits.connections_per_user"
            ]
        );
    }
}
