//! Selects the GPU of a profile.

use devices::Device;

use crate::error::Error;
use crate::gpu::Gpu;
use crate::source::{Launch, Source};

pub(super) struct Choice {
    /// Its name in the profile: the device table's if that has it, else the driver's.
    pub(super) name: String,
    pub(super) gpu: Gpu,
    pub(super) device: Option<&'static Device>,
    pub(super) notices: Vec<String>,
    /// For each source, which of its GPUs are selected; launches on the others are left out.
    taken: Vec<Vec<bool>>,
}

impl Choice {
    pub(super) fn takes(&self, source: usize, launch: &Launch) -> bool {
        let gpus = self.taken.get(source);
        gpus.and_then(|gpus| gpus.get(usize::from(launch.gpu)).copied())
            .unwrap_or(true)
    }
}

pub(super) fn choose(sources: &[Source], asked: Option<&str>) -> Result<Choice, Error> {
    let asked = match asked {
        Some(name) => {
            let name = Device::by_name(name)?.name;
            Device::all().iter().find(|device| device.name == name)
        }
        None => None,
    };
    let mut names: Vec<String> = Vec::new();
    let all = sources.iter().flat_map(|source| &source.gpus);
    for name in all.filter_map(name_of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let is_meant = |gpu: &Gpu| asked.is_none_or(|device| may_be(gpu, device));
    let taken: Vec<Vec<bool>> = sources
        .iter()
        .map(|source| source.gpus.iter().map(is_meant).collect())
        .collect();
    let mut meant = sources
        .iter()
        .flat_map(|source| &source.gpus)
        .filter(|gpu| is_meant(gpu));
    let known = meant.clone().find(|gpu| gpu.name.is_some());
    let gpu = known.or_else(|| meant.next());
    match asked {
        None if names.len() > 1 => return Err(Error::SeveralGpus { gpus: names }),
        Some(device) if gpu.is_none() && !names.is_empty() => {
            return Err(Error::OtherGpu {
                asked: device.name.clone(),
                gpus: names,
            });
        }
        _ => {}
    }
    let gpu = gpu.cloned().unwrap_or_default();
    let mut notices: Vec<String> = gpu.sms_notice().into_iter().collect();
    for (source, taken) in sources.iter().zip(&taken) {
        let gpus = taken.iter().filter(|is_taken| **is_taken).count();
        if gpus > 1 {
            notices.push(format!(
                "{}: launches on {gpus} GPUs of one model are counted together",
                source.label
            ));
        }
    }
    let device = asked.or_else(|| gpu.model());
    let name = device
        .map(|device| device.name.clone())
        .or_else(|| name_of(&gpu))
        .unwrap_or_else(|| {
            notices.push(
                "the files do not name the measured GPU; name it with `import --device MODEL`"
                    .to_owned(),
            );
            "unknown".to_owned()
        });
    Ok(Choice {
        name,
        gpu,
        device,
        notices,
        taken,
    })
}

fn name_of(gpu: &Gpu) -> Option<String> {
    let model = gpu.model().map(|device| device.name.clone());
    model.or_else(|| gpu.name.clone())
}

/// Whether `gpu` can be `device`: its model or chip, or unnamed and not of another architecture.
fn may_be(gpu: &Gpu, device: &Device) -> bool {
    if gpu.name.is_some() {
        let relative = gpu.model().or_else(|| gpu.relative());
        return relative.is_some_and(|relative| relative.name == device.name);
    }
    let capability = device.compute_capability;
    gpu.compute_capability
        .is_none_or(|stated| stated == (capability.major, capability.minor))
}
