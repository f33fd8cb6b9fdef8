//! Imports of whole files: real ones, which are not part of the repository, and generated ones.

#[macro_use]
extern crate testing;

mod classes;
mod common;
mod estimates;
mod ncu_made;
mod ncu_real;
mod nsys_made;
mod nsys_real;
mod requests;
mod scrub;
mod stats_real;
mod trace_made;
mod trace_real;

fn main() -> std::process::ExitCode {
    testing::main()
}
