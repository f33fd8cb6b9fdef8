//! Links `libpillion_shim.so`: our library as the `libcuda.so.1` that programs find.
//!
//! As the preload library, and with the driver's name. A program may close its driver; the helper
//! thread and the hooks that it still holds must not go with it, so the library stays (`-z nodelete`).
//!
//! It depends on the driver by a name of its own (`src/driver/real/shim.rs`). For that it is linked
//! with an empty library that has this name.

use std::path::Path;
use std::process::Command;

#[path = "../build.rs"]
mod preload;

/// The driver behind the shim, as the dynamic linker looks for it.
const DRIVER: &str = "$ORIGIN/driver/libcuda.so.1";

fn main() {
    preload::main();
    println!("cargo::rerun-if-changed=../build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-cfg=shim");
    let stand_in = Path::new(&preload::variable("OUT_DIR")).join("libdriver.so");
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let made = Command::new(&linker)
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"])
        .arg(&stand_in)
        .arg(format!("-Wl,-soname,{DRIVER}"))
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "{} makes no library",
        linker.display()
    );
    // As nothing is taken from it, the linker would leave it out.
    let stand_in = stand_in.display().to_string();
    for argument in [
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-z,nodelete",
        "-Wl,--no-as-needed",
        &stand_in,
        "-Wl,--as-needed",
    ] {
        println!("cargo::rustc-link-arg-cdylib={argument}");
    }
}
