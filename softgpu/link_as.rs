//! Links a stand-in as NVIDIA's library of that name is linked: for the build scripts of the stand-ins.

use std::path::PathBuf;

/// Gives the library that is being built a name, and a version node of that name: programs look it up by the one, and
/// the dynamic linker refuses a library that lacks a version which another one wants of it.
pub(crate) fn link_as(name: &str) {
    let folder =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it for build scripts"));
    let versions = folder.join("versions.map");
    std::fs::write(&versions, format!("{name} {{\n}};\n")).expect("cargo made the folder for this");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,{name}");
    println!(
        "cargo::rustc-link-arg-cdylib=-Wl,--version-script={}",
        versions.display()
    );
    // Set by the packages in the folders `cuda12`, which compile the same sources.
    println!("cargo::rustc-check-cfg=cfg(cuda12)");
    println!("cargo::rerun-if-changed=build.rs");
}
