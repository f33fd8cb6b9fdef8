//! Marks requests, as a C program does with `include/pillion.h`. The library is looked up in this
//! process and not opened: without it nothing is marked.

#![expect(
    unsafe_code,
    reason = "calls the table that include/pillion.h describes"
)]

use libloading::os::unix::Library;

/// `PILLION_ABI`.
const ABI: u32 = 1;

/// `pillion_request`; 0: none.
type Request = u64;

/// The beginning of `pillion_v1`, which only grows at its end.
#[repr(C)]
struct Table {
    size: u32,
    abi: u32,
    begin: extern "C" fn(arrived_ns: u64, kind: u32, batch: u32) -> Request,
    end: extern "C" fn(request: Request) -> i32,
}

pub(crate) struct Marks(Option<&'static Table>);

impl Marks {
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn find() -> Self {
        let this = Library::this();
        // SAFETY: the header declares it so.
        let api = unsafe { this.get::<extern "C" fn(u32) -> *const Table>(b"pillion_api") };
        let table = api.ok().map(|api| api(ABI));
        // SAFETY: null, or a table that lives as long as the process.
        let table = table.and_then(|table| unsafe { table.as_ref() });
        Self(table.filter(|table| table.size as usize >= size_of::<Table>()))
    }

    /// Work begins on a request that arrived at `arrived_ns` of the clock.
    pub(crate) fn begin(&self, arrived_ns: u64) -> Request {
        self.0.map_or(0, |table| (table.begin)(arrived_ns, 0, 1))
    }

    /// The request is answered. The library ignores a request that it has not returned.
    pub(crate) fn end(&self, request: Request) {
        if let Some(table) = self.0 {
            (table.end)(request);
        }
    }
}
