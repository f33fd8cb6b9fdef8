//! Carries a process's account of device memory from one daemon's ledger to the next.
//! `interpose::memory::quota` decides what is charged; `protocol::ledger` keeps accounts exact.

use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage};
use protocol::sync::Ordering;

/// Moves the account to `slot` of `page`, with all that this process holds, whatever the quota.
/// Does nothing if the account is already there. Returns false if the ledger has no such slot.
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
    // Counted twice for a moment, not never. The bytes must leave the old ledger, because a daemon
    // may use it again.
    for kind in Kind::ALL {
        let bytes = account.kind_bytes(*kind);
        next.take(*kind, bytes);
        account.release(*kind, bytes);
    }
    *account = next;
    true
}

/// Charges the memory that contexts take by themselves, once per process.
pub fn take_context(account: &mut Account<'_, LEDGER_SLOTS>) {
    let context_bytes = account.ledger().context_bytes.load(Ordering::Relaxed);
    if account.kind_bytes(Kind::Context) == 0 {
        account.take(Kind::Context, context_bytes);
    }
}

/// Gives back what [`take_context`] charged. Called when the last context is gone.
pub fn release_context(account: &mut Account<'_, LEDGER_SLOTS>) {
    let bytes = account.kind_bytes(Kind::Context);
    account.release(Kind::Context, bytes);
}
