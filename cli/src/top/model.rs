//! The data of `pillion top`: a record per GPU and job, and the last minutes of each GPU. A field
//! that a daemon, which may be older, does not have is `None` and shown as `-`, never as 0.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

/// Samples kept per GPU, one per answer of its daemon: twenty minutes at one per second.
const SAMPLES_MAX: usize = 1_200;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) gpus: Vec<Gpu>,
    pub(super) jobs: Vec<Job>,
    /// Daemons that do not answer, as messages.
    pub(super) silent: Vec<String>,
    history: BTreeMap<String, VecDeque<Sample>>,
    before: BTreeMap<(String, String, u64), Counts>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gpu {
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) sharing: String,
    /// Of the high-priority job with the largest p99 relative to its target.
    pub(super) hp: Latency,
    /// Mean share of all best-effort jobs that want the GPU, 0 to 1.
    pub(super) be_share: Option<f64>,
    pub(super) memory_held: u64,
    pub(super) memory_bytes: u64,
    /// Processes that use the GPU without Pillion; none if unknown.
    pub(super) unmanaged: Option<u64>,
    pub(super) alarms: Vec<String>,
}

/// Latency of requests in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) target_ns: Option<u64>,
    /// The share within the target, 0 to 1.
    pub(super) within: Option<f64>,
    pub(super) is_missed: bool,
}

/// A job that has clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Job {
    pub(super) gpu: usize,
    pub(super) id: String,
    pub(super) uid: u64,
    pub(super) is_hp: bool,
    pub(super) processes: usize,
    pub(super) latency: Latency,
    /// A best-effort job's rate as a share of its rate alone, 0 to 1; where that rate is unknown, a
    /// share of its time with demand, which is an upper bound.
    pub(super) share: Option<f64>,
    pub(super) held_by: Option<String>,
    pub(super) memory_held: Option<u64>,
    pub(super) memory_quota: Option<u64>,
    /// Expected GPU time per time since the last answer, 0 to 1, and more if launches queue up.
    pub(super) gpu_use: Option<f64>,
    pub(super) launches_per_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// The p99 of the last minute relative to the target, or to the median without a target.
    pub(super) latency: Option<f64>,
    pub(super) be_share: Option<f64>,
}

/// Running totals of a job at a time of its daemon.
#[derive(Clone, Copy, Debug)]
struct Counts {
    at_ns: u64,
    launches: u64,
    gpu_time_ns: u64,
}

impl Model {
    /// Takes the daemons' answers: `{"daemons": […], "silent": […]}` as in `status --json`.
    pub(super) fn handle_answers(&mut self, answers: &Value) {
        self.gpus.clear();
        self.jobs.clear();
        let mut counts = BTreeMap::new();
        for (place, status) in items(&answers["daemons"]).enumerate() {
            let first = self.jobs.len();
            for job in items(&status["jobs"]).filter(|job| job["ended_ns"].is_null()) {
                let (job, key, now) = self.job(place, status, job);
                self.jobs.push(job);
                counts.insert(key, now);
            }
            let gpu = gpu(status, &self.jobs[first..]);
            let history = self.history.entry(gpu.uuid.clone()).or_default();
            if history.len() >= SAMPLES_MAX {
                history.pop_front();
            }
            history.push_back(gpu.sample());
            self.gpus.push(gpu);
        }
        self.before = counts;
        let uuids: Vec<&str> = self.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
        self.history
            .retain(|uuid, _| uuids.contains(&uuid.as_str()));
        self.silent = items(&answers["silent"])
            .map(|silent| format!("{}: {}", text(&silent["socket"]), text(&silent["error"])))
            .collect();
    }

