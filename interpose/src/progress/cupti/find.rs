//! Finds CUPTI's library. In this order: one that the process has mapped, as PyTorch does; beside
//! the mapped runtime (`libcudart.so`), as in the wheels and the toolkit; the dynamic linker's
//! search; the toolkit's folder. Names of a later major version than the driver's are not tried.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CUPTI: &[u8] = b"libcupti.so";
const RUNTIME: &[u8] = b"libcudart.so";
/// The toolkit's folder, unless a variable names another.
const TOOLKIT: &str = "/usr/local/cuda";

/// Names or paths to try in order, from `/proc/self/maps` and the driver's major version.
pub(super) fn candidates(maps: &[u8], major: u32, toolkit: Option<OsString>) -> Vec<CString> {
    let mut all: Vec<PathBuf> = mapped(maps, CUPTI).into_iter().collect();
    let runtime = mapped(maps, RUNTIME);
    let near = runtime.iter().filter_map(|path| path.parent());
    let near: Vec<PathBuf> = near.flat_map(beside).collect();
    let names = names(major);
    let within = |folders: &[PathBuf]| -> Vec<PathBuf> {
        let each = folders.iter();
        each.flat_map(|folder| names.iter().map(move |name| folder.join(name)))
            .collect()
    };
    all.extend(within(&near));
    all.extend(names.iter().map(PathBuf::from));
    let toolkit = PathBuf::from(toolkit.unwrap_or_else(|| TOOLKIT.into()));
    all.extend(within(&[
        toolkit.join("extras/CUPTI/lib64"),
        toolkit.join("lib64"),
    ]));
    let texts = all.into_iter();
    texts
        .filter_map(|path| CString::new(path.into_os_string().as_bytes()).ok())
        .collect()
}

fn mapped(maps: &[u8], beginning: &[u8]) -> Option<PathBuf> {
    let lines = maps.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'/')?;
            Some(Path::new(OsStr::from_bytes(line.get(at..)?)))
        })
        .find(|path| {
            let name = path.file_name().map(OsStr::as_bytes);
            name.is_some_and(|name| name.starts_with(beginning))
        })
        .map(Path::to_owned)
}

/// Folders that may have it beside the runtime's: the same (wheels of CUDA 13, conda), that of the
/// wheels of CUDA 11 and 12, that of the toolkit.
fn beside(runtime: &Path) -> Vec<PathBuf> {
    vec![
        runtime.to_owned(),
        runtime.join("../../cuda_cupti/lib"),
        runtime.join("../extras/CUPTI/lib64"),
    ]
}

/// Names for the dynamic linker, the driver's major version first. CUDA 11 names minor versions.
fn names(major: u32) -> Vec<String> {
    let later = (12..=major.min(99)).rev();
    let later = later.map(|major| format!("libcupti.so.{major}"));
    let eleven = ["11.8", "11.7"].map(|version| format!("libcupti.so.{version}"));
    later.chain(eleven).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0-55d1 r--p 00000000 08:01 12 /usr/bin/python3\n\
7f00-7f01 r--p 00000000 08:01 13 /w/nvidia/cuda_runtime/lib/libcudart.so.12\n\
7f02-7f03 rw-p 00000000 00:00 0\n\
7f04-7f05 r-xp 00000000 08:01 14 /w/nvidia/cuda_cupti/lib/libcupti.so.12\n";

    fn texts(maps: &str, major: u32) -> Vec<String> {
        let all = candidates(maps.as_bytes(), major, Some("/t".into()));
        all.into_iter()
            .map(|text| text.into_string().unwrap())
            .collect()
    }

    #[test]
    fn what_is_mapped_comes_first_and_then_what_is_beside_the_runtime() {
        let all = texts(MAPS, 12);
        assert_eq!(all[0], "/w/nvidia/cuda_cupti/lib/libcupti.so.12");
        let runtime = MAPS.lines().take(2).collect::<Vec<_>>().join("\n");
        let all = texts(&runtime, 12);
        assert_eq!(all[0], "/w/nvidia/cuda_runtime/lib/libcupti.so.12");
        let wheel = "/w/nvidia/cuda_runtime/lib/../../cuda_cupti/lib/libcupti.so.12";
        assert!(all.iter().any(|path| path == wheel), "{all:?}");
    }

    #[test]
    fn without_a_runtime_the_linkers_names_come_before_the_toolkits() {
        let all = texts("", 13);
        assert_eq!(all[..2], ["libcupti.so.13", "libcupti.so.12"]);
        assert_eq!(all[4], "/t/extras/CUPTI/lib64/libcupti.so.13");
    }

    #[test]
    fn no_later_version_than_the_drivers_is_tried() {
        assert!(texts("", 12).iter().all(|path| !path.ends_with(".13")));
        assert_eq!(texts("", 11)[0], "libcupti.so.11.8");
    }
}
