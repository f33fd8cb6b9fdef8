//! The pods and nodes of Alibaba's GPU cluster of 2023, *openb*, and how much of it FGD allocated.
//! A pod asks for whole GPUs (`num_gpu` of 1000 thousandths each) or for a part of one (`gpu_milli`
//! below 1000). Origin: the pods and nodes are from github.com/alibaba/clusterdata,
//! cluster-trace-gpu-v2023; other mixes of the same pods and the allocations are from
//! github.com/hkust-adsl/kubernetes-scheduler-simulator, the artefact of *Beware of Fragmentation*
//! (FGD, USENIX ATC 2023). Licence: CC-BY-4.0 and Apache-2.0. Units: CPUs in thousandths, memory in
//! MiB, times in seconds since the start of the trace. The file `openb_pod_list_multigpu20.csv` has
//! only the first five columns: its pods have no times.

use super::table::{Column, Row, Table};
use super::{MACHINE_GPUS_MAX, SECONDS_MAX, TraceError};

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// CPUs, in thousandths.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_mib: u64,
    /// How many GPUs it has.
    pub gpus: u32,
    /// The model of its GPUs; None if it has none.
    pub gpu_model: Option<String>,
}

/// A group of containers that runs on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// CPUs that it asks for, in thousandths.
    pub cpu_milli: u64,
    /// Memory that it asks for.
    pub memory_mib: u64,
    /// How many GPUs it asks for.
    pub gpus: u32,
    /// Thousandths of each GPU. In the published lists this is 0 for pods without a GPU, and 1000
    /// for those of several; the reader does not check that.
    pub gpu_milli: u32,
    /// The models that it may run on; empty for any.
    pub gpu_models: Vec<String>,
    /// Its class.
    pub qos: Option<Qos>,
    /// Its state when the trace was taken.
    pub phase: Option<Phase>,
    /// When it was submitted.
    pub created_s: Option<f64>,
    /// When it ended, or the end of the trace; not before `created_s`.
    pub deleted_s: Option<f64>,
    /// When it got a machine; not before `created_s`. None if it never did.
    pub scheduled_s: Option<f64>,
}

/// The class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qos {
    /// `LS`: latency-sensitive.
    LatencySensitive,
    /// `BE`.
    BestEffort,
    /// `Burstable`, as in Kubernetes.
    Burstable,
    /// `Guaranteed`, as in Kubernetes.
    Guaranteed,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The pod has no machine.
    Pending,
    /// The pod ran to the end of the trace, or was deleted.
    Running,
    /// The pod ended without error.
    Succeeded,
    /// The pod ended with an error.
    Failed,
}

/// One run of FGD's authors: how much of the cluster a policy allocated.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// The pod list, as its file is named, without `.csv`.
    pub workload: String,
    /// The policy, with the number that its authors give it: `06-FGD`.
    pub policy: String,
    /// GPUs asked for in the end, as a part of the cluster's.
    pub tune: f64,
    /// The seed of the order of pods.
    pub seed: u64,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Percent of the GPUs that were allocated when pods had asked for [`ASKED_PCT`] percent.
    pub allocated_pct: [f64; ASKED_PCT.len()],
}

/// How much of the GPUs arrived pods have asked for, in percent: see [`Allocation::allocated_pct`].
pub const ASKED_PCT: [u32; 14] = [
    50, 60, 70, 80, 85, 90, 95, 100, 105, 110, 115, 120, 125, 130,
];

/// Reads a node list.
pub fn nodes(file: &str, bytes: &[u8]) -> Result<Vec<Node>, TraceError> {
    let known = "the nodes of openb (sn,cpu_milli,memory_mib,gpu,model)";
    let mut table = Table::commas(file, bytes, known)?;
    let [sn, cpu, memory, gpu, model] =
        table.by_name(["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    table.rows(|row| {
        let gpus = row.whole(&gpu, 0..=MACHINE_GPUS_MAX)?;
        Ok(Node {
            name: row.text(&sn)?,
            cpu_milli: row.whole(&cpu, 0..=CPU_MILLI_MAX)?,
            memory_mib: row.whole(&memory, 0..=MEMORY_MIB_MAX)?,
            gpus,
            gpu_model: match gpus {
                0 => row.optional(&model, |column| row.text(column))?,
                _ => Some(row.text(&model)?),
            },
        })
    })
}

