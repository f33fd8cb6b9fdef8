//! Long best-effort copies between host and device: made in pieces, each of which passes the gate.
//!
//! Why, and what a piece is, says [`policy::copies`]. Here is when a copy may be made in pieces, which is when the program cannot
//! tell. One copy is one item of its stream: of two threads that use a stream without agreeing on an order, the one's kernel sees
//! all of the other's copy or nothing. Between the pieces of a copy another thread's work could come. So a copy is cut only
//!
//! - in a process of which one thread alone has ever called a hook ([`crate::newcomers`]). All that puts something into a stream
//!   is hooked but for a handful (see ARCHITECTURE.md, "Copies in pieces"). A thread that makes its first call while a copy is under
//!   way waits for the copy's end, which comes soon: it ends a wait of the copy at the gate, and the rest of it goes as one. The wait
//!   of that thread has a bound, a second ([`patience`]), because the copy's own stream may wait for what it is about to do;
//! - while nothing of the process is known to be in flight: a call for a piece may wait for what its stream holds before, for longer
//!   than that second, and a newcomer would then see half of the copy. So nor is a copy cut that is to go beside the program's own
//!   kernels, which would lose that: the call for it returns when nearly all pieces are done;
//! - while nothing in the process is captured: a copy is one node of a graph;
//! - where both ends are in one allocation, which on the device's side the driver must know: where it would refuse the copy for its
//!   range, it refuses it whole.
//!
//! All others go as they are, ungated, and so does every copy while nobody is to be protected from it. The copy's result is the first
//! that is not success, or success.

use core::sync::atomic::Ordering;

use abi::types::{CUdeviceptr, CUresult};
use policy::copies::{CUT_BYTES_MIN, Pieces};
use protocol::pages::Counter;

use crate::client::{Client, Side};
use crate::completion;
use crate::gate::Patience;
use crate::launch::{Payer, Piece};
use crate::newcomers::Newcomers;
use crate::streams::{STREAMS, Stream};
use crate::{door, driver, lifecycle, patience, signals};

/// Who has ever called a hook, and which thread makes a copy in pieces, as [`this_thread`] has it.
static NEWCOMERS: Newcomers = Newcomers::new();

thread_local! {
    /// Its address is the thread's.
    static HERE: u8 = const { 0 };
}

/// Another number than that of any other thread that is there, and not 0.
fn this_thread() -> u64 {
    HERE.with(|here| core::ptr::from_ref(here).addr() as u64)
}

/// A copy that the application asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Where to.
    pub(crate) to: u64,
    /// Where from.
    pub(crate) from: u64,
    /// Whether it goes to the device, or comes from there.
    pub(crate) is_to_device: bool,
    /// How much.
    pub(crate) bytes: u64,
}

/// A copy that may be cut.
pub(crate) struct Long {
    client: &'static Client,
    stream: Stream,
    bytes: u64,
}

/// What comes before a copy: whether it is to be cut.
#[inline]
pub(crate) fn begin(client: Option<&'static Client>, stream: Stream, span: Span) -> Option<Long> {
    if span.bytes < CUT_BYTES_MIN {
        return None;
    }
    begin_long(client?, stream, span)
}

#[cold]
fn begin_long(current: &'static Client, stream: Stream, span: Span) -> Option<Long> {
    // Before the stream is looked up, which may make a slot for it.
    if current.is_high_priority()
        || !lifecycle::clients().any(gates_copies)
        || !NEWCOMERS.is_alone()
        || STREAMS.is_capturing()
        // Late by a look of the helper: then it goes whole.
        || STREAMS.used().any(|(_, slot)| slot.is_in_flight())
    {
        return None;
    }
    let Payer { client, lease, .. } = Payer::of(stream)?;
    let (device, host) = match span.is_to_device {
        true => (span.to, span.from),
        false => (span.from, span.to),
    };
    let may = gates_copies(client)
        && !lease.is_ungated()
        && allocation_of(device, span.bytes).is_some_and(|found| found.is_some())
        && allocation_of(host, span.bytes).is_some();
    may.then_some(Long {
        client,
        stream,
        bytes: span.bytes,
    })
}

fn gates_copies(client: &Client) -> bool {
    client.daemon.gated_copies.load(Ordering::Relaxed) != 0
}

