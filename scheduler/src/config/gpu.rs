//! The GPU that a daemon schedules: how it is selected, and its description.
//! A GPU is selected by its index, its UUID or a prefix of it, or its PCI bus id. The index counts
//! GPUs in the order of their bus ids, as `nvidia-smi` does. CUDA's own order puts the fastest
//! first and depends on the environment, so it would select another GPU for every user.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An operator's selection of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// The n-th GPU of this machine in the order of bus ids, from 0.
    Index(usize),
    /// The GPU whose UUID has this prefix.
    Uuid(String),
    /// The GPU at this bus id.
    Pci(PciAddress),
}

impl FromStr for Select {
    type Err = Infallible;

    /// A number is an index, a bus id is one, and anything else is a prefix of a UUID.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match (text.parse(), text.parse()) {
            (Ok(index), _) => Self::Index(index),
            (_, Ok(pci)) => Self::Pci(pci),
            _ => Self::Uuid(text.to_owned()),
        })
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "index {index}"),
            Self::Uuid(uuid) => write!(f, "uuid {uuid}"),
            Self::Pci(pci) => write!(f, "pci {pci}"),
        }
    }
}

/// A PCI bus id: `domain:bus:device.function`, hexadecimal; domain and function are optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PciAddress {
    /// PCI domain; `nvidia-smi` prints eight digits, CUDA four.
    pub domain: u32,
    /// Bus within the domain.
    pub bus: u8,
    /// Device on the bus.
    pub device: u8,
    /// Function of the device, 0 to 7.
    pub function: u8,
}

/// A text that is no PCI bus id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a PCI bus id; one looks like 0000:01:00.0")]
pub struct NotPci;

impl FromStr for PciAddress {
    type Err = NotPci;

