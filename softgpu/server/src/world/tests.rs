//! The world's treatment of clients, without processes around it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use softgpu::wire::{Command, PARAMS, Reply, Request, StreamKind, Work};
use softgpu::{Config, Device, Governor, KernelShape};

use super::*;
use crate::time_source::RealTime;

const STREAM: u32 = 3;

fn world() -> World {
    shared_by(Sharing::Mps)
}

fn shared_by(sharing: Sharing) -> World {
    let device = Device::by_name("V100-SXM2-16GB").unwrap();
    of(device.clone(), Config::new(sharing, &device))
}

fn of(device: Device, config: Config) -> World {
    let time = TimeSource::Real(RealTime::start(1.0));
    World::new(Gpu::new(device, config), [0; 16], time).unwrap()
}

const CREATE_CONTEXT: Request = Request::CreateContext {
    connections: 8,
    sms_max: u32::MAX,
};

/// A client of label `job` that has put a stream, and the far end of its socket.
fn client_with_stream(world: &mut World) -> (ClientId, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let socket = OwnedFd::from(near).into();
    let (id, _, _) = world.add_client("job", None, socket, None).unwrap();
    let reply = world.handle_request(id, &CREATE_CONTEXT);
    let Some(Reply::Context { context }) = reply else {
        panic!("no context: {reply:?}");
    };
    let stream = Command::CreateStream {
        stream: STREAM,
        context,
        priority: 0,
        kind: StreamKind::NonBlocking,
    };
    assert!(world.clients[&id].page.try_put(&stream));
    (id, far)
}

fn launch_on(stream: u32, seq: u64) -> Command {
    launch_lasting(100, stream, seq)
}

fn launch_lasting(block_ns: u64, stream: u32, seq: u64) -> Command {
    let shape = KernelShape {
        grid_blocks: 1,
        threads_per_block: 256,
        registers_per_thread: 32,
        shared_bytes_per_block: 0,
        block_ns,
        compute_demand: 0.01,
        bandwidth_demand: 0.01,
    };
    let work = Work::Launch {
        priority: None,
        shape,
        builtin: 0,
        params: [0; PARAMS],
    };
    Command::Submit { stream, seq, work }
}

fn counts(world: &mut World) -> serde_json::Value {
    let stats: serde_json::Value = serde_json::from_str(&world.stats()).unwrap();
    stats["labels"]["job"].clone()
}

#[test]
fn a_monitor_is_told_of_power_and_heat_only_where_there_is_a_governor() {
    let device = Device::by_name("T4").unwrap();
    let config = Config::new(Sharing::Mps, &device);
    let governor = Some(Governor::of(&device));
    assert_eq!(of(device.clone(), config).monitor().governed, None);
    let mut world = of(device, Config { governor, ..config });
    let (id, _far) = client_with_stream(&mut world);
    assert!(world.clients[&id].page.try_put(&launch_on(STREAM, 1)));
    let told = world.monitor();
    let governed = told.governed.unwrap();
    assert_eq!((governed.clock_mhz, governed.power_mw), (1_590, 10_500));
    // 30 °C, and 15 % of 45.
    assert_eq!(governed.temperature_c, 37);
    assert!(!governed.is_power_capped && !governed.is_hot);
    // One block of 100 ns occupies one SM.
    let clock = protocol::clock::Clock::monotonic();
    clock.sleep_until(clock.now_ns() + 1_000_000);
    let last = *world.monitor().samples.last().unwrap();
    assert_eq!((last.busy_ns, last.busy_sm_ns), (100, 100));
}

#[test]
fn what_a_process_put_before_its_end_is_counted_though_nobody_has_looked_since() {
    let mut world = world();
    let (id, _far) = client_with_stream(&mut world);
    for seq in 1..=100 {
        assert!(world.clients[&id].page.try_put(&launch_on(STREAM, seq)));
    }
    world.remove_client(id);
    let counts = counts(&mut world);
    assert_eq!(counts["launches"], 100, "{counts:#}");
    assert_eq!(counts["connected"], 0, "{counts:#}");
}

#[test]
fn a_process_that_ended_with_nonsense_is_gone_once_and_what_came_before_is_counted() {
    let mut world = world();
    let (id, _far) = client_with_stream(&mut world);
    let page = &world.clients[&id].page;
    for command in [(STREAM, 1), (STREAM + 1, 1), (STREAM, 2)] {
        assert!(page.try_put(&launch_on(command.0, command.1)));
    }
    world.remove_client(id);
    let counts = counts(&mut world);
    assert_eq!(counts["launches"], 1, "{counts:#}");
    assert_eq!(counts["connected"], 0, "{counts:#}");
}

const FOR_EVER_NS: u64 = 3_600_000_000_000;
const LAUNCH_FAILED: u32 = 719;

fn error(world: &World, id: ClientId) -> u32 {
    world.clients[&id].page.errors.0[0].load(std::sync::atomic::Ordering::Relaxed)
}

