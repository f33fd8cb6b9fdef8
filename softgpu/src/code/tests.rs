//! Images written by real tools, and malformed images. `images/` was made from `images/kernels.cu`:
//! `sm_75.cubin`, `sm_90.cubin` and `kernels.ptx` (for sm_80) by NVRTC, `two.fatbin` (a cubin for
//! sm_90, PTX for sm_75) by nvFatbin.

use proptest::prelude::*;

use super::*;

const SM_75: &[u8] = include_bytes!("images/sm_75.cubin");
const SM_90: &[u8] = include_bytes!("images/sm_90.cubin");
const TWO: &[u8] = include_bytes!("images/two.fatbin");
const PTX: &str = include_str!("images/kernels.ptx");

fn kernel<'a>(code: &'a Code, name: &str) -> &'a CodeKernel {
    let found = code.kernels.iter().find(|kernel| kernel.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {code:?}"))
}

/// The contents of `kernels.cu`, whatever it was compiled to.
fn expect_kernels(code: &Code) {
    assert_eq!(code.kernels.len(), 2, "{code:?}");
    let params = |name: &str| -> Vec<(u32, u32)> {
        let params = &kernel(code, name).params;
        params.iter().map(|p| (p.offset, p.size_bytes)).collect()
    };
    assert_eq!(
        params("_Z5scaleIfEvPT_S0_id"),
        [(0, 8), (8, 4), (12, 4), (16, 8)]
    );
    assert_eq!(params("big"), [(0, 1), (2, 26), (32, 8), (40, 8)]);
    assert_eq!(kernel(code, "big").threads_max, Some(256));
    assert_eq!(kernel(code, "big").shared_bytes, 0);
    assert_eq!(kernel(code, "_Z5scaleIfEvPT_S0_id").threads_max, None);
    assert_eq!(kernel(code, "_Z5scaleIfEvPT_S0_id").shared_bytes, 256);
    let mut globals: Vec<_> = code.globals.iter().map(|g| (&*g.name, g.bytes)).collect();
    globals.sort_unstable();
    assert_eq!(globals, [("counter", 4), ("table", 64)]);
}

#[test]
fn a_cubin_names_its_kernels_with_what_they_take() {
    for (bytes, capability, registers) in [(SM_75, 75, [9, 40]), (SM_90, 90, [8, 31])] {
        let code = parse(Kind::Cubin, bytes, capability).unwrap();
        expect_kernels(&code);
        let found = ["_Z5scaleIfEvPT_S0_id", "big"].map(|name| kernel(&code, name).registers);
        assert_eq!(found, registers);
        assert_eq!(kernel(&code, "big").local_bytes, 32);
    }
}

#[test]
fn ptx_names_its_kernels_with_what_it_says_of_them() {
    expect_kernels(&parse_ptx(PTX, 80).unwrap());
    expect_kernels(&parse_ptx(PTX, 120).unwrap());
}

#[test]
fn code_for_another_device_is_refused() {
    assert_eq!(parse(Kind::Cubin, SM_75, 80), Err(CodeError::NoCode(80)));
    assert_eq!(parse(Kind::Cubin, SM_75, 70), Err(CodeError::NoCode(70)));
    assert_eq!(parse_ptx(PTX, 75), Err(CodeError::NoCode(75)));
    assert_eq!(parse(Kind::Fatbin, TWO, 70), Err(CodeError::NoCode(70)));
}

#[test]
fn a_fat_binary_gives_the_cubin_for_its_device_and_ptx_for_others() {
    for (capability, is_virtual) in [(90, false), (75, true), (80, true), (100, true)] {
        let code = parse(Kind::Fatbin, TWO, capability).unwrap();
        assert_eq!(code.is_virtual, is_virtual, "{capability}");
        expect_kernels(&code);
    }
}

/// A fat binary of one entry, a cubin for sm_90, with these flags in its header.
fn fat_binary_of(flags: u64, content: &[u8]) -> Vec<u8> {
    let mut header = TWO[16..16 + 64].to_vec();
    header[..2].copy_from_slice(&2u16.to_le_bytes());
    header[4..8].copy_from_slice(&64u32.to_le_bytes());
    header[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
    header[28..32].copy_from_slice(&90u32.to_le_bytes());
    header[40..48].copy_from_slice(&flags.to_le_bytes());
    let mut bytes = TWO[..16].to_vec();
    bytes[8..16].copy_from_slice(&((header.len() + content.len()) as u64).to_le_bytes());
    bytes.extend(header);
    bytes.extend(content);
    bytes
}

#[test]
fn a_cubin_that_is_compressed_with_zstd_has_the_kernels_of_the_plain_one() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let compressed = compress_to_vec(SM_90, CompressionLevel::Fastest);
    assert!(compressed.len() < SM_90.len());
    let plain = parse(Kind::Fatbin, &fat_binary_of(0x11, SM_90), 90).unwrap();
    let code = parse(Kind::Fatbin, &fat_binary_of(0x8011, &compressed), 90);
    assert_eq!(code, Ok(plain));
    // Padding may follow the frame.
    let padded = [&compressed[..], &[0; 7]].concat();
    assert!(parse(Kind::Fatbin, &fat_binary_of(0x8011, &padded), 90).is_ok());
    for broken in [&compressed[..compressed.len() / 2], &SM_90[..64], &[]] {
        assert!(matches!(
            parse(Kind::Fatbin, &fat_binary_of(0x8011, broken), 90),
            Err(CodeError::Malformed(_))
        ));
    }
}

