//! A job's GPU memory, accounted exactly across all its processes. There is one page per job and
//! GPU, made by the daemon and mapped by the job's processes. A process that wants memory
//! *reserves* it here, calls the driver, and keeps or returns the reservation, with no lock and no
//! other process involved. The sum over all processes is one word, changed by compare-and-swap, so
//! two processes can never exceed the quota together.
//!
//! **A process may be killed between any two instructions**, and its memory must come back to the
//! byte. A change's steps ([`Account::declare`], [`Declared::try_post`], [`Posted::commit`]):
//! 1. The process writes the intended change, with a number, into its own slot (`intent`).
//! 2. It changes the sum; the same word names the author of this last change (slot and number).
//!    Before a process changes the word again, it records in the slot named there that change as
//!    made (`applied`).
//! 3. It writes its new holdings, with the number, into its slot (`committed`).
//!
//! So a process that resumes a dead one's slot ([`Account::resume`]) can compute the holdings:
//! those committed, plus the change declared after them if sum or slot has it as made. **One writer
//! per slot**: the owning process, whose threads take turns; after its end, the daemon. Sums are in
//! [`UNIT_BYTES`]; numbers of changes have 24 bits. A helper that sleeps between two loads while
//! exactly 2^24 changes of one slot pass could record a change that was not made; this has an
//! effect only if that slot's process dies within that change.
//!
//! **Trust.** A process that writes nonsense into the page harms only its own job's quota.

use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, PUBLISH};

/// Unit of account, bytes: the step of the driver's allocations (`cuMemAlloc` aligns to it).
pub const UNIT_BYTES: u64 = 512;

/// Processes of a job on one GPU that can have a slot at once: as many as a daemon serves clients.
pub const LEDGER_SLOTS: usize = 256;

/// [`Ledger::quota_bytes`] where there is no quota.
pub const UNLIMITED: u64 = u64::MAX;

const KINDS_ROOM: usize = 10;
const SEQ_BITS: u32 = 24;
const SEQ_MASK: u32 = (1 << SEQ_BITS) - 1;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The use of memory. Only for display: the sum ignores it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every kind, in the order of their index.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    /// `cuMemAlloc` and its kin.
    Plain = "plain",
    /// Managed memory, all of it, wherever it currently resides.
    Managed = "managed",
    /// Arrays and mipmapped arrays.
    Array = "array",
    /// Memory that stream-ordered pools have reserved.
    Pool = "pool",
    /// Physical memory without an address (`cuMemCreate`).
    Physical = "physical",
    /// Memory that graphs have reserved for their allocation nodes.
    Graph = "graph",
    /// Variables of modules whose addresses the application has asked for.
    Module = "module",
    /// A context's own memory, as the daemon's configuration estimates it.
    Context = "context",
}

/// See the module's text. `N` is [`LEDGER_SLOTS`] except in tests.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger<const N: usize> {
    /// [`crate::pages::PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// The job's quota, bytes; [`UNLIMITED`] is no quota. The daemon writes it.
    pub quota_bytes: AtomicU64,
    /// The charge for a process's context, bytes. The daemon writes it.
    pub context_bytes: AtomicU64,
    /// Peak of the held memory, bytes.
    pub peak_bytes: AtomicU64,
    /// Requests refused because of the quota.
    pub refused: AtomicU64,
    /// A changed target of the job's requests ([`crate::slo::SloChange::from_word`]); 0: unchanged.
    /// Like the quota, it belongs to the job and outlives the daemon, which writes it.
    pub slo: AtomicU64,
    /// A changed cap on GPU time, likewise ([`crate::compute::CapChange::from_word`]).
    pub compute: AtomicU64,
    /// A changed weight and least share, likewise ([`crate::promise::Promise::from_word`]). The
    /// job's processes can write it: a daemon believes only what it has granted.
    pub promise: AtomicU64,
    /// The sum and the author of its last change. Alone on its line: every allocation changes it.
    total: Line<AtomicU64>,
    /// The processes.
    pub slots: Line<[Slot; N]>,
}

/// The page that is mapped.
pub type LedgerPage = Ledger<LEDGER_SLOTS>;

