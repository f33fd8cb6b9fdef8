//! Memory pools: memory that one client reserves on the device to allocate from. A pool has a
//! number of bytes, not places: its allocations have stores and addresses of their own, so a pool
//! never fragments. It grows by whole [`GRANULARITY_BYTES`] if the device has them, and returns
//! what exceeds its threshold as soon as a free has happened (CUDA returns it at the next
//! synchronisation after that).

use softgpu::wire::GRANULARITY_BYTES;

use crate::store::{Account, Charge};

#[derive(Debug)]
pub(crate) struct Pool {
    reserved: Charge,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    threshold: u64,
    max_bytes: u64,
    /// Destroyed; removed with its last allocation.
    is_ended: bool,
}

impl Pool {
    /// An empty pool; `max_bytes` 0 is no limit.
    pub(crate) fn new(account: &Account, max_bytes: u64) -> Self {
        let reserved = account.try_charge(0, u64::MAX);
        Self {
            reserved: reserved.expect("nothing fits into any device"),
            reserved_high: 0,
            used: 0,
            used_high: 0,
            threshold: 0,
            max_bytes: if max_bytes == 0 { u64::MAX } else { max_bytes },
            is_ended: false,
        }
    }

    /// Takes the rounded bytes of an allocation, growing if need be; false if it cannot.
    pub(crate) fn try_take(&mut self, bytes: u64, total_bytes: u64) -> bool {
        let Some(used) = self.used.checked_add(bytes) else {
            return false;
        };
        if self.is_ended || used > self.max_bytes {
            return false;
        }
        let missing = used.saturating_sub(self.reserved.bytes());
        let whole = missing.next_multiple_of(GRANULARITY_BYTES);
        let may_be_whole = self.reserved.bytes().saturating_add(whole) <= self.max_bytes;
        let has_grown = missing == 0
            || (may_be_whole && self.reserved.try_grow(whole, total_bytes))
            || self.reserved.try_grow(missing, total_bytes);
        if has_grown {
            self.used = used;
            self.used_high = self.used_high.max(used);
            self.reserved_high = self.reserved_high.max(self.reserved.bytes());
        }
        has_grown
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
        self.trim_to(self.threshold);
    }

    /// Returns unused bytes to the device, but keeps `keep_bytes`.
    pub(crate) fn trim_to(&mut self, keep_bytes: u64) {
        let used = self.used.next_multiple_of(GRANULARITY_BYTES);
        self.reserved.shrink_to(used.max(keep_bytes));
    }

    pub(crate) fn set_threshold(&mut self, bytes: u64) {
        self.threshold = bytes;
    }

    /// Closes the pool to allocations; true if none is left.
    pub(crate) fn end(&mut self) -> bool {
        self.is_ended = true;
        self.threshold = 0;
        self.trim_to(0);
        self.is_over()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_ended && self.used == 0
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Reserved bytes, their peak, used bytes, their peak.
    pub(crate) fn state(&self) -> [u64; 4] {
        let reserved = self.reserved.bytes();
        [reserved, self.reserved_high, self.used, self.used_high]
    }

    pub(crate) fn reset_reserved(&mut self) {
        self.reserved_high = self.reserved.bytes();
    }

    pub(crate) fn reset_used(&mut self) {
        self.used_high = self.used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 10 * GRANULARITY_BYTES;

    #[test]
    fn a_pool_keeps_what_its_threshold_says() {
        let account = Account::default();
        let mut pool = Pool::new(&account, 0);
        assert!(pool.try_take(512, TOTAL));
        assert_eq!(
            pool.state(),
            [GRANULARITY_BYTES, GRANULARITY_BYTES, 512, 512]
        );
        assert!(pool.try_take(GRANULARITY_BYTES, TOTAL));
        assert_eq!(account.used_bytes(), 2 * GRANULARITY_BYTES);
        pool.set_threshold(GRANULARITY_BYTES);
        pool.give_back(GRANULARITY_BYTES);
        pool.give_back(512);
        let high = [2 * GRANULARITY_BYTES, 512 + GRANULARITY_BYTES];
        assert_eq!(pool.state(), [GRANULARITY_BYTES, high[0], 0, high[1]]);
        pool.trim_to(0);
        pool.reset_reserved();
        pool.reset_used();
        assert_eq!(pool.state(), [0; 4]);
        assert_eq!(account.used_bytes(), 0);
    }

    #[test]
    fn a_full_device_or_pool_gives_no_more_and_takes_nothing() {
        let account = Account::default();
        let mut pool = Pool::new(&account, 0);
        let total = GRANULARITY_BYTES + 1024;
        assert!(
            pool.try_take(GRANULARITY_BYTES + 512, total),
            "less than whole steps are left"
        );
        assert!(!pool.try_take(1024, total));
        assert_eq!(account.used_bytes(), GRANULARITY_BYTES + 512);
        let mut small = Pool::new(&Account::default(), 1024);
        assert!(small.try_take(1024, TOTAL) && !small.try_take(512, TOTAL));
        assert_eq!(small.state()[0], 1024);
    }

    #[test]
    fn a_destroyed_pool_lives_as_long_as_its_allocations() {
        let account = Account::default();
        let mut pool = Pool::new(&account, 0);
        assert!(pool.try_take(512, TOTAL));
        assert!(!pool.end());
        assert!(!pool.try_take(512, TOTAL));
        pool.give_back(512);
        assert!(pool.is_over());
        assert_eq!(account.used_bytes(), 0);
    }
}
