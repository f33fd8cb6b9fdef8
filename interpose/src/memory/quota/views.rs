//! The application's view of a device's memory: the job's share as if it were all. Total is the
//! quota, free is what the quota leaves, and neither exceeds the device's real value. Nothing else
//! about a device is changed: a library would fail without a feature that it was promised.

use abi::types::CUdevice;

use super::HELD;
use crate::daemon::lifecycle;
use crate::process::account::{self, DeviceAccount};

pub(crate) fn memory(account: &'static DeviceAccount, free: u64, total: u64) -> (u64, u64) {
    HELD.pools.count_anew(account);
    let Some(quota) = account.ledger().quota() else {
        return (free, total);
    };
    seen(quota, account.ledger().held_bytes(), free, total)
}

/// Total bytes for the application. Frameworks query this before they create a context.
pub(crate) fn total(device: CUdevice, total: u64) -> u64 {
    let quota = match account::of_device(device) {
        Some(account) => account.ledger().quota(),
        None => lifecycle::quota_without_account(device, total),
    };
    quota.map_or(total, |quota| quota.min(total))
}

/// Free and total bytes of a device under a quota, with `held` bytes in use.
pub(crate) fn seen(quota: u64, held: u64, free: u64, total: u64) -> (u64, u64) {
    let total = quota.min(total);
    (free.min(total.saturating_sub(held)), total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // census: B7, B8, B9, B10
    proptest! {
        #[test]
        fn free_and_total_stay_within_what_there_is(
            quota: u64, held: u64, real_total: u64, part in 0..=100_u64,
        ) {
            let real_free = (u128::from(real_total) * u128::from(part) / 100) as u64;
            let (free, total) = seen(quota, held, real_free, real_total);
            prop_assert!(free <= total && total <= real_total && total <= quota);
            prop_assert!(free <= real_free && free <= quota.saturating_sub(held));
            if quota >= real_total && held <= real_total - real_free {
                prop_assert_eq!((free, total), (real_free, real_total));
            }
        }
    }
}
