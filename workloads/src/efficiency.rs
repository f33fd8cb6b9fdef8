//! The share of a device's peaks that kernels reach, and their cost beyond that. Fitted by hand to
//! ResNet-50 (inference of 4, training of 32) and BERT (large, inference of 2; base, training of 8)
//! as Orion recorded them on a V100 in single precision; the figures in parentheses are recorded
//! launches that show them. Times are as recorded there; on other devices they are kept, as they
//! are dominated by latencies that changed little from 2017 to 2024.

use crate::work::{Algorithm, Family};

pub(crate) struct MatrixEfficiency {
    /// The cost of a launch before and after its arithmetic, ns.
    pub(crate) launch_ns: f64,
    /// Steps of k that each block spends on starting and ending.
    pub(crate) steps_extra: f64,
    /// Share of an SM's peak that its blocks reach together.
    pub(crate) share: f64,
}

pub(crate) const fn of_algorithm(algorithm: Algorithm) -> MatrixEfficiency {
    match algorithm {
        // (768 x 1024 x 1024: 138 us; 768 x 4096 x 1024: 500 us)
        Algorithm::Product => MatrixEfficiency {
            launch_ns: 5_000.0,
            steps_extra: 25.0,
            share: 0.90,
        },
        // (12544 x 64 x 64: 28 us; 196 x 512 x 2048: 173 us)
        Algorithm::Convolution => MatrixEfficiency {
            launch_ns: 10_000.0,
            steps_extra: 25.0,
            share: 0.84,
        },
        // (12544 x 64 x 576: 60 us; 784 x 256 x 2304: 77 us)
        Algorithm::Winograd => MatrixEfficiency {
            launch_ns: 10_000.0,
            steps_extra: 0.0,
            share: 0.55,
        },
    }
}

/// Share of the matrix units' peak relative to [`MatrixEfficiency::share`]. An assumption: none of
/// the traces has launches on matrix units. NVIDIA's libraries reach 60 to 70 % of their peak on
/// large products.
pub(crate) const MATRIX_UNITS_SHARE: f64 = 0.7;

pub(crate) struct StreamEfficiency {
    /// The cost of a launch beside its traffic, ns.
    pub(crate) launch_ns: f64,
    /// Shortest launch, ns.
    pub(crate) least_ns: f64,
    /// Share of the peak bandwidth.
    pub(crate) share: f64,
    /// Share of the level 2 cache that holds what the launch before wrote.
    pub(crate) cached: f64,
}

pub(crate) const fn of_family(family: Family) -> StreamEfficiency {
    match family {
        // (6.4 MB: 6.9 us; 25.7 MB: 32.5 us; 38.5 MB: 49.5 us; of one element: 2.7 us)
        Family::Elementwise => StreamEfficiency {
            launch_ns: 3_000.0,
            least_ns: 3_000.0,
            share: 0.85,
            cached: 0.4,
        },
        // (0.8 MB: 6.1 us; 3.2 MB: 6.2 us; 25.7 MB: 39 us)
        Family::Norm => StreamEfficiency {
            launch_ns: 1_800.0,
            least_ns: 6_000.0,
            share: 0.76,
            cached: 0.0,
        },
        // (mean of 8192 images of 49: 10.8 us; norms of small tensors: 4.8 us)
        Family::Reduce => StreamEfficiency {
            launch_ns: 5_000.0,
            least_ns: 5_000.0,
            share: 0.65,
            cached: 0.0,
        },
        // Not in the networks that were fitted: as normalisations.
        Family::Depthwise => of_family(Family::Norm),
    }
}
