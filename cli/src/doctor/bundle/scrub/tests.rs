//! Every name is removed wherever it can stand, and the data that a maintainer needs stays.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn text(scrubber: &mut Scrubber, text: &str) -> String {
    scrubber.text(text, &mut Tally::new())
}

#[test]
fn a_name_has_one_pseudonym_wherever_it_stands_as_a_word() {
    let mut scrubber = Scrubber::default();
    scrubber.learn(Class::Job, "train");
    scrubber.learn(Class::Job, "train-2");
    scrubber.learn(Class::Host, "node7");
    scrubber.learn_user(1000, "alice");
    for (said, expected) in [
        ("job \"train\": held", "job \"job-1\": held"),
        ("train,train-2", "job-1,job-2"),
        ("trains and strain stay", "trains and strain stay"),
        ("at node7.cluster.example: up", "at host-1: up"),
        ("alice@node7", "user-1@host-1"),
        ("of user 1000 and user 0", "of user user-1 and user 0"),
        ("user-1000.slice", "user-user-1.slice"),
    ] {
        assert_eq!(text(&mut scrubber, said), expected, "{said}");
    }
}

#[test]
fn a_number_or_a_letter_is_a_name_in_quotes_only() {
    let mut scrubber = Scrubber::default();
    scrubber.learn(Class::Job, "7");
    scrubber.learn(Class::Job, "a");
    let said = "job \"7\" has 7 of a kind, job \"a\" has none";
    let expected = "job \"job-1\" has 7 of a kind, job \"job-2\" has none";
    assert_eq!(text(&mut scrubber, said), expected);
}

#[test]
fn paths_addresses_and_ids_are_replaced_and_those_of_the_system_stay() {
    let mut scrubber = Scrubber::default();
    for (said, expected) in [
        ("/users/al/x.toml:3:1: wrong", "path-1.toml:3:1: wrong"),
        ("\"/data/my set/x\" is", "\"path-2\" is"),
        (
            "/users/al/x.toml, read by /bin/true",
            "path-1.toml, read by /bin/true",
        ),
        ("4:memory:/process/x", "4:memory:path-3"),
        (
            "see /usr/lib/x86_64/libcuda.so.1",
            "see /usr/lib/x86_64/libcuda.so.1",
        ),
        ("/etc/pillion/gpu0.toml", "/etc/pillion/gpu0.toml"),
        ("/run/user/1000/pillion/GPU-1a.sock", "path-4.sock"),
        ("from 10.1.2.3 on", "from address-1 on"),
        ("driver 550.54.15, CUDA 12.4", "driver 550.54.15, CUDA 12.4"),
        ("a.b@mail.example", "address-2"),
        ("pilliond@gpu0.service", "pilliond@gpu0.service"),
        ("fe80::1:2:3", "address-3"),
        ("at 0000:01:00.0, 12:30:01", "at 0000:01:00.0, 12:30:01"),
        ("9f1c2d3e-0000-4000-8000-00000000abcd", "id-1"),
        (
            "GPU-9f1c2d3e-0000-4000-8000-00000000abcd",
            "GPU-9f1c2d3e-0000-4000-8000-00000000abcd",
        ),
        (
            "docker-0123456789abcdef0123456789abcdef.scope",
            "docker-id-2.scope",
        ),
        ("64 B/s of 7/8", "64 B/s of 7/8"),
    ] {
        assert_eq!(text(&mut scrubber, said), expected, "{said}");
    }
}

#[test]
fn a_path_that_only_begins_as_one_of_the_system_is_replaced() {
    let mut scrubber = Scrubber::default();
    for (said, expected) in [
        ("/tmp/nvidia-mps", "/tmp/nvidia-mps"),
        (
            "at /tmp/nvidia-mps/control: up",
            "at /tmp/nvidia-mps/control: up",
        ),
        ("in /tmp/nvidia-mps, up", "in /tmp/nvidia-mps, up"),
        ("/tmp/nvidia-mps_alice", "path-1"),
        ("at /tmp/nvidia-mps-1000/control", "at path-2"),
        ("/etc/ld.so.cache", "/etc/ld.so.cache"),
        ("/usr/local/cuda-12.4/lib64", "/usr/local/cuda-12.4/lib64"),
        ("/usr/local/cuda/lib64", "/usr/local/cuda/lib64"),
        ("/usr/local/cuda-alice/lib64", "path-3"),
        ("/run/pillion-alice/x.sock", "path-4.sock"),
        ("by /usr/local/bin/acme", "by path-5"),
        ("/usr/local/lib/python3/acme/x.so", "path-6.so"),
        ("0::/system.slice/acme-llm.service", "0::path-7"),
        (
            "0::/user.slice/user@1000.service/app.slice/app-acme.service",
            "0::path-8",
        ),
        ("user@1000.service: up", "user@user-1.service: up"),
    ] {
        assert_eq!(text(&mut scrubber, said), expected, "{said}");
    }
}

