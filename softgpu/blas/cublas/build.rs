//! Links the library as NVIDIA's is linked.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // Programs look it up by this name, and the dynamic linker wants its version node.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcublas.so.13");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/versions.map");
    println!("cargo:rerun-if-changed=versions.map");
    println!("cargo:rerun-if-changed=build.rs");
}
