//! The table of families: the first line that finds a name applies. A line names its kernels by
//! their function, so that it also finds a library's next release and another framework's kernel of
//! the same kind. More special lines come first: the backward half of a pooling before pooling.

use super::Bound::{Compute, Memory, MemoryIfLarge, Neither};
use super::{Bound, Family, Rule};

/// Frames of many kernels: the first template argument that a rule finds, or the namespace, counts.
pub(super) const WRAPPERS: [&str; 9] = [
    // CUTLASS, and cuDNN's and PyTorch's kernels on it.
    "Kernel",
    "Kernel2",
    "device_kernel",
    // cuBLAS (`internal::gemvx::kernel`).
    "kernel",
    // Thrust and CUB.
    "_kernel_agent",
    "static_kernel",
    "transform_kernel",
    "kernel_agent",
    // XLA and others.
    "main_kernel",
];

const fn rule(
    family: Family,
    bound: Bound,
    found_by: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule {
        family,
        found_by,
        bound,
        why,
    }
}

#[rustfmt::skip]
pub(super) const RULES: [Rule; 53] = [
    rule(Family::Collective, Neither, &["^nccl", "^oneccl", "nvshmem", "_on_stream_kernel", "cross_device_reduce", "multimem_all", "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "reducescatter", "all_to_all", "alltoall"], "waits for another GPU"),
    rule(Family::Setup, Neither, &["computeoffsets", "computeboffsets", "offsetskernel", "precompute_indices", "initkernel", "prepare_varlen", "singletile", "exclusivesum", "gemm_pointers", "moe_align"], "prepares the next kernel, or has one block; a few µs"),
    // A prefix states the kind of torch.compile's kernels; the rest lists all fused operations.
    rule(Family::Elementwise, MemoryIfLarge, &["^triton_poi", "^triton_for", "^triton_unk"], "TorchInductor's pointwise kernels"),
    rule(Family::Reduction, MemoryIfLarge, &["^triton_red", "^triton_per", "^triton_spl"], "TorchInductor's reductions: each element read once or twice"),
    rule(Family::AttentionDecode, Memory, &["flex_decoding"], "each key and value is read for one or few queries"),
    rule(Family::Attention, Compute, &["flex_attention"], "two products for each pair of blocks"),
    rule(Family::Gemm, Compute, &["^triton_tem", "^triton_mm", "^triton_bmm", "^triton_gemm"], "a matrix product from a template"),
    // nvFuser: likewise.
    rule(Family::Elementwise, MemoryIfLarge, &["^nvfuser_pointwise", "^nvfuser_transpose", "^nvfuser_no_op", "^nvfuser_resize"], "generated, no reduction"),
    rule(Family::Reduction, MemoryIfLarge, &["^nvfuser_reduction", "^nvfuser_persistent", "^nvfuser_inner", "^nvfuser_outer"], "generated, with a reduction"),
    rule(Family::Random, Neither, &["distribution_", "philox", "curand", "^random", "_random_", "randperm", "bernoulli", "|rng_"], "tens of operations for each number: measured 56 % SM, 22 % L2 (A100)"),
    // cuFFT's kernels, and those with which cuDNN convolves.
    rule(Family::Transform, Memory, &["|fft", "|cufft"], "5 log2(n) operations for each element that is read and written"),
    rule(Family::Copy, Memory, &["winogradforwarddata", "winogradforwardfilter", "winogradforwardoutput", "winogradwgrad", "winogradtiles"], "the transforms around a Winograd product: additions alone"),
    rule(Family::Copy, Memory, &["nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw", "im2col", "col2im", "vol2col", "col2vol", "addpad", "pad_kernel", "copypacked", "scalepackedtensor", "converttensor", "tensortransform"], "a change of layout"),
    rule(Family::DepthwiseConv, Memory, &["depthwise", "depth_wise", "_c1_k1_", "dwconv", "grouped_direct", "causal_conv1d"], "a filter's 9 to 49 multiplications for each element"),
    rule(Family::Normalisation, Memory, &["batchnorm", "batch_norm", "bn_fw", "bn_bw", "layernorm", "layer_norm", "rmsnorm", "rms_norm", "groupnorm", "group_norm", "instancenorm", "instance_norm", "weight_norm", "rowwisemoments", "gammabeta", "gradgamma", "cucomputegradinput", "computeinternalgradients", "welford", "ln_fwd", "ln_bwd", "l2norm", "l2_norm"], "reads its input twice, some operations for each element"),
    rule(Family::Softmax, Memory, &["softmax"], "reads and writes each element, some operations"),
    rule(Family::Loss, Memory, &["nll_loss", "classnll", "cross_entropy", "crossentropy", "xentropy", "mse_loss", "kl_div", "|bce_"], "reads each element once"),
    rule(Family::Dropout, Memory, &["dropout"], "elementwise, a random number for 4 elements"),
    rule(Family::Elementwise, MemoryIfLarge, &["attention_mask", "attn_mask"], "writes what attention reads"),
    rule(Family::Copy, Memory, &["bwd_dot_do", "bwd_convert", "bwd_preprocess", "bwd_postprocess", "bwdpreprocess", "bwdpostprocess", "splitkv_combine", "flash_attn_combine", "fwdcombine", "merge_attn_states", "mergestate", "marlin_repack", "reshape_and_cache", "copy_blocks", "swap_blocks", "concat_and_cache", "rotary", "|rope"], "around attention or a product: a pass over tensors"),
    // Launched for a prompt and for one token; the name does not distinguish them.
    rule(Family::Attention, Neither, &["flashattnfwd", "flashattentionforward", "unified_attention", "batchprefill", "singleprefill", "batchmla", "_mla_", "splitkv", "split_kv", "fmhasm"], "depends on the number of queries: many in a prompt, one for each further token"),
    rule(Family::AttentionDecode, Memory, &["paged_attention", "pagedattention", "flash_decod", "batchdecode", "singledecode", "decode_attention", "fwd_grouped_kernel_stage", "masked_multihead", "|mmha", "kernel_mha", "flash_attn_ext_vec", "flash_attn_vec_ext", "mqa_decode"], "each key and value is read for one or few queries"),
    rule(Family::Attention, Compute, &["flash_fwd", "flash_bwd", "flashattnbwd", "flashattentionbackward", "fmha", "sdpa", "attn_fwd", "attn_bwd", "attention_bwd", "attention_backward"], "two products for each pair of blocks, which stay on the SM"),
    rule(Family::Attention, Neither, &["attention", "flash_attn", "flashattn"], "depends on the number of queries"),
    rule(Family::Gemv, Memory, &["gemv", "gemmsn", "gemmk1", "^dot_kernel", "axpy", "|scal_kernel", "nrm2", "|asum", "iamax", "splitkreduce", "splitk_reduce", "reduce_1block", "reducesplitk", "reduce_wgrad", "stream_k_fixup", "4bit_inference", "|trsv", "|symv", "|ger_kernel", "mul_mat_vec", "csrmv", "|spmv"], "a matrix is read for one or few vectors; partial products are summed"),
    // Weights of 4 or 8 bits, used for one row and for thousands: with 4 bound by memory below
    // some 40 rows (2 operations for each of 0.5 bytes, against a ridge of 150).
    rule(Family::Gemm, Neither, &["marlin", "machete", "fpa_intb", "gemm_forward_4bit", "gemm_half_q_half", "awq_gemm", "gptq_gemm", "w4a16", "w4a8", "wna16", "int4_gemm", "tinygemm"], "depends on the number of rows: compute for a prompt, memory for one token"),
    rule(Family::Gemm, Neither, &["grouped_gemm", "group_gemm", "grouped_mm", "moe_gemm"], "depends on the number of rows of an expert"),
    rule(Family::Quantise, Memory, &["quantize", "quant_kernel", "_quant_", "fp8_q", "fp8row", "hfp8", "convert_fp8", "reconstruct_exllama", "reconstruct_gptq"], "one pass, a smaller number for each"),
    rule(Family::Conv, Compute, &["^conv$", "convolve", "cudnn_", "scudnn", "hcudnn", "884cudnn", "1688cudnn", "16816cudnn", "fprop", "dgrad", "wgrad", "winograd", "implicit_gemm", "implicit_precomp", "|conv2d", "|conv3d"], "each weight is used at all places of an image"),
    rule(Family::Conv, Neither, &["convolution", "conv_transpose", "convtranspose", "deconv"], "may be a filter of an image or a layer of a network"),
    rule(Family::Gemm, Compute, &["gemm", "matmul", "mul_mat_q", "^nvjet", "cutlass", "s884", "s1688", "s16816", "wgmma", "tensorop"], "n operations for each element of n × n matrices"),
    // The tables of recommenders and gradients of tables: a block walks over many rows.
    rule(Family::Embedding, Memory, &["embedding", "_embs_", "_embs$", "indexing_backward", "compute_grad_weight"], "a row is read and written for each index"),
    rule(Family::ScanSort, Memory, &["radixsort", "mergesort", "segmentedsort", "devicescan", "deviceselect", "deviceunique", "devicecompact", "devicerunlength", "devicehistogram", "devicepartition", "bykey", "topk", "radixselect", "radixfindkth", "scan_innermost", "scan_outer", "scan_by", "cumsum", "histogram", "__scan", "merge_sort", "radix_sort", "copy_if"], "passes over all elements, a comparison or addition each"),
    rule(Family::Embedding, MemoryIfLarge, &["indexselect", "index_select", "index_elementwise", "index_put", "index_get", "indexfunc", "indexadd", "take_along", "gather", "scatter", "linearize_index", "bounds_check_indices", "permute_indices"], "an element is read and written for each index"),
    rule(Family::PoolingBackward, Memory, &["max_pool_backward", "maxpool_bw", "pool_bw", "pooling_bw", "avg_pool", "average_pool", "averagepool"], "an addition for each element of a window"),
    rule(Family::Pooling, Neither, &["max_pool", "maxpool", "pooling"], "index arithmetic for each element of a window: 2 recordings say compute, 2 memory"),
    rule(Family::Optimiser, MemoryIfLarge, &["multi_tensor", "multitensor", "fused_adam", "fusedadam", "adam_kernel", "applyadam", "adamw", "sgd_kernel", "fused_sgd", "|lamb_", "adagrad", "koptimizer"], "reads parameter, gradient and state, writes two of them"),
    // Double precision runs at 1/32 or 1/64 of single on most GPUs, at 1/2 on a few.
    rule(Family::Elementwise, Neither, &["sqrt__float64", "divide__float64", "exp__float64", "log__float64", "power__float64", "sin__float64", "cos__float64", "tanh__float64"], "many operations in double precision: depends on the GPU"),
    rule(Family::Copy, MemoryIfLarge, &["transpose", "permute_", "catarray", "memcpy", "memset", "copy", "swapdimension", "shuffleintensor", "concat", "reshape", "^wrapped_", "tensor_kernel_flip", "flip_filter", "roll_cuda", "reflection_pad", "replication_pad"], "moves and computes nothing"),
    rule(Family::Elementwise, MemoryIfLarge, &["elementwise", "elemwise", "elem_wise", "element_mul", "pointwise", "act_and_mul", "silu", "gelu", "swiglu", "geglu", "|relu", "sigmoid", "activation", "eigenmetakernel", "triu_tril", "fillfunctor", "fill_kernel", "cast_kernel", "convert_kernel", "bias_add", "biasadd", "op_tensor", "optensor", "op_generic_tensor", "add_tensor", "__for_each", "detail::for_each", "6detail8for_each", "__parallel_for", "parallelforagent", "detail::transform", "6detail9transform"], "0.1 to 1 operation for each byte"),
    rule(Family::Elementwise, Memory, &["globalkernel"], "cuBLASLt's epilogue: bias and activation in a pass of its own"),
    // User code and the samples of tutorials.
    rule(Family::Elementwise, MemoryIfLarge, &["vecadd", "vec_add", "vectoradd", "vector_add", "add_kernel", "add_parallel", "^add$", "stream_triad", "stream_copy"], "an addition for three numbers"),
    rule(Family::Elementwise, MemoryIfLarge, &["^cupy_copy", "^cupy_fill", "^cupy_add", "^cupy_subtract", "^cupy_multiply", "^cupy_true_divide__float32", "^cupy_sqrt__float32"], "CuPy's functions of one or two arrays"),
    rule(Family::Reduction, MemoryIfLarge, &["^cupy_sum", "^cupy_max", "^cupy_min", "^cupy_mean", "^cupy_amax", "^cupy_amin"], "CuPy's reductions"),
    // XLA names a kernel after the fused operations; a product would have its library's name.
    rule(Family::Reduction, MemoryIfLarge, &["reduce_fusion$", "^input_reduce"], "XLA's fusions with a reduction"),
    rule(Family::Copy, MemoryIfLarge, &["transpose_fusion$", "slice_fusion$", "^input_concat"], "XLA's fusions that move"),
    rule(Family::Elementwise, MemoryIfLarge, &["^fusion$", "_fusion$", "^broadcast$", "^convert$", "^select$", "^compare$", "^multiply$", "^subtract$", "^divide$"], "XLA's fusions"),
    rule(Family::Reduction, Memory, &["devicereduce", "devicesegmentedreduce"], "reads each element once, with as many blocks as fit"),
    // PyTorch's reduction has a grid by its outputs, so a small one may read much.
    rule(Family::Reduction, Memory, &["^reduce_kernel"], "reads each element once"),
    rule(Family::Reduction, Memory, &["rowreduce", "columnreduce", "blockreduce", "row_reduce", "column_reduce", "reduce_block", "reduction", "__reduce", "argmax", "argmin", "biasgrad", "bias_grad", "norm_kernel"], "reads each element once"),
    rule(Family::Elementwise, MemoryIfLarge, &["^bias"], "TensorFlow's additions of a bias"),
    rule(Family::Elementwise, MemoryIfLarge, &["^unrolled_", "^vectorized_"], "PyTorch's loops over elements"),
    rule(Family::ScanSort, Memory, &["thrust"], "the rest of Thrust: passes over all elements"),
];
