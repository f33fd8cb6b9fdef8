//! Kernels of every software-GPU module that really compute, so that programs can check results.
//!
//! | name   | parameters | effect |
//! |--------|------------|--------|
//! | fill   | f32 *x, f32 value, u32 n | x\[i\] = value |
//! | add    | f32 *a, f32 *b, f32 *c, u32 n | c\[i\] = a\[i\] + b\[i\] |
//! | saxpy  | f32 a, f32 *x, f32 *y, u32 n | y\[i\] = a · x\[i\] + y\[i\] |
//! | gemm   | f32 *a, f32 *b, f32 *c, u32 m, u32 n, u32 k | c = a · b; m × k by k × n, row-major |
//! | reduce | f32 *x, f32 *out, u32 n | out\[0\] = Σ x\[i\], from the first to the last |
//!
//! The kernels of `pillion-replay`'s PTX are known too, by parameters and names of entries up to a
//! `$` ([`Builtin::of_entry`]): `pillion_check` is saxpy, the others are [`crate::synthetic`]'s.
//! All n elements are computed whatever the grid is: it only decides the launch's occupancy and
//! duration. The time is a roofline: the longer of operations at peak and bytes at peak bandwidth,
//! plus a microsecond for start and end, spread evenly over the grid's waves.

use crate::error::Error;
use crate::kernel::KernelShape;
use crate::synthetic::{self, Work};
use crate::wire::PARAMS;
use devices::Device;

/// A kernel that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Builtin {
    /// `x[i] = value`.
    Fill = 1,
    /// `c[i] = a[i] + b[i]`.
    Add = 2,
    /// `y[i] = a · x[i] + y[i]`.
    Saxpy = 3,
    /// `c = a · b`.
    Gemm = 4,
    /// `out[0] = Σ x[i]`.
    Reduce = 5,
    /// Multiply-adds of a synthetic kernel ([`crate::synthetic`]).
    Chains = 6,
    /// Loads and stores of a synthetic kernel.
    Stream = 7,
    /// Multiply-adds, loads and stores of a synthetic kernel.
    Mixed = 8,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// Device address, 8 bytes.
    Pointer,
    /// 4 bytes.
    F32,
    /// 4 bytes.
    U32,
}

/// The client's memory as a kernel sees it.
pub trait Memory {
    /// Fills `to` from an address.
    /// # Errors
    /// [`Fault`] if the client does not own every byte.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault>;

    /// Writes to an address.
    /// # Errors
    /// [`Fault`] if the client does not own every byte.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault>;
}

/// A kernel accessed memory that is not the client's: CUDA's illegal address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Registers of each built-in kernel; they limit no block of up to 1024 threads.
pub(crate) const BUILTIN_REGISTERS: u32 = 32;
const SYNTHETIC: [Builtin; 3] = [Builtin::Chains, Builtin::Stream, Builtin::Mixed];
/// Duration of an empty kernel. The shortest kernels in Orion's traces do some work, and take 2.7
/// µs.
pub(crate) const EMPTY_KERNEL_NS: f64 = 1_000.0;

impl Builtin {
    /// The kernels of every module.
    pub const ALL: [Self; 5] = [Self::Fill, Self::Add, Self::Saxpy, Self::Gemm, Self::Reduce];

