//! The driver as seen by programs: C programs linked against it, in real and in virtual time.

// For lints: the helpers belong to a test.
#[cfg(test)]
mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{
    Server, count, driver_folder, program, run, server_command, signal, start, stats_of, tool,
};

/// Symbols that no driver of NVIDIA's exports.
const OWN: [&str; 3] = [
    "softgpu_block_priority",
    "softgpu_next_kernel",
    "softgpu_trace_kernels",
];

#[test]
fn exactly_the_table_and_three_of_its_own_are_exported_under_the_drivers_name() {
    let listing = tool("nm", &["-D", "--defined-only", "--format=just-symbols"]);
    let mut exported: Vec<&str> = listing.lines().collect();
    exported.sort_unstable();
    let table = abi::ENTRY_POINTS.iter();
    let table = table.map(|e| e.symbol.to_str().unwrap());
    let expected: Vec<&str> = table.chain(OWN).collect();
    assert_eq!(exported, expected);
    let dynamic = tool("readelf", &["-d"]);
    assert!(dynamic.contains("[libcuda.so.1]"), "{dynamic}");
    assert!(dynamic.contains("SYMBOLIC"), "{dynamic}");
}

#[test]
fn streams_wait_for_values_and_have_attributes_and_contexts_all_their_forms() {
    for sharing in ["mps", "timeslice"] {
        run(&mut Server::start(&["--sharing", sharing]).program("values"));
    }
}

#[test]
fn a_stream_waits_for_an_event_of_another_device() {
    let servers = ["V100-SXM2-16GB", "T4"].map(|device| Server::start(&["--device", device]));
    let mut program = servers[0].program("across");
    run(program.env("SOFTGPU_SOCKET", sockets(&servers)));
}

/// The sockets of several servers, in the form of `SOFTGPU_SOCKET`.
fn sockets(servers: &[Server]) -> std::ffi::OsString {
    std::env::join_paths(servers.iter().map(Server::socket)).expect("no path has a colon")
}

#[test]
fn one_process_uses_two_devices_and_each_server_counts_its_own() {
    let servers = ["V100-SXM2-16GB", "T4"].map(|device| Server::start(&["--device", device]));
    let mut program = servers[0].program("devices");
    program.env("SOFTGPU_SOCKET", sockets(&servers));
    run(program.args(["0000:01:00.0 80", "0000:02:00.0 40"]));
    for (index, server) in servers.into_iter().enumerate() {
        let stats = server.finish();
        let expected = [3, 5][index];
        assert_eq!(count(&stats, "devices", "launches"), expected, "{stats:#}");
        assert_eq!(count(&stats, "devices", "launches_completed"), expected);
        assert_eq!(count(&stats, "devices", "faults"), 0);
        assert_eq!(stats["memory"]["used_bytes"], 0);
    }
}

#[test]
fn cuda_visible_devices_chooses_and_orders_as_the_driver_does() {
    let servers = ["V100-SXM2-16GB", "T4"].map(|device| Server::start(&["--device", device]));
    let (first, second) = ("0000:01:00.0 80", "0000:02:00.0 40");
    let uuid = |index: usize| {
        let stats = servers[index].stats();
        stats["uuid"].as_str().unwrap().to_owned()
    };
    let cut = &uuid(1)[..13];
    let whole = uuid(0);
    let run_with = |visible: &str, seen: &[&str]| {
        let mut program = servers[0].program("devices");
        program.env("SOFTGPU_SOCKET", sockets(&servers));
        run(program.env("CUDA_VISIBLE_DEVICES", visible).args(seen));
    };
    run_with("1,0", &[second, first]);
    run_with("1", &[second]);
    run_with("1,9,0", &[second]);
    run_with(cut, &[second]);
    run_with(&format!("1,{whole}"), &[second, first]);
    for none in ["", "-1", "GPU-ffffffffffff"] {
        run_with(none, &[]);
    }
}

#[test]
fn kernels_compute_and_the_server_counts_what_the_program_did() {
    let stats = stats_of(&["--sharing", "mps"], "compute");
    for (counter, expected) in [
        ("launches", 5),
        ("launches_completed", 5),
        ("copied_h2d_bytes", 2 * 4 * 300_000),
        ("copied_d2h_bytes", 2 * 4 * 300_000 + 4 + 4 * 17 * 29 + 12),
        ("copied_d2d_bytes", 12),
        ("set_bytes", 12),
        ("allocations", 4),
        ("launches_beside_others", 0),
    ] {
        assert_eq!(count(&stats, "compute", counter), expected, "{counter}");
    }
    assert_eq!(stats["memory"]["used_bytes"], 0);
}

#[test]
fn streams_and_events_keep_their_order() {
    for args in [
        &["--sharing", "mps"],
        &["--sharing", "timeslice"],
        &["--scale", "3"],
    ] {
        run(&mut Server::start(args).program("order"));
    }
    let server = Server::start_virtual(1, &["--sharing", "mps"]);
    run(&mut server.virtual_program("order", 1));
}

