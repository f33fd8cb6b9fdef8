//! The table of devices: `gpus.csv`, whose first lines give the sources of its numbers. Units are
//! in the names of the fields. GB/s are 10⁹ bytes per second, so bytes ÷ GB/s are nanoseconds.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// No device of that name is in `gpus.csv`. Names compare without regard to case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device {name:?}; did you mean {nearest:?}? Known devices: {known}")]
pub struct UnknownDevice {
    /// The name asked for.
    pub name: String,
    /// The known name with the fewest edits; one that begins with the requested name, if any.
    pub nearest: String,
    /// All known names, separated by commas.
    pub known: String,
}

/// Limits and peaks of one model of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name in the table, as `--device` takes it.
    pub name: String,
    /// CUDA compute capability.
    pub compute_capability: ComputeCapability,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Resident threads per SM.
    pub threads_per_sm: u32,
    /// Resident blocks per SM.
    pub blocks_per_sm: u32,
    /// 32-bit registers per SM.
    pub registers_per_sm: u32,
    /// Shared memory per SM.
    pub shared_bytes_per_sm: u32,
    /// Shared memory that one block may request when it opts in.
    pub shared_bytes_per_block_optin: u32,
    /// Level 2 cache.
    pub l2_bytes: u64,
    /// Device memory.
    pub memory_bytes: u64,
    /// Peak bandwidth of device memory.
    pub bandwidth_gb_s: u32,
    /// Maximum clock of the SMs.
    pub max_clock_mhz: u32,
    /// Single-precision operations that an SM starts per clock.
    pub fp32_per_clk_per_sm: u32,
    /// Shared memory is allocated to blocks in multiples of this.
    pub shared_granularity_bytes: u32,
    /// Shared memory that the driver adds to each block.
    pub shared_reserved_per_block_bytes: u32,
    /// Board power.
    pub tdp_w: u32,
    /// Board power while no process has a CUDA context and the driver is loaded; `None` without a
    /// public measurement (docs/model.md, "Power at rest").
    pub idle_w: Option<u32>,
    /// The source of the row; see the head of `gpus.csv`.
    pub source: String,
}

/// CUDA compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// Generation.
    pub major: u32,
    /// Variant within the generation.
    pub minor: u32,
}

impl Device {
    /// All devices, in the order of the table.
    pub fn all() -> &'static [Self] {
        &DEVICES
    }

    /// The device of that name, without regard to case.
    /// # Errors
    /// [`UnknownDevice`], which names the nearest and all known ones.
    pub fn by_name(name: &str) -> Result<Self, UnknownDevice> {
        if let Some(device) = Self::all()
            .iter()
            .find(|d| d.name.eq_ignore_ascii_case(name))
        {
            return Ok(device.clone());
        }
        let names = || Self::all().iter().map(|d| d.name.as_str());
        let asked = name.to_ascii_lowercase();
        // A user who writes "V100" has omitted the rest of the name, and not mistyped "A10".
        let nearest = names().map(|n| (n, n.to_ascii_lowercase()));
        let nearest = nearest.min_by_key(|(_, n)| (!n.starts_with(&asked), edits(&asked, n)));
        let nearest = nearest.map(|(name, _)| name);
        Err(UnknownDevice {
            name: name.to_owned(),
            nearest: nearest.unwrap_or_default().to_owned(),
            known: names().collect::<Vec<_>>().join(", "),
        })
    }

    /// Peak single-precision throughput; a fused multiply-add counts as two operations.
    pub fn fp32_tflops(&self) -> f64 {
        let per_clock = f64::from(self.sms) * f64::from(self.fp32_per_clk_per_sm) * 2.0;
        per_clock * f64::from(self.max_clock_mhz) / 1e6
    }

    /// Clock of the device's memory. Bandwidth is clock × 2 × width ÷ 8; the table has the
    /// bandwidth, so the width is assumed.
    pub fn memory_clock_khz(&self) -> u32 {
        let khz = u64::from(self.bandwidth_gb_s) * 8 * 1_000_000 / (2 * Self::BUS_WIDTH_BITS);
        u32::try_from(khz).unwrap_or(u32::MAX)
    }

    /// Width of the memory bus of a V100, assumed of all.
    pub const BUS_WIDTH_BITS: u64 = 4096;
}

/// Single-precision operations that such an SM starts per clock; `None`: not in the table.
#[must_use]
pub fn fp32_per_clk_per_sm(major: u32, minor: u32) -> Option<u32> {
    let wanted = ComputeCapability { major, minor };
    let mut devices = DEVICES.iter();
    let device = devices.find(|device| device.compute_capability == wanted)?;
    Some(device.fp32_per_clk_per_sm)
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn parse_table(text: &str) -> Option<Vec<Device>> {
    let mut rows = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    if rows.next()? != HEADER {
        return None;
    }
    rows.map(parse_row).collect()
}

fn parse_row(row: &str) -> Option<Device> {
    let mut cells = row.split(',');
    let device = Device {
        name: next(&mut cells)?,
        compute_capability: parse_capability(cells.next()?)?,
        sms: next(&mut cells)?,
        threads_per_sm: next(&mut cells)?,
        blocks_per_sm: next(&mut cells)?,
        registers_per_sm: next(&mut cells)?,
        shared_bytes_per_sm: next(&mut cells)?,
        shared_bytes_per_block_optin: next(&mut cells)?,
        l2_bytes: next(&mut cells)?,
        memory_bytes: next(&mut cells)?,
        bandwidth_gb_s: next(&mut cells)?,
        max_clock_mhz: next(&mut cells)?,
        fp32_per_clk_per_sm: next(&mut cells)?,
        shared_granularity_bytes: next(&mut cells)?,
        shared_reserved_per_block_bytes: next(&mut cells)?,
        tdp_w: next(&mut cells)?,
        idle_w: next_if_known(&mut cells)?,
        source: next(&mut cells)?,
    };
    cells.next().is_none().then_some(device)
}

fn next<'a, T: FromStr>(cells: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    cells.next()?.parse().ok()
}

