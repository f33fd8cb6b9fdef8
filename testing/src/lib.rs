//! A harness for tests with optional requirements: data, tools, rights. It works as Rust's own,
//! with one addition: a test without its requirement is reported as ignored, with the reason
//! ([`missing`], [`ignore`]), instead of as passed. A target that uses it has `harness = false` in
//! its manifest and, in its root,
//!
//! ```no_run
//! #[macro_use]
//! extern crate testing;
//!
//! fn main() -> std::process::ExitCode {
//!     testing::main()
//! }
//! ```
//!
//! There `#[test]`, `println!` and `eprintln!` are this crate's, in all modules: macros of an
//! `extern crate` take precedence over those of the prelude. `cfg(test)` does not hold in such a
//! target, except in that of a library's own tests, and Clippy does not know its tests. A test's
//! output, and the message and place of its panic, are shown if it fails, or at once with
//! `--nocapture`, then with the backtrace if RUST_BACKTRACE requests one. Output of threads that a
//! test has started is shown at once.

pub mod layers;

use std::cell::RefCell;
use std::env;
use std::fmt::{Arguments, Display};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Parser;
use libtest_mimic::{Completion, Failed, Trial};

#[doc(hidden)]
pub use inventory;
pub use testing_macros::test;

/// A test, as `#[test]` registers it.
#[doc(hidden)]
pub struct Test {
    /// `module_path!()`, which begins with the target's name.
    pub module: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub function: fn(),
}

inventory::collect!(Test);

/// Adds a function to the tests of its target.
#[doc(hidden)]
#[macro_export]
macro_rules! register {
    ($name:ident) => {
        $crate::inventory::submit! {
            $crate::Test { module: module_path!(), name: stringify!($name), function: $name }
        }
    };
}

/// Like `std::println`, but shown only if the test fails.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => { $crate::print(::std::format_args!($($text)*)) };
}

/// Like [`println!`]: a test's output has one order.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print(::std::format_args!($($text)*)) };
}

/// Whether tests print as they run (`--nocapture`).
static PRINTS_AT_ONCE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PRINTED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Why a test was ignored; the payload with which its thread unwinds.
struct Ignored(String);

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    one_filter: libtest_mimic::Arguments,
    /// With these, a test is run that any filter matches.
    #[arg(value_name = "FILTERS")]
    more_filters: Vec<String>,
}

/// Ends the calling test as ignored for lack of `what`; as failed, if the variable `promise` is 1.
pub fn missing(promise: &str, what: impl Display) -> ! {
    let is_promised = env::var_os(promise).is_some_and(|value| value == "1");
    end_without(what, is_promised.then_some(promise))
}

/// Ends the calling test as ignored.
/// # Panics
/// On another thread than the test's: its end would be ambiguous.
pub fn ignore(reason: impl Into<String>) -> ! {
    let reason = reason.into();
    let is_test = PRINTED.with_borrow(Option::is_some);
    assert!(is_test, "called outside the thread of a test: {reason}");
    // Calls no panic hook, so nothing is printed.
    panic::resume_unwind(Box::new(Ignored(reason)))
}

/// The path of a file or folder of recordings and measurements. They are not part of the
/// repository, but looked up in `PILLION_DATA`, by default `../shared/data` beside the workspace. A
/// test whose data is missing is ignored, or fails with `PILLION_REQUIRE_DATA=1`.
pub fn data(path: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let root = env::var_os("PILLION_DATA").map_or_else(default, PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        missing("PILLION_REQUIRE_DATA", path.display());
    }
    path
}

/// Prints a line, or keeps it on the thread of a test.
#[doc(hidden)]
pub fn print(line: Arguments<'_>) {
    if !is_kept(&line.to_string()) {
        std::println!("{line}");
    }
}

