//! For each command of the documents: how a test runs it.

/// How a test runs a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// `commands` runs it as it is written, and it succeeds.
    Run,
    /// As [`How::Run`], and it prints the lines below it.
    Prints,
    /// As [`How::Run`], with `--seconds 1` at its end.
    Short,
    /// As [`How::Short`], of one part of the suite.
    Quick,
    /// A test of this name runs it.
    By(&'static str),
    /// This file has this text. The file is part of CI, or of packaging/test-systemd, which boots a
    /// container and is run by hand. Those files install by dpkg and pip, and unpack the .rpm.
    In(&'static str, &'static str),
    /// It needs a GPU, and the document says so in its line or is about nothing else.
    Gpu,
    /// The document says that it was not tried, as no machine here has what it needs.
    Untried,
}

use How::{By, Gpu, In, Prints, Quick, Run, Short, Untried};

const SUITES: How = By("of_a_suite_only_the_chosen_parts_are_run_and_the_table_says_which");
const GPU_SUITE: &str = "every_part_runs_on_a_software_gpu_and_says_that_it_is_one";
const SLO: How =
    By("targets_are_judged_beside_the_same_arrivals_and_the_tables_say_what_was_not_held");
const MPS: &str =
    "the_stand_in_answers_every_command_as_nvidias_control_daemon_does_without_a_device";
const MPS_SERVER: &str =
    "a_servers_death_takes_its_clients_and_newcomers_are_refused_until_these_are_gone";
const C_EXAMPLE: &str = "the_c_program_runs_by_pillion_run_and_by_hand";

