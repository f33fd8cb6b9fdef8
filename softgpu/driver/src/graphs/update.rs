//! Changing executables.

use abi::types::{CUgraphExecUpdateResult as Update, CUresult};

use super::exec::{ExecNode, exec_nodes};
use super::{Ended, Kind};
use crate::driver::Driver;

/// Why an update was refused: the code, and the new graph's node at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: Update,
    pub(crate) node: Option<u64>,
}

impl Driver {
    /// Sets an executable's parameters to those of a graph of the same structure.
    pub(crate) fn update_exec(
        &self,
        exec: u64,
        graph: u64,
    ) -> Result<Result<(), Refused>, CUresult> {
        let new = exec_nodes(&self.tables.lock(), graph)?;
        let mut refused = None;
        let changed = self.change_exec(exec, |nodes| {
            if let Err(why) = check_all(nodes, &new) {
                refused = Some(why);
                return Err(CUresult::GRAPH_EXEC_UPDATE_FAILURE);
            }
            take_all(nodes, &new);
            Ok(())
        });
        match refused {
            Some(why) => Ok(Err(why)),
            None => changed.map(Ok),
        }
    }

    pub(crate) fn set_exec_node(&self, exec: u64, node: u64, kind: Kind) -> Result<(), CUresult> {
        self.change_exec(exec, |nodes| {
            let known = find(nodes, node).ok_or(CUresult::INVALID_VALUE)?;
            check(&known.kind, &kind, node).map_err(|_| CUresult::INVALID_VALUE)?;
            take(&mut known.kind, &kind);
            Ok(())
        })
    }

    /// Replaces the graph of an executable's child graph node by one of the same structure.
    pub(crate) fn set_exec_child(&self, exec: u64, node: u64, graph: u64) -> Result<(), CUresult> {
        let new = exec_nodes(&self.tables.lock(), graph)?;
        self.change_exec(exec, |nodes| {
            let known = find(nodes, node).ok_or(CUresult::INVALID_VALUE)?;
            if !matches!(known.kind, Kind::Child(_)) {
                return Err(CUresult::INVALID_VALUE);
            }
            check_all(&known.child, &new).map_err(|_| CUresult::INVALID_VALUE)?;
            take_all(&mut known.child, &new);
            Ok(())
        })
    }

    pub(crate) fn set_enabled(&self, exec: u64, node: u64, enabled: bool) -> Result<(), CUresult> {
        self.change_exec(exec, |nodes| {
            let node = find(nodes, node).ok_or(CUresult::INVALID_VALUE)?;
            if !matches!(node.kind, Kind::Kernel(_) | Kind::Copy(_) | Kind::Set(_)) {
                return Err(CUresult::INVALID_VALUE);
            }
            node.is_enabled = enabled;
            Ok(())
        })
    }

    pub(crate) fn is_enabled(&self, exec: u64, node: u64) -> Result<bool, CUresult> {
        let mut tables = self.tables.lock();
        let exec = tables.graphs.exec_mut(exec)?;
        let node = find(&mut exec.nodes, node).ok_or(CUresult::INVALID_VALUE)?;
        Ok(node.is_enabled)
    }

    /// Releases what removed graphs held, unless something else holds it.
    pub(crate) fn handle_ended(&'static self, ended: Ended) -> Result<(), CUresult> {
        for (object, count) in ended.objects {
            // The application may have released more than it had.
            let _ = self.release_object(object, count);
        }
        let free = {
            let memory = &mut self.tables.lock().graphs.memory;
            ended
                .addresses
                .into_iter()
                .filter_map(|address| Some((address, memory.release(address)?)))
                .collect::<Vec<_>>()
        };
        for (address, bytes) in free {
            self.free_graph_block(address, bytes)?;
        }
        Ok(())
    }
}

fn find(nodes: &mut [ExecNode], wanted: u64) -> Option<&mut ExecNode> {
    nodes.iter_mut().find_map(|node| {
        if node.node == wanted {
            return Some(node);
        }
        find(&mut node.child, wanted)
    })
}

/// Checks that every node can take the parameters of its counterpart at the same index.
fn check_all(nodes: &[ExecNode], new: &[ExecNode]) -> Result<(), Refused> {
    if nodes.len() != new.len() {
        return Err(Refused {
            why: Update::ERROR_TOPOLOGY_CHANGED,
            node: None,
        });
    }
    for (known, new) in nodes.iter().zip(new) {
        let refused = |why| Refused {
            why,
            node: Some(new.node),
        };
        let sorted = |node: &ExecNode| {
            let mut before = node.before.clone();
            before.sort_unstable();
            before
        };
        if known.kind.number() != new.kind.number() {
            return Err(refused(Update::ERROR_NODE_TYPE_CHANGED));
        }
        if sorted(known) != sorted(new) {
            return Err(refused(Update::ERROR_TOPOLOGY_CHANGED));
        }
        check(&known.kind, &new.kind, new.node)?;
        check_all(&known.child, &new.child)?;
    }
    Ok(())
}

fn check(known: &Kind, new: &Kind, node: u64) -> Result<(), Refused> {
    let refused = |why| {
        Err(Refused {
            why,
            node: Some(node),
        })
    };
    match (known, new) {
        (Kind::Kernel(a), Kind::Kernel(b)) if a.context != b.context => {
            refused(Update::ERROR_UNSUPPORTED_FUNCTION_CHANGE)
        }
        (Kind::Copy(a), Kind::Copy(b)) => {
            let is_same = a.context == b.context && a.places == b.places;
            let is_flat = a.words == b.words || a.is_flat && b.is_flat;
            if is_same && is_flat {
                Ok(())
            } else {
                refused(Update::ERROR_PARAMETERS_CHANGED)
            }
        }
        (Kind::Set(a), Kind::Set(b)) => {
            let is_flat = a.height == 1 && b.height == 1;
            let is_same = a.params() == b.params();
            if a.context == b.context && (is_flat || is_same) {
                Ok(())
            } else {
                refused(Update::ERROR_PARAMETERS_CHANGED)
            }
        }
        (Kind::Allocate(a), Kind::Allocate(b)) | (Kind::Free(a), Kind::Free(b)) if a != b => {
            refused(Update::ERROR_NOT_SUPPORTED)
        }
        (a, b) if a.number() != b.number() => refused(Update::ERROR_NODE_TYPE_CHANGED),
        _ => Ok(()),
    }
}

fn take_all(nodes: &mut [ExecNode], new: &[ExecNode]) {
    for (known, new) in nodes.iter_mut().zip(new) {
        take(&mut known.kind, &new.kind);
        take_all(&mut known.child, &new.child);
    }
}

fn take(known: &mut Kind, new: &Kind) {
    // The child's nodes are checked one by one.
    if !matches!(known, Kind::Child(_)) {
        *known = new.clone();
    }
}
