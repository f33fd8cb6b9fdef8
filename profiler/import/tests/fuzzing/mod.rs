//! Randomly broken inputs, for readers of untrusted files: the same for all of them. The seed
//! determines a run, and a failure prints it. `PILLION_FUZZ_SECONDS` is the time for each reader (1
//! s by default; CI takes 60), `PILLION_FUZZ_SEED` the first seed. A failing input is kept as a
//! file; past failures belong into the folder `tests/finds` of the reader's crate, under a
//! descriptive name, and are always tried first.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use protocol::clock::Clock;

/// Pseudo-random numbers (xorshift64*), the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// `bytes` with a few mutations; `words` are pieces with a meaning to the reader.
pub(crate) fn broken(bytes: &[u8], words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let word = words[random.below(words.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            2 => {
                let from = random.below(bytes.len() + 1);
                let to = (from + random.below(200)).min(bytes.len());
                let piece = bytes[from..to].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let to = (at + random.below(50)).min(bytes.len());
                bytes.drain(at..to);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
    bytes
}

/// Tries mutations of the inputs of `corpus`; `read` panics on an error. Reports their number.
pub(crate) fn try_broken(
    name: &str,
    corpus: &[Vec<u8>],
    words: &[&[u8]],
    mut read: impl FnMut(&[u8], &mut Random),
) {
    let number = |name: &str, usual: u64| {
        let value = std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok());
        value.unwrap_or(usual)
    };
    let mut seed = number("PILLION_FUZZ_SEED", 1);
    for whole in corpus {
        read(whole, &mut Random::of(seed));
    }
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + number("PILLION_FUZZ_SECONDS", 1) * 1_000_000_000;
    let mut inputs = 0u64;
    while clock.now_ns() < end_ns {
        let mut random = Random::of(seed);
        let whole = &corpus[random.below(corpus.len())];
        let bytes = broken(whole, words, &mut random);
        let result = catch_unwind(AssertUnwindSafe(|| read(&bytes, &mut random)));
        if result.is_err() {
            let kept = std::env::temp_dir().join(format!("pillion-find-{name}-{seed}"));
            fs::write(&kept, &bytes).expect("room");
            panic!(
                "{name}: PILLION_FUZZ_SEED={seed} fails; the input is kept as {}",
                kept.display()
            );
        }
        seed += 1;
        inputs += 1;
    }
    println!("{name}: {inputs} broken inputs");
}

pub(crate) fn finds(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("the folder of finds");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let read = |path: std::path::PathBuf| {
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        (name, fs::read(&path).expect("a file"))
    };
    paths.map(read).collect()
}
