//! Links `libpillion.so` so that it is at home in any process.
//!
//! - Its own references to the symbols it exports stay its own (`-Bsymbolic`). Else the table of hooks
//!   would hold whatever `cuLaunchKernel` comes first in the process, which may be a program's own
//!   wrapper: a wrapper that asks `dlsym` for the driver's function would then be handed itself.
//! - What not every C library has is imported weakly, through `src/platform/imports.rs` (`--wrap`).
//!   A preloaded library that cannot be resolved ends the process, and a job may start programs of
//!   any kind.
//! - The unwinder is found when it is needed, by `src/platform/unwinder.rs`; GCC's is linked in
//!   where the linker has it as an archive. As a library that we need, it costs every process 0.1
//!   ms to load, and systems with another C library have none.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `src/platform/imports.rs` imports weakly.
const WEAK: [&str; 3] = ["__register_atfork", "__tls_get_addr", "_dl_find_object"];

/// What `src/platform/unwinder.rs` finds, each with `_Unwind_` before it.
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
        // The name under which the standard library asks for it, found before the system's own.
        std::fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")
            .expect("cargo made the folder for this");
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
}

/// Whether the linker that makes the library knows GCC's unwinder as an archive.
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
    // It answers with the bare name if it has none.
    asked.is_ok_and(|answer| {
        let path = String::from_utf8_lossy(&answer.stdout).into_owned();
        let path = Path::new(path.trim());
        path.is_absolute() && path.is_file()
    })
}

pub(crate) fn variable(name: &str) -> OsString {
    env::var_os(name).expect("cargo sets it for build scripts")
}