#[test]
fn the_legacy_stream_answers_for_the_blocking_streams_of_its_context() {
    for args in [&["--sharing", "mps"], &["--sharing", "timeslice"]] {
        run(&mut Server::start(args).program("default_streams"));
    }
    let server = Server::start_virtual(1, &["--sharing", "mps"]);
    run(server.virtual_program("default_streams", 1).arg("virtual"));
}

#[test]
fn streams_beyond_the_connections_of_a_context_wait_for_each_other() {
    for (asked, connections) in [(None, "8"), (Some("1"), "1"), (Some("32"), "32")] {
        let server = Server::start(&["--sharing", "mps"]);
        let mut program = server.program("connections");
        if let Some(asked) = asked {
            program.env("CUDA_DEVICE_MAX_CONNECTIONS", asked);
        }
        run(program.arg(connections));
    }
}

#[test]
fn a_submit_to_a_full_stream_blocks_and_so_do_other_calls_in_its_context() {
    let server = Server::start(&["--sharing", "mps"]);
    run(&mut server.program("full"));
    let server = Server::start_virtual(1, &["--sharing", "mps"]);
    run(&mut server.virtual_program("full", 1));
}

#[test]
fn graphs_compute_what_their_nodes_say_and_change_as_told() {
    for args in [&["--sharing", "mps"], &["--sharing", "timeslice"]] {
        let stats = stats_of(args, "graphs");
        let counted = |name: &str| count(&stats, "graphs", name);
        assert_eq!(counted("launches"), 0, "{stats}");
        assert_eq!(counted("graph_kernels"), counted("graph_kernels_completed"));
        // 2 launches of 3 kernels, 3 of 2, 5 that fill once (1 disabled), 1 of a child, 1 of empty
        // nodes, 6 that allocate and fill.
        assert_eq!(counted("graph_launches"), 2 + 3 + 5 + 1 + 1 + 6, "{stats}");
        assert_eq!(counted("graph_kernels"), 6 + 6 + 4 + 1 + 6, "{stats}");
        assert_eq!(stats["memory"]["used_bytes"], 0);
    }
    let server = Server::start_virtual(1, &["--sharing", "mps"]);
    run(&mut server.virtual_program("graphs", 1));
}

#[test]
fn captures_record_what_they_may_and_are_void_after_what_they_may_not() {
    let server_stats = stats_of(&["--sharing", "mps"], "captures");
    let counted = |name: &str| count(&server_stats, "captures", name);
    // The launches of the thread beside a capture; captured ones do not count.
    assert_eq!(counted("launches"), 9, "{server_stats}");
    assert_eq!(counted("graph_launches"), 3 * 2 + 3, "{server_stats}");
    assert_eq!(counted("graph_kernels"), 3 * (3 + 4) + 3, "{server_stats}");
}

#[test]
fn host_functions_run_in_their_streams_order_and_cannot_use_cuda() {
    let server = Server::start(&["--sharing", "mps"]);
    run(&mut server.program("host_calls"));
    let server = Server::start_virtual(1, &["--sharing", "timeslice"]);
    run(&mut server.virtual_program("host_calls", 1));
}

#[test]
fn what_cannot_be_done_is_refused_with_its_code_and_counted() {
    let stats = stats_of(&[], "errors");
    assert_eq!(count(&stats, "errors", "not_supported"), 2);
    assert_eq!(count(&stats, "errors", "allocations_refused"), 2);
    assert_eq!(count(&stats, "errors", "faults"), 1);
}

#[test]
fn modules_libraries_and_linkings_hold_what_their_images_say() {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/code/images");
    let server = Server::start(&["--device", "T4", "--sharing", "mps"]);
    run(server.program("modules").arg(images));
    let stats = server.finish();
    assert_eq!(count(&stats, "modules", "launches"), 5);
    assert_eq!(count(&stats, "modules", "launches_completed"), 5);
    assert_eq!(stats["memory"]["used_bytes"], 0);
}

#[test]
fn occupancy_is_that_of_the_model() {
    run(&mut Server::start(&[]).program("occupancy"));
}

#[test]
fn launches_with_packed_parameters_and_on_several_devices_compute_like_others() {
    let stats = stats_of(&["--sharing", "mps"], "several");
    assert_eq!(count(&stats, "several", "launches"), 3);
    assert_eq!(count(&stats, "several", "launches_completed"), 3);
}

#[test]
fn memory_of_every_kind_is_the_devices_and_ends_with_it() {
    let stats = stats_of(&[], "limits");
    assert_eq!(count(&stats, "limits", "faults"), 0, "{stats:#}");
    assert_eq!(count(&stats, "limits", "allocations_refused"), 8);
    assert_eq!(stats["memory"]["used_bytes"], 0);
}

