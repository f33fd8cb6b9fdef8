//! The newest public CUDA headers have no entry point that the table lacks. They are of the newest
//! wheel `nvidia-cuda-runtime`, by `.ci/run` in `.venv/headers`; `PILLION_CUDA_HEADERS` can name
//! another folder. Without them it is ignored, or fails with `PILLION_REQUIRE_TOOLS=1`.
//! `cudaTypedefs.h` has a function type `PFN_<api>_v<version>[_ptsz]` for each form of each entry
//! point, as `cuGetProcAddress` distinguishes them; `cuda.h` declares the symbols.
#![expect(
    clippy::unwrap_used,
    reason = "tests, which Clippy does not know as such"
)]

#[macro_use]
extern crate testing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use abi::ENTRY_POINTS;

fn main() -> ExitCode {
    testing::main()
}

type Form = (String, u32, bool);

fn forms(typedefs: &str) -> BTreeSet<Form> {
    typedefs
        .split("*PFN_")
        .skip(1)
        .filter_map(|text| {
            let name = text.split(')').next()?;
            let per_thread = name.ends_with("_ptsz") || name.ends_with("_ptds");
            let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            let (api, version) = name.rsplit_once("_v")?;
            Some((api.to_owned(), version.parse().ok()?, per_thread))
        })
        .collect()
}

fn symbols(header: &str) -> BTreeSet<String> {
    header
        .split("CUresult CUDAAPI ")
        .skip(1)
        .filter_map(|text| {
            let (name, _) = text.split_once('(')?;
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (is_name && name.starts_with("cu")).then(|| name.to_owned())
        })
        .collect()
}

fn lacking(typedefs: &str, header: &str) -> Vec<String> {
    let is_known = |form: &&Form| {
        let (api, version, per_thread) = form;
        let mut table = ENTRY_POINTS.iter();
        table.any(|e| e.api == api && e.version == *version && e.per_thread == *per_thread)
    };
    let forms = forms(typedefs).into_iter().filter(|form| !is_known(&form));
    let forms = forms.map(|(api, version, per_thread)| {
        let flavour = if per_thread { ", per-thread" } else { "" };
        format!(
            "{api} as of {version}{flavour}: add its symbol, with category, route and prototype"
        )
    });
    let has_symbol = |name: &String| {
        let mut table = ENTRY_POINTS.iter();
        table.any(|e| e.symbol.to_bytes() == name.as_bytes())
    };
    let symbols = symbols(header).into_iter();
    let symbols = symbols.filter(|name| !has_symbol(name));
    let symbols = symbols.map(|name| format!("{name}: a symbol that the table does not have"));
    forms.chain(symbols).collect()
}

fn folder() -> PathBuf {
    if let Some(folder) = env::var_os("PILLION_CUDA_HEADERS") {
        return folder.into();
    }
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/headers/nvidia");
    entries(packages)
        .map(|package| package.path().join("include"))
        .find(|include| include.join("cudaTypedefs.h").is_file())
        .unwrap_or_else(|| {
            let what = "CUDA headers in .venv/headers, which .ci/run installs";
            testing::missing("PILLION_REQUIRE_TOOLS", what)
        })
}

#[test]
fn the_newest_headers_have_nothing_that_our_table_lacks() {
    let folder = folder();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (typedefs, header) = (read("cudaTypedefs.h"), read("cuda.h"));
    // The parser found everything: 13.5 has 685 forms and 679 declarations.
    assert!(forms(&typedefs).len() >= 680, "{}", forms(&typedefs).len());
    assert!(symbols(&header).len() >= 400, "{}", symbols(&header).len());
    let lacking = lacking(&typedefs, &header);
    assert!(lacking.is_empty(), "\n{}", lacking.join("\n"));
}

#[test]
fn what_is_new_in_a_header_is_told() {
    let typedefs = "typedef CUresult (CUDAAPI *PFN_cuMemAlloc_v3020)(size_t);\n\
                    typedef CUresult (CUDAAPI *PFN_cuMemAlloc_v99000)(size_t);\n\
                    typedef CUresult (CUDAAPI *PFN_cuInit_v2000_ptsz)(unsigned);\n";
    let header =
        "CUresult CUDAAPI cuInit(unsigned int Flags);\nCUresult CUDAAPI cuNewThing(void);\n";
    let told = lacking(typedefs, header);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].starts_with("cuInit as of 2000, per-thread:"),
        "{told:?}"
    );
    assert!(told[1].starts_with("cuMemAlloc as of 99000:"), "{told:?}");
    assert!(told[2].starts_with("cuNewThing:"), "{told:?}");
}
