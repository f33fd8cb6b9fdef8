//! Three methods of regression behind one interface. Features are standardised to a mean of 0 and a
//! deviation of 1; features that are the same in all rows are left out.

use smartcore::linalg::basic::arrays::Array;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::linalg::traits::cholesky::CholeskyDecomposable;
use smartcore::linear::ridge_regression::{RidgeRegression, RidgeRegressionParameters};
use smartcore::svm::Kernels;
use smartcore::svm::svr::{SVR, SVRParameters};

use crate::forest::{self, FitError, Forest};
use crate::interference::Settings;

/// A method of regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The mean of the samples, whatever the features.
    Mean,
    /// Linear in the features, with a penalty of squared coefficients (ridge regression).
    Ridge,
    /// ε-support vectors with a kernel of radial basis functions.
    SupportVectors,
    /// A random forest.
    Forest,
}

impl Method {
    /// All of them, the plainest first.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Ridge, Self::SupportVectors, Self::Forest];
}

/// Penalty of ridge regression at deviation 1: one sample, as in smartcore and scikit-learn.
const RIDGE_PENALTY: f64 = 1.0;

/// Errors that cost nothing, and the most that a sample may weigh, for targets of deviation 1: the
/// defaults of smartcore and scikit-learn. The kernel's width is scikit-learn's: exp(−d² ⁄ f), of f
/// features.
const TUBE: f64 = 0.1;
const WEIGHT_MAX: f64 = 1.0;

/// Where all kernels are 0, in deviations.
const FAR: f64 = 1e6;

/// Added to the diagonal of the kernels, so that equal rows have a solution.
const JITTER: f64 = 1e-9;

#[derive(Debug)]
pub(crate) struct Fitted {
    scaler: Scaler,
    function: Function,
}

#[derive(Debug)]
enum Function {
    Zero,
    Ridge(RidgeRegression<f64, f64, DenseMatrix<f64>, Vec<f64>>),
    Kernels(KernelSum),
    Forest(Forest),
}

impl Fitted {
    pub(crate) fn fit(
        method: Method,
        rows: &[Vec<f64>],
        targets: &[f64],
        settings: &Settings,
    ) -> Result<Self, FitError> {
        forest::check(rows, targets)?;
        let scaler = Scaler::of(rows);
        let rows: Vec<Vec<f64>> = rows.iter().map(|row| scaler.scaled(row)).collect();
        let features = scaler.kept.len();
        let function = match method {
            _ if features == 0 => Function::Zero,
            Method::Mean => Function::Zero,
            Method::Ridge => Function::Ridge(ridge(&rows, targets)?),
            Method::SupportVectors => Function::Kernels(KernelSum::fit(rows, targets)?),
            Method::Forest => {
                let settings = forest::Settings {
                    trees: settings.trees,
                    leaf_samples_min: settings.leaf_samples_min,
                    split_features: features.div_ceil(3),
                    seed: settings.seed,
                };
                Function::Forest(Forest::fit(&rows, targets, &settings)?)
            }
        };
        Ok(Self { scaler, function })
    }

    pub(crate) fn predict(&self, row: &[f64]) -> f64 {
        let row = self.scaler.scaled(row);
        match &self.function {
            Function::Zero => 0.0,
            Function::Ridge(ridge) => {
                let predicted = matrix(&[row]).and_then(|row| ridge.predict(&row).map_err(refused));
                predicted.expect("the row is as long as those of the fit")[0]
            }
            Function::Kernels(sum) => sum.at(&row),
            Function::Forest(forest) => forest.predict(&row),
        }
    }
}

#[derive(Debug)]
struct Scaler {
    kept: Vec<(usize, f64, f64)>,
}

impl Scaler {
    fn of(rows: &[Vec<f64>]) -> Self {
        let count = rows.len() as f64;
        let features = rows.first().map_or(0, Vec::len);
        let scale = |feature: usize| {
            let values = || rows.iter().map(move |row| row[feature]);
            let mean = values().sum::<f64>() / count;
            let squares: f64 = values().map(|value| (value - mean) * (value - mean)).sum();
            let deviation = (squares / count).sqrt();
            (deviation > 1e-9).then_some((feature, mean, deviation))
        };
        Self {
            kept: (0..features).filter_map(scale).collect(),
        }
    }

    fn scaled(&self, row: &[f64]) -> Vec<f64> {
        let kept = self.kept.iter();
        kept.map(|&(feature, mean, deviation)| (row[feature] - mean) / deviation)
            .collect()
    }
}

fn refused(error: smartcore::error::Failed) -> FitError {
    FitError::Method(error.to_string())
}

fn matrix(rows: &[Vec<f64>]) -> Result<DenseMatrix<f64>, FitError> {
    DenseMatrix::from_2d_vec(&rows.to_vec()).map_err(refused)
}

fn ridge(
    rows: &[Vec<f64>],
    targets: &[f64],
) -> Result<RidgeRegression<f64, f64, DenseMatrix<f64>, Vec<f64>>, FitError> {
    let parameters = RidgeRegressionParameters::default()
        .with_alpha(RIDGE_PENALTY)
        .with_normalize(false);
    RidgeRegression::fit(&matrix(rows)?, &targets.to_vec(), parameters).map_err(refused)
}

