//! The demo's results, and its checks. Three parties count independently: the replays count what
//! they issue, the library what it forwards, and the device server what arrives; on a GPU of this
//! machine the kernels count launches. All must agree in every phase.

use serde_json::{Map, Value, json};

use crate::demo::Options;
use crate::demo::calibration::told;
use crate::demo::phase::{BE_JOB, HP_JOB, Outcome, Phase};
use crate::demo::stage::Stage;
use crate::failure::Failure;
use crate::out;
use crate::status::table;

#[derive(Debug)]
pub(crate) struct Results {
    header: Value,
    /// The setup, for people.
    about: Vec<String>,
    order: Vec<Phase>,
    /// Phases to compare: without Pillion and with it.
    pair: (Phase, Phase),
    phases: Map<String, Value>,
    counts: Map<String, Value>,
    faults: Vec<String>,
}

/// Counted by program and device under the same name.
const COUNTED: [&str; 3] = ["launches", "copied_h2d_bytes", "copied_d2h_bytes"];

pub(crate) const HEADINGS: [&str; 7] = [
    "PHASE", "HP p50", "p95", "p99 ms", "vs solo", "BE it/s", "share",
];

impl Results {
    pub(crate) fn new(options: &Options, stage: &Stage) -> Self {
        let mut header = json!({
            "schema_version": 1,
            "device": stage.venue.name(),
            "software_gpu": stage.venue.is_software(),
            "seed": options.seed,
            "policy": options.policy,
            "hp": stage.hp.name,
            "be": stage.be.name,
            "seconds": stage.seconds,
        });
        let mut about = Vec::new();
        if let Some(machine) = stage.venue.machine() {
            header["gpu"] = machine.json();
            header["clock"] = "real".into();
            about.push(machine.described());
        }
        for (key, job) in [("hp", &stage.hp), ("be", &stage.be)] {
            let Some(calibration) = &job.calibration else {
                continue;
            };
            header["calibration"][key] = calibration.clone();
            about.push(told(&job.name, calibration));
        }
        if let Some(reason) = stage.venue.not_done() {
            header["not_done"] = reason.clone().into();
            about.push(reason);
        }
        Self {
            header,
            about,
            order: stage.phases.clone(),
            pair: stage.pair(),
            phases: Map::new(),
            counts: Map::new(),
            faults: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, phase: Phase, outcome: Outcome) {
        let mut summary = Map::new();
        let mut counts = Map::new();
        let jobs = [("hp", HP_JOB, &outcome.hp), ("be", BE_JOB, &outcome.be)];
        for (name, id, report) in jobs {
            let Some(report) = report else { continue };
            let device = match &outcome.device {
                Some(device) => device["labels"][name].clone(),
                None => json!({"launches": report["launches_told"]}),
            };
            let pillion = outcome.pillion.as_ref().map(|status| totals(status, id));
            self.check(phase, name, report, &device, pillion.as_ref());
            summary.insert(name.into(), job_summary(name, report));
            let of = |counts: &Value| {
                let counted = COUNTED.iter().map(|&c| (c.to_owned(), counts[c].clone()));
                counted
                    .filter(|(_, count)| !count.is_null())
                    .collect::<Map<_, _>>()
            };
            let mut entry = json!({"program": of(report), "device": of(&device)});
            if let Some(beside) = device.get("launches_beside_others") {
                entry["device"]["launches_beside_others"] = beside.clone();
            }
            if let Some(pillion) = pillion {
                if name == "be" {
                    summary.insert(
                        "be_launches_beside_hp".into(),
                        pillion["launches_beside_hp"].clone(),
                    );
                    summary.insert("be_launches_held".into(), pillion["launches_held"].clone());
                }
                entry["pillion"] = pillion;
            }
            counts.insert(name.into(), entry);
        }
        self.phases.insert(phase.key().into(), summary.into());
        self.counts.insert(phase.key().into(), counts.into());
    }

    /// Errors that no process noticed itself.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    pub(crate) fn json(&self) -> String {
        let mut document = self.header.clone();
        document["phases"] = self.phases.clone().into();
        document["counts"] = self.counts.clone().into();
        document.to_string()
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let text = |key: &str| self.header[key].as_str().unwrap_or_default().to_owned();
        out::line(format_args!(
            "{}{}, policy {}: {} beside {}",
            if self.is_software() {
                "software GPU "
            } else {
                ""
            },
            text("device"),
            text("policy"),
            text("hp"),
            text("be"),
        ))?;
        for line in &self.about {
            out::line(format_args!("  {line}"))?;
        }
        out::line(format_args!(""))?;
        let mut table = table(&HEADINGS);
        for row in self.rows() {
            table.add_row(row);
        }
        out::line(format_args!("{table}\n"))?;
        self.print_counts()
    }