/// The allocation that a range begins and ends in, if the driver knows it; `None` if these are two.
fn allocation_of(first: u64, bytes: u64) -> Option<Option<(CUdeviceptr, usize)>> {
    let last = first.checked_add(bytes - 1)?;
    let [first, last] =
        [first, last].map(|address| driver::allocation_of(CUdeviceptr(address)).ok());
    (first == last).then_some(first)
}

/// Makes a copy: `make` calls the driver for so many bytes from an offset on. `waits`: such a call returns when its stream is done.
#[inline]
pub(crate) fn made(
    index: usize,
    long: Option<&Long>,
    (bytes, waits): (u64, bool),
    mut make: impl FnMut(u64, u64) -> CUresult,
) -> CUresult {
    match long {
        None => make(0, bytes),
        Some(long) => cut(index, long, waits, &mut make),
    }
}

#[cold]
fn cut(
    index: usize,
    long: &Long,
    waits: bool,
    make: &mut dyn FnMut(u64, u64) -> CUresult,
) -> CUresult {
    let Some(_cutting) = Cutting::begin() else {
        return make(0, long.bytes);
    };
    let mut patience = Patience::new(long.client, || !NEWCOMERS.is_alone());
    let mut pieces = Pieces::of(long.bytes);
    let (mut client, mut count) = (long.client, 0);
    let mut result = CUresult::SUCCESS;
    while result == CUresult::SUCCESS
        && let Some((offset, mut length)) = pieces.next()
    {
        let begun = door::aside(index, || begin_piece(long.stream, length, &mut patience));
        let mut piece = begun.flatten();
        if piece.as_ref().is_none_or(Piece::takes_rest) {
            let rest = pieces.take_rest();
            length += rest;
            if let Some(piece) = piece.as_mut().filter(|_| rest > 0) {
                piece.extend(rest);
            }
        }
        result = make(offset, length);
        count += 1;
        if let Some(piece) = piece {
            client = piece.client();
            let is_done = waits && result == CUresult::SUCCESS;
            door::aside(index, || end_piece(piece, result, is_done));
        }
    }
    if count > 1 {
        client.page.count(Counter::CopiesCut, 1);
        client.page.count(Counter::CopyPieces, count);
    }
    result
}

/// `None`: nobody manages the stream any more.
fn begin_piece(stream: Stream, bytes: u64, patience: &mut Patience) -> Option<Piece> {
    signals::stop_if_dying();
    // Each time anew: daemons come and go.
    Payer::of(stream)?.begin_piece(bytes, patience)
}

/// `is_done`: the driver's call has waited for the piece.
fn end_piece(piece: Piece, result: CUresult, is_done: bool) {
    let mark = piece.end(result);
    // Another thread may have launched before this mark, behind the piece; it has been there for a second then.
    if let Some(mark) = mark.filter(|_| is_done && NEWCOMERS.is_alone()) {
        completion::handle_reached(mark);
    }
}

/// While it lives a copy is made in pieces, by the one thread there is.
struct Cutting;

impl Cutting {
    /// `None`: there are several threads.
    fn begin() -> Option<Self> {
        NEWCOMERS.try_begin(this_thread()).then_some(Self)
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        NEWCOMERS.end();
    }
}

/// The calling thread is in a hook for the first time.
#[cold]
pub(crate) fn handle_new_thread() {
    if NEWCOMERS.enter() {
        wait_for_copy();
    }
}

/// Waits until the copy that another thread makes in pieces is with the driver.
fn wait_for_copy() {
    // It may wait at the gate, and goes on from there.
    for client in lifecycle::clients() {
        if let Side::BestEffort(lease) = client.side {
            lease.bell.ring(&client.clock);
        }
    }
    let Some(client) = lifecycle::clients().next() else {
        return;
    };
    if !patience::wait_until(&client.clock, || NEWCOMERS.is_over()) {
        client.page.count(Counter::CopiesOvertaken, 1);
    }
}

/// The calling thread has jumped out of a hook: if that was a copy in pieces, no more of them come.
pub(crate) fn handle_jump() {
    if NEWCOMERS.is_cutter(this_thread()) {
        NEWCOMERS.end();
    }
}
