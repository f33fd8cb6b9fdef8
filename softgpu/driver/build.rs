//! Links the library as NVIDIA links its driver.

fn main() {
    // Programs look the driver up by this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Our own references to entry points must bind to ours, not to those of a library preloaded
    // before us: cuGetProcAddress would return the preload's functions, which call us, for ever.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
