//! Estimated classes against all measurements of Orion's authors, weighted by GPU time. Each
//! recording is scored as an import sees it, with durations, and the interposer, by names and
//! shapes. The class of a launch is *right* if it was measured; *harmful* if the opposite was, as
//! contending kernels then go together; *slow* if the measured class is unknown, as an allowed pair
//! is then held. Results: `docs/formats.md`. The files are `testing::data`'s.

#[macro_use]
extern crate testing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use profiler::ResourceClass;
use profiler::family::{CONFIDENCE_PCT_MIN, DURATION_NS_MIN, Family, Launch, estimate, rule_of};
use profiler::orion::{self, Entry};

fn main() -> ExitCode {
    testing::main()
}

/// SMs of the V100 that Orion measured on.
const SMS: u32 = 80;

const STATED_FROM: [&str; 10] = [
    "bert_2_fwd",
    "bert_8_fb1",
    "mobilenetv2_32_fb1",
    "mobilenetv2_4_fwd",
    "mobilenetv2_64_fb1",
    "mobilenetv2_96_fb1",
    "resnet101_32_fb1",
    "resnet101_4_fwd",
    "resnet50_32_fb1",
    "resnet50_4_fwd",
];

#[derive(Clone, Copy, Default)]
struct Score {
    all: u64,
    classed: u64,
    right: u64,
    harmful: u64,
    slow: u64,
}

impl Score {
    fn add(&mut self, measured: ResourceClass, estimated: Option<ResourceClass>, ns: u64) {
        self.all += ns;
        let Some(estimated) = estimated else {
            return;
        };
        self.classed += ns;
        if estimated == measured {
            self.right += ns;
        } else if measured == ResourceClass::Unknown {
            self.slow += ns;
        } else {
            self.harmful += ns;
        }
    }

    fn sum(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            classed: self.classed + other.classed,
            right: self.right + other.right,
            harmful: self.harmful + other.harmful,
            slow: self.slow + other.slow,
        }
    }

    fn right_pct(self) -> f64 {
        match self.classed {
            0 => 100.0,
            classed => self.right as f64 * 100.0 / classed as f64,
        }
    }

    fn pct(self, ns: u64) -> f64 {
        ns as f64 * 100.0 / self.all.max(1) as f64
    }

    fn row(self, name: &str) -> String {
        let right = match self.classed {
            0 => "-".to_owned(),
            _ => format!("{:.1}", self.right_pct()),
        };
        format!(
            "| {name} | {:.1} | {:.1} | {right} | {:.1} | {:.1} |",
            self.all as f64 / 1e6,
            self.pct(self.classed),
            self.pct(self.harmful),
            self.pct(self.slow),
        )
    }
}

#[derive(Clone, Copy, PartialEq)]
enum View {
    Import,
    Interposer,
}

fn launch(entry: &Entry, view: View) -> Launch<'_> {
    Launch {
        name: &entry.name,
        sm_needed: Some(entry.sm_needed),
        device_sms: Some(SMS),
        duration_ns: (view == View::Import).then_some(entry.duration_ns),
        intensity: None,
    }
}

fn recordings() -> Vec<(String, Vec<Entry>)> {
    let folder = testing::data("orion").join("model_kernels");
    let files = folder.read_dir().expect("a folder");
    let mut recordings: Vec<_> = files
        .map(|file| {
            let path = file.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), read(&path))
        })
        .collect();
    recordings.sort_by(|one, other| one.0.cmp(&other.0));
    recordings
}

fn read(path: &Path) -> Vec<Entry> {
    orion::read(path).unwrap_or_else(|error| panic!("{error}"))
}

fn score(entries: &[Entry], view: View) -> Score {
    let mut score = Score::default();
    for entry in entries {
        let estimated = estimate(&launch(entry, view)).map(|estimate| estimate.class);
        score.add(entry.class, estimated, entry.duration_ns);
    }
    score
}

fn is_real(entries: &[Entry]) -> bool {
    entries
        .iter()
        .any(|entry| entry.duration_ns >= DURATION_NS_MIN)
}

fn assert_documented(row: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/formats.md");
    let docs = fs::read_to_string(path).expect("there");
    assert!(docs.contains(row), "not in docs/formats.md:\n{row}");
}

fn assert_bounds(recordings: &[(String, Vec<Entry>)], view: View) {
    let mut all = Score::default();
    for (name, entries) in recordings {
        let score = score(entries, view);
        testing::print(format_args!("{}", score.row(name)));
        all = all.sum(score);
        assert!(score.right_pct() >= 85.0, "{name}: {}", score.row(name));
    }
    testing::print(format_args!("{}", all.row("all")));
    assert!(all.right_pct() >= 95.0, "{}", all.row("all"));
    assert!(all.pct(all.classed) >= 85.0, "{}", all.row("all"));
    assert!(all.pct(all.harmful) <= 3.0, "{}", all.row("all"));
}