#[test]
fn the_command_line_of_a_process_is_replaced_whole() {
    let mut scrubber = Scrubber::default();
    for (said, expected) in [
        (
            "by process pid 7 of user 1000 (python train.py --key=a (b) c); wait",
            "by process pid 7 of user user-1 (program-1); wait",
        ),
        (
            "process pid 7 (sh -c a\nb) has it\nx (y)",
            "process pid 7 (program-2) has it\nx (y)",
        ),
        ("pilliond pid 7 (a b", "pilliond pid 7 (program-3"),
        (
            "held by pilliond pid 7 (socket /data/x)",
            "held by pilliond pid 7 (socket path-1)",
        ),
        ("7 jobs (two held)", "7 jobs (two held)"),
    ] {
        assert_eq!(text(&mut scrubber, said), expected, "{said}");
    }
}

#[test]
fn the_forms_in_which_the_daemon_writes_of_jobs_and_programs_teach_their_names() {
    let mut scrubber = Scrubber::default();
    let log = "12.5 attached: best-effort job \"apollo\", trainer, client 3\n\
               13.5 turned away: server, job \"artemis \\\"x\\\"\": no\n\
               14.5 gemini, job \"\": it uses the GPU without the library\n\
               15.5 pid 77 mercury has memory\n16.5 pid 78 of user 1000\n";
    scrubber.learn_text(log);
    let made = text(
        &mut scrubber,
        &format!("{log}apollo trainer server gemini mercury"),
    );
    for name in [
        "apollo", "trainer", "server", "artemis", "gemini", "mercury", "1000",
    ] {
        assert!(!made.contains(name), "{name} in {made}");
    }
    assert!(made.contains("job \"job-2\": no"), "{made}");
    assert!(made.contains("pid 78 of user user-1"), "{made}");
}

#[test]
fn fields_of_a_status_are_names_by_their_keys() {
    let status = json!({
        "gpu": {"name": "Tesla V100", "uuid": "GPU-1", "pci": "0000:01:00.0"},
        "policy": {"name": "pillion", "config_error": "/users/al/gpu0.toml:3:1: wrong"},
        "jobs": [{"job": "7", "uid": 1000, "class": "best-effort", "clients": [
            {"pid": 42, "name": "python", "uid": 1000, "profile": "mine.toml", "profile_fit": ""}
        ]}],
        "held": [{"job": null, "uid": null, "why": "job \"7\" is stuck"}],
        "users": [{"user": 1000, "gpu_time_ns": 1000}, {"user": 0, "gpu_time_ns": 1000}],
    });
    let mut scrubber = Scrubber::default();
    scrubber.learn_json(&status);
    let mut tally = Tally::new();
    let made = scrubber.json(&status, &mut tally);
    assert_eq!(
        made,
        json!({
            "gpu": {"name": "Tesla V100", "uuid": "GPU-1", "pci": "0000:01:00.0"},
            "policy": {"name": "pillion", "config_error": "path-2.toml:3:1: wrong"},
            "jobs": [{"job": "job-1", "uid": "user-1", "class": "best-effort", "clients": [
                {"pid": 42, "name": "program-1", "uid": "user-1", "profile": "path-1", "profile_fit": ""}
            ]}],
            "held": [{"job": null, "uid": null, "why": "job \"job-1\" is stuck"}],
            "users": [{"user": "user-1", "gpu_time_ns": 1000}, {"user": 0, "gpu_time_ns": 1000}],
        })
    );
    let counted = [("job", 2), ("path", 2), ("program", 1), ("user", 3)];
    assert_eq!(tally, Tally::from(counted));
}

fn name() -> impl Strategy<Value = String> {
    "zq[a-z0-9][a-zA-Z0-9.-]{0,9}[a-z0-9]"
}

proptest! {
    #[test]
    fn no_name_survives_in_documents_and_texts(
        job in name(), program in name(), user in name(), host in name(), folder in name(),
        uid in 1000_u32..60_000,
        around in "[ -~]{0,12}",
    ) {
        let mut scrubber = Scrubber::default();
        scrubber.learn(Class::Host, &host);
        scrubber.learn_user(uid, &user);
        let status = json!({
            "jobs": [{"job": job, "uid": uid, "clients": [{"pid": 1, "name": program, "profile": format!("{folder}/p")}]}],
            "text": format!("job {job:?}, {program}: on {host}, of {user}, see /users/{user}/{folder}/x.py"),
            "more": format!("{around} {job} {around}"),
        });
        scrubber.learn_json(&status);
        let log = format!(
            "{around} {host} pilliond[1]: attached: high-priority job {job:?}, {program}, client 1\n({user}) '{program}' <{job}>\n"
        );
        scrubber.learn_text(&log);
        let mut tally = Tally::new();
        let made = scrubber.json(&status, &mut tally).to_string() + &text(&mut scrubber, &log);
        for secret in [&job, &program, &user, &host, &folder] {
            prop_assert!(!made.contains(secret.as_str()), "{secret} in {made}");
        }
    }

    #[test]
    fn any_text_is_scrubbed_twice_alike_and_never_panics(said in ".{0,80}", job in ".{1,8}") {
        let mut scrubber = Scrubber::default();
        scrubber.learn(Class::Job, &job);
        scrubber.learn_text(&said);
        let once = text(&mut scrubber, &said);
        prop_assert_eq!(&once, &text(&mut scrubber, &said));
    }
}
