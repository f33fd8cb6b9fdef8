//! Each published form, with rows written by hand.

use std::fs;
use std::path::PathBuf;

use devices::Device;

use super::*;

const OPENB: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
                     creation_time,deletion_time,scheduled_time\n\
                     p0,6000,12288,1,460,T4,LS,Succeeded,100,400,150\n\
                     p1,4000,8192,1,50,,BE,Succeeded,90,1090,90\n\
                     p2,4000,8192,0,0,,BE,Succeeded,95,1090,95\n\
                     p3,4000,8192,1,1000,,BE,Pending,96,1090,\n";

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("room"))
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("trace");
        fs::write(&path, text).expect("room");
        path
    }
}

fn gpus(count: u32) -> Inventory {
    let device = Device::by_name("T4").expect("it is in the table");
    sources::uniform(&device, count, 8).expect("few GPUs")
}

fn load(text: &str, change: impl FnOnce(&mut Options<'_>)) -> Result<Replay, ReplayError> {
    let inventory = gpus(8);
    let mut options = Options {
        inventory: &inventory,
        has_hosts: false,
        slo_milli: None,
        days: None,
        measured: None,
    };
    change(&mut options);
    Replay::load(&Files::new().write(text), &options)
}

fn jobs(replay: &Replay) -> Vec<(u64, u64, u32)> {
    let seconds = |ns: u64| ns / 1_000_000_000;
    let arrivals = replay.arrivals.iter();
    arrivals
        .map(|a| (seconds(a.at_ns), seconds(a.length_ns), a.job.gpus))
        .collect()
}

#[test]
fn pods_come_in_the_order_of_their_creation_with_class_share_and_promise() {
    let replay = load(OPENB, |options| options.slo_milli = Some(960)).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 1000, 1), (10, 250, 1)]);
    let [training, inference] = &replay.arrivals[..] else {
        panic!("two jobs");
    };
    assert_eq!(training.job.class, Class::BestEffort);
    assert_eq!((training.job.gpu_milli, training.job.floor_milli), (50, 50));
    assert_eq!(training.job.slo_milli, None);
    assert_eq!(inference.job.class, Class::HighPriority);
    assert_eq!(
        (inference.job.gpu_milli, inference.job.floor_milli),
        (460, 460)
    );
    assert_eq!(inference.job.slo_milli, Some(960));
    assert_eq!(
        replay.notes,
        [
            "1 of 4 jobs left out: no GPU",
            "1 of 4 jobs left out: no length"
        ]
    );
}

#[test]
fn what_is_asked_of_hosts_holds_where_the_nodes_are_known() {
    let nothing = load(OPENB, |_| ()).expect("jobs");
    let asked = load(OPENB, |options| options.has_hosts = true).expect("jobs");
    assert_eq!(nothing.arrivals[1].job.cpu_milli, 0);
    assert_eq!(asked.arrivals[1].job.cpu_milli, 6000);
    assert_eq!(asked.arrivals[1].job.host_memory_bytes, 12_288 << 20);
}

#[test]
fn trainings_of_philly_and_tiresias_are_gangs_of_whole_gpus() {
    let philly = load(
        "timestamp,duration,num_gpus,gpu_time,cluster\n\
         2017-10-01 00:01:00,60.0,1,60.0,a\n2017-10-01 00:00:00,90.0,4,360.0,b\n",
        |_| (),
    )
    .expect("jobs");
    assert_eq!(jobs(&philly), [(0, 90, 4), (60, 60, 1)]);
    let gang = &philly.arrivals[0].job;
    assert!(gang.spread && gang.gpu_milli == 1000 && gang.floor_milli == FLOOR_MILLI);
    let tiresias = load(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n\
         0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n2,8,53,133,vgg11,0,23\n",
        |_| (),
    )
    .expect("jobs");
    assert_eq!(jobs(&tiresias), [(0, 164, 1), (30, 147, 8)]);
    assert_eq!(tiresias.notes, ["1 of 3 jobs left out: no length"]);
}

const MURI: &str = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,\
                    iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n";

#[test]
fn jobs_of_muri_without_times_come_their_intervals_apart() {
    let text = format!(
        "{MURI}0,16,0,5,vgg16,16,20000,3000,332,83,68,110,0\n\
         1,1,0,5,a2c,64,10000,4000,517,514,14,0,1\n2,1,0,5,a2c,64,10000,4000,517,514,14,0,1\n"
    );
    let replay = load(&text, |_| ()).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 20, 16), (3, 10, 1), (7, 10, 1)]);
    let timed = text.replace("\n1,1,0,", "\n1,1,50,");
    let replay = load(&timed, |_| ()).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 20, 16), (0, 10, 1), (50, 10, 1)]);
}

#[test]
fn tasks_of_pai_have_parts_of_a_gpu_and_gangs_of_instances() {
    let text = "j0,worker,2.0,Terminated,1000.0,1020.0,600.0,29.5,50.0,T4\n\
                j1,worker,1,Terminated,1010.0,1040.0,600.0,2.0,150.0,T4\n\
                j2,ps,1,Terminated,1010.0,1040.0,600.0,2.0,,\n\
                j3,worker,1,Running,1010.0,,600.0,2.0,25.0,T4\n";
    let replay = load(text, |options| options.has_hosts = true).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 20, 2), (10, 30, 2)]);
    let [two, whole] = &replay.arrivals[..] else {
        panic!("two jobs");
    };
    assert_eq!((two.job.gpu_milli, two.job.cpu_milli), (500, 12_000));
    assert_eq!((whole.job.gpu_milli, whole.job.cpu_milli), (1000, 6000));
    assert_eq!(replay.notes.len(), 2);
}

