//! What a cluster has: models of GPU, and nodes with GPUs of one model each.

use crate::mig::MigModel;

/// Thousandths of one GPU: the whole of it.
pub const WHOLE_MILLI: u32 = 1000;

/// Most GPUs of one node: the GPUs of a node that a job has are a bit set of this many bits.
pub const NODE_GPUS_MAX: usize = 32;

/// Most models of GPU in one cluster: the models that a job may have are a bit set, too.
pub const MODELS_MAX: usize = 64;

/// Number of a model in its inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub u16);

/// Number of a node in its inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A model of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// As the source of the inventory names it.
    pub name: String,
    /// Device memory of one GPU.
    pub memory_bytes: u64,
    /// Of GPUs in MIG mode, the possible instances: such GPUs take no job that asks for none.
    pub mig: Option<&'static MigModel>,
}

impl Model {
    /// A model whose GPUs are not divided.
    #[must_use]
    pub fn new(name: &str, memory_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            memory_bytes,
            mig: None,
        }
    }
}

/// One node. Its GPUs are of one model, as all published inventories have them.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// As the source of the inventory names it; ties between equal nodes do not use it.
    pub name: String,
    /// Thousandths of a host core.
    pub cpu_milli: u64,
    /// Memory of the host, for all jobs of the node.
    pub host_memory_bytes: u64,
    /// Number of GPUs, at most [`NODE_GPUS_MAX`].
    pub gpus: u32,
    /// Their model; no matter where there are none.
    pub model: ModelId,
}

/// Why [`Inventory::new`] refuses models and nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// A node has more GPUs than the bit sets hold.
    #[error("node {node}: {gpus} GPUs: expected at most {NODE_GPUS_MAX}")]
    Gpus {
        /// Its name.
        node: String,
        /// Its stated number of GPUs.
        gpus: u32,
    },
    /// A node names a model that the inventory does not have.
    #[error("node {node}: model number {model}: expected a number below {models}")]
    NoSuchModel {
        /// Its name.
        node: String,
        /// The number that it names.
        model: u16,
        /// How many models there are.
        models: usize,
    },
    /// More models than the bit sets hold.
    #[error("{0} models of GPU: expected at most {MODELS_MAX}")]
    Models(usize),
}

/// All nodes of a cluster. GPUs are numbered through, node by node.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    models: Vec<Model>,
    nodes: Vec<NodeSpec>,
    /// Number of each node's first GPU, and at the end the number of all GPUs.
    firsts: Vec<usize>,
}

impl Inventory {
    /// Checks the nodes and numbers their GPUs.
    ///
    /// # Errors
    /// [`InventoryError`] for a node with too many GPUs or an unknown model, or for too many
    /// models.
    pub fn new(models: Vec<Model>, nodes: Vec<NodeSpec>) -> Result<Self, InventoryError> {
        if models.len() > MODELS_MAX {
            return Err(InventoryError::Models(models.len()));
        }
        let mut firsts = vec![0];
        for node in &nodes {
            if node.gpus as usize > NODE_GPUS_MAX {
                let (node, gpus) = (node.name.clone(), node.gpus);
                return Err(InventoryError::Gpus { node, gpus });
            }
            if usize::from(node.model.0) >= models.len() && node.gpus > 0 {
                let (name, model) = (node.name.clone(), node.model.0);
                let models = models.len();
                return Err(InventoryError::NoSuchModel {
                    node: name,
                    model,
                    models,
                });
            }
            firsts.push(firsts[firsts.len() - 1] + node.gpus as usize);
        }
        Ok(Self {
            models,
            nodes,
            firsts,
        })
    }

    /// A cluster of equal nodes.
    ///
    /// # Errors
    /// As [`Inventory::new`].
    pub fn uniform(model: Model, nodes: u32, gpus: u32) -> Result<Self, InventoryError> {
        let node = |number| NodeSpec {
            name: format!("node-{number:04}"),
            cpu_milli: 0,
            host_memory_bytes: 0,
            gpus,
            model: ModelId(0),
        };
        Self::new(vec![model], (0..nodes).map(node).collect())
    }

    /// The models, by number.
    #[must_use]
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    /// Number of all GPUs.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.firsts[self.nodes.len()]
    }

    /// The number of the node's first GPU.
    #[must_use]
    pub fn first_gpu(&self, node: NodeId) -> usize {
        self.firsts[node.index()]
    }

    /// Most GPUs that one node has.
    #[must_use]
    pub fn node_gpus_max(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).max().unwrap_or(0)
    }

    /// Most host CPU that one node has.
    #[must_use]
    pub fn node_cpu_milli_max(&self) -> u64 {
        let all = self.nodes.iter().map(|node| node.cpu_milli);
        all.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        Model::new("T4", 16 << 30)
    }

    #[test]
    fn gpus_are_numbered_through() {
        let inventory = Inventory::uniform(model(), 3, 2).unwrap();
        assert_eq!(inventory.gpus(), 6);
        assert_eq!(inventory.first_gpu(NodeId(2)), 4);
    }

    #[test]
    fn a_node_of_more_gpus_than_a_set_holds_is_refused() {
        let error = Inventory::uniform(model(), 1, 33).unwrap_err();
        let said = "node node-0000: 33 GPUs: expected at most 32";
        assert_eq!(error.to_string(), said);
    }

    #[test]
    fn a_node_of_an_unknown_model_is_refused() {
        let node = NodeSpec {
            name: "a".to_owned(),
            cpu_milli: 0,
            host_memory_bytes: 0,
            gpus: 1,
            model: ModelId(1),
        };
        let error = Inventory::new(vec![model()], vec![node]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node a: model number 1: expected a number below 1"
        );
    }
}
