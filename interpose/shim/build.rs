//! Links `libpillion_shim.so`: our library as the `libcuda.so.1` that programs find. Like the
//! preload library, but with the driver's name. A program may close its driver; the helper thread
//! and the hooks that it still holds must stay, so the library is never unloaded (`-z nodelete`).
//! It depends on the driver under a private name (`src/driver/real/shim.rs`), and is therefore
//! linked with an empty library of that name.

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
    // The linker would drop the library, as no symbol of it is used.
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