const THROUGHPUTS: &str = r#"{"v100": {"('LM', 1)": {"null": 4.0, "('A3C', 1)": [1.5, 2.0]},
    "('A3C', 1)": {"null": 2.0}, "('LM', 2)": {"null": 8.0}}}"#;

#[test]
fn steps_of_gavel_become_lengths_at_the_measured_rate() {
    let files = Files::new();
    let measured = Measured::load(&files.write(THROUGHPUTS), "v100").expect("throughputs");
    let text = "LM\tc\t-n\t1\t400\t0.0\t1\nLM\tc\t-n\t1\t400\t5.0\t2\n\
                A3C\tc\t-n\t1\t400\t6.0\t1\nA3C\tc\t-n\t1\t400\t6.0\t4\n";
    let read = |measured| {
        let inventory = gpus(8);
        let options = Options {
            inventory: &inventory,
            has_hosts: false,
            slo_milli: None,
            days: None,
            measured,
        };
        Replay::load(&files.write(text), &options)
    };
    let replay = read(Some(&measured)).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 100, 1), (5, 50, 2), (6, 200, 1)]);
    assert_eq!(replay.notes, ["1 of 4 jobs left out: no length"]);
    let workloads = replay.arrivals.iter().map(|a| a.job.workload.0);
    assert_eq!(measured.names, ["A3C", "LM"]);
    assert_eq!(workloads.collect::<Vec<_>>(), [1, 1, 0]);
    assert!(matches!(read(None), Err(ReplayError::NeedsPairs { .. })));
    // A seed changes nothing of workloads that the trace names.
    let played = replay.play(&gpus(8), Some(&measured), 7);
    assert_eq!(played.arrivals, replay.arrivals);
}

#[test]
fn workloads_that_a_trace_does_not_name_are_drawn_by_the_seed() {
    let files = Files::new();
    let measured = Measured::load(&files.write(THROUGHPUTS), "v100").expect("throughputs");
    let rows: String = (0..40)
        .map(|job| format!("{job},1,{job},1,m,9,1\n"))
        .collect();
    let header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
    let replay = load(&format!("{header}{rows}"), |_| ()).expect("jobs");
    let drawn = |seed| replay.play(&gpus(8), Some(&measured), seed).arrivals;
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    assert_eq!(replay.play(&gpus(8), None, 1).arrivals, replay.arrivals);
}

#[test]
fn jobs_after_the_days_are_left_out_and_means_are_of_the_days() {
    let header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
    let text = format!("{header}0,1,5,1,m,9,1\n1,1,86404,1,m,9,1\n2,1,86405,1,m,9,1\n");
    let replay = load(&text, |options| options.days = Some(1)).expect("jobs");
    assert_eq!(jobs(&replay), [(0, 9, 1), (86_399, 9, 1)]);
    assert_eq!(replay.notes, ["1 of 3 jobs left out: later than 1 days"]);
    assert_eq!(replay.horizon_ns, DAY_NS);
    let all = load(&text, |_| ()).expect("jobs");
    assert_eq!(all.horizon_ns, DAY_NS);
    let at_once = load(&format!("{header}0,1,5,1,m,9,1\n1,1,5,1,m,7,1\n"), |_| ());
    assert_eq!(at_once.expect("jobs").horizon_ns, 9_000_000_000);
}

#[test]
fn what_cannot_be_played_is_refused_with_its_reason() {
    let header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
    let refused = |text: &str, slo_milli| {
        let read = load(text, |options| options.slo_milli = slo_milli);
        read.expect_err("a refusal").to_string()
    };
    let nothing = refused(&format!("{header}0,1,5,1,m,0,1\n"), None);
    assert!(
        nothing.ends_with("none of 1 jobs can be played: 1 of 1 jobs left out: no length"),
        "{nothing}"
    );
    let promise = refused(&format!("{header}0,1,5,1,m,9,1\n"), Some(960));
    assert!(
        promise.contains("a promise needs at least one"),
        "{promise}"
    );
    let files = Files::new();
    let error = Measured::load(&files.write(THROUGHPUTS), "a100").expect_err("no such GPU");
    assert!(
        error.to_string().ends_with("expected one of v100"),
        "{error}"
    );
    let error = cluster(&files.write("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n"));
    let error = error.expect_err("no GPU").to_string();
    assert!(
        error.ends_with("none of the 1 machines has a GPU"),
        "{error}"
    );
    let error = pods(
        &files.write(&format!("{header}0,1,5,1,m,9,1\n")),
        &gpus(8),
        false,
    );
    assert!(matches!(error, Err(ReplayError::NotOpenb { .. })));
}

#[test]
fn a_cluster_of_equal_gpus_has_as_many_as_asked_for() {
    let inventory = gpus(19);
    assert_eq!((inventory.gpus(), inventory.nodes().len()), (19, 3));
    assert_eq!(inventory.nodes()[2].gpus, 3);
}

#[test]
fn every_job_of_a_trace_is_played_to_its_end() {
    let replay = load(OPENB, |_| ()).expect("jobs");
    let inventory = gpus(2);
    let play = replay.play(&inventory, None, 1);
    let chosen = cluster::placement::registry::chosen("first-fit").expect("a policy");
    let outcome = play.run(play.policy(&chosen, 1).as_mut(), &mut crate::world::Nobody);
    assert_eq!(outcome.high_priority.jobs + outcome.best_effort.jobs, 2);
    assert_eq!(
        outcome.high_priority.refused + outcome.best_effort.refused,
        0
    );
    assert!(outcome.makespan_s > 200.0, "{}", outcome.makespan_s);
}
