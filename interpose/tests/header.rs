//! `include/pillion.h` compiles everywhere, and works with any library or none.

use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "#include \"pillion.h\"\n#include <stdio.h>\n\
    int main(void) { printf(\"%d %d %d %d %d %u %d\", (int)pillion_begin(0, 1, 2), pillion_end(7), \
    pillion_slo(0, 1, 990), pillion_iteration(), pillion_batch_range(0, 1, 8, 1), \
    (unsigned)pillion_batch_wanted(0, 5), pillion_on_batch(0, 0, 0)); return 0; }\n";
/// A library whose table ends after `begin`.
const SHORT: &str = "#include \"pillion.h\"\n\
    static pillion_request begin(uint64_t a, uint32_t k, uint32_t b) { (void)a; return k + b; }\n\
    static const pillion_v1 api = {offsetof(pillion_v1, end), 1, begin, 0, 0, 0, 0, 0, 0, 0};\n\
    const pillion_v1 *pillion_api(uint32_t abi) { return abi == 1 ? &api : 0; }\n";

fn compile(folder: &Path, compiler: &[&str], text: &str, name: &str) {
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, text).expect("a source file");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .args(["-O2", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"]);
    command
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(folder.join(name));
    let status = command.status().expect("a compiler");
    assert!(status.success(), "{compiler:?}");
}

#[test]
fn the_header_goes_with_no_library_and_with_older_ones() {
    let folder = std::env::temp_dir().join(format!("pillion-header-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let shared = ["cc", "-std=c99", "-shared", "-fPIC"];
    compile(&folder, &shared, SHORT, "short.so");
    compile(
        &folder,
        &shared,
        "extern int nothing;\nint nothing = 1;\n",
        "none.so",
    );
    let has_clang = Command::new("clang").arg("--version").output().is_ok();
    let compilers = [
        &["cc", "-std=c99"][..],
        &["cc", "-std=c99", "-no-pie", "-fno-pie"],
        &["c++", "-x", "c++", "-std=c++11"],
        &["clang", "-std=c99"],
    ];
    for compiler in compilers
        .into_iter()
        .filter(|of| of[0] != "clang" || has_clang)
    {
        compile(&folder, compiler, PROGRAM, "program");
        for (library, said) in [
            ("", "0 -1 -1 -1 -1 5 -1"),
            ("none.so", "0 -1 -1 -1 -1 5 -1"),
            ("short.so", "3 -1 -1 -1 -1 5 -1"),
        ] {
            let mut program = Command::new(folder.join("program"));
            if !library.is_empty() {
                program.env("LD_PRELOAD", folder.join(library));
            }
            let output = program.output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                said,
                "{compiler:?} {library}"
            );
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
