//! Links `libpillion.so` so that its own references to the symbols it exports stay its own.
//!
//! Without `-Bsymbolic` the table of hooks would hold whatever `cuLaunchKernel` comes first in the
//! process, which may be a program's own wrapper: a wrapper that asks `dlsym` for the driver's
//! function would then be handed itself.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic");
}
