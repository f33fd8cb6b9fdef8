//! `softgpu-server`: the GPU that all processes with the stand-in driver share. It owns the device
//! model (`softgpu::Gpu`), the device's memory and a socket. Each client process has a page with a
//! ring of commands (`softgpu::wire`). The server submits them to the model, copies bytes and
//! computes when operations complete, and publishes the completions. The server counts the device's
//! work, per label of a process and independently of Pillion, and reports it as JSON (`Stats`
//! message, `--json-stats`).
//!
//! It has two threads. The *main loop* advances time: on the virtual clock of `protocol`
//! (`--clock-page`), or in real time, scaled by `--scale`. The *socket thread* answers messages in
//! real time, detects clients that end, and ends the program on SIGTERM or SIGINT. They share one
//! lock ([`world::World`]); no thread sleeps while holding it. Times are device nanoseconds
//! (`_ns`); real time is device time × scale.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use parking_lot::Mutex;
use protocol::clock::coordinator::Coordinator;
use protocol::hello::{connect_to, receive, send};
use softgpu::wire::{Injection, Reply, Request};
use softgpu::{Config, Device, Governor, Gpu, Sharing};

use crate::recorder::Recorder;
use crate::socket::Socket;
use crate::time_source::{RealTime, TimeSource};
use crate::world::{MpsKill, World};

mod client;
mod device_memory;
mod label;
mod main_loop;
mod pool;
mod recorder;
mod shared;
mod socket;
mod store;
mod time_source;
mod world;