    /// Its name in a module.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Add => "add",
            Self::Saxpy => "saxpy",
            Self::Gemm => "gemm",
            Self::Reduce => "reduce",
            Self::Chains => "pillion_compute",
            Self::Stream => "pillion_memory",
            Self::Mixed => "pillion_mixed",
        }
    }

    /// Types of its parameters, in order.
    pub const fn params(self) -> &'static [Param] {
        use Param::{F32, Pointer, U32};
        match self {
            Self::Fill => &[Pointer, F32, U32],
            Self::Add => &[Pointer, Pointer, Pointer, U32],
            Self::Saxpy => &[F32, Pointer, Pointer, U32],
            Self::Gemm => &[Pointer, Pointer, Pointer, U32, U32, U32],
            Self::Reduce => &[Pointer, Pointer, U32],
            Self::Chains | Self::Stream | Self::Mixed => {
                &[Pointer, Pointer, U32, U32, U32, U32, U32, U32]
            }
        }
    }

    /// The computation of a PTX entry of `pillion-replay`: `pillion_memory$3` is the fourth kernel
    /// of a trace. The caller compares the parameters.
    pub fn of_entry(entry: &str) -> Option<Self> {
        let name = entry.split('$').next().unwrap_or_default();
        if name == "pillion_check" {
            return Some(Self::Saxpy);
        }
        SYNTHETIC.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The kernel of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The kernel of that number in a command.
    pub fn from_number(number: u32) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain(SYNTHETIC);
        all.find(|&builtin| builtin as u32 == number)
    }

    /// The shape of a launch with these parameters.
    /// # Errors
    /// As [`KernelShape::check`].
    pub fn shape(
        self,
        grid_blocks: u64,
        threads_per_block: u32,
        shared_bytes_per_block: u32,
        params: &[u64; PARAMS],
        device: &Device,
    ) -> Result<KernelShape, Error> {
        if let Some(work) = self.synthetic(params) {
            let [threads, shared] = [threads_per_block, shared_bytes_per_block];
            return synthetic::shape(&work, grid_blocks, threads, shared, device);
        }
        let (operations, bytes) = self.work(params);
        // Tera-operations and giga-bytes per second are thousands and units per nanosecond.
        let compute_ns = operations / (device.fp32_tflops() * 1e3);
        let memory_ns = bytes / f64::from(device.bandwidth_gb_s.max(1));
        let total_ns = compute_ns.max(memory_ns) + EMPTY_KERNEL_NS;
        let shape = KernelShape {
            grid_blocks,
            threads_per_block,
            registers_per_thread: BUILTIN_REGISTERS,
            shared_bytes_per_block,
            block_ns: 1,
            compute_demand: compute_ns / total_ns,
            bandwidth_demand: memory_ns / total_ns,
        };
        let waves = shape.waves(device)? as f64;
        // Checking the kernel refuses one longer than the model allows.
        Ok(KernelShape {
            block_ns: (total_ns / waves).ceil() as u64,
            ..shape
        })
    }

    /// Runs the computation.
    /// # Errors
    /// [`Fault`]; part of the result may have been written.
    pub fn run(self, params: &[u64; PARAMS], memory: &mut dyn Memory) -> Result<(), Fault> {
        let number = |index: usize| params[index] as u32;
        let float = |index: usize| f32::from_bits(params[index] as u32);
        match self {
            Self::Fill => fill(memory, params[0], float(1), number(2)),
            Self::Add => pairwise(
                memory,
                [params[0], params[1], params[2]],
                number(3),
                |a, b| a + b,
            ),
            Self::Saxpy => {
                let a = float(0);
                let to = [params[1], params[2], params[2]];
                pairwise(memory, to, number(3), |x, y| a.mul_add(x, y))
            }
            Self::Gemm => {
                let [m, n, k] = [3, 4, 5].map(number);
                gemm(memory, [params[0], params[1], params[2]], m, n, k)
            }
            Self::Reduce => reduce(memory, params[0], params[1], number(2)),
            Self::Chains | Self::Stream | Self::Mixed => {
                let work = self.synthetic(params).unwrap_or_default();
                synthetic::run(&work, params[0], memory)
            }
        }
    }

    /// The work of a synthetic kernel's launch; `None` for other kernels.
    fn synthetic(self, params: &[u64; PARAMS]) -> Option<Work> {
        let number = |index: usize| params[index] as u32;
        let words = match self {
            Self::Chains => 0,
            Self::Stream | Self::Mixed => synthetic::WORDS,
            _ => return None,
        };
        Some(Work {
            loops: number(2),
            more: number(3),
            per_loop: number(4),
            blocks: number(5),
            words,
        })
    }

    /// Floating-point operations, and bytes to and from device memory.
    fn work(self, params: &[u64; PARAMS]) -> (f64, f64) {
        let number = |index: usize| f64::from(params[index] as u32);
        match self {
            Self::Fill => (0.0, 4.0 * number(2)),
            Self::Add => (number(3), 12.0 * number(3)),
            Self::Saxpy => (2.0 * number(3), 12.0 * number(3)),
            Self::Gemm => {
                let [m, n, k] = [3, 4, 5].map(number);
                (2.0 * m * n * k, 4.0 * (m * k + k * n + m * n))
            }
            Self::Reduce => (number(2), 4.0 * number(2)),
            // Their time is computed for each block.
            Self::Chains | Self::Stream | Self::Mixed => (0.0, 0.0),
        }
    }
}

impl Param {
    /// Size in the caller's memory.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Pointer => 8,
            Self::F32 | Self::U32 => 4,
        }
    }
}

/// Elements processed at a time, so that a wrong n faults before it fills the host's memory.
const STRIP: u32 = 1 << 18;

fn strips(n: u32) -> impl Iterator<Item = (u64, usize)> {
    (0..n)
        .step_by(STRIP as usize)
        .map(move |first| (first.into(), STRIP.min(n - first) as usize))
}

fn element(base: u64, index: u64) -> u64 {
    base.wrapping_add(4 * index)
}

fn load(memory: &dyn Memory, address: u64, count: usize) -> Result<Vec<f32>, Fault> {
    let mut bytes = vec![0; 4 * count];
    memory.read(address, &mut bytes)?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
}

fn store(memory: &mut dyn Memory, address: u64, values: &[f32]) -> Result<(), Fault> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    memory.write(address, &bytes)
}

