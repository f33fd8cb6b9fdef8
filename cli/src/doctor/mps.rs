//! Checks MPS: its control daemon, the daemons' configuration, and the effect of a killed job on
//! others.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use crate::mps::{Mps, owner};
use crate::status;

pub(super) fn examine(findings: &mut Vec<Finding>, daemons: &[Value]) {
    const SUBJECT: &str = "MPS";
    let mps = Mps::look();
    let state = mps.state();
    // Skip daemons whose clients have reported how they share the GPU, or that detect it.
    let configured = daemons
        .iter()
        .filter(|status| status["gpu"]["sharing_known_by"] == "configuration");
    let told: Vec<&str> = configured
        .filter_map(|status| status["gpu"]["sharing"].as_str())
        .collect();
    findings.push(match (mps.pid, told.as_slice()) {
        (None, told) if told.contains(&"mps") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"mps\""),
            "without MPS, kernels of two processes never overlap: start MPS, or set sharing = \"auto\" (on the software GPU the \
             device server decides: ignore this warning)",
        ),
        (Some(_), told) if told.contains(&"timeslice") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"timeslice\""),
            "set sharing = \"auto\", so that best-effort kernels may run beside high-priority ones",
        ),
        _ => Finding::ok(SUBJECT, state),
    });
    findings.extend(unseen(&mps, daemons));
    findings.extend(daemons.iter().filter_map(given_up));
    let owner = mps.pid.filter(|&pid| pid != 0).and_then(owner);
    findings.extend(of_users(owner, daemons));
    findings.extend(daemons.iter().filter_map(untrue));
    let has_mps = |status: &Value| {
        status["gpu"]["sharing"] == "mps" || status["gpu"]["sharing_mixed"] == true
    };
    if daemons.iter().any(has_mps) {
        findings.push(of_kills(std::env::var("PILLION_DRAIN_MS").ok().as_deref()));
    }
}

/// A GPU that is not shared as its daemon is configured, or not by all clients alike.
fn untrue(status: &Value) -> Option<Finding> {
    const SUBJECT: &str = "sharing";
    let found = status::trouble(status)?;
    Some(match status["gpu"]["sharing_wrong"] == true {
        true => Finding::error(
            SUBJECT,
            found,
            "set [gpu] sharing = \"auto\" and restart the daemon, or share the GPU as configured",
        ),
        false => Finding::warning(
            SUBJECT,
            found,
            "start all jobs of the GPU with the same CUDA_MPS_PIPE_DIRECTORY; `pillion status --explain JOB` shows how each process shares the GPU",
        ),
    })
}

/// MPS runs, but a daemon does not see its pipes. If MPS does not run, another finding reports it.
fn unseen(mps: &Mps, daemons: &[Value]) -> Option<Finding> {
    let mut folders = daemons
        .iter()
        .filter_map(|status| status["gpu"]["mps_unseen"].as_str());
    let folder = folders.next().filter(|_| mps.pid.is_some())?;
    Some(Finding::warning(
        "pipes of MPS",
        format!("a daemon cannot see their folder, {folder}"),
        "without the pipes the daemon cannot ask MPS to end a job's work before it kills the job, and the kill may terminate other jobs: start \
         the daemon with MPS's CUDA_MPS_PIPE_DIRECTORY, and without PrivateTmp, or in a container that mounts the folder",
    ))
}

fn given_up(status: &Value) -> Option<Finding> {
    let mps = &status["mps"];
    let why = mps["why"].as_str().unwrap_or("N/A");
    (mps["state"] == "given-up").then(|| {
        Finding::error(
            "MPS, managed",
            format!("it reached its limit of restarts per hour and is no longer restarted: {why}"),
            "read its logs (/var/log/nvidia-mps) and the daemon's log, fix the cause, then run `pillion resume`",
        )
    })
}

