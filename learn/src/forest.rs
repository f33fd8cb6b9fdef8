//! A random forest (Breiman, 2001), of smartcore: the mean of regression trees, each fitted to
//! samples drawn with replacement.

use std::fmt;

use serde::{Deserialize, Serialize};
use smartcore::ensemble::random_forest_regressor::{
    RandomForestRegressor, RandomForestRegressorParameters,
};
use smartcore::linalg::basic::matrix::DenseMatrix;

/// How a forest is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Number of trees.
    pub trees: u16,
    /// Fewest samples of a leaf.
    pub leaf_samples_min: usize,
    /// Features of which each split takes the best, drawn anew for each; at most those of a row.
    pub split_features: usize,
    /// Draws samples and features.
    pub seed: u64,
}

/// Why samples give no model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// There is no sample, or a row has no feature.
    #[error("no samples: expected at least one, with at least one feature")]
    Empty,
    /// The numbers of rows and targets differ.
    #[error("{rows} rows and {targets} targets: expected equal numbers")]
    Targets {
        /// Number of rows.
        rows: usize,
        /// Number of targets.
        targets: usize,
    },
    /// A row has another number of features than the first.
    #[error("sample {sample}: {features} features, expected {expected} as in the first")]
    Features {
        /// The sample, from 0.
        sample: usize,
        /// Its number of features.
        features: usize,
        /// That of the first.
        expected: usize,
    },
    /// A feature or a target is not finite.
    #[error("sample {sample}: {value} is not a finite number")]
    NotFinite {
        /// The sample, from 0.
        sample: usize,
        /// The feature or the target.
        value: f64,
    },
    /// The method refuses.
    #[error("the fit failed: {0}")]
    Method(String),
}

/// A fitted forest.
pub struct Forest {
    fitted: RandomForestRegressor<f64, f64, DenseMatrix<f64>, Vec<f64>>,
    features: usize,
}

impl Forest {
    /// Fits a forest to these samples.
    ///
    /// # Errors
    /// See [`FitError`].
    pub fn fit(rows: &[Vec<f64>], targets: &[f64], settings: &Settings) -> Result<Self, FitError> {
        let features = check(rows, targets)?;
        let columns = (0..features).flat_map(|column| rows.iter().map(move |row| row[column]));
        Self::fit_columns(columns.collect(), targets.to_vec(), features, settings)
    }

    /// Fits a forest to samples that [`check`] would take, by columns, uncopied.
    pub(crate) fn fit_columns(
        columns: Vec<f64>,
        targets: Vec<f64>,
        features: usize,
        settings: &Settings,
    ) -> Result<Self, FitError> {
        let parameters = RandomForestRegressorParameters::default()
            .with_n_trees(settings.trees.into())
            .with_min_samples_leaf(settings.leaf_samples_min.max(1))
            .with_m(settings.split_features.clamp(1, features))
            .with_seed(settings.seed);
        let refused = |error: smartcore::error::Failed| FitError::Method(error.to_string());
        let matrix = DenseMatrix::new(targets.len(), features, columns, true).map_err(refused)?;
        let fitted = RandomForestRegressor::fit(&matrix, &targets, parameters);
        Ok(Self {
            fitted: fitted.map_err(refused)?,
            features,
        })
    }

    /// The prediction for a row.
    ///
    /// # Panics
    /// If the row has another number of features than the samples.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        assert_eq!(row.len(), self.features, "features of the row");
        let matrix = DenseMatrix::from_2d_vec(&vec![row.to_vec()]);
        let predicted = matrix.and_then(|matrix| self.fitted.predict(&matrix));
        predicted.expect("the row is as long as those of the fit")[0]
    }
}

impl fmt::Debug for Forest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let features = self.features;
        write!(f, "Forest {{ features: {features} }}")
    }
}

pub(crate) fn check(rows: &[Vec<f64>], targets: &[f64]) -> Result<usize, FitError> {
    if rows.len() != targets.len() {
        return Err(FitError::Targets {
            rows: rows.len(),
            targets: targets.len(),
        });
    }
    let features = rows.first().map_or(0, Vec::len);
    if features == 0 {
        return Err(FitError::Empty);
    }
    for (sample, (row, &target)) in rows.iter().zip(targets).enumerate() {
        if row.len() != features {
            return Err(FitError::Features {
                sample,
                features: row.len(),
                expected: features,
            });
        }
        let mut values = row.iter().copied().chain([target]);
        if let Some(value) = values.find(|value| !value.is_finite()) {
            return Err(FitError::NotFinite { sample, value });
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        trees: 30,
        leaf_samples_min: 1,
        split_features: 2,
        seed: 1,
    };

    fn steps() -> (Vec<Vec<f64>>, Vec<f64>) {
        let rows: Vec<Vec<f64>> = (0..60)
            .map(|i| vec![f64::from(i), f64::from(i % 7)])
            .collect();
        let targets = rows.iter().map(|row| f64::from(row[0] >= 30.0)).collect();
        (rows, targets)
    }

    #[test]
    fn a_forest_finds_a_step_and_the_same_seed_gives_the_same_one() {
        let (rows, targets) = steps();
        let forest = Forest::fit(&rows, &targets, &SETTINGS).unwrap();
        assert!(forest.predict(&[10.0, 3.0]) < 0.1);
        assert!(forest.predict(&[50.0, 3.0]) > 0.9);
        let again = Forest::fit(&rows, &targets, &SETTINGS).unwrap();
        let all =
            |forest: &Forest| -> Vec<f64> { rows.iter().map(|row| forest.predict(row)).collect() };
        assert_eq!(all(&forest), all(&again));
    }

    #[test]
    fn samples_that_are_no_samples_are_refused() {
        let fit = |rows: &[Vec<f64>], targets: &[f64]| Forest::fit(rows, targets, &SETTINGS).err();
        assert_eq!(fit(&[], &[]), Some(FitError::Empty));
        assert_eq!(fit(&[vec![]], &[1.0]), Some(FitError::Empty));
        let (rows, targets) = (1, 0);
        assert_eq!(
            fit(&[vec![1.0]], &[]),
            Some(FitError::Targets { rows, targets })
        );
        let uneven = FitError::Features {
            sample: 1,
            features: 2,
            expected: 1,
        };
        assert_eq!(fit(&[vec![1.0], vec![1.0, 2.0]], &[0.0, 0.0]), Some(uneven));
        let infinite = FitError::NotFinite {
            sample: 0,
            value: f64::INFINITY,
        };
        assert_eq!(fit(&[vec![f64::INFINITY]], &[0.0]), Some(infinite));
    }
}