/// One process's holdings.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Process id of its owner; 0 is free. The daemon writes it.
    pub pid: AtomicU32,
    /// Number of owners that this slot has had. The daemon writes it.
    pub epoch: AtomicU32,
    /// Start time of that process, in clock ticks since boot (proc_pid_stat(5), field 22), which
    /// distinguishes it from a later process with its pid; 0 if unknown. The daemon writes it.
    pub started_ticks: AtomicU64,
    /// The change in progress: signed units, and its number.
    intent: AtomicU64,
    /// The number of the last change known to be in the sum; it only grows.
    applied: AtomicU64,
    /// The holdings, and the number of the change that led to them.
    committed: AtomicU64,
    /// The holdings by [`Kind`], bytes. For display; not exact while a change is in progress.
    kinds: [AtomicU64; KINDS_ROOM],
}

/// The quota does not allow the change. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverQuota;

/// The right to change one slot's holdings.
#[derive(Debug)]
pub struct Account<'a, const N: usize> {
    ledger: &'a Ledger<N>,
    slot: usize,
    held_units: u32,
    seq: u32,
}

/// A change that is declared, but not in the sum.
#[derive(Debug)]
#[must_use]
pub struct Declared<'a, 'b, const N: usize> {
    account: &'b mut Account<'a, N>,
    delta_units: i32,
}

/// A change that is in the sum, but not yet committed in the slot.
#[derive(Debug)]
#[must_use]
pub struct Posted<'a, 'b, const N: usize> {
    account: &'b mut Account<'a, N>,
    delta_units: i32,
}

impl<const N: usize> Ledger<N> {
    /// A ledger without a quota and without holdings.
    pub fn empty() -> Self {
        Self {
            magic: AtomicU64::new(0),
            quota_bytes: AtomicU64::new(UNLIMITED),
            context_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            slo: AtomicU64::new(0),
            compute: AtomicU64::new(0),
            promise: AtomicU64::new(0),
            total: Line::default(),
            slots: Line(core::array::from_fn(|_| Slot::default())),
        }
    }

    /// The holdings of all processes, pending reservations included, bytes.
    pub fn held_bytes(&self) -> u64 {
        // Only the number is used, so nothing depends on this Acquire.
        u64::from(units_of(self.total.load(Ordering::Acquire))) * UNIT_BYTES
    }

    /// The quota, if there is one, bytes.
    pub fn quota(&self) -> Option<u64> {
        Some(self.quota_bytes.load(Ordering::Relaxed)).filter(|&bytes| bytes != UNLIMITED)
    }

    /// Bytes that may still be reserved; `None` without a quota.
    pub fn free_bytes(&self) -> Option<u64> {
        Some(self.quota()?.saturating_sub(self.held_bytes()))
    }

