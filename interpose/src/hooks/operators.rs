//! Operators: calls of cuBLAS, cuBLASLt and cuDNN, hooked to label their launches
//! ([`crate::kernels::labels`]). An operator's hook makes the library's own call, once, with the
//! application's arguments, and returns its status. Unlike a hook of the driver it does not enter
//! [`crate::dispatch::guard`]: the library's launches go through the driver's hooks as usual, each
//! with its own lease or record. The outermost of nested operators (cuBLAS calls cuBLASLt, cuDNN
//! both) is the label.
//!
//! **Libraries whose launches are not seen.** A library may reach the driver by a door that we do
//! not see. Then the operator stands for its launches: it is announced or admitted as one launch
//! with the operator's profile ([`profiler::ProfileIndex::of_operator`]). A library's own calls
//! show which case it is, separately for each [`abi::Library`]:
//! - A launch seen inside one of its operators shows that its launches are seen, for good.
//! - [`UNSEEN_CALLS_MIN`] operators without a launch show that its launches are not seen. Such an
//!   operator succeeded and had something to do, no earlier operator was seen to launch, and
//!   neither this thread nor any other of the process was seen to launch during the call. Calls
//!   during which other threads launch show neither.
//!
//! No work is counted twice: if a launch is seen inside an operator that stands for its launches,
//! the operator's own launch is taken back like a refused one, and the library's launches count as
//! seen from then on.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use abi::types::{CUresult, CUstream};
use abi::{Library, OPERATORS};
use protocol::pages::Counter;

use crate::dispatch::panics;
use crate::hooks::libraries::LIBRARIES;
use crate::kernels::labels::{self, Label};
use crate::launch::{self, Begun};
use crate::platform::phase::{self, Phase};
use crate::platform::sys::Errno;
use crate::process::{self, Client};
use crate::progress::stream::{Flavour, Stream};

mod describe;
mod helpers;
mod hooks;
mod sites;

pub(crate) use sites::answer;

/// Operators that show that a library's launches are not seen.
const UNSEEN_CALLS_MIN: u32 = 3;

/// In place of a count of operators without a launch: launches were seen.
const SEEN: u32 = u32::MAX;

#[inline]
fn sight_of(library: Library) -> Option<&'static AtomicU32> {
    LIBRARIES.sights.get(library as usize)
}

#[derive(Clone, Copy, Debug)]
struct Call {
    label: Label,
    stream: StreamOf,
}

#[derive(Clone, Copy, Debug)]
enum StreamOf {
    Handle(*mut c_void),
    Given(*mut c_void),
}

struct Prepared {
    client: &'static Client,
    library: Library,
    may_be_empty: bool,
    /// Launches of the whole process before it; `None` if that does not matter any more.
    launches_before: Option<u64>,
    /// The operator's own launch, if it stands for those inside.
    begun: Option<Begun>,
}

#[inline]
fn pass(index: usize, describe: impl FnOnce() -> Call, real: impl FnOnce() -> c_int) -> c_int {
    if phase::now() != Phase::Attached {
        return real();
    }
    labels::with_current(|current| {
        let errno = Errno::of_thread();
        let here = ptr::from_ref(&errno).addr();
        if current.is_inside(here) {
            return real();
        }
        let found = errno.read();
        let mut label = labels::LabelIndex::NONE;
        let mut prepared = None;
        panics::guarded(abi::ENTRY_POINT_COUNT, || {
            let call = describe();
            label = labels::intern(&call.label);
            prepared = prepare(index, &call, label);
        });
        errno.write(found);
        let inside = current.enter(here, label);
        let status = real();
        drop(inside);
        if let Some(prepared) = prepared {
            let left = errno.read();
            let launches = current.launches();
            panics::guarded(abi::ENTRY_POINT_COUNT, || {
                settle(&prepared, launches, status);
            });
            errno.write(left);
        }
        status
    })
}

/// Runs before the library's call. Best-effort threads may wait here, for an operator's own launch.
fn prepare(index: usize, call: &Call, label: labels::LabelIndex) -> Option<Prepared> {
    let client = process::client()?;
    let library = OPERATORS.get(index)?.library;
    let sight = sight_of(library)?.load(Ordering::Relaxed);
    let may_be_empty = call.label.may_be_empty();
    let is_unseen = (UNSEEN_CALLS_MIN..SEEN).contains(&sight) && !may_be_empty;
    let begun = is_unseen
        .then(|| match call.stream {
            StreamOf::Given(stream) => Some(stream),
            StreamOf::Handle(handle) => describe::stream_of(library, handle),
        })
        .flatten()
        .map(|stream| {
            let stream = Stream::of(CUstream(stream), Flavour::Plain);
            launch::begin_operator(Some(client), stream, label)
        });
    Some(Prepared {
        client,
        library,
        may_be_empty,
        launches_before: (sight < UNSEEN_CALLS_MIN).then(launches_of_process),
        begun,
    })
}

/// Runs after it; `launches` were seen in this thread.
fn settle(prepared: &Prepared, launches: u64, status: c_int) {
    let page = &prepared.client.page;
    page.count(Counter::OperatorCalls, 1);
    if launches > 0 {
        page.count(Counter::Labelled, launches);
    }
    if let Some(begun) = &prepared.begun {
        let stands = status == 0 && launches == 0;
        let result = if stands {
            CUresult::SUCCESS
        } else {
            CUresult::UNKNOWN
        };
        launch::end_operator(begun, result);
    }
    let Some(sight) = sight_of(prepared.library) else {
        return;
    };
    if launches > 0 {
        if sight.load(Ordering::Relaxed) != SEEN {
            sight.store(SEEN, Ordering::Relaxed);
        }
        return;
    }
    let shows = status == 0 && !prepared.may_be_empty;
    if let Some(before) = prepared.launches_before.filter(|_| shows)
        && before == launches_of_process()
    {
        // Another thread may have seen a launch meanwhile, which is final.
        let _ = sight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| {
            (calls < UNSEEN_CALLS_MIN).then_some(calls + 1)
        });
    }
}

fn launches_of_process() -> u64 {
    let counted = process::clients().map(|client| {
        let page = &client.page;
        [
            Counter::Launches,
            Counter::Captured,
            Counter::ForeignLaunches,
            Counter::GraphLaunches,
        ]
        .map(|counter| page.counted(counter))
        .iter()
        .fold(0, |sum: u64, count| sum.wrapping_add(*count))
    });
    counted.fold(0, u64::wrapping_add)
}
