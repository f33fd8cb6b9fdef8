//! Values of `[faults]`, and their consistency.

use abi::types::CUresult;
use profiler::settings::{self, Reader, Whole};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::DeTable;

use crate::config::fault_rules::{Action, FaultKind, FaultRule, GRACE_NS, PER_HOUR};

const SECOND_NS: u64 = 1_000_000_000;
/// NVIDIA's catalogue ends far below.
const XID_MAX: u64 = 9_999;

/// `stuck_s`: up to a day. 0 turns it off.
pub(super) fn stuck<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let seconds = Whole::<0, 86_400>::deserialize(deserializer)?.0;
    Ok(Some(seconds * SECOND_NS).filter(|&ns| ns > 0))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleSection {
    fault: FaultKind,
    #[serde(default)]
    codes: Vec<u64>,
    #[serde(deserialize_with = "action")]
    action: Action,
    per_hour: Option<Whole<1, 1_000>>,
    grace_s: Option<Whole<0, 3_600>>,
}

fn action<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Action, D::Error> {
    let restart_job = Action::RestartJob { grace_ns: GRACE_NS };
    let actions = [
        Action::Report,
        Action::HoldBe,
        restart_job,
        Action::RestartMps,
        Action::DrainGpu,
    ];
    settings::word(deserializer, &Action::NAMES).map(|index| actions[index].clone())
}

impl From<RuleSection> for FaultRule {
    fn from(section: RuleSection) -> Self {
        let mut action = section.action;
        if let (Action::RestartJob { grace_ns }, Some(grace)) = (&mut action, section.grace_s) {
            *grace_ns = grace.0 * SECOND_NS;
        }
        Self {
            fault: section.fault,
            codes: section.codes,
            action,
            per_hour: section.per_hour.map_or(PER_HOUR, |number| number.0 as u32),
        }
    }
}

pub(super) fn check(rules: &[FaultRule], reader: &mut Reader<'_>, document: &DeTable<'_>) {
    for (index, rule) in rules.iter().enumerate() {
        let FaultRule { fault, action, .. } = rule;
        let path = format!("faults.rules.{index}");
        let given = |key| settings::at(document, &format!("{path}.{key}")).map(Spanned::span);
        let is_restart = matches!(action, Action::RestartJob { .. });
        if let Some(span) = given("grace_s").filter(|_| !is_restart) {
            let name = action.name();
            let what = format!("grace_s is set, but action {name} ignores it");
            let near = "nearest is action = \"restart-job\"";
            reader.fault(span.start, format!("{what}; {near}"));
        }
        if is_restart && !fault.is_of_job() {
            let what = format!(
                "restart-job applies to faults of a job, but {fault} is a fault of the GPU"
            );
            let near = "nearest is fault = \"sticky-error\"";
            reader.fault(settings::offset(document, &path), format!("{what}; {near}"));
        }
        let Some(span) = given("codes") else { continue };
        let is_sticky =
            |code: u64| u32::try_from(code).is_ok_and(|code| CUresult(code).is_sticky());
        let are = |is_right: &dyn Fn(u64) -> bool| {
            !rule.codes.is_empty() && rule.codes.iter().all(|&code| is_right(code))
        };
        match fault {
            FaultKind::StickyError if !are(&is_sticky) => {
                let wanted = "a list of CUDA result codes after which a context is lost";
                reader.bad(span, "codes", format!("{wanted}; nearest is [700, 719]"));
            }
            FaultKind::Xid if !are(&|code| (1..=XID_MAX).contains(&code)) => {
                reader.bad(span, "codes", "a list of Xids; nearest is [79]");
            }
            FaultKind::StickyError | FaultKind::Xid => {}
            other => {
                let what = format!("codes is set, but fault {other} has no codes");
                reader.fault(span.start, format!("{what}; nearest is fault = \"xid\""));
            }
        }
    }
}
