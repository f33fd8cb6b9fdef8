//! Multi-Instance GPU (MIG): which instances fit where on one GPU.
//!
//! A GPU that can be divided has *compute slices* (seventh parts of its SMs; quarters on an A30)
//! and *memory slices* (eighth parts of its memory, L2 and bandwidth; quarters on an A30). An
//! instance of a *profile* takes some of both. Its memory slices are adjacent and start only at the
//! profile's legal starts. The driver chooses its compute slices, so only their sum counts. Freed
//! slices do not move together, so an instance's start decides what still fits:
//! [`Layout::best_start`].
//!
//! An instance is a GPU of its own: it has a UUID (`MIG-…`), its processes see no other, its
//! kernels and cache are its own, and so it gets its own daemon and its own profile of each job (as
//! many SMs as the instance has). Placement decides twice: into which instances a GPU is divided,
//! here, and which jobs share an instance, as on any GPU. Instances share the power budget and the
//! PCIe link. They are created and destroyed while others run, but never moved or resized, and the
//! mode is switched only while no process uses the GPU.
//!
//! Numbers: NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles", and `nvidia-smi mig
//! -lgipp` (starts) and `-lgip` (memory). Left out: the media profiles (`+me`), placed as those
//! without, and the B200, for lack of printed memory sizes for all profiles.

/// A model of GPU that can be divided.
#[derive(Debug, PartialEq, Eq)]
pub struct MigModel {
    /// Its name in the device table.
    pub device: &'static str,
    /// Compute slices of the whole GPU.
    pub compute_slices: u32,
    /// Memory slices of the whole GPU; at most [`MEMORY_SLICES_MAX`].
    pub memory_slices: u32,
    /// The possible instances, smallest first.
    pub profiles: &'static [Profile],
}

/// A size of instance.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// As NVIDIA writes it, without `MIG`: `3g.20gb`.
    pub name: &'static str,
    /// Compute slices that an instance takes.
    pub compute_slices: u32,
    /// Memory slices that an instance takes.
    pub memory_slices: u32,
    /// Memory of an instance. Drivers differ by up to 0.25 GiB.
    pub memory_mib: u32,
    /// First memory slices that an instance may have, ascending.
    pub starts: &'static [u32],
}

/// First memory slice of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Start(pub u32);

/// An instance on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its size.
    pub profile: &'static Profile,
    /// Where it is.
    pub start: Start,
}

/// The instances of one GPU. *Invariants ([`Self::is_valid`]): instances start at legal starts of
/// the model's profiles, share no memory slice, and have enough compute slices.*
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    model: &'static MigModel,
    instances: Vec<Instance>,
}

/// An instance cannot begin there now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{profile} cannot start at memory slice {start}; free starts: {free:?}")]
pub struct NotFree {
    /// The profile's name.
    pub profile: &'static str,
    /// The requested start.
    pub start: u32,
    /// The legal starts that are free.
    pub free: Vec<u32>,
}

impl MigModel {
    /// The model with that name in the device table; `None` if it cannot be divided.
    #[must_use]
    pub fn of(device: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.device == device)
    }

    /// An instance's part of the GPU's SMs, in thousandths, rounded down.
    #[must_use]
    pub const fn milli(&self, profile: &Profile) -> u32 {
        1000 * profile.compute_slices / self.compute_slices
    }

    /// The profile of that name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }
}

impl Layout {
    /// A GPU of which nothing is taken.
    #[must_use]
    pub const fn empty(model: &'static MigModel) -> Self {
        Self {
            model,
            instances: Vec::new(),
        }
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &'static MigModel {
        self.model
    }

    /// The instances, by start.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Where an instance of `profile` can be placed now, ascending; nowhere if the model lacks it.
    pub fn starts(&self, profile: &'static Profile) -> impl Iterator<Item = Start> {
        let taken = self.taken();
        let is_of_model = self.model.profiles.contains(profile);
        let is_possible = is_of_model && profile.compute_slices <= self.compute_slices_free();
        let starts = profile.starts.iter().map(|&start| Start(start));
        starts.filter(move |&start| is_possible && taken & profile.mask(start) == 0)
    }

    /// The start where placing `profile` rules out the fewest of the placements (a profile of the
    /// model at a start) that are possible now. The lowest of equals.
    #[must_use]
    pub fn best_start(&self, profile: &'static Profile) -> Option<Start> {
        let before = self.placements_count();
        let lost = |start| {
            let mut after = self.clone();
            after.insert(Instance { profile, start });
            before - after.placements_count()
        };
        // `min_by_key` returns the first of equals, and starts ascend.
        self.starts(profile).min_by_key(|&start| lost(start))
    }