/// Support vectors as a sum of kernels. smartcore's `SVR` borrows the samples and parameters of its
/// fit, so a model that outlives them cannot hold one. Its function is a constant plus one kernel
/// for each sample: the constant is the value far from all samples, and the weights follow from the
/// values at the samples, by one system of linear equations. Only this kernel is used: version
/// 0.7.0 takes for the kernel of a sample and itself that of the whole matrix (`Optimizer::new`),
/// which is 1 for radial basis functions and wrong for a product. It also cuts rows to as many
/// features as there are rows, so fewer rows than features are refused.
#[derive(Debug)]
struct KernelSum {
    rows: Vec<Vec<f64>>,
    weights: Vec<f64>,
    constant: f64,
    gamma: f64,
}

impl KernelSum {
    fn fit(rows: Vec<Vec<f64>>, targets: &[f64]) -> Result<Self, FitError> {
        let features = rows.first().map_or(1, Vec::len);
        if rows.len() < features {
            let refused = format!("{} samples with {features} features", rows.len());
            return Err(FitError::Method(refused));
        }
        let gamma = 1.0 / features as f64;
        let parameters = SVRParameters::default()
            .with_eps(TUBE)
            .with_c(WEIGHT_MAX)
            .with_kernel(Kernels::RBF { gamma: Some(gamma) });
        let (samples, targets) = (matrix(&rows)?, targets.to_vec());
        let far = matrix(&[vec![FAR; features]])?;
        let fitted = SVR::fit(&samples, &targets, &parameters).map_err(refused)?;
        let values = fitted.predict(&samples).map_err(refused)?;
        let constant = fitted.predict(&far).map_err(refused)?[0];
        let kernels = rows.iter().enumerate().map(|(number, one)| {
            let kernels = rows.iter().enumerate().map(|(other, row)| {
                let jitter = if number == other { JITTER } else { 0.0 };
                kernel(one, row, gamma) + jitter
            });
            kernels.collect::<Vec<f64>>()
        });
        let kernels: Vec<Vec<f64>> = kernels.collect();
        let values: Vec<Vec<f64>> = values.iter().map(|value| vec![value - constant]).collect();
        let solved = matrix(&kernels)?.cholesky_solve_mut(matrix(&values)?);
        let solved = solved.map_err(refused)?;
        Ok(Self {
            weights: solved.iterator(0).copied().collect(),
            rows,
            constant,
            gamma,
        })
    }

    fn at(&self, row: &[f64]) -> f64 {
        let terms = self.rows.iter().zip(&self.weights);
        let sum: f64 = terms
            .map(|(sample, weight)| weight * kernel(sample, row, self.gamma))
            .sum();
        self.constant + sum
    }
}

fn kernel(one: &[f64], other: &[f64], gamma: f64) -> f64 {
    let squares = one.iter().zip(other).map(|(one, other)| {
        let off = one - other;
        off * off
    });
    (-gamma * squares.sum::<f64>()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        trees: 30,
        leaf_samples_min: 1,
        seed: 1,
    };

    fn rows() -> Vec<Vec<f64>> {
        (0..40)
            .map(|i| {
                let i = f64::from(i);
                vec![i / 4.0, (i * 0.7).sin(), 3.0]
            })
            .collect()
    }

    #[test]
    fn each_method_but_the_mean_finds_a_line() {
        let rows = rows();
        let targets: Vec<f64> = rows.iter().map(|row| row[0] / 3.0 - 1.6).collect();
        let squares = |method| {
            let fitted = Fitted::fit(method, &rows, &targets, &SETTINGS).unwrap();
            let errors = rows.iter().zip(&targets);
            let errors = errors.map(|(row, target)| (fitted.predict(row) - target).powi(2));
            errors.sum::<f64>()
        };
        let mean = squares(Method::Mean);
        for method in &Method::ALL[1..] {
            assert!(squares(*method) < 0.05 * mean, "{method:?}");
        }
    }

    #[test]
    fn the_sum_of_kernels_is_the_function_of_the_support_vectors() {
        let scaler = Scaler::of(&rows());
        let rows: Vec<Vec<f64>> = rows().iter().map(|row| scaler.scaled(row)).collect();
        let targets: Vec<f64> = rows.iter().map(|row| row[0].sin() + row[1]).collect();
        let sum = KernelSum::fit(rows.clone(), &targets).unwrap();
        let parameters = SVRParameters::default()
            .with_eps(TUBE)
            .with_c(WEIGHT_MAX)
            .with_kernel(Kernels::RBF { gamma: Some(0.5) });
        let samples = matrix(&rows).unwrap();
        let between: Vec<Vec<f64>> = (0..50)
            .map(|i| vec![f64::from(i) / 20.0 - 1.5, f64::from(i % 5) / 2.0 - 1.0])
            .collect();
        let asked = matrix(&between).unwrap();
        let fitted = SVR::fit(&samples, &targets, &parameters).unwrap();
        for (row, value) in between.iter().zip(fitted.predict(&asked).unwrap()) {
            assert!((sum.at(row) - value).abs() < 1e-4, "{row:?}: {value}");
        }
    }

    #[test]
    fn fewer_rows_than_features_are_refused_or_fitted_and_never_end_the_program() {
        let rows = vec![vec![1.0, 2.0, 0.5], vec![2.0, 1.0, 0.7]];
        let fit = |method| Fitted::fit(method, &rows, &[-1.0, 1.0], &SETTINGS);
        assert!(fit(Method::Ridge).is_err() && fit(Method::SupportVectors).is_err());
        assert!(fit(Method::Forest).is_ok());
    }

    #[test]
    fn rows_that_are_all_equal_give_the_mean() {
        let rows = vec![vec![1.0, 2.0]; 6];
        let targets = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0];
        for method in Method::ALL {
            let fitted = Fitted::fit(method, &rows, &targets, &SETTINGS).unwrap();
            assert_eq!(fitted.predict(&rows[0]), 0.0, "{method:?}");
        }
    }
}
