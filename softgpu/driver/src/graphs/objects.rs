//! User objects: counted references to an object of the application, with its destructor.

use abi::types::CUresult;

use super::Graphs;
use crate::driver::Driver;
use crate::host_calls::{HostFunction, HostWork};

#[derive(Clone, Copy, Debug)]
pub(crate) struct UserObject {
    count: u32,
    end: HostFunction,
}

impl Graphs {
    /// Adds references, which the caller has checked.
    pub(crate) fn retain_object(&mut self, object: u64, count: u32) {
        if let Some(object) = self.objects.get_mut(&object) {
            object.count = object.count.saturating_add(count);
        }
    }
}

impl Driver {
    pub(crate) fn create_object(&self, end: HostFunction, count: u32) -> Result<u64, CUresult> {
        if end.is_null() || count == 0 || count > i32::MAX as u32 {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables
            .graphs
            .objects
            .insert(handle, UserObject { count, end });
        Ok(handle)
    }

    pub(crate) fn retain_object(&self, object: u64, count: u32) -> Result<(), CUresult> {
        let graphs = &mut self.tables.lock().graphs;
        if count == 0 || count > i32::MAX as u32 || !graphs.objects.contains_key(&object) {
            return Err(CUresult::INVALID_VALUE);
        }
        graphs.retain_object(object, count);
        Ok(())
    }

    /// Removes references. The last one makes a thread of the driver destroy the object.
    pub(crate) fn release_object(&'static self, object: u64, count: u32) -> Result<(), CUresult> {
        let end = {
            let graphs = &mut self.tables.lock().graphs;
            let known = graphs.objects.get_mut(&object);
            let known = known.filter(|known| (1..=known.count).contains(&count));
            let known = known.ok_or(CUresult::INVALID_VALUE)?;
            known.count -= count;
            let end = known.end;
            if known.count > 0 {
                return Ok(());
            }
            graphs.objects.remove(&object);
            end
        };
        self.host_calls.run_soon(self, HostWork::Function(end))
    }

    /// Gives a graph references: new ones, or the caller's.
    pub(crate) fn graph_retain_object(
        &self,
        graph: u64,
        object: u64,
        count: u32,
        moves: bool,
    ) -> Result<(), CUresult> {
        let graphs = &mut self.tables.lock().graphs;
        if count == 0 || !graphs.objects.contains_key(&object) {
            return Err(CUresult::INVALID_VALUE);
        }
        *graphs.graph_mut(graph)?.objects.entry(object).or_default() += count;
        if !moves {
            graphs.retain_object(object, count);
        }
        Ok(())
    }

    pub(crate) fn graph_release_object(
        &'static self,
        graph: u64,
        object: u64,
        count: u32,
    ) -> Result<(), CUresult> {
        {
            let graphs = &mut self.tables.lock().graphs;
            let objects = &mut graphs.graph_mut(graph)?.objects;
            let held = objects.get_mut(&object).filter(|held| **held >= count);
            let held = held.ok_or(CUresult::INVALID_VALUE)?;
            *held -= count;
            if *held == 0 {
                objects.remove(&object);
            }
        }
        self.release_object(object, count)
    }
}
