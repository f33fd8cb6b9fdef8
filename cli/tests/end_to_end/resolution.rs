//! Programs find the same entry points of the driver as without us, hooked where the table says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use abi::{ENTRY_POINTS, Route};

use crate::common::{
    Ended, Program, cargo_folder, clean_command, collect, driver_folder, library, shim_folder,
};

/// A query of a release of the CUDA runtime to `cuGetProcAddress`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    name: String,
    version: u32,
    flags: u64,
}

#[derive(Debug)]
struct Release {
    name: String,
    requests: Vec<Request>,
}

fn releases() -> Vec<Release> {
    let text = fs::read_to_string(testing::data("cuda/cudart_requests.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("the file has a header");
    let rows: Vec<_> = lines.collect();
    let release = |column: usize| Release {
        name: header[column].to_owned(),
        requests: rows
            .iter()
            .filter(|row| row[column] == "1")
            .map(|row| Request {
                name: row[0].to_owned(),
                version: row[1].parse().unwrap(),
                flags: row[2].parse().unwrap(),
            })
            .collect(),
    };
    (3..header.len()).map(release).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setup {
    Alone,
    Preload,
    Shim,
}

fn run(setup: Setup, program: &'static str, arguments: &[&str], driver: &Path) -> Ended {
    let mut command = clean_command(Program::Unlinked(program).path());
    command.args(arguments).env("LD_LIBRARY_PATH", driver);
    match setup {
        Setup::Alone => {}
        Setup::Preload => {
            command.env("LD_PRELOAD", library());
        }
        Setup::Shim => {
            let folder = shim_folder(&driver.join("libcuda.so.1"));
            let path = std::env::join_paths([&*folder, driver]).unwrap();
            command.env("LD_LIBRARY_PATH", path);
        }
    }
    collect(command)
}

fn home(setup: Setup) -> PathBuf {
    match setup {
        Setup::Alone => driver_folder().join("libcuda.so.1"),
        Setup::Preload => library(),
        Setup::Shim => cargo_folder().join("libpillion_shim.so"),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().unwrap() == other.canonicalize().unwrap()
}

impl Request {
    fn index(&self) -> Option<usize> {
        abi::newest(&self.name, self.version, self.flags & 2 != 0)
    }

    fn line(&self) -> String {
        let symbol = self.index().map_or("-".to_owned(), |index| {
            ENTRY_POINTS[index].symbol.to_string_lossy().into_owned()
        });
        let Self {
            name,
            version,
            flags,
        } = self;
        format!("{version} {flags} {symbol} {name}\n")
    }
}

/// Compares the answers of one release line by line; returns the number of hooks.
fn compare(release: &Release, setup: Setup, alone: &str, ours: &str) -> usize {
    let (alone, ours): (Vec<_>, Vec<_>) = (alone.lines().collect(), ours.lines().collect());
    assert_eq!(alone.len(), release.requests.len() + 1, "{}", release.name);
    assert_eq!(alone.len(), ours.len(), "{} {setup:?}", release.name);
    let mut hooks = 0;
    // The first line is the resolver itself, three deep.
    for (line, (alone, ours)) in alone.iter().zip(&ours).enumerate() {
        let request = line.checked_sub(1).map(|line| &release.requests[line]);
        let what = format!("{} {setup:?} {request:?}", release.name);
        let Some((alone, driver)) = alone.split_once(" that ") else {
            // No address: the name is unknown to the driver, or newer than asked for.
            assert_eq!(ours, alone, "{what}");
            assert!(!alone.contains("another"), "{what}: {alone}");
            continue;
        };
        let (ours, holder) = ours.split_once(" that ").expect(&what);
        // Result, status, and that a null status makes no difference.
        assert_eq!(ours, alone, "{what}");
        let is_hooked = request.is_none_or(|request| {
            let index = request.index();
            index.is_some_and(|index| ENTRY_POINTS[index].route == Route::Hook)
        });
        if is_hooked {
            assert!(is_same(Path::new(holder), &home(setup)), "{what}: {holder}");
            hooks += 1;
        } else {
            assert!(
                is_same(Path::new(holder), Path::new(driver)),
                "{what}: {holder}"
            );
        }
    }
    hooks
}

// census: A17, A18, A19, A20, A21, A22, A23, A29, A16
#[test]
fn every_request_of_seventeen_cuda_runtimes_is_answered_as_without_us_and_hooked_where_it_matters()
{
    let releases = releases();
    assert_eq!(releases.len(), 17);
    let all: BTreeSet<&Request> = releases.iter().flat_map(|r| &r.requests).collect();
    assert_eq!(all.len(), 505);
    let folder = tempfile::tempdir().unwrap();
    for release in &releases {
        let file = folder.path().join(&release.name);
        let lines: String = release.requests.iter().map(Request::line).collect();
        fs::write(&file, lines).unwrap();
        // Runtimes before 12.0 know the resolver with four parameters only.
        let form = if release.name.starts_with("cudart_11") {
            "first"
        } else {
            "second"
        };
        let arguments = [file.to_str().unwrap(), form];
        let answers = |setup| {
            let ended = run(setup, "resolve", &arguments, driver_folder());
            assert_eq!((ended.code(), &*ended.errors), (4, ""), "{ended:#?}");
            ended.output
        };
        let alone = answers(Setup::Alone);
        assert!(!alone.contains("different"), "{alone}");
        for setup in [Setup::Preload, Setup::Shim] {
            let hooks = compare(release, setup, &alone, &answers(setup));
            assert!(hooks > 80, "{} {setup:?}: {hooks} hooks", release.name);
        }
    }
}

// census: A5, A6
#[test]
fn forty_thousand_look_ups_in_each_of_eight_threads_find_the_same() {
    let alone = run(Setup::Alone, "lookups", &[], driver_folder());
    assert_eq!(alone.code(), 3, "{alone:#?}");
    assert_eq!(alone.output.matches("wrong 0\n").count(), 8, "{alone:#?}");
    for setup in [Setup::Preload, Setup::Shim] {
        let ours = run(setup, "lookups", &[], driver_folder());
        assert_eq!(ours.output, alone.output, "{setup:?}");
        assert_eq!((ours.code(), &*ours.errors), (3, ""), "{setup:?}");
    }
}

// census: A9, A15, L6, J13
#[test]
fn a_driver_that_looks_itself_up_while_it_starts_finds_its_way() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    symlink(Program::Library("asking_driver").path(), driver).unwrap();
    let alone = run(Setup::Alone, "initialise", &[], folder.path());
    assert_eq!(alone.code(), 2, "{alone:#?}");
    assert_eq!(
        alone.output.matches("its own cuInit answers 0").count(),
        2,
        "{alone:#?}"
    );
    let ours = run(Setup::Preload, "initialise", &[], folder.path());
    assert_eq!(ours.output, alone.output);
    assert_eq!((ours.code(), &*ours.errors), (2, ""));
}

// census: A26
#[test]
fn what_the_driver_lacks_is_not_there_with_us_either_and_is_not_found_when_called() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    symlink(Program::Library("asking_driver").path(), driver).unwrap();
    let answers = |setup| {
        let ended = run(setup, "lacking", &[], folder.path());
        assert_eq!((ended.code(), &*ended.errors), (1, ""), "{ended:#?}");
        ended.output
    };
    let alone = answers(Setup::Alone);
    assert_eq!(alone.matches("not there").count(), 4, "{alone}");
    assert_eq!(answers(Setup::Preload), alone);
    assert_eq!(answers(Setup::Shim), alone);
}