    /// Bytes of a kind, summed over all slots.
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.slots
            .iter()
            .fold(0, |sum, slot| slot.kind_bytes(kind).saturating_add(sum))
    }

    /// Gives a free slot to a process, which then resumes it ([`Account::resume`]).
    pub fn open_slot(&self, slot: usize, pid: u32, started_ticks: u64) {
        let Some(slot) = self.slots.get(slot) else {
            return;
        };
        slot.epoch.fetch_add(1, Ordering::Relaxed);
        slot.started_ticks.store(started_ticks, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Relaxed);
    }

    /// Releases a slot and its holdings; returns their bytes. Its process must have ended.
    pub fn reclaim(&self, slot: usize) -> u64 {
        let Some(mut account) = Account::resume(self, slot) else {
            return 0;
        };
        let held_bytes = account.held_bytes();
        account.change(-i64::from(account.held_units));
        let slot = &self.slots[slot];
        slot.kinds
            .iter()
            .for_each(|kind| kind.store(0, Ordering::Relaxed));
        slot.pid.store(0, Ordering::Relaxed);
        held_bytes
    }

    fn quota_units(&self) -> u32 {
        let units = self.quota_bytes.load(Ordering::Relaxed) / UNIT_BYTES;
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    fn help(&self, total: u64) {
        let Some(slot) = self.slots.get(slot_of(total)) else {
            return;
        };
        let applied = slot.applied.load(Ordering::Relaxed);
        if seq_of(applied.wrapping_add(1)) == seq_of(total) {
            // The sum's compare-and-swap that follows has the Release; this word only precedes it.
            let _ = slot.applied.compare_exchange(
                applied,
                applied.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

impl Slot {
    /// The holdings, bytes, without a change in progress.
    pub fn held_bytes(&self) -> u64 {
        // Only the number is used, so nothing depends on this Acquire.
        u64::from(units_of(self.committed.load(Ordering::Acquire))) * UNIT_BYTES
    }

    /// The holdings of a kind, bytes.
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].load(Ordering::Relaxed)
    }
}

impl<'a, const N: usize> Account<'a, N> {
    /// Continues where the slot's writer stopped, at any step. `None` if there is no such slot.
    pub fn resume(ledger: &'a Ledger<N>, slot: usize) -> Option<Self> {
        let words = ledger.slots.get(slot)?;
        let committed = words.committed.load(Ordering::Acquire);
        let intent = words.intent.load(Ordering::Acquire);
        let (mut held_units, mut seq) = (units_of(committed), seq_of(committed));
        let next = (seq + 1) & SEQ_MASK;
        if seq_of(intent) == next && intent != 0 {
            // The sum is read before the slot. Acquire pairs with the Release of a process that
            // changed the sum after this slot's, having first recorded that change here.
            let total = ledger.total.load(Ordering::Acquire);
            let is_last = slot_of(total) == slot && seq_of(total) == next;
            if is_last || seq_of(words.applied.load(Ordering::Relaxed)) == next {
                held_units = held_units.saturating_add_signed(delta_of(intent));
                seq = next;
                words
                    .committed
                    .store(pack(held_units, 0, seq), Ordering::Release);
            }
        }
        Some(Self {
            ledger,
            slot,
            held_units,
            seq,
        })
    }

    /// This slot's holdings, bytes.
    pub fn held_bytes(&self) -> u64 {
        u64::from(self.held_units) * UNIT_BYTES
    }

    /// This slot's holdings of a kind, bytes.
    pub fn kind_bytes(&self, kind: Kind) -> u64 {
        self.ledger.slots[self.slot].kind_bytes(kind)
    }

    /// Index of its slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The ledger of this account.
    pub fn ledger(&self) -> &'a Ledger<N> {
        self.ledger
    }

    /// Takes `bytes`, rounded up to a unit, if the quota allows.
    pub fn try_reserve(&mut self, kind: Kind, bytes: u64) -> Result<(), OverQuota> {
        let units = units(bytes);
        let refused = || {
            self.ledger.refused.fetch_add(1, Ordering::Relaxed);
            OverQuota
        };
        let delta = i32::try_from(units).map_err(|_| refused())?;
        if delta == 0 {
            return Ok(());
        }
        match self.declare(delta).try_post() {
            Ok(posted) => posted.commit(),
            Err(over) => {
                self.ledger.refused.fetch_add(1, Ordering::Relaxed);
                return Err(over);
            }
        }
        self.add_to_kind(kind, units.saturating_mul(UNIT_BYTES));
        self.note_peak();
        Ok(())
    }

    /// Charges `bytes` that the process already has, whatever the quota.
    pub fn take(&mut self, kind: Kind, bytes: u64) {
        let units = units(bytes);
        self.change(i64::try_from(units).unwrap_or(i64::MAX));
        self.add_to_kind(kind, units.saturating_mul(UNIT_BYTES));
        self.note_peak();
    }

    /// Releases `bytes`, rounded up to a unit.
    pub fn release(&mut self, kind: Kind, bytes: u64) {
        let units = units(bytes);
        self.change(-i64::try_from(units).unwrap_or(i64::MAX));
        let kinds = &self.ledger.slots[self.slot].kinds[kind as usize];
        let left = kinds
            .load(Ordering::Relaxed)
            .saturating_sub(units.saturating_mul(UNIT_BYTES));
        kinds.store(left, Ordering::Relaxed);
    }

    /// Makes any change, in as many steps as its size needs, without checking the quota.
    fn change(&mut self, delta_units: i64) {
        // The sum has 32 bits. No release exceeds the slot's holdings: the rest is others'.
        let (least, most) = (-i64::from(self.held_units), i64::from(u32::MAX));
        let mut left = delta_units.clamp(least, most);
        while left != 0 {
            let step = left.clamp(i64::from(-i32::MAX), i64::from(i32::MAX)) as i32;
            self.declare(step).post().commit();
            left -= i64::from(step);
        }
    }

    fn add_to_kind(&self, kind: Kind, bytes: u64) {
        // A load and a store: this slot has one writer.
        let kinds = &self.ledger.slots[self.slot].kinds[kind as usize];
        let sum = kinds.load(Ordering::Relaxed).saturating_add(bytes);
        kinds.store(sum, Ordering::Relaxed);
    }

    fn note_peak(&self) {
        let held_bytes = self.ledger.held_bytes();
        let peak = &self.ledger.peak_bytes;
        if peak.load(Ordering::Relaxed) < held_bytes {
            peak.fetch_max(held_bytes, Ordering::Relaxed);
        }
    }

    /// The first step: declares in the slot the change that follows, in units.
    pub fn declare<'b>(&'b mut self, delta_units: i32) -> Declared<'a, 'b, N> {
        let seq = (self.seq + 1) & SEQ_MASK;
        let intent = pack(delta_units.cast_unsigned(), 0, seq);
        self.ledger.slots[self.slot]
            .intent
            .store(intent, Ordering::Release);
        Declared {
            account: self,
            delta_units,
        }
    }
}

