//! Commands, and ending jobs, with real processes; time is an argument.

use std::fs::File;

use protocol::ending::{DRAIN_NS, FROZEN_NS, KILL_NS, TERMINATE_NS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;

const PATIENCE_NS: u64 = 60_000_000_000;

fn shell(script: &str) -> Step {
    Step {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        input: "",
        may_fail: false,
        timeout_ns: PATIENCE_NS,
    }
}

fn run(doings: &mut Doings, steps: Vec<Step>) -> Result<(), String> {
    doings.run(0, "run", steps, Some(&job_of(1000, "job")))
}

fn outcomes(doings: &mut Doings, now_ns: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    loop {
        let _ = doings.poll(now_ns, &mut outcomes, |_| {});
        if doings.is_idle() {
            return outcomes;
        }
        let mut fds: Vec<PollFd<'_>> = doings
            .descriptors()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let patience = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut fds, Some(&patience)).map(|ready| ready > 0),
            Ok(true)
        );
    }
}

#[test]
fn one_that_fails_ends_what_would_follow_unless_it_may() {
    for (may_fail, is_success, text) in [
        (false, false, "run: /bin/sh exited with status 3"),
        (true, true, "run: /bin/sh succeeded"),
    ] {
        let mut doings = Doings::default();
        let first = Step {
            may_fail,
            ..shell("exit 3")
        };
        let second = Step {
            input: "quit\n",
            ..shell("read word; [ \"$word\" = quit ]")
        };
        run(&mut doings, vec![first, second]).unwrap();
        let [told] = &outcomes(&mut doings, 0)[..] else {
            panic!("one")
        };
        assert_eq!((told.is_success, told.text.as_str()), (is_success, text));
    }
}

#[test]
fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
    let mut doings = Doings::default();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // It ignores the signals that would end it, and its child keeps the pipe.
    let script = format!(
        "exec 9>{}; trap '' TERM INT HUP; sleep 1000 & wait",
        pipe.display()
    );
    run(&mut doings, vec![shell(&script)]).unwrap();
    let mut pipe = File::open(pipe).unwrap();
    let [told] = &outcomes(&mut doings, PATIENCE_NS)[..] else {
        panic!("one")
    };
    assert_eq!(told.text, "run: /bin/sh took too long and was killed");
    // Returns 0 when nobody has the other end any more.
    assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0);
}

#[test]
fn the_faults_of_one_users_jobs_leave_places_for_others_and_for_the_gpus() {
    let mut doings = Doings::default();
    let mut run_for = |job: Option<&JobKey>| doings.run(0, "run", vec![shell("read word")], job);
    for uid in 0..COMMANDS_MAX as u32 {
        let job = job_of(uid, &uid.to_string());
        let taken = (0..10).filter(|_| run_for(Some(&job)).is_ok()).count();
        assert_eq!(taken, if uid < 3 { COMMANDS_PER_USER } else { 0 }, "{uid}");
    }
    assert!((0..COMMANDS_OF_GPU).all(|_| run_for(None).is_ok()));
    assert_eq!(run_for(None).unwrap_err(), "8 commands are running already");
    outcomes(&mut doings, 0);
}

#[test]
fn there_are_never_too_many_and_what_is_not_there_is_said() {
    let mut doings = Doings::default();
    let missing = Step {
        command: vec!["/no/such/program".to_owned()],
        ..shell("")
    };
    let why = run(&mut doings, vec![missing]).unwrap_err();
    assert!(why.starts_with("cannot run /no/such/program: "), "{why}");
    for _ in 0..COMMANDS_PER_USER {
        run(&mut doings, vec![shell("read word")]).unwrap();
    }
    let why = run(&mut doings, vec![shell("true")]).unwrap_err();
    assert_eq!(
        why,
        "2 commands for faults of this user's jobs are running already"
    );
    assert_eq!(outcomes(&mut doings, 0).len(), COMMANDS_PER_USER);
}

struct Deaf(std::process::Child);

impl Deaf {
    fn start() -> Self {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; echo ready; exec sleep 1000"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self(child)
    }

    fn open(&self) -> (u32, Arc<OwnedFd>) {
        let id = Pid::from_child(&self.0);
        let process = pidfd_open(id, PidfdFlags::empty()).unwrap();
        (self.0.id(), Arc::new(process))
    }

