//! The main loop, which advances time.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::clock::Clock;
use protocol::clock::coordinator::Coordinator;
use rustix::thread::set_current_timer_slack;

use crate::time_source::RealTime;
use crate::world::World;

/// On the virtual clock: clients run one at a time; if none can, time goes to the next event.
pub(crate) fn run_virtual(world: &Mutex<World>, coordinator: &Arc<Coordinator>) -> ! {
    loop {
        world.lock().step();
        if !coordinator.has_started() {
            coordinator.idle();
            continue;
        }
        if coordinator.run_one() {
            continue;
        }
        // Under the lock, so that time is constant for an answer of the socket thread.
        let locked = world.lock();
        let deadline_ns = coordinator.next_deadline_ns();
        let next_ns = deadline_ns.into_iter().chain(locked.next_event_ns()).min();
        match next_ns {
            Some(next_ns) => coordinator.advance_to(next_ns),
            None => {
                drop(locked);
                coordinator.idle();
            }
        }
    }
}

/// In real time: sleeps until the device's next event or a driver's ring. Returns only errors.
pub(crate) fn run_real(world: &Mutex<World>, time: RealTime) -> io::Result<()> {
    let doorbell = world.lock().doorbell()?;
    // By default the kernel may wake a thread 50 µs late, longer than most kernels run. If this
    // call fails, time is a little coarser.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    loop {
        let seen = doorbell.bell.read();
        let next_ns = {
            let mut world = world.lock();
            world.step();
            world.next_event_ns()
        };
        let deadline_ns = next_ns.map(|next_ns| time.monotonic_ns(next_ns));
        doorbell.bell.wait(&Clock::monotonic(), seen, deadline_ns);
    }
}
