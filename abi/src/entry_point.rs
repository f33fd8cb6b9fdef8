//! The table of entry points, with look-up by symbol (`dlsym`) and by api (`cuGetProcAddress`).

use core::ffi::CStr;

/// One symbol that the driver exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// The ELF symbol, e.g. `cuMemAlloc_v2`.
    pub symbol: &'static CStr,
    /// The name for `cuGetProcAddress`, e.g. `cuMemAlloc`.
    pub api: &'static str,
    /// The form's CUDA version (major * 1000 + minor * 10); older requests get older forms, if any.
    pub version: u32,
    /// Whether stream 0 means the calling thread's own stream.
    pub per_thread: bool,
    /// Its subject.
    pub category: Category,
    /// How the interposer treats it.
    pub route: Route,
    /// Whether the software GPU's driver implements it.
    pub softgpu: bool,
    /// The C parameter list, from NVIDIA's public headers. The result is always `CUresult`.
    pub prototype: &'static str,
}

/// The subject of an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Contexts, execution affinity, green contexts, checkpoints, core dumps.
    Context,
    /// Copies and fills.
    Copy,
    /// Initialisation, versions, error texts and lookup of other entry points.
    Entry,
    /// Graphs and stream capture.
    Graph,
    /// Launches of kernels and of host functions.
    Launch,
    /// Allocation, pools, virtual memory, import and export.
    Memory,
    /// Modules, libraries, functions, occupancy.
    Module,
    /// Everything else.
    Other,
    /// Queries about devices and pointers.
    Query,
    /// Streams and the creation of events.
    Stream,
    /// Waiting and signalling: events, stream memory operations, semaphores.
    Sync,
    /// Textures, surfaces, tensor maps.
    Texture,
}

/// How the interposer treats an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// The application gets the driver's function.
    Pass,
    /// The application gets Pillion's hook.
    Hook,
}

/// The source of [`ENTRY_POINTS`], for audits.
pub const ENTRY_POINTS_CSV: &str = include_str!("../entry_points.csv");

/// The index of the entry point that the driver exports as `symbol`.
#[must_use]
pub fn lookup(symbol: &CStr) -> Option<usize> {
    ENTRY_POINTS
        .binary_search_by(|entry_point| entry_point.symbol.cmp(symbol))
        .ok()
}

/// The index of the entry point that `cuGetProcAddress` returns for `api` at `version`: the newest
/// form that is not newer. With `per_thread` the newest per-thread form; a plain form only if the
/// api has no per-thread form at all. (Drivers R535 and R550 find nothing at a version before the
/// first per-thread form.) `None`: the api is unknown, or newer than `version` in all forms that
/// count; [`first_version`] distinguishes the two. Versions matter because 21 families change their
/// arity: a newer form would crash the caller.
#[must_use]
pub fn newest(api: &str, version: u32, per_thread: bool) -> Option<usize> {
    // BY_API is sorted by version within an api, so the last match is the answer.
    let start = BY_API.partition_point(|&index| ENTRY_POINTS[usize::from(index)].api < api);
    let forms = BY_API[start..]
        .iter()
        .map(|&index| usize::from(index))
        .take_while(|&index| ENTRY_POINTS[index].api == api);
    let has_per_thread = forms.clone().any(|index| ENTRY_POINTS[index].per_thread);
    let fits = |&index: &usize| {
        let form = &ENTRY_POINTS[index];
        form.version <= version && form.per_thread == (per_thread && has_per_thread)
    };
    forms.filter(fits).last()
}

/// The CUDA version that introduced the oldest form of `api`, or `None` if the api is unknown.
#[must_use]
pub fn first_version(api: &str) -> Option<u32> {
    let start = BY_API.partition_point(|&index| ENTRY_POINTS[usize::from(index)].api < api);
    let oldest = &ENTRY_POINTS[usize::from(*BY_API.get(start)?)];
    (oldest.api == api).then_some(oldest.version)
}

include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));