fn fill(memory: &mut dyn Memory, x: u64, value: f32, n: u32) -> Result<(), Fault> {
    strips(n).try_for_each(|(first, count)| store(memory, element(x, first), &vec![value; count]))
}

fn pairwise(
    memory: &mut dyn Memory,
    [left, right, to]: [u64; 3],
    n: u32,
    combine: impl Fn(f32, f32) -> f32,
) -> Result<(), Fault> {
    strips(n).try_for_each(|(first, count)| {
        let left = load(memory, element(left, first), count)?;
        let right = load(memory, element(right, first), count)?;
        let sums: Vec<f32> = left
            .iter()
            .zip(&right)
            .map(|(&l, &r)| combine(l, r))
            .collect();
        store(memory, element(to, first), &sums)
    })
}

fn reduce(memory: &mut dyn Memory, x: u64, out: u64, n: u32) -> Result<(), Fault> {
    let mut sum = 0.0;
    for (first, count) in strips(n) {
        sum = load(memory, element(x, first), count)?
            .iter()
            .fold(sum, |sum, x| sum + x);
    }
    store(memory, out, &[sum])
}

/// Computes one row of c at a time.
fn gemm(memory: &mut dyn Memory, [a, b, c]: [u64; 3], m: u32, n: u32, k: u32) -> Result<(), Fault> {
    let columns = n as usize;
    for row in 0..u64::from(m) {
        let mut sums = vec![0.0f32; columns];
        let left = load(memory, element(a, row * u64::from(k)), k as usize)?;
        for (depth, &factor) in (0u64..).zip(&left) {
            let right = load(memory, element(b, depth * u64::from(n)), columns)?;
            for (sum, value) in sums.iter_mut().zip(right) {
                *sum = factor.mul_add(value, *sum);
            }
        }
        store(memory, element(c, row * u64::from(n)), &sums)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
            let from = self.0.get(address as usize..).ok_or(Fault)?;
            to.copy_from_slice(from.get(..to.len()).ok_or(Fault)?);
            Ok(())
        }

        fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
            let to = self.0.get_mut(address as usize..).ok_or(Fault)?;
            to.get_mut(..from.len()).ok_or(Fault)?.copy_from_slice(from);
            Ok(())
        }
    }

    fn params(words: &[u64]) -> [u64; PARAMS] {
        std::array::from_fn(|i| words.get(i).copied().unwrap_or(0))
    }

    fn bits(value: f32) -> u64 {
        value.to_bits().into()
    }

    #[test]
    fn results_are_those_of_arithmetic() {
        let mut memory = Bytes(vec![0; 1024]);
        let run = |memory: &mut Bytes, builtin: Builtin, words: &[u64]| {
            builtin.run(&params(words), memory).unwrap();
        };
        run(&mut memory, Builtin::Fill, &[0, bits(2.0), 4]);
        run(&mut memory, Builtin::Fill, &[16, bits(3.0), 4]);
        run(&mut memory, Builtin::Add, &[0, 16, 32, 4]);
        assert_eq!(load(&memory, 32, 4).unwrap(), [5.0; 4]);
        run(&mut memory, Builtin::Saxpy, &[bits(10.0), 0, 32, 3]);
        assert_eq!(load(&memory, 32, 4).unwrap(), [25.0, 25.0, 25.0, 5.0]);
        run(&mut memory, Builtin::Reduce, &[32, 64, 4]);
        assert_eq!(load(&memory, 64, 1).unwrap(), [80.0]);
        store(&mut memory, 128, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        store(&mut memory, 256, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        run(&mut memory, Builtin::Gemm, &[128, 256, 512, 2, 2, 3]);
        assert_eq!(load(&memory, 512, 4).unwrap(), [22.0, 28.0, 49.0, 64.0]);
    }

    #[test]
    fn a_wrong_count_faults() {
        let mut memory = Bytes(vec![0; 64]);
        for builtin in Builtin::ALL {
            let mut words = params(&[0; PARAMS]);
            for (word, param) in words.iter_mut().zip(builtin.params()) {
                *word = if *param == Param::U32 {
                    u32::MAX.into()
                } else {
                    0
                };
            }
            assert_eq!(builtin.run(&words, &mut memory), Err(Fault), "{builtin:?}");
        }
    }

    #[test]
    fn a_large_add_takes_the_time_of_its_bytes() {
        let device = Device::by_name("V100-SXM2-16GB").unwrap();
        let words = params(&[0, 0, 0, 100_000_000]);
        let shape = Builtin::Add
            .shape(390_625, 256, 0, &words, &device)
            .unwrap();
        let solo_ns = shape.solo_ns(&device).unwrap() as f64;
        let expected_ns = 12.0 * 1e8 / 898.0 + 1000.0;
        assert!(
            (solo_ns / expected_ns - 1.0).abs() < 0.01,
            "{solo_ns} {expected_ns}"
        );
    }
}
