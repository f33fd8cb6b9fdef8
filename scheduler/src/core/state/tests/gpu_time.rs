//! How well a job's kernels are known, in the status.

use super::*;

fn shares(rig: &Rig) -> [Option<f64>; 2] {
    let job = &rig.status(Viewer::Operator)["jobs"][0];
    ["gpu_time_known_pct", "gpu_time_classed_pct"].map(|field| job[field].as_f64())
}

fn tell(be: &Player, all_ns: u64, known_ns: u64, classed_ns: u64) {
    be.page.tell(Counter::GpuTime, all_ns);
    be.page.tell(Counter::GpuTimeKnown, known_ns);
    be.page.tell(Counter::GpuTimeClassed, classed_ns);
}

#[test]
fn of_a_high_priority_job_records_tell_and_an_unknown_kernel_counts_as_what_is_assumed() {
    let mut rig = Rig::new("unknown_kernel_us = 100");
    let mut hp = rig.hp("serve");
    rig.poll();
    assert_eq!(shares(&rig), [None, None], "before there is any");
    rig.launch(&mut hp, Class::Compute, 200 * US);
    rig.launch(&mut hp, Class::Unknown, 100 * US);
    // A name gives a class, but no duration.
    rig.launch(&mut hp, Class::Memory, 0);
    rig.poll();
    assert_eq!(shares(&rig), [Some(75.0), Some(75.0)]);
    rig.launch(&mut hp, Class::Unknown, 0);
    rig.poll();
    assert_eq!(shares(&rig), [Some(60.0), Some(60.0)]);
    let again = hp.page_fd.try_clone().unwrap();
    let class = JobClass::HighPriority;
    let mut hp = rig.try_attach_with(class, "serve", again).unwrap();
    assert_eq!(shares(&rig), [Some(60.0), Some(60.0)]);
    rig.launch(&mut hp, Class::Unknown, 500 * US);
    rig.poll();
    assert_eq!(shares(&rig), [Some(80.0), Some(30.0)]);
    rig.state.handle_detach(rig.now_ns, hp.client);
    assert_eq!(shares(&rig), [Some(80.0), Some(30.0)], "it has ended");
}

#[test]
fn of_a_best_effort_job_the_libraries_tell_and_older_ones_tell_nothing() {
    let mut rig = Rig::new("");
    let older = rig.be("train");
    // It launches and counts, but lacks these counters.
    older.page.count(Counter::Launches, 5);
    older.page.charged_ns.fetch_add(500, Ordering::Relaxed);
    rig.poll();
    assert_eq!(shares(&rig), [None, None]);
    let be = rig.be("train");
    tell(&be, 100, 0, 0);
    assert_eq!(shares(&rig), [Some(0.0), Some(0.0)]);
    tell(&be, 400, 300, 100);
    assert_eq!(shares(&rig), [Some(75.0), Some(25.0)]);
    let third = rig.be("train");
    tell(&third, 400, 0, 400);
    assert_eq!(shares(&rig), [Some(37.5), Some(62.5)]);
}

/// What a client learns counts as known from its first launch: differences are no share.
#[test]
fn a_best_effort_client_that_comes_again_as_another_job_is_told_as_its_page_says() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    tell(&be, 1_000, 0, 0);
    rig.poll();
    rig.state.handle_detach(rig.now_ns, be.client);
    rig.poll();
    let again = be.page_fd.try_clone().unwrap();
    let be = rig
        .try_attach_with(JobClass::BestEffort, "tune", again)
        .unwrap();
    // Everything launched before is learnt; later launches are not.
    tell(&be, 2_000, 1_000, 500);
    assert_eq!(shares(&rig), [Some(50.0), Some(25.0)]);
}

/// One of several processes of a job: its earlier counts stay with the job.
#[test]
fn a_best_effort_client_that_comes_again_to_its_job_is_not_counted_twice() {
    let mut rig = Rig::new("");
    let other = rig.be("train");
    tell(&other, 1_000, 1_000, 0);
    let be = rig.be("train");
    tell(&be, 1_000, 0, 0);
    rig.poll();
    rig.state.handle_detach(rig.now_ns, be.client);
    let again = be.page_fd.try_clone().unwrap();
    let be = rig
        .try_attach_with(JobClass::BestEffort, "train", again)
        .unwrap();
    assert_eq!(shares(&rig), [Some(50.0), Some(0.0)]);
    tell(&be, 2_000, 2_000, 0);
    assert_eq!(shares(&rig), [Some(100.0), Some(0.0)]);
}
