//! # Pillion's decisions
//!
//! Who may launch what, and when: pure code. State and a description of the
//! moment go in, a lease comes out; no IO, no clock, no thread, no `unsafe`.
//! The daemon runs it 20 000 times a second, the launch path of every
//! best-effort process asks [`admits`] once per launch, and a simulator can run
//! both on the same source. So the properties that the tests of this crate
//! establish hold in all three places.
//!
//! | module | noun |
//! |---|---|
//! | [`kernel`] | a kernel as far as a policy cares: resource class, SMs, expected duration |
//! | [`lease`] | what a best-effort job may launch without asking, and the check on the launch path |
//! | [`ceiling`] | what one law lets best-effort work do, and the meet of several |
//! | [`durations`] | how long kernels take, learnt from when they were seen complete |
//! | [`looks`] | when to look whether an event was reached |
//! | [`timeline`] | which high-priority kernel executes now, and how long its requests take |
//! | [`terms`] | what best-effort jobs were promised: weight and least share |
//! | [`snapshot`] | everything a gate may look at |
//! | [`registry`] | the one list of a gate's policies |
//! | [`policy`] | a policy of the list with its numbers, and their check |
//! | [`rules`] | the trait of a policy at work: its law, and the lease that follows from it |
//! | [`gate`] | the policy in force, for whoever polls |
//! | [`pillion`] | Pillion's own policy: definition, law, lease; its parts are files of its folder |
//! | [`none`], [`orion`], [`temporal`], [`launch_gate`] | a policy each: definition, law, lease |
//! | [`idle_only`] | the worked policy of docs/add-a-policy.md |
//! | [`reef_n`], [`orion_code`] | policies that decide about queues of launches, not by lease |
//! | [`queue`] | what such a policy sees and says |
//! | [`progress`] | what a best-effort job gets of what it wants, and what holds it; decides nothing |
//! | [`share`] | how much of the GPU best-effort work has beside high-priority work |
//! | [`slo`] | the level: how much high-priority requests can bear, by how many miss their target |
//! | [`throttle`] | best-effort work makes way where the device is overused or clocks down |
//! | [`usage`] | how much of the GPU's time a best-effort job may use |
//! | [`latency_model`] | the p99 of high-priority requests at a share of the GPU, as two lines |
//! | [`tuner`] | the batch of high-priority requests that serves best-effort jobs best, by trying |
//! | [`sm_search`] | `SM_THRESHOLD` of `orion` beside a training HP |
//!
//! **How a daemon uses it.** Each poll: feed what the rings brought to one
//! [`HpTimeline`] per high-priority client; tell the gate the requests that ended
//! ([`Gate::handle_request`]); [`HpView::merge`] the views; fill
//! a [`Snapshot`]; call [`Gate::handle_snapshot`] once; call [`Gate::gate`] for
//! each best-effort job; publish each lease whose terms or limit changed or
//! whose expiry nears.
//!
//! **Units.** All times are nanoseconds (`_ns`) of one monotonic clock, passed
//! in. *HP* is high-priority, *BE* best-effort. *Expected* durations come from
//! profiles. *In flight* is launched and not seen complete. *Beside* means
//! while an HP kernel executes.

pub mod ceiling;
mod drain;
pub mod durations;
pub mod gate;
pub mod idle_only;
pub mod kernel;
pub mod latency_model;
pub mod launch_gate;
pub mod lease;
pub mod limit;
pub mod looks;
pub mod none;
pub mod orion;
pub mod orion_code;
pub mod pillion;
pub mod policy;
pub mod probe;
pub mod progress;
pub mod queue;
mod reading;
pub mod reef_n;
pub mod registry;
pub mod rules;
pub mod share;
pub mod slo;
pub mod slo_mean;
pub mod sm_search;
pub mod snapshot;
pub mod temporal;
pub mod terms;
pub mod throttle;
pub mod timeline;
pub mod tuner;
mod turn;
pub mod usage;

pub use ceiling::{Ceiling, Duty};
pub use durations::{Completed, Durations, InFlight, Launched, Seen, Taught};
pub use gate::{Gate, JOBS_MAX};
pub use kernel::{Class, ClassSet, Kernel};
pub use launch_gate::LaunchGateParams;
pub use lease::{Lease, admits};
pub use limit::Limit;
pub use looks::{Look, Looks};
pub use orion::{OrionParams, SmThreshold};
pub use orion_code::{CodeHp, OrionCode, OrionCodeParams};
pub use pillion::{
    Goal, Kept, KeptKind, Mark, PillionParams, RequestTarget, Slo, SloEnd, SloError, SloView,
};
pub use policy::{Policy, PolicyError, SIMULATOR_ONLY};
pub use probe::{Bound, KeptProbe, Metric, MetricView, Probe, ProbeParams, ProbeState, ProbeView};
pub use progress::{Held, Progress, Share};
pub use queue::{Op, OpKind, QueueClient};
pub use reading::DeviceReading;
pub use reef_n::{ReefN, ReefNParams};
pub use registry::{Entry, Numbers, Param};
pub use rules::Rules;
pub use share::{BeShare, ShareMode, ShareParams, ShareView};
pub use sm_search::{SmSearch, SmSearchParams};
pub use snapshot::{HpView, JobId, JobView, Sharing, Snapshot};
pub use temporal::TemporalParams;
pub use terms::JobTerms;
pub use throttle::{ThrottleParams, ThrottleView};
pub use timeline::{HpTimeline, Launch, Outlook, Request};
pub use turn::TURN_PATIENCE_NS;
