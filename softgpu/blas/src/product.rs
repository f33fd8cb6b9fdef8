//! A matrix product and its kernel: name, shape and duration, those of the same product in the
//! built-in workloads (`workloads::product`), which are fitted to recordings of cuBLAS on a V100 in
//! single precision. Assumed: double precision runs at half the rate of single precision, TF32 at
//! half the rate of 16 bits, and a complex multiplication is four real ones.

use std::ffi::c_uint;

use softgpu::Device;
use softgpu::module_image::{ImageKernel, write_image};
use workloads::Precision;

use crate::status::Status;

/// Element type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// IEEE 16 bits.
    F16,
    /// bfloat16.
    Bf16,
    /// 32 bits.
    F32,
    /// 32 bits, of which the multiplication may drop some.
    Tf32,
    /// 64 bits.
    F64,
    /// Two of 32 bits.
    C32,
    /// Two of 64 bits.
    C64,
}

/// `batch` products of an m x k with a k x n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Kind of the call, for the kernel's name: `gemm`, `gemv`, `dot`.
    pub operator: &'static str,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Number of products.
    pub batch: u64,
    /// Element type.
    pub number: Number,
    /// Whether each of the two factors is transposed.
    pub transposed: [bool; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) grid_blocks: u32,
    pub(crate) block_threads: u32,
}

impl Number {
    /// Element type of a product of a `cudaDataType` under a `cublasComputeType_t`.
    /// # Errors
    /// The stand-in has no such product.
    pub const fn of_product(data_type: c_uint, compute: c_uint) -> Result<Self, Status> {
        match (data_type, compute) {
            // CUDA_R_32F with CUBLAS_COMPUTE_32F_FAST_16F, _FAST_16BF, _FAST_TF32.
            (0, 74 | 75 | 77) => Ok(Self::Tf32),
            (0, _) => Ok(Self::F32),
            (1, _) => Ok(Self::F64),
            (2, _) => Ok(Self::F16),
            (4, _) => Ok(Self::C32),
            (5, _) => Ok(Self::C64),
            (14, _) => Ok(Self::Bf16),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F64 => "f64",
            Self::C32 => "c32",
            Self::C64 => "c64",
        }
    }

    /// The precision used, and how many multiplications of it one of this type costs.
    const fn cost(self) -> (Precision, f64) {
        match self {
            Self::F16 | Self::Bf16 => (Precision::Fp16, 1.0),
            Self::Tf32 => (Precision::Fp16, 2.0),
            Self::F32 => (Precision::Fp32, 1.0),
            Self::F64 => (Precision::Fp32, 2.0),
            Self::C32 => (Precision::Fp32, 4.0),
            Self::C64 => (Precision::Fp32, 8.0),
        }
    }
}

impl Product {
    /// Whether there is no work.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }

    /// Operator, element type, and transposed factors; as with NVIDIA's, the grid has the sizes.
    fn name(&self) -> String {
        let letter = |is_transposed| if is_transposed { 't' } else { 'n' };
        let [a, b] = self.transposed.map(letter);
        format!("softgpu_{}_{}_{a}{b}", self.operator, self.number.name())
    }

    pub(crate) fn kernel(&self, device: &Device) -> Kernel {
        let name = self.name();
        let (precision, times) = self.number.cost();
        let sizes = [self.m as f64, self.n as f64, self.k as f64 * times];
        let launch = workloads::product(&name, self.batch as f64, sizes, device, precision);
        let kernel = ImageKernel {
            name: name.clone(),
            block_ns: launch.block_ns,
            registers_per_thread: launch.registers,
            shared_bytes_per_block: 0,
            compute_demand: launch.compute_demand.into(),
            bandwidth_demand: launch.bandwidth_demand.into(),
        };
        Kernel {
            name,
            image: write_image(&[kernel]),
            grid_blocks: launch.grid[0],
            block_threads: launch.block[0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(m: u64, n: u64, k: u64, number: Number) -> Product {
        Product {
            operator: "gemm",
            m,
            n,
            k,
            batch: 1,
            number,
            transposed: [true, false],
        }
    }

    fn solo_ns(product: &Product, device: &Device) -> u64 {
        let kernel = product.kernel(device);
        let image = softgpu::module_image::parse_image(&kernel.image).unwrap();
        let [entry] = &image[..] else {
            panic!("one kernel")
        };
        let shape = softgpu::KernelShape {
            grid_blocks: kernel.grid_blocks.into(),
            threads_per_block: kernel.block_threads,
            registers_per_thread: entry.registers_per_thread,
            shared_bytes_per_block: entry.shared_bytes_per_block,
            block_ns: entry.block_ns,
            compute_demand: entry.compute_demand,
            bandwidth_demand: entry.bandwidth_demand,
        };
        shape.solo_ns(device).unwrap()
    }

    #[test]
    fn a_large_product_takes_the_arithmetic_at_less_than_the_peak() {
        let device = Device::by_name("V100-SXM2-16GB").unwrap();
        let at_peak_ns = 2.0 * 4096f64.powi(3) / (device.fp32_tflops() * 1e3);
        let takes_ns = solo_ns(&product(4096, 4096, 4096, Number::F32), &device) as f64;
        let ratio = takes_ns / at_peak_ns;
        assert!((1.0..1.4).contains(&ratio), "{ratio}");
    }

    #[test]
    fn half_the_bits_are_faster_and_twice_the_bits_slower() {
        let device = Device::by_name("A100-SXM4-40GB").unwrap();
        let takes = |number| solo_ns(&product(2048, 2048, 2048, number), &device);
        let order = [
            Number::F16,
            Number::Tf32,
            Number::F32,
            Number::F64,
            Number::C64,
        ];
        assert!(order.map(takes).is_sorted(), "{:?}", order.map(takes));
        assert!(takes(Number::F16) * 2 < takes(Number::F32));
    }

    #[test]
    fn the_name_says_what_and_the_grid_how_large() {
        let device = Device::by_name("A100-SXM4-40GB").unwrap();
        let small = product(64, 64, 64, Number::Bf16).kernel(&device);
        let large = product(4096, 4096, 64, Number::Bf16).kernel(&device);
        assert_eq!(small.name, "softgpu_gemm_bf16_tn");
        assert_eq!(small.name, large.name);
        assert!(small.grid_blocks < large.grid_blocks);
    }
}
