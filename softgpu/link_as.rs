//! For build scripts: links a stand-in under the name and version of NVIDIA's library.

use std::path::PathBuf;

/// Gives the library being built a name, by which programs look it up, and a version node of that
/// name, which the dynamic linker requires.
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
    // The packages in the folders `cuda12` set this and compile the same sources.
    println!("cargo::rustc-check-cfg=cfg(cuda12)");
    println!("cargo::rerun-if-changed=build.rs");
}