/// A GPU in software, shared by all processes that use the stand-in libcuda.so.1.
#[derive(Debug, Parser)]
#[command(
    name = "softgpu-server",
    version,
    after_help = "Example:\n  \
                  softgpu-server --socket gpu0.sock --device V100-SXM2-16GB --sharing mps &\n  \
                  SOFTGPU_SOCKET=gpu0.sock LD_LIBRARY_PATH=FOLDER ./program\n\n\
                  FOLDER contains the stand-in driver as libcuda.so.1 (cargo builds it as libcuda.so).\n\
                  SIGTERM or SIGINT ends the server. Injecting a fault into a running server:\n  \
                  softgpu-server --socket gpu0.sock --inject 'xid 79'"
)]
struct Args {
    /// Unix socket to listen at; set SOFTGPU_SOCKET of the programs to this path.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// GPU model to imitate; an unknown name prints the list of names.
    #[arg(long, value_name = "NAME", default_value = "V100-SXM2-16GB")]
    device: String,
    /// Whether kernels of different processes run at the same time (mps) or in turns of 2 ms
    /// (timeslice).
    #[arg(long, value_enum, default_value = "timeslice")]
    sharing: SharingArg,
    /// Whether waiting blocks of a stream with higher priority start first.
    #[arg(long, value_enum, default_value = "on")]
    block_priority: Switch,
    /// Whether the SM clock drops when the device exceeds its TDP or is hot, by a model of power
    /// and heat that was not compared with a real device. Off: the clock is always the highest, and
    /// NVML reports neither power nor temperature.
    #[arg(long, value_enum, default_value = "off")]
    governor: Switch,
    /// Create a virtual clock at PATH; set PILLION_CLOCK of all programs to this path. The programs
    /// must be built for the virtual clock.
    #[arg(long, value_name = "PATH")]
    clock_page: Option<PathBuf>,
    /// Number of processes that must join the virtual clock before time starts.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "clock_page")]
    processes: u32,
    /// Real nanoseconds per device nanosecond, without a virtual clock.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = parse_scale, conflicts_with = "clock_page")]
    scale: f64,
    /// Print the statistics as JSON when the server ends.
    #[arg(long)]
    json_stats: bool,
    /// Write each operation that runs on the device to FILE, one a line; the size of FILE is not
    /// limited.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// With --sharing mps, the effect on other processes when a process ends with work in flight:
    /// none (contained), or all their contexts are lost (contagious). NVIDIA documents the
    /// behaviour as undefined.
    #[arg(long, value_enum, default_value = "contained")]
    mps_kill: MpsKill,
    /// Write to FILE the lines that MPS would write to its control log.
    #[arg(long, value_name = "FILE")]
    mps_log: Option<PathBuf>,
    /// Write to FILE the lines that MPS would write to its server log.
    #[arg(long, value_name = "FILE")]
    mps_server_log: Option<PathBuf>,
    /// Leave MPS to its stand-in (`softgpu-mps-control`): a context needs an MPS server of its
    /// user, and is lost when that server ends. Without this flag MPS is always available.
    #[arg(long, conflicts_with = "clock_page")]
    mps_managed: bool,
    /// Inject a fault into the server that listens at the socket, and exit: `sticky CODE [LABEL]`,
    /// `xid NUMBER [LABEL]`, `ecc CORRECTED UNCORRECTED`, `stuck`, `unstuck`, `mps-fault
    /// [server|start|gpu]`. LABEL is the SOFTGPU_LABEL of a process. `terminate-client PID` is no
    /// fault: MPS terminates the work of that process, as on the command of the same name.
    #[arg(long, value_name = "FAULT")]
    inject: Option<Injection>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SharingArg {
    Mps,
    Timeslice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

fn main() -> ExitCode {
    match serve(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("softgpu-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args) -> anyhow::Result<()> {
    let device = Device::by_name(&args.device)?;
    let sharing = match args.sharing {
        SharingArg::Mps => Sharing::Mps,
        SharingArg::Timeslice => Sharing::TimeSlice,
    };
    let config = Config {
        block_priority: args.block_priority == Switch::On,
        governor: (args.governor == Switch::On).then(|| Governor::of(&device)),
        ..Config::new(sharing, &device)
    };
    if sharing == Sharing::TimeSlice && args.mps_kill == MpsKill::Contagious {
        anyhow::bail!(
            "--mps-kill contagious needs --sharing mps: \
             with time slices a killed process affects no other"
        );
    }
    if sharing == Sharing::TimeSlice && args.mps_managed {
        anyhow::bail!("--mps-managed needs --sharing mps");
    }
    if let Some(fault) = &args.inject {
        return inject(&args.socket, fault);
    }
    socket::check_unused(&args.socket)?;
    let time = match &args.clock_page {
        Some(path) => {
            let coordinator = Coordinator::create(path, args.processes)
                .with_context(|| format!("cannot create the clock page {}", path.display()))?;
            TimeSource::Virtual(Arc::new(coordinator))
        }
        None => TimeSource::Real(RealTime::start(args.scale)),
    };
    let uuid = uuid(&device.name, &args.socket);
    let mut world = World::new(Gpu::new(device, config), uuid, time.clone())?;
    if let Some(path) = &args.record {
        let recorder = Recorder::create(path)
            .with_context(|| format!("cannot create the record {}", path.display()))?;
        world.record_to(recorder);
    }
    world.log_mps_to(args.mps_log.as_deref(), args.mps_server_log.as_deref());
    world.set_mps_kill(args.mps_kill);
    if args.mps_managed {
        world.manage_mps();
    }
    let world = Arc::new(Mutex::new(world));
    let socket = Socket::open(&args.socket)?;
    let (shared, json_stats) = (Arc::clone(&world), args.json_stats);
    std::thread::Builder::new()
        .name("socket".into())
        .spawn(move || exit_after(&socket_thread(socket, &shared, json_stats)))?;
    match time {
        TimeSource::Virtual(coordinator) => main_loop::run_virtual(&world, &coordinator),
        TimeSource::Real(time) => Ok(main_loop::run_real(&world, time)?),
    }
}

fn inject(path: &Path, fault: &Injection) -> anyhow::Result<()> {
    let told = || -> std::io::Result<Vec<u8>> {
        let socket = connect_to(path)?;
        send(&socket, &Request::Inject(fault.clone()).encode(), &[])?;
        Ok(receive(&socket)?.0)
    };
    let packet =
        told().with_context(|| format!("cannot reach a softgpu-server at {}", path.display()))?;
    match Reply::decode(&packet)? {
        Reply::Done => Ok(()),
        _ => anyhow::bail!("the server at {} did not accept the fault", path.display()),
    }
}

fn socket_thread(socket: Socket, world: &Mutex<World>, json_stats: bool) -> anyhow::Result<()> {
    socket.serve(world)?;
    if json_stats {
        println!("{}", world.lock().stats());
    }
    world
        .lock()
        .finish_record()
        .context("cannot write the record")
}

/// Ends the program from the socket thread: the main loop may wait for a computing client.
fn exit_after(outcome: &anyhow::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("softgpu-server: {error:#}");
    }
    std::process::exit(i32::from(outcome.is_err()));
}

fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (1e-3..=1e6).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.001 to 1000000".into()),
    }
}

/// A UUID by socket, to distinguish two software GPUs on a machine. FNV-1a, 128 bits; the mark of
/// software GPUs replaces its end.
fn uuid(device: &str, socket: &Path) -> [u8; 16] {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let bytes = device
        .bytes()
        .chain([0])
        .chain(socket.as_os_str().as_encoded_bytes().iter().copied());
    let mut uuid = bytes
        .fold(OFFSET, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(PRIME)
        })
        .to_le_bytes();
    if let Some(end) = uuid.last_chunk_mut() {
        *end = softgpu::UUID_END;
    }
    uuid
}
