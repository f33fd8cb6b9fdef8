//! A process's account of a device's memory, from the ledger of one daemon to that of the next.
//!
//! What is charged when is the library's affair (`interpose::memory::quota`); how accounts stay
//! exact across processes is `protocol::ledger`'s.

use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage};
use protocol::sync::Ordering;

/// The account goes on in that slot of that ledger: as it is if that is where it is, else with all
/// that this process holds, whatever the quota. False if the ledger has no such slot.
pub fn go_on<'a>(
    account: &mut Account<'a, LEDGER_SLOTS>,
    page: &'a LedgerPage,
    slot: usize,
) -> bool {
    if core::ptr::eq(account.ledger(), page) && account.slot() == slot {
        return true;
    }
    let Some(mut next) = Account::resume(page, slot) else {
        return false;
    };
    // Counted twice for a moment rather than not at all. In the old ledger it must not stay: that
    // may become a daemon's again.
    for kind in Kind::ALL {
        let bytes = account.kind_bytes(*kind);
        next.take(*kind, bytes);
        account.release(*kind, bytes);
    }
    *account = next;
    true
}

/// A context is there: what it takes by itself is charged, once however many there are.
pub fn take_context(account: &mut Account<'_, LEDGER_SLOTS>) {
    let context_bytes = account.ledger().context_bytes.load(Ordering::Relaxed);
    if account.kind_bytes(Kind::Context) == 0 {
        account.take(Kind::Context, context_bytes);
    }
}

/// The last context is gone, and what it took by itself with it.
pub fn release_context(account: &mut Account<'_, LEDGER_SLOTS>) {
    let bytes = account.kind_bytes(Kind::Context);
    account.release(Kind::Context, bytes);
}