    fn evicted(&self, uid: u32, pid: u32) -> Evicted {
        Evicted {
            job: job_of(uid, "evicted"),
            pid,
            process: self.open().1,
            is_client: true,
            why: "",
        }
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn job_of(uid: u32, id: &str) -> JobKey {
    JobKey {
        id: id.to_owned(),
        uid,
        class: protocol::hello::JobClass::BestEffort,
    }
}

#[test]
fn processes_that_may_not_be_sent_signals_are_asked_by_their_library_and_not_called_killed() {
    if !rustix::process::geteuid().is_root() {
        testing::ignore("only root can be somebody else");
    }
    let deaf = Deaf::start();
    let (pid, process) = deaf.open();
    let end = move || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let mut doings = Doings::default();
        let job = job_of(1000, "job");
        let begun = doings.end_job(5, &job, vec![(pid, process)], 10).unwrap();
        assert_eq!((begun.count, begun.denied), (1, 1));
        let mut told = Vec::new();
        assert_eq!(doings.poll(5, &mut told, |_| {}), [(job, vec![pid])]);
        assert_eq!(doings.poll(5 + DRAIN_NS, &mut told, |_| {}), []);
        assert_eq!(doings.poll(5 + DRAIN_NS + KILL_NS, &mut told, |_| {}), []);
        assert_eq!(told, []);
        assert_eq!(doings.poll(5 + DRAIN_NS + FROZEN_NS, &mut told, |_| {}), []);
        told
    };
    let told = std::thread::spawn(end).join().unwrap();
    let text = told[0].text.as_str();
    assert!(
        text.contains("its process has not ended, and ") && text.ends_with("no CAP_KILL"),
        "{text}"
    );
}

#[test]
fn a_process_that_is_asked_and_does_not_end_is_drained_and_killed() {
    let mut deaf = Deaf::start();
    let pid = deaf.0.id();
    let job = job_of(1000, "a job; rm -rf /\n");
    let mut doings = Doings::default();
    let begun = doings.end_job(0, &job, vec![deaf.open()], 10).unwrap();
    assert_eq!((begun.count, begun.denied), (1, 0));
    let again = doings.end_job(0, &job, vec![deaf.open()], 10);
    assert_eq!(again, Ok(Begun::default()));
    let mut told = Vec::new();
    assert_eq!(doings.poll(9, &mut told, |_| {}), []);
    assert_eq!(
        doings.poll(10, &mut told, |_| {}),
        [(job.clone(), vec![pid])]
    );
    assert_eq!(doings.poll(10 + DRAIN_NS, &mut told, |_| {}), []);
    assert_eq!(told, []);
    deaf.0.wait().unwrap();
    let told = outcomes(&mut doings, 10 + DRAIN_NS);
    assert_eq!(
        told[0].text,
        "job \"a job; rm -rf /\\n\": its process has ended"
    );
}

#[test]
fn a_process_that_is_evicted_while_its_job_is_being_ended_has_no_grace_any_more() {
    let deaf = Deaf::start();
    let pid = deaf.0.id();
    let job = job_of(7, "job");
    let mut doings = Doings::default();
    let grace_ns = 1_000_000;
    doings
        .end_job(0, &job, vec![deaf.open()], grace_ns)
        .unwrap();
    let mut told = Vec::new();
    assert_eq!(doings.poll(5, &mut told, |_| {}), []);
    assert_eq!(doings.evict(5, deaf.evicted(7, pid)), Ok(false));
    assert_eq!(doings.poll(5, &mut told, |_| {}), [(job, vec![pid])]);
}

#[test]
fn one_users_jobs_leave_places_for_others_and_all_of_them_for_evictions() {
    const PER_JOB: usize = 32;
    let deaf = Deaf::start();
    let (_, process) = deaf.open();
    let mut doings = Doings::default();
    let mut numbers = 1 << 30..;
    let mut restarts = |uid: u32| {
        let mut end = |place: &usize| {
            let pids = numbers.by_ref().take(PER_JOB);
            let processes = pids.map(|pid| (pid, Arc::clone(&process))).collect();
            let job = job_of(uid, &place.to_string());
            doings.end_job(0, &job, processes, 1).is_ok()
        };
        (0..RESTARTS_PER_USER / PER_JOB + 3)
            .filter(&mut end)
            .count()
    };
    let counts = [1, 2, 3, 4, 5].map(&mut restarts);
    assert_eq!(counts, [8, 8, 8, 6, 0]);
    let mut evictions = |uid: u32| {
        let mut evict = |pid: &u32| {
            let process = Arc::clone(&process);
            let evicted = Evicted {
                job: job_of(uid, "evicted"),
                pid: *pid,
                process,
                is_client: true,
                why: "",
            };
            doings.evict(0, evicted) == Ok(true)
        };
        let some = numbers.by_ref().take(EVICTIONS_PER_USER + 3);
        some.filter(|pid| evict(pid)).count()
    };
    let counts = [1, 2, 3, 4, 5].map(&mut evictions);
    assert_eq!(counts, [16, 16, 16, 16, 0]);
    assert_eq!(doings.count(|_| true), ENDINGS_MAX);
    let more = doings.end_job(0, &job_of(6, "more"), vec![(1, process)], 1);
    assert!(more.is_err());
}

fn wait_for_told(doings: &mut Doings, now_ns: u64, told: &mut Vec<Outcome>, count: usize) {
    loop {
        assert_eq!(doings.poll(now_ns, told, |_| {}), []);
        if told.len() >= count {
            return;
        }
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut fds: Vec<PollFd<'_>> = doings
            .descriptors()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        assert_ne!(poll(&mut fds, Some(&minute)), Ok(0), "{told:?}");
    }
}

#[test]
fn mps_is_asked_before_a_kill_and_what_it_does_not_do_is_told() {
    let mut deaf = Deaf::start();
    let pid = deaf.0.id();
    let mut doings = Doings::new(&["/no/such/program".to_owned()]);
    doings.set_on_mps(true);
    assert_eq!(doings.evict(0, deaf.evicted(7, pid)), Ok(true));
    let mut told = Vec::new();
    let job = job_of(7, "evicted");
    assert_eq!(doings.poll(0, &mut told, |_| {}), [(job, vec![pid])]);
    assert_eq!(doings.poll(DRAIN_NS, &mut told, |_| {}), []);
    assert!(deaf.0.try_wait().unwrap().is_none(), "MPS is asked first");
    wait_for_told(&mut doings, DRAIN_NS, &mut told, 2);
    assert!(deaf.0.wait().unwrap().code().is_none(), "it was killed");
    let expected = format!(
        "job \"evicted\": MPS did not end the work of 1 of its processes, so other clients of MPS may fail when that process ends; \
         process {pid}: cannot run /no/such/program: "
    );
    assert!(told[0].text.starts_with(&expected), "{told:?}");
    assert_eq!(
        told[1].text,
        format!("job \"evicted\": its process {pid} has ended")
    );
}

fn patient(command: &[String]) -> Doings {
    let mut doings = Doings::new(command);
    doings.set_on_mps(true);
    doings.asker.patience = 1_000;
    doings
}

/// Stands for the control daemon's program: knows every process, records whose work to end.
fn control(asked: &std::path::Path, pids: &[u32]) -> [String; 3] {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let script = format!(
        "read -r word server pid; case $word in get_server_list) echo 5 ;; \
         get_client_list) for pid in {}; do echo $pid; done ;; terminate_client) echo $pid >>{} ;; esac",
        pids.join(" "),
        asked.display()
    );
    ["/bin/sh".to_owned(), "-c".to_owned(), script]
}

#[test]
fn whose_work_mps_ends_within_the_grace_is_killed_alone_and_whose_it_does_not_has_its_grace() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let [mut ended, mut refused, mut saving] = [Deaf::start(), Deaf::start(), Deaf::start()];
    let pids = [&ended, &refused, &saving].map(|deaf| deaf.0.id());
    // MPS does not know one of them.
    let mut doings = patient(&control(&asked, &[pids[0], pids[2]]));
    let opened = [&ended, &refused, &saving].map(Deaf::open);
    let job = job_of(7, "job");
    doings.end_job(0, &job, opened.into(), PATIENCE_NS).unwrap();
    let mut told = Vec::new();
    doings.handle_overdue(5, &[pids[0], pids[1], 1 << 30]);
    doings.handle_overdue(6, &[pids[0], pids[1]]);
    while doings.endings[0].unasked().is_some() || ended.0.try_wait().unwrap().is_none() {
        assert_eq!(doings.poll(6, &mut told, |_| {}), []);
        std::thread::yield_now();
    }
    doings.handle_overdue(7, &pids[..2]);
    assert_eq!(doings.poll(7, &mut told, |_| {}), []);
    for deaf in [&mut refused, &mut saving] {
        assert!(deaf.0.try_wait().unwrap().is_none(), "it has its grace");
    }
    assert_eq!(told, [], "its work may end by itself");
    let of_one = std::fs::read_to_string(&asked).unwrap();
    assert_eq!(of_one, format!("{}\n", pids[0]));
    saving.0.kill().unwrap();
    saving.0.wait().unwrap();
    // After the grace it is asked to drain, MPS once more, and then it is killed.
    let to_stop = doings.poll(PATIENCE_NS, &mut told, |_| {});
    assert_eq!(to_stop, [(job, vec![pids[1]])]);
    doings.handle_overdue(PATIENCE_NS, &pids[1..2]);
    wait_for_told(&mut doings, PATIENCE_NS + DRAIN_NS, &mut told, 2);
    let text = format!("process {}: no server of MPS has it as a client", pids[1]);
    assert!(told[0].text.ends_with(&text), "{told:?}");
    assert!(refused.0.wait().unwrap().code().is_none(), "it was killed");
    assert_eq!(told[1].text, "job \"job\": its 3 processes have ended");
}

