//! The program's NVTX ranges, and the calls that launched kernels. A launch belongs to the ranges
//! open on the calling thread: the call has the launch's process and correlation number.

use super::kernels::LaunchKeys;
use super::{CALLS, NVTX, Reader, integer, process};
use crate::error::Error;
use crate::source::{Call, SourceBuilder};

/// `eventType` of ranges: pushed and popped; started and ended.
const RANGE_TYPES: &str = "(59, 60)";

impl Reader<'_> {
    /// Reads the ranges, and, if there are any, the calls of the launches in `keys`.
    pub(super) fn read_ranges(
        &self,
        builder: &mut SourceBuilder<'_>,
        keys: &LaunchKeys,
    ) -> Result<(), Error> {
        if !self
            .tables
            .has(NVTX, &["start", "end", "eventType", "globalTid"])
        {
            return Ok(());
        }
        let names = if self.tables.has(NVTX, &["textId"]) {
            let range = format!("SELECT textId FROM {NVTX} WHERE eventType IN {RANGE_TYPES}");
            self.strings(&range)?
        } else {
            Default::default()
        };
        let columns = ["start", "end", "globalTid", "text", "textId"];
        let columns = self.tables.select(NVTX, &columns);
        let sql = format!("SELECT {columns} FROM {NVTX} WHERE eventType IN {RANGE_TYPES}");
        let mut ranges = 0u64;
        self.each(&sql, |row| {
            // A range that was open when the capture ended has no end.
            let times = integer(row, 0)?.zip(integer(row, 1)?);
            let (Some((start_ns, end_ns)), Some(thread)) = (times, integer(row, 2)?) else {
                return Ok(Ok(()));
            };
            let by_number = integer(row, 4)?.and_then(|id| names.get(&id));
            let text = row.get_ref(3)?;
            let name = text.as_str().ok().or(by_number.map(|name| &**name));
            let Some(name) = name.and_then(crate::name::clean) else {
                return Ok(Ok(()));
            };
            ranges += 1;
            Ok(builder.range(&name, thread.cast_unsigned(), start_ns, end_ns))
        })?;
        if ranges == 0
            || !self
                .tables
                .has(CALLS, &["start", "globalTid", "correlationId"])
        {
            return Ok(());
        }
        let launches = builder.launches_mut();
        let sql = format!("SELECT start, globalTid, correlationId FROM {CALLS}");
        self.each(&sql, |row| {
            let triple = (integer(row, 0)?, integer(row, 1)?, integer(row, 2)?);
            if let (Some(at_ns), Some(thread), Some(correlation)) = triple
                && let Some(&launch) = keys.get(&(process(thread), correlation))
                && let Some(launch) = launches.get_mut(launch as usize)
            {
                let thread = thread.cast_unsigned();
                launch.call = launch.call.or(Some(Call { thread, at_ns }));
            }
            Ok(Ok(()))
        })
    }
}