/// The error of a neighbour, and whether a later client gets a context, when a process with a
/// kernel of `block_ns` ends after `before`.
fn after_a_death(
    (sharing, kill): (Sharing, MpsKill),
    block_ns: u64,
    before: impl Fn(&mut World, ClientId),
) -> (u32, bool) {
    let mut world = shared_by(sharing);
    world.set_mps_kill(kill);
    let (neighbour, _far) = client_with_stream(&mut world);
    let (dying, _far_too) = client_with_stream(&mut world);
    let launch = launch_lasting(block_ns, STREAM, 1);
    assert!(world.clients[&dying].page.try_put(&launch));
    before(&mut world, dying);
    world.remove_client(dying);
    let (near, _far) = UnixStream::pair().unwrap();
    let socket = OwnedFd::from(near).into();
    let (late, _, _) = world.add_client("late", None, socket, None).unwrap();
    let reply = world.handle_request(late, &CREATE_CONTEXT);
    let is_taken = matches!(reply, Some(Reply::Context { .. }));
    (error(&world, neighbour), is_taken)
}

const CONTAGIOUS: (Sharing, MpsKill) = (Sharing::Mps, MpsKill::Contagious);

#[test]
fn a_process_that_ends_with_work_in_flight_takes_others_along_where_it_is_told_to() {
    let dies = |how| after_a_death(how, FOR_EVER_NS, |_, _| ());
    assert_eq!(dies(CONTAGIOUS), (LAUNCH_FAILED, false));
    assert_eq!(dies((Sharing::Mps, MpsKill::Contained)), (0, true));
    assert_eq!(dies((Sharing::TimeSlice, MpsKill::Contained)), (0, true));
}

#[test]
fn a_process_that_has_drained_or_was_terminated_harms_nobody() {
    let drained = after_a_death(CONTAGIOUS, 100, |world, dying| {
        while world.clients[&dying].has_work_in_flight() || counts(world)["launches"] == 0 {
            world.step();
        }
    });
    assert_eq!(drained, (0, true));
    let terminated = after_a_death(CONTAGIOUS, FOR_EVER_NS, |world, dying| {
        world.clients.get_mut(&dying).unwrap().pid = Some(4711);
        world.inject(&"terminate-client 4711".parse().unwrap());
        assert_eq!(error(world, dying), 810);
    });
    assert_eq!(terminated, (0, true));
}

#[test]
fn once_all_that_were_taken_along_are_gone_others_are_served_again() {
    let mut world = world();
    world.set_mps_kill(MpsKill::Contagious);
    let (neighbour, _far) = client_with_stream(&mut world);
    let (dying, _far_too) = client_with_stream(&mut world);
    for id in [neighbour, dying] {
        let launch = launch_lasting(FOR_EVER_NS, STREAM, 1);
        assert!(world.clients[&id].page.try_put(&launch));
    }
    world.remove_client(dying);
    assert_eq!(error(&world, neighbour), LAUNCH_FAILED);
    world.remove_client(neighbour);
    let (late, _far) = client_with_stream(&mut world);
    assert_eq!(error(&world, late), 0);
}

#[test]
fn a_stream_in_the_slot_of_another_contexts_is_not_ordered_with_that_contexts_legacy_stream() {
    const LEGACY: u32 = STREAM + 1;
    let mut world = world();
    let (id, _far) = client_with_stream(&mut world);
    let Some(Reply::Context { context: other }) = world.handle_request(id, &CREATE_CONTEXT) else {
        panic!("no context");
    };
    let create = |stream, context, kind| Command::CreateStream {
        stream,
        context,
        priority: 0,
        kind,
    };
    let reused = STREAM + 2;
    for command in [
        create(LEGACY, 0, StreamKind::Legacy),
        create(reused, 0, StreamKind::Blocking),
        Command::DestroyStream { stream: reused },
        create(reused, other, StreamKind::Blocking),
        launch_lasting(FOR_EVER_NS, reused, 1),
        launch_on(LEGACY, 1),
    ] {
        assert!(world.clients[&id].page.try_put(&command));
    }
    while counts(&mut world)["launches_completed"] == 0 {}
    // Nor is it polled for once its context, and the wait with it, was destroyed.
    world.handle_request(id, &Request::DestroyContext { context: other });
    assert!(world.clients[&id].page.try_put(&launch_on(LEGACY, 2)));
    while counts(&mut world)["launches_completed"] == 1 {}
    assert_eq!(counts(&mut world)["connected"], 1);
}

const USERS: [u32; 2] = [1000, 1001];
const SERVER: u32 = 4242;

fn managed() -> (World, UnixStream) {
    let mut world = world();
    world.manage_mps();
    let (near, far) = UnixStream::pair().unwrap();
    let control = OwnedFd::from(near).into();
    assert!(world.try_add_mps_control(&control));
    assert!(!world.try_add_mps_control(&control), "one at a time");
    far.set_nonblocking(true).unwrap();
    (world, far)
}

