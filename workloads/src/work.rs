//! The work of one kernel: its arithmetic, the numbers it moves, and how it is cut into blocks.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    /// Family and sizes: equal names are equal kernels.
    pub(crate) name: String,
    pub(crate) work: Work,
}

impl Kernel {
    pub(crate) fn family(&self) -> &str {
        self.name.split('#').next().unwrap_or(&self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// Products of matrices, also those that a convolution becomes.
    Matrix(Matrix),
    /// A pass over arrays.
    Stream(Stream),
}

/// `batch` products of an m x k with a k x n matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) algorithm: Algorithm,
    pub(crate) batch: f64,
    pub(crate) m: f64,
    pub(crate) n: f64,
    pub(crate) k: f64,
    /// Numbers read and written at least once.
    pub(crate) numbers: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// A library's matrix product, which may cut k as well (split-K).
    Product,
    /// Implicit matrix product: each block one tile of the output, all of k.
    Convolution,
    /// Winograd's minimal filtering for 3 x 3 filters, F(2 x 2, 3 x 3): 2.25 times fewer
    /// multiplications (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).
    /// `m` counts output positions.
    Winograd,
}

/// A pass that reads and writes arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stream {
    pub(crate) family: Family,
    /// Elements of the output, which decide the grid.
    pub(crate) elements: f64,
    pub(crate) numbers: f64,
    pub(crate) flops: f64,
}

/// Passes that are written alike and reach the same share of the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// One output element from the same element of some inputs.
    Elementwise,
    /// Statistics of channels or rows, read again: batch and layer normalisation, softmax, pooling.
    Norm,
    /// Many numbers to few.
    Reduce,
    /// Depthwise convolution.
    Depthwise,
}

impl Stream {
    /// A pass of [`Family::Norm`] without arithmetic.
    pub(crate) fn of_norm(elements: f64, numbers: f64) -> Self {
        Self {
            family: Family::Norm,
            elements,
            numbers,
            flops: 0.0,
        }
    }
}

impl Matrix {
    /// Operations that the result is worth, whatever the algorithm saves.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * self.batch * self.m * self.n * self.k
    }
}