    fn from_str(text: &str) -> Result<Self, NotPci> {
        let hex = |part: &str, digits: usize| {
            let is_hex = (1..=digits).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(part, 16)
                .ok()
                .filter(|_| is_hex)
                .ok_or(NotPci)
        };
        let (rest, function) = text.split_once('.').unwrap_or((text, "0"));
        let parts: Vec<&str> = rest.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [domain, bus, device] => (domain, bus, device),
            [bus, device] => ("0", bus, device),
            _ => return Err(NotPci),
        };
        let function = hex(function, 1)?;
        let device = hex(device, 2)?;
        // A bus has 32 devices of 8 functions each.
        if function > 7 || device > 31 {
            return Err(NotPci);
        }
        Ok(Self {
            domain: hex(domain, 8)?,
            bus: hex(bus, 2)? as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// A GPU of this machine, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// As NVML prints it, `GPU-…` (or `MIG-…`).
    pub uuid: String,
    /// Model.
    pub name: String,
    /// PCI bus id.
    pub pci: PciAddress,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory, bytes; 0 if the driver does not report it.
    pub memory_bytes: u64,
    /// The newest CUDA version of its driver, from `cuDriverGetVersion`; 0 if unknown.
    pub cuda_driver: u32,
    /// Whether priorities between blocks of different processes work, as reported by a software
    /// GPU's server; other drivers do not report it.
    pub block_priority: Option<bool>,
}

impl Gpu {
    /// Whether a driver's UUID means this GPU. A driver reports 16 bytes and not whether they are a
    /// GPU's or a MIG instance's, so the prefix does not count.
    #[must_use]
    pub fn is(&self, uuid: &str) -> bool {
        let bytes = |uuid: &str| {
            uuid.split_once('-')
                .map(|(_, hex)| hex.to_ascii_lowercase())
        };
        bytes(&self.uuid).is_some_and(|own| bytes(uuid) == Some(own))
    }
}

/// Why a selection does not yield one GPU. An operator's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No such GPU.
    #[error("no GPU with {select}; GPUs found: {found}")]
    Missing {
        /// The selection.
        select: Select,
        /// The present GPUs.
        found: String,
    },
    /// Several UUIDs have that prefix.
    #[error("{select} is a prefix of several UUIDs: {found}")]
    Ambiguous {
        /// The selection.
        select: Select,
        /// The matching GPUs.
        found: String,
    },
}

/// The one GPU of `gpus` that `select` selects.
/// # Errors
/// None or several match; the message lists the present GPUs.
pub fn choose(mut gpus: Vec<Gpu>, select: &Select) -> Result<Gpu, SelectError> {
    gpus.sort_by_key(|gpu| gpu.pci);
    let fits: Vec<&Gpu> = match select {
        Select::Index(index) => gpus.get(*index).into_iter().collect(),
        Select::Uuid(prefix) => {
            let prefix = prefix.to_ascii_lowercase();
            let begins = |gpu: &&Gpu| gpu.uuid.to_ascii_lowercase().starts_with(&prefix);
            gpus.iter().filter(begins).collect()
        }
        Select::Pci(pci) => gpus.iter().filter(|gpu| gpu.pci == *pci).collect(),
    };
    match fits[..] {
        [gpu] => Ok(gpu.clone()),
        [] => Err(SelectError::Missing {
            select: select.clone(),
            found: listed(&gpus.iter().collect::<Vec<_>>()),
        }),
        _ => Err(SelectError::Ambiguous {
            select: select.clone(),
            found: listed(&fits),
        }),
    }
}

fn listed(gpus: &[&Gpu]) -> String {
    let lines: Vec<String> = gpus
        .iter()
        .map(|gpu| format!("{} ({}, {})", gpu.uuid, gpu.name, gpu.pci))
        .collect();
    if lines.is_empty() {
        "none".to_owned()
    } else {
        lines.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(uuid: &str, pci: &str) -> Gpu {
        Gpu {
            uuid: uuid.to_owned(),
            name: "V100-SXM2-16GB".to_owned(),
            pci: pci.parse().unwrap(),
            sms: 80,
            memory_bytes: 16 << 30,
            cuda_driver: 12_080,
            block_priority: None,
        }
    }

    fn two() -> Vec<Gpu> {
        vec![
            gpu("GPU-aa22", "0000:81:00.0"),
            gpu("GPU-aa11", "0000:04:00.0"),
        ]
    }

    #[test]
    fn an_index_counts_in_the_order_of_bus_ids() {
        assert_eq!(choose(two(), &Select::Index(0)).unwrap().uuid, "GPU-aa11");
        assert_eq!(choose(two(), &Select::Index(1)).unwrap().uuid, "GPU-aa22");
    }

    #[test]
    fn a_gpu_is_known_by_the_bytes_of_its_uuid() {
        for (own, told, is_same) in [
            ("GPU-aa11", "GPU-aa11", true),
            ("GPU-aa11", "GPU-AA11", true),
            ("MIG-aa11", "GPU-aa11", true),
            ("GPU-aa11", "GPU-aa12", false),
            ("GPU-aa11", "", false),
        ] {
            assert_eq!(gpu(own, "0000:04:00.0").is(told), is_same, "{own} {told}");
        }
    }

    #[test]
    fn the_beginning_of_a_uuid_will_do_if_one_gpu_has_it() {
        let select = |text: &str| choose(two(), &Select::Uuid(text.to_owned()));
        assert_eq!(select("GPU-AA2").unwrap().uuid, "GPU-aa22");
        let error = select("GPU-aa").unwrap_err().to_string();
        assert!(
            error.contains("GPU-aa11") && error.contains("GPU-aa22"),
            "{error}"
        );
    }

    #[test]
    fn a_bus_id_is_one_however_it_is_written() {
        for text in [
            "0000:81:00.0",
            "00000000:81:00.0",
            "81:00.0",
            "81:0",
            "0:81:00",
        ] {
            let pci = text.parse().unwrap();
            assert_eq!(
                choose(two(), &Select::Pci(pci)).unwrap().uuid,
                "GPU-aa22",
                "{text}"
            );
        }
        for text in [
            "", "81", "0:0:81:0", "81:20.0", "81:00.8", "xx:00.0", "+1:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(NotPci), "{text}");
        }
    }

    #[test]
    fn a_gpu_that_is_not_there_is_answered_with_those_that_are() {
        let error = choose(two(), &Select::Index(2)).unwrap_err().to_string();
        assert_eq!(
            error,
            "no GPU with index 2; GPUs found: GPU-aa11 (V100-SXM2-16GB, 0000:04:00.0), \
             GPU-aa22 (V100-SXM2-16GB, 0000:81:00.0)"
        );
        let error = choose(Vec::new(), &Select::Index(0))
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("; GPUs found: none"), "{error}");
    }
}