/// A cell that may be empty.
fn next_if_known<'a, T: FromStr>(cells: &mut impl Iterator<Item = &'a str>) -> Option<Option<T>> {
    match cells.next()? {
        "" => Some(None),
        cell => Some(Some(cell.parse().ok()?)),
    }
}

fn parse_capability(cell: &str) -> Option<ComputeCapability> {
    let (major, minor) = cell.split_once('.')?;
    Some(ComputeCapability {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// Levenshtein distance between two short ASCII names.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
    parse_table(include_str!("../gpus.csv"))
        .expect("gpus.csv is part of the crate and a test reads it")
});

const HEADER: &str = "name,compute_capability,sms,threads_per_sm,blocks_per_sm,registers_per_sm,\
shared_bytes_per_sm,shared_bytes_per_block_optin,l2_bytes,memory_bytes,bandwidth_gb_s,max_clock_mhz,\
fp32_per_clk_per_sm,shared_granularity_bytes,shared_reserved_per_block_bytes,tdp_w,idle_w,source";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_of_the_table_is_read() {
        assert_eq!(Device::all().len(), 22);
        let names: BTreeSet<_> = Device::all().iter().map(|d| &d.name).collect();
        assert_eq!(names.len(), 22);
    }

    #[test]
    fn v100_has_its_published_limits() {
        let v100 = Device::by_name("V100-SXM2-16GB").unwrap();
        assert_eq!(
            (v100.sms, v100.threads_per_sm, v100.blocks_per_sm),
            (80, 2048, 32)
        );
        assert_eq!(
            v100.compute_capability,
            ComputeCapability { major: 7, minor: 0 }
        );
        assert!(
            (v100.fp32_tflops() - 15.7).abs() < 0.1,
            "{}",
            v100.fp32_tflops()
        );
    }

    #[test]
    fn p100_has_its_published_limits() {
        for (name, tflops) in [("P100-PCIE-16GB", 9.5), ("P100-SXM2-16GB", 10.6)] {
            let p100 = Device::by_name(name).unwrap();
            let sm = (p100.sms, p100.threads_per_sm, p100.blocks_per_sm);
            assert_eq!(sm, (56, 2048, 32));
            assert_eq!(p100.compute_capability.to_string(), "6.0");
            // NVIDIA's clock for the memory, 715 MHz, derived from the bandwidth.
            assert_eq!(p100.memory_clock_khz() / 1000, 714);
            assert!((p100.fp32_tflops() - tflops).abs() < 0.1, "{name}");
        }
    }

    #[test]
    fn a_v100_of_32_gb_differs_from_that_of_16_in_memory_alone() {
        let small = Device::by_name("V100-SXM2-16GB").unwrap();
        let large = Device::by_name("V100-SXM2-32GB").unwrap();
        assert_eq!(large.memory_bytes, 2 * small.memory_bytes);
        let name = small.name.clone();
        let Device {
            memory_bytes,
            idle_w,
            ref source,
            ..
        } = small;
        let as_small = Device {
            name,
            memory_bytes,
            idle_w,
            source: source.clone(),
            ..large
        };
        assert_eq!(as_small, small);
    }

    #[test]
    fn power_at_rest_is_a_small_part_of_board_power_or_unknown() {
        for device in Device::all() {
            let idle_w = device.idle_w.unwrap_or(1);
            assert!(idle_w > 0 && 4 * idle_w < device.tdp_w, "{}", device.name);
        }
        let idle_w = |name| Device::by_name(name).unwrap().idle_w;
        assert_eq!(idle_w("T4"), Some(9));
        assert_eq!(idle_w("V100-SXM2-32GB"), Some(44));
        assert_eq!(idle_w("B200"), None);
    }

    #[test]
    fn names_ignore_case() {
        assert_eq!(Device::by_name("t4").unwrap().name, "T4");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_and_the_known() {
        let text = Device::by_name("V100-SXM2-16G").unwrap_err().to_string();
        assert!(text.contains("did you mean \"V100-SXM2-16GB\"?"), "{text}");
        assert!(text.contains("T4, TITAN-RTX"), "{text}");
        let text = Device::by_name("v100").unwrap_err().to_string();
        assert!(text.contains("did you mean \"V100-SXM2-16GB\"?"), "{text}");
    }

    #[test]
    fn a_table_with_a_short_or_long_row_is_refused() {
        assert!(parse_row("X,7.0,80").is_none());
        let row = include_str!("../gpus.csv").lines().last().unwrap();
        assert!(parse_row(row).is_some());
        assert!(parse_row(&format!("{row},1")).is_none());
        // An empty cell means that nobody has measured it; a word is a mistake.
        let with_word = row.replace(",180,,", ",180,little,");
        assert_ne!(with_word, row);
        assert!(parse_row(&with_word).is_none());
    }
}
