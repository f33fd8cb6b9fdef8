//! The library call in which a kernel was launched. One kernel of cuBLAS multiplies matrices of all
//! sizes, in the same launch shape where only the summed dimension differs; the call then
//! determines its duration. Only as much of the call as the source states is compared.

use std::fmt;

/// Most stated sizes of an operator: the dimensions of two tensors of up to five.
pub(super) const SIZES_MAX: usize = 10;

/// A call of cuBLAS, cuBLASLt or cuDNN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operator {
    /// Its function: `gemm`, `gemv`, `conv_forward`; the interposer's table (`abi`) has all names.
    pub name: String,
    /// m, n, k of a product in cuBLAS's order (columns first), else tensors' dimensions, if stated.
    pub sizes: Vec<u64>,
    /// The number of products; `None` if not stated.
    pub batch: Option<u64>,
    /// The number format of the matrices or tensors, e.g. `f16`; `None` if not stated.
    pub number: Option<String>,
    /// A product's two factors: `n`, `t` (transposed) or `c` (and conjugated) each, if stated.
    pub layout: Option<String>,
}

impl Operator {
    /// How much is stated besides the name.
    #[must_use]
    pub fn stated(&self) -> usize {
        usize::from(!self.sizes.is_empty())
            + usize::from(self.batch.is_some())
            + usize::from(self.number.is_some())
            + usize::from(self.layout.is_some())
    }

    /// Whether `call` agrees with everything stated here.
    #[must_use]
    pub fn covers(&self, call: &Self) -> bool {
        fn agrees<T: PartialEq>(stated: Option<&T>, of_call: Option<&T>) -> bool {
            stated.is_none() || stated == of_call
        }
        self.name == call.name
            && (self.sizes.is_empty() || self.sizes == call.sizes)
            && agrees(self.batch.as_ref(), call.batch.as_ref())
            && agrees(self.number.as_ref(), call.number.as_ref())
            && agrees(self.layout.as_ref(), call.layout.as_ref())
    }
}

impl Operator {
    /// One line for programs, from which [`Operator::of_line`] makes an equal operator.
    #[must_use]
    pub fn line(&self) -> String {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let batch = self.batch.map(|batch| batch.to_string());
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let parts = [
            self.name.clone(),
            sizes.join(","),
            batch.unwrap_or_default(),
            word(&self.number),
            word(&self.layout),
        ];
        parts.join("\t")
    }

    /// The operator of a line; `None` if it is none.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split('\t').collect();
        let [name, sizes, batch, number, layout] = parts.try_into().ok()?;
        let stated = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let sizes = sizes.split(',').filter(|size| !size.is_empty());
        let batch = stated(batch).map(|batch| batch.parse());
        Some(Self {
            name: stated(name)?,
            sizes: sizes.map(str::parse).collect::<Result<_, _>>().ok()?,
            batch: batch.transpose().ok()?,
            number: stated(number),
            layout: stated(layout),
        })
    }
}

impl fmt::Display for Operator {
    /// `gemm f16 tn 4096x1024x512 x12`, without what is not stated.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.name)?;
        for word in [&self.number, &self.layout].into_iter().flatten() {
            write!(to, " {word}")?;
        }
        for (index, size) in self.sizes.iter().enumerate() {
            let before = if index == 0 { " " } else { "x" };
            write!(to, "{before}{size}")?;
        }
        match self.batch {
            Some(batch) if batch != 1 => write!(to, " x{batch}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product() -> Operator {
        Operator {
            name: "gemm".to_owned(),
            sizes: vec![4096, 1024, 512],
            batch: Some(12),
            number: Some("f16".to_owned()),
            layout: Some("tn".to_owned()),
        }
    }

    #[test]
    fn what_is_stated_must_agree_and_what_is_not_may_be_anything() {
        let call = product();
        assert!(call.covers(&call));
        let name_alone = Operator {
            name: "gemm".to_owned(),
            ..Operator::default()
        };
        assert!(name_alone.covers(&call) && !call.covers(&name_alone));
        for other in [
            Operator {
                name: "gemv".to_owned(),
                ..product()
            },
            Operator {
                sizes: vec![4096, 1024, 513],
                ..product()
            },
            Operator {
                batch: Some(1),
                ..product()
            },
            Operator {
                number: Some("f32".to_owned()),
                ..product()
            },
            Operator {
                layout: Some("nn".to_owned()),
                ..product()
            },
        ] {
            assert!(!other.covers(&call), "{other}");
        }
    }

    #[test]
    fn a_line_for_programs_gives_the_operator_again() {
        let name_alone = Operator {
            name: "backend".to_owned(),
            ..Operator::default()
        };
        for operator in [product(), name_alone] {
            assert_eq!(Operator::of_line(&operator.line()), Some(operator));
        }
        for other in ["", "gemm", "gemm\t1,x\t\t\t", "\t1\t\t\t"] {
            assert_eq!(Operator::of_line(other), None, "{other}");
        }
    }

    #[test]
    fn it_is_said_in_one_line() {
        assert_eq!(product().to_string(), "gemm f16 tn 4096x1024x512 x12");
        let single = Operator {
            batch: Some(1),
            ..product()
        };
        assert_eq!(single.to_string(), "gemm f16 tn 4096x1024x512");
        let name_alone = Operator {
            name: "backend".to_owned(),
            ..Operator::default()
        };
        assert_eq!(name_alone.to_string(), "backend");
    }
}