/// Reads a pod list: of eleven columns, or of the first five.
pub fn pods(file: &str, bytes: &[u8]) -> Result<Vec<Pod>, TraceError> {
    let mut table = Table::commas(file, bytes, PODS)?;
    let [name, cpu, memory, gpu, milli] =
        table.by_name(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    let more = if MORE.iter().any(|name| table.names(name)) {
        Some(table.by_name(MORE)?)
    } else {
        None
    };
    table.rows(|row| {
        let pod = Pod {
            name: row.text(&name)?,
            cpu_milli: row.whole(&cpu, 0..=CPU_MILLI_MAX)?,
            memory_mib: row.whole(&memory, 0..=MEMORY_MIB_MAX)?,
            gpus: row.whole(&gpu, 0..=MACHINE_GPUS_MAX)?,
            gpu_milli: row.whole(&milli, 0..=1000)?,
            gpu_models: Vec::new(),
            qos: None,
            phase: None,
            created_s: None,
            deleted_s: None,
            scheduled_s: None,
        };
        match &more {
            Some(columns) => with_more(pod, row, columns),
            None => Ok(pod),
        }
    })
}

/// Reads the published results of FGD and of the policies beside it.
pub fn allocations(file: &str, bytes: &[u8]) -> Result<Vec<Allocation>, TraceError> {
    let known =
        "FGD's allocations (workload,policy,tune,seed,total_gpus,allocated_pct_at_50,…_130)";
    let mut table = Table::commas(file, bytes, known)?;
    let [workload, policy, tune, seed, gpus] =
        table.by_name(["workload", "policy", "tune", "seed", "total_gpus"])?;
    let at = |pct| table.column(format!("allocated_pct_at_{pct}").into());
    let allocated = ASKED_PCT
        .into_iter()
        .map(at)
        .collect::<Result<Vec<Column>, TraceError>>()?;
    table.rows(|row| {
        let mut allocated_pct = [0.0; ASKED_PCT.len()];
        for (pct, column) in allocated_pct.iter_mut().zip(&allocated) {
            *pct = row.number(column, 100.0)?;
        }
        Ok(Allocation {
            workload: row.text(&workload)?,
            policy: row.text(&policy)?,
            tune: row.number(&tune, 100.0)?,
            seed: row.whole(&seed, 0..=u64::MAX)?,
            gpus: row.whole(&gpus, 1..=CLUSTER_GPUS_MAX)?,
            allocated_pct,
        })
    })
}

fn with_more(pod: Pod, row: &Row<'_>, columns: &[Column; 6]) -> Result<Pod, TraceError> {
    let [spec, qos, phase, creation, deletion, scheduled] = columns;
    let created_s = row.number(creation, SECONDS_MAX)?;
    let later_s = |column: &Column| {
        let time_s = row.number(column, SECONDS_MAX)?;
        if time_s < created_s {
            return Err(row.refuse(column, format!("at least creation_time, {created_s}")));
        }
        Ok(time_s)
    };
    Ok(Pod {
        gpu_models: models(row, spec)?,
        qos: Some(one_of(row, qos, &QOS)?),
        phase: Some(one_of(row, phase, &PHASES)?),
        created_s: Some(created_s),
        deleted_s: row.optional(deletion, later_s)?,
        scheduled_s: row.optional(scheduled, later_s)?,
        ..pod
    })
}

fn models(row: &Row<'_>, column: &Column) -> Result<Vec<String>, TraceError> {
    match row.cell(column) {
        "" => Ok(Vec::new()),
        spec if spec.split('|').any(str::is_empty) => {
            Err(row.refuse(column, "models of GPUs with | between them"))
        }
        spec => Ok(spec.split('|').map(str::to_owned).collect()),
    }
}

fn one_of<T: Copy>(row: &Row<'_>, column: &Column, all: &[(&str, T); 4]) -> Result<T, TraceError> {
    let found = all.iter().find(|&&(name, _)| name == row.cell(column));
    found.map(|&(_, value)| value).ok_or_else(|| {
        let [a, b, c, d] = all.map(|(name, _)| name);
        row.refuse(column, format!("{a}, {b}, {c} or {d}"))
    })
}

const PODS: &str = "the pods of openb (name,cpu_milli,memory_mib,num_gpu,gpu_milli, alone or \
                    with gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time)";

const MORE: [&str; 6] = [
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];

const QOS: [(&str, Qos); 4] = [
    ("LS", Qos::LatencySensitive),
    ("BE", Qos::BestEffort),
    ("Burstable", Qos::Burstable),
    ("Guaranteed", Qos::Guaranteed),
];

const PHASES: [(&str, Phase); 4] = [
    ("Pending", Phase::Pending),
    ("Running", Phase::Running),
    ("Succeeded", Phase::Succeeded),
    ("Failed", Phase::Failed),
];

/// 10 000 CPUs; the trace has at most 128 in a machine.
const CPU_MILLI_MAX: u64 = 10_000_000;

/// 1 PiB.
const MEMORY_MIB_MAX: u64 = 1 << 30;

const CLUSTER_GPUS_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
                          creation_time,deletion_time,scheduled_time";

    fn pod(row: &str) -> Result<Pod, String> {
        let text = format!("{HEADER}\n{row}\n");
        let read = pods("pods.csv", text.as_bytes()).map_err(|error| error.to_string());
        read.map(|mut pods| pods.remove(0))
    }

    #[test]
    fn a_node_is_read() {
        let text = b"sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,1,2,0,\n";
        let read = nodes("nodes.csv", text).expect("nodes");
        let first = Node {
            name: "n0".to_owned(),
            cpu_milli: 64_000,
            memory_mib: 262_144,
            gpus: 2,
            gpu_model: Some("P100".to_owned()),
        };
        assert_eq!(read[0], first);
        assert_eq!((read[1].gpus, &read[1].gpu_model), (0, &None));
    }

    #[test]
    fn a_node_with_gpus_of_no_model_is_refused() {
        let text = b"sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,\n";
        let error = nodes("nodes.csv", text).expect_err("a refusal").to_string();
        assert_eq!(
            error,
            "nodes.csv:2: model is \"\": expected a text that is not empty"
        );
        let text = b"sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,65,A\n";
        let error = nodes("nodes.csv", text).expect_err("a refusal").to_string();
        assert_eq!(
            error,
            "nodes.csv:2: gpu is \"65\": expected a whole number from 0 to 64"
        );
    }

    #[test]
    fn a_pod_is_read() {
        let read = pod("p0,6000,12288,1,460,T4|P100,BE,Pending,427061,12902960.5,").expect("a pod");
        let expected = Pod {
            name: "p0".to_owned(),
            cpu_milli: 6000,
            memory_mib: 12_288,
            gpus: 1,
            gpu_milli: 460,
            gpu_models: vec!["T4".to_owned(), "P100".to_owned()],
            qos: Some(Qos::BestEffort),
            phase: Some(Phase::Pending),
            created_s: Some(427_061.0),
            deleted_s: Some(12_902_960.5),
            scheduled_s: None,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_pod_of_the_shorter_list_has_no_times() {
        let text = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,2,8,1000\n";
        let read = pods("pods.csv", text).expect("pods");
        assert_eq!((read[0].gpus, read[0].gpu_milli), (8, 1000));
        assert_eq!(
            (read[0].created_s, read[0].qos, &read[0].gpu_models[..]),
            (None, None, &[][..])
        );
    }

    #[test]
    fn a_cell_of_a_pod_out_of_range_is_refused() {
        let cases = [
            (
                ",1,2,1,1000,,LS,Running,0,1,0",
                "name is \"\": expected a text that is not empty",
            ),
            (
                "p,1,2,1,12x,,LS,Running,0,1,0",
                "gpu_milli is \"12x\": expected a whole number",
            ),
            (
                "p,1,2,1,1001,,LS,Running,0,1,0",
                "gpu_milli is \"1001\": expected a whole number",
            ),
            (
                "p,1,2,65,1000,,LS,Running,0,1,0",
                "num_gpu is \"65\": expected a whole number from",
            ),
            (
                "p,1,2,1,1000,T4|,LS,Running,0,1,0",
                "gpu_spec is \"T4|\": expected models of GPUs",
            ),
            (
                "p,1,2,1,1000,,ls,Running,0,1,0",
                "qos is \"ls\": expected LS, BE, Burstable or Guaranteed",
            ),
            (
                "p,1,2,1,1000,,LS,Gone,0,1,0",
                "pod_phase is \"Gone\": expected Pending, Running",
            ),
            (
                "p,1,2,1,1000,,LS,Running,,1,0",
                "creation_time is \"\": expected a number from 0",
            ),
            (
                "p,1,2,1,1000,,LS,Running,9,8,9",
                "deletion_time is \"8\": expected at least",
            ),
            (
                "p,1,2,1,1000,,LS,Running,9,10,8",
                "scheduled_time is \"8\": expected at least",
            ),
        ];
        for (row, expected) in cases {
            let error = pod(row).expect_err("a refusal");
            assert!(
                error.starts_with(&format!("pods.csv:2: {expected}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_pod_list_has_all_later_columns_or_none() {
        let text = b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos\np0,1,2,8,1000,LS\n";
        let error = pods("pods.csv", text).expect_err("a refusal").to_string();
        assert!(
            error.contains("has no column gpu_spec: expected the pods of openb"),
            "{error}"
        );
    }

    #[test]
    fn an_allocation_is_read() {
        let header = "workload,policy,tune,seed,total_gpus";
        let columns = ASKED_PCT
            .map(|pct| format!(",allocated_pct_at_{pct}"))
            .concat();
        let cells: String = (1..=14).map(|cell| format!(",{cell}.5")).collect();
        let text = format!("{header}{columns}\nw,06-FGD,1.3,42,6212{cells}\n");
        let read = allocations("f.csv", text.as_bytes()).expect("allocations");
        assert_eq!(
            (&*read[0].policy, read[0].seed, read[0].gpus),
            ("06-FGD", 42, 6212)
        );
        assert_eq!(
            (read[0].allocated_pct[0], read[0].allocated_pct[13]),
            (1.5, 14.5)
        );
        let text = text.replace(",14.5", ",100.1");
        let error = allocations("f.csv", text.as_bytes())
            .expect_err("a refusal")
            .to_string();
        let expected =
            "f.csv:2: allocated_pct_at_130 is \"100.1\": expected a number from 0 to 100";
        assert_eq!(error, expected);
    }
}
