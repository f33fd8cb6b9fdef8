//! Real names of all frameworks, mangled and not, and robustness against any name.

use std::collections::HashSet;

use proptest::prelude::*;

use super::table::RULES;
use super::{Bound, Family, Intensity, Launch, estimate, rule_of};
use crate::ResourceClass::{Compute, Memory};
use crate::{ClassRule, Operator, ResourceClass};

mod sizes;

fn class_of(name: &str) -> Option<ResourceClass> {
    let launch = Launch {
        name,
        ..Launch::default()
    };
    estimate(&launch).map(|estimate| estimate.class)
}

fn family_of(name: &str) -> Option<Family> {
    rule_of(name).map(|rule| rule.family)
}

fn assert_all(family: Family, class: Option<ResourceClass>, names: &[&str]) {
    for name in names {
        assert_eq!(family_of(name), Some(family), "{name}");
        assert_eq!(class_of(name), class, "{name}");
    }
}

#[test]
fn kernels_of_pytorch_have_the_family_of_what_they_do() {
    assert_all(
        Family::Elementwise,
        Some(Memory),
        &[
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_",
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::softmax_like(float)::{lambda()#1}, at::detail::Array<char*, 2> >(int)",
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>(int)",
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int)#1}>(int)",
            "triton_poi_fused_convolution_relu_3",
            "triton_poi_fused__softmax_add_12d3d",
            "nvfuser_pointwise_f0_c1_r0_g0",
        ],
    );
    assert_all(
        Family::Reduction,
        Some(Memory),
        &[
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4>)",
            "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfNS0_11sum_functorIfffEEEEjfLi4EEEEEvT1_",
            "triton_red_fused_native_layer_norm_7",
            "triton_per_fused__to_copy_mean_pow_rsqrt_2",
        ],
    );
    assert_all(
        Family::Normalisation,
        Some(Memory),
        &[
            "BatchNorm",
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)",
            "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(int)",
            "_ZN2at6native12_GLOBAL__N_124GammaBetaBackwardCUDAKernelIffEEvllPKT_S5_PKT0_S8_PS3_S9_",
            "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, float*)",
            "void cuApplyLayerNorm<float, float, float>(float*, float*, float*, float const*)",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct, float const*)",
            "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float)",
            "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half, 4, 2>(int)",
            "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, c10::BFloat16 const*, float, int, int)",
            "void vllm::fused_add_rms_norm_kernel<c10::Half, 8>(c10::Half*, c10::Half*)",
        ],
    );
}

#[test]
fn the_rest_of_a_training_step_has_a_family_too() {
    assert_all(
        Family::Softmax,
        Some(Memory),
        &[
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*, float const*, int, int, int, bool const*, int, bool)",
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
            "_ZN43_GLOBAL__N__d2ba64fb_10_SoftMax_cu_7a71b08220softmax_warp_forwardIfffLi10ELb0ELb0EEEvPT0_PKT_iiiPKbib",
        ],
    );
    assert_all(
        Family::Dropout,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo<float const, unsigned int>)",
        ],
    );
    assert_all(
        Family::Optimiser,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>, float>(int)",
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, float, float>(long, int volatile*, TensorListMetadata<4>)",
        ],
    );
    assert_all(
        Family::Embedding,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)",
            "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long const*, float const*, float*, int, long, int)",
            "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false, long, 1ul, 8ul>(int)",
            "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<false, float> >(int)",
        ],
    );
    assert_all(
        Family::Loss,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float*, long*, float*, bool, int, int, int, long)",
            "cunn_ClassNLLCriterion_updateOutput_kernel",
        ],
    );
    assert_all(
        Family::PoolingBackward,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*, long const*, int, long)",
            "void at::native::(anonymous namespace)::adaptive_average_pool<float>(float const*, float*, int)",
        ],
    );
}

