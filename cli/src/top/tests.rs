//! Screens of fixed documents at the sizes of terminals, the effects of keys, and of a panic.

use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::openpty;
use nix::sys::termios::tcgetattr;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::model::Model;
use super::screen::draw;
use super::view::{Order, Prompt, Todo, View};
use super::with_terminal;

const SIZES: [(u16, u16); 3] = [(80, 24), (100, 40), (200, 50)];

/// A GPU with a serving and a training job, `second` seconds after the first answer.
fn answers(second: u64) -> Value {
    let serve = json!({
        "job": "serve", "uid": 1000, "class": "high-priority", "ended_ns": null,
        "clients": [{"pid": 1}], "totals": {"launches": 1000 * second}, "gpu_time_ns": second * 300_000_000,
        "requests": {
            "recent": {"p50_ns": 6_400_000, "p99_ns": 11_900_000}, "target_ns": 12_000_000,
            "within_target": 0.99151, "is_missed": false,
        },
        "memory": {"held_bytes": 2u64 << 30, "quota_bytes": null},
    });
    let train = json!({
        "job": "train-resnet50-imagenet-2026-11-28T09-30-00-worker-0", "uid": 1001, "class": "best-effort",
        "ended_ns": null, "clients": [{"pid": 2}, {"pid": 3}], "totals": {"launches": 20_000 * second},
        "gpu_time_ns": second * 600_000_000, "progress": {"share": 0.884}, "held_by": "hp-busy",
        "memory": {"held_bytes": 9u64 << 30, "quota_bytes": 16u64 << 30},
    });
    json!({"silent": [], "daemons": [{
        "daemon": {"now_ns": second * 1_000_000_000},
        "gpu": {"uuid": "GPU-1", "name": "NVIDIA A100-SXM4-40GB", "sharing": "mps", "memory_bytes": 40u64 << 30},
        "unmanaged": {"count": 1},
        "jobs": [serve, train, {"job": "old", "ended_ns": 5}],
    }]})
}

fn model() -> Model {
    let mut model = Model::default();
    for second in 0..400 {
        model.handle_answers(&answers(second));
    }
    model
}

fn rows(model: &Model, view: &View, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, model, view, "09:30:00"))
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..height).map(row).collect()
}

fn press(view: &mut View, model: &Model, keys: &str) -> Todo {
    let mut todo = Todo::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        todo = view.handle_key(KeyEvent::new(code, KeyModifiers::NONE), model);
    }
    todo
}

#[test]
fn each_size_has_gpu_jobs_bars_and_keys() {
    for size in SIZES {
        let rows = rows(&model(), &View::default(), size);
        let all = rows.join("\n");
        let has = |row: &str| assert!(all.contains(row), "{size:?} lacks {row:?}:\n{all}");
        for part in [
            "HP p50 6.40 p99 11.90 of 12.00 ms, 99.1 % in time",
            "BE 88 %",
            "1 process is unmanaged",
            "serve",
            "train-",
            "worker-0",
            "11.90",
            "q quit",
            "BE share, last ",
        ] {
            has(part);
        }
        assert!(all.contains('█') || all.contains('▇'), "{all}");
        assert!(!all.contains("old"), "{all}");
        if size.0 == 200 {
            for part in ["hp-busy", "16.0 GiB", "20000", "LAUNCH/S", "60 %"] {
                has(part);
            }
        }
    }
}

#[test]
fn no_size_is_too_small_and_nothing_is_shown_of_what_is_not_there() {
    let mut empty = Model::default();
    empty.handle_answers(
        &json!({"daemons": [], "silent": [{"socket": "/run/pillion/a.sock", "error": "no"}]}),
    );
    let mut older = Model::default();
    older.handle_answers(
        &json!({"daemons": [{"gpu": {"uuid": "GPU-1", "name": "T4"}, "jobs": [
        {"job": "serve", "class": "high-priority", "ended_ns": null},
    ]}], "silent": []}),
    );
    for model in [&empty, &older, &model()] {
        for width in [1, 2, 7, 20, 39, 80, 300] {
            for height in [1, 2, 5, 9, 13, 24, 60] {
                let mut view = View::default();
                rows(model, &view, (width, height));
                view.is_help = true;
                rows(model, &view, (width, height));
            }
        }
    }
    assert!(
        rows(&empty, &View::default(), (80, 24))
            .join("")
            .contains("no daemon is running")
    );
    let older = rows(&older, &View::default(), (80, 24)).join("\n");
    assert!(
        older.contains("HP p50 - p99 -") && older.contains("unmanaged -"),
        "{older}"
    );
}

#[test]
fn keys_sort_filter_and_select() {
    let model = model();
    let mut view = View::default();
    let ids = |view: &View| -> Vec<String> {
        view.jobs(&model)
            .iter()
            .map(|job| job.id[..5].to_owned())
            .collect()
    };
    assert_eq!(ids(&view), ["serve", "train"]);
    press(&mut view, &model, ".");
    assert_eq!(view.order, Order::Name);
    press(&mut view, &model, "/");
    assert_eq!(ids(&view), ["train", "serve"]);
    press(&mut view, &model, "/,,");
    assert_eq!(view.order, Order::Launches);
    assert_eq!(ids(&view), ["train", "serve"]);
    press(&mut view, &model, "fbest\n");
    assert_eq!(ids(&view), ["train"]);
    press(&mut view, &model, "\u{1b}f1000\n");
    assert_eq!(ids(&view), ["serve"]);
    press(&mut view, &model, "\u{1b},.");
    // The selection follows the job.
    press(&mut view, &model, "↓");
    let selected = |view: &View| {
        view.jobs(&model)[view.selected(&view.jobs(&model))]
            .id
            .clone()
    };
    assert_eq!(selected(&view), "serve");
    press(&mut view, &model, "/");
    assert_eq!(selected(&view), "serve");
    press(&mut view, &model, "↓↓↓↓");
    assert!(selected(&view).starts_with("train-"));
    press(&mut view, &model, "↑↑");
    assert_eq!(selected(&view), "serve");
}