/// As above, for an LZ4 entry with these lengths in its header.
fn fat_binary_of_lz4(content: &[u8], compressed_bytes: u32, plain_bytes: u64) -> Vec<u8> {
    let mut bytes = fat_binary_of(0x2011, content);
    bytes[16 + 16..16 + 20].copy_from_slice(&compressed_bytes.to_le_bytes());
    bytes[16 + 56..16 + 64].copy_from_slice(&plain_bytes.to_le_bytes());
    bytes
}

#[test]
fn a_cubin_that_is_compressed_with_lz4_has_the_kernels_of_the_plain_one() {
    let compressed = lz4_flex::block::compress(SM_90);
    let (length, plain_length) = (compressed.len() as u32, SM_90.len() as u64);
    assert!(compressed.len() < SM_90.len());
    let plain = parse(Kind::Fatbin, &fat_binary_of(0x11, SM_90), 90).unwrap();
    // Padding follows the block.
    let padded = [&compressed[..], &[0; 7]].concat();
    for content in [&compressed, &padded] {
        let code = fat_binary_of_lz4(content, length, plain_length);
        assert_eq!(parse(Kind::Fatbin, &code, 90).as_ref(), Ok(&plain));
    }
    for (content, length, plain_length) in [
        (&compressed[..], length / 2, plain_length),
        (&compressed[..], length + 1, plain_length),
        (&compressed[..], 0, plain_length),
        (&compressed[..], length, plain_length - 1),
        (&compressed[..], length, plain_length + 1),
        (&compressed[..], length, u64::MAX),
        (&SM_90[..64], 64, plain_length),
        (&[], 0, 0),
    ] {
        assert!(matches!(
            parse(
                Kind::Fatbin,
                &fat_binary_of_lz4(content, length, plain_length),
                90
            ),
            Err(CodeError::Malformed(_))
        ));
    }
}

#[test]
fn the_length_is_found_without_a_byte_too_many() {
    for (bytes, kind) in [
        (SM_75, Kind::Cubin),
        (SM_90, Kind::Cubin),
        (TWO, Kind::Fatbin),
    ] {
        let mut seen = 0;
        let whole = loop {
            match extent(&bytes[..seen]).unwrap() {
                Extent::AtLeast(more) => {
                    assert!(more > seen && more <= bytes.len());
                    seen = more;
                }
                other => break other,
            }
        };
        assert_eq!(whole, Extent::Whole(kind, bytes.len()));
    }
    assert_eq!(extent(b"softgpu-module 1"), Ok(Extent::Text));
    assert_eq!(extent(b"\x50"), Ok(Extent::AtLeast(2)));
    assert_eq!(extent(b"P "), Ok(Extent::Text));
    assert_eq!(
        extent(b"\xb1\x43\x62\x46"),
        Ok(Extent::AtLeast(WRAPPER_BYTES))
    );
}

#[test]
fn what_is_no_image_is_refused() {
    assert!(matches!(extent(b"\0"), Err(CodeError::Malformed(_))));
    assert!(matches!(extent(b"\xff\xfe"), Err(CodeError::Malformed(_))));
    let mut host = SM_75.to_vec();
    host[0x12] = 62;
    assert!(matches!(extent(&host), Err(CodeError::Malformed(_))));
    assert!(matches!(
        parse(Kind::Cubin, &host, 75),
        Err(CodeError::Malformed(_))
    ));
    for text in [
        "",
        "hello",
        ".version",
        ".version 9.4 .address_size 64",
        ".version 9.4 .target x",
    ] {
        assert!(
            matches!(parse_ptx(text, 80), Err(CodeError::Ptx(_))),
            "{text}"
        );
    }
    for body in [
        ".entry",
        ".entry (",
        ".entry k (.param .u64",
        ".entry k {",
        "{",
        ".entry k (.param x)",
    ] {
        let text = format!(".version 9.4 .target sm_80 .address_size 64 {body}");
        assert!(
            matches!(parse_ptx(&text, 80), Err(CodeError::Ptx(_))),
            "{body}"
        );
    }
}