#[test]
fn what_is_bound_now_by_this_and_now_by_that_has_no_class() {
    assert_all(
        Family::Pooling,
        None,
        &[
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, long, long)",
        ],
    );
    assert_all(
        Family::Random,
        None,
        &[
            "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::normal_kernel>(int)",
        ],
    );
    assert_all(
        Family::Copy,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)",
        ],
    );
}

#[test]
fn products_are_compute_and_narrow_ones_memory() {
    assert_all(
        Family::Gemm,
        Some(Compute),
        &[
            "volta_sgemm_128x64_tn",
            "ampere_sgemm_32x32_sliced1x4_tn",
            "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_relu_f2f_stages_32x5_tn",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1>(cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1::Params)",
            "_ZN7cutlass7Kernel2I67cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8EEvNT_6ParamsE",
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, int> >(int)",
            "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN",
            "maxwell_sgemm_fp16_128x32_nn",
            "void magma_sgemm_kernel<16, 16, 96>(int)",
            "ampere_gcgemm_64x64_nt",
            "triton_mm",
            "triton_tem_fused_addmm_relu_4",
            "triton_gemm_dot_5",
            "gemm_fusion_dot_12",
            "void <unnamed>::gemm_tiled_kernel<32>(const float *, const float *, float *, int, int, int)",
            "matmul_kernel(const float *, const float *, float *, int)",
            "void mul_mat_q<(ggml_type)12, 64, 8, false>(char const*)",
        ],
    );
    assert_all(
        Family::Gemm,
        Some(Memory),
        &[
            "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8::Params)",
        ],
    );
    assert_all(
        Family::Gemv,
        Some(Memory),
        &[
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(int)",
            "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)",
            "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(int)",
            "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiffffEEvv",
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true, true, false, 7, false>(int)",
            "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(int)",
            "void reduce_1Block_kernel<float, 128, 7>(int)",
            "saxpy(int, float, float *, float *)",
            "void mul_mat_vec_q<(ggml_type)12, 1>(void const*)",
            "void kgemm_4bit_inference_naive<float, 128, 32>(int, int, int)",
        ],
    );
}

#[test]
fn what_is_around_a_product_is_not_taken_for_it() {
    assert_all(
        Family::Copy,
        Some(Memory),
        &[
            "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<int>>>(int)",
            "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<int>>(int)",
            "void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*)",
        ],
    );
    assert_all(
        Family::Gemv,
        Some(Memory),
        &[
            "void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<int, int>>(int)",
            "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(int)",
            "void mul_mat_q_stream_k_fixup<(ggml_type)2, 64, false>(int const*)",
        ],
    );
    let decode = [
        "void flash_attn_vec_ext_f16<128, 2, 2>(char const*)",
        "triton_tem_fused_flex_decoding_1",
    ];
    assert_all(Family::AttentionDecode, Some(Memory), &decode);
    let single = "void cub::DeviceReduceSingleTileKernel<int, float*, float*, int>(float*)";
    assert_all(Family::Setup, None, &[single]);
}

#[test]
fn convolutions_are_compute_and_what_is_around_them_memory() {
    assert_all(
        Family::Conv,
        Some(Compute),
        &[
            "Conv",
            "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
            "volta_scudnn_128x64_relu_interior_nn_v1",
            "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
            "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)",
            "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
            "_Z73cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1v",
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x64_16x4_nhwc_align4>(int)",
            "cudnn_generated_fort_native_conv_fprop_sm80_knob_3",
        ],
    );
    assert_all(
        Family::DepthwiseConv,
        Some(Memory),
        &[
            "void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<3, 1, float, int>(int)",
            "_ZN2at6native12_GLOBAL__N_131conv_depthwise2d_forward_kernelILi3EfiEEvv",
            "void cudnn::cnn::conv2d_c1_k1_nchw_hw_packed_kernel<float, float, 3>(int)",
            "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16> >(int)",
        ],
    );
    assert_all(
        Family::Copy,
        Some(Memory),
        &[
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)",
            "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
            "void cudnn::cnn::im2col4d_kernel<float, int>(int)",
        ],
    );
    assert_all(
        Family::Setup,
        None,
        &["void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)"],
    );
    assert_all(
        Family::Transform,
        Some(Memory),
        &[
            "void fft2d_r2c_32x32<float, false, 5u, true>(int)",
            "void vector_fft<128u, 8u, 4u, (padding_t)1>(kernel_arguments_t<unsigned int>)",
        ],
    );
}