#[test]
fn users_take_turns_in_asking_mps() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let many = [Deaf::start(), Deaf::start(), Deaf::start()];
    let one = Deaf::start();
    let pids: Vec<u32> = many.iter().chain([&one]).map(|deaf| deaf.0.id()).collect();
    let mut doings = patient(&control(&asked, &pids));
    let opened = many.iter().map(Deaf::open).collect();
    doings.end_job(0, &job_of(7, "many"), opened, 0).unwrap();
    doings.evict(0, one.evicted(8, one.0.id())).unwrap();
    let mut told = Vec::new();
    assert_eq!(doings.poll(0, &mut told, |_| {}).len(), 2);
    wait_for_told(&mut doings, DRAIN_NS, &mut told, 2);
    let order = std::fs::read_to_string(&asked).unwrap();
    let order: Vec<u32> = order.lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(order, [pids[0], pids[3], pids[1], pids[2]]);
    assert!(told.iter().all(|outcome| outcome.is_success), "{told:?}");
    assert_eq!(doings.descriptors().count(), 0, "nothing wakes who waits");
}

#[test]
fn who_is_not_asked_for_in_time_is_killed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // It does not answer while this is open.
    let silence = File::options().read(true).write(true).open(&pipe).unwrap();
    let script = format!("read word <{}", pipe.display());
    let control = ["/bin/sh".to_owned(), "-c".to_owned(), script];
    let mut doings = patient(&control);
    let late = [Deaf::start(), Deaf::start()];
    for (uid, late) in (7..).zip(&late) {
        doings.evict(0, late.evicted(uid, late.0.id())).unwrap();
    }
    let mut told = Vec::new();
    assert_eq!(doings.poll(0, &mut told, |_| {}).len(), 2);
    assert_eq!(doings.poll(DRAIN_NS, &mut told, |_| {}), []);
    assert_eq!(doings.poll(DRAIN_NS + TERMINATE_NS, &mut told, |_| {}), []);
    let texts: Vec<&str> = told.iter().map(|told| told.text.as_str()).collect();
    let [late, unasked] = texts.as_slice() else {
        panic!("{texts:?}");
    };
    assert!(late.ends_with("MPS has not answered in time"), "{late}");
    assert!(
        unasked.ends_with("MPS was not asked: the time was used for other processes"),
        "{unasked}"
    );
    wait_for_told(&mut doings, DRAIN_NS + TERMINATE_NS, &mut told, 4);
    drop(silence);
}