#[test]
fn with_durations_95_percent_of_the_classed_time_is_classed_as_it_was_measured() {
    let recordings = recordings();
    assert_bounds(&recordings, View::Import);
    // A dummy was not measured, so it gets no class.
    for (name, entries) in recordings.iter().filter(|(_, entries)| !is_real(entries)) {
        assert_eq!(score(entries, View::Import).classed, 0, "{name}");
    }
}

#[test]
fn by_names_and_shapes_alone_as_much_is_right() {
    let mut recordings = recordings();
    recordings.retain(|(_, entries)| is_real(entries));
    assert_bounds(&recordings, View::Interposer);
    let mut all = Score::default();
    for name in STATED_FROM {
        let found = recordings.iter().find(|(found, _)| found == name);
        let (_, entries) = found.unwrap_or_else(|| panic!("{name} is in the folder"));
        let score = score(entries, View::Interposer);
        assert_documented(&score.row(name));
        all = all.sum(score);
    }
    assert_documented(&all.row("all"));
}

/// For every number of SMs below which launches get no class; for high-priority jobs there is none.
#[test]
fn the_bounds_do_not_hang_on_where_a_launch_counts_as_small() {
    let recordings = recordings();
    for sms in [0, 20, 40, 80, 160] {
        let mut all = Score::default();
        for (name, entries) in recordings.iter().filter(|(_, entries)| is_real(entries)) {
            let mut of_one = Score::default();
            for entry in entries {
                let launch = Launch {
                    device_sms: Some(sms),
                    ..launch(entry, View::Interposer)
                };
                let estimated = estimate(&launch).map(|estimate| estimate.class);
                of_one.add(entry.class, estimated, entry.duration_ns);
            }
            assert!(of_one.right_pct() >= 85.0, "{name} {sms}");
            all = all.sum(of_one);
        }
        testing::print(format_args!("{}", all.row(&format!("{sms} SMs"))));
        assert!(all.right_pct() >= 95.0 && all.pct(all.harmful) <= 3.0);
        assert!(all.pct(all.classed) >= 85.0);
    }
}

const RECORDINGS_MIN: usize = 2;

#[derive(Default)]
struct Recorded {
    score: Score,
    launches: usize,
    by_recording: BTreeMap<String, Score>,
}

impl Recorded {
    fn row(&self, family: Family) -> String {
        let (launches, recordings) = (self.launches, self.by_recording.len());
        format!(
            "{} {launches} | {recordings} |",
            self.score.row(family.word())
        )
    }

    fn least_right_pct(&self) -> f64 {
        let names = self.by_recording.keys();
        let rests = names.map(|out| {
            let rest = self.by_recording.iter().filter(|(name, _)| *name != out);
            rest.fold(Score::default(), |sum, (_, score)| sum.sum(*score))
        });
        rests.map(Score::right_pct).fold(100.0, f64::min)
    }
}

fn families() -> BTreeMap<Family, Recorded> {
    let mut families: BTreeMap<Family, Recorded> = BTreeMap::new();
    for (name, entries) in recordings() {
        if !STATED_FROM.contains(&name.as_str()) {
            continue;
        }
        for entry in &entries {
            let rule = rule_of(&entry.name);
            let family = rule.expect("every kernel of theirs has a family").family;
            let estimated = estimate(&launch(entry, View::Interposer));
            let class = estimated.map(|estimate| estimate.class);
            let recorded = families.entry(family).or_default();
            let ns = entry.duration_ns;
            recorded.score.add(entry.class, class, ns);
            if class.is_some() {
                recorded.launches += 1;
                let by_recording = recorded.by_recording.entry(name.clone());
                by_recording.or_default().add(entry.class, class, ns);
            }
        }
    }
    families
}

#[test]
fn confidence_is_the_share_that_was_right() {
    let families = families();
    for (family, recorded) in &families {
        testing::print(format_args!("{}", recorded.row(*family)));
        assert_documented(&recorded.row(*family));
    }
    for family in Family::ALL {
        let recorded = families.get(&family);
        let stated = recorded.filter(|recorded| recorded.by_recording.len() >= RECORDINGS_MIN);
        let pct = stated.map(|recorded| recorded.score.right_pct().floor() as u8);
        assert_eq!(family.confidence_pct(), pct, "{}", family.word());
        assert!(pct.is_none_or(|pct| pct >= CONFIDENCE_PCT_MIN));
        // No recording alone lifts a family over the line.
        let least = stated.map_or(100.0, Recorded::least_right_pct);
        assert!(
            least >= f64::from(CONFIDENCE_PCT_MIN),
            "{}: {least}",
            family.word()
        );
    }
}