#[test]
fn attention_of_many_queries_is_compute_and_of_one_memory() {
    assert_all(
        Family::Attention,
        Some(Compute),
        &[
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>, true>(int)",
            "_ZN13pytorch_flash27flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelIvEEvv",
            "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
            "_attn_fwd",
            "triton_tem_fused_flex_attention_0",
        ],
    );
    assert_all(
        Family::AttentionDecode,
        Some(Memory),
        &[
            "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>(float*)",
            "void vllm::paged_attention_v2_reduce_kernel<unsigned short, 128, 128, 512>(unsigned short*)",
            "void flashinfer::BatchDecodeWithPagedKVCacheKernel<0, 2, 4, 8>(int)",
        ],
    );
    assert_all(
        Family::Copy,
        Some(Memory),
        &[
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
            "void vllm::reshape_and_cache_flash_kernel<unsigned short, unsigned short, 0>(int)",
            "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, int>(int)",
        ],
    );
}

#[test]
fn kernels_of_other_frameworks_have_a_family() {
    let memory = [
        (
            Family::Elementwise,
            "void vllm::act_and_mul_kernel<c10::BFloat16, silu_kernel>(int)",
        ),
        (
            Family::Elementwise,
            "_ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorIKiNS_9GpuDeviceEEElEEvT_T0_",
        ),
        (Family::Elementwise, "loop_add_fusion_3"),
        (Family::Elementwise, "fusion_124"),
        (Family::Reduction, "input_reduce_fusion_2"),
        (Family::Copy, "input_transpose_fusion"),
        (Family::Copy, "wrapped_transpose"),
        (
            Family::Elementwise,
            "void tensorflow::BiasNCHWKernel<float>(int, float const*)",
        ),
        (
            Family::Copy,
            "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 256, 32, 32, false>(int)",
        ),
        (
            Family::Reduction,
            "void tensorflow::functor::RowReduceKernel<float*, float*, cub::Sum>(int)",
        ),
        (
            Family::Quantise,
            "void kDequantizeBlockwise<__half, 512, 64, 8, 2>(float*, unsigned char*)",
        ),
        (
            Family::Quantise,
            "void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*)",
        ),
        (
            Family::ScanSort,
            "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>(int*)",
        ),
        (
            Family::ScanSort,
            "_ZN3cub16DeviceScanKernelINS_16DeviceScanPolicyIiE9Policy600EPiS4_EEvv",
        ),
        (
            Family::Reduction,
            "void cub::CUB_200700_750_800_NS::DeviceReduceKernel<int>(int)",
        ),
        (
            Family::Elementwise,
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<int, long>, int, long>(int, long)",
        ),
        (
            Family::ScanSort,
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__unique::UniqueAgent<int> >(int)",
        ),
        (
            Family::Elementwise,
            "cupy_multiply__float64_float64_float64",
        ),
        (
            Family::Elementwise,
            "vectorAdd(const float *, const float *, float *, int)",
        ),
        (
            Family::Copy,
            "<unnamed>::transpose_naive_kernel(const float *, float *, int, int)",
        ),
    ];
    for (family, name) in memory {
        assert_all(family, Some(Memory), &[name]);
    }
}