fn client_of(world: &mut World, uid: u32) -> ClientId {
    let (near, _) = UnixStream::pair().unwrap();
    let socket = OwnedFd::from(near).into();
    let (id, _, _) = world.add_client("job", Some(uid), socket, None).unwrap();
    world.note_user(id, Some(uid));
    id
}

fn ask_for_context(world: &mut World, id: ClientId) -> Reply {
    world.handle_request(id, &CREATE_CONTEXT).unwrap()
}

fn is_context(reply: &Reply) -> bool {
    matches!(reply, Reply::Context { .. })
}

/// The user whose server the control daemon was asked for since the last call; at most one.
fn wanted(mut control: &UnixStream) -> Option<u32> {
    let mut packet = [0; 64];
    let length = std::io::Read::read(&mut control, &mut packet).ok()?;
    match Reply::decode(&packet[..length]) {
        Ok(Reply::MpsWanted { uid }) => Some(uid),
        other => panic!("{other:?}"),
    }
}

const fn refused(code: u32) -> Reply {
    Reply::Refused { code }
}

#[test]
fn a_context_waits_for_a_server_of_its_user_for_which_the_control_daemon_is_asked_once() {
    let (mut world, control) = managed();
    let ids = USERS.map(|uid| client_of(&mut world, uid));
    for _ in 0..3 {
        assert_eq!(ask_for_context(&mut world, ids[0]), Reply::Later);
    }
    assert_eq!((wanted(&control), wanted(&control)), (Some(USERS[0]), None));
    assert!(world.try_add_mps_server(SERVER, USERS[0]));
    assert!(!world.try_add_mps_server(SERVER + 1, USERS[1]), "one");
    assert!(is_context(&ask_for_context(&mut world, ids[0])));
    // Another user waits until the first user's clients and their server have ended.
    assert_eq!(ask_for_context(&mut world, ids[1]), Reply::Later);
    assert_eq!(wanted(&control), Some(USERS[1]));
    assert!(!world.try_end_mps_server(SERVER), "it has a client");
    let clients = world.mps_clients();
    let client = clients.clients.first().map(|one| (one.server, one.pid));
    assert_eq!(client, Some((SERVER, USERS[0])));
    assert!(!clients.is_in_fault);
    world.handle_request(ids[0], &Request::DestroyContext { context: 0 });
    assert!(world.try_end_mps_server(SERVER));
    assert_eq!(ask_for_context(&mut world, ids[0]), Reply::Later, "it ends");
    world.remove_mps_server(SERVER);
    assert!(world.try_add_mps_server(SERVER + 1, USERS[1]));
    assert!(is_context(&ask_for_context(&mut world, ids[1])));
}

#[test]
fn without_a_control_daemon_or_if_it_can_start_no_server_a_context_is_refused() {
    let (mut world, control) = managed();
    let [first, other] = USERS.map(|uid| client_of(&mut world, uid));
    assert_eq!(ask_for_context(&mut world, first), Reply::Later);
    assert_eq!(wanted(&control), Some(USERS[0]));
    world.handle_mps_not_started();
    assert_eq!(ask_for_context(&mut world, first), refused(805));
    assert_eq!(ask_for_context(&mut world, other), Reply::Later);
    assert_eq!(wanted(&control), Some(USERS[1]));
    world.remove_mps_control();
    assert_eq!(ask_for_context(&mut world, other), refused(805));
}

#[test]
fn a_client_is_lost_with_its_server_and_others_are_refused_until_it_is_gone_or_there_is_another() {
    for is_gone in [true, false] {
        let (mut world, _control) = managed();
        let [first, late] = [USERS[0]; 2].map(|uid| client_of(&mut world, uid));
        assert!(world.try_add_mps_server(SERVER, USERS[0]));
        assert!(is_context(&ask_for_context(&mut world, first)));
        world.remove_mps_server(SERVER);
        assert_eq!(error(&world, first), 806);
        assert_eq!(ask_for_context(&mut world, late), refused(807));
        assert!(world.mps_clients().is_in_fault);
        if is_gone {
            world.remove_client(first);
            assert_eq!(ask_for_context(&mut world, late), Reply::Later);
        }
        assert!(world.try_add_mps_server(SERVER + 1, USERS[0]));
        assert!(is_context(&ask_for_context(&mut world, late)));
        assert_eq!(error(&world, late), 0);
        if !is_gone {
            assert_eq!(error(&world, first), 806, "for good");
        }
    }
}

#[test]
fn where_mps_is_not_apart_nobody_runs_it() {
    let mut world = world();
    let (near, _far) = UnixStream::pair().unwrap();
    assert!(!world.try_add_mps_control(&OwnedFd::from(near).into()));
    assert!(!world.try_add_mps_server(SERVER, USERS[0]));
    let client = client_of(&mut world, USERS[0]);
    assert!(is_context(&ask_for_context(&mut world, client)));
}
