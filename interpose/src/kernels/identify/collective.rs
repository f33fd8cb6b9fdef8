//! Collective communication kernels (NCCL, NVSHMEM), recognised by their names. A collective kernel
//! spins on its GPU until its peers on other GPUs have begun, so a peer that waits at a gate makes
//! the others spin. NCCL launches one only for two or more ranks, which are on different GPUs: a
//! job that launches one uses several GPUs. NVSHMEM is assumed to do the same. The names are those
//! in the `libnccl.so.2` of PyTorch 2.15 (`ncclDevKernel_…`, `ncclSymkDevKernel_…`), of older NCCL
//! (`ncclKernel_AllReduce_RING_LL_Sum_float`) and of NVSHMEM
//! (`barrier_on_stream_kernel_threadgroup`, `alltoall_on_stream_kernel<…>`, `nvshmemi_proxy_…`).

/// Prefixes of NVSHMEM's collective kernels; `_on_stream_kernel` comes later in the name.
const ON_STREAM: [&str; 9] = [
    "barrier",
    "sync",
    "broadcast",
    "collect",
    "fcollect",
    "alltoall",
    "reduce",
    "reducescatter",
    "rdxn",
];

/// Parts of all such names. Demangling takes 1 to 170 µs, searching for these a tenth of a µs.
const PARTS: [&str; 3] = ["nccl", "nvshmem", "_on_stream_kernel"];

/// NVSHMEM's kernels that set up a GPU or a team, without peers.
const NVSHMEM_SETUP: [&str; 2] = ["nvshmemi_init", "nvshmemi_team"];

pub(super) fn is_collective(name: &str) -> bool {
    if !PARTS.iter().any(|part| name.contains(part)) {
        return false;
    }
    let demangled = profiler::names::demangled(name);
    let own = own_name(demangled.as_deref().unwrap_or(name));
    if let Some(rest) = own.strip_prefix("nccl") {
        return rest.contains("Kernel");
    }
    if own.starts_with("nvshmem") {
        return !NVSHMEM_SETUP.iter().any(|setup| own.starts_with(setup));
    }
    let of_stream = own.split_once("_on_stream_kernel");
    of_stream.is_some_and(|(operation, _)| {
        let mut known = ON_STREAM.iter();
        known.any(|known| operation.starts_with(known))
    })
}

/// The function's name without return type, namespaces, parameters and template arguments.
fn own_name(text: &str) -> &str {
    let text = text.strip_prefix("void ").unwrap_or(text);
    let end = text.find(['(', '<']).unwrap_or(text.len());
    let path = text.get(..end).unwrap_or(text);
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_nccl_and_nvshmem_are_collective_by_their_own_names_alone() {
        for name in [
            "ncclKernel_AllReduce_RING_LL_Sum_float",
            "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
            "_Z21ncclDevKernel_Generic24ncclDevKernelArgsStorageILm4096EE",
            "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)",
            "barrier_on_stream_kernel_threadgroup(int, int)",
            "void reduce_on_stream_kernel<float, 0>(int, float*, float const*, unsigned long)",
            "_Z25sync_all_on_stream_kernelv",
            "nvshmemi_proxy_quiet_kernel",
            "void nvshmem::alltoall_on_stream_kernel<float>(float*)",
        ] {
            assert!(is_collective(name), "{name}");
        }
        for name in [
            "",
            "nccl",
            "ncclInit",
            // NCCL's kernel for one rank has no peers to wait for.
            "_Z13oneRankReduceI7FuncSumIfEEvPvS2_mmS2_",
            "nvshmemi_init_array_kernel",
            "nvshmemi_team_mapping_kernel",
            "void user::kernel<ncclDevKernel_Generic>(ncclDevKernelArgs)",
            "myncclKernel",
            "copy_on_stream_kernel",
            "barrier_kernel",
            "_Z4gemmPfS_",
            "_Zgarbled",
        ] {
            assert!(!is_collective(name), "{name}");
        }
    }
}
