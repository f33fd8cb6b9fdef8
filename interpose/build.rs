//! Links `libpillion.so` so that it works in any process.
//! - References to our own exports bind to ourselves (`-Bsymbolic`). Otherwise the table of hooks
//!   would hold the process's first `cuLaunchKernel`, possibly a program's own wrapper: a wrapper
//!   that asks `dlsym` for the driver's function would then get itself.
//! - Functions that not every C library has are imported weakly, through
//!   `src/platform/imports.rs` (`--wrap`). A preloaded library that cannot be resolved ends the
//!   process, and a job may start programs of any kind.
//! - The unwinder is looked up on first use (`src/platform/unwinder.rs`). GCC's is linked in
//!   where the linker has it as an archive. As a needed library it would cost every process 0.1 ms
//!   to load, and systems with another C library have none.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Imported weakly by `src/platform/imports.rs`.
const WEAK: [&str; 3] = ["__register_atfork", "__tls_get_addr", "_dl_find_object"];

const UNWINDER: [&str; 15] = [
    "Backtrace",
    "DeleteException",
    "FindEnclosingFunction",
    "GetCFA",
    "GetDataRelBase",
    "GetGR",
    "GetIP",
    "GetIPInfo",
    "GetLanguageSpecificData",
    "GetRegionStart",
    "GetTextRelBase",
    "RaiseException",
    "Resume",
    "SetGR",
    "SetIP",
];

pub(crate) fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by the package in `shim`, which compiles the same sources.
    println!("cargo::rustc-check-cfg=cfg(shim)");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    for symbol in WEAK {
        println!("cargo::rustc-link-arg-cdylib=-Wl,--wrap={symbol}");
    }
    for function in UNWINDER {
        println!("cargo::rustc-link-arg-cdylib=-Wl,--wrap=_Unwind_{function}");
    }
    if has_static_unwinder() {
        let folder = PathBuf::from(variable("OUT_DIR"));
        // The name that the standard library links against, found before the system's own.
        std::fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")
            .expect("cargo made the folder for this");
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
}

/// Whether the linker that makes the library has GCC's unwinder as an archive.
fn has_static_unwinder() -> bool {
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let is_native = variable("HOST") == variable("TARGET");
    let linker = env::var_os("RUSTC_LINKER").or_else(|| is_native.then(|| "cc".into()));
    let Some(linker) = linker else {
        return false;
    };
    let asked = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    // It prints the bare name if it has none.
    asked.is_ok_and(|answer| {
        let path = String::from_utf8_lossy(&answer.stdout).into_owned();
        let path = Path::new(path.trim());
        path.is_absolute() && path.is_file()
    })
}

pub(crate) fn variable(name: &str) -> OsString {
    env::var_os(name).expect("cargo sets it for build scripts")
}
