//! Imports of whole files: real ones, which are not part of the repository, and ones made here.
#![forbid(unsafe_code)]

#[cfg(test)]
mod classes;
#[cfg(test)]
mod common;
#[cfg(test)]
mod ncu_made;
#[cfg(test)]
mod ncu_real;
#[cfg(test)]
mod nsys_made;
#[cfg(test)]
mod nsys_real;
#[cfg(all(test, feature = "parquet"))]
mod parquet_made;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod stats_real;
#[cfg(test)]
mod trace_made;
#[cfg(test)]
mod trace_real;
