//! Checks the driver, NVML, and the GPUs that they show.

use scheduler::config::gpu::Gpu;
use scheduler::host::device;
use scheduler::host::nvml;
use scheduler::report::told_once;

use super::{Finding, Verdict};

pub(super) fn examine(findings: &mut Vec<Finding>) -> Vec<Gpu> {
    let driver = library();
    let is_there = driver.verdict != Verdict::Error;
    findings.push(driver);
    if !is_there {
        findings.push(management());
        return Vec::new();
    }
    let gpus = match device::gpus() {
        Ok(gpus) => gpus,
        Err(error) => {
            findings.push(Finding::error(
                "GPUs",
                told_once(&error),
                "check `nvidia-smi`; start a container with the NVIDIA runtime (--gpus); without a \
                 GPU, `pillion demo` runs on the software GPU",
            ));
            findings.push(management());
            return Vec::new();
        }
    };
    for gpu in &gpus {
        let found = format!("{}, {} SMs, at {}", gpu.name, gpu.sms, gpu.pci);
        findings.push(Finding::ok(format!("GPU {}", gpu.uuid), found));
    }
    findings.push(management());
    gpus
}

/// Compares the driver's version with the newest in the table of entry points.
fn library() -> Finding {
    const SUBJECT: &str = "driver";
    let version = device::library_path().and_then(|path| Ok((path, device::driver_version()?)));
    let (path, version) = match version {
        Ok(found) => found,
        Err(error) => {
            return Finding::error(
                SUBJECT,
                told_once(&error),
                "install the NVIDIA driver, or let the loader find it (ldconfig, LD_LIBRARY_PATH); \
                 `pillion demo` needs no driver",
            );
        }
    };
    let path = path.map_or_else(|| "libcuda.so.1".to_owned(), |p| p.display().to_string());
    let found = format!("{path}, CUDA {}", dotted(version));
    let newest = newest_known();
    if version / 10 > newest / 10 {
        return Finding::warning(
            SUBJECT,
            found,
            format!(
                "this Pillion knows the entry points of CUDA up to {}; later ones are not hooked: \
                 update Pillion",
                dotted(newest)
            ),
        );
    }
    if version < OLDEST {
        return Finding::warning(
            SUBJECT,
            found,
            format!(
                "Pillion is tested with CUDA {} and later: update the driver",
                dotted(OLDEST)
            ),
        );
    }
    Finding::ok(SUBJECT, found)
}

/// NVML reports the real memory and time of each process.
fn management() -> Finding {
    const SUBJECT: &str = "NVML";
    match nvml::ask() {
        Ok(nvml) => {
            let path = nvml.library.map_or_else(
                || "libnvidia-ml.so.1".to_owned(),
                |path| path.display().to_string(),
            );
            Finding::ok(SUBJECT, format!("{path}, driver {}", nvml.driver_version))
        }
        Err(error) => Finding::warning(
            SUBJECT,
            told_once(&error),
            "tools such as nvidia-smi need NVML; Pillion manages jobs without it",
        ),
    }
}

/// The oldest CUDA with which Pillion is tested.
const OLDEST: u32 = 11_070;

fn newest_known() -> u32 {
    let versions = abi::ENTRY_POINTS.iter().map(|entry| entry.version);
    versions.max().unwrap_or(OLDEST)
}

fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
