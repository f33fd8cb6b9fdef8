//! Departing clients, and returning pages.

use super::*;

// census: D20, E2
#[test]
fn a_job_whose_last_client_dies_gives_back_what_it_had_in_flight_and_keeps_its_totals() {
    let mut rig = Rig::new("residual_us = 100");
    let be = rig.be("train");
    let other = rig.be("other");
    let _hp = rig.hp("serve");
    rig.poll();
    rig.try_launch(&be, &kernel(Class::Compute, 200 * US))
        .unwrap();
    be.page.count(Counter::Launches, 1);
    be.page.tell(Counter::KernelsLearnt, 3);
    other.waits(1);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&other, &COMPUTE).is_err());
    rig.state.handle_detach(rig.now_ns, be.client);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&other, &COMPUTE).is_ok());
    let ended = &rig.state.ended[0];
    assert_eq!(ended.totals.counters[Counter::Launches as usize], 1);
    assert_eq!(ended.totals.charged_ns, 200 * US);
    assert_eq!(ended.totals.counters[Counter::KernelsLearnt as usize], 0);
    let again = rig.be("train");
    assert!(rig.state.ended.is_empty());
    assert_eq!(rig.state.jobs[2].past.charged_ns, 200 * US);
    rig.poll_after(50 * US);
    assert_eq!(
        again
            .lease
            .unwrap()
            .charges
            .total_ns
            .load(Ordering::Relaxed),
        FIRST_TOTAL_NS
    );
}

/// As after a lost connection, or an attempt that only the process gave up.
#[test]
fn a_page_that_comes_again_is_one_client_whose_counts_are_its_jobs_once() {
    let mut rig = Rig::new("residual_us = 100");
    let be = rig.be("train");
    be.page.count(Counter::Launches, 5);
    be.page.charged_ns.fetch_add(50, Ordering::Relaxed);
    for _ in 0..3 {
        let again = be.page_fd.try_clone().unwrap();
        rig.try_attach_with(JobClass::BestEffort, "train", again)
            .unwrap();
    }
    be.page.count(Counter::Launches, 2);
    let job = &rig.status(Viewer::Operator)["jobs"][0];
    assert_eq!(job["clients"].as_array().unwrap().len(), 1);
    assert_eq!(job["totals"]["launches"], 7);
    assert_eq!(job["charged_ns"], 50);
    assert_eq!(job["clients"][0]["counters"]["launches"], 7);
    // The end of an earlier connection is not the end of the page's present one.
    assert_eq!(rig.state.handle_detach(rig.now_ns, be.client), None);
    assert_eq!(be.page.detached.load(Ordering::Relaxed), 0);
}
