//! Links the library as the CUDA runtime is linked.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // Programs look the runtime up by this name, and expect its version node: the dynamic linker refuses a library
    // that lacks a version which another one wants of it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcudart.so.13");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/versions.map");
    println!("cargo:rerun-if-changed=versions.map");
    println!("cargo:rerun-if-changed=build.rs");
}