/// vLLM, TensorRT and TensorRT-LLM, TensorFlow, cuDNN, cuSPARSE, bitsandbytes, Liger.
#[test]
fn kernels_of_libraries_for_serving_and_training_have_a_family() {
    let memory = [
        (
            Family::AttentionDecode,
            &[
                "kernel_mha",
                "void mmha::masked_multihead_attention_kernel<unsigned short, 128>(int)",
            ][..],
        ),
        (
            Family::Copy,
            &[
                "void vllm::merge_attn_states_kernel<float, 128>(float*)",
                "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>, 4>(int)",
                "void at::native::(anonymous namespace)::reflection_pad2d_out_kernel<float>(float const*)",
                "void genericReformat::copyPackedKernel<float, float, true, true, genericReformat::IdentityCoordMapper<4>, 4>(int)",
            ],
        ),
        (
            Family::Elementwise,
            &[
                "generatedNativePointwise",
                "void op_generic_tensor_kernel<1, float, float, float, 256>(int)",
                "void add_tensor_kernel_v3<int, float, float, 16, 32>(int)",
                "element_mul_kernel",
            ],
        ),
        (
            Family::Embedding,
            &[
                "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long>(int)",
                "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)",
            ],
        ),
        (
            Family::Gemv,
            &["void cusparse::csrmv_v3_kernel<int, int, float>(int)"],
        ),
        (
            Family::Normalisation,
            &[
                "void at::native::(anonymous namespace)::weight_norm_fwd_last_dim_kernel<float>(float*)",
                "void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>(long)",
                "void cuComputeGradInput<float, float, float>(float const*)",
            ],
        ),
        (
            Family::Optimiser,
            &[
                "void tensorflow::functor::ApplyAdamKernel<float>(int)",
                "void kOptimizer32bit2State<float, 0>(float*)",
            ],
        ),
        (
            Family::Quantise,
            &[
                "void vllm::gptq::reconstruct_exllama_4bit_kernel(unsigned int const*)",
                "void vllm::awq::dequantize_weights(int*)",
                "void vllm::convert_fp8_kernel<unsigned char, float, 1>(int)",
                "void vllm::dynamic_scaled_fp8_quant_kernel<c10::BFloat16, int>(int)",
            ],
        ),
        (
            Family::Softmax,
            &["void vllm::moe::topkGatingSoftmax<8, 128, 4, 16>(float const*)"],
        ),
    ];
    for (family, names) in memory {
        assert_all(family, Some(Memory), names);
    }
}

#[test]
fn kernels_of_libraries_for_serving_that_are_not_bound_by_memory_have_a_family_too() {
    let conv = ["trt_volta_scudnn_128x64_relu_interior_nn_v1"];
    assert_all(Family::Conv, Some(Compute), &conv);
    let prompts = ["fmha_v2_flash_attention_bf16_64_128_S_q_k_v_128_sm90"];
    assert_all(Family::Attention, Some(Compute), &prompts);
    let align = ["void vllm::moe::moe_align_block_size_kernel<int>(int)"];
    assert_all(Family::Setup, None, &align);
}

#[test]
fn collectives_and_what_nobody_knows_have_no_class() {
    assert_all(
        Family::Collective,
        None,
        &[
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
            "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)",
        ],
    );
    for unknown in [
        "",
        "_Z",
        "my_solver",
        "void clover::par_ranged2d_kernel<advec_mom_kernel(int)::[lambda(int, int) (instance 1)]>(clover::Range2d, T1)",
        "void probe_group_by_GPU2<128, 4>(int*)",
        "nvfuser_none_f0_c0_r0_g0",
        "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16> >(int)",
        "fused_moe_kernel",
    ] {
        assert_eq!(rule_of(unknown).map(|rule| rule.family), None, "{unknown}");
        assert_eq!(class_of(unknown), None, "{unknown}");
    }
}

fn call(name: &str, sizes: &[u64], number: &str) -> Operator {
    Operator {
        name: name.to_owned(),
        sizes: sizes.to_vec(),
        number: Some(number.to_owned()),
        ..Operator::default()
    }
}