impl<'a, 'b, const N: usize> Declared<'a, 'b, N> {
    /// The second step: changes the sum if it stays within the quota.
    /// # Errors
    /// [`OverQuota`]: the sum is unchanged. The declaration stays, without effect, until the next.
    pub fn try_post(self) -> Result<Posted<'a, 'b, N>, OverQuota> {
        let limit_units = self.account.ledger.quota_units();
        self.post_within(limit_units)
    }

    /// The second step, whatever the quota.
    pub fn post(self) -> Posted<'a, 'b, N> {
        self.post_within(u32::MAX)
            .unwrap_or_else(|_| unreachable!("the sum saturates where there is no limit"))
    }

    fn post_within(self, limit_units: u32) -> Result<Posted<'a, 'b, N>, OverQuota> {
        let Self {
            account,
            delta_units,
        } = self;
        let ledger = account.ledger;
        let seq = (account.seq + 1) & SEQ_MASK;
        // Acquire pairs with the Release below: shows what others recorded in this slot before.
        let mut total = ledger.total.load(Ordering::Acquire);
        loop {
            let held = units_of(total);
            let next = held.saturating_add_signed(delta_units);
            let is_over = held.checked_add_signed(delta_units).is_none() || next > limit_units;
            if delta_units > 0 && limit_units != u32::MAX && is_over {
                return Err(OverQuota);
            }
            ledger.help(total);
            let to = pack(next, account.slot, seq);
            // Release pairs with the Acquire above: a thread that sees this change also sees its
            // declaration, and the record of the change before.
            match ledger
                .total
                .compare_exchange(total, to, PUBLISH_AND_SEE, Ordering::Acquire)
            {
                Ok(_) => {
                    return Ok(Posted {
                        account,
                        delta_units,
                    });
                }
                Err(changed) => total = changed,
            }
        }
    }
}

impl<const N: usize> Posted<'_, '_, N> {
    /// The third step: writes the new holdings into the slot.
    pub fn commit(self) {
        let account = self.account;
        account.held_units = account.held_units.saturating_add_signed(self.delta_units);
        account.seq = (account.seq + 1) & SEQ_MASK;
        let committed = pack(account.held_units, 0, account.seq);
        account.ledger.slots[account.slot]
            .committed
            .store(committed, Ordering::Release);
    }
}

/// Both sides of the sum's change; deliberately wrong in the check that [`PUBLISH`] describes.
const PUBLISH_AND_SEE: Ordering = match PUBLISH {
    Ordering::Release => Ordering::AcqRel,
    _ => Ordering::Relaxed,
};

/// The charge for `bytes`: rounded up to a unit.
pub const fn rounded_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES)
}

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES)
}

/// 32 bits of units, 8 of the slot, 24 of the number.
fn pack(units: u32, slot: usize, seq: u32) -> u64 {
    u64::from(units) << 32 | (slot as u64 & 0xff) << SEQ_BITS | u64::from(seq & SEQ_MASK)
}

fn units_of(word: u64) -> u32 {
    (word >> 32) as u32
}

fn delta_of(word: u64) -> i32 {
    units_of(word).cast_signed()
}

fn slot_of(word: u64) -> usize {
    (word >> SEQ_BITS & 0xff) as usize
}

fn seq_of(word: u64) -> u32 {
    word as u32 & SEQ_MASK
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Slot>() == 128 && offset_of!(Slot, intent) == 16);
    assert!(Kind::ALL.len() <= KINDS_ROOM && LEDGER_SLOTS == 256);
    assert!(offset_of!(LedgerPage, slo) == 40 && offset_of!(LedgerPage, promise) == 56);
    assert!(offset_of!(LedgerPage, total) == 64 && offset_of!(LedgerPage, slots) == 128);
    assert!(size_of::<LedgerPage>() == 128 + 128 * LEDGER_SLOTS);
};

#[cfg(all(test, not(loom)))]
mod tests;