#[test]
fn ptx_with_comments_attributes_and_labels_is_stepped_over() {
    let text = ".version 8.0\n.target sm_90a, texmode_independent // arch\n.address_size 64\n\
        .file 1 \"{ odd }\"\n/* .entry no( */ .extern .func f(.param .b32 x);\n\
        .func g(.param .b64 p){ .shared .b8 s[16]; ret; }\n\
        .visible .global .attribute(.managed) .align 8 .v2 .f32 pair[3];\n\
        .weak .entry a$1(.param .u64 .ptr .global .align 16 p, .param .align 8 .b8 q[12])\n\
        .reqntid 8, 4 .minnctapersm 2\n{ .extern .shared .b8 dyn[]; .shared .f64 x[2][3]; {L: bra L;} }\n\
        .entry b() { ret; }";
    let code = parse_ptx(text, 90).unwrap();
    assert_eq!(code.kernels.len(), 2);
    let a = &code.kernels[0];
    assert_eq!(
        (&*a.name, a.threads_max, a.shared_bytes),
        ("a$1", Some(32), 48)
    );
    let params: Vec<_> = a.params.iter().map(|p| (p.offset, p.size_bytes)).collect();
    assert_eq!(params, [(0, 8), (8, 12)]);
    assert!(code.kernels[1].params.is_empty());
    assert_eq!(
        code.globals,
        [CodeGlobal {
            name: "pair".into(),
            bytes: 24
        }]
    );
}

#[test]
fn what_is_written_as_ptx_is_read_back() {
    let code = parse(Kind::Cubin, SM_75, 75).unwrap();
    let text = write_ptx([&code, &parse_ptx(PTX, 80).unwrap()].into_iter(), 86);
    expect_kernels(&parse_ptx(&text, 86).unwrap());
    assert_eq!(parse_ptx(&text, 80), Err(CodeError::NoCode(80)));
}

/// Whether these bytes have a consistent extent: more than was seen, or exactly as much.
fn is_possible(seen: &[u8]) -> bool {
    match extent(seen) {
        Ok(Extent::AtLeast(bytes)) => bytes > seen.len(),
        Ok(Extent::Whole(_, bytes)) => bytes <= seen.len(),
        Ok(Extent::Text) | Err(_) => true,
    }
}

proptest! {
    #[test]
    fn a_damaged_cubin_is_refused_or_has_as_many_kernels_as_before_at_most(
        at in 0usize..7872, byte: u8, cut in 0usize..7872, capability in 70u32..130,
    ) {
        let mut bytes = SM_90.to_vec();
        bytes[at] = byte;
        let whole = parse(Kind::Cubin, SM_90, 90).unwrap();
        for (bytes, capability) in [(&bytes[..], capability), (&bytes[..cut], 90)] {
            let kernels = parse(Kind::Cubin, bytes, capability).map_or(0, |code| code.kernels.len());
            prop_assert!(kernels <= whole.kernels.len(), "{}", kernels);
            prop_assert!(is_possible(bytes), "{:?}", extent(bytes));
        }
    }

    #[test]
    fn a_damaged_fat_binary_is_refused_or_has_as_many_kernels_as_before_at_most(
        at in 0usize..256, byte: u8, cut in 0usize..11384, capability in 70u32..130,
    ) {
        let mut bytes = TWO.to_vec();
        bytes[at] = byte;
        let whole = parse(Kind::Fatbin, TWO, 90).unwrap();
        for (bytes, capability) in [(&bytes[..], capability), (&bytes[..cut], 90)] {
            let kernels = parse(Kind::Fatbin, bytes, capability).map_or(0, |code| code.kernels.len());
            prop_assert!(kernels <= whole.kernels.len(), "{}", kernels);
            prop_assert!(is_possible(bytes), "{:?}", extent(bytes));
        }
    }

    #[test]
    fn any_text_after_the_head_is_read_and_without_it_refused(
        text in "(\\.entry|\\.param|\\.shared|\\.b8|\\.align|x|[0-9]|[(){}\\[\\];,\" ]){0,60}\\PC{0,20}",
    ) {
        if let Ok(code) = parse_ptx(&format!(".version 9.4 .target sm_80 {text}"), 80) {
            let mut kernels = code.kernels.iter();
            prop_assert!(kernels.all(|kernel| text.contains(&kernel.name)), "{:?}", code);
        }
        prop_assert!(parse_ptx(&text, 80).is_err());
    }
}
