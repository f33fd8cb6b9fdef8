//! The node whose free resources point least in the direction of the request: ⌊100 (1 − ½ (C·c ⁄
//! Cmax² + L·g ⁄ Lmax²))⌋, with the letters of [`BestFit`](super::fits::BestFit). `DotProd` of the
//! simulator of FGD (ATC'23; dimensions merged, the greatest score wins): nodes with more of what
//! is asked for score lower, which packs.

use crate::job::JobSpec;
use crate::placement::fits::{ratio, tightest};
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct DotProduct {
    /// Host CPU of the largest node.
    pub cpu_milli_max: u64,
    /// GPUs of the largest node, in thousandths.
    pub gpu_milli_max: u64,
}

impl Rule for DotProduct {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        let slots = tightest(node, job, milli)?;
        let asked = u64::from(job.gpus) * u64::from(milli);
        let cpu = ratio(
            node.free_cpu_milli * job.cpu_milli,
            self.cpu_milli_max * self.cpu_milli_max,
        );
        let gpu = ratio(
            node.free_milli() * asked,
            self.gpu_milli_max * self.gpu_milli_max,
        );
        let score = 100.0 * (1.0 - 0.5 * (cpu + gpu));
        Some(([score as i64, 0, 0], slots))
    }
}