/// Runs the target's tests that the arguments select.
pub fn main() -> ExitCode {
    let Options {
        one_filter: mut arguments,
        more_filters,
    } = Options::parse();
    arguments.test_threads = arguments.test_threads.or_else(threads_of_environment);
    PRINTS_AT_ONCE.store(arguments.nocapture, Ordering::Relaxed);
    keep_panics();
    let mut trials: Vec<Trial> = inventory::iter::<Test>().map(trial).collect();
    trials.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    // With a single filter libtest-mimic counts the omitted tests; it accepts only one.
    if !more_filters.is_empty() {
        let filters: Vec<String> = arguments
            .filter
            .take()
            .into_iter()
            .chain(more_filters)
            .collect();
        trials.retain(|trial| is_asked_for(trial.name(), &filters, arguments.exact));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn end_without(what: impl Display, promised_by: Option<&str>) -> ! {
    if let Some(promise) = promised_by {
        panic!("{promise}=1, but there is no {what}");
    }
    ignore(format!("no {what}"))
}

fn threads_of_environment() -> Option<usize> {
    env::var("RUST_TEST_THREADS").ok()?.parse().ok()
}

fn is_asked_for(name: &str, filters: &[String], is_exact: bool) -> bool {
    let mut filters = filters.iter();
    filters.any(|filter| {
        if is_exact {
            name == filter
        } else {
            name.contains(filter)
        }
    })
}

/// The test by its path in the target, as in Rust. Each has its own thread, as with Rust's harness.
fn trial(test: &'static Test) -> Trial {
    let in_root = test.name.to_owned();
    let name = match test.module.split_once("::") {
        Some((_, module)) => format!("{module}::{in_root}"),
        None => in_root,
    };
    let thread = thread::Builder::new().name(name.clone());
    Trial::ignorable_test(name, move || {
        let thread = thread.spawn(|| run(test.function))?;
        thread
            .join()
            .expect("it catches what the test unwinds with")
    })
}

fn run(test: fn()) -> Result<Completion, Failed> {
    PRINTED.set(Some(String::new()));
    let end = panic::catch_unwind(test);
    let printed = PRINTED.take().unwrap_or_default();
    match end.map_err(|payload| payload.downcast::<Ignored>()) {
        Ok(()) => Ok(Completion::Completed),
        Err(Ok(ignored)) => Ok(Completion::ignored_with(ignored.0)),
        Err(Err(_)) => Err(printed.into()),
    }
}

/// Adds the line to this test's output; not on another thread, nor if tests print at once.
fn is_kept(line: &str) -> bool {
    let keep = |printed: &mut Option<String>| {
        let printed = printed
            .as_mut()
            .filter(|_| !PRINTS_AT_ONCE.load(Ordering::Relaxed))?;
        printed.push_str(line);
        printed.push('\n');
        Some(())
    };
    PRINTED.with_borrow_mut(keep).is_some()
}

/// Installs a hook that makes a panic on a test's thread part of the test's output.
fn keep_panics() {
    let print_at_once = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !is_kept(&info.to_string()) {
            print_at_once(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{
        Completion, Ignored, end_without, ignore, is_asked_for, keep_panics, missing, run,
    };

    /// Runs it on its own thread. Returns its message, if it fails; else why it was ignored.
    fn end_of(test: fn()) -> Result<Option<String>, String> {
        keep_panics();
        let ended = thread::spawn(move || run(test)).join();
        match ended.expect("panics are caught") {
            Ok(Completion::Completed) => Ok(None),
            Ok(Completion::Ignored { reason }) => Ok(reason),
            Err(failed) => Err(failed.message().unwrap_or_default().to_owned()),
        }
    }

    #[test]
    fn a_test_that_lacks_something_is_ignored_and_the_reason_names_it() {
        let lacking = || missing("PILLION_NO_SUCH_PROMISE", "anything");
        assert_eq!(end_of(lacking), Ok(Some("no anything".to_owned())));
        assert_eq!(end_of(|| ()), Ok(None));
    }

    #[test]
    fn what_is_missing_but_promised_fails_a_test() {
        let lacking = || end_without("anything", Some("PILLION_PROMISE"));
        let message = end_of(lacking).expect_err("it is promised");
        assert!(
            message.contains("PILLION_PROMISE=1, but there is no anything"),
            "{message}"
        );
    }

    #[test]
    fn a_test_that_fails_shows_what_it_printed_and_where_it_panicked() {
        let failing = || {
            crate::println!("a line of {}", 1);
            panic!("at {}", 2);
        };
        let message = end_of(failing).expect_err("it panics");
        let (printed, panicked) = message.split_once('\n').expect("two lines");
        assert_eq!(printed, "a line of 1");
        assert!(
            panicked.contains(file!()) && panicked.ends_with("at 2\n"),
            "{panicked}"
        );
    }

    #[test]
    fn a_thread_that_is_no_tests_may_not_ignore() {
        let elsewhere = || {
            let ended = thread::spawn(|| ignore("no reason")).join();
            let payload = ended.expect_err("it does not return");
            assert!(!payload.is::<Ignored>());
        };
        assert_eq!(end_of(elsewhere), Ok(None));
    }

    #[test]
    fn a_test_is_run_that_any_filter_matches() {
        let filters = ["world".to_owned(), "shim::a".to_owned()];
        assert!(is_asked_for("world::shells::b", &filters, false));
        assert!(is_asked_for("shim::a", &filters, true));
        assert!(!is_asked_for("shim::ab", &filters, true));
        assert!(!is_asked_for("doors::c", &filters, false));
    }
}