/// The users of MPS, which serves the processes of one user at a time; `owner` is the control
/// daemon's. None if nobody uses MPS.
fn of_users(owner: Option<u32>, daemons: &[Value]) -> Option<Finding> {
    const SUBJECT: &str = "users of MPS";
    const RULE: &str = "MPS serves the processes of one user at a time";
    let jobs = daemons
        .iter()
        .flat_map(|status| status["jobs"].as_array().into_iter().flatten());
    let clients = jobs.flat_map(|job| job["clients"].as_array().into_iter().flatten());
    let on_mps = clients.filter(|client| client["sharing"] == "mps");
    let users: BTreeSet<u64> = on_mps.filter_map(|client| client["uid"].as_u64()).collect();
    let listed = |users: &[u64]| {
        let words: Vec<String> = users.iter().map(u64::to_string).collect();
        words.join(", ")
    };
    let all: Vec<u64> = users.into_iter().collect();
    let owner = owner.map(u64::from).filter(|&uid| uid != 0);
    let strangers = all
        .iter()
        .copied()
        .filter(|&uid| owner.is_some_and(|own| own != uid));
    let strangers: Vec<u64> = strangers.collect();
    let mend = "run the jobs of a GPU as one user, and MPS as root; or start MPS in its multi-user mode, where the driver has one \
                (docs/faults.md)";
    Some(match (all.as_slice(), strangers.as_slice(), owner) {
        ([], ..) => return None,
        (_, [_, ..], Some(owner)) => Finding::warning(
            SUBJECT,
            format!(
                "the control daemon runs as user {owner} and accepts only that user's clients, but jobs of user {} report that they use it",
                listed(&strangers)
            ),
            mend,
        ),
        ([user], ..) => Finding::ok(
            SUBJECT,
            format!(
                "{RULE}; here all belong to user {user}. A process of another user waits in cuInit until the last of these has ended"
            ),
        ),
        (users, ..) => Finding::warning(
            SUBJECT,
            format!(
                "{RULE}, and processes of users {} use it: unless MPS runs in multi-user mode, a process of another \
                 user than the one that MPS serves waits in cuInit until that user's last process has ended",
                listed(users)
            ),
            mend,
        ),
    })
}

/// The effect of a killed job under this process's `PILLION_DRAIN_MS`. A job may have another
/// value.
fn of_kills(drain_ms: Option<&str>) -> Finding {
    const SUBJECT: &str = "killed jobs";
    const HARM: &str =
        "under MPS a process that dies with work on the GPU may terminate all others there";
    if drain_ms.is_some_and(|ms| ms.trim() == "0") {
        return Finding::warning(
            SUBJECT,
            format!(
                "{HARM}, and with PILLION_DRAIN_MS=0, as here, a job that gets SIGTERM dies with work in flight"
            ),
            "unset PILLION_DRAIN_MS, so that a job waits for its work before it exits",
        );
    }
    let ms = drain_ms.map_or("2000", str::trim);
    Finding::ok(
        SUBJECT,
        format!(
            "{HARM}; SIGKILL leaves a job no time to wait: end jobs with `pillion stop`, or with SIGTERM and a grace period \
             (terminationGracePeriodSeconds, TimeoutStopSec) longer than the job's PILLION_DRAIN_MS ({ms} here)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Verdict;

    /// A status with one client per entry: its user, and how it shares the GPU.
    fn status(clients: &[(u64, &str)]) -> Value {
        let clients = clients.iter();
        let clients: Vec<Value> = clients
            .map(|(uid, sharing)| json!({"uid": uid, "sharing": sharing}))
            .collect();
        json!({"jobs": [{"clients": clients}]})
    }

    #[test]
    fn two_users_of_one_mps_are_told_that_they_take_turns() {
        let row = |owner, clients: &[(u64, &str)]| of_users(owner, &[status(clients)]);
        assert!(row(Some(0), &[]).is_none());
        assert!(row(Some(0), &[(1000, "timeslice"), (1001, "timeslice")]).is_none());
        let one = row(
            Some(0),
            &[(1000, "mps"), (1000, "mps"), (1001, "timeslice")],
        )
        .unwrap();
        assert_eq!(one.verdict, Verdict::Ok, "{}", one.found);
        assert!(
            one.found.contains("all belong to user 1000"),
            "{}",
            one.found
        );
        let two = row(Some(0), &[(1000, "mps"), (1001, "mps")]).unwrap();
        assert_eq!(two.verdict, Verdict::Warning);
        assert!(two.found.contains("users 1000, 1001"), "{}", two.found);
        assert!(two.found.contains("waits in cuInit"), "{}", two.found);
    }

    #[test]
    fn a_user_of_another_users_control_daemon_is_told() {
        let row = |owner| of_users(owner, &[status(&[(1001, "mps")])]).unwrap();
        for owner in [None, Some(0), Some(1001)] {
            assert_eq!(row(owner).verdict, Verdict::Ok, "{owner:?}");
        }
        let found = row(Some(1000));
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(found.found.contains("runs as user 1000"), "{}", found.found);
        assert!(found.found.contains("of user 1001"), "{}", found.found);
    }

    #[test]
    fn mps_that_was_given_up_is_an_error() {
        let state = |state: &str| json!({"mps": {"state": state, "why": "it has ended"}});
        assert!(given_up(&state("running")).is_none());
        assert!(given_up(&json!({"mps": null})).is_none());
        let found = given_up(&state("given-up")).unwrap();
        assert_eq!(found.verdict, Verdict::Error);
        assert!(found.found.ends_with("it has ended"), "{}", found.found);
    }
}