    /// A row per phase, under [`HEADINGS`].
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let solo_p99 = self.hp_ms(Phase::HpSolo, "p99_ms");
        let number = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.2}"));
        let row = |phase: Phase| {
            let ms = |key| self.hp_ms(phase, key);
            let slower = ms("p99_ms").zip(solo_p99).map(|(ms, solo)| ms / solo);
            vec![
                phase.title().to_owned(),
                number(ms("p50_ms")),
                number(ms("p95_ms")),
                number(ms("p99_ms")),
                slower.map_or("-".into(), |ratio| format!("{ratio:.2}x")),
                number(self.be_per_s(phase)),
                self.be_share(phase)
                    .map_or("-".into(), |share| format!("{:.0} %", share * 100.0)),
            ]
        };
        self.order.iter().copied().map(row).collect()
    }

    pub(crate) fn about(&self) -> &Value {
        &self.header
    }

    pub(crate) fn about_lines(&self) -> &[String] {
        &self.about
    }

    pub(crate) fn is_software(&self) -> bool {
        self.header["software_gpu"] == true
    }

    pub(crate) fn is_in_real_time(&self) -> bool {
        self.header["clock"] == "real"
    }

    pub(crate) fn without(&self) -> Phase {
        self.pair.0
    }

    pub(crate) fn with(&self) -> Phase {
        self.pair.1
    }

    pub(crate) fn hp_ms(&self, phase: Phase, key: &str) -> Option<f64> {
        self.phases[phase.key()]["hp"][key].as_f64()
    }

    /// The best-effort job's rate as a fraction of its rate alone.
    pub(crate) fn be_share(&self, phase: Phase) -> Option<f64> {
        Some(self.be_per_s(phase)? / self.be_per_s(Phase::BeSolo)?)
    }

    pub(crate) fn phases(&self) -> &[Phase] {
        &self.order
    }

    pub(crate) fn be_per_s(&self, phase: Phase) -> Option<f64> {
        self.phases[phase.key()]["be"]["per_s"].as_f64()
    }

    fn print_counts(&self) -> Result<(), Failure> {
        for phase in self.order.iter().filter(|phase| phase.has_pillion()) {
            let pillion = &self.counts[phase.key()]["be"]["pillion"];
            let count = |name: &str| pillion[name].as_u64().unwrap_or(0);
            out::line(format_args!(
                "{}: of {} BE launches, {} ran beside busy HP work, {} were held, {} slipped",
                phase.title(),
                count("launches"),
                count("launches_beside_hp"),
                count("launches_held"),
                count("slips"),
            ))?;
        }
        if self.faults.is_empty() {
            out::line(format_args!(
                "launches and bytes counted by programs, Pillion and device agree; every check \
                 result was correct"
            ))?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        phase: Phase,
        name: &str,
        report: &Value,
        device: &Value,
        pillion: Option<&Value>,
    ) {
        let key = phase.key();
        if report["checks_wrong"].as_u64() != Some(0) {
            self.faults.push(format!(
                "{key}: {} wrong results in {name}",
                report["checks_wrong"]
            ));
        }
        for counted in COUNTED {
            let program = report[counted].as_u64();
            for (who, counts) in [("the device", Some(device)), ("Pillion", pillion)] {
                let Some(counts) = counts else { continue };
                // A GPU's kernels count only their launches.
                if who == "the device" && counted != "launches" && counts.get(counted).is_none() {
                    continue;
                }
                if program.is_none() || counts[counted].as_u64() != program {
                    self.faults.push(format!(
                        "{key}: {name} counts {} {counted}, {who} counts {}",
                        report[counted], counts[counted]
                    ));
                }
            }
        }
    }
}

fn job_summary(name: &str, report: &Value) -> Value {
    let of = |keys: &[&str]| {
        keys.iter()
            .map(|&k| (k.to_owned(), report[k].clone()))
            .collect::<Map<_, _>>()
    };
    match name {
        "hp" => of(&["p50_ms", "p95_ms", "p99_ms", "requests"]).into(),
        _ => of(&["per_s"]).into(),
    }
}

fn totals(status: &Value, id: &str) -> Value {
    let none = Vec::new();
    let jobs = status["jobs"].as_array().unwrap_or(&none);
    jobs.iter()
        .find(|job| job["job"] == id)
        .map_or(Value::Null, |job| job["totals"].clone())
}
