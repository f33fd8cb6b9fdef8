//! Links the library as NVIDIA links its management library.

fn main() {
    // Programs look it up by this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
