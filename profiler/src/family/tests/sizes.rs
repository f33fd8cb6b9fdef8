//! The sizes of a call as evidence about the kernel that does its work.

use super::super::Intensity;
use super::{call, in_call};
use crate::ClassRule;
use crate::ResourceClass::{Compute, Memory};

#[test]
fn sizes_of_the_call_say_more_than_the_name() {
    use ClassRule::{Estimated, Name};
    let gemm = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn";
    let large = call("gemm", &[4096, 4096, 4096], "f16");
    assert_eq!(in_call(gemm, &large), Some((Compute, Estimated)));
    // One token of a language model: each weight is read for one multiplication.
    let skinny = call("gemm", &[4096, 8, 4096], "f16");
    assert_eq!(in_call(gemm, &skinny), Some((Memory, Estimated)));
    let unknown = "nobody_knows_it";
    assert_eq!(in_call(unknown, &large), Some((Compute, Estimated)));
    let sum = "void cublasLt::splitKreduce_kernel<32, 16>(int)";
    assert_eq!(in_call(sum, &large), Some((Memory, Name)));
    let conv = "volta_scudnn_128x64_relu_interior_nn_v1";
    let usual = call("conv_forward", &[32, 256, 14, 14, 256, 256, 3, 3], "f32");
    assert_eq!(in_call(conv, &usual), Some((Compute, Estimated)));
    let pointwise = call("conv_forward", &[96, 16, 112, 112, 96, 16, 1, 1], "f32");
    assert_eq!(in_call(conv, &pointwise), Some((Memory, Estimated)));
    let depthwise = call("conv_forward", &[32, 96, 112, 112, 96, 1, 3, 3], "f32");
    assert_eq!(in_call(conv, &depthwise), Some((Memory, Estimated)));
    let to_bias = call("conv_backward_bias", &[32, 96, 112, 112], "f32");
    assert_eq!(in_call("f", &to_bias), None);
    for sizes in [&[][..], &[0, 0, 0], &[1, 2], &[5; 7], &[u64::MAX; 10]] {
        let _ = in_call(conv, &call("conv_forward", sizes, "f32"));
        let _ = in_call(gemm, &call("gemm", sizes, ""));
    }
}

/// A product of n × n matrices does 2n ÷ 3 operations for each number that moves.
#[test]
fn each_kind_of_number_has_a_ridge_of_its_own() {
    let of = |n: u64, number: &str| Intensity::of(&call("gemm", &[n, n, n], number));
    let (low, middle, high) = (Intensity::Low, Intensity::Middle, Intensity::High);
    for (number, n, expected) in [
        // 15 operations a byte on the units for it, 120 with TF32.
        ("f32", 88, low),
        ("f32", 92, middle),
        ("f32", 712, middle),
        ("f32", 724, high),
        // 10 on either.
        ("f64", 116, low),
        ("f64", 124, high),
        // Four times the operations, twice or four times the bytes.
        ("c32", 44, low),
        ("c32", 48, middle),
        ("c64", 56, low),
        ("c64", 64, high),
        ("f16", 448, low),
        ("bf16", 452, high),
        ("f8e4m3", 672, low),
        ("f8e5m2", 676, high),
        ("i8", 676, high),
        ("f4e2m1", 820, low),
        ("f4e2m1", 828, high),
    ] {
        assert_eq!(of(n, number), Some(expected), "{number} {n}");
    }
}

#[test]
fn between_two_ridges_the_name_decides_which_units_are_used() {
    let middle = call("gemm", &[512, 512, 512], "f32");
    let class = |name| in_call(name, &middle).map(|(class, _)| class);
    assert_eq!(class("ampere_sgemm_128x64_tn"), Some(Compute));
    let tensor = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4";
    assert_eq!(class(tensor), Some(Memory));
    // A call without observed launches has no name.
    assert_eq!(class(""), None);
    assert_eq!(
        in_call("", &call("gemm", &[64; 3], "f32")),
        Some((Memory, ClassRule::Estimated))
    );
    assert_eq!(
        in_call("", &call("gemm", &[4096; 3], "f32")),
        Some((Compute, ClassRule::Estimated))
    );
}
