//! Daemons replaced by a newer build, and by an older one again, while jobs run. There is no newer
//! build, so a relay stands between the jobs and a daemon of this one. It changes the daemon's
//! packets to the next minor version, with more at their end than this build knows. The relay is
//! the daemon's peer, so the status shows the relay as process and in memory.

use std::fs;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use protocol::VERSION;
use protocol::hello::{Reply, connect_to, listen_at, receive, send};
use rustix::event::{PollFd, PollFlags, poll};

use crate::common::{Daemon, Gpu, Process};
use crate::peers::of_minor;

/// How often the daemon is replaced by a newer one and back.
const UPGRADES: usize = 5;

struct Relay {
    path: PathBuf,
    /// Ends it when closed.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<usize>>,
}

impl Relay {
    fn start(path: &Path, daemon: &Path) -> Self {
        let listener = listen_at(path).unwrap();
        let (stopped, stop) = std::io::pipe().unwrap();
        let daemon = daemon.to_owned();
        Self {
            path: path.to_owned(),
            stop: Some(stop),
            thread: Some(thread::spawn(move || serve(&listener, &daemon, &stopped))),
        }
    }

    /// Ends, as a daemon does; returns the number of welcomes.
    fn finish(mut self) -> usize {
        fs::remove_file(&self.path).unwrap();
        drop(self.stop.take());
        let thread = self.thread.take().expect("it runs until here");
        thread.join().unwrap()
    }
}

fn serve(listener: &OwnedFd, daemon: &Path, stopped: &PipeReader) -> usize {
    let mut pairs: Vec<[OwnedFd; 2]> = Vec::new();
    let mut welcomed = 0;
    loop {
        let sources = [stopped.as_fd(), listener.as_fd()].into_iter();
        let sources = sources.chain(pairs.iter().flatten().map(AsFd::as_fd));
        let mut fds: Vec<PollFd<'_>> = sources
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        poll(&mut fds, None).unwrap();
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return welcomed;
        }
        // A welcomed connection carries nothing but its end, on either side.
        let mut ends = ready[2..].chunks(2).map(|pair| pair.contains(&true));
        pairs.retain(|_| ends.next() != Some(true));
        if ready[1]
            && let Some((pair, is_welcome)) = pass_on(listener, daemon)
        {
            welcomed += usize::from(is_welcome);
            pairs.push(pair);
        }
    }
}

/// Forwards one connection's request to the daemon, and the answer back; `None` if either has gone.
fn pass_on(listener: &OwnedFd, daemon: &Path) -> Option<([OwnedFd; 2], bool)> {
    let to_client = rustix::net::accept(listener).ok()?;
    let to_daemon = connect_to(daemon).ok()?;
    let pass = |from: &OwnedFd, to: &OwnedFd, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let (packet, fds) = receive(from).ok()?;
        let packet = change(packet);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        send(to, &packet, &fds).ok()?;
        Some(packet)
    };
    pass(&to_client, &to_daemon, &|packet| packet)?;
    let newer = |packet: Vec<u8>| match packet.len() {
        0 => packet,
        _ => of_minor(packet, VERSION.minor + 1, b"what this build does not know"),
    };
    let answer = pass(&to_daemon, &to_client, &newer)?;
    let is_welcome = matches!(Reply::decode(&answer), Ok(Reply::Welcome { .. }));
    Some(([to_client, to_daemon], is_welcome))
}

fn end(daemon: Daemon) {
    daemon.end();
}

fn expect_served(daemon: &Daemon, jobs: &mut [(&str, Process)]) {
    for (label, job) in jobs {
        daemon.wait_for_clients(label, 1);
        job.wait_for_new("round", 3);
    }
}

// census: J3
#[test]
fn a_daemon_replaced_by_one_of_a_newer_minor_version_and_back_under_load_loses_nothing() {
    let gpu = Gpu::start("mps");
    let mut daemon = gpu.daemon("");
    let path = daemon.socket().to_owned();
    let mut jobs = gpu.pair("steady", &daemon, "round");
    for round in 0..UPGRADES {
        expect_served(&daemon, &mut jobs);
        end(daemon);
        let newer = gpu.daemon_at(gpu.path("newer.sock"), "");
        let relay = Relay::start(&path, newer.socket());
        expect_served(&newer, &mut jobs);
        // A job that has known no other daemon.
        let label = format!("new {round}");
        let new = gpu.job(&label, "work linked 10 0").best_effort(&newer);
        let ended = new.env("PILLION_SOCKET", &path).run().expect_success();
        gpu.expect_equal_counts(&label, &ended, &newer);
        // Three, or more if one was slow and came again.
        assert!(relay.finish() >= 3);
        end(newer);
        daemon = gpu.daemon("");
    }
    expect_served(&daemon, &mut jobs);
    for (label, job) in jobs {
        let ended = job.finish().expect_success();
        assert_eq!(ended.errors, "");
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}
