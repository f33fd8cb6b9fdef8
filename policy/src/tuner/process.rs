//! A Gaussian process on the line: a function known from noisy values. The function is an unknown
//! constant plus a smooth part with the covariance a² exp(−(x − y)²/2ℓ²) (the RBF kernel). With
//! values y at n points, at most [`POINTS_MAX`], K the covariance of these points and s² the
//! variance of noise (Rasmussen and Williams 2006, algorithm 2.1):
//! ```text
//! K + s² I = L Lᵀ                         Cholesky
//! mean(x)  = k(x)ᵀ (K + s² I)⁻¹ y         k(x): the covariances of x with the points
//! cov(x,z) = k(x,z) − v(x)·v(z)           v(x) = L⁻¹ k(x)
//! ```

/// Most values: a process then costs some thousand multiplications.
pub(super) const POINTS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    /// Standard deviation of the constant.
    pub(super) constant: f64,
    /// a, the standard deviation of the smooth part.
    pub(super) amplitude: f64,
    /// ℓ, the correlation length of the smooth part.
    pub(super) length: f64,
    /// s, the deviation of a value's noise; above 0, so that K + s² I is positive definite.
    pub(super) noise: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    prior: Prior,
    points: Vec<f64>,
    /// L, row by row, each up to its diagonal.
    factor: Vec<Vec<f64>>,
    /// L⁻¹ y.
    values: Vec<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Known {
    point: f64,
    /// v(x).
    explained: Vec<f64>,
    pub(super) mean: f64,
    /// Its standard deviation, without the noise of a value.
    pub(super) deviation: f64,
}

impl Prior {
    fn covariance(&self, one: f64, other: f64) -> f64 {
        let distance = (one - other) / self.length;
        let smooth = libm::exp(-distance * distance / 2.0);
        self.constant * self.constant + self.amplitude * self.amplitude * smooth
    }
}

impl Process {
    /// The function with these finite (point, value)s; those beyond [`POINTS_MAX`] are ignored.
    pub(super) fn new(prior: Prior, values: &[(f64, f64)]) -> Self {
        let mut process = Self {
            prior,
            points: Vec::new(),
            factor: Vec::new(),
            values: Vec::new(),
        };
        for &(point, value) in values.iter().take(POINTS_MAX) {
            process.add(point, value);
        }
        process
    }

    fn add(&mut self, point: f64, value: f64) {
        let mut row = self.explained(point);
        let variance = self.prior.covariance(point, point) - dot(&row, &row);
        // Not less than the noise's but for rounding.
        let noise = self.prior.noise * self.prior.noise;
        let diagonal = (variance.max(0.0) + noise).sqrt();
        self.values
            .push((value - dot(&row, &self.values)) / diagonal);
        row.push(diagonal);
        self.factor.push(row);
        self.points.push(point);
    }

    fn explained(&self, point: f64) -> Vec<f64> {
        let mut explained = Vec::with_capacity(self.points.len() + 1);
        for (row, &known) in self.factor.iter().zip(&self.points) {
            let rest = self.prior.covariance(point, known) - dot(row, &explained);
            let diagonal = row.last().copied().unwrap_or(1.0);
            explained.push(rest / diagonal);
        }
        explained
    }

    pub(super) fn known(&self, point: f64) -> Known {
        let explained = self.explained(point);
        let variance = self.prior.covariance(point, point) - dot(&explained, &explained);
        Known {
            point,
            mean: dot(&explained, &self.values),
            deviation: variance.max(0.0).sqrt(),
            explained,
        }
    }

    /// The standard deviation of the difference of the function at two points.
    pub(super) fn deviation_between(&self, one: &Known, other: &Known) -> f64 {
        let shared =
            self.prior.covariance(one.point, other.point) - dot(&one.explained, &other.explained);
        let variances = one.deviation * one.deviation + other.deviation * other.deviation;
        (variances - 2.0 * shared).max(0.0).sqrt()
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Prior = Prior {
        constant: 0.0,
        amplitude: 1.0,
        length: 1.0,
        noise: 0.5,
    };

    #[test]
    fn one_value_is_weighed_against_its_noise() {
        // Mean k y / (1 + s²), variance 1 − k² / (1 + s²).
        let process = Process::new(PRIOR, &[(0.0, 2.0)]);
        for point in [0.0, 0.7, 5.0] {
            let covariance = libm::exp(-point * point / 2.0);
            let known = process.known(point);
            assert!((known.mean - covariance * 2.0 / 1.25).abs() < 1e-12);
            let variance = 1.0 - covariance * covariance / 1.25;
            assert!((known.deviation.powi(2) - variance).abs() < 1e-12);
        }
    }

    #[test]
    fn two_values_are_as_the_inverse_of_two_rows_says() {
        let process = Process::new(PRIOR, &[(0.0, 1.0), (1.0, -2.0)]);
        // K + s² I = [[1.25, c], [c, 1.25]].
        let c = libm::exp(-0.5);
        let determinant = 1.25 * 1.25 - c * c;
        let weights = [(1.25 + 2.0 * c) / determinant, (-2.5 - c) / determinant];
        let known = process.known(0.5);
        let k = libm::exp(-0.125);
        assert!((known.mean - k * (weights[0] + weights[1])).abs() < 1e-12);
        let explained = k * k * 2.0 * (1.25 - c) / determinant;
        assert!((known.deviation.powi(2) - (1.0 - explained)).abs() < 1e-12);
    }

    #[test]
    fn a_common_constant_does_not_count_between_two_points() {
        let prior = Prior {
            constant: 100.0,
            ..PRIOR
        };
        let process = Process::new(prior, &[]);
        let [one, other] = [0.0, 1.0].map(|point| process.known(point));
        let between = process.deviation_between(&one, &other);
        assert!((between.powi(2) - 2.0 * (1.0 - libm::exp(-0.5))).abs() < 1e-9);
        assert!(one.deviation > 100.0);
    }

    #[test]
    fn many_values_at_one_point_leave_their_mean() {
        let values: Vec<_> = (0..25).map(|index| (3.0, f64::from(index % 5))).collect();
        let known = Process::new(PRIOR, &values).known(3.0);
        assert!((known.mean - 2.0 * 25.0 / 25.25).abs() < 1e-9);
        assert!((known.deviation.powi(2) - 0.25 / 25.25).abs() < 1e-9);
    }
}
