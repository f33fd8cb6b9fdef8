//! The memory quota that the environment asks for, under our name and those of other systems.
//! - `PILLION_MEMORY`: `10GiB`, `40%`, `unlimited`. Ours; overrides all others.
//! - `CUDA_DEVICE_MEMORY_LIMIT_<n>`: `4096m`; `0` (any unit) is no limit. HAMi's, of device n.
//! - `CUDA_DEVICE_MEMORY_LIMIT`: the same, of every device.
//! - `GPU_MEMORY_LIMIT`: `4096Mi`. KAI's, of every device.
//!
//! The device number is the process's own CUDA ordinal. The first variable in this order counts. An
//! unreadable value asks for *some* quota, so no memory is granted until it is corrected, and the
//! reason is logged. HAMi's device plugin writes `0` for "no limit". The foreign names are generic:
//! a number below 1 MiB without a unit probably has another meaning (a share, MiB), so it counts as
//! not set, and that is logged. `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` is not read: MPS enforces it,
//! per process.

use std::ffi::OsString;

use protocol::quota::{self, Quota};

use super::DEVICES_MAX;

/// Stands for an unreadable value: one byte, with which nothing can be allocated.
const NOTHING: Quota = Quota::Bytes(1);

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Quotas {
    devices: [Option<Quota>; DEVICES_MAX],
    every: Option<Quota>,
}

impl Quotas {
    pub(super) fn read(
        variable: &impl Fn(&str) -> Option<OsString>,
        complaints: &mut Vec<String>,
    ) -> Self {
        let set = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().trim().to_owned())
        };
        let mut complain = |name: &str, value: &str, so: &str| {
            let expected = quota::EXPECTED;
            complaints.push(format!("{name}={value:?}: expected {expected}; {so}"));
            NOTHING
        };
        const NOTHING_GRANTED: &str = "every allocation on the GPU will fail; correct the value";
        let mut quotas = Self::default();
        if let Some(value) = set("PILLION_MEMORY") {
            let quota = Quota::parse(&value);
            let quota = quota.filter(|quota| !quota.is_too_small());
            quotas.every =
                Some(quota.unwrap_or_else(|| complain("PILLION_MEMORY", &value, NOTHING_GRANTED)));
            return quotas;
        }
        let mut of_others = |name: &str, value: &str| {
            let is_none = !value.is_empty() && value.trim_end_matches(char::is_alphabetic) == "0";
            match Quota::parse(value) {
                _ if is_none => Some(Quota::Unlimited),
                _ if is_another_meaning(value) => {
                    complain(name, value, "value ignored");
                    None
                }
                Some(quota) => Some(quota),
                None => Some(complain(name, value, NOTHING_GRANTED)),
            }
        };
        quotas.every = ["CUDA_DEVICE_MEMORY_LIMIT", "GPU_MEMORY_LIMIT"]
            .into_iter()
            .find_map(|name| of_others(name, &set(name)?));
        for (number, place) in quotas.devices.iter_mut().enumerate() {
            let name = format!("CUDA_DEVICE_MEMORY_LIMIT_{number}");
            if let Some(value) = set(&name) {
                *place = of_others(&name, &value);
            }
        }
        quotas
    }

    pub(crate) fn of_device(&self, ordinal: i32) -> Option<Quota> {
        let own = usize::try_from(ordinal)
            .ok()
            .and_then(|n| *self.devices.get(n)?);
        own.or(self.every)
    }
}

/// A number without a unit that cannot mean bytes of memory: `0.8`, `8192`.
fn is_another_meaning(value: &str) -> bool {
    let number = value.parse::<f64>();
    number.is_ok_and(|number| number > 0.0 && number < quota::LEAST_BYTES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Quotas, Vec<String>) {
        let mut complaints = Vec::new();
        let variable = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        (Quotas::read(&variable, &mut complaints), complaints)
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn nothing_is_asked_for_by_default() {
        assert_eq!(read(&[("PILLION_MEMORY", "")]), Default::default());
    }

    #[test]
    fn our_variable_is_for_every_device_and_before_all_others() {
        let (quotas, complaints) = read(&[
            ("PILLION_MEMORY", "40%"),
            ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"),
        ]);
        for ordinal in [0, 5] {
            assert_eq!(quotas.of_device(ordinal), Some(Quota::Percent(40.0)));
        }
        assert!(complaints.is_empty());
    }

    // census: B11
    #[test]
    fn the_variables_of_other_systems_are_understood() {
        let bytes = |n: u64| Some(Quota::Bytes(n));
        let (quotas, _) = read(&[
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "4096m"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ]);
        assert_eq!(quotas.of_device(0), bytes(2 * GIB));
        assert_eq!(quotas.of_device(1), bytes(4 * GIB));
        let (quotas, _) = read(&[("GPU_MEMORY_LIMIT", "4096Mi")]);
        assert_eq!(quotas.of_device(3), bytes(4 * GIB));
        let (quotas, complaints) = read(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "0m")]);
        assert_eq!(quotas.of_device(0), Some(Quota::Unlimited));
        assert!(complaints.is_empty());
    }

    #[test]
    fn the_limit_of_mps_is_left_to_mps_as_it_is_each_processs() {
        let found = read(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,1=512MB")]);
        assert_eq!(found, Default::default());
    }

    #[test]
    fn a_generic_name_with_another_meaning_counts_as_not_set_and_that_is_said() {
        for value in ["0.8", "8192"] {
            for name in [
                "GPU_MEMORY_LIMIT",
                "CUDA_DEVICE_MEMORY_LIMIT",
                "CUDA_DEVICE_MEMORY_LIMIT_0",
            ] {
                let (quotas, complaints) = read(&[(name, value)]);
                assert_eq!(quotas.of_device(0), None, "{name}={value}");
                assert_eq!(complaints.len(), 1);
                assert!(complaints[0].contains("value ignored"), "{complaints:?}");
            }
        }
        let (quotas, _) = read(&[
            ("CUDA_DEVICE_MEMORY_LIMIT", "8192"),
            ("GPU_MEMORY_LIMIT", "1g"),
        ]);
        assert_eq!(quotas.of_device(0), Some(Quota::Bytes(GIB)));
        // Our variable means bytes: a unit was forgotten.
        let (quotas, complaints) = read(&[("PILLION_MEMORY", "10")]);
        assert_eq!(quotas.of_device(0), Some(NOTHING));
        assert!(complaints[0].contains("1MiB at least"), "{complaints:?}");
    }

    #[test]
    fn what_cannot_be_read_grants_nothing_and_says_why() {
        for name in [
            "PILLION_MEMORY",
            "CUDA_DEVICE_MEMORY_LIMIT_0",
            "GPU_MEMORY_LIMIT",
        ] {
            let (quotas, complaints) = read(&[(name, "plenty")]);
            assert_eq!(quotas.of_device(0), Some(NOTHING), "{name}");
            assert!(complaints[0].starts_with(name), "{complaints:?}");
            assert!(complaints[0].contains("\"plenty\""), "{complaints:?}");
        }
    }
}
