//! Drivers' names for the models of the table.

use crate::Device;

/// The model of the table that a driver calls `name`, if there is one.
#[must_use]
pub fn model_of(name: &str) -> Option<&'static Device> {
    let model = MODELS.iter().find(|model| model.is(name))?;
    find(model.device)
}

/// A model of the table with the same chip, if the table lacks the GPU that a driver calls `name`
/// but has another board with that chip: SMs are comparable, memory is not.
#[must_use]
pub fn relative_of(name: &str) -> Option<&'static Device> {
    let relative = RELATIVES.iter().find(|model| model.is(name));
    model_of(name).or_else(|| find(relative?.device))
}

/// Words that a driver's name must have, must not have, and the name in the table.
struct Model {
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    device: &'static str,
}

impl Model {
    fn is(&self, name: &str) -> bool {
        let has = |word: &&str| {
            name.split(|c: char| !c.is_ascii_alphanumeric())
                .any(|part| part.eq_ignore_ascii_case(word))
        };
        self.has.iter().all(has) && !self.lacks.iter().any(has)
    }
}

const fn model(
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    device: &'static str,
) -> Model {
    Model { has, lacks, device }
}

/// Drivers' names for the models of the table: `cudaDeviceProp.name` as seen in real reports, with
/// and without the brand ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"). Also the table's own.
const MODELS: [Model; 27] = [
    model(&["P100", "PCIE", "16GB"], &[], "P100-PCIE-16GB"),
    model(&["P100", "SXM2", "16GB"], &[], "P100-SXM2-16GB"),
    model(&["V100", "SXM2", "16GB"], &["MIG"], "V100-SXM2-16GB"),
    model(&["V100", "SXM2", "32GB"], &["MIG"], "V100-SXM2-32GB"),
    model(&["T4"], &["MIG"], "T4"),
    model(&["TITAN", "RTX"], &[], "TITAN-RTX"),
    model(&["A100", "SXM4", "40GB"], &["MIG"], "A100-SXM4-40GB"),
    model(&["A100", "SXM4", "80GB"], &["MIG"], "A100-SXM4-80GB"),
    model(&["A100", "SXM", "80GB"], &["MIG"], "A100-SXM4-80GB"),
    model(&["A30"], &["MIG"], "A30"),
    model(&["A10"], &["MIG"], "A10"),
    model(&["A40"], &["MIG"], "A40"),
    model(&["RTX", "A6000"], &[], "RTX-A6000"),
    model(&["RTX", "3090"], &["TI", "LAPTOP"], "RTX-3090"),
    model(&["RTX", "3060"], &["TI", "LAPTOP"], "RTX-3060"),
    model(&["L4"], &["MIG"], "L4"),
    model(&["L40S"], &["MIG"], "L40S"),
    model(&["RTX", "4090"], &["D", "LAPTOP"], "RTX-4090"),
    model(&["H100", "PCIe"], &["MIG"], "H100-PCIe"),
    model(&["H100", "HBM3", "80GB"], &["MIG"], "H100-SXM5-80GB"),
    model(&["H100", "SXM5", "80GB"], &["MIG"], "H100-SXM5-80GB"),
    model(
        &["H100", "SXM5"],
        &["MIG", "96GB", "64GB"],
        "H100-SXM5-80GB",
    ),
    model(&["H200"], &["MIG", "NVL", "GH200"], "H200"),
    model(&["B200"], &["MIG"], "B200"),
    model(&["RTX", "5060", "Ti"], &["LAPTOP"], "RTX-5060-Ti"),
    model(&["RTX5060Ti"], &[], "RTX-5060-Ti"),
    model(&["RTX4090"], &[], "RTX-4090"),
];

/// Boards that the table lacks, with the SMs of one that it has.
const RELATIVES: [Model; 8] = [
    model(&["P100"], &[], "P100-PCIE-16GB"),
    model(&["V100"], &["V100S"], "V100-SXM2-16GB"),
    model(&["A100"], &[], "A100-SXM4-40GB"),
    model(&["Quadro", "RTX", "6000"], &["Ada"], "TITAN-RTX"),
    model(&["A30"], &[], "A30"),
    model(&["H100", "PCIe"], &[], "H100-PCIe"),
    model(&["H100", "HBM3"], &[], "H100-SXM5-80GB"),
    model(&["H200"], &[], "H200"),
];

fn find(name: &str) -> Option<&'static Device> {
    Device::all().iter().find(|device| device.name == name)
}

#[cfg(test)]
mod tests {
    use super::{MODELS, RELATIVES, find, model_of};
    use crate::Device;

    #[test]
    fn the_names_of_drivers_lead_to_the_device_table() {
        for (name, expected) in [
            ("Tesla V100-SXM2-16GB", Some("V100-SXM2-16GB")),
            ("Tesla V100-SXM2-32GB", Some("V100-SXM2-32GB")),
            ("Tesla V100-DGXS-32GB", None),
            ("Tesla P100-PCIE-16GB", Some("P100-PCIE-16GB")),
            ("Tesla P100-SXM2-16GB", Some("P100-SXM2-16GB")),
            ("Tesla P100-PCIE-12GB", None),
            ("NVIDIA A100-SXM4-40GB", Some("A100-SXM4-40GB")),
            ("NVIDIA A100-SXM4-80GB", Some("A100-SXM4-80GB")),
            ("NVIDIA A100-PG509-200", None),
            ("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB")),
            ("NVIDIA H100 PCIe", Some("H100-PCIe")),
            ("Tesla T4", Some("T4")),
            ("NVIDIA A10G", None),
            ("NVIDIA A10", Some("A10")),
            ("NVIDIA GeForce RTX 4060 Ti", None),
            ("NVIDIA A30 MIG 2g.12gb", None),
            ("h100-sxm5-80gb", Some("H100-SXM5-80GB")),
        ] {
            let model = model_of(name).map(|device| device.name.as_str());
            assert_eq!(model, expected, "{name}");
        }
    }

    #[test]
    fn every_model_is_in_the_table_and_every_device_leads_to_itself() {
        for model in MODELS.iter().chain(&RELATIVES) {
            assert!(find(model.device).is_some(), "{}", model.device);
        }
        for device in Device::all() {
            assert_eq!(model_of(&device.name), Some(device));
        }
    }
}
