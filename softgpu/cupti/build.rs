//! Links the library as NVIDIA links the CUPTI of CUDA 12.

fn main() {
    // Programs look it up by this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.12");
    println!("cargo:rerun-if-changed=build.rs");
}