fn in_call(name: &str, operator: &Operator) -> Option<(ResourceClass, ClassRule)> {
    let launch = Launch {
        name,
        intensity: Intensity::of(operator),
        ..Launch::default()
    };
    estimate(&launch).map(|estimate| (estimate.class, estimate.rule()))
}

#[test]
fn a_tile_is_no_number_format() {
    assert_all(
        Family::Gemm,
        Some(Compute),
        &[
            "sm100_xmma_gemm_f32f32_bf16x9_f32_f32_tn_n_tilesize128x128x32_cublas",
            "cutlass_80_tensorop_s16832gemm_s8x16_256x128_64x3_tn_align16",
        ],
    );
    let narrow = ["sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x16x64_cublas"];
    assert_all(Family::Gemm, Some(Memory), &narrow);
}

#[test]
fn a_name_for_many_rows_and_for_few_has_no_class() {
    assert_all(
        Family::Attention,
        None,
        &[
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int> > >(int)",
            "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90ILi2EEEEEEEEEvNT_6ParamsE",
            "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at",
            "kernel_unified_attention_2d",
            "kernel_unified_attention_3d",
            "void flashinfer::BatchPrefillWithPagedKVCacheKernel<1, 128, int>(int)",
            "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<1, 128, int>(int)",
            "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, false>(int)",
            "_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128EEEEvv",
            "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvDense",
            "void flash_attn_ext_f16<128, 128, 16, 4>(char const*)",
            "my_attention_kernel",
        ],
    );
    assert_all(
        Family::Gemm,
        None,
        &[
            "void gptq_marlin::Marlin<c10::Half, 128, 1, 8, 8>(int4 const*)",
            "_ZN6marlin6MarlinIN3c104HalfELi256ELi1ELi8ELi8EEEvPK4int4",
            "void vllm::awq::gemm_forward_4bit_cuda_m16n128k32<128>(int)",
            "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>(half const*)",
            "void tinygemm_m16n8k16_chunk_kernel<int>(int)",
            "moe_wna16_gemm_kernel",
            "grouped_gemm_kernel",
        ],
    );
    let prompt = call("gemm", &[4096, 4096, 4096], "f16");
    let marlin = "void marlin::Marlin<c10::Half, 128, 1>(int)";
    assert_eq!(
        in_call(marlin, &prompt),
        Some((Compute, ClassRule::Estimated))
    );
}

#[test]
fn parts_of_other_words_are_not_taken_for_a_family() {
    for name in [
        "offtarget_kernel",
        "merger_kernel",
        "string_kernel",
        "unbiased_estimator",
        "depth_fusion_kernel",
        "select_candidates",
        "add_forces",
        "clamb_step",
        "table_lookup_cpu_fallback",
    ] {
        assert_eq!(class_of(name), None, "{name}");
    }
    for name in [
        "convolutionRowsKernel",
        "convolutionColumnsKernel",
        "conv_transpose2d_kernel",
    ] {
        assert_all(Family::Conv, None, &[name]);
    }
    let mask = "build_attention_mask_kernel";
    assert_all(Family::Elementwise, Some(Memory), &[mask]);
    assert_all(
        Family::ScanSort,
        Some(Memory),
        &[
            "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
            "_ZN2at6native6mbtopk10gatherTopKIfjLi1EEEvv",
        ],
    );
    let pointers = "void compute_gemm_pointers<float>(float**)";
    assert_all(Family::Setup, None, &[pointers]);
    let collective = [
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)",
        "two_shot_all_reduce_kernel",
        "my_all_gather_kernel",
    ];
    assert_all(Family::Collective, None, &collective);
}

