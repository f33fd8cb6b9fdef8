//! Links `libpillion_shim.so`: our library as the `libcuda.so.1` that programs find.
//!
//! As the preload library, and with the driver's name. A program may close its driver; the helper
//! thread and the hooks that it still holds must not go with it, so the library stays (`-z nodelete`).

#![forbid(unsafe_code)]

#[path = "../build.rs"]
mod preload;

fn main() {
    preload::main();
    println!("cargo::rerun-if-changed=../build.rs");
    println!("cargo::rustc-cfg=shim");
    for argument in ["-soname,libcuda.so.1", "-z,nodelete"] {
        println!("cargo::rustc-link-arg-cdylib=-Wl,{argument}");
    }
}