#[test]
fn processes_share_memory_by_handle_and_by_descriptor() {
    let stats = stats_of(&[], "sharing");
    // Opening and importing take no memory of the device.
    assert_eq!(count(&stats, "sharing", "allocations"), 2, "{stats:#}");
    assert_eq!(
        count(&stats, "sharing", "allocated_bytes"),
        (1 << 20) + (2 << 20)
    );
    assert_eq!(stats["memory"]["used_bytes"], 0);
}

#[test]
fn processes_share_events_and_wait_for_each_others_records() {
    for sharing in ["mps", "timeslice"] {
        let stats = stats_of(&["--sharing", sharing], "shared_events");
        // An event is no allocation of the program's, and its memory is freed with it.
        assert_eq!(
            count(&stats, "shared_events", "allocations"),
            1,
            "{stats:#}"
        );
        assert_eq!(count(&stats, "shared_events", "faults"), 0, "{stats:#}");
        assert_eq!(stats["memory"]["used_bytes"], 0);
    }
}

#[test]
fn a_forked_child_can_do_nothing_and_harms_nobody() {
    let stats = stats_of(&[], "fork");
    assert_eq!(
        count(&stats, "fork", "processes"),
        2,
        "the child before cuInit and the parent"
    );
}

#[test]
fn without_a_server_there_is_no_device() {
    run(&mut program("no_device"));
    run(program("no_device").env("SOFTGPU_SOCKET", driver_folder().join("nobody")));
}

#[test]
fn event_calls_take_the_time_that_is_asked_for_and_launches_wait_for_their_lock() {
    let held_ns = "2000000";
    let run_with = |program: &mut Command| {
        run(program.env("SOFTGPU_EVENT_NS", held_ns).arg(held_ns));
    };
    run_with(program("event_calls").env("SOFTGPU_NULL", "1"));
    let server = Server::start(&["--sharing", "mps"]);
    run_with(&mut server.program("event_calls"));
}

#[test]
fn null_mode_needs_no_server() {
    run(program("null").env("SOFTGPU_NULL", "1"));
}

#[test]
fn a_killed_process_leaves_its_neighbour_and_no_memory_behind() {
    let server = Server::start(&["--sharing", "mps"]);
    let (mut holder, _) = start(&mut server.program("holder"));
    let mut neighbour = server.program("neighbour");
    let (mut neighbour, line) = start(neighbour.stdin(Stdio::piped()));
    assert_eq!(line, "kill\n");
    signal(&holder, "KILL");
    holder.wait().unwrap();
    neighbour
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"dead\n")
        .unwrap();
    assert!(neighbour.wait().unwrap().success());
    let stats = server.finish();
    assert!(
        count(&stats, "neighbour", "launches_beside_others") >= 100,
        "{stats}"
    );
    assert_eq!(count(&stats, "neighbour", "launches"), 101);
    assert!(count(&stats, "holder", "launches") > count(&stats, "holder", "launches_completed"));
    assert_eq!(stats["memory"]["used_bytes"], 0);
}

#[test]
fn a_program_whose_server_dies_gets_an_error() {
    let server = Server::start(&["--scale", "1000"]);
    let (mut orphan, _) = start(&mut server.program("orphan"));
    server.kill();
    assert!(orphan.wait().unwrap().success());
}

#[test]
fn on_the_virtual_clock_two_processes_repeat_to_the_nanosecond() {
    let once = || {
        let server = Server::start_virtual(2, &["--sharing", "mps"]);
        let mut order = server.virtual_program("order", 1).spawn().unwrap();
        let mut compute = server.virtual_program("compute", 2).spawn().unwrap();
        assert!(order.wait().unwrap().success() && compute.wait().unwrap().success());
        let mut stats = server.finish();
        stats["uuid"].take();
        stats
    };
    let first = once();
    assert_eq!(first["clock"], "virtual");
    assert!(
        count(&first, "compute", "launches_beside_others") > 0,
        "{first}"
    );
    assert_eq!(once(), first);
}

#[test]
fn a_process_on_another_clock_than_its_server_gets_no_device() {
    let server = Server::start_virtual(1, &[]);
    run(&mut server.program("no_device"));
}

#[test]
fn a_second_server_on_a_socket_is_refused_and_a_dead_ones_socket_is_taken_over() {
    let server = Server::start(&[]);
    let socket = server.socket();
    let second = server_command()
        .arg("--socket")
        .arg(&socket)
        .output()
        .unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(text.contains("another server listens"), "{text}");
    run(&mut server.program("compute"));
}

#[test]
fn an_unknown_device_is_answered_with_the_list() {
    let output = server_command()
        .args(["--socket", "unused", "--device", "V100"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("V100-SXM2-16GB") && text.contains("H200"),
        "{text}"
    );
}
