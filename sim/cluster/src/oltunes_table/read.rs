//! The reader of the table's file. A row with a task beside is of a pair, one with a share of a
//! task alone, one with numbers of kernels of a model's ratio; other cells of each are empty.

use serde::Deserialize;

use super::{
    Alone, BATCHES, GPUS, InferenceTable, MODELS, Mechanism, PAIR_BATCHES, PAIRS, RATIO_BATCHES,
    RATIO_GPU, Ratio, SHARES_PCT, alone_index, pair_index, ratio_index,
};
use crate::table::{TableError, listed, named, none_missing, number, once, read_rows, there};

#[derive(Debug, Deserialize)]
struct Row {
    gpu: String,
    model: String,
    batch: Option<u32>,
    share_pct: Option<u32>,
    latency_ms: Option<f64>,
    sm_activity: Option<f64>,
    beside: Option<String>,
    beside_batch: Option<u32>,
    mechanism: Option<String>,
    speed: Option<f64>,
    beside_speed: Option<f64>,
    compute_kernels: Option<u32>,
    memory_kernels: Option<u32>,
}

struct Partial {
    alone: Vec<Option<Alone>>,
    pairs: Vec<Option<[f64; 2]>>,
    ratios: Vec<Option<Ratio>>,
}

impl InferenceTable {
    /// Reads a table; `file` is its name, for errors only.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, TableError> {
        let mut partial = Partial {
            alone: vec![None; alone_index(GPUS.len(), 0, 0, 0)],
            pairs: vec![None; PAIRS],
            ratios: vec![None; ratio_index(MODELS.len(), 0)],
        };
        read_rows(file, bytes, |row| partial.put(&row))?;
        partial.whole(file)
    }
}

impl Partial {
    fn put(&mut self, row: &Row) -> Result<(), String> {
        let gpu = named("gpu", &row.gpu, GPUS)?;
        let model = model_at("model", &row.model)?;
        match (&row.beside, row.share_pct, row.compute_kernels) {
            (Some(beside), None, None) => self.put_pair(row, gpu, model, beside),
            (None, Some(_), None) => {
                let batch = listed("batch", &BATCHES, row.batch)?;
                let share = listed("share_pct", &SHARES_PCT, row.share_pct)?;
                let index = alone_index(gpu, model, batch, share);
                once(&mut self.alone[index], alone_of(row)?)
            }
            (None, None, Some(compute_kernels)) if gpu == RATIO_GPU => {
                let batch = listed("batch", &RATIO_BATCHES, row.batch)?;
                let ratio = Ratio {
                    compute_kernels,
                    memory_kernels: there("memory_kernels", row.memory_kernels)?,
                };
                once(&mut self.ratios[ratio_index(model, batch)], ratio)
            }
            (None, None, Some(_)) => Err(format!(
                "compute_kernels on {}: expected on {}",
                row.gpu, GPUS[RATIO_GPU]
            )),
            _ => Err("expected exactly one of beside, share_pct and compute_kernels".to_owned()),
        }
    }

    fn put_pair(&mut self, row: &Row, gpu: usize, of: usize, beside: &str) -> Result<(), String> {
        let task = |model: usize, batch: usize| model * PAIR_BATCHES.len() + batch;
        let of = task(of, listed("batch", &PAIR_BATCHES, row.batch)?);
        let batch = listed("beside_batch", &PAIR_BATCHES, row.beside_batch)?;
        let beside = task(model_at("beside", beside)?, batch);
        let names = Mechanism::ALL.map(Mechanism::name);
        let by = named("mechanism", row.mechanism.as_deref().unwrap_or(""), names)?;
        let by = Mechanism::ALL[by];
        if by.is_symmetric() && of > beside {
            return Err(format!(
                "{} comes after its neighbour under {}: expected the earlier model or batch first",
                row.model,
                by.name()
            ));
        }
        let speeds = [
            speed("speed", row.speed)?,
            speed("beside_speed", row.beside_speed)?,
        ];
        once(&mut self.pairs[pair_index(by, gpu, of, beside)], speeds)
    }

    fn whole(self, file: &str) -> Result<InferenceTable, TableError> {
        let expected = self.alone.len() + self.pairs.len() + self.ratios.len();
        let alone: Vec<Alone> = self.alone.into_iter().flatten().collect();
        let pairs: Vec<[f64; 2]> = self.pairs.into_iter().flatten().collect();
        let ratios: Vec<Ratio> = self.ratios.into_iter().flatten().collect();
        let found = alone.len() + pairs.len() + ratios.len();
        none_missing(file, expected - found, expected)?;
        Ok(InferenceTable {
            alone,
            pairs,
            ratios,
        })
    }
}

fn alone_of(row: &Row) -> Result<Alone, String> {
    let sm_activity = number("sm_activity", row.sm_activity, 0.0)?;
    if sm_activity > 1.0 {
        return Err(format!("sm_activity is {sm_activity}: expected 0 to 1"));
    }
    Ok(Alone {
        latency_ms: number("latency_ms", row.latency_ms, LATENCY_MS_MIN)?,
        sm_activity,
    })
}

/// Less than the call of one kernel.
const LATENCY_MS_MIN: f64 = 1e-3;

fn speed(column: &str, speed: Option<f64>) -> Result<f64, String> {
    let speed = number(column, speed, 0.0)?;
    if speed > SPEED_MAX {
        return Err(format!("{column} is {speed}: expected 0 to {SPEED_MAX}"));
    }
    Ok(speed)
}

/// Above 1 where a window of time ended within a batch.
const SPEED_MAX: f64 = 1.05;

fn model_at(column: &str, name: &str) -> Result<usize, String> {
    named(column, name, MODELS.map(|model| model.name))
}
