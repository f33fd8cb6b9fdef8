//! Parsers accept any input: arbitrary bytes, and valid files with a few bytes changed. The
//! environment names the file: whatever its content, the process goes on, with a result or an error
//! that names the file, and no panic. Accepted files survive rewriting.

use std::path::Path;

use profiler::{Format, Profile, ProfileIndex, Trace, decode, orion};
use proptest::prelude::*;

const PATH: &str = "some/file";

const ORION: &str = "\
Name,Profile,Memory_footprint,SM_usage,Duration
Conv,1,0,98,100480
void at::native::vectorized_elementwise_kernel,-1,0,1,3136
Conv,0,0,9000,10.5
";

fn valid_files() -> [String; 3] {
    let trace = Trace::parse(ORION, Path::new(PATH)).expect("right");
    let profile = Profile::from_trace(&trace);
    [ORION.to_owned(), trace.write(), profile.write()]
}

fn feed(bytes: &[u8]) -> Result<(), TestCaseError> {
    let path = Path::new(PATH);
    let names_file = |error: profiler::Error| {
        prop_assert!(error.to_string().starts_with(PATH), "{}", error);
        Ok(())
    };
    let text = match decode(bytes, path) {
        Ok(text) => text,
        Err(error) => return names_file(error),
    };
    let _ = Format::detect(text);
    if let Err(error) = orion::parse(text, path) {
        names_file(error)?;
    }
    match Trace::parse(text, path) {
        Ok(trace) => {
            let read = Trace::parse(&trace.write(), path);
            prop_assert_eq!(read.map_err(|error| error.to_string()), Ok(trace.clone()));
            let profile = Profile::from_trace(&trace);
            let read = Profile::parse(&profile.write(), path);
            prop_assert_eq!(read.map_err(|error| error.to_string()), Ok(profile));
        }
        Err(error) => names_file(error)?,
    }
    match Profile::parse(text, path) {
        Ok(profile) => {
            let read = Profile::parse(&profile.write(), path);
            prop_assert_eq!(read.map_err(|error| error.to_string()), Ok(profile.clone()));
            let index = ProfileIndex::new(profile);
            let _ = index.find("Conv", [1; 3], [1; 3], 0);
        }
        Err(error) => names_file(error)?,
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Change {
    Replace(u8),
    Insert(Vec<u8>),
    Remove(usize),
    Repeat(usize),
    Truncate,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<u8>().prop_map(Change::Replace),
        prop::sample::select(b" \n\r\t\"\\=,#x[]{}.-0987654321aN".as_slice())
            .prop_map(Change::Replace),
        prop::collection::vec(any::<u8>(), 1..6).prop_map(Change::Insert),
        prop::sample::select(vec![
            "99999999999999999999",
            "-1",
            "0",
            "\n",
            "\"",
            "é",
            "[[kernel]]\n",
            "launch 0 x4194303\n",
            "\u{feff}",
        ])
        .prop_map(|text| Change::Insert(text.into())),
        (1usize..80).prop_map(Change::Remove),
        (1usize..200).prop_map(Change::Repeat),
        Just(Change::Truncate),
    ]
}

fn apply(bytes: &mut Vec<u8>, place: prop::sample::Index, change: Change) {
    let at = place.index(bytes.len() + 1);
    match change {
        Change::Replace(byte) => {
            if let Some(old) = bytes.get_mut(at) {
                *old = byte;
            }
        }
        Change::Insert(new) => drop(bytes.splice(at..at, new)),
        Change::Remove(count) => drop(bytes.drain(at..bytes.len().min(at + count))),
        Change::Repeat(count) => {
            let before = bytes[at.saturating_sub(count)..at].to_vec();
            drop(bytes.splice(at..at, before));
        }
        Change::Truncate => bytes.truncate(at),
    }
}

#[test]
fn the_files_that_are_changed_below_are_right() {
    let [orion, trace, profile] = valid_files();
    let path = Path::new(PATH);
    assert!(orion::parse(&orion, path).is_ok());
    assert!(Trace::parse(&trace, path).is_ok());
    assert!(Profile::parse(&profile, path).is_ok());
}

#[test]
fn deep_nesting_and_long_lines_are_only_wrong() {
    for text in [
        "[".repeat(100_000),
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{b=".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("Name,{}", "x,".repeat(100_000)),
        format!("pillion-trace 1\nkernel {}", "grid=1 ".repeat(100_000)),
        format!("pillion-trace 1\nkernel name=\"{}", "\\\\".repeat(100_000)),
    ] {
        feed(text.as_bytes()).expect("an error, not a panic");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        feed(&bytes)?;
    }

    #[test]
    fn arbitrary_text_after_a_right_start_is_read_or_refused(
        file in 0usize..3,
        lines in 1usize..8,
        text in any::<String>(),
    ) {
        let start: String = valid_files()[file].split_inclusive('\n').take(lines).collect();
        feed((start + &text).as_bytes())?;
    }

    #[test]
    fn changed_files_are_read_or_refused(
        file in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..5),
    ) {
        let mut bytes = valid_files()[file].clone().into_bytes();
        for (place, change) in changes {
            apply(&mut bytes, place, change);
        }
        feed(&bytes)?;
    }
}
