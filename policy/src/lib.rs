//! # Pillion's decisions
//! Which job may launch what, and when: pure code. State and a description of the moment go in, a
//! lease comes out; no IO, no clock, no thread, no `unsafe`. The daemon runs it 20 000 times a
//! second, the launch path of every best-effort process calls [`admits`] once per launch, and a
//! simulator runs both from the same source. This crate's tests thus cover all three.
//!
//! | module | noun |
//! |---|---|
//! | [`kernel`] | a policy's view of a kernel: class, SMs, duration |
//! | [`lease`] | what a best-effort job may launch without asking, and the launch path's check |
//! | [`limit`] | the rule that bounds a lease |
//! | [`ceiling`] | what one law lets best-effort work do, and the meet of several |
//! | [`durations`] | kernel durations, learnt from the observed times of completion |
//! | [`looks`] | when to poll an event |
//! | [`timeline`] | which high-priority kernel executes now, and how long its requests take |
//! | [`terms`] | what best-effort jobs were promised: weight and least share |
//! | [`snapshot`] | the whole input of a gate |
//! | [`registry`] | the one list of a gate's policies |
//! | [`policy`] | a policy of the list with its numbers, and their check |
//! | [`rules`] | the trait of a policy at work: its law, and the lease that follows from it |
//! | [`gate`] | the policy in force |
//! | [`pillion`] | Pillion's own policy: definition, law, lease; its parts are in its folder |
//! | [`none`], [`orion`], [`temporal`], [`launch_gate`] | a policy each: definition, law, lease |
//! | [`idle_only`] | the worked policy of docs/add-a-policy.md |
//! | [`reef_n`], [`orion_code`] | policies that decide about queues of launches, not by lease |
//! | [`queue`] | input and output of such a policy |
//! | [`progress`] | what a best-effort job gets of what it wants, and what holds it; no decision |
//! | [`share`] | how much of the GPU best-effort work has beside high-priority work |
//! | [`slo`] | the level: how much high-priority requests can bear, by how many miss their target |
//! | [`slo_mean`] | the level for targets of the mean |
//! | [`probe`] | whether the device is in trouble, and the consequences for best-effort work |
//! | [`throttle`] | throttles best-effort work where the device is overused or clocks down |
//! | [`usage`] | how much of the GPU's time a best-effort job may use |
//! | [`latency_model`] | the p99 of high-priority requests at a share of the GPU, as two lines |
//! | [`tuner`] | the batch of high-priority requests that serves BE jobs best, by trying |
//! | [`sm_search`] | `SM_THRESHOLD` of `orion` beside a training HP |
//!
//! **How a daemon uses it.** Each poll: feed the rings' records to one [`HpTimeline`] per
//! high-priority client; report the ended requests to the gate ([`Gate::handle_request`]);
//! [`HpView::merge`] the views; fill a [`Snapshot`]; call [`Gate::handle_snapshot`] once; call
//! [`Gate::gate`] for each best-effort job; publish each lease that changed or nears its expiry.
//!
//! **Units.** All times are nanoseconds (`_ns`) of one monotonic clock, passed in. *HP* is
//! high-priority, *BE* best-effort. *Expected* durations come from profiles. *In flight* is
//! launched and not seen complete. *Beside* means while an HP kernel executes.

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