#[test]
fn a_job_is_stopped_after_a_question_and_set_by_a_line() {
    let model = model();
    let mut view = View::default();
    assert_eq!(press(&mut view, &model, "T"), Todo::Nothing);
    let shown = rows(&model, &view, (80, 24)).join("\n");
    assert!(
        shown.contains("stop serve, as `pillion stop` does? y/n"),
        "{shown}"
    );
    assert_eq!(press(&mut view, &model, "n"), Todo::Nothing);
    assert_eq!(view.prompt, None);
    let stop = ["stop", "--", "serve"].map(str::to_owned).to_vec();
    assert_eq!(press(&mut view, &model, "Ty"), Todo::Run(stop));
    let set = ["set", "--slo", "15ms", "--", "serve"];
    let set = set.map(str::to_owned).to_vec();
    assert_eq!(press(&mut view, &model, "s--slo 15ms\n"), Todo::Run(set));
    assert_eq!(press(&mut view, &model, "s\n"), Todo::Nothing);
    assert_eq!(press(&mut view, &model, "sq\u{1b}q"), Todo::Quit);
    press(&mut view, &model, "t");
    assert!(matches!(view.prompt, Some(Prompt::Stop { user: None, .. })));
}

#[test]
fn jobs_of_one_id_are_told_apart_by_user_and_class() {
    let mut answers = answers(1);
    let jobs = answers["daemons"][0]["jobs"].as_array_mut().unwrap();
    let mut other = jobs[1].clone();
    other["job"] = json!("serve");
    jobs.push(other.clone());
    other["uid"] = json!(1000);
    jobs.push(other);
    let mut model = Model::default();
    model.handle_answers(&answers);
    let mut view = View::default();
    press(&mut view, &model, "↓↓↓");
    assert_eq!(view.selected(&view.jobs(&model)), 3);
    press(&mut view, &model, "↑");
    let stop = ["stop", "--user=1001", "--", "serve"];
    let stop = stop.map(str::to_owned).to_vec();
    assert_eq!(press(&mut view, &model, "Ty"), Todo::Run(stop));
    assert_eq!(press(&mut view, &model, "s"), Todo::Nothing);
    assert_eq!(view.prompt, None);
    assert!(view.message.contains("several users"), "{}", view.message);
}

#[test]
fn jobs_have_room_however_many_gpus_there_are() {
    let mut answers = answers(1);
    let one = answers["daemons"][0].clone();
    let of = |place: usize| {
        let mut gpu = one.clone();
        gpu["gpu"]["uuid"] = json!(format!("GPU-{place}"));
        gpu["unmanaged"]["count"] = json!(usize::from(place == 50));
        gpu
    };
    answers["daemons"] = (0..56).map(of).collect();
    let mut model = Model::default();
    model.handle_answers(&answers);
    for size in SIZES {
        let rows = rows(&model, &View::default(), size);
        let all = rows.join("\n");
        assert!(
            rows.iter().filter(|row| row.starts_with("serve ")).count() >= 2,
            "{all}"
        );
        assert!(rows[2].contains("1 process is unmanaged"), "{all}");
        assert!(all.contains("more rows: `pillion status`"), "{all}");
    }
}

#[test]
fn rates_are_those_between_two_answers_and_none_after_another_daemon() {
    let mut model = Model::default();
    model.handle_answers(&answers(1));
    assert_eq!(model.jobs[1].launches_per_s, None);
    model.handle_answers(&answers(3));
    assert_eq!(model.jobs[1].launches_per_s, Some(20_000.0));
    assert_eq!(model.jobs[1].gpu_use, Some(0.6));
    model.handle_answers(&answers(2));
    assert_eq!(model.jobs[1].launches_per_s, None);
}

/// The test below runs itself again in a terminal of its own, with this variable.
const INSIDE: &str = "PILLION_TEST_INSIDE";

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    if std::env::var_os(INSIDE).is_some() {
        let _ = with_terminal(|terminal| {
            let _ = terminal.draw(|_| panic!("on purpose"));
        });
    }
    let terminal = openpty(None, None).unwrap();
    let before = tcgetattr(&terminal.slave).unwrap();
    let end = || Stdio::from(terminal.slave.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "top::tests::a_panic_leaves_the_terminal_as_it_was",
        ])
        .args(["--nocapture", "--test-threads=1"])
        .env("TERM", "xterm")
        .env(INSIDE, "1")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(tcgetattr(&terminal.slave).unwrap(), before);
    drop(terminal.slave);
    let mut told = Vec::new();
    // Reading from a terminal whose other end is closed fails.
    let _ = std::fs::File::from(terminal.master).read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    let place = |text: &str| {
        told.find(text)
            .unwrap_or_else(|| panic!("no {text:?} in {told:?}"))
    };
    // The alternate screen is entered and left, and then the message comes.
    let (entered, left) = (place("\u{1b}[?1049h"), place("\u{1b}[?1049l"));
    assert!(entered < left && left < place("on purpose"), "{told:?}");
}