#[test]
fn a_frame_is_judged_by_the_work_before_its_parts() {
    assert_all(
        Family::Gemm,
        Some(Compute),
        &[
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, cutlass::epilogue::fusion::Sm90TopKSoftmaxColReduction<2>, cute::Copy_Atom<int>>>(int)",
            "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS_8epilogue10collective6detail7SoftmaxILi128EEEEEEEvNT_6ParamsE",
        ],
    );
    let conv = "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::fprop_indexed::Kernel_traits<int>>(int)";
    assert_all(Family::Conv, Some(Compute), &[conv]);
    let product = "_ZN8internal5gemvx6kernelIiiffffLb0ELb1ELi7EEEvi";
    assert_all(Family::Gemv, Some(Memory), &[product]);
    let transform = "void cub::CUB_200800_NS::detail::transform::transform_kernel<cub::CUB_200800_NS::detail::transform::policy_hub<false>::policy1000, long, scale>(long)";
    assert_all(Family::Elementwise, Some(Memory), &[transform]);
}

#[test]
fn a_name_that_was_cut_off_is_judged_by_its_own_part() {
    let loops = [
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::softmax_li",
        "_ZN2at6native29vectorized_elementwise_kern",
    ];
    assert_all(Family::Elementwise, Some(Memory), &loops);
    let reduction =
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::gemm_like";
    assert_all(Family::Reduction, Some(Memory), &[reduction]);
    assert_eq!(
        class_of("std::enable_if<!(false), void>::type internal::gem"),
        None
    );
}

#[test]
fn a_launch_too_small_or_short_to_bind_anything_has_no_class() {
    let name = "void at::native::vectorized_elementwise_kernel<4, F>(int)";
    let of = |sm_needed, duration_ns| {
        let launch = Launch {
            name,
            sm_needed,
            device_sms: Some(80),
            duration_ns,
            intensity: None,
        };
        estimate(&launch).is_some()
    };
    assert!(of(Some(80), None) && of(None, None) && of(Some(100), Some(9_000)));
    assert!(!of(Some(79), None) && !of(Some(100), Some(1_999)));
}

#[test]
fn the_table_is_well_formed() {
    let mut seen = HashSet::new();
    for rule in &RULES {
        assert!(
            !rule.why.is_empty() && !rule.found_by.is_empty(),
            "{rule:?}"
        );
        for part in rule.found_by {
            let text = part.trim_start_matches(['^', '|']).trim_end_matches('$');
            assert!(text.len() >= 3, "{part} finds too much");
            assert_eq!(part.to_ascii_lowercase(), **part, "small letters");
            assert!(seen.insert(*part), "{part} is there twice");
        }
    }
    let found: HashSet<_> = RULES.iter().map(|rule| rule.family).collect();
    for family in Family::ALL {
        assert!(found.contains(&family), "{}", family.word());
        assert_eq!(Family::from_word(family.word()), Some(family));
    }
    for family in Family::ALL {
        let mut rules = RULES.iter().filter(|rule| rule.family == family);
        let has_class = rules.any(|rule| rule.bound != Bound::Neither);
        assert!(has_class || family.confidence_pct().is_none(), "{family:?}");
    }
}

proptest! {
    #[test]
    fn any_name_is_judged(name in any::<String>(), sm_needed: Option<u32>, ns: Option<u64>) {
        let launch = Launch { name: &name, sm_needed, device_sms: Some(80), duration_ns: ns, intensity: None };
        let class = estimate(&launch).map(|estimate| estimate.class);
        prop_assert_ne!(class, Some(ResourceClass::Unknown));
    }

    #[test]
    fn words_of_names_in_any_order_are_judged(
        name in "(_Z|N|[0-9]{1,3}|Kernel|gemm|x|bf16|_|<|>|\\(|::|nvjet|ß){0,12}",
        sizes in prop::collection::vec(any::<u64>(), 0..11),
    ) {
        for operator in ["gemm", "conv_forward"] {
            let operator = call(operator, &sizes, "bf16");
            let _ = in_call(&name, &operator);
        }
    }
}