    /// Places an instance.
    ///
    /// # Errors
    /// [`NotFree`] if `start` is not one of [`Self::starts`].
    pub fn place(&mut self, profile: &'static Profile, start: Start) -> Result<(), NotFree> {
        if !self.starts(profile).any(|free| free == start) {
            return Err(NotFree {
                profile: profile.name,
                start: start.0,
                free: self.starts(profile).map(|free| free.0).collect(),
            });
        }
        self.insert(Instance { profile, start });
        Ok(())
    }

    /// Removes the instance that begins at `start`, if there is one.
    pub fn remove(&mut self, start: Start) -> Option<Instance> {
        let is_there = |instance: &Instance| instance.start == start;
        let index = self.instances.iter().position(is_there)?;
        Some(self.instances.remove(index))
    }

    /// The invariants.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut taken = 0;
        let mut compute_slices = 0;
        let are_apart = self.instances.iter().all(|&Instance { profile, start }| {
            let is_free = taken & profile.mask(start) == 0;
            taken |= profile.mask(start);
            compute_slices += profile.compute_slices;
            is_free && self.model.profiles.contains(profile) && profile.starts.contains(&start.0)
        });
        are_apart
            && compute_slices <= self.model.compute_slices
            && taken >> self.model.memory_slices == 0
    }

    fn insert(&mut self, instance: Instance) {
        let index = self
            .instances
            .partition_point(|other| other.start < instance.start);
        self.instances.insert(index, instance);
        assert!(
            self.is_valid(),
            "{:?} of {}",
            self.instances,
            self.model.device
        );
    }

    fn taken(&self) -> u32 {
        let masks = self
            .instances
            .iter()
            .map(|instance| instance.profile.mask(instance.start));
        masks.fold(0, |taken, mask| taken | mask)
    }

    fn compute_slices_free(&self) -> u32 {
        let taken = self
            .instances
            .iter()
            .map(|instance| instance.profile.compute_slices);
        self.model.compute_slices - taken.sum::<u32>()
    }

    fn placements_count(&self) -> usize {
        let profiles = self.model.profiles.iter();
        profiles.map(|profile| self.starts(profile).count()).sum()
    }
}

impl Profile {
    const fn mask(&self, start: Start) -> u32 {
        ((1 << self.memory_slices) - 1) << start.0
    }
}

/// The most memory slices of any GPU (A100, H100).
pub const MEMORY_SLICES_MAX: u32 = 8;

const fn eighths(names: [&'static str; 6], memory_mib: [u32; 6]) -> [Profile; 6] {
    let [n0, n1, n2, n3, n4, n5] = names;
    let [m0, m1, m2, m3, m4, m5] = memory_mib;
    [
        profile(n0, (1, 1), m0, &[0, 1, 2, 3, 4, 5, 6]),
        profile(n1, (1, 2), m1, &[0, 2, 4, 6]),
        profile(n2, (2, 2), m2, &[0, 2, 4]),
        profile(n3, (3, 4), m3, &[0, 4]),
        profile(n4, (4, 4), m4, &[0]),
        profile(n5, (7, 8), m5, &[0]),
    ]
}

const fn profile(
    name: &'static str,
    (compute_slices, memory_slices): (u32, u32),
    memory_mib: u32,
    starts: &'static [u32],
) -> Profile {
    Profile {
        name,
        compute_slices,
        memory_slices,
        memory_mib,
        starts,
    }
}

const A100_40: [Profile; 6] = eighths(
    [
        "1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb",
    ],
    [4864, 9856, 9856, 19_968, 19_968, 40_192],
);
const A100_80: [Profile; 6] = eighths(
    [
        "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
    ],
    [9728, 19_968, 19_968, 40_192, 40_192, 80_640],
);
const H100: [Profile; 6] = eighths(
    [
        "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
    ],
    [9984, 20_096, 20_096, 40_448, 40_448, 81_152],
);
const H200: [Profile; 6] = eighths(
    [
        "1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
    ],
    [16_384, 33_024, 33_024, 71_168, 71_168, 143_360],
);
const A30: [Profile; 3] = [
    profile("1g.6gb", (1, 1), 5952, &[0, 1, 2, 3]),
    profile("2g.12gb", (2, 2), 11_968, &[0, 2]),
    profile("4g.24gb", (4, 4), 24_064, &[0]),
];

const fn model(device: &'static str, slices: (u32, u32), profiles: &'static [Profile]) -> MigModel {
    let (compute_slices, memory_slices) = slices;
    assert!(memory_slices <= MEMORY_SLICES_MAX);
    MigModel {
        device,
        compute_slices,
        memory_slices,
        profiles,
    }
}

static MODELS: [MigModel; 6] = [
    model("A100-SXM4-40GB", (7, 8), &A100_40),
    model("A100-SXM4-80GB", (7, 8), &A100_80),
    model("A30", (4, 4), &A30),
    model("H100-PCIe", (7, 8), &H100),
    model("H100-SXM5-80GB", (7, 8), &H100),
    model("H200", (7, 8), &H200),
];

#[cfg(test)]
mod tests;
