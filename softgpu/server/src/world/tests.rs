//! What the world does with clients, without processes around it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use softgpu::wire::{Command, PARAMS, Reply, Request, StreamKind};
use softgpu::{Config, Device, KernelShape};

use super::*;
use crate::time_source::RealTime;

const STREAM: u32 = 3;

fn world() -> World {
    let device = Device::by_name("V100-SXM2-16GB").unwrap();
    let config = Config::new(Sharing::Mps, &device);
    let time = TimeSource::Real(RealTime::start(1.0));
    World::new(Gpu::new(device, config), [0; 16], time).unwrap()
}

/// A client of label `job` that has put a stream, and then the far end of its socket.
fn client_with_stream(world: &mut World) -> (ClientId, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let socket = OwnedFd::from(near).into();
    let (id, _, _) = world.add_client("job", None, socket, None).unwrap();
    let reply = world.handle_request(id, &Request::CreateContext);
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
    let shape = KernelShape {
        grid_blocks: 1,
        threads_per_block: 256,
        registers_per_thread: 32,
        shared_bytes_per_block: 0,
        block_ns: 100,
        compute_demand: 0.01,
        bandwidth_demand: 0.01,
    };
    Command::Launch {
        stream,
        seq,
        priority: None,
        shape,
        builtin: 0,
        params: [0; PARAMS],
    }
}

fn counts(world: &mut World) -> serde_json::Value {
    let stats: serde_json::Value = serde_json::from_str(&world.stats()).unwrap();
    stats["labels"]["job"].clone()
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