/// Document, beginning of the command, how it is run. The first fitting row counts.
pub(super) const COMMANDS: &[(&str, &str, How)] = &[
    ("README.md", "cargo build", Prints),
    (
        "README.md",
        "cargo test",
        In(".ci/run", "cargo test --release"),
    ),
    ("README.md", "pillion ", Run),
    (
        "benches/README.md",
        "cargo bench",
        By("a_bench_runs_with_the_options_of_its_document"),
    ),
    (
        "benches/gpu/README.md",
        "BUILT=target/release benches/gpu/pack",
        By(GPU_SUITE),
    ),
    (
        "benches/gpu/README.md",
        "benches/gpu/run --quick --software-gpu",
        By(GPU_SUITE),
    ),
    ("benches/gpu/README.md", "", Gpu),
    ("docs/add-a-policy.md", "pillion simulate", Prints),
    ("docs/containers.md", "pillion cdi", Run),
    ("docs/containers.md", "echo /usr/lib/pillion", Run),
    ("docs/containers.md", "semanage", Untried),
    (
        "docs/add-a-policy.md",
        "RUSTFLAGS=",
        In(".ci/run", "--cfg stepped"),
    ),
    ("docs/containers.md", "podman", Gpu),
    (
        "docs/faults.md",
        "pillion events --follow",
        By("who_follows_sees_what_happens_also_at_the_next_daemon"),
    ),
    ("docs/faults.md", "softgpu-server", Run),
    (
        "docs/fleet.md",
        "apt install",
        In("packaging/in-systemd", "dpkg -i /tried.deb"),
    ),
    ("docs/fleet.md", "install -D", Run),
    ("docs/fleet.md", "for i in", Run),
    (
        "docs/fleet.md",
        "pillion config check",
        By("a_configuration_that_does_not_fit_this_machine_is_said_to"),
    ),
    (
        "docs/fleet.md",
        "systemctl enable",
        In("packaging/in-systemd", "systemctl enable --now"),
    ),
    ("docs/fleet.md", "pillion cdi", Run),
    (
        "docs/monitoring.md",
        "pillion exporter --textfile",
        By("a_file_for_node_exporter_is_written_with_a_daemon_and_without"),
    ),
    (
        "docs/monitoring.md",
        "pillion exporter",
        By("a_scrape_shows_what_the_daemon_counts_in_the_format_that_was_asked_for"),
    ),
    ("docs/mps.md", "export CUDA_MPS_PIPE_DIRECTORY=T", By(MPS)),
    ("docs/mps.md", "export LD_LIBRARY_PATH", By(MPS)),
    ("docs/mps.md", "nvidia-cuda-mps-control", By(MPS)),
    ("docs/mps.md", "printf", By(MPS)),
    ("docs/mps.md", "", By(MPS_SERVER)),
    (
        "docs/operating.md",
        "pip install",
        In("packaging/check", "pip install --quiet --no-index"),
    ),
    (
        "docs/operating.md",
        "apt install",
        In("packaging/in-systemd", "dpkg -i /tried.deb"),
    ),
    (
        "docs/operating.md",
        "rpm -i",
        In("packaging/check", "rpm -qp"),
    ),
    (
        "docs/operating.md",
        "pilliond --config",
        In("examples/with-softgpu", "pilliond\" --config"),
    ),
    ("docs/operating.md", "LD_PRELOAD=", By(C_EXAMPLE)),
    ("docs/operating.md", "nsys ", Gpu),
    ("docs/operating.md", "ncu ", Gpu),
    (
        "docs/operating.md",
        "pillion profile import",
        By("what_is_imported_is_shown_checked_and_compared"),
    ),
    (
        "docs/operating.md",
        "pillion profile show",
        By("what_is_imported_is_shown_checked_and_compared"),
    ),
    (
        "docs/operating.md",
        "pillion profile learnt train.py",
        By("the_second_start_knows_the_kernels_of_the_first_in_either_class"),
    ),
    (
        "docs/operating.md",
        "target/release/pillion demo --hp model_kernels",
        By("on_orions_traces_pillion_protects_the_high_priority_job_and_lets_the_other_work"),
    ),
    ("docs/operating.md", "target/release/pillion demo", Short),
    (
        "docs/operating.md",
        "target/release/pillion simulate",
        Prints,
    ),
    ("docs/operating.md", "", Run),
    ("docs/policy.md", "PILLION_DATA=", SUITES),
    (
        "docs/pytorch.md",
        "PILLION_LOG=debug",
        By("what_pytorch_resolves_is_listed_by_door"),
    ),
    (
        "docs/pytorch.md",
        "cargo test",
        In(".ci/run", "cargo test --release"),
    ),
    ("docs/pytorch.md", "", Run),
    ("docs/reproduction-gpucolo.md", "pillion simulate", SLO),
    ("docs/simulate.md", "pillion simulate --suite orion", Quick),
    (
        "docs/simulate.md",
        "generate",
        By("a_scenario_is_read_from_stdin_where_its_file_is_a_dash"),
    ),
    (
        "docs/simulate.md",
        "pillion simulate cluster --trace pods.csv --nodes nodes.csv --inflate",
        By("inflation_fills_a_cluster_and_counts_what_does_not_fit"),
    ),
    (
        "docs/simulate.md",
        "pillion simulate cluster",
        By("every_form_of_trace_is_played"),
    ),
    (
        "docs/simulate.md",
        "PILLION_DATA=data pillion simulate cluster --suite gpucolo",
        By("the_suite_gpucolo_runs_with_chosen_policies"),
    ),
    ("docs/simulate.md", "pillion simulate", Short),
    ("docs/tutorial.md", "", By("the_tutorial_runs_as_written")),
    (
        "examples/README.md",
        "examples/with-softgpu target/release/pillion run -- python3 examples/2",
        By("the_python_program_runs_under_pillion_run"),
    ),
    (
        "examples/README.md",
        "DEVICE=A100-SXM4-40GB",
        By("the_example_serves_and_trains_beside_each_other"),
    ),
    (
        "examples/README.md",
        "target/release/pillion simulate --scenario",
        By("every_example_of_the_documentation_can_be_run"),
    ),
    ("examples/README.md", "", Run),
];