    /// The last samples of a GPU, the oldest first.
    pub(super) fn history(&self, gpu: &Gpu) -> impl DoubleEndedIterator<Item = Sample> + '_ {
        self.history.get(&gpu.uuid).into_iter().flatten().copied()
    }

    fn job(&self, gpu: usize, status: &Value, job: &Value) -> (Job, (String, String, u64), Counts) {
        let uuid = text(&status["gpu"]["uuid"]);
        let (id, uid) = (text(&job["job"]), job["uid"].as_u64().unwrap_or(0));
        let now = Counts {
            at_ns: status["daemon"]["now_ns"].as_u64().unwrap_or(0),
            launches: job["totals"]["launches"].as_u64().unwrap_or(0),
            gpu_time_ns: job["gpu_time_ns"].as_u64().unwrap_or(0),
        };
        let is_hp = job["class"] == "high-priority";
        let key = (uuid, format!("{id} {is_hp}"), uid);
        // Smaller totals than before are another daemon's.
        let before = self.before.get(&key).filter(|before| {
            before.at_ns < now.at_ns
                && before.launches <= now.launches
                && before.gpu_time_ns <= now.gpu_time_ns
        });
        let passed_ns = before.map(|before| (now.at_ns - before.at_ns) as f64);
        let of = |count: fn(&Counts) -> u64| Some((count(&now) - count(before?)) as f64);
        let memory = |name: &str| job["memory"][name].as_u64();
        let job = Job {
            gpu,
            id,
            uid,
            is_hp,
            processes: items(&job["clients"]).count(),
            latency: latency(&job["requests"]),
            share: job["progress"]["share"].as_f64(),
            held_by: job["held_by"].as_str().map(str::to_owned),
            memory_held: memory("held_bytes"),
            memory_quota: memory("quota_bytes"),
            gpu_use: of(|counts| counts.gpu_time_ns)
                .zip(passed_ns)
                .map(|(ns, of)| ns / of),
            launches_per_s: of(|counts| counts.launches)
                .zip(passed_ns)
                .map(|(launches, ns)| launches * 1e9 / ns),
        };
        (job, key, now)
    }
}

impl Gpu {
    fn sample(&self) -> Sample {
        let hp = &self.hp;
        let of = hp.target_ns.or(hp.p50_ns).filter(|of| *of > 0);
        Sample {
            latency: hp.p99_ns.zip(of).map(|(p99, of)| p99 as f64 / of as f64),
            be_share: self.be_share,
        }
    }
}

impl Latency {
    fn badness(&self) -> f64 {
        let of = self.target_ns.unwrap_or(u64::MAX).max(1);
        self.p99_ns.map_or(-1.0, |p99| p99 as f64 / of as f64)
    }
}

fn gpu(status: &Value, jobs: &[Job]) -> Gpu {
    let hp = jobs.iter().filter(|job| job.is_hp).map(|job| job.latency);
    let hp = hp.max_by(|a, b| a.badness().total_cmp(&b.badness()));
    let shares: Vec<f64> = jobs.iter().filter_map(|job| job.share).collect();
    let count = shares.len() as f64;
    Gpu {
        uuid: text(&status["gpu"]["uuid"]),
        name: text(&status["gpu"]["name"]),
        sharing: text(&status["gpu"]["sharing"]),
        hp: hp.unwrap_or_default(),
        be_share: (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / count),
        memory_held: jobs.iter().filter_map(|job| job.memory_held).sum(),
        memory_bytes: status["gpu"]["memory_bytes"].as_u64().unwrap_or(0),
        unmanaged: status["unmanaged"]["count"].as_u64(),
        alarms: alarms(status),
    }
}

fn alarms(status: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let jobs = || items(&status["jobs"]).filter(|job| job["ended_ns"].is_null());
    for job in jobs().filter(|job| job["requests"]["is_missed"] == true) {
        found.push(format!("{} misses its target", text(&job["job"])));
    }
    if let Some(count @ 1..) = status["unmanaged"]["count"].as_u64() {
        found.push(match count {
            1 => "1 process is unmanaged".to_owned(),
            count => format!("{count} processes are unmanaged"),
        });
    }
    if status["draining"].is_string() {
        found.push("drained".to_owned());
    }
    if items(&status["held"]).next().is_some() {
        found.push("best-effort jobs are held".to_owned());
    }
    if status["policy"]["config_error"].is_string() {
        found.push("the configuration on disk is not in force".to_owned());
    }
    if !status["gpu"]["released"].is_null() {
        found.push("released".to_owned());
    }
    found
}

fn latency(requests: &Value) -> Latency {
    Latency {
        p50_ns: requests["recent"]["p50_ns"].as_u64(),
        p99_ns: requests["recent"]["p99_ns"].as_u64(),
        target_ns: requests["target_ns"].as_u64(),
        within: requests["within_target"].as_f64(),
        is_missed: requests["is_missed"] == true,
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}
