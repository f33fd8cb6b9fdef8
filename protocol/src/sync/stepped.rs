//! Atomics with a countdown and a callback, by which the daemon's fault simulation interrupts
//! between any two accesses. Built only with `--cfg stepped`: the shipped library has none of it.
//! An access of shared memory is a step. After the requested steps the callback runs, *before* the
//! access. It may run other threads, or unwind: a thread that dies so has made no later store.

use core::cell::Cell;
use core::ops::Deref;

use super::Ordering;

/// The accesses that count as steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// All accesses.
    All,
    /// Accesses that may write.
    Writes,
}

thread_local! {
    /// Remaining steps; 0: no callback.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static COUNTED: Cell<Steps> = const { Cell::new(Steps::All) };
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static CALLED: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Calls `called` at this thread's `steps`-th step from now, once; never if `steps` is 0.
pub fn call_after(steps: u32, counted: Steps, called: fn()) {
    LEFT.set(steps);
    COUNTED.set(counted);
    CALLED.set(Some(called));
}

/// Number of accesses that this thread has made.
pub fn taken() -> u64 {
    TAKEN.get()
}

#[inline]
fn step(is_write: bool) {
    TAKEN.set(TAKEN.get() + 1);
    let left = LEFT.get();
    if left == 0 || (COUNTED.get() == Steps::Writes && !is_write) {
        return;
    }
    LEFT.set(left - 1);
    if left == 1
        && let Some(called) = CALLED.get()
    {
        called();
    }
}

/// A `core` atomic with a step before each access. Other methods pass through `Deref`, uncounted.
macro_rules! atomic {
    ($name:ident: $value:ident) => {
        #[doc = concat!("`core`'s `", stringify!($name), "`, stepped.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(core::sync::atomic::$name);

        impl $name {
            /// As `core`'s.
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }

            /// As `core`'s.
            pub fn load(&self, order: Ordering) -> $value {
                step(false);
                self.0.load(order)
            }

            /// As `core`'s.
            pub fn store(&self, value: $value, order: Ordering) {
                step(true);
                self.0.store(value, order);
            }

            /// As `core`'s.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step(true);
                self.0.fetch_add(value, order)
            }

            /// As `core`'s.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step(true);
                self.0.fetch_sub(value, order)
            }

            /// As `core`'s.
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                step(true);
                self.0.fetch_max(value, order)
            }

            /// As `core`'s.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step(true);
                self.0.compare_exchange(current, new, success, failure)
            }
        }

        impl Deref for $name {
            type Target = core::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

atomic!(AtomicU32: u32);
atomic!(AtomicU64: u64);

/// A fence is a step between the accesses around it.
pub fn fence(order: Ordering) {
    step(true);
    core::sync::atomic::fence(order);
}
