//! Several users of one GPU: their shares, and what each sees.

use super::super::rejected::LISTED_MAX;
use super::*;

fn limited(clients_per_user: usize, jobs_per_user: usize) -> Rig {
    let mut rig = Rig::new("");
    rig.state.limits = Limits {
        clients_per_user,
        jobs_per_user,
        ..Limits::default()
    };
    rig
}

#[test]
fn a_user_gets_its_share_of_clients_and_leaves_the_rest_to_others() {
    let mut rig = limited(3, 64);
    let first = rig.be("a");
    rig.be("a");
    rig.hp("b");
    for class in [JobClass::BestEffort, JobClass::HighPriority] {
        let refused = rig.try_attach(class, "a").err();
        assert_eq!(refused, Some(Refused::UserClients(3)));
    }
    rig.uid = 1001;
    rig.be("a");
    rig.uid = 1000;
    rig.state.handle_detach(rig.now_ns, first.client);
    rig.be("a");
}

#[test]
fn a_user_gets_its_share_of_best_effort_jobs_each_with_many_clients() {
    let mut rig = limited(64, 2);
    for job in ["a", "b", "a", "b"] {
        rig.be(job);
    }
    let refused = rig.try_attach(JobClass::BestEffort, "c").err();
    assert_eq!(refused, Some(Refused::UserJobs(2)));
    rig.hp("c");
    rig.uid = 1001;
    rig.be("c");
}

#[test]
fn the_best_effort_clients_of_a_user_leave_room_for_its_high_priority_ones() {
    let mut rig = limited(12, 64);
    for _ in 0..10 {
        rig.be("train");
    }
    let refused = rig.try_attach(JobClass::BestEffort, "train").err();
    assert_eq!(refused, Some(Refused::UserHpRoom(10)));
    rig.hp("serve");
    rig.hp("serve");
    let refused = rig.try_attach(JobClass::HighPriority, "serve").err();
    assert_eq!(refused, Some(Refused::UserClients(12)));
    // The shipped values, which the page on security promises.
    assert_eq!(Limits::default().hp_room_of_user(), 32);
}

#[test]
fn nobody_pushes_others_out_of_the_lists_of_what_was() {
    let mut rig = Rig::new("");
    let turned_away = |uid, job: String| TurnedAway {
        pid: 1,
        started_ticks: 0,
        uid,
        name: String::new(),
        job,
        attached: false,
        reason: String::new(),
        at_ns: 0,
    };
    rig.uid = 1001;
    let client = rig.be("mine").client;
    rig.state.handle_detach(rig.now_ns, client);
    rig.state
        .handle_turned_away(turned_away(1001, "mine".to_owned()));
    rig.uid = 1000;
    for n in 0..2 * ENDED_MAX {
        let client = rig.be(&n.to_string()).client;
        rig.state.handle_detach(rig.now_ns, client);
        rig.state
            .handle_turned_away(turned_away(1000, n.to_string()));
    }
    assert_eq!(rig.state.ended[0].key.id, "mine");
    assert_eq!(
        rig.state.rejected.listed().next().unwrap().process.job,
        "mine"
    );
    assert_eq!(rig.state.ended.len(), ENDED_MAX);
    assert_eq!(rig.state.rejected.listed().count(), LISTED_MAX);
    let youngest = rig.state.ended.back().unwrap();
    assert_eq!(youngest.key.id, (2 * ENDED_MAX - 1).to_string());
}

#[test]
fn a_user_is_told_of_its_own_jobs_only_and_of_others_how_many() {
    let mut rig = Rig::new("");
    let _own = rig.be("first-job");
    rig.uid = 1001;
    let _hp = rig.hp("secret-serve");
    let ended = rig.be("secret-ended").client;
    rig.state.handle_detach(rig.now_ns, ended);
    let _be = rig.be("secret-train");
    rig.state.handle_turned_away(TurnedAway {
        pid: 1,
        started_ticks: 0,
        uid: 1001,
        name: "secret-program".to_owned(),
        job: "secret-away".to_owned(),
        attached: false,
        reason: "secret-reason".to_owned(),
        at_ns: 0,
    });
    rig.state
        .handle_config_error("secret-config.toml:1:1".to_owned());
    rig.poll();
    let told = rig.status(Viewer::User(1000));
    let text = told.to_string();
    assert!(!text.contains("secret"), "{text}");
    let jobs = told["jobs"].as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["job"]), (1, &"first-job".into()));
    assert_eq!(told["others"]["high_priority"], 1);
    assert_eq!(told["others"]["best_effort"], 1);
    assert!(
        told["policy"]["config_error"].is_string(),
        "that one is there is told"
    );
    let told = rig.status(Viewer::User(1001));
    assert_eq!(told["jobs"].as_array().unwrap().len(), 3);
    assert_eq!(told["turned_away"][0]["reason"], "secret-reason");
    assert!(!told.to_string().contains("first-job"));
    let told = rig.status(Viewer::Operator);
    assert_eq!(told["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(told["policy"]["config_error"], "secret-config.toml:1:1");
    assert_eq!(told["others"]["best_effort"], 0);
}

#[test]
fn who_may_not_have_what_it_asked_for_is_shown_with_it() {
    let mut rig = Rig::new("");
    let be = rig.be("serve");
    rig.state.handle_denied(be.client, JobClass::HighPriority);
    let told = rig.status(Viewer::Operator);
    let client = &told["jobs"][0]["clients"][0];
    assert_eq!(client["denied"], "high-priority");
}
