//! Recent compute time of each process, as NVML samples it.
//! nvml.h, `nvmlDeviceGetProcessUtilization`: a sample for each process that computed in the last
//! sample period, of a sixth of a second to a second, in whole per cent. MIG instances have none.

use core::ffi::{c_uint, c_ulonglong, c_void};

use super::reports::Gauges;
use super::{
    Device, INSUFFICIENT_SIZE, NOT_SUPPORTED, NvmlError, Open, PROCESSES_MAX, check, open_device,
};

/// `nvmlProcessUtilizationSample_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct UseSample {
    pid: c_uint,
    time_stamp_us: c_ulonglong,
    sm_pct: c_uint,
    memory_pct: c_uint,
    encoder_pct: c_uint,
    decoder_pct: c_uint,
}

type GetUses =
    unsafe extern "C" fn(*mut c_void, *mut UseSample, *mut c_uint, c_ulonglong) -> c_uint;

/// NVML_ERROR_NOT_FOUND: no process computed, or nothing is newer.
const NOT_FOUND: c_uint = 6;

const NAME: &str = "nvmlDeviceGetProcessUtilization";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProcessUse {
    pub(crate) pid: u32,
    /// 0 to 1.
    pub(crate) share: f64,
}

enum Samples {
    Some(Vec<UseSample>),
    /// No process computed, or nothing is newer.
    None,
    NotSupported,
}

pub(crate) struct Uses {
    device: Device,
    get: GetUses,
    last_us: c_ulonglong,
    gauges: Gauges,
    /// Keeps NVML open for the calls.
    _library: Open,
}

impl Uses {
    /// For the device with this UUID.
    pub(crate) fn open(uuid: &str) -> Result<Self, NvmlError> {
        let (library, device) = open_device(uuid)?;
        // SAFETY: nvml.h's signature for the name; the library stays open while it may be called.
        let get = unsafe { library.get::<GetUses>(NAME) };
        let get = *get.map_err(|_| NvmlError::NoSymbol(NAME))?;
        Ok(Self {
            device,
            get,
            last_us: 0,
            gauges: Gauges::open(uuid)?,
            _library: library,
        })
    }

    /// Processes that computed in the last sample period, each with its newest sample. `None`:
    /// nothing new, or NVML does not know. NVML answers the same if no process computed; the
    /// device's total utilisation distinguishes that case.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<ProcessUse>>, NvmlError> {
        match self.samples(self.last_us)? {
            Samples::Some(samples) => Ok(Some(newest(&samples, &mut self.last_us))),
            Samples::None => {
                let is_idle = self.gauges.busy_pct() == Some(0);
                Ok(is_idle.then(Vec::new))
            }
            Samples::NotSupported => Ok(None),
        }
    }

    /// Processes that computed by a sample since then, us since 1970; none if NVML does not know.
    pub(crate) fn computed_since(&self, since_us: u64) -> Result<Vec<u32>, NvmlError> {
        let Samples::Some(samples) = self.samples(since_us)? else {
            return Ok(Vec::new());
        };
        let computed = |sample: &&UseSample| {
            sample.time_stamp_us >= since_us && (1..=100).contains(&sample.sm_pct)
        };
        let computed = samples.iter().filter(computed);
        Ok(computed.map(|sample| sample.pid).collect())
    }

    /// NVML's samples since that time on its clock.
    fn samples(&self, last_us: c_ulonglong) -> Result<Samples, NvmlError> {
        let none = UseSample {
            pid: 0,
            time_stamp_us: 0,
            sm_pct: 0,
            memory_pct: 0,
            encoder_pct: 0,
            decoder_pct: 0,
        };
        let mut room = 64;
        loop {
            let mut samples = vec![none; room];
            let mut count = room as c_uint;
            // SAFETY: room for `count` samples.
            let result =
                unsafe { (self.get)(self.device.0, samples.as_mut_ptr(), &raw mut count, last_us) };
            match result {
                INSUFFICIENT_SIZE if room < PROCESSES_MAX => room *= 4,
                NOT_FOUND => return Ok(Samples::None),
                NOT_SUPPORTED => return Ok(Samples::NotSupported),
                result => {
                    check(NAME, result)?;
                    samples.truncate(count as usize);
                    return Ok(Samples::Some(samples));
                }
            }
        }
    }
}

/// The newest sample of each process; sets `last_us` to the newest stamp of all.
fn newest(samples: &[UseSample], last_us: &mut c_ulonglong) -> Vec<ProcessUse> {
    let mut newest: Vec<UseSample> = Vec::with_capacity(samples.len());
    for sample in samples.iter().filter(|sample| sample.sm_pct <= 100) {
        *last_us = sample.time_stamp_us.max(*last_us);
        match newest.iter_mut().find(|known| known.pid == sample.pid) {
            Some(known) if known.time_stamp_us >= sample.time_stamp_us => {}
            Some(known) => *known = *sample,
            None => newest.push(*sample),
        }
    }
    let uses = newest.iter().map(|sample| ProcessUse {
        pid: sample.pid,
        share: f64::from(sample.sm_pct) / 100.0,
    });
    uses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_process_the_newest_sample_counts_and_what_is_no_share_does_not() {
        let sample = |pid, time_stamp_us, sm_pct| UseSample {
            pid,
            time_stamp_us,
            sm_pct,
            memory_pct: 0,
            encoder_pct: 0,
            decoder_pct: 0,
        };
        let mut last_us = 5;
        let samples = [
            sample(7, 10, 30),
            sample(8, 11, 101),
            sample(7, 12, 40),
            sample(7, 11, 50),
        ];
        let uses = newest(&samples, &mut last_us);
        assert_eq!(
            (uses, last_us),
            (vec![ProcessUse { pid: 7, share: 0.4 }], 12)
        );
    }
}
