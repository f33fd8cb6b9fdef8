//! Physical memory of the device: contents, and the account that it is charged to. Contents are in
//! chunks that exist only once written, so that a program may allocate as much as the modelled
//! device has. Unwritten memory reads as zero. A store lives while anything refers to it (an
//! allocation, a handle, a mapping, in any process); the last returns its bytes to the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use softgpu::Fault;

const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    used: Arc<Taken>,
    /// For a client's account, the device's.
    device: Option<Arc<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    now: AtomicU64,
    /// The peak of `now`.
    most: AtomicU64,
}

/// A part of the device's memory, in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    bytes: u64,
    contents: Mutex<BTreeMap<u64, Box<[u8]>>>,
    /// Its charge on the device; memory of a pool is charged to the pool.
    _charge: Option<Charge>,
}

impl Account {
    /// A client's account, whose charges count in this one too.
    pub(crate) fn part(&self) -> Self {
        Self {
            used: Arc::default(),
            device: Some(Arc::clone(&self.used)),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.now.load(Ordering::Relaxed)
    }

    /// The peak of the use, which polling could miss.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.used.most.load(Ordering::Relaxed)
    }

    fn device(&self) -> &Taken {
        self.device.as_ref().unwrap_or(&self.used)
    }

    /// The counts of this account, and of the device's if that is another.
    fn counts(&self) -> impl Iterator<Item = &Taken> {
        [Some(&self.used), self.device.as_ref()]
            .into_iter()
            .flatten()
            .map(|count| &**count)
    }

    /// Charges bytes of a device of `total_bytes`; `None` if it is full.
    pub(crate) fn try_charge(&self, bytes: u64, total_bytes: u64) -> Option<Charge> {
        let mut charge = Charge {
            account: self.clone(),
            bytes: 0,
        };
        charge.try_grow(bytes, total_bytes).then_some(charge)
    }
}

impl Charge {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges more; false, without a change, if the device is full.
    pub(crate) fn try_grow(&mut self, by: u64, total_bytes: u64) -> bool {
        // Only one thread at a time has the world.
        let used = self.account.device().now.load(Ordering::Relaxed);
        if used.checked_add(by).is_none_or(|after| after > total_bytes) {
            return false;
        }
        for count in self.account.counts() {
            let before = count.now.fetch_add(by, Ordering::Relaxed);
            count.most.fetch_max(before + by, Ordering::Relaxed);
        }
        self.bytes += by;
        true
    }

    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        for count in self.account.counts() {
            count.now.fetch_sub(surplus, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Store {
    pub(crate) fn new(bytes: u64, charge: Option<Charge>) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            contents: Mutex::default(),
            _charge: charge,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, to.len())?;
        let contents = self.contents.lock();
        for (chunk, within, range) in pieces(offset, to.len()) {
            let to = &mut to[range];
            match contents.get(&chunk) {
                Some(bytes) => to.copy_from_slice(&bytes[within..within + to.len()]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.check(offset, from.len())?;
        let mut contents = self.contents.lock();
        for (chunk, within, range) in pieces(offset, from.len()) {
            let chunk_bytes = (self.bytes - chunk * CHUNK_BYTES).min(CHUNK_BYTES);
            let bytes = contents
                .entry(chunk)
                .or_insert_with(|| vec![0; chunk_bytes as usize].into_boxed_slice());
            bytes[within..within + range.len()].copy_from_slice(&from[range]);
        }
        Ok(())
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), Fault> {
        let end = offset.checked_add(bytes as u64).ok_or(Fault)?;
        if end <= self.bytes {
            Ok(())
        } else {
            Err(Fault)
        }
    }
}

/// The chunks of a range: number, first byte within it, and the corresponding part of the range.
fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES) as usize;
        let next = bytes.min(done + CHUNK_BYTES as usize - within);
        let piece = (at / CHUNK_BYTES, within, done..next);
        done = next;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_across_chunks_and_unwritten_memory_is_zero() {
        let store = Store::new(16 << 30, None);
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 5).map(|i| (i % 251) as u8).collect();
        let offset = CHUNK_BYTES - 3;
        store.write(offset, &bytes).unwrap();
        let mut back = vec![1; bytes.len() + 2];
        store.read(offset - 1, &mut back).unwrap();
        assert_eq!(back[0], 0);
        assert!(back[1..=bytes.len()] == bytes, "contents differ");
        assert_eq!(back[bytes.len() + 1], 0);
        assert_eq!(store.write((16 << 30) - 1, &[0; 2]), Err(Fault));
        assert_eq!(store.read(u64::MAX, &mut [0; 2]), Err(Fault));
    }

    #[test]
    fn a_device_is_charged_until_the_last_reference_is_gone() {
        let account = Account::default();
        let store = Store::new(600, account.try_charge(600, 1000));
        assert!(account.try_charge(401, 1000).is_none());
        let second = Arc::clone(&store);
        drop(store);
        assert_eq!(account.used_bytes(), 600);
        drop(second);
        assert_eq!(account.used_bytes(), 0);
        let mut charge = account.try_charge(1000, 1000).unwrap();
        assert!(!charge.try_grow(1, 1000));
        charge.shrink_to(10);
        assert!(charge.try_grow(990, 1000));
        assert_eq!((charge.bytes(), account.used_bytes()), (1000, 1000));
    }

    #[test]
    fn what_a_client_takes_is_taken_of_the_device() {
        let device = Account::default();
        let (one, other) = (device.part(), device.part());
        let first = one.try_charge(600, 1000).unwrap();
        assert!(other.try_charge(401, 1000).is_none());
        let mut second = other.try_charge(400, 1000).unwrap();
        second.shrink_to(100);
        let used = || [&one, &other, &device].map(Account::used_bytes);
        assert_eq!(used(), [600, 100, 700]);
        drop(first);
        assert_eq!(used(), [0, 100, 100]);
        let most = [&one, &other, &device].map(Account::peak_bytes);
        assert_eq!(most, [600, 400, 1000]);
    }
}
